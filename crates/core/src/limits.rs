//! Bounds that clients meet or that several parts share, each with its unit and its reason. Those of one part are in its
//! own `limits.rs`.
//!
//! The values of the first group are Zaqar's defaults (its `[transport]` options), which its clients expect. An operator
//! may set others (see [`Limits`]) up to the bounds of the second group.

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

/// Records that one read of such a listing takes.
pub const LISTING_RECORDS: usize = 100;
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

/// Parts of all queues, the unit of ownership. It is a byte, so it is written into ids and never changes.
pub const SLOTS: usize = 256;

/// Bytes of ready messages that a queue keeps in memory; what waits behind them stays in the pool.
pub const READY_CACHE_BYTES: usize = 1 << 20;
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

/// How long a request looks for who serves its queue. Then 503: a slot that is handed over is away for less than a second.
pub const FORWARD_WAIT: Duration = Duration::from_secs(5);
/// A request that was under way for this long at one replica has found its place there, and may look again if it moves.
pub const FORWARD_STEP: Duration = Duration::from_secs(3);
/// The pause before a request asks again, unless its slot is known to have moved.
pub const FORWARD_PAUSE: Duration = Duration::from_millis(50);
/// How long a request waits for the answer of an owner that was replaced.
pub const FORWARD_GRACE: Duration = Duration::from_secs(2);

/// Claims that wait for one queue. Each holds a connection; beyond it a claim is answered 429 at once.
pub const QUEUE_WAITERS: usize = 4_096;
/// Claims that wait for the queues of one slot, likewise.
pub const SLOT_WAITERS: usize = 16_384;
/// Messages on their way to or from another queue whose ids a queue keeps in memory; beyond it the pool is asked.
pub const IN_TRANSFER_KNOWN: usize = 4_096;

/// Queues of which a replica states how busy they are, the busiest ones: beside them the others hardly count.
pub const LOADS: usize = 10_000;
/// Moves that a plan may have.
pub const BALANCE_MOVES: Span = Span::new(1, 20, 1_000).expect("they are in order");
