//! The attributes of a queue, only for the document: `angarium_core::attributes` checks their values.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// The metadata of a queue: a JSON object of at most 65,536 bytes. The attributes named here change what the queue
/// does; any other key is kept and given back. `null` represents the default, and in answers for no value. Defaults are
/// in the text: a client that fills them in by itself would keep those of today. So are bounds that settings of the
/// service change: a client that checks answers reads the queues of a service with wider ones.
#[derive(Serialize, ToSchema)]
#[schema(example = json!({"_default_message_ttl": 600, "_max_claim_count": 5, "_dead_letter_queue": "failed", "team": "billing"}))]
pub struct QueueAttributes {
    /// Bytes that a message of the queue may have, its attributes of SQS included: from 1 to 1048576 unless the service is set
    /// otherwise (`--max-messages-post-size`). A queue that is created through REST starts with 262144, through SQS with
    /// 1048576. 262144 when absent.
    _max_messages_post_size: Option<i64>,
    /// Seconds that messages live which name no `ttl`: from 60 to 1209600 unless the service is set otherwise
    /// (`--min-message-ttl`, `--max-message-ttl`). They count from when the message can be claimed. 3600 when absent.
    _default_message_ttl: Option<i64>,
    /// Seconds until messages can be claimed which name no `delay`: up to 900 unless the service is set otherwise
    /// (`--max-message-delay`). 0 when absent.
    _default_message_delay: Option<i64>,
    /// The queue of the same project that takes messages which were claimed too often. An empty name is none.
    #[schema(max_length = 80)]
    _dead_letter_queue: Option<String>,
    /// Seconds that a message lives in the queue for dead letters: from 60 to 1209600 unless the service is set otherwise
    /// (`--min-message-ttl`, `--max-message-ttl`). It keeps its own life when absent.
    _dead_letter_queue_messages_ttl: Option<i64>,
    /// How often a message may be claimed before it becomes a dead letter. Without `_dead_letter_queue` it bounds only the
    /// attempts of messages that a holder settles as failed; 0 is none.
    #[schema(minimum = 0, maximum = 4_294_967_295_u32)]
    _max_claim_count: Option<i64>,
    /// Seconds that messages are kept after they were settled which name no `keep`: done ones with their result, failed ones
    /// with the reason. 0 when absent.
    #[schema(minimum = 0, maximum = 1_209_600)]
    _keep: Option<i64>,
    /// The pause before a message can be claimed again that its holder reported as failed. It has no effect on released and
    /// expired claims. None when absent.
    _backoff: Option<QueueBackoff>,
    /// Encryption of bodies, which the service does not have: `true` is refused. False when absent.
    _enable_encrypt_messages: Option<bool>,
    /// The flavor whose pools the queue may lie in. An empty name is none.
    #[schema(max_length = 64)]
    _flavor: Option<String>,
    /// How durable posts and deletes are when they are answered: `sync` outlives a power cut, and `relaxed` may lose the last
    /// moments in one. When absent, as durable as the pool can.
    #[schema(value_type = Option<Durability>)]
    _durability: Option<String>,
    /// Whether the messages of a group are claimed in order. It is fixed when the queue is created. When absent, true for
    /// a name that ends in `.fifo`, which cannot have false, and else false.
    _fifo: Option<bool>,
    /// In a queue with `_fifo`: whether a deduplication id holds for the `queue` or for each `group`. `queue` when
    /// absent.
    #[schema(value_type = Option<DeduplicationScope>)]
    _deduplication_scope: Option<String>,
    /// In a queue with `_fifo`: whether the hash of its body is the deduplication id of a message that names none.
    /// False when absent.
    _content_based_deduplication: Option<bool>,
    /// The attribute `FifoThroughputLimit` of SQS. It is kept, and bounds nothing.
    #[schema(value_type = Option<FifoThroughputLimit>)]
    _fifo_throughput_limit: Option<String>,
    /// Seconds that a receive through SQS hides its messages for when it does not say: `VisibilityTimeout`. 30 when
    /// absent.
    #[schema(minimum = 0, maximum = 43_200)]
    _default_visibility_timeout: Option<i64>,
    /// Seconds that a receive through SQS waits for messages when it does not say: `ReceiveMessageWaitTimeSeconds`. 0
    /// when absent.
    #[schema(minimum = 0, maximum = 20)]
    _default_receive_wait: Option<i64>,
    /// Which queues may name this one for their dead letters: the attribute `RedriveAllowPolicy` of SQS, as an object.
    _redrive_allow: Option<BTreeMap<String, Value>>,
    /// Who may do what with the queue through SQS: the attribute `Policy`, as an object of at most 8,192 bytes.
    _policy: Option<BTreeMap<String, Value>>,
    /// The tags of SQS: at most 50 names and values.
    _tags: Option<BTreeMap<String, String>>,
    /// The attribute `KmsMasterKeyId` of SQS. It is kept, and nothing is encrypted by it.
    _kms_master_key_id: Option<String>,
    /// The attribute `KmsDataKeyReusePeriodSeconds` of SQS, in seconds. It is kept, and nothing is encrypted by it.
    #[schema(minimum = 60, maximum = 86_400)]
    _kms_data_key_reuse_period: Option<i64>,
    /// The attribute `SqsManagedSseEnabled` of SQS. It is kept, and nothing is encrypted by it.
    _sqs_managed_sse: Option<bool>,
    #[serde(flatten)]
    other: HashMap<String, Value>,
}

/// How long a failed message waits before it can be claimed again: longer after each attempt.
#[derive(Serialize, ToSchema)]
struct QueueBackoff {
    /// Seconds after a failure in the first attempt: from 0 to 43200.
    first: f64,
    /// How many times as long each further pause is: from 1 to 10. 2 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    factor: Option<f64>,
    /// Seconds of the longest pause: from 0 to 43200. 3600 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    max: Option<f64>,
    /// The part of a pause by which it may be longer or shorter, at random: from 0 to 1. 0 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    jitter: Option<f64>,
}

/// How durable a write is when it is answered.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
#[expect(dead_code, reason = "only its description is used: the class is a word of the domain")]
pub enum Durability {
    /// It outlives a power cut.
    Sync,
    /// A power cut may take the last moments.
    Relaxed,
}

/// What a deduplication id holds for.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
#[expect(dead_code, reason = "only its description is used: the scope is a word of the domain")]
pub enum DeduplicationScope {
    /// The whole queue.
    Queue,
    /// The group of the message.
    Group,
}

/// What the throughput of a FIFO queue is bounded by in SQS. Nothing is bounded by it here.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "only its description is used: the value is kept as text")]
pub enum FifoThroughputLimit {
    /// The whole queue.
    PerQueue,
    /// Each group of messages; only with the deduplication scope `group`.
    PerMessageGroupId,
}

#[cfg(test)]
mod tests {
    use super::*;
    use angarium_core::attributes::KEYS;
    use utoipa::PartialSchema;

    #[test]
    fn documented_attributes_are_the_keys() {
        let schema = serde_json::to_value(QueueAttributes::schema()).unwrap();
        let mut documented: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
        documented.sort_unstable();
        assert_eq!(documented, KEYS);
    }
}
