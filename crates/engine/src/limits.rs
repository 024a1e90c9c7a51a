//! Bounds of what one queue keeps in memory, and of what one step of it reads.

/// Ready messages that a queue keeps in memory, so that tiny ones cannot outgrow the byte budget by their headers.
pub const READY_CACHE_MESSAGES: usize = 4_096;
/// A window below this, and below a quarter of its bytes, is filled from the pool before it runs empty. With
/// large bodies a few messages fill it, and a page read then would be read for nothing.
pub const READY_CACHE_LOW: usize = 256;
/// A group of a queue that is not in order of groups is noisy when it has so many messages under claims (SQS: 30), ...
pub const NOISY_MESSAGES: usize = 30;
/// ... and more than one of so many of all those of the queue (SQS: a tenth).
pub const NOISY_SHARE: usize = 10;
/// Seconds without a message sent after which it is quiet again (SQS: five minutes).
pub const NOISY_SECONDS: u32 = 300;
/// A group is noisy too when its messages were in flight for so many message-milliseconds in the last spans, and for more than one of
/// [`NOISY_SHARE`] of all: thirty messages for a minute, so that a few messages of a queue with few consumers are in order.
pub const NOISY_TIME: u64 = 30 * 60_000;
/// The length of a span: the one that runs and the one before are looked at.
pub const NOISY_SPAN_SECONDS: u32 = 150;
/// Groups whose times in flight are known; those with less than a hundredth of all messages in flight are left out.
pub const NOISY_KNOWN: usize = 1_024;
/// See [`NOISY_KNOWN`].
pub const NOISY_MIN: usize = 100;
/// Groups of a queue that may be noisy at once: at any one time nine have more than a tenth, and each stays so for a while.
pub const NOISY_GROUPS: usize = 64;
/// Messages of quiet groups that a queue knows beyond a window full of noisy ones.
pub const AHEAD_MESSAGES: usize = 1_024;
/// Groups of an ordered queue that are known at once, at some hundred bytes each beside their messages.
pub const GROUPS_KNOWN: usize = 8_192;
/// Messages that one read of a group brings at most: as many as a claim may have.
pub const GROUP_MESSAGES: usize = 512;
/// Groups of a queue that are read at once.
pub const GROUP_READS: usize = 16;

/// Changes of messages that are noted while a page of due ones is read: 1 MiB of ids. After more the page is read again.
pub const WAKE_CHANGES: usize = 65_536;
/// Groups that became free and that no caller has asked for: beyond it they are entered at once.
pub const FREED_GROUPS: usize = 1_024;
