//! Bounds of what one queue keeps in memory, and of what one step reads.

use angarium_core::small_bounds::within;

/// Max ready messages of a queue in memory. Messages with small bodies could otherwise exceed the byte budget by their
/// headers.
pub const READY_CACHE_MESSAGES: usize = 4_096;
/// A ready cache with fewer messages than this, and less than a quarter of its bytes, is refilled before it is empty.
/// With large bodies a few messages fill it, and there would be no room for a page that is read then.
pub const READY_CACHE_LOW: usize = 256;

/// Returns [`READY_CACHE_MESSAGES`], or less in a run of the simulation with small bounds.
pub(crate) fn ready_cache_messages() -> usize {
    within(READY_CACHE_MESSAGES)
}

/// Returns [`READY_CACHE_LOW`], or less in a run of the simulation with small bounds.
pub(crate) fn ready_cache_low() -> usize {
    READY_CACHE_LOW.min(ready_cache_messages().div_ceil(2))
}

/// Min messages under claims of a noisy group in a queue that is not ordered (SQS: 30). See [`NOISY_SHARE`].
pub const NOISY_MESSAGES: usize = 30;
/// A noisy group also has more than one of this many of all messages of the queue under claims (SQS: a tenth).
pub const NOISY_SHARE: usize = 10;
/// Seconds without a sent message after which a noisy group is quiet again (SQS: five minutes).
pub const NOISY_SECONDS: u32 = 300;
/// Message-milliseconds in flight, over the last spans, that make a group noisy if they are also more than one of
/// [`NOISY_SHARE`] of the sum of all groups. The value is thirty messages for a minute, so a few messages in a queue
/// with few consumers do not change the order.
pub const NOISY_TIME: u64 = 30 * 60_000;
/// Seconds of a span: the current span and the one before count.
pub const NOISY_SPAN_SECONDS: u32 = 150;
/// Max groups whose times in flight are recorded.
pub const NOISY_KNOWN: usize = 1_024;
/// A group with less than one of this many of all messages in flight is not recorded.
pub const NOISY_MIN: usize = 100;
/// Max noisy groups of a queue at once: at any time at most nine have more than a tenth, and each stays noisy for a
/// while.
pub const NOISY_GROUPS: usize = 64;
/// Max messages of quiet groups that the look-ahead has in memory beyond a ready cache full of noisy ones.
pub const AHEAD_MESSAGES: usize = 1_024;
/// Max groups of an ordered queue in memory, at some hundred bytes each in addition to their messages.
pub const GROUPS_KNOWN: usize = 8_192;
/// Max messages that one read of a group returns: as many as a claim may have.
pub const GROUP_MESSAGES: usize = 512;
/// Max concurrent reads of groups of a queue.
pub const GROUP_READS: usize = 16;

/// Claims of a queue that an explanation looks at for the names of their holders and the next expiry. With more claims the
/// names are those of the first ones, and the expiry is not shown: the slot waits meanwhile.
pub const EXPLAINED_CLAIMS: usize = 4_096;
/// Names of holders, of groups or of targets that an explanation has of each kind.
pub const EXPLAINED_NAMES: usize = 16;

/// Max recalled messages of a queue that memory knows, for the answers to their holders: 32 bytes each.
pub const RECALLS_KNOWN: usize = 256;
/// Max changes of messages that are recorded while a page of due messages is read: 1 MiB of ids. After more changes the
/// page is read again.
pub const WAKE_CHANGES: usize = 65_536;
/// Freed groups that are kept for the next claim: from this number on they are entered at once.
pub const FREED_GROUPS: usize = 1_024;
