//! Bounds of the Redis driver: timeouts, pauses, connections, and the size of one script.

use std::time::Duration;

/// Max time to connect to Redis.
pub const CONNECT: Duration = Duration::from_secs(2);
/// Max time without an answer to a command to Redis; after that its outcome is unknown. A batch takes milliseconds.
pub const ANSWER: Duration = Duration::from_secs(4);
/// Max time that a batch waits for replicas of Redis: less than [`ANSWER`], so that the answer states what is missing.
pub const WAIT: Duration = Duration::from_secs(2);
/// Pause after a failed attempt to connect to Redis.
pub const PAUSE: Duration = Duration::from_millis(500);
/// Period in which the settings of a Redis in use are read again: an administrator can change them at run time.
pub const LOOK: Duration = Duration::from_secs(10);
/// Connections for batches that wait for replicas of Redis. The batches of one connection wait one after the other.
pub const WAITING: usize = 8;
/// Max entries that one script in Redis reads or removes: Redis serves no other client meanwhile.
pub const PAGE: usize = 1_024;
/// Max bytes of bodies, and of headers, that one script in Redis reads, for the same reason: results are in headers.
pub const PAGE_BYTES: usize = 4 << 20;
/// Max entries that one script in Redis reads by their ids; all may have bodies of the max size.
pub const GET: usize = 64;
