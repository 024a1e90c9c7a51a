//! Bounds of the Redis driver: timeouts, pauses, connections, and the size of one script.

use std::time::Duration;

/// How long a connection to Redis may take to come about.
pub const CONNECT: Duration = Duration::from_secs(2);
/// A command to Redis without an answer after this time has no known outcome. A batch takes milliseconds.
pub const ANSWER: Duration = Duration::from_secs(4);
/// How long a batch waits for replicas of Redis: less than for its answer, so that the answer states what is missing.
pub const WAIT: Duration = Duration::from_secs(2);
/// After a failed try to connect to Redis the next one follows this time.
pub const PAUSE: Duration = Duration::from_millis(500);
/// How often the settings of a Redis in use are looked at: they can be changed while it runs.
pub const LOOK: Duration = Duration::from_secs(10);
/// Connections for batches that wait for replicas of Redis. The batches of one connection wait in turn.
pub const WAITING: usize = 8;
/// Entries that one script in Redis reads, removes or looks at: no other caller is served meanwhile.
pub const PAGE: usize = 1_024;
/// Bytes of bodies that one script in Redis reads, likewise.
pub const PAGE_BYTES: usize = 4 << 20;
/// Entries that one script in Redis reads by their ids, which may all have the greatest bodies.
pub const GET: usize = 64;
