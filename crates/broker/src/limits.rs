//! Bounds of the broker: what it reads at once, waits for and keeps in memory, how often its tasks look.

use std::time::Duration;

/// Messages that one read of a listing takes from a pool.
pub const LISTING_READ: usize = 256;
/// Reads of a pool for one page. What a filter leaves out is looked at too, so a page ends here, with a link to go on.
pub const LISTING_READS: usize = 64;
/// Names of queues that one page of a listing looks at; then it ends likewise. Reading them is four reads of each of the
/// 256 directories.
pub const LISTING_NAMES: usize = 100_000;
/// Records of queues that one page of a listing with filters on the metadata reads; then it ends likewise.
pub const LISTING_QUEUES: usize = 1_000;
/// Pools that take no new messages and are named where none does: a probe reads the answer as one line.
pub const CLOSED_POOLS_NAMED: usize = 4;
/// Messages that one step of a purge removes.
pub const PURGE_STEP: usize = 1_024;
/// How often a receive that waits looks whether some of them are gone.
pub const SQS_IN_FLIGHT_LOOK: Duration = Duration::from_millis(100);
/// Seconds between two purges of a queue, and from its deletion to its next creation, where that is asked for (SQS: 60).
pub const SQS_PAUSE_SECONDS: u32 = 60;
/// Purges and deletions that are noted for that of the queues of one slot; with more of them the oldest is forgotten.
pub const SQS_PAUSES: usize = 1_024;
/// How often a task looks whether what it has set aside has arrived, and whether it is to go on.
pub const MOVE_TASK_STEP: Duration = Duration::from_millis(10);

/// How long one page of metrics may look at queues that have changed; what is left shows older figures.
pub const OBSERVATION: Duration = Duration::from_secs(3);

/// Projects whose holdings are remembered at once beside those that hold nothing, which are counted again in an instant.
pub const COUNTED_PROJECTS: usize = 65_536;
/// How long a request waits while it is counted what its project holds. Then 503, and the counting continues: of a hundred
/// thousand queues it takes seconds.
pub const COUNT_WAIT: Duration = Duration::from_secs(5);
/// How often queues are counted again whose pool did not answer, or whose slot was recovered.
pub const RECOUNT_TICK: Duration = Duration::from_secs(2);
/// Queues whose totals are asked for at once.
pub const COUNT_AT_ONCE: usize = 64;
/// A replica that is asked what is in its queues leaves out those whose pools have not answered within this time. It is shorter than
/// [`HEALTH_DEADLINE`], which the asker waits, so that the others arrive.
pub const COUNTS_ANSWER: Duration = Duration::from_secs(3);
/// Bytes of the windows of all queues together, looked at so often: beyond it windows are left to the pools. What arrives
/// between two looks is as much as is posted in that time.
pub const READY_CACHES_BYTES: usize = 192 << 20;
/// See [`READY_CACHES_BYTES`].
pub const READY_CACHES_TICK: Duration = Duration::from_secs(1);
/// Notes that one read of those of a queue brings, and that one batch forgets.
pub const NOTES_PAGE: usize = 4_096;
/// Messages of one kind of work in one pool batch; a longer queue of work is sent in several batches.
pub const BATCH_MESSAGES: usize = 8_192;
/// Bytes of message bodies in one pool batch.
pub const BATCH_BYTES: usize = 8 << 20;
/// Messages of a slot that wait for a pool to become durable. Beyond it new ones are answered 503 at once.
pub const WRITER_MESSAGES: usize = 65_536;
/// Bytes of bodies of a slot that wait for a pool, likewise.
pub const WRITER_BYTES: usize = 64 << 20;
/// Slots that are handed over in one commit. Few, because all of them wait until the last one's work is done and the commit has
/// its answer; meanwhile those before are taken.
pub const SLOTS_HANDED: usize = 8;
/// How long the slots that come next wait until those before are served again: a tenth of a second usually, and not for ever,
/// since the replica that should take them may be about to leave too.
pub const HANDED_REST: Duration = Duration::from_millis(500);
/// Slots whose claims are read at the same time: up to 64 directories each, and reads are bounded.
pub const SLOTS_LOADED: usize = 8;
/// How long a request waits for its slot while that is recovered. Then 503: taking it again takes two round
/// trips to the tree when all leaves well.
pub const SLOT_WAIT: Duration = Duration::from_secs(2);
/// How often slots are looked at that may have to be recovered without any request asking for them.
pub const SLOT_TICK: Duration = Duration::from_millis(500);

/// For how long the running replicas must have been the same before slots that are served go to others.
pub const SETTLE: Duration = Duration::from_secs(3);
/// How long to wait for more changes of the cluster once there is one: they come in numbers, and cost a read each.
pub const GATHER: Duration = Duration::from_millis(5);
/// How long what is under way in slots may take to end before they are handed over.
pub const HAND_OVER: Duration = Duration::from_secs(5);
/// How long handing every slot over may take.
pub const DRAIN: Duration = Duration::from_secs(15);

/// A replica that has handed everything over serves on until no client has asked it for this long: by then a load balancer
/// has seen that it is not ready, and does not send a request on a connection that ends in the same moment. That of
/// `docker/haproxy.cfg` needs 0.7 s.
pub const FAREWELL_IDLE: Duration = Duration::from_secs(1);
/// For how long at most: a client may know no other replica.
pub const FAREWELL: Duration = Duration::from_secs(5);

/// How often the time is recorded, and learnt from the tree: a start cannot tell a pause that is shorter from none.
pub const CLOCK_TICK: Duration = Duration::from_secs(60);
/// How often the owner looks for claims that ended when no deadline is nearer: so late a deadline may be met that was noted
/// under a clock which has made a step since.
pub const EXPIRY_TICK: Duration = Duration::from_millis(250);
/// How long the answer to a claim waits for the messages that it has set aside to arrive in the queue for dead letters, where
/// the same replica serves that. A pool that hangs holds it up no longer.
pub const ARRIVAL_WAIT: Duration = Duration::from_millis(100);
/// Claims that wait so for the dead letters of one queue; another one is answered at once.
pub const ARRIVAL_WAITERS: usize = 1_024;
/// The shortest pause between two looks for what is due: so late a deadline may be met at least, and so many looks a second
/// are the most.
pub const DEADLINE_GRAIN: Duration = Duration::from_millis(5);
/// Time in which every slot is swept once of messages whose life has ended.
pub const SWEEP_ROUND: Duration = Duration::from_secs(30);
/// Messages that one look of a sweep into one pool finds.
pub const SWEEP_MESSAGES: usize = 1_024;
/// Looks of one sweep of one slot into one pool, so that a backlog of expired messages in one slot does not keep
/// the others waiting for more than a few seconds.
pub const SWEEP_LOOKS: usize = 64;
/// A queue's earliest retained message is asked for again after this part of the retention, so that what pools have filed for
/// deleted ones does not gather.
pub const RETENTION_PARTS: u32 = 256;
/// The least time between two such questions, in seconds.
pub const RETENTION_PAUSE_SECONDS: u32 = 64;
/// How long to wait before it is tried again whether all replicas know a new form of records, where messages are sent
/// meanwhile in the old one.
pub const SCHEMA_TRY: Duration = Duration::from_secs(5);
/// How often the owner looks for scheduled messages that are due when no deadline is nearer. A claim that arrives finds them
/// without that.
pub const SCHEDULE_TICK: Duration = Duration::from_millis(50);
/// Scheduled messages that are made ready in one batch.
pub const WAKE_MESSAGES: usize = 1_024;
/// Bytes of bodies that one look for scheduled messages may read along.
pub const WAKE_BYTES: usize = 1 << 20;
/// Pages of queues that are looked at for one whose dead letters go to the queue of a new move task.
pub const MOVE_SOURCE_PAGES: usize = 10;
/// The oldest messages of such a queue that are looked at before: one that is a dead letter tells as much.
pub const MOVE_SOURCE_MESSAGES: usize = 16;
/// Messages that go to another queue in one batch.
pub const MOVE_MESSAGES: usize = 256;
/// Bytes of bodies that go to another queue in one batch, and a body more.
pub const MOVE_BYTES: usize = 1 << 20;
/// Pauses of a migration: before the next look at messages that cannot go over now, since they are claimed, and before the
/// next try after a failure. The first, and the longest; each is twice the one before.
pub const COPY_PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));
/// What at least is between two looks at messages that cannot go over, however many claims end.
pub const COPY_REST: Duration = Duration::from_millis(500);
/// How long a count of a queue waits for the batch of messages that is just being copied.
pub const COPY_STILL: Duration = Duration::from_secs(1);
/// Queues of one pool that a replica copies at the same time when the pool is drained.
pub const DRAIN_AT_ONCE: usize = 16;
/// Those beside them that only wait for claims to end: each has a task that looks every few seconds.
pub const DRAIN_HELD: usize = 1_024;
/// How often it is looked whether migrations of a drained pool have ended.
pub const DRAIN_TICK: Duration = Duration::from_secs(1);
/// How long a replica waits before it tries again to send queues out of a drained pool that could not be sent away.
pub const DRAIN_LOOK: Duration = Duration::from_secs(20);
/// Messages a second to which a migration may be bounded.
pub const MIGRATION_RATE: (u32, u32) = (1, 1_000_000);
/// How long the note of messages that went over to another pool is kept at least. Nothing removes it while it is needed.
pub const COPIED_NOTE_SECONDS: u32 = 86_400;
/// Pauses between tries of a move whose target cannot be reached: the first, and the longest. Each is twice the one
/// before.
pub const MOVE_PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// How long the moves into a queue are held while the source of one is asked for messages, or to let them go: half as long as others
/// wait for the moves into it.
pub const MOVE_SOURCE: Duration = Duration::from_secs(5);
/// Queues of a slot that was taken whose pools are asked in one step for moves that were begun before, and the pause
/// between two steps: a hundred thousand queues take about a minute, beside what clients ask for.
pub const UNFINISHED_QUEUES: usize = 64;
/// See [`UNFINISHED_QUEUES`].
pub const UNFINISHED_STEP: Duration = Duration::from_millis(20);
/// How long one such queue is waited for. Then its pools count as silent, and the next queue has its turn.
pub const UNFINISHED_WAIT: Duration = Duration::from_secs(5);
/// How often to look for slots that were taken.
pub const UNFINISHED_TICK: Duration = Duration::from_millis(500);
/// Pauses before the queues of a slot are looked at again though a pool that could not be asked seems to be well: the first,
/// and the longest. Each is twice the one before.
pub const UNFINISHED_PAUSES: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(300));
/// Seconds after which what no caller asked for is tried again: ends of claims, scheduled messages that are due.
pub const RETRY_SECONDS: u32 = 1;
/// Claims that one expiry turn of one slot ends, so that a turn is short.
pub const EXPIRY_TURN: usize = 256;
/// Claim nodes whose messages were all deleted are removed from the tree at least this often.
pub const CLAIM_SHRINK_TICK: Duration = Duration::from_millis(500);
/// Seconds after a slot was taken in which no claim of it ends: its holder may have been cut off only by that.
pub const EXPIRY_HOLD_SECONDS: u32 = 2;
/// How long a claim looks for messages that are there but must be read, or are found to be over. Then 503: it
/// would be untrue that there is nothing to claim.
pub const CLAIM_DEADLINE: Duration = Duration::from_secs(10);

/// How often pools that could not be opened are tried again, and how often it is asked how full the pools are.
pub const POOL_TICK: Duration = Duration::from_secs(5);
/// A kind of background task that has not failed for this long works again: longer than the pause of any of them.
pub const TASK_QUIET: Duration = Duration::from_secs(300);
/// A pool that has not said within this time how it is does not answer.
pub const HEALTH_DEADLINE: Duration = Duration::from_secs(5);
/// Queues that a survey of all pools looks at, for the map and for a plan of moves: some seconds of reading.
pub const SURVEY_QUEUES: usize = 100_000;
/// How much a queue weighs in a plan of moves beside what it holds, and each of its messages beside its body, in bytes.
pub const BALANCE_QUEUE_BYTES: u64 = 1_024;
/// See [`BALANCE_QUEUE_BYTES`].
pub const BALANCE_MESSAGE_BYTES: u64 = 256;
/// How many changes a minute a queue counts in a plan of moves beside its own: while little is written nothing moves for it.
pub const BALANCE_QUEUE_CHANGES: u64 = 60;
/// How old the number of all queues may be that is shown without counting again.
pub const QUEUE_COUNT_AGE: Duration = Duration::from_secs(5);
/// How often the owner looks for queues that are deleted and not yet cleaned away.
pub const DROPPED_TICK: Duration = Duration::from_millis(500);
/// Entries of a deleted queue that one turn removes from a pool, so that others get their turns.
pub const DROPPED_TURN: usize = 1_024;
/// How long the deletion of a queue waits for what is under way there. Longer than a slot writer tries one batch, and
/// than a commit to the tree takes.
pub const CLOSE_DEADLINE: Duration = Duration::from_secs(10);

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
pub const COUNTING_AT_ONCE: usize = angarium_core::limits::POSTGRES_READS / 2;
/// How long the reads of one queue may take: longer than a command to Redis or a statement to PostgreSQL without an answer does.
pub const COUNTING_WAIT: Duration = Duration::from_secs(8);
/// Pauses after reads of a pool none of which was answered, and before the queues of a slot are tried again that could not be read: the first,
/// and the longest. Each is twice the one before.
pub const COUNTING_PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// Queues with a record that cannot be read, each of which is logged once.
pub const COUNTING_LOGGED: usize = 256;
/// Queues with stored attributes that have no effect, each of which is logged once: enough to see what they have in
/// common; `doctor` names all.
pub const IGNORED_LOGGED: usize = 256;
/// A closed queue that could not be opened for a delayed message that is due is looked at again after so many seconds.
pub const DUE_RETRY_SECONDS: u32 = 30;
/// A task that reads a pool, and that has had nothing to read for this long, ends.
pub const COUNTING_IDLE: Duration = Duration::from_secs(10);
/// Closed queues of one slot whose figures are kept one by one, and such as wait to be counted, about 250 bytes each: a million
/// queues in all slots, 256 MiB. Those beyond it are one sum, and have no name in metrics.
pub const SLOT_COUNTED: usize = 4_096;
/// Queues beyond [`SLOT_COUNTED`] that were swept while the queues of their slot are counted, about 150 bytes each. With more of
/// them the count begins again.
pub const COUNTING_CHANGES: usize = 4_096;
/// Queues beyond [`SLOT_COUNTED`], of one slot, of which it is known when their oldest message was posted: those with the
/// oldest ones. When so many have left, the queues are counted again.
pub const OLDEST_QUEUES: usize = 64;
/// A queue gets figures of its own for its depth in place of the shallowest one that has them so only when it is deeper by more
/// than one part in so many of that: else two of about the same depth would take turns.
pub const DEEPER_PARTS: u64 = 4;
/// How often pools are asked what all their queues hold: it costs them a walk over their queues.
pub const USAGE_TICK: Duration = Duration::from_secs(60);
/// Projects whose quotas are shown among the metrics, at most six series each; those that use most of theirs.
pub const METERED_QUOTAS: usize = 200;

/// The pause between two steps of a count after a crash.
pub const RECOUNT_STEP: Duration = Duration::from_millis(50);
/// How often it is looked whether a pool is to be counted.
pub const RECOUNT_REST: Duration = Duration::from_secs(60);
/// Queues of a project without a quota whose messages are counted for one who asks how much it holds: some hundred milliseconds
/// of reading. Of one with more nothing is said.
pub const COUNTED_QUEUES: usize = 10_000;

/// How often it is looked which queues no caller uses.
pub const IDLE_TICK: Duration = Duration::from_secs(60);
/// A queue that no caller has used for so many looks is closed: longer than any request takes, and than ids of
/// deduplication are remembered.
pub const IDLE_ROUNDS: u8 = 10;
/// Closed queues of one slot of which it is known from when on they have retained messages, about 64 bytes each; the messages of
/// others stay until their queue is opened.
pub const RETAINED_IDLE: usize = 4_096;

/// How often a replica asks each pool and each other replica whether it is there, least and most: an eighth of a session.
pub const REACH_TICK: (Duration, Duration) = (Duration::from_millis(250), Duration::from_millis(1_500));
/// Pools, and replicas, that a replica names at most as not reached: its record is one value in the tree.
pub const UNREACHED: usize = 256;
/// A replica that could not record tree time for so long takes it from the others, if there are any.
pub const CLOCK_AWAY: Duration = Duration::from_secs(15);
/// Two replicas whose distances from the servers' clock differ by more than this do not agree on the time. Those that do may
/// differ by half of it while they follow a step, and by the length of a commit.
pub const CLOCK_APART: Duration = Duration::from_secs(1);
/// How long a replica that was asked to record tree time, and that does not agree with the last record, waits for another one
/// to do so: those are asked at the same time, and who asks waits for [`CLOCK_AGREE`].
pub const CLOCK_ASKED: Duration = Duration::from_millis(500);
/// A record of tree time whose commit took longer is written again at once, as often as [`CLOCK_RECORD_TRIES`] allows.
pub const CLOCK_RECORD_TOOK: Duration = Duration::from_millis(200);
/// How often a record is written in a row at most.
pub const CLOCK_RECORD_TRIES: usize = 3;
/// How long a start beside running replicas waits for one of them to record tree time, which its registration asks them to.
/// More than [`TREE_CLOCK_TICK`](angarium_core::limits::TREE_CLOCK_TICK), so that one that is slow to hear of the registration records it in that time too.
pub const CLOCK_AGREE: Duration = Duration::from_secs(6);
/// How long the deletion of a pool waits for the removal of data of deleted queues, and the pause before the second look, which
/// doubles.
pub const POOL_CLEANING: (Duration, Duration) = (Duration::from_secs(3), Duration::from_millis(50));
/// How long an expiry turn of a slot waits for the claims that it ends: those of a pool that hangs go on beside the next turn.
pub const EXPIRY_WAIT: Duration = Duration::from_secs(1);
/// How long a change of pools or flavors waits for the one before it.
pub const POOL_TURN: Duration = Duration::from_secs(10);
