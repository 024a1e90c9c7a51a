//! Bounds of the pool drivers: timeouts, pauses, connections, and the size of one statement or script.

use std::time::Duration;

/// How long a connection to PostgreSQL may take to come about, and how long a use waits for a free one.
pub const POSTGRES_CONNECT: Duration = Duration::from_secs(3);
/// A statement that runs longer in PostgreSQL is ended there, undone for certain. A batch takes milliseconds.
pub const POSTGRES_STATEMENT: Duration = Duration::from_secs(4);
/// A statement to PostgreSQL without an answer after this time has no known outcome: longer than it may run.
pub const POSTGRES_ANSWER: Duration = Duration::from_secs(6);
/// After a failed try to connect to PostgreSQL the next one follows this time.
pub const POSTGRES_PAUSE: Duration = Duration::from_millis(500);
/// Connections of one pool to PostgreSQL for reads, and for batches: of the hundred that a server has by default.
pub const POSTGRES_READS: usize = 8;
/// See [`POSTGRES_READS`].
pub const POSTGRES_WRITES: usize = 16;
/// Statements to PostgreSQL under way that batches of many slots share. What gathers meanwhile is sent with the next
/// one: fewer make larger statements, which cost less, and more use more processors of the server.
pub const POSTGRES_SHARED: usize = 4;
/// Changes of entries and notes in such a statement. A batch with more has one of its own.
pub const POSTGRES_SHARED_CHANGES: usize = 512;
/// Bytes of bodies in such a statement, likewise.
pub const POSTGRES_SHARED_BYTES: usize = 512 * 1024;
/// Entries that one statement in PostgreSQL removes of a dropped queue.
pub const POSTGRES_PAGE: usize = 4_096;
/// Bytes that an entry in PostgreSQL takes beside its body: a row, its key and its place in the index of expiry.
pub const POSTGRES_ENTRY_BYTES: i64 = 256;

/// How long a connection to Redis may take to come about.
pub const REDIS_CONNECT: Duration = Duration::from_secs(2);
/// A command to Redis without an answer after this time has no known outcome. A batch takes milliseconds.
pub const REDIS_ANSWER: Duration = Duration::from_secs(4);
/// How long a batch waits for replicas of Redis: less than for its answer, so that the answer states what is missing.
pub const REDIS_WAIT: Duration = Duration::from_secs(2);
/// After a failed try to connect to Redis the next one follows this time.
pub const REDIS_PAUSE: Duration = Duration::from_millis(500);
/// How often the settings of a Redis in use are looked at: they can be changed while it runs.
pub const REDIS_LOOK: Duration = Duration::from_secs(10);
/// Connections for batches that wait for replicas of Redis. The batches of one connection wait in turn.
pub const REDIS_WAITING: usize = 8;
/// Entries that one script in Redis reads, removes or looks at: no other caller is served meanwhile.
pub const REDIS_PAGE: usize = 1_024;
/// Bytes of bodies that one script in Redis reads, likewise.
pub const REDIS_PAGE_BYTES: usize = 4 << 20;
/// Entries that one script in Redis reads by their ids, which may all have the greatest bodies.
pub const REDIS_GET: usize = 64;
/// Buckets of time that one look for what is due in a pool clears away; the next look continues.
pub const DUE_BUCKETS: usize = 4_096;
/// Entries or buckets of other queues that one look for what lives by a queue's retention passes over, in pools that file queues
/// beside each other: what it costs does not depend on what the others hold; the next look continues.
pub const RETAINED_WALK: usize = 4_096;
