//! Bounds of the PostgreSQL driver: timeouts, pauses, connections, and the size of one statement.

use std::time::Duration;

/// How long a connection to PostgreSQL may take to come about, and how long a use waits for a free one.
pub const CONNECT: Duration = Duration::from_secs(3);
/// A statement that runs longer in PostgreSQL is ended there, undone for certain. A batch takes milliseconds.
pub const STATEMENT: Duration = Duration::from_secs(4);
/// A statement to PostgreSQL without an answer after this time has no known outcome: longer than it may run.
pub const ANSWER: Duration = Duration::from_secs(6);
/// After a failed try to connect to PostgreSQL the next one follows this time.
pub const PAUSE: Duration = Duration::from_millis(500);
/// Connections of one pool for batches, beside those for reads: of the hundred that a server has by default.
pub const WRITES: usize = 16;
/// Statements to PostgreSQL under way that batches of many slots share. What gathers meanwhile is sent with the next
/// one: fewer make larger statements, which cost less, and more use more processors of the server.
pub const SHARED: usize = 4;
/// Changes of entries and notes in such a statement. A batch with more has one of its own.
pub const SHARED_CHANGES: usize = 512;
/// Bytes of bodies in such a statement, likewise.
pub const SHARED_BYTES: usize = 512 * 1024;
/// Entries that one statement in PostgreSQL removes of a dropped queue.
pub const PAGE: usize = 4_096;
/// Bytes that an entry in PostgreSQL takes beside its body: a row, its key and its place in the index of expiry.
pub const ENTRY_BYTES: i64 = 256;
