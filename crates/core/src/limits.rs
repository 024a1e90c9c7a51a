//! Bounds that clients meet or that several parts share, each with its unit and its reason. Bounds of one part are in
//! the `limits.rs` of that part.
//!
//! The values of the first group are the defaults of Zaqar (its `[transport]` options), which its clients expect. An
//! operator may set other values (see [`Limits`]) up to the bounds of the second group.

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

/// Max bytes of a message in a queue that was created through REST without a bound. Zaqar's `max_messages_post_size`
/// has the same value, but bounds a whole request.
pub const REST_MESSAGE_BYTES: usize = 262_144;
/// Max messages of one post: as many as fit into [`REST_MESSAGE_BYTES`] when each body is one digit.
pub const POST_MESSAGES: usize = 24_000;
/// Max bytes of the metadata of a queue, as JSON text (Zaqar: `max_queue_metadata`).
pub const METADATA_BYTES: usize = 65_536;
/// Max elements on one page, and max ids in one request (Zaqar: `max_messages_per_page` and similar options).
pub const PAGE: usize = 20;
/// Elements on a page when the request names no limit.
pub const PAGE_DEFAULT: usize = 10;
/// Max messages of one claim (Zaqar: `max_messages_per_claim_or_pop`).
pub const CLAIM_MESSAGES: usize = 20;
/// Messages of a claim when the request names no limit.
pub const CLAIM_MESSAGES_DEFAULT: usize = 10;
/// Min and max seconds that a message lives (Zaqar: 60 s and 14 days).
pub const MESSAGE_TTL: (u32, u32) = (60, 1_209_600);
/// Seconds that a message lives when neither the request nor the queue names a ttl.
pub const MESSAGE_TTL_DEFAULT: u32 = 3_600;
/// Min and max seconds until a message can be claimed (Zaqar: `max_message_delay`).
pub const MESSAGE_DELAY: (u32, u32) = (0, 900);
/// Seconds until a message can be claimed when neither the request nor the queue names a delay.
pub const MESSAGE_DELAY_DEFAULT: u32 = 0;
/// Min and max seconds of a claim (Zaqar: 60 s and 12 hours).
pub const CLAIM_TTL: (u32, u32) = (60, 43_200);
/// Seconds of a claim when the request names no ttl.
pub const CLAIM_TTL_DEFAULT: u32 = 300;
/// Min and max seconds of the grace of a claim (Zaqar: 60 s and 12 hours).
pub const CLAIM_GRACE: (u32, u32) = (60, 43_200);
/// Seconds of grace when the request names none.
pub const CLAIM_GRACE_DEFAULT: u32 = 60;

/// Max elements on one page that an operator may set: an answer is built whole in memory.
pub const PAGE_MAX: usize = 500;
/// Max messages of a claim that an operator may set: the record of the claim, with all their ids, is one value in the
/// tree.
pub const CLAIM_MESSAGES_MAX: usize = 500;
/// Max bytes of a message that an operator may set: a message fits into a request with room to spare, and into one
/// batch of a pool.
pub const MESSAGE_BYTES_MAX: usize = 4 << 20;
/// Max bytes of the metadata of a queue that an operator may set: the record of the queue is one value in the tree, and
/// its other fields need some room.
pub const METADATA_BYTES_MAX: usize = TREE_VALUE_BYTES - 8_192;
/// Max seconds of any ttl, delay or grace that an operator may set: a year, which is longer than any caller waits.
pub const SECONDS_MAX: u32 = 366 * 24 * 3_600;

/// Records that a listing with a filter, or a listing of move tasks, reads at once.
pub const LISTING_RECORDS: usize = 100;
/// Min and max seconds that a claim may wait for messages (SQS: 20 s).
pub const CLAIM_WAIT: (u32, u32) = (0, 20);
/// Min and max seconds that a receive hides its messages (SQS: 12 hours).
pub const VISIBILITY: (u32, u32) = (0, 43_200);
/// Seconds from a rotation of the key of receipts to the first receipt with the new key. Every replica that makes
/// receipts reads the record of the key within half of that time.
pub const RECEIPT_KEY_LEAD_SECONDS: u32 = 60;
/// Seconds that a receive hides its messages when neither the request nor the queue names a visibility timeout (SQS: 30
/// s).
pub const VISIBILITY_DEFAULT: u32 = 30;
/// Max bytes of a message with its SQS attributes, unless the settings or its queue set another bound. Also the max
/// bytes of all messages of an SQS batch (SQS: 1 MiB).
pub const SQS_MESSAGE_BYTES: usize = 1 << 20;
/// Min value of the bound that SQS sets for the messages of a queue (SQS).
pub const SQS_MESSAGE_BYTES_MIN: usize = 1_024;
/// Max bytes of the body of a request that sends messages, in SQS and in REST: a full SQS batch, of which each byte may
/// be written as an escape of six bytes. Other SQS requests have the bounds [`SQS_RECEIVE_BYTES`] and
/// [`SQS_CONTROL_BYTES`].
pub const SQS_REQUEST_BYTES: usize = 6 * SQS_MESSAGE_BYTES + (1 << 18);
/// Max messages of a receive, and max entries of a batch (SQS: 10).
pub const SQS_BATCH: usize = 10;
/// Max value of [`SQS_BATCH`] that an operator may set.
pub const SQS_BATCH_MAX: usize = CLAIM_MESSAGES_MAX;
/// Max messages of one queue under claims; above it a receive gets none (SQS: about 120,000).
pub const SQS_IN_FLIGHT: usize = 120_000;
/// Max value of [`SQS_IN_FLIGHT`] that an operator may set: each message in flight takes some hundred bytes of memory.
pub const SQS_IN_FLIGHT_MAX: usize = 10_000_000;
/// Max characters of the id of a batch entry, and of the label of a permission (SQS: 80).
pub const SQS_ID_CHARS: usize = 80;
/// Max attributes of a message (SQS: 10).
pub const SQS_ATTRIBUTES: usize = 10;
/// Max characters of the name and of the type of a message attribute (SQS: 256).
pub const SQS_ATTRIBUTE_CHARS: usize = 256;
/// Max queues in one answer to a listing (SQS: 1,000).
pub const SQS_PAGE: usize = 1_000;
/// Seconds that a queue created through SQS keeps its messages when the request names no retention (SQS: 4 days).
pub const SQS_RETENTION_DEFAULT: u32 = 345_600;
/// Min and max value of the attribute for how often a message may be received before it is a dead letter (SQS).
pub const SQS_RECEIVES: (u32, u32) = (1, 1_000);
/// Max queues that a dead letter queue may name as its sources (SQS: 10).
pub const SQS_SOURCES: usize = 10;
/// Min and max messages that a move task moves in a second (SQS).
pub const MOVE_TASK_RATE: (u32, u32) = (1, 500);
/// Max active move tasks of a project (SQS).
pub const MOVE_TASKS_ACTIVE: usize = 100;
/// Max seconds of a move task (SQS: 36 hours). A longer task is stopped.
pub const MOVE_TASK_SECONDS: u32 = 129_600;
/// Max move tasks that the service keeps for a queue: as many as SQS lists. At most one of them runs.
pub const MOVE_TASKS: usize = 10;
/// Max tags of a queue, max characters of a tag's name and of its value (SQS: 50, 128, 256).
pub const SQS_TAGS: (usize, usize, usize) = (50, 128, 256);
/// Max bytes of the policy of a queue (SQS: 8,192).
pub const SQS_POLICY_BYTES: usize = 8_192;
/// Max statements of a policy that were added one by one (SQS: 20).
pub const SQS_STATEMENTS: usize = 20;
/// Max actions of such a statement (SQS: 7).
pub const SQS_ACTIONS: usize = 7;
/// Max seconds between the date of a signature and the clock of the service (AWS: 5 minutes).
pub const SQS_CLOCK_SKEW_SECONDS: u32 = 300;
/// Max seconds that a signature in a URL is valid (AWS: a week).
pub const SQS_PRESIGNED_SECONDS: u32 = 604_800;
/// Min and max seconds of the encryption attribute for the reuse of keys, which has no effect here (SQS).
pub const SQS_KEY_REUSE: (u32, u32) = (60, 86_400);
/// Max characters of a queue name (SQS: 80).
pub const QUEUE_NAME_CHARS: usize = 80;
/// Max characters of the name of a queue that is created through the REST API (Zaqar: 64).
pub const CREATED_NAME_CHARS: usize = 64;
/// Max bytes of a project id (Zaqar: 256).
pub const PROJECT_BYTES: usize = 256;
/// Max characters of the URI of a pool (Zaqar: 255).
pub const POOL_URI_CHARS: usize = 255;
/// Max bytes of the body of a request that changes a pool or a flavor: a URI, a few options, some dozen names.
pub const ADMIN_BODY_BYTES: usize = 16_384;
/// Max pools of a flavor: a change of the flavor is one commit to the tree, with two operations for each pool.
pub const FLAVOR_POOLS: usize = 40;
/// Max characters of a group name and of a deduplication id (SQS: 128).
pub const TOKEN_CHARS: usize = 128;
/// Bounds of the seconds that a message is kept after it was settled: up to 14 days.
pub const KEEP: (u32, u32) = (0, 1_209_600);
/// Max tags of a message.
pub const TAGS: usize = 8;
/// Max bytes of the tags of a message together.
pub const TAG_BYTES: usize = 256;
/// Max characters of the name that a holder of a claim gives itself.
pub const HOLDER_CHARS: usize = 80;
/// Max characters of the reason of a failure.
pub const REASON_CHARS: usize = 512;
/// Max bytes of the result of a message: a larger one belongs into a message that is forwarded.
pub const RESULT_BYTES: usize = 64 << 10;
/// Max bytes of the values that holders keep with a message.
pub const META_BYTES: usize = 1 << 10;
/// Max events in the history of a message.
pub const HISTORY_EVENTS: usize = 8;
/// Max messages that the settle of one message forwards.
pub const FORWARDS: usize = 20;
/// Bounds of the seconds until a failed or deferred message can be claimed again, as for a claim.
pub const RETRY_DELAY: (u32, u32) = (0, 43_200);
/// Seconds that a settle can be repeated with the same outcome.
pub const SETTLE_SECONDS: u32 = 300;
/// Max depth of arrays and objects in the JSON of a request. serde_json refuses deeper envelopes too, so this bounds the
/// recursion of every reader in this service.
pub const JSON_DEPTH: usize = 128;

/// Max bytes of a request body that has neither messages nor metadata: the ttl and grace of a claim need far less.
pub const SMALL_BODY_BYTES: usize = 4_096;
/// Max bytes of a too long body that the service reads and drops, so that the client can still read the answer.
pub const EXCESS_BYTES: usize = 8 << 20;
/// Max time from the first to the last byte of a request body, however slowly the client sends.
pub const BODY_DEADLINE: Duration = Duration::from_secs(60);

/// Max projects whose rate use is in memory at once, at about a hundred bytes each.
pub const RATED_PROJECTS: usize = 65_536;

/// Max bytes of a `tracestate` that is stored with a message (W3C Trace Context: at least 512 are to be passed on).
pub const TRACE_STATE_BYTES: usize = 512;
/// Max members of a `tracestate` (W3C Trace Context: 32).
pub const TRACE_STATE_MEMBERS: usize = 32;

/// Number of slots, the unit of ownership. A slot is a byte of stored ids, so this number never changes.
pub const SLOTS: usize = 256;

/// Max bytes of ready messages that a queue has in memory; further ready messages stay in the pool.
pub const READY_CACHE_BYTES: usize = 1 << 20;
/// Messages that one refill reads.
pub const REFILL_MESSAGES: usize = 1_024;
/// Max groups that one read of the list of a queue's groups returns, each with its first message.
pub const GROUPS_PAGE: usize = 64;
/// Max bytes of bodies that one read of a group returns, plus one body.
pub const GROUP_BYTES: usize = 256 << 10;
/// Seconds that a queue remembers a deduplication id, and the attempt id of a receive (SQS: five minutes).
pub const DEDUP_SECONDS: u32 = 300;
/// Max deduplication ids that one queue remembers, at about a hundred bytes each; above it a post with a deduplication
/// id is answered 429.
pub const DEDUP_KNOWN: usize = 1_000_000;
/// Max live claims of one slot: 64 directories of at most 8,000 nodes in the tree.
pub const SLOT_CLAIMS: usize = CLAIM_BUCKETS * TREE_CHILDREN;
/// Directories over which the claims of a slot are spread.
pub const CLAIM_BUCKETS: usize = 64;

/// Max children of one tree node. A reader of a directory gets it in one answer, so the answer stays well below a
/// megabyte.
pub const TREE_CHILDREN: usize = 8_000;
/// Max bytes of one value in the tree.
pub const TREE_VALUE_BYTES: usize = 128 * 1024;
/// Max operations of one commit to the tree.
pub const TREE_BATCH_OPS: usize = 100;
/// Max bytes of one commit to the tree (ZooKeeper refuses requests near one megabyte and cuts the connection).
pub const TREE_BATCH_BYTES: usize = 256 * 1024;

/// Max reads that are sent to ZooKeeper at once: more of them would only wait at the server.
pub const TREE_READS_AT_ONCE: usize = 64;
/// Min and max seconds of the session timeout that a replica asks ZooKeeper for. A short timeout loses the session at a
/// pause of the process or of a server; the queues of a dead replica wait for the whole timeout.
pub const TREE_SESSION: (u32, u32) = (2, 120);
/// Seconds of the session timeout when the settings name none.
pub const TREE_SESSION_DEFAULT: u32 = 12;

/// Free bytes on the disk of an embedded pool below which new messages are refused: enough to continue with deletes,
/// which need room before they free any (P12).
pub const RESERVE_BYTES: u64 = 256 << 20;
/// Max time from a write of the class `relaxed` to the begin of its sync: a power cut loses at most the writes of this
/// time.
pub const RELAXED_SYNC: Duration = Duration::from_millis(200);

/// Max slots that one commit takes: each needs three operations, and a commit has at most a hundred.
pub const SLOTS_TAKEN: usize = 32;

/// Max time that a request searches for the owner of its slot, then it is answered 503. A hand-over of a slot takes
/// less than a second.
pub const FORWARD_WAIT: Duration = Duration::from_secs(5);
/// If an attempt at one replica lasted longer than this, the request had found the owner, so [`FORWARD_WAIT`] begins
/// again when the slot moves.
pub const FORWARD_STEP: Duration = Duration::from_secs(3);
/// Max pause before the next attempt of a request; a notice that its slot has moved ends the pause.
pub const FORWARD_PAUSE: Duration = Duration::from_millis(50);
/// Max time that a request waits for the answer of an owner that was replaced.
pub const FORWARD_GRACE: Duration = Duration::from_secs(2);

/// Max claims that wait for one queue. Each holds a connection; one more is answered 429 at once.
pub const QUEUE_WAITERS: usize = 4_096;
/// Max claims that wait for the queues of one slot; one more is answered 429 at once.
pub const SLOT_WAITERS: usize = 16_384;
/// Max requests that wait for the outcomes of messages of one queue; one more is answered 429 at once.
pub const OUTCOME_WAITERS: usize = 16_384;
/// Max messages in transfer whose ids a queue has in memory; for more, the engine asks the pool.
pub const IN_TRANSFER_KNOWN: usize = 4_096;

/// Max groups of one queue that are held, or whose release has not ended.
pub const HELD_GROUPS: usize = 100;
/// Max bytes of the reason of a hold.
pub const HOLD_REASON_BYTES: usize = 256;
/// Max seconds after which a caller that a hold refuses is to try again.
pub const HOLD_RETRY_SECONDS: u32 = 3_600;
/// These seconds when the hold has no end of its own.
pub const HOLD_RETRY_DEFAULT: u32 = 60;

/// Max queues whose load a replica reports, the busiest first: the load of all others hardly counts.
pub const LOADS: usize = 10_000;
/// Min, default and max moves of a balance plan.
pub const BALANCE_MOVES: Span = Span::new(1, 20, 1_000).expect("they are in order");
/// Max bytes of the options of a subscription.
pub const SUBSCRIPTION_OPTIONS_BYTES: usize = 65_536;
/// Max bytes of the body of a request that creates or changes a subscription: its options and a few short values.
pub const SUBSCRIPTION_BODY_BYTES: usize = SUBSCRIPTION_OPTIONS_BYTES + SMALL_BODY_BYTES;
/// Min seconds of the life of a subscription (Zaqar: 60), and those of one without a `ttl` (Zaqar: 3600).
pub const SUBSCRIPTION_TTL_MIN: u64 = 60;
/// See [`SUBSCRIPTION_TTL_MIN`].
pub const SUBSCRIPTION_TTL_DEFAULT: u64 = 3_600;
/// Copies that wait in a subscription, when its options name no number, and the max number that they may name.
pub const SUBSCRIPTION_MESSAGES: u64 = 1_000_000;
/// See [`SUBSCRIPTION_MESSAGES`].
pub const SUBSCRIPTION_MESSAGES_MAX: u64 = 100_000_000;
/// Bytes of their bodies, likewise.
pub const SUBSCRIPTION_BYTES: u64 = 1 << 30;
/// See [`SUBSCRIPTION_BYTES`].
pub const SUBSCRIPTION_BYTES_MAX: u64 = 1 << 40;
/// Max subscriptions of a queue. A post to the queue opens the queues of all.
pub const SUBSCRIPTIONS: usize = 1_000;
/// Max bytes of the options of all subscriptions of a queue: they are in memory while the queue is open.
pub const SUBSCRIPTIONS_OPTIONS_BYTES: usize = 8 << 20;
/// Max bytes of the copies of one post for the subscriptions of its queue: one write of a slot writer.
pub const FAN_OUT_BYTES: usize = 32 << 20;
/// Max number of these copies: a pool writes them in one step, for which a server has a few seconds.
pub const FAN_OUT_COPIES: usize = 32_768;
/// Max `queue:` subscriptions that send a message on, one after the other: a circle of queues ends.
pub const HOPS: u32 = 8;

/// Max bytes of the address of a webhook.
pub const WEBHOOK_URL_BYTES: usize = 2_048;
/// Min and max bytes of a secret of a webhook (Standard Webhooks).
pub const WEBHOOK_SECRET_BYTES: (usize, usize) = (24, 64);
/// Max secrets of a webhook: the present one, and the one that it replaces.
pub const WEBHOOK_SECRETS: usize = 2;
/// Max further headers of the requests to a webhook.
pub const WEBHOOK_HEADERS: usize = 32;
/// Messages that are being sent to a webhook at the same time, when its options do not name a number, and at most.
pub const WEBHOOK_IN_FLIGHT_DEFAULT: u32 = 10;
/// See [`WEBHOOK_IN_FLIGHT_DEFAULT`].
pub const WEBHOOK_IN_FLIGHT_MAX: u32 = 100;
/// Max deliveries in a second that the options of a subscription can name.
pub const DELIVERY_RATE: u32 = 10_000;
/// Max of each number of retries of a `_retry_policy`.
pub const RETRY_POLICY_RETRIES: u32 = 1_000;
/// Max seconds of a pause of a `_retry_policy`: a day.
pub const RETRY_POLICY_SECONDS: u32 = 86_400;
