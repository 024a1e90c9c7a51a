//! The reserved attributes of a queue: the keys of its metadata that change its behaviour. Source: Zaqar v2, and the
//! attributes of SQS queues for features that Zaqar does not have.
//!
//! A value of `null` counts as absent, because Zaqar answers `null` for an attribute that is not set and its clients
//! write that back. A key that begins with an underscore and is not listed here is free metadata, as in Zaqar.

mod key;

use serde_json::value::RawValue;

use crate::backoff::Backoff;
use crate::claim::{ClaimWait, Visibility};
use crate::dedup::DedupScope;
use crate::durability::Durability;
use crate::error::{Error, InvalidPart};
use crate::limits::{self, Limits};
use crate::maps::HashMap;
use crate::message::{MessageTtl, Retention};
use crate::names::{FlavorName, QueueName};
use crate::outcome::Keep;
use key::Key;

/// Max bytes of a message of the queue with its SQS attributes: `MaximumMessageSize`. In Zaqar this key bounds a whole
/// request.
pub const MAX_MESSAGE_BYTES: &str = "_max_messages_post_size";
/// Seconds that a message lives when its post names no ttl.
pub const MESSAGE_TTL: &str = "_default_message_ttl";
/// Seconds until a message can be claimed when its post names no delay.
pub const MESSAGE_DELAY: &str = "_default_message_delay";
/// The queue for dead letters: it takes the messages that were claimed too often.
pub const DEAD_LETTER_QUEUE: &str = "_dead_letter_queue";
/// Seconds that a message lives in the queue for dead letters.
pub const DEAD_LETTER_TTL: &str = "_dead_letter_queue_messages_ttl";
/// Max number of claims of a message; then it is a dead letter.
pub const MAX_CLAIM_COUNT: &str = "_max_claim_count";
/// The durability class of posts and deletes when they are acknowledged: `sync` or `relaxed`. Zaqar has no such
/// attribute.
pub const DURABILITY: &str = "_durability";
/// The flavor that chooses the pools of the queue.
pub const FLAVOR: &str = "_flavor";
/// Seconds that an SQS receive hides its messages when the request names no visibility timeout. Zaqar has neither this
/// attribute nor those below.
pub const VISIBILITY: &str = "_default_visibility_timeout";
/// Seconds that an SQS receive waits for messages when the request names no wait.
pub const RECEIVE_WAIT: &str = "_default_receive_wait";
/// The queues that may name this one for their dead letters: an object like the SQS attribute `RedriveAllowPolicy`.
pub const REDRIVE_ALLOW: &str = "_redrive_allow";
/// The rights of others to use the queue through SQS: an object like the SQS attribute `Policy`.
pub const POLICY: &str = "_policy";
/// The unit of the throughput limit of a FIFO queue in SQS: `perQueue` or `perMessageGroupId`. The service stores and
/// returns it, and limits nothing by it.
pub const FIFO_THROUGHPUT: &str = "_fifo_throughput_limit";
/// Names and values for people and bills: an object of strings, the tags of SQS.
pub const TAGS: &str = "_tags";
/// The encryption settings of SQS clients: `KmsMasterKeyId`, `KmsDataKeyReusePeriodSeconds` and `SqsManagedSseEnabled`.
/// The service stores and returns them, and encrypts nothing by them.
pub const KMS_KEY: &str = "_kms_master_key_id";
/// See [`KMS_KEY`].
pub const KMS_REUSE: &str = "_kms_data_key_reuse_period";
/// See [`KMS_KEY`].
pub const MANAGED_SSE: &str = "_sqs_managed_sse";
/// Whether messages are claimed in order within their groups, as in FIFO queues of SQS. It is fixed when the queue is
/// created.
pub const FIFO: &str = "_fifo";
/// The scope of a deduplication id in a FIFO queue: `queue` or `group`. A change applies to later posts.
pub const DEDUP_SCOPE: &str = "_deduplication_scope";
/// Whether a message of a FIFO queue that names no deduplication id gets one from its content.
pub const CONTENT_DEDUP: &str = "_content_based_deduplication";
/// Seconds that a settled message is kept when its post names no time.
pub const KEEP: &str = "_keep";
/// The pause before a failed message is tried again: an object of `first`, `factor`, `max` and `jitter`.
pub const BACKOFF: &str = "_backoff";
/// Whether bodies are encrypted at rest. True is refused, because the service does not encrypt them.
pub const ENCRYPT: &str = "_enable_encrypt_messages";

/// All keys, in the order of their names. The client refuses other keys with an underscore. A test compares them with the
/// document.
pub const KEYS: &[&str] = &[
    BACKOFF,
    CONTENT_DEDUP,
    DEAD_LETTER_QUEUE,
    DEAD_LETTER_TTL,
    DEDUP_SCOPE,
    MESSAGE_DELAY,
    MESSAGE_TTL,
    RECEIVE_WAIT,
    VISIBILITY,
    DURABILITY,
    ENCRYPT,
    FIFO,
    FIFO_THROUGHPUT,
    FLAVOR,
    KEEP,
    KMS_REUSE,
    KMS_KEY,
    MAX_CLAIM_COUNT,
    MAX_MESSAGE_BYTES,
    POLICY,
    REDRIVE_ALLOW,
    MANAGED_SSE,
    TAGS,
];

/// A reserved key as it is stored, with a value that this version does not understand: the key was free metadata of a
/// client before a version gave it a meaning, or a later version gave it another form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IgnoredAttribute {
    /// The reserved key. The queue has its default.
    pub key: &'static str,
    /// The defect of the value.
    pub why: String,
}

/// The behaviour of a queue as its metadata states it. An absent value has the default of the service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Max bytes of a message; never more than the bound of the service, which applies when this is absent.
    pub max_message_bytes: Option<usize>,
    /// The life of messages whose post names no ttl.
    pub message_ttl: Option<MessageTtl>,
    /// Seconds of delay of messages whose post names none.
    pub message_delay: Option<u32>,
    /// The queue of the same project that takes the dead letters.
    pub dead_letter_queue: Option<QueueName>,
    /// The life of messages in the queue for dead letters; if absent they keep their own.
    pub dead_letter_ttl: Option<MessageTtl>,
    /// Max number of claims of a message. It has an effect only together with a queue for dead letters.
    pub max_claim_count: Option<u32>,
    /// The durability class of posts and deletes.
    pub durability: Option<Durability>,
    /// The flavor that chooses the pools of the queue.
    pub flavor: Option<FlavorName>,
    /// How long a receive hides its messages when the request names no visibility timeout.
    pub visibility: Option<Visibility>,
    /// How long a receive waits for messages when the request names no wait.
    pub receive_wait: Option<ClaimWait>,
    /// Whether messages are claimed in order within their groups.
    pub is_fifo: bool,
    /// The scope of a deduplication id.
    pub dedup_scope: DedupScope,
    /// Whether a message that names no deduplication id gets one from its content.
    pub has_content_dedup: bool,
    /// Whether a policy states the rights of others.
    pub has_policy: bool,
    /// How long settled messages are kept whose post names no time.
    pub keep: Keep,
    /// The pause before a failed message is tried again.
    pub backoff: Option<Backoff>,
}

impl Attributes {
    /// Reads and checks the reserved keys of a JSON object.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for the first key with a wrong value.
    pub fn new(metadata: &HashMap<String, &RawValue>, limits: &Limits) -> Result<Self, Error> {
        let (attributes, misfits) = Self::read(metadata, limits);
        misfits.0.into_iter().next().map_or(Ok(attributes), |(_, error)| Err(error))
    }

    /// Reads the reserved keys of a stored queue. A value that is not understood counts as absent, so that it closes no
    /// queue; only a queue with such a value of `_fifo` keeps the order of its groups, because that loses nothing.
    pub fn stored(metadata: &HashMap<String, &RawValue>) -> (Self, Vec<IgnoredAttribute>) {
        let (mut attributes, misfits) = Self::read(metadata, &Limits::WIDEST);
        attributes.is_fifo |= misfits.0.iter().any(|(key, _)| *key == FIFO);
        let ignored = |(key, error)| {
            let why = match error {
                Error::Invalid { why, .. } => why,
                other => other.to_string(),
            };
            IgnoredAttribute { key, why }
        };
        (attributes, misfits.0.into_iter().map(ignored).collect())
    }

    /// Reads the attributes, and the keys whose values are not understood.
    fn read(metadata: &HashMap<String, &RawValue>, limits: &Limits) -> (Self, Misfits) {
        let of = |key| Key { key, value: metadata.get(key).copied().filter(|value| value.get() != "null") };
        let visibility = |asked| Visibility::new(asked, VISIBILITY);
        let wait = |asked| ClaimWait::named(asked, RECEIVE_WAIT);
        let mut misfits = Misfits::default();
        misfits.or_default(ENCRYPT, of(ENCRYPT).refuse_encryption());
        for key in [REDRIVE_ALLOW, POLICY, TAGS] {
            misfits.or_default(key, of(key).check_object());
        }
        let attributes = Self {
            max_message_bytes: misfits.or_default(MAX_MESSAGE_BYTES, of(MAX_MESSAGE_BYTES).bytes(limits)),
            message_ttl: misfits.or_default(MESSAGE_TTL, of(MESSAGE_TTL).ttl(limits)),
            message_delay: misfits.or_default(MESSAGE_DELAY, of(MESSAGE_DELAY).delay(limits)),
            dead_letter_queue: misfits
                .or_default(DEAD_LETTER_QUEUE, of(DEAD_LETTER_QUEUE).name(QueueName::new)),
            dead_letter_ttl: misfits.or_default(DEAD_LETTER_TTL, of(DEAD_LETTER_TTL).ttl(limits)),
            max_claim_count: misfits.or_default(MAX_CLAIM_COUNT, of(MAX_CLAIM_COUNT).count()),
            durability: misfits.or_default(DURABILITY, of(DURABILITY).durability()),
            flavor: misfits.or_default(FLAVOR, of(FLAVOR).name(FlavorName::new)),
            visibility: misfits.or_default(VISIBILITY, of(VISIBILITY).checked(visibility)),
            receive_wait: misfits.or_default(RECEIVE_WAIT, of(RECEIVE_WAIT).checked(wait)),
            is_fifo: misfits.or_default(FIFO, of(FIFO).truth()),
            dedup_scope: misfits.or_default(DEDUP_SCOPE, of(DEDUP_SCOPE).dedup_scope()),
            has_content_dedup: misfits.or_default(CONTENT_DEDUP, of(CONTENT_DEDUP).truth()),
            // A policy that is no object allows nothing, like one that is not understood.
            has_policy: of(POLICY).value.is_some(),
            keep: misfits.or_default(KEEP, of(KEEP).keep()),
            backoff: misfits.or_default(BACKOFF, of(BACKOFF).backoff()),
        };
        (attributes, misfits)
    }

    /// Checks the keys that are only stored for SQS, and that they agree with the others: groups have a throughput of
    /// their own only where deduplication is by group.
    pub fn check_sqs_keys(&self, metadata: &HashMap<String, &RawValue>) -> Result<(), Error> {
        let of = |key| Key { key, value: metadata.get(key).copied().filter(|value| value.get() != "null") };
        of(KMS_KEY).name(|name| Ok(name.to_owned()))?;
        of(KMS_REUSE).within(limits::SQS_KEY_REUSE)?;
        of(MANAGED_SSE).truth()?;
        let limit = of(FIFO_THROUGHPUT);
        match limit.value.map(RawValue::get) {
            None | Some("\"perQueue\"") => Ok(()),
            Some("\"perMessageGroupId\"") if self.dedup_scope == DedupScope::Group => Ok(()),
            Some("\"perMessageGroupId\"") => {
                Err(limit.wrong(InvalidPart::Limit, format!("needs {DEDUP_SCOPE} to be \"group\"")))
            }
            Some(_) => Err(limit.wrong(InvalidPart::Limit, "must be \"perQueue\" or \"perMessageGroupId\"")),
        }
    }

    /// Checks that the attributes which are fixed at creation have not changed since `before`.
    pub fn check_after(&self, before: &Self) -> Result<(), Error> {
        let fixed = |key, why| Err(Error::invalid(InvalidPart::Limit, key, why));
        if self.is_fifo != before.is_fifo {
            return fixed(FIFO, "a queue keeps the kind it was created with");
        }
        Ok(())
    }

    fn check_for_topic(&self) -> Result<(), Error> {
        let of_claims = [
            (DEAD_LETTER_QUEUE, self.dead_letter_queue.is_some()),
            (DEAD_LETTER_TTL, self.dead_letter_ttl.is_some()),
            (MAX_CLAIM_COUNT, self.max_claim_count.is_some()),
            (VISIBILITY, self.visibility.is_some()),
            (RECEIVE_WAIT, self.receive_wait.is_some()),
            (KEEP, self.keep != Keep::default()),
            (BACKOFF, self.backoff.is_some()),
        ];
        match of_claims.into_iter().find(|(_, is_set)| *is_set) {
            Some((key, _)) => {
                let why = "a topic keeps no messages: give it in the options of its subscriptions";
                Err(Error::invalid(InvalidPart::Limit, key, why))
            }
            None => Ok(()),
        }
    }

    /// Checks that the attributes fit their queue: it cannot take its own dead letters, and a topic has no messages that
    /// are claimed.
    pub fn check_for(&self, queue: &QueueName) -> Result<(), Error> {
        if queue.is_topic() {
            return self.check_for_topic();
        }
        if self.dead_letter_queue.as_ref() == Some(queue) {
            return Err(Error::invalid(InvalidPart::Limit, DEAD_LETTER_QUEUE, "it is the queue itself"));
        }
        Ok(())
    }

    /// Whether a pool that reaches the class `reach` may hold the queue. Only a queue that names a higher class is
    /// refused (P11).
    pub fn allow(&self, reach: Durability) -> bool {
        self.durability.is_none_or(|requested| requested <= reach)
    }

    /// Max bytes of a message of the queue, with its SQS attributes. A queue whose bound exceeds the bound of the
    /// service has the bound of the service.
    pub fn message_bytes(&self, limits: &Limits) -> usize {
        self.max_message_bytes.unwrap_or(limits.message_bytes).min(limits.message_bytes)
    }

    /// How long the queue keeps messages that live by queue.
    pub fn retention(&self, limits: &Limits) -> Retention {
        Retention::new(self.message_ttl.map_or(limits.message_ttl.default_value(), MessageTtl::seconds))
    }

    /// The queue for dead letters and the max number of claims; none when one of them is absent.
    pub fn dead_letters(&self) -> Option<(&QueueName, u32)> {
        self.dead_letter_queue.as_ref().zip(self.max_claim_count)
    }
}

/// Keys with wrong values, the first one first.
#[derive(Default)]
struct Misfits(Vec<(&'static str, Error)>);

impl Misfits {
    /// What a key states, or the default when its value is wrong.
    fn or_default<T: Default>(&mut self, key: &'static str, read: Result<T, Error>) -> T {
        read.unwrap_or_else(|error| {
            self.0.push((key, error));
            T::default()
        })
    }
}

/// The keys and values of a JSON object; none when the text is something else.
pub fn entries(text: &RawValue) -> Option<HashMap<String, &RawValue>> {
    serde_json::from_str(text.get()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes(json: &str) -> Result<Attributes, Error> {
        let text = serde_json::from_str::<&RawValue>(json).unwrap();
        Attributes::new(&entries(text).unwrap(), &Limits::ZAQAR)
    }

    #[test]
    fn each_attribute_is_read() {
        let read = attributes(
            r#"{"_max_messages_post_size": 1000, "_default_message_ttl": 60, "_default_message_delay": 900,
            "_dead_letter_queue": "dead", "_dead_letter_queue_messages_ttl": 1209600, "_max_claim_count": 3,
            "_flavor": "fast", "_durability": "relaxed", "_enable_encrypt_messages": false, "_mine": [1], "colour": "red",
            "_default_visibility_timeout": 0, "_default_receive_wait": 20, "_tags": {"a": "b"}, "_policy": {},
            "_fifo": true, "_deduplication_scope": "group", "_content_based_deduplication": true, "_keep": 9,
            "_backoff": {"first": 5}}"#,
        );
        let ttl = |seconds| Some(MessageTtl::new(seconds, "ttl", &Limits::ZAQAR).unwrap());
        let expected = Attributes {
            max_message_bytes: Some(1_000),
            message_ttl: ttl(60),
            message_delay: Some(900),
            dead_letter_queue: Some(QueueName::new("dead").unwrap()),
            dead_letter_ttl: ttl(1_209_600),
            max_claim_count: Some(3),
            durability: Some(Durability::Relaxed),
            flavor: Some(FlavorName::new("fast").unwrap()),
            visibility: Some(Visibility::new(0, "").unwrap()),
            receive_wait: Some(ClaimWait::new(Some(20)).unwrap()),
            is_fifo: true,
            dedup_scope: DedupScope::Group,
            has_content_dedup: true,
            has_policy: true,
            keep: Keep::stored(9),
            backoff: Backoff::parse(r#"{"first": 5}"#).ok(),
        };
        assert_eq!(read.unwrap(), expected);
    }

    #[test]
    fn every_key_is_listed_in_order() {
        assert!(KEYS.is_sorted());
        let source = include_str!("attributes.rs").lines();
        let named = source.filter(|line| line.starts_with("pub const ") && line.contains(": &str = \"_"));
        assert_eq!(named.count(), KEYS.len());
    }

    #[test]
    fn sqs_attributes_are_checked_when_set() {
        let check = |json: &str| {
            let text = serde_json::from_str::<&RawValue>(json).unwrap();
            let entries = entries(text).unwrap();
            Attributes::new(&entries, &Limits::ZAQAR).unwrap().check_sqs_keys(&entries)
        };
        for json in [
            r#"{"_fifo_throughput_limit": "perQueue", "_sqs_managed_sse": true}"#,
            r#"{"_fifo_throughput_limit": "perMessageGroupId", "_deduplication_scope": "group"}"#,
            r#"{"_kms_master_key_id": "alias/mine", "_kms_data_key_reuse_period": 60, "_sqs_managed_sse": null}"#,
        ] {
            assert!(check(json).is_ok(), "{json}");
        }
        for json in [
            r#"{"_fifo_throughput_limit": "perMessageGroupId"}"#,
            r#"{"_fifo_throughput_limit": "perMessageGroupId", "_deduplication_scope": "queue"}"#,
            r#"{"_fifo_throughput_limit": 7}"#,
            r#"{"_kms_data_key_reuse_period": 59}"#,
            r#"{"_kms_master_key_id": ["a"]}"#,
            r#"{"_sqs_managed_sse": "yes"}"#,
        ] {
            assert!(check(json).unwrap_err().to_string().starts_with(&json[2..10]), "{json}");
        }
    }

    #[test]
    fn stored_misfits_are_ignored_and_named() {
        let text =
            r#"{"_default_message_ttl": "long", "_max_claim_count": 3, "_tags": 7, "_fifo": [], "_mine": 1}"#;
        let text = serde_json::from_str::<&RawValue>(text).unwrap();
        let (read, ignored) = Attributes::stored(&entries(text).unwrap());
        let expected = Attributes { max_claim_count: Some(3), is_fifo: true, ..Attributes::default() };
        assert_eq!(read, expected, "order is kept");
        let ignored: Vec<_> = ignored.iter().map(|ignored| (ignored.key, ignored.why.as_str())).collect();
        let expected = [
            (TAGS, "must be a JSON object"),
            (MESSAGE_TTL, "must be an integer"),
            (FIFO, "must be true or false"),
        ];
        assert_eq!(ignored, expected);
    }

    #[test]
    fn null_zero_counts_and_empty_names_are_no_values() {
        let read = attributes(
            r#"{"_max_messages_post_size": null, "_dead_letter_queue": "", "_max_claim_count": 0,
            "_default_message_ttl": null, "_flavor": null, "_enable_encrypt_messages": null}"#,
        );
        assert_eq!(read.unwrap(), Attributes::default());
    }

    #[test]
    fn a_queue_cannot_take_its_own_dead_letters() {
        let read = attributes(r#"{"_dead_letter_queue": "q"}"#).unwrap();
        assert!(read.check_for(&QueueName::new("other").unwrap()).is_ok());
        let refused = read.check_for(&QueueName::new("q").unwrap()).unwrap_err();
        assert!(refused.to_string().starts_with(DEAD_LETTER_QUEUE), "{refused}");
    }

    #[test]
    fn a_wrong_value_is_refused_and_named() {
        for (key, values) in [
            (MAX_MESSAGE_BYTES, vec!["0", "1048577", "-1", "\"1\"", "1.5", "[]"]),
            (MESSAGE_TTL, vec!["59", "1209601", "true", "60.0"]),
            (MESSAGE_DELAY, vec!["-1", "901", "{}"]),
            (DEAD_LETTER_QUEUE, vec!["\"a b\"", "1", "\"..\""]),
            (DEAD_LETTER_TTL, vec!["59"]),
            (MAX_CLAIM_COUNT, vec!["-1", "4294967296", "\"3\""]),
            (FLAVOR, vec!["\"a/b\"", "7"]),
            (DURABILITY, vec!["\"Sync\"", "true", "\"\""]),
            (ENCRYPT, vec!["true", "1"]),
            (VISIBILITY, vec!["-1", "43201", "\"30\""]),
            (RECEIVE_WAIT, vec!["-1", "21"]),
            (TAGS, vec!["[]", "\"a\"", "1"]),
            (POLICY, vec!["\"{}\""]),
            (FIFO, vec!["1", "\"true\""]),
            (DEDUP_SCOPE, vec!["\"Queue\"", "true"]),
            (CONTENT_DEDUP, vec!["\"\"", "[]"]),
            (KEEP, vec!["-1", "1209601", "\"9\""]),
            (BACKOFF, vec!["5", "{}", "{\"first\": -1}"]),
        ] {
            for value in values {
                let error = attributes(&format!("{{\"{key}\": {value}}}")).unwrap_err();
                assert!(error.to_string().starts_with(key), "{key} {value}: {error}");
            }
        }
    }
}
