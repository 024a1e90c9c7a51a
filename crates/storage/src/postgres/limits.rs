//! Bounds of the PostgreSQL driver: timeouts, pauses, connections, and the size of one statement.

use std::time::Duration;

/// Max time to connect to PostgreSQL, and to wait for a free connection.
pub const CONNECT: Duration = Duration::from_secs(3);
/// Max time of a statement in PostgreSQL; then the server cancels it, certainly without an effect. A batch takes
/// milliseconds.
pub const STATEMENT: Duration = Duration::from_secs(4);
/// Max time of one migration of the tables: the indexes of a new version are built from all entries, at about a second or
/// two for each million of them.
pub const MIGRATION: Duration = Duration::from_secs(1_800);
/// Max time without an answer to a statement; after that its outcome is unknown. Longer than [`STATEMENT`].
pub const ANSWER: Duration = Duration::from_secs(6);
/// Pause after a failed attempt to connect to PostgreSQL.
pub const PAUSE: Duration = Duration::from_millis(500);
/// Max connections of one pool for batches, in addition to those for reads: a server allows a hundred by default.
pub const WRITES: usize = 16;
/// Max concurrent statements to PostgreSQL that batches of many slots share. Batches that arrive meanwhile are sent
/// with the next one: fewer statements are larger and cost less, more of them use more processors of the server.
pub const SHARED: usize = 4;
/// Max changes of entries and notes in a shared statement. A batch with more has a statement of its own.
pub const SHARED_CHANGES: usize = 512;
/// Max bytes of bodies in a shared statement. A batch with more has a statement of its own.
pub const SHARED_BYTES: usize = 512 * 1024;
/// Max entries of a dropped queue that one statement in PostgreSQL removes.
pub const PAGE: usize = 4_096;
/// Bytes of an entry in PostgreSQL in addition to its body: a row, its key and its entry in the index of expiry.
pub const ENTRY_BYTES: i64 = 256;
