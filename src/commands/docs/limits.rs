//! The page of limits: the bounds that a client can meet, with the setting that changes each. The values are read from
//! the constants.

use super::{cell, head, row, table};
use crate::server::limits::HEADER_FIELDS;
use angarium_core::limits as bounds;
use angarium_settings::units::{size_of, span};

const INTRODUCTION: &str = "\
These are the bounds that a client can meet. A request beyond one of them is answered 400, unless the row names
another status. A setting changes a bound for the whole service; what is stored already stays as it is. Bounds with
their reasons are in `crates/core/src/limits.rs` and in `limits.rs` of each part; bounds of memory are in
[Budgets of memory](../architecture/memory.md).
";

/// A bound: its subject, its default, its widest value and its setting.
struct Bound(&'static str, String, String, &'static str);

pub(super) fn page() -> String {
    let mut page = head("Limits", "limits") + INTRODUCTION;
    for (title, rows) in [
        ("Messages", messages()),
        ("Queues", queues()),
        ("Claims", claims()),
        ("Outcomes", outcomes()),
        ("Subscriptions", subscriptions()),
        ("Pages and batches", pages()),
        ("Groups and deduplication", groups()),
        ("Amazon SQS", sqs()),
        ("Requests", requests()),
        ("Pools and flavors", pools()),
    ] {
        page += &format!("\n## {title}\n\n{}", table(&["limit", "default", "at most", "setting"]));
        for Bound(subject, default, most, setting) in rows {
            page += &row(&[cell(subject), default, most, setting.to_owned()]);
        }
    }
    page
}

fn fixed(subject: &'static str, value: impl ToString) -> Bound {
    Bound(subject, value.to_string(), String::new(), "")
}

fn count(value: usize) -> String {
    let digits = value.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect::<Vec<_>>();
    groups.join(",")
}

fn size(bytes: usize) -> String {
    size_of(bytes as u64)
}

fn seconds((least, most): (u32, u32)) -> String {
    format!("{} to {}", time(least), time(most))
}

fn time(seconds: u32) -> String {
    span(seconds.into())
}

fn year() -> String {
    time(bounds::SECONDS_MAX)
}

fn messages() -> Vec<Bound> {
    vec![
        Bound(
            "bytes of one message, with its SQS attributes",
            size(bounds::SQS_MESSAGE_BYTES),
            size(bounds::MESSAGE_BYTES_MAX),
            "`--max-messages-post-size`",
        ),
        Bound(
            "the same in a queue that is created through REST",
            size(bounds::REST_MESSAGE_BYTES),
            "the row above".to_owned(),
            "attribute `_max_messages_post_size`",
        ),
        fixed("bytes of the body of one post or of one SQS batch", count(bounds::SQS_REQUEST_BYTES)),
        fixed("messages of one post", count(bounds::POST_MESSAGES)),
        fixed("depth of arrays and objects in a body", bounds::JSON_DEPTH),
        Bound("ttl", seconds(bounds::MESSAGE_TTL), year(), "`--min-message-ttl`, `--max-message-ttl`"),
        Bound(
            "ttl of a message without one",
            time(bounds::MESSAGE_TTL_DEFAULT),
            year(),
            "`--default-message-ttl`",
        ),
        Bound("delay", seconds(bounds::MESSAGE_DELAY), year(), "`--max-message-delay`"),
        fixed("bytes of the `tracestate` that is stored", bounds::TRACE_STATE_BYTES),
    ]
}

fn queues() -> Vec<Bound> {
    vec![
        fixed("characters of a name, created through REST", bounds::CREATED_NAME_CHARS),
        fixed("characters of a name, created through SQS", bounds::QUEUE_NAME_CHARS),
        fixed("bytes of a project id", bounds::PROJECT_BYTES),
        Bound(
            "bytes of the metadata",
            size(bounds::METADATA_BYTES),
            size(bounds::METADATA_BYTES_MAX),
            "`--max-queue-metadata`",
        ),
        Bound(
            "queues, messages and bytes of a project (429)",
            "none".to_owned(),
            String::new(),
            "[quotas](../quotas.md)",
        ),
    ]
}

fn subscriptions() -> Vec<Bound> {
    vec![
        fixed("subscriptions of one queue (429)", count(bounds::SUBSCRIPTIONS)),
        Bound(
            "deliveries of one in a second",
            "none".to_owned(),
            count(bounds::DELIVERY_RATE as usize),
            "option `rate`",
        ),
        fixed("`queue:` subscriptions that send a message on, one after the other", bounds::HOPS),
        fixed("bytes of the options", size(bounds::SUBSCRIPTION_OPTIONS_BYTES)),
        fixed(
            "bytes of the options of all subscriptions of one queue (429)",
            size(bounds::SUBSCRIPTIONS_OPTIONS_BYTES),
        ),
        fixed("copies of one post (400)", count(bounds::FAN_OUT_COPIES)),
        fixed("bytes of the copies of one post (400)", size(bounds::FAN_OUT_BYTES)),
        Bound(
            "messages that wait in one",
            count(bounds::SUBSCRIPTION_MESSAGES as usize),
            count(bounds::SUBSCRIPTION_MESSAGES_MAX as usize),
            "option `max_messages`",
        ),
        Bound(
            "bytes of their bodies",
            size_of(bounds::SUBSCRIPTION_BYTES),
            size_of(bounds::SUBSCRIPTION_BYTES_MAX),
            "option `max_bytes`",
        ),
    ]
}

fn claims() -> Vec<Bound> {
    vec![
        Bound(
            "messages of a claim or a pop",
            count(bounds::CLAIM_MESSAGES),
            count(bounds::CLAIM_MESSAGES_MAX),
            "`--max-messages-per-claim-or-pop`",
        ),
        Bound(
            "messages of a claim without `limit`",
            count(bounds::CLAIM_MESSAGES_DEFAULT),
            count(bounds::CLAIM_MESSAGES_MAX),
            "`--default-messages-per-claim`",
        ),
        Bound("ttl", seconds(bounds::CLAIM_TTL), year(), "`--min-claim-ttl`, `--max-claim-ttl`"),
        Bound("ttl of a claim without one", time(bounds::CLAIM_TTL_DEFAULT), year(), "`--default-claim-ttl`"),
        Bound("grace", seconds(bounds::CLAIM_GRACE), year(), "`--min-claim-grace`, `--max-claim-grace`"),
        fixed("`wait`", seconds(bounds::CLAIM_WAIT)),
        fixed("claims that wait for one queue (429)", count(bounds::QUEUE_WAITERS)),
        fixed(
            "claims that wait behind the first of their queue, in one slot (429)",
            count(bounds::SLOT_WAITERS),
        ),
        fixed("claims of the queues of one slot (429)", count(bounds::SLOT_CLAIMS)),
    ]
}

fn outcomes() -> Vec<Bound> {
    vec![
        fixed("`keep` of a message, `_keep` of a queue", seconds(bounds::KEEP)),
        fixed("tags of a message", bounds::TAGS),
        fixed("bytes of all tags of a message", bounds::TAG_BYTES),
        fixed("characters of `by`, the holder of a claim", bounds::HOLDER_CHARS),
        fixed("characters of the reason of a failure", bounds::REASON_CHARS),
        fixed("`retry_in` of a failure, delay of a deferral", seconds(bounds::RETRY_DELAY)),
        fixed("bytes of a result", size(bounds::RESULT_BYTES)),
        fixed("bytes of `meta`", size(bounds::META_BYTES)),
        fixed("messages that an entry forwards", bounds::FORWARDS),
        fixed("time for which a settle can be repeated", time(bounds::SETTLE_SECONDS)),
        fixed("events in the history of a message", bounds::HISTORY_EVENTS),
        fixed("requests that wait for outcomes of one queue (429)", count(bounds::OUTCOME_WAITERS)),
    ]
}

fn pages() -> Vec<Bound> {
    let page = |subject, setting| Bound(subject, count(bounds::PAGE), count(bounds::PAGE_MAX), setting);
    vec![
        page("queues on a page", "`--max-queues-per-page`"),
        page("messages on a page, ids of one request", "`--max-messages-per-page`"),
        page("pools on a page", "`--max-pools-per-page`"),
        page("flavors on a page", "`--max-flavors-per-page`"),
        Bound(
            "holds of pools and projects on a page",
            count(bounds::HOLDS_PAGE.default_value() as usize),
            count(bounds::HOLDS_PAGE.most()),
            "",
        ),
        Bound(
            "elements of a page without `limit`",
            count(bounds::PAGE_DEFAULT),
            count(bounds::PAGE_MAX),
            "`--default-per-page`",
        ),
        fixed("listings of queues with filters at once, of one account", bounds::LISTINGS_AT_ONCE),
        fixed("such listings under way and waiting (429)", bounds::LISTINGS_IN_LINE),
        fixed("peeks and dry runs of tasks at once, of one account at one replica", bounds::PEEKS_AT_ONCE),
        fixed("such requests under way and waiting (429)", bounds::PEEKS_IN_LINE),
        fixed("messages that a peek reads for one page", count(bounds::PEEK_ENTRIES)),
        fixed("bytes that a peek reads for one page", size(bounds::PEEK_BYTES)),
        fixed("bytes of a body in a peek without `body=whole`", count(bounds::PEEK_HEAD_BYTES)),
        fixed("messages that a dry run of a task reads", count(bounds::DRY_RUN_PEEKS * bounds::PEEK_ENTRIES)),
        fixed("time of a dry run of a task", time(bounds::DRY_RUN_SECONDS)),
        fixed("messages that a dry run of a task shows", bounds::DRY_RUN_SAMPLE),
    ]
}

fn groups() -> Vec<Bound> {
    vec![
        fixed("characters of a group or a dedup id", bounds::TOKEN_CHARS),
        fixed("time for which a dedup id is remembered", time(bounds::DEDUP_SECONDS)),
        fixed("dedup ids of one queue (429)", count(bounds::DEDUP_KNOWN)),
        fixed("dedup ids of all queues of a replica (429)", count(bounds::DEDUP_KNOWN_ALL)),
    ]
}

fn sqs() -> Vec<Bound> {
    let (tags, key, value) = bounds::SQS_TAGS;
    let most = |subject, default, most, setting| Bound(subject, count(default), count(most), setting);
    vec![
        most(
            "messages of a receive, entries of a batch",
            bounds::SQS_BATCH,
            bounds::SQS_BATCH_MAX,
            "`--sqs-batch`",
        ),
        most(
            "messages in flight of a queue (`OverLimit`)",
            bounds::SQS_IN_FLIGHT,
            bounds::SQS_IN_FLIGHT_MAX,
            "`--sqs-in-flight`",
        ),
        fixed("bytes of all messages of a batch", size(bounds::SQS_MESSAGE_BYTES)),
        fixed("`MaximumMessageSize`, at least", size(bounds::SQS_MESSAGE_BYTES_MIN)),
        fixed("`VisibilityTimeout`", seconds(bounds::VISIBILITY)),
        fixed("`VisibilityTimeout` of a queue without one", time(bounds::VISIBILITY_DEFAULT)),
        fixed("`MessageRetentionPeriod` of a queue without one", time(bounds::SQS_RETENTION_DEFAULT)),
        fixed(
            "`maxReceiveCount`",
            format!("{} to {}", bounds::SQS_RECEIVES.0, count(bounds::SQS_RECEIVES.1 as usize)),
        ),
        fixed("source queues of a `RedriveAllowPolicy`", bounds::SQS_SOURCES),
        fixed("message attributes", bounds::SQS_ATTRIBUTES),
        fixed("characters of the name or type of an attribute", bounds::SQS_ATTRIBUTE_CHARS),
        fixed("tags of a queue", tags),
        fixed("characters of a tag's key and value", format!("{key}, {value}")),
        fixed("bytes of a policy", size(bounds::SQS_POLICY_BYTES)),
        fixed(
            "statements and actions of `AddPermission`",
            format!("{}, {}", bounds::SQS_STATEMENTS, bounds::SQS_ACTIONS),
        ),
        fixed("queues on a page", count(bounds::SQS_PAGE)),
        fixed("time by which a signature may be off", time(bounds::SQS_CLOCK_SKEW_SECONDS)),
        fixed("time for which a signed URL holds", time(bounds::SQS_PRESIGNED_SECONDS)),
        fixed("active tasks of a project that move, requeue or delete messages", bounds::MOVE_TASKS_ACTIVE),
        fixed("time of such a task", time(bounds::MOVE_TASK_SECONDS)),
        fixed("bytes of the body of `ReceiveMessage`", size(bounds::SQS_RECEIVE_BYTES)),
        fixed("bytes of other bodies without messages", size(bounds::SQS_CONTROL_BYTES)),
    ]
}

fn requests() -> Vec<Bound> {
    vec![
        fixed("time until the whole body has arrived (408)", time(bounds::BODY_DEADLINE.as_secs() as u32)),
        fixed("time of a request without its wait (503)", time(bounds::REQUEST_DEADLINE.as_secs() as u32)),
        fixed("time of a purge (503)", time(bounds::PURGE_DEADLINE.as_secs() as u32)),
        fixed(
            "time of an addition or exchange of a pool (503)",
            time(bounds::POOL_DEADLINE.as_secs() as u32),
        ),
        Bound("bytes of the header (431)", "64KiB".to_owned(), "1MiB".to_owned(), "`--max-header-bytes`"),
        fixed("headers of a request (431)", HEADER_FIELDS),
        fixed("bytes of the query of an SQS request", size(bounds::QUERY_BYTES)),
        fixed("bytes of a body without messages or metadata", size(bounds::SMALL_BODY_BYTES)),
        Bound("requests in progress (503)", "4,096".to_owned(), String::new(), "`--max-requests`"),
        Bound("long polls (503)", "4,096".to_owned(), String::new(), "`--max-long-polls`"),
        Bound(
            "bytes of request bodies in memory (503, 408)",
            size(bounds::BODY_BYTES as usize),
            String::new(),
            "`--max-body-bytes`",
        ),
        Bound(
            "bytes of answers that clients have not read (connections cut)",
            size(bounds::UNSENT_BYTES as usize),
            String::new(),
            "`--max-unsent-bytes`",
        ),
        Bound(
            "requests in progress of one address behind a trusted proxy (503)",
            "1,024".to_owned(),
            String::new(),
            "`--max-requests-per-address`",
        ),
        Bound("connections (503, closed)", "4,096".to_owned(), String::new(), "`--max-connections`"),
        Bound(
            "connections of one address (503, closed)",
            "1,024".to_owned(),
            String::new(),
            "`--max-connections-per-address`",
        ),
        Bound(
            "requests of a project per second (429)",
            "none".to_owned(),
            String::new(),
            "`--project-requests-per-second`",
        ),
    ]
}

fn pools() -> Vec<Bound> {
    vec![
        fixed("characters of a name", bounds::CREATED_NAME_CHARS),
        fixed("characters of the URI of a pool", bounds::POOL_URI_CHARS),
        fixed("pools of a flavor", bounds::FLAVOR_POOLS),
        fixed("bytes of the body of a request", size(bounds::ADMIN_BODY_BYTES)),
    ]
}
