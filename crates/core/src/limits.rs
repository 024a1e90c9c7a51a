//! Bounds that clients meet or that several parts share, each with its unit and its reason. Those of one part are in its
//! own `limits.rs`.
//!
//! The values of the first group are Zaqar's defaults (its `[transport]` options), which its clients expect. An operator
//! may set others (see [`Limits`]) up to the bounds of the second group.

mod counting;
mod engine;
mod entry;
mod keystone;
mod listings;
mod memory;
mod peers;
mod settable;
mod sqs;
mod stores;
mod time;
mod waits;

use std::time::Duration;

pub use counting::*;
pub use engine::*;
pub use entry::*;
pub use keystone::*;
pub use listings::*;
pub use memory::*;
pub use peers::*;
pub use settable::{Limits, Span};
pub use sqs::*;
pub use stores::*;
pub use time::*;
pub use waits::*;

/// Bytes of a message, at most, of a queue that is created through REST without a bound of its own. Zaqar's
/// `max_messages_post_size` is as large, and bounds a whole request there.
pub const REST_MESSAGE_BYTES: usize = 262_144;
/// Messages of one post: no fewer than fit into as many bytes, with bodies of one digit.
pub const POST_MESSAGES: usize = 24_000;
/// Bytes of the metadata of a queue, as JSON text (Zaqar: `max_queue_metadata`).
pub const METADATA_BYTES: usize = 65_536;
/// Elements on one page, or ids in one request (Zaqar: `max_messages_per_page` and its like).
pub const PAGE: usize = 20;
/// Elements of a page that no caller gave a limit.
pub const PAGE_DEFAULT: usize = 10;
/// Messages that one claim may ask for (Zaqar: `max_messages_per_claim_or_pop`).
pub const CLAIM_MESSAGES: usize = 20;
/// Messages of a claim that names no limit.
pub const CLAIM_MESSAGES_DEFAULT: usize = 10;
/// Seconds that a message may live, least and most (Zaqar: 60 s and 14 days).
pub const MESSAGE_TTL: (u32, u32) = (60, 1_209_600);
/// Seconds that a message lives when no caller states.
pub const MESSAGE_TTL_DEFAULT: u32 = 3_600;
/// Seconds until a message can be claimed, least and most (Zaqar: `max_message_delay`).
pub const MESSAGE_DELAY: (u32, u32) = (0, 900);
/// Seconds until a message can be claimed when no caller states.
pub const MESSAGE_DELAY_DEFAULT: u32 = 0;
/// Seconds of a claim, least and most (Zaqar: 60 s and 12 hours).
pub const CLAIM_TTL: (u32, u32) = (60, 43_200);
/// Seconds of a claim that names no ttl.
pub const CLAIM_TTL_DEFAULT: u32 = 300;
/// Seconds of grace, least and most (Zaqar: 60 s and 12 hours).
pub const CLAIM_GRACE: (u32, u32) = (60, 43_200);
/// Seconds of grace of a claim that names none.
pub const CLAIM_GRACE_DEFAULT: u32 = 60;

/// Elements on one page when an operator sets more: an answer is built whole in memory.
pub const PAGE_MAX: usize = 500;
/// Messages of a claim likewise: its record, with all their ids, is one value in the tree.
pub const CLAIM_MESSAGES_MAX: usize = 500;
/// Bytes of a message likewise: it fits into a request with room to spare, and into one batch of a pool.
pub const MESSAGE_BYTES_MAX: usize = 4 << 20;
/// Bytes of the metadata of a queue likewise: its record is one value in the tree, with some room for the rest.
pub const METADATA_BYTES_MAX: usize = TREE_VALUE_BYTES - 8_192;
/// Seconds of any ttl, delay or grace likewise: a year, which is longer than any caller waits.
pub const SECONDS_MAX: u32 = 366 * 24 * 3_600;

/// Messages that one read of a listing takes from a pool.
pub const LISTING_READ: usize = 256;
/// Reads of a pool for one page. What a filter leaves out is looked at too, so a page ends here, with a link to go on.
pub const LISTING_READS: usize = 64;
/// Names of queues that one page of a listing looks at; then it ends likewise. Reading them is four reads of each of the
/// 256 directories.
pub const LISTING_NAMES: usize = 100_000;
/// Records of queues that one page of a listing with filters on the metadata reads; then it ends likewise.
pub const LISTING_QUEUES: usize = 1_000;
/// Records that one read of such a listing takes.
pub const LISTING_RECORDS: usize = 100;
/// Messages that one step of a purge removes.
pub const PURGE_STEP: usize = 1_024;
/// Seconds that a claim may wait for messages, least and most (SQS: 20 s).
pub const CLAIM_WAIT: (u32, u32) = (0, 20);
/// Seconds that a receive hides its messages, least and most (SQS: 12 hours), and when no caller states.
pub const VISIBILITY: (u32, u32) = (0, 43_200);
/// See [`VISIBILITY`].
pub const VISIBILITY_DEFAULT: u32 = 30;
/// Bytes of a message, attributes of SQS included, unless the settings or its queue bound it otherwise; and of all messages
/// of a batch of SQS (SQS: 1 MiB).
pub const SQS_MESSAGE_BYTES: usize = 1 << 20;
/// The least that SQS sets as the bound of a queue (SQS).
pub const SQS_MESSAGE_BYTES_MIN: usize = 1_024;
/// Bytes of the body of a request that sends messages, in SQS and in REST: those of a batch of SQS, where each may be written
/// as an escape of six. Of other requests of SQS [`SQS_RECEIVE_BYTES`] and [`SQS_CONTROL_BYTES`].
pub const SQS_REQUEST_BYTES: usize = 6 * SQS_MESSAGE_BYTES + (1 << 18);
/// Messages of a receive, and entries of a batch (SQS: 10).
pub const SQS_BATCH: usize = 10;
/// The most that a setting makes of it.
pub const SQS_BATCH_MAX: usize = CLAIM_MESSAGES_MAX;
/// Messages under claims of one queue, beyond which no caller receives any (SQS: about 120,000).
pub const SQS_IN_FLIGHT: usize = 120_000;
/// The most that a setting makes of it: each costs some hundred bytes of memory.
pub const SQS_IN_FLIGHT_MAX: usize = 10_000_000;
/// How often a receive that waits looks whether some of them are gone.
pub const SQS_IN_FLIGHT_LOOK: Duration = Duration::from_millis(100);
/// Seconds between two purges of a queue, and from its deletion to its next creation, where that is asked for (SQS: 60).
pub const SQS_PAUSE_SECONDS: u32 = 60;
/// Purges and deletions that are noted for that of the queues of one slot; with more of them the oldest is forgotten.
pub const SQS_PAUSES: usize = 1_024;
/// Characters of the id of a batch's entry, and of the label of a permission (SQS: 80).
pub const SQS_ID_CHARS: usize = 80;
/// Attributes of a message (SQS: 10).
pub const SQS_ATTRIBUTES: usize = 10;
/// Characters of the name and of the type of such an attribute (SQS: 256).
pub const SQS_ATTRIBUTE_CHARS: usize = 256;
/// Queues of one answer to a listing (SQS: 1,000).
pub const SQS_PAGE: usize = 1_000;
/// Seconds that a queue made through SQS keeps its messages when no caller states (SQS: 4 days).
pub const SQS_RETENTION_DEFAULT: u32 = 345_600;
/// How often a message may be received before it is a dead letter, least and most (SQS).
pub const SQS_RECEIVES: (u32, u32) = (1, 1_000);
/// Queues that a queue for dead letters may name as its sources (SQS: 10).
pub const SQS_SOURCES: usize = 10;
/// Messages that a task moves in a second, least and most (SQS).
pub const MOVE_TASK_RATE: (u32, u32) = (1, 500);
/// Tasks of a project that may be active at once (SQS).
pub const MOVE_TASKS_ACTIVE: usize = 100;
/// Seconds that a task may take (SQS: 36 hours). Then it is stopped.
pub const MOVE_TASK_SECONDS: u32 = 129_600;
/// Tasks of a queue that are remembered: as many as SQS lists. One of them may be running.
pub const MOVE_TASKS: usize = 10;
/// How often a task looks whether what it has set aside has arrived, and whether it is to go on.
pub const MOVE_TASK_STEP: Duration = Duration::from_millis(10);
/// Tags of a queue, characters of their names and of their values (SQS: 50, 128, 256).
pub const SQS_TAGS: (usize, usize, usize) = (50, 128, 256);
/// Bytes of the policy of a queue (SQS: 8,192).
pub const SQS_POLICY_BYTES: usize = 8_192;
/// Statements of a policy that were added one by one, and actions of one (SQS: 20 and 7).
pub const SQS_STATEMENTS: usize = 20;
/// See [`SQS_STATEMENTS`].
pub const SQS_ACTIONS: usize = 7;
/// Seconds that the date of a signature may be off (AWS: 5 minutes).
pub const SQS_CLOCK_SKEW_SECONDS: u32 = 300;
/// Seconds that a signature in a URL may hold (AWS: a week).
pub const SQS_PRESIGNED_SECONDS: u32 = 604_800;
/// Seconds, least and most, of an attribute about encryption that has no effect here (SQS).
pub const SQS_KEY_REUSE: (u32, u32) = (60, 86_400);
/// Characters of a queue name (SQS: 80).
pub const QUEUE_NAME_CHARS: usize = 80;
/// Characters of the name of a queue that is created through the REST API (Zaqar: 64).
pub const CREATED_NAME_CHARS: usize = 64;
/// Bytes of a project id (Zaqar: 256).
pub const PROJECT_BYTES: usize = 256;
/// Characters of the URI of a pool (Zaqar: 255).
pub const POOL_URI_CHARS: usize = 255;
/// Bytes of the body of a request that changes a pool or a flavor: a URI, a few options, some dozen names.
pub const ADMIN_BODY_BYTES: usize = 16_384;
/// Pools that a flavor may have: a change of them is one commit to the tree, with two operations a pool.
pub const FLAVOR_POOLS: usize = 40;
/// Characters of the name of a group and of a deduplication id (SQS: 128).
pub const TOKEN_CHARS: usize = 128;
/// Depth of arrays and objects in any JSON of a request. serde_json refuses deeper envelopes too, and a
/// reader that recurses is never led deeper than this by us.
pub const JSON_DEPTH: usize = 128;

/// Bytes of a request body that is neither messages nor metadata: a claim's ttl and grace need far less.
pub const SMALL_BODY_BYTES: usize = 4_096;
/// Bytes of a body that is too long which are read and dropped, so that its client gets to see the answer.
pub const EXCESS_BYTES: usize = 8 << 20;
/// A request body must have arrived whole after this time, however slowly its client sends.
pub const BODY_DEADLINE: Duration = Duration::from_secs(60);

/// Projects whose use of their rate is remembered at once, at about a hundred bytes each.
pub const RATED_PROJECTS: usize = 65_536;

/// Bytes of a `tracestate` that is kept with a message (W3C Trace Context: at least 512 are to be passed on).
pub const TRACE_STATE_BYTES: usize = 512;
/// Its members (W3C Trace Context: 32).
pub const TRACE_STATE_MEMBERS: usize = 32;

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

/// Parts of all queues, the unit of ownership. It is a byte, so it is written into ids and never changes.
pub const SLOTS: usize = 256;

/// Bytes of ready messages that a queue keeps in memory; what waits behind them stays in the pool.
pub const READY_CACHE_BYTES: usize = 1 << 20;
/// Bytes of the windows of all queues together, looked at so often: beyond it windows are left to the pools. What arrives
/// between two looks is as much as is posted in that time.
pub const READY_CACHES_BYTES: usize = 192 << 20;
/// See [`READY_CACHES_BYTES`].
pub const READY_CACHES_TICK: Duration = Duration::from_secs(1);
/// Messages that one refill reads.
pub const REFILL_MESSAGES: usize = 1_024;
/// Groups that one look into the list of a queue's groups brings, each with its first message.
pub const GROUPS_PAGE: usize = 64;
/// Bytes of bodies of such a read, and a body more.
pub const GROUP_BYTES: usize = 256 << 10;
/// Seconds for which an id of deduplication is remembered (SQS: five minutes), and that of a try of a receive.
pub const DEDUP_SECONDS: u32 = 300;
/// Ids of deduplication that one queue remembers, at about a hundred bytes each; beyond it posts with one are answered 429.
pub const DEDUP_KNOWN: usize = 1_000_000;
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
/// Live claims of one slot: 64 directories of at most 8,000 nodes in the tree.
pub const SLOT_CLAIMS: usize = CLAIM_BUCKETS * TREE_CHILDREN;
/// Directories that the claims of a slot are spread over.
pub const CLAIM_BUCKETS: usize = 64;

/// Children of one tree node. Readers of a directory get it in one answer, so it stays well below a megabyte.
pub const TREE_CHILDREN: usize = 8_000;
/// Bytes of one value in the tree.
pub const TREE_VALUE_BYTES: usize = 128 * 1024;
/// Operations of one commit to the tree.
pub const TREE_BATCH_OPS: usize = 100;
/// Bytes of one commit to the tree (ZooKeeper refuses requests near one megabyte and cuts the connection).
pub const TREE_BATCH_BYTES: usize = 256 * 1024;

/// Reads that are on their way to ZooKeeper at once: more of them only wait at the server.
pub const TREE_READS_AT_ONCE: usize = 64;
/// Seconds of the session timeout to ask ZooKeeper for, least and most: a pause of a process or a server should be no reason to
/// lose a session, and that of a replica that died is how long its queues wait.
pub const TREE_SESSION: (u32, u32) = (2, 120);
/// See [`TREE_SESSION`].
pub const TREE_SESSION_DEFAULT: u32 = 12;

/// Bytes of free space on the disk of an embedded pool below which new messages are refused: enough to go on removing
/// them, which takes room too before it gives any (P12).
pub const RESERVE_BYTES: u64 = 256 << 20;
/// A sync of a write of the class `relaxed` begins after this time at the latest: what a power cut may take.
pub const RELAXED_SYNC: Duration = Duration::from_millis(200);

/// Slots that one commit takes: three operations each, of the hundred that a commit may have.
pub const SLOTS_TAKEN: usize = 32;
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

/// How long a request looks for who serves its queue. Then 503: a slot that is handed over is away for less than a second.
pub const FORWARD_WAIT: Duration = Duration::from_secs(5);
/// A request that was under way for this long at one replica has found its place there, and may look again if it moves.
pub const FORWARD_STEP: Duration = Duration::from_secs(3);
/// The pause before a request asks again, unless its slot is known to have moved.
pub const FORWARD_PAUSE: Duration = Duration::from_millis(50);
/// How long a request waits for the answer of an owner that was replaced.
pub const FORWARD_GRACE: Duration = Duration::from_secs(2);

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
/// Claims that wait for one queue. Each holds a connection; beyond it a claim is answered 429 at once.
pub const QUEUE_WAITERS: usize = 4_096;
/// Claims that wait for the queues of one slot, likewise.
pub const SLOT_WAITERS: usize = 16_384;
/// Messages on their way to or from another queue whose ids a queue keeps in memory; beyond it the pool is asked.
pub const IN_TRANSFER_KNOWN: usize = 4_096;
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
/// Queues of which a replica states how busy they are, the busiest ones: beside them the others hardly count.
pub const LOADS: usize = 10_000;
/// Moves that a plan may have.
pub const BALANCE_MOVES: Span = Span::new(1, 20, 1_000).expect("they are in order");
/// How old the number of all queues may be that is shown without counting again.
pub const QUEUE_COUNT_AGE: Duration = Duration::from_secs(5);
/// How often the owner looks for queues that are deleted and not yet cleaned away.
pub const DROPPED_TICK: Duration = Duration::from_millis(500);
/// Entries of a deleted queue that one turn removes from a pool, so that others get their turns.
pub const DROPPED_TURN: usize = 1_024;
/// How long the deletion of a queue waits for what is under way there. Longer than a slot writer tries one batch, and
/// than a commit to the tree takes.
pub const CLOSE_DEADLINE: Duration = Duration::from_secs(10);
