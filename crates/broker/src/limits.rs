//! Bounds of the broker: sizes of reads, lengths of waits, amounts kept in memory, and intervals of background tasks.

use std::time::Duration;

use angarium_core::claim::ClaimWait;
use angarium_core::quota::Amount;
use angarium_core::small_bounds::within;

/// Messages that one read of a listing takes from a pool.
pub const LISTING_READ: usize = 256;
/// Reads of a pool for one page of a listing. Messages that the filter leaves out are read too, so the page ends after
/// this many reads, with a link to continue.
pub const LISTING_READS: usize = 64;
/// Time for which a peek reads and compares before it pauses.
pub const PEEK_WORK: Duration = Duration::from_millis(1);
/// A pause of a peek lasts this many times as long as the work before it.
pub const PEEK_PAUSE: u32 = 3;
/// The longest pause of a peek: a slow pool is no reason to be slower still.
pub const PEEK_PAUSE_MAX: Duration = Duration::from_millis(50);
/// Max wait for a page of one source before the pages of others are copied beside it.
pub const FILL_WAIT: Duration = Duration::from_secs(1);
/// The same while others take long already.
pub const FILL_WAIT_BESIDE: Duration = Duration::from_millis(100);
/// Time for which filters look at messages before other tasks may run.
pub const FILTER_WORK: Duration = Duration::from_millis(1);
/// Names of queues that one page of a listing reads. Then the page ends with a link to continue. Reading the names
/// takes four reads of each of the 256 directories.
pub const LISTING_NAMES: usize = 100_000;
/// Records of queues that one page of a listing with filters on the metadata reads. Then the page ends with a link to
/// continue.
pub const LISTING_QUEUES: usize = 1_000;
/// Closed pools that the error names when no pool takes new messages: a probe reads the error as one line.
pub const CLOSED_POOLS_NAMED: usize = 4;
/// Targets of the transfers out of a queue that memory has for an explanation, with why the last transfer to each has
/// failed.
pub const TRANSFER_TARGETS: usize = 16;
/// Messages that one step of a purge removes.
pub const PURGE_STEP: usize = 1_024;
/// How often a waiting receive checks whether its queue has fewer messages in flight.
pub const SQS_IN_FLIGHT_LOOK: Duration = Duration::from_millis(100);
/// Seconds between two purges of a queue, and between its deletion and its next creation, where the client asks for
/// this pause (SQS: 60).
pub const SQS_PAUSE_SECONDS: u32 = 60;
/// Purges and deletions that are remembered per slot for [`SQS_PAUSE_SECONDS`]. Beyond it the oldest is forgotten.
pub const SQS_PAUSES: usize = 1_024;
/// How often a move task checks whether the messages that it transfers have arrived, and whether it must continue.
pub const MOVE_TASK_STEP: Duration = Duration::from_millis(10);

/// How long one page of metrics may read the figures of changed queues. The rest shows older figures.
pub const OBSERVATION: Duration = Duration::from_secs(3);

/// How often a replica checks whether the shared secret of replicas without certificates can be removed.
pub const PEER_SECRET_LOOK: Duration = Duration::from_secs(60);

/// Projects whose holdings are remembered at once. Projects that hold nothing are not included: counting them again
/// takes no time.
pub const COUNTED_PROJECTS: usize = 65_536;
/// How long a request waits for the count of its project's holdings. Then it gets 503 and the count continues: for a
/// hundred thousand queues it takes seconds.
pub const COUNT_WAIT: Duration = Duration::from_secs(5);
/// How often queues are counted again whose pool did not answer, or whose slot was recovered.
pub const RECOUNT_TICK: Duration = Duration::from_secs(2);
/// Queues whose totals are requested at once.
pub const COUNT_AT_ONCE: usize = 64;
/// How long a replica waits for its pools when another replica asks for the numbers of messages of its queues. The
/// answer leaves out queues whose pools are slower. It is shorter than [`HEALTH_DEADLINE`], the timeout of the asking
/// replica, so that the other numbers arrive.
pub const COUNTS_ANSWER: Duration = Duration::from_secs(3);
/// Bytes of the ready caches of all queues together. It is checked every [`READY_CACHES_TICK`]; beyond it caches are
/// dropped and read from the pools again. Between two checks the caches grow by as much as is posted in that time.
pub const READY_CACHES_BYTES: usize = 192 << 20;
/// Interval of the check of [`READY_CACHES_BYTES`].
pub const READY_CACHES_TICK: Duration = Duration::from_secs(1);
/// Notes of a queue that one read returns, and that one batch forgets.
pub const NOTES_PAGE: usize = 4_096;

/// Returns [`NOTES_PAGE`], or less in a run of the simulation with small bounds.
pub(crate) fn notes_page() -> usize {
    within(NOTES_PAGE)
}

/// Notes of settles that the owner of a queue remembers until they expire, about 60 bytes each. Further notes are found
/// by reading the pool.
pub const SETTLE_NOTES: usize = 100_000;
/// Messages of one kind of write in one pool batch. A longer list of writes is sent in several batches.
pub const BATCH_MESSAGES: usize = 8_192;
/// Bytes of message bodies in one pool batch.
pub const BATCH_BYTES: usize = 8 << 20;
/// Messages of a slot that wait to become durable in one pool. Beyond it new ones get 503 at once.
pub const WRITER_MESSAGES: usize = 65_536;
/// Bytes of bodies of a slot that wait to become durable in one pool. Beyond it new ones get 503 at once.
pub const WRITER_BYTES: usize = 64 << 20;
/// Slots that are handed over in one commit. It is small because all of them wait until the work in the last one has
/// ended and the commit is answered. Meanwhile their new owners recover the slots of the commit before.
pub const SLOTS_HANDED: usize = 8;
/// How long the next slots of a hand-over wait until the ones before are served again. That usually takes a tenth of a
/// second. The wait is bounded because the replica that should recover them may be about to leave too.
pub const HANDED_REST: Duration = Duration::from_millis(500);
/// Slots whose claims are read at the same time: each takes up to 64 directories, and reads of the tree are bounded.
pub const SLOTS_LOADED: usize = 8;
/// How long a request waits for its slot while that is recovered. Then it gets 503. A recovery takes two round trips to
/// the tree when nothing fails.
pub const SLOT_WAIT: Duration = Duration::from_secs(2);
/// How often the task looks for slots that must be recovered though no request asks for them.
pub const SLOT_TICK: Duration = Duration::from_millis(500);

/// How long the running replicas must have been the same before served slots are handed over to other replicas.
pub const SETTLE: Duration = Duration::from_secs(3);
/// How long to wait for more changes of the cluster after the first one: changes arrive in groups, and each costs a
/// read.
pub const GATHER: Duration = Duration::from_millis(5);
/// How long operations in progress in a slot may take to end before the slot is handed over.
pub const HAND_OVER: Duration = Duration::from_secs(5);
/// How long the hand-over of all slots may take when a replica stops.
pub const DRAIN: Duration = Duration::from_secs(15);

/// A replica that has handed over all slots keeps serving until no client has sent a request for this long. By then a
/// load balancer has seen that it is not ready, and sends no request on a connection that is just being closed. The
/// load balancer of `docker/haproxy.cfg` needs 0.7 s.
pub const FAREWELL_IDLE: Duration = Duration::from_secs(1);
/// Upper bound of the wait of [`FAREWELL_IDLE`]: a client may know no other replica.
pub const FAREWELL: Duration = Duration::from_secs(5);

/// How often a replica records the time, and reads it from the tree. A start cannot detect a pause that is shorter.
pub const CLOCK_TICK: Duration = Duration::from_secs(60);
/// How often the owner looks for expired claims when no deadline is nearer. A deadline that was noted before a step of
/// the clock may be met this late.
pub const EXPIRY_TICK: Duration = Duration::from_millis(250);
/// How long the answer to a claim waits for dead letters of the same claim to arrive in the dead letter queue, where
/// this replica serves that queue. A hanging pool delays the answer no longer than this.
pub const ARRIVAL_WAIT: Duration = Duration::from_millis(100);
/// Claims that wait for dead letters of one queue to arrive. Beyond it a claim is answered at once.
pub const ARRIVAL_WAITERS: usize = 1_024;
/// Shortest pause between two checks for due deadlines. It bounds the checks per second, and a deadline may be met this
/// late.
pub const DEADLINE_GRAIN: Duration = Duration::from_millis(5);
/// Time in which every slot is swept once of expired messages.
pub const SWEEP_ROUND: Duration = Duration::from_secs(30);
/// Messages that one read of a sweep finds in one pool, with at most 16 MiB of results.
pub const SWEEP_MESSAGES: usize = 256;

/// Returns [`SWEEP_MESSAGES`], or less in a run of the simulation with small bounds.
pub(crate) fn sweep_messages() -> usize {
    within(SWEEP_MESSAGES)
}

/// Reads of one sweep of one slot in one pool. A backlog of expired messages in one slot delays the other slots by no
/// more than a few seconds.
pub const SWEEP_LOOKS: usize = 256;
/// The earliest retained message of a queue is read again after this part of the retention, so that index entries that
/// pools keep for deleted messages do not accumulate.
pub const RETENTION_PARTS: u32 = 256;
/// Shortest time between two such reads, in seconds.
pub const RETENTION_PAUSE_SECONDS: u32 = 64;
/// Pause between two checks whether all replicas know a new form of records. Meanwhile messages are sent in the old
/// form.
pub const SCHEMA_TRY: Duration = Duration::from_secs(5);
/// How often the owner looks for due scheduled messages when no deadline is nearer. A claim that arrives finds them
/// without this.
pub const SCHEDULE_TICK: Duration = Duration::from_millis(50);
/// Scheduled messages that are made ready in one batch.
pub const WAKE_MESSAGES: usize = 1_024;
/// Bytes of bodies that one read of scheduled messages may return.
pub const WAKE_BYTES: usize = 1 << 20;
/// Pages of queues that are searched for a queue whose dead letter queue is the source of a new move task.
pub const MOVE_SOURCE_PAGES: usize = 10;
/// Oldest messages of that source that are read first: a dead letter among them is proof enough.
pub const MOVE_SOURCE_MESSAGES: usize = 16;
/// Messages of one batch of a transfer to another queue.
pub const MOVE_MESSAGES: usize = 256;

/// Returns [`MOVE_MESSAGES`], or less in a run of the simulation with small bounds.
pub(crate) fn move_messages() -> usize {
    within(MOVE_MESSAGES)
}

/// Bytes of bodies of one batch of a transfer to another queue. The last body may exceed it.
pub const MOVE_BYTES: usize = 1 << 20;
/// After this time a post asks again whether the purge that forgets a deduplication id of it has an outcome.
pub const DEDUP_PAUSE: Duration = Duration::from_millis(20);
/// Pauses of a migration before it reads again messages that it cannot copy now, since they are claimed, and before it
/// retries after a failure: the first and the longest. Each is twice the one before.
pub const COPY_PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));
/// Shortest time between two reads of messages that cannot be copied, however many claims end.
pub const COPY_REST: Duration = Duration::from_millis(500);
/// How long a count of a queue waits for the batch of messages that is being copied.
pub const COPY_STILL: Duration = Duration::from_secs(1);
/// Queues of one pool that a replica copies at the same time when the pool is drained.
pub const DRAIN_AT_ONCE: usize = 16;
/// Further queues of a drained pool that only wait for claims to end: each has a task that checks every few seconds.
pub const DRAIN_HELD: usize = 1_024;
/// How often a drain checks whether the migrations of its pool have ended.
pub const DRAIN_TICK: Duration = Duration::from_secs(1);
/// How long a replica waits before it retries the queues of a drained pool that it could not migrate.
pub const DRAIN_LOOK: Duration = Duration::from_secs(20);
/// Minimum and maximum of the rate of a migration, in messages per second.
pub const MIGRATION_RATE: (u32, u32) = (1, 1_000_000);
/// Minimum time for which the note of messages that were copied to another pool is kept, in seconds. Nothing removes it
/// while it is needed.
pub const COPIED_NOTE_SECONDS: u32 = 86_400;
/// Pauses between attempts of a transfer whose target cannot be reached: the first and the longest. Each is twice the
/// one before.
pub const MOVE_PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// How long later messages of a group stay at their source because an earlier one, which has left it, is not published.
/// The time begins when the earlier one is prepared, or when its delay ends. After that they arrive before it.
pub const ORDER_WAIT_SECONDS: u32 = 600;
/// Pages in which such an earlier message is sought, each of at most [`MOVE_MESSAGES`] entries and [`MOVE_BYTES`].
/// Later messages do not wait for one that is further away.
pub const ORDER_PAGES: usize = 4;
/// How long transfers into a queue are held while the replica that serves their source is asked for messages or told to
/// release them. Other operations wait twice as long for the transfers into the queue.
pub const MOVE_SOURCE: Duration = Duration::from_secs(5);
/// How long the deletion of a queue waits for forwarded messages to leave it. Then it is refused.
pub const FORWARDS_LEAVE: Duration = Duration::from_secs(5);
/// Pause between two checks of [`FORWARDS_LEAVE`].
pub const FORWARDS_CHECK: Duration = Duration::from_millis(50);
/// Queues of a recovered slot whose pools are asked in one step for unfinished transfers. With the pause
/// [`UNFINISHED_STEP`] between two steps, a hundred thousand queues take about a minute beside the requests of clients.
pub const UNFINISHED_QUEUES: usize = 64;
/// Pause between two steps of [`UNFINISHED_QUEUES`].
pub const UNFINISHED_STEP: Duration = Duration::from_millis(20);
/// How long the task waits for one such queue. Then it takes the queue's pools as unreachable and continues with the
/// next queue.
pub const UNFINISHED_WAIT: Duration = Duration::from_secs(5);
/// How often the task looks for recovered slots.
pub const UNFINISHED_TICK: Duration = Duration::from_millis(500);
/// Pauses before the queues of a slot are checked again when a pool that could not be asked seems to be healthy: the
/// first and the longest. Each is twice the one before.
pub const UNFINISHED_PAUSES: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(300));
/// Seconds after which work that no caller requested is tried again: ends of claims, due scheduled messages.
pub const RETRY_SECONDS: u32 = 1;
/// Claims that one expiry turn of one slot ends, so that a turn is short.
pub const EXPIRY_TURN: usize = 256;

/// Returns [`EXPIRY_TURN`], or less in a run of the simulation with small bounds.
pub(crate) fn expiry_turn() -> usize {
    within(EXPIRY_TURN)
}

/// Longest time after which records of claims whose messages were all deleted are removed from the tree.
pub const CLAIM_SHRINK_TICK: Duration = Duration::from_millis(500);
/// Seconds after the recovery of a slot in which none of its claims expire: the recovery itself may have kept the
/// holder from renewing its claim.
pub const EXPIRY_HOLD_SECONDS: u32 = 2;
/// How long a claim looks for messages that exist but must be read, or turn out to be expired. Then it gets 503:
/// "nothing to claim" would be untrue.
pub const CLAIM_DEADLINE: Duration = Duration::from_secs(10);

/// How often pools that could not be opened are opened again, and how often the pools are asked how full they are.
pub const POOL_TICK: Duration = Duration::from_secs(5);
/// A kind of background task that has not failed for this long counts as working again. It is longer than the pause of
/// every task.
pub const TASK_QUIET: Duration = Duration::from_secs(300);
/// How long a health check waits for a pool. Then the pool counts as unreachable.
pub const HEALTH_DEADLINE: Duration = Duration::from_secs(5);
/// Queues that a survey of all pools reads, for the map and for a plan of moves. It takes some seconds.
pub const SURVEY_QUEUES: usize = 100_000;
/// Weight of a queue in a plan of moves beside its contents, in bytes.
pub const BALANCE_QUEUE_BYTES: u64 = 1_024;
/// Weight of a message in a plan of moves beside its body, in bytes.
pub const BALANCE_MESSAGE_BYTES: u64 = 256;
/// Changes per minute that a plan of moves adds to those of each queue: it moves no queues while little is written.
pub const BALANCE_QUEUE_CHANGES: u64 = 60;
/// How often holds that have ended by themselves are removed.
pub const HOLD_TICK: Duration = Duration::from_secs(1);
/// How long the answer to the hold of a pool or a project waits until all slots have confirmed it: longer than a slot
/// needs to change its owner after the longest usual session.
pub const HOLD_CONFIRMED: Duration = Duration::from_secs(40);
/// How long it waits for one replica before it asks again.
pub const HOLD_ANSWER: Duration = Duration::from_secs(3);
/// After this time a replica answers with the slots that have confirmed the hold so far, well within
/// [`HOLD_ANSWER`].
pub const HOLD_PART: Duration = Duration::from_secs(2);
/// How long the answer to the hold of a queue or a group waits for the pools of the queue.
pub const HOLD_FENCED: Duration = Duration::from_secs(10);
/// How long the answer to a claim without messages waits for a look at the held groups of its queue. After that it names
/// none of them.
pub const HELD_GROUPS_LOOK: Duration = Duration::from_secs(1);
/// Held groups that this look reads. The next one begins behind them.
pub const HELD_GROUPS_READ: usize = 10;
/// Messages of a held group that this look reads: as many as two claims hold, and one more.
pub const HELD_GROUP_MESSAGES: usize = 41;
/// Bytes of the bodies of these messages.
pub const HELD_GROUP_BYTES: usize = 64 << 10;
/// The first and the longest pause between two requests to a replica for its confirmation; each is twice the previous
/// one.
pub const HOLD_ASKED: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));
/// Max migrations of queues while automatic balance begins more.
pub const BALANCE_AT_ONCE: usize = 4;
/// How long automatic balance leaves a queue in its pool after a migration.
pub const BALANCE_REST: Duration = Duration::from_secs(3_600);
/// How long automatic balance does not return a queue to the pool that it left. So a load that changes all the time
/// moves each queue only a few times per day.
pub const BALANCE_RETURN: Duration = Duration::from_secs(24 * 3_600);
/// How often automatic balance asks for the write load of all queues, unless its rounds are shorter.
pub const BALANCE_SAMPLE: Duration = Duration::from_secs(60);
/// The time that automatic balance takes the mean write load of.
pub const BALANCE_MEAN: Duration = Duration::from_secs(3_600);
/// Begun moves that the record of automatic balance holds.
pub const BALANCE_RECORDED: usize = 100;
/// The slot whose owner balances the pools.
pub const BALANCE_SLOT: u8 = 0;
/// How old the number of all queues may be that is shown without a new count.
pub const QUEUE_COUNT_AGE: Duration = Duration::from_secs(5);
/// How often the owner looks for deleted queues whose data must be removed.
pub const DROPPED_TICK: Duration = Duration::from_millis(500);
/// Entries of a deleted queue that one turn removes from a pool, so that other queues get their turns.
pub const DROPPED_TURN: usize = 1_024;

/// Returns [`DROPPED_TURN`], or less in a run of the simulation with small bounds.
pub(crate) fn dropped_turn() -> usize {
    within(DROPPED_TURN)
}

/// How long the deletion of a queue waits for operations in progress on that queue. It is longer than a slot writer
/// tries one batch, and than a commit to the tree takes.
pub const CLOSE_DEADLINE: Duration = Duration::from_secs(10);

/// Queues of recovered slots whose stored totals are read in one step of [`COUNTING_STEP`]: 1,000 queues per second. A
/// hundred thousand queues take less than two minutes. An embedded pool, Redis or PostgreSQL can serve 20 to 100 times
/// as many reads to clients in that time.
pub const COUNTING_QUEUES: usize = 50;
/// Length of a step of [`COUNTING_QUEUES`].
pub const COUNTING_STEP: Duration = Duration::from_millis(50);
/// How often the task looks for queues to count.
pub const COUNTING_TICK: Duration = Duration::from_millis(500);
/// Queues that wait for reads of one pool, about a second of counting; also the maximum of queues that could not be
/// read. Queues beyond it wait for a later pass over their slot.
pub const COUNTING_LINE: usize = 1_024;
/// Queues of one pool that are read at once: half of the connections for reads of PostgreSQL, so that reads of clients
/// find a free one.
pub const COUNTING_AT_ONCE: usize = angarium_core::limits::POSTGRES_READS / 2;
/// Timeout of the reads of one queue. It is longer than the timeout of a command to Redis or a statement to PostgreSQL.
pub const COUNTING_WAIT: Duration = Duration::from_secs(8);
/// Pauses after reads of a pool of which none was answered, and before the unread queues of a slot are tried again: the
/// first and the longest. Each is twice the one before.
pub const COUNTING_PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// Queues with an unreadable record that are logged, once each.
pub const COUNTING_LOGGED: usize = 256;
/// Queues with ignored stored attributes that are logged, once each. This is enough to see what they have in common;
/// `doctor` names all.
pub const IGNORED_LOGGED: usize = 256;
/// Seconds after which a closed queue that could not be opened for a due delayed message is tried again.
pub const DUE_RETRY_SECONDS: u32 = 30;
/// How long a task that reads a pool stays without queues to read. Then it ends.
pub const COUNTING_IDLE: Duration = Duration::from_secs(10);
/// Closed queues of one slot whose figures are kept one by one, and the queues that wait to be counted, about 250 bytes
/// each: a million queues in all slots, 256 MiB. Queues beyond it are in one sum, and metrics do not name them.
pub const SLOT_COUNTED: usize = 4_096;
/// Queues beyond [`SLOT_COUNTED`] that were swept while the queues of their slot are counted, about 150 bytes each.
/// Beyond it the count starts again.
pub const COUNTING_CHANGES: usize = 4_096;
/// Queues of one slot beyond [`SLOT_COUNTED`] whose oldest message has a known time: the ones with the oldest messages.
/// When all of these have been removed, the queues are counted again.
pub const OLDEST_QUEUES: usize = 64;
/// A queue replaces the shallowest queue with figures of its own only when it is deeper by more than that depth divided
/// by this number. Otherwise two queues of about the same depth would alternate.
pub const DEEPER_PARTS: u64 = 4;
/// How often pools are asked what all their queues hold: each answer walks over all queues of the pool.
pub const USAGE_TICK: Duration = Duration::from_secs(60);
/// Projects whose quotas are shown in the metrics, at most six series each: the ones that use most of their quota.
pub const METERED_QUOTAS: usize = 200;

/// Pause between two steps of a count after a crash.
pub const RECOUNT_STEP: Duration = Duration::from_millis(50);
/// How often the task checks whether a pool must be counted.
pub const RECOUNT_REST: Duration = Duration::from_secs(60);
/// Queues of a project without a quota that are counted for a request for its holdings: some hundred milliseconds of
/// reading. For a project with more queues no number is returned.
pub const COUNTED_QUEUES: usize = 10_000;

/// How often the task looks for queues that no caller uses.
pub const IDLE_TICK: Duration = Duration::from_secs(60);
/// Ticks of [`IDLE_TICK`] without use after which a queue is closed. This is longer than any request takes, and longer
/// than deduplication ids are remembered.
pub const IDLE_ROUNDS: u8 = 10;
/// Closed queues of one slot whose earliest retained message has a known time, about 64 bytes each. The messages of
/// other closed queues stay until their queue is opened.
pub const RETAINED_IDLE: usize = 4_096;

/// How often a replica checks whether each pool and each other replica is reachable, minimum and maximum: an eighth of
/// a session.
pub const REACH_TICK: (Duration, Duration) = (Duration::from_millis(250), Duration::from_millis(1_500));
/// Maximum of pools, and of replicas, that a replica names as unreachable: its record is one value in the tree.
pub const UNREACHED: usize = 256;
/// A replica that could not record tree time for this long takes it from the other replicas, if there are any.
pub const CLOCK_AWAY: Duration = Duration::from_secs(15);
/// Two replicas whose offsets from the servers' clock differ by more than this do not agree on the time. Replicas that
/// agree may differ by half of it while they follow a step of the clock, and by the length of a commit.
pub const CLOCK_APART: Duration = Duration::from_secs(1);
/// How long a replica that does not agree with the last record of tree time waits for another one to record it, when
/// they are all asked to. The asking replica waits for [`CLOCK_AGREE`].
pub const CLOCK_ASKED: Duration = Duration::from_millis(500);
/// A record of tree time whose commit took longer is written again at once, up to [`CLOCK_RECORD_TRIES`] times.
pub const CLOCK_RECORD_TOOK: Duration = Duration::from_millis(200);
/// Maximum of consecutive writes of one record of tree time.
pub const CLOCK_RECORD_TRIES: usize = 3;
/// How long a start beside running replicas waits for one of them to record tree time. Its registration asks them to.
/// It is more than [`TREE_CLOCK_TICK`](angarium_core::limits::TREE_CLOCK_TICK), so that a replica that learns of the
/// registration late records the time within it too.
pub const CLOCK_AGREE: Duration = Duration::from_secs(6);
/// How long the removal of a pool waits until its storage is closed.
pub const POOL_CLOSE: Duration = Duration::from_secs(5);
/// Queues that one request moves out of a pool that is removed with the messages in it.
pub const LEAVE_QUEUES: usize = 64;
/// How long one request does so before it begins no further queue. It is shorter than the timeout of a peer RPC.
pub const LEAVE_TURN: Duration = Duration::from_secs(4);
/// How long no queue is opened in such a pool after the last of these requests.
pub const LEAVE_MARK: Duration = Duration::from_secs(30);
/// How long such a request waits for what another task may hold on a queue or on its pools. A task that hangs in the pool
/// holds it for ever: then the slot is recovered.
pub const LEAVE_GATE: Duration = Duration::from_secs(3);
/// How often that is tried for one slot while it is recovered or changes its owner, and the pause between two tries.
pub const LEAVE_TRIES: u32 = 20;
/// See [`LEAVE_TRIES`].
pub const LEAVE_PAUSE: Duration = Duration::from_millis(500);
/// How long the reads of one queue in such a pool may take. Then the pool counts as gone, and is not read again.
pub const LEAVE_READ: Duration = Duration::from_secs(5);
/// How long the deletion of a pool waits for the removal of data of deleted queues, and the pause before the second
/// check. The pause doubles.
pub const POOL_CLEANING: (Duration, Duration) = (Duration::from_secs(3), Duration::from_millis(50));
/// How long an expiry turn of a slot waits for the claims that it ends. Claims of a hanging pool continue to end beside
/// the next turn.
pub const EXPIRY_WAIT: Duration = Duration::from_secs(1);
/// How long a change of pools or flavors waits for the one before it.
pub const POOL_TURN: Duration = Duration::from_secs(10);

/// A subscription that is nearer to its bounds than this is counted after each batch. It is more than what waits for a slot
/// writer ([`WRITER_MESSAGES`], [`WRITER_BYTES`]), a batch in flight and a post together, so no post reaches the bounds of
/// one that is not.
pub(crate) const BACKLOG_NEAR: Amount = Amount { messages: 131_072, bytes: 256 << 20 };
/// Copies that one step of the removal beyond the bounds of a subscription reads and removes.
pub const OVERFLOW_STEP: usize = 256;
/// Bytes of their bodies.
pub const OVERFLOW_STEP_BYTES: usize = 4 << 20;
/// Max steps of a post. The next post removes the rest beyond the bounds.
pub const OVERFLOW_STEPS: usize = 64;
/// Pause between two looks for webhooks that are not served yet, and after a failure of the service.
pub const WEBHOOKS_TICK: Duration = Duration::from_secs(1);
/// Requests to webhooks that a replica sends at the same time. Each has one message in memory.
pub const WEBHOOK_REQUESTS: usize = 256;
/// Those of one account.
pub const WEBHOOK_ACCOUNT_REQUESTS: usize = 64;
/// Seconds of the claims under which messages are sent to webhooks, and of the life of a message after them. After a
/// crash a message that was being sent is sent again when its claim has ended.
pub const WEBHOOK_CLAIM_TTL: u32 = 120;
/// See [`WEBHOOK_CLAIM_TTL`].
pub const WEBHOOK_CLAIM_GRACE: u32 = 60;
/// No request begins later after the claim of its message: it would end behind the claim.
pub const WEBHOOK_CLAIM_USE: Duration = Duration::from_secs(60);
/// Attempts to ask a webhook for its confirmation, with the pauses of messages between them: 17 minutes together.
pub const CONFIRMATION_ATTEMPTS: u32 = 11;
/// How long one claim for a webhook waits for messages.
pub const WEBHOOK_WAIT: ClaimWait = ClaimWait::of(20);
/// The requests of this time to a webhook with a rate may begin together. More would not be spread over a second, and fewer
/// would be a claim for each.
pub const REQUESTS_TOGETHER: Duration = Duration::from_millis(10);
/// The transfers of this time out of a subscription with a rate are one batch.
pub const TRANSFERS_TOGETHER: Duration = Duration::from_millis(500);
/// Failures in a row after which a webhook gets one request at a time, with pauses.
pub const WEBHOOK_BREAK_AFTER: u32 = 5;
/// The first of these pauses, which is doubled each time, and the longest.
pub const WEBHOOK_PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// The longest pause that a webhook may ask for (`Retry-After`).
pub const WEBHOOK_RETRY_AFTER: Duration = Duration::from_secs(3_600);
/// A message that would not live until its subscriber wants it is sent once more so long before the end of its life: time
/// for the messages before it and for the request.
pub const WEBHOOK_LAST_ATTEMPT: Duration = Duration::from_secs(30);

/// Pause between two looks for subscriptions to fill with the messages that waited.
pub const FILL_TICK: Duration = Duration::from_millis(500);

/// Pause between two looks for ended subscriptions.
pub const SUBSCRIPTIONS_TICK: Duration = Duration::from_secs(5);
