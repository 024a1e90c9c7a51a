//! Bounds of the counting of queues that are not open, for the metrics.

use std::time::Duration;

/// Queues of slots that were taken whose stored totals are read in one step, and the length of a step: 1,000 queues a second. A
/// hundred thousand queues take under two minutes, and an embedded pool, Redis or PostgreSQL has 20 to 100 times as many such
/// reads to give to clients in that time.
pub const COUNTING_QUEUES: usize = 50;
/// See [`COUNTING_QUEUES`].
pub const COUNTING_STEP: Duration = Duration::from_millis(50);
/// How often it is looked for queues to be counted.
pub const COUNTING_TICK: Duration = Duration::from_millis(500);
/// Queues that wait for the reads of one pool, a second of counting; and as many that could not be read. More of them wait for a
/// later pass over their slot.
pub const COUNTING_LINE: usize = 1_024;
/// Queues of one pool that are read at once: half of the connections that PostgreSQL is read by, so that the reads of clients
/// find one that is free.
pub const COUNTING_AT_ONCE: usize = super::POSTGRES_READS / 2;
/// How long the reads of one queue may take: longer than a command to Redis or a statement to PostgreSQL without an answer does.
pub const COUNTING_WAIT: Duration = Duration::from_secs(8);
/// Pauses after reads of a pool none of which was answered, and before the queues of a slot are tried again that could not be read: the first,
/// and the longest. Each is twice the one before.
pub const COUNTING_PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// Queues with a record that cannot be read, each of which is logged once.
pub const COUNTING_LOGGED: usize = 256;
/// A closed queue that could not be opened for a delayed message that is due is looked at again after so many seconds.
pub const DUE_RETRY_SECONDS: u32 = 30;
/// A task that reads a pool, and that has had nothing to read for this long, ends.
pub const COUNTING_IDLE: Duration = Duration::from_secs(10);
/// Queues of one slot whose figures are kept while they are closed, or that wait to be counted, about 250 bytes each: a million
/// queues in all slots, 256 MiB. Those beyond it count as queues, and their messages are not in the sums.
pub const SLOT_COUNTED: usize = 4_096;
/// A queue gets figures of its own for its depth in place of the shallowest one that has them so only when it is deeper by more
/// than one part in so many of that: else two of about the same depth would take turns.
pub const DEEPER_PARTS: u64 = 4;
/// How often pools are asked what all their queues hold: it costs them a walk over their queues.
pub const USAGE_TICK: Duration = Duration::from_secs(60);
/// Projects whose quotas are shown among the metrics, at most six series each; those that use most of theirs.
pub const METERED_QUOTAS: usize = 200;
