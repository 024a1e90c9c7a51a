//! Bounds of the memory that clients make the service hold, and of what stays in memory over all queues.

use std::time::Duration;

/// Bytes of request bodies in memory, from their arrival until the request is answered. Forty of the longest.
pub const BODY_BYTES: u32 = 256 << 20;
/// The least that an operator may set: a share of it has room for the longest body.
pub const BODY_BYTES_MIN: u32 = 32 << 20;
/// Of so many shares an account, or an address whose project is not known yet, holds at most one. Short bodies, which count
/// for no account, have another one, which no other body takes.
pub const BODY_SHARES: usize = 4;
/// Bytes of the longest body that counts for no project, however large the budget is.
pub const SHORT_BODY_BYTES: usize = 16 * 1024;
/// What each piece of a body costs beside its bytes.
pub const BODY_PIECE_BYTES: usize = 64;
/// A body that took longer for its last 16 KiB makes room for others when there is none: it arrives with less than 160
/// KiB/s.
pub const SLOW_BODY: Duration = Duration::from_millis(100);
/// How long a body may take whose sender is not proven before all of it is there, when little of it arrives.
pub const UNPROVEN_BODY: Duration = Duration::from_secs(10);
/// It has a second more for each so many bytes.
pub const UNPROVEN_STEP: u32 = 16 * 1024;
/// Of so many parts of the places for requests one address has at most one with requests whose senders are not proven.
pub const UNPROVEN_PARTS: usize = 4;
/// Bytes of answers that wait for their clients to read on.
pub const UNSENT_BYTES: u32 = 256 << 20;
/// The least that an operator may set: the longest answers are some ten MiB.
pub const UNSENT_BYTES_MIN: u32 = 32 << 20;
/// Bytes of a query. The longest that this API takes are lists of ids, which are some kilobytes; text for messages is for
/// bodies.
pub const QUERY_BYTES: usize = 16 * 1024;
/// Names in the list of signed headers, as many as a request may have headers.
pub const SIGNED_HEADERS: usize = 100;

/// Ids of deduplication that all queues together remember; beyond it posts with one are answered 429.
pub const DEDUP_KNOWN_ALL: usize = 4_000_000;
