//! Bounds of concurrent listings of queues, of peeks at messages, of dry runs of tasks, and of pages of holds.

use super::Span;

/// Max listings of queues with filters that run at once for one account. Such a listing may read all names of a
/// project.
pub const LISTINGS_AT_ONCE: usize = 2;
/// Max listings with filters of one account that run or wait; one more is refused.
pub const LISTINGS_IN_LINE: usize = 128;

/// Max peeks and dry runs of tasks that run at once for one account at one replica. Each pauses for most of its time.
pub const PEEKS_AT_ONCE: usize = 4;
/// Max peeks and dry runs of one account that run or wait at one replica; one more is refused.
pub const PEEKS_IN_LINE: usize = 128;
/// Max entries of a pool that one peek reads, whatever its filters accept. Then its page ends with a link to continue.
/// While a queue is in two pools, as many are read again.
pub const PEEK_ENTRIES: usize = 16_384;
/// Bytes of bodies and extras after which a peek reads no further entry: it holds its page in memory.
pub const PEEK_BYTES: usize = 16 << 20;
/// Max bytes of each body that a peek shows unless more is requested.
pub const PEEK_HEAD_BYTES: usize = 4_096;

/// Holds on a page of the holds of pools and projects.
pub const HOLDS_PAGE: Span = Span::new(1, 20, 1_000).expect("they are in order");

/// Max reads of a dry run of a task, each as large as those of one peek.
pub const DRY_RUN_PEEKS: usize = 64;
/// Seconds after which a dry run ends, with the part of the queue that it has read.
pub const DRY_RUN_SECONDS: u32 = 5;
/// Max messages that a dry run shows.
pub const DRY_RUN_SAMPLE: usize = 10;
