//! Bounds of the memory that clients occupy, and of the state of all queues in memory.

use std::time::Duration;

/// Max bytes of request bodies in memory, from their arrival until the request is answered: forty bodies of the max
/// length.
pub const BODY_BYTES: u32 = 256 << 20;
/// Min value of [`BODY_BYTES`] that an operator may set: one share of it has room for the longest body.
pub const BODY_BYTES_MIN: u32 = 32 << 20;
/// Number of shares of the body budget. An account, or an address whose project is not known yet, holds at most one
/// share. Short bodies count for no account and have one more share, which no other body takes.
pub const BODY_SHARES: usize = 4;
/// Max bytes of a body that counts for no project, however large the budget is.
pub const SHORT_BODY_BYTES: usize = 16 * 1024;
/// Bytes that each piece of a body costs in addition to its content.
pub const BODY_PIECE_BYTES: usize = 64;
/// Max time for the last 16 KiB of a body. A body that took longer (less than 160 KiB/s) is dropped for others when the
/// budget is full.
pub const SLOW_BODY: Duration = Duration::from_millis(100);
/// Max time of a body whose sender is not authenticated. [`UNPROVEN_STEP`] extends it.
pub const UNPROVEN_BODY: Duration = Duration::from_secs(10);
/// Bytes of a body that extend [`UNPROVEN_BODY`] by one second.
pub const UNPROVEN_STEP: u32 = 16 * 1024;
/// An address may have at most one of this many parts of the places for requests with requests of unauthenticated
/// senders.
pub const UNPROVEN_PARTS: usize = 4;
/// Max bytes of answers that wait for their clients to read them.
pub const UNSENT_BYTES: u32 = 256 << 20;
/// Min value of [`UNSENT_BYTES`] that an operator may set: the longest answers have some ten MiB.
pub const UNSENT_BYTES_MIN: u32 = 32 << 20;
/// Max bytes of a query. The longest queries of this API are lists of ids, which have some kilobytes; the text of
/// messages belongs in bodies.
pub const QUERY_BYTES: usize = 16 * 1024;
/// Max names in the list of signed headers: as many headers as a request may have.
pub const SIGNED_HEADERS: usize = 100;

/// Max deduplication ids of all queues together in memory; above it a post with a deduplication id is answered 429.
pub const DEDUP_KNOWN_ALL: usize = 4_000_000;
