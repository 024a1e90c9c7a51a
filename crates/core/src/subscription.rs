//! Subscriptions: who gets a copy of each message that is posted to a queue.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;

use bytes::Bytes;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::attributes::{self, DURABILITY, FIFO, FLAVOR, MAX_MESSAGE_BYTES, MESSAGE_DELAY, MESSAGE_TTL};
use crate::confirmation::Confirmation;
use crate::error::{Error, InvalidPart};
use crate::ids::{QueueId, SubscriptionId};
use crate::limits::{self, Limits};
use crate::names::QueueName;
use crate::overflow::CopyBounds;
use crate::queue::Metadata;
use crate::time::Timestamp;
use crate::webhook::{WebhookOptions, WebhookSecret, WebhookUrl};

/// The receiver of the copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subscriber {
    /// Consumers that read the subscription as a queue, `pull:NAME`. The name tells groups of consumers apart.
    Pull(String),
    /// Another queue of the project, `queue:NAME`.
    Queue(QueueName),
    /// An address to which the service sends the copies.
    Webhook(WebhookUrl),
}

const FILTER: &str = "filter";
const FILTER_SCOPE: &str = "filter_scope";
const FROM: &str = "from";
const PULL: &str = "pull:";
const QUEUE: &str = "queue:";
const RATE: &str = "rate";
const TRUST: &str = "trust+";

impl Subscriber {
    /// Reads a subscriber as a client names it.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for another kind of subscriber, and for an invalid name.
    pub fn new(text: &str) -> Result<Self, Error> {
        let wrong = |why: String| Error::invalid(InvalidPart::Limit, "subscriber", why);
        if let Some(name) = text.strip_prefix(QUEUE) {
            let name = QueueName::new(name).map_err(|error| wrong(error.to_string()))?;
            return Ok(Self::Queue(name));
        }
        if let Some(name) = text.strip_prefix(PULL) {
            let most = limits::CREATED_NAME_CHARS;
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
            if name.len() > most || !name.bytes().all(is_plain) {
                return Err(wrong(format!(
                    "behind pull: is a name of at most {most} ASCII letters, digits, underscores, dashes or dots"
                )));
            }
            return Ok(Self::Pull(name.to_owned()));
        }
        if let Some(url) = WebhookUrl::new(text) {
            return url.map(Self::Webhook);
        }
        if text.starts_with(TRUST) {
            let why = "trusts of Keystone are not served: give the address as https:// or http://";
            return Err(wrong(why.to_owned()));
        }
        let text: String = text.chars().take(16).collect();
        Err(wrong(format!(
            "'{text}' does not begin with pull:, queue:, https:// or http://, the kinds that are served"
        )))
    }
}

impl Subscriber {
    /// The subscriber for the log: of a webhook its origin, because the rest of its address is often a credential.
    pub fn logged(&self) -> Cow<'_, str> {
        match self {
            Self::Webhook(url) => url.origin().into(),
            Self::Pull(_) | Self::Queue(_) => self.to_string().into(),
        }
    }
}

impl fmt::Display for Subscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pull(name) => write!(f, "{PULL}{name}"),
            Self::Queue(name) => write!(f, "{QUEUE}{name}"),
            Self::Webhook(url) => f.write_str(url.as_str()),
        }
    }
}

/// Attributes that have an effect at the source of a copy alone.
const OF_SOURCE: [&str; 6] = [FIFO, FLAVOR, DURABILITY, MESSAGE_TTL, MESSAGE_DELAY, MAX_MESSAGE_BYTES];

/// The options of a subscription: a JSON object, stored as its text. Reserved keys of queues in it are attributes of the
/// subscription's queue.
#[derive(Clone, Debug)]
pub struct SubscriptionOptions {
    text: Box<RawValue>,
}

impl SubscriptionOptions {
    /// Options without any key.
    pub fn empty() -> Self {
        Self { text: RawValue::from_string("{}".into()).expect("an empty object is JSON") }
    }

    /// Checks JSON text: an object of at most [`limits::SUBSCRIPTION_OPTIONS_BYTES`], whose reserved keys are within
    /// their bounds.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`], which names the key.
    pub fn new(text: Box<RawValue>, limits: &Limits) -> Result<Self, Error> {
        let wrong = |why: String| Error::invalid(InvalidPart::Limit, "options", why);
        if text.get().len() > limits::SUBSCRIPTION_OPTIONS_BYTES {
            return Err(wrong(format!("they have more than {} bytes", limits::SUBSCRIPTION_OPTIONS_BYTES)));
        }
        let entries =
            attributes::entries(&text).ok_or_else(|| wrong("they are no JSON object".to_owned()))?;
        if let Some(key) = OF_SOURCE.into_iter().find(|key| entries.contains_key(*key)) {
            return Err(wrong(format!("{key} is that of the queue, and no option")));
        }
        Metadata::new(text.clone(), limits)?;
        let options = Self { text };
        options.values()?;
        options.filter()?;
        options.is_from_oldest()?;
        options.bounds()?;
        options.rate()?;
        Ok(options)
    }

    /// Options that were checked before they were stored.
    pub fn stored(text: Box<RawValue>) -> Self {
        Self { text }
    }

    /// The JSON text.
    pub fn as_raw(&self) -> &RawValue {
        &self.text
    }

    /// The filter, with the parts of a message that it looks at; none when each message is copied.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for an unknown scope, and for a scope without a filter.
    pub fn filter(&self) -> Result<Option<FilterOption>, Error> {
        let wrong = |why: &str| Error::invalid(InvalidPart::Limit, "options.filter_scope", why);
        let entries = attributes::entries(&self.text).unwrap_or_default();
        let scope = match entries.get(FILTER_SCOPE).map(|scope| scope.get()) {
            None => None,
            Some(r#""attributes""#) => Some(false),
            Some(r#""body""#) => Some(true),
            Some(_) => return Err(wrong("it is neither 'attributes' nor 'body'")),
        };
        match entries.get(FILTER) {
            Some(policy) => {
                let is_of_body = scope.unwrap_or(false);
                Ok(Some(FilterOption { policy: policy.get().to_owned(), is_of_body }))
            }
            None if scope.is_some() => Err(wrong("there is no filter")),
            None => Ok(None),
        }
    }

    /// Whether the messages that wait in the queue when the subscription is created are copied too.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for another value than `now` and `oldest`.
    pub fn is_from_oldest(&self) -> Result<bool, Error> {
        let entries = attributes::entries(&self.text).unwrap_or_default();
        match entries.get(FROM).map(|from| from.get()) {
            None | Some(r#""now""#) => Ok(false),
            Some(r#""oldest""#) => Ok(true),
            Some(_) => {
                let why = "it is neither 'now' nor 'oldest'";
                Err(Error::invalid(InvalidPart::Limit, "options.from", why))
            }
        }
    }

    /// The bounds of the copies.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`], which names the key.
    pub fn bounds(&self) -> Result<CopyBounds, Error> {
        CopyBounds::read(&self.text)
    }

    /// The max deliveries in a second, by requests to a webhook or transfers to another queue; none without a bound.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for another value than a whole number from 1 to [`limits::DELIVERY_RATE`].
    pub fn rate(&self) -> Result<Option<NonZeroU32>, Error> {
        let entries = attributes::entries(&self.text).unwrap_or_default();
        let Some(rate) = entries.get(RATE) else { return Ok(None) };
        let rate = rate.get().parse::<NonZeroU32>().ok().filter(|rate| rate.get() <= limits::DELIVERY_RATE);
        let why = || format!("it is a whole number from 1 to {}", limits::DELIVERY_RATE);
        rate.map(Some).ok_or_else(|| Error::invalid(InvalidPart::Limit, "options.rate", why()))
    }

    /// The options of a webhook.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`], which names the key.
    pub fn webhook(&self) -> Result<WebhookOptions, Error> {
        WebhookOptions::read(&self.text)
    }

    /// The metadata of the subscription's queue. It keeps the order of groups and the retention of its source.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] when a value cannot be read.
    pub fn metadata(&self, source: &Metadata) -> Result<Metadata, Error> {
        self.values()?;
        let raw = |text: String| RawValue::from_string(text).map_err(unreadable);
        // The values stay as they are written: a number of many digits too.
        let all: BTreeMap<String, Box<RawValue>> =
            serde_json::from_str(self.text.get()).map_err(unreadable)?;
        let mut own: BTreeMap<String, Box<RawValue>> =
            all.into_iter().filter(|(key, _)| key.starts_with('_')).collect();
        if source.attributes().is_fifo {
            own.insert(FIFO.to_owned(), raw("true".to_owned())?);
        }
        if let Some(ttl) = source.attributes().message_ttl {
            own.insert(MESSAGE_TTL.to_owned(), raw(ttl.seconds().to_string())?);
        }
        let text = serde_json::value::to_raw_value(&own).map_err(unreadable)?;
        Metadata::stored(text)
    }

    fn values(&self) -> Result<Map<String, Value>, Error> {
        serde_json::from_str(self.text.get()).map_err(unreadable)
    }
}

/// The error for an object with a value that is JSON and still cannot be read: a number out of range, or too many levels.
fn unreadable(error: serde_json::Error) -> Error {
    Error::invalid(InvalidPart::Limit, "options", format!("a value cannot be read: {error}"))
}

/// The filter of a subscription as its options have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterOption {
    /// The JSON text of the filter policy.
    pub policy: String,
    /// Whether it looks at the body; otherwise at the message attributes.
    pub is_of_body: bool,
}

/// The body of a message as a filter reads it: the text of a JSON string, as the bodies of SQS are stored, and any other
/// body as it is.
pub fn filtered_body(body: Bytes) -> Bytes {
    if !body.starts_with(b"\"") {
        return body;
    }
    serde_json::from_slice::<String>(&body).map_or(body, Bytes::from)
}

/// A subscription.
#[derive(Clone, Debug)]
pub struct Subscription {
    /// Its id, and that of its queue.
    pub id: SubscriptionId,
    /// The incarnation of its source.
    pub source: QueueId,
    /// Who gets the copies.
    pub subscriber: Subscriber,
    /// Its options.
    pub options: SubscriptionOptions,
    /// Seconds of its life.
    pub ttl: u64,
    /// When its life began: its creation, or the last change of `ttl`.
    pub renewed: Timestamp,
    /// The secrets of a webhook: requests are signed with each. Other subscribers have none.
    pub secrets: Vec<WebhookSecret>,
    /// Whether it gets the messages that waited in the queue when it was created. A later change of the options does not
    /// change it.
    pub is_from_oldest: bool,
    /// The confirmation of a webhook that needs one.
    pub confirmation: Option<Confirmation>,
}

impl Subscription {
    /// Whether messages are copied for it. A webhook may need the confirmation of its subscriber.
    pub fn is_confirmed(&self) -> bool {
        self.confirmation.as_ref().is_none_or(Confirmation::is_confirmed)
    }

    /// When it ends.
    pub fn expires(&self) -> Timestamp {
        Timestamp::from_millis(self.renewed.as_millis().saturating_add(self.ttl.saturating_mul(1_000)))
    }

    /// Whether its life has not ended by `now`.
    pub fn is_live(&self, now: Timestamp) -> bool {
        now < self.expires()
    }
}

/// Checks the life of a subscription, in seconds.
///
/// # Errors
///
/// [`Error::Invalid`] below [`limits::SUBSCRIPTION_TTL_MIN`]. Zaqar has no maximum: Heat sends 220,367,260,800.
pub fn check_ttl(seconds: u64) -> Result<u64, Error> {
    if seconds < limits::SUBSCRIPTION_TTL_MIN {
        let why = format!("it is at least {} seconds", limits::SUBSCRIPTION_TTL_MIN);
        return Err(Error::invalid(InvalidPart::Limit, "ttl", why));
    }
    Ok(seconds)
}

/// A change of a subscription. Absent parts stay as they are.
#[derive(Clone, Debug, Default)]
pub struct SubscriptionChange {
    /// The new subscriber, of the same kind. Copies that wait for a queue go to the former one, those for a webhook to the
    /// new one.
    pub subscriber: Option<Subscriber>,
    /// Its new life, which begins with the change.
    pub ttl: Option<u64>,
    /// Its new options.
    pub options: Option<SubscriptionOptions>,
    /// Its new secrets.
    pub secrets: Option<Vec<WebhookSecret>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    fn subscribers_are_read_as_they_are_written() {
        for text in
            ["pull:", "pull:billing-2.x_", "queue:orders", "queue:orders.fifo", "https://a.example/in?b=c"]
        {
            assert_eq!(Subscriber::new(text).unwrap().to_string(), text);
        }
        for wrong in [
            "",
            "pull",
            "pull:a b",
            "queue:",
            "queue:a~b",
            "queue:a/b",
            "mailto:a@b",
            "Pull:a",
            "trust+https://a",
        ] {
            assert!(Subscriber::new(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn reserved_keys_of_options_become_attributes_of_the_queue() {
        let limits = Limits::ZAQAR;
        let text = r#"{"_max_claim_count":3,"note":"ours"}"#;
        let options = SubscriptionOptions::new(raw(text), &limits).unwrap();
        assert_eq!(options.as_raw().get(), text);
        let source = Metadata::new(raw(r#"{"_fifo":true,"_default_message_ttl":600}"#), &limits).unwrap();
        let attributes = options.metadata(&source).unwrap().attributes().clone();
        assert_eq!((attributes.is_fifo, attributes.max_claim_count), (true, Some(3)));
        assert_eq!(attributes.message_ttl.map(|ttl| ttl.seconds()), Some(600));
        for wrong in [
            r#"{"_max_claim_count":-1}"#,
            r#"{"_max_claim_count":1.0}"#,
            r#"{"_max_claim_count":1e1}"#,
            r#"{"_fifo":false}"#,
            r#"{"_flavor":"a"}"#,
            r#"{"_default_message_ttl":70}"#,
            "[]",
            "7",
        ] {
            assert!(SubscriptionOptions::new(raw(wrong), &limits).is_err(), "{wrong}");
        }
    }

    #[test]
    fn numbers_of_options_stay_as_they_are_written() {
        let numbers = r#""_a":9007199254740993,"_b":123456789012345678901234567890,"_c":1.0,"_d":1e2"#;
        let options = SubscriptionOptions::new(raw(&format!("{{{numbers}}}")), &Limits::ZAQAR).unwrap();
        assert_eq!(options.as_raw().get(), format!("{{{numbers}}}"));
        let source = Metadata::new(raw(r#"{"_fifo":true}"#), &Limits::ZAQAR).unwrap();
        let own = options.metadata(&source).unwrap();
        assert_eq!(own.as_raw().get(), format!("{{{numbers},\"_fifo\":true}}"));
    }

    #[test]
    fn options_with_unreadable_value_are_refused_with_cause() {
        for (text, why) in
            [(r#"{"x":1e999}"#, "number out of range"), (r#"{"_x":[-1e999]}"#, "number out of range")]
        {
            let refused = SubscriptionOptions::new(raw(text), &Limits::ZAQAR).unwrap_err();
            assert!(refused.to_string().starts_with("options: a value cannot be read"), "{refused}");
            assert!(refused.to_string().contains(why), "{refused}");
        }
        let deep = format!(r#"{{"x":{}{}}}"#, "[".repeat(200), "]".repeat(200));
        assert!(SubscriptionOptions::new(raw(&deep), &Limits::ZAQAR).is_err());
        SubscriptionOptions::new(raw(r#"{"x":1e300}"#), &Limits::ZAQAR).unwrap();
    }

    #[test]
    fn rate_is_a_whole_number_of_deliveries() {
        let rate = |text: &str| SubscriptionOptions::new(raw(text), &Limits::ZAQAR)?.rate();
        assert_eq!(rate("{}").unwrap(), None);
        assert_eq!(rate(r#"{"rate": 1}"#).unwrap().map(NonZeroU32::get), Some(1));
        assert_eq!(rate(r#"{"rate": 10000}"#).unwrap().map(NonZeroU32::get), Some(10_000));
        for wrong in ["0", "-1", "1.5", "1e2", "10001", "\"5\"", "null", "[]"] {
            assert!(rate(&format!(r#"{{"rate": {wrong}}}"#)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn filter_looks_at_attributes_unless_its_scope_is_the_body() {
        let filter = |text: &str| SubscriptionOptions::new(raw(text), &Limits::ZAQAR)?.filter();
        let option = |is_of_body| Some(FilterOption { policy: r#"{"a": [1]}"#.to_owned(), is_of_body });
        assert_eq!(filter(r#"{"filter": {"a": [1]}}"#).unwrap(), option(false));
        assert_eq!(filter(r#"{"filter": {"a": [1]}, "filter_scope": "attributes"}"#).unwrap(), option(false));
        assert_eq!(filter(r#"{"filter_scope": "body", "filter": {"a": [1]}}"#).unwrap(), option(true));
        assert_eq!(filter("{}").unwrap(), None);
        for wrong in [r#"{"filter": {}, "filter_scope": "head"}"#, r#"{"filter_scope": "body"}"#] {
            assert!(filter(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn copies_begin_with_oldest_message_on_request() {
        let begin = |text: &str| SubscriptionOptions::new(raw(text), &Limits::ZAQAR)?.is_from_oldest();
        assert!(begin(r#"{"from": "oldest"}"#).unwrap());
        assert!(!begin(r#"{"from": "now"}"#).unwrap() && !begin("{}").unwrap());
        for wrong in [r#"{"from": "first"}"#, r#"{"from": null}"#, r#"{"from": 5}"#] {
            assert!(begin(wrong).unwrap_err().to_string().starts_with("options.from"), "{wrong}");
        }
    }

    #[test]
    fn endless_life_does_not_overflow() {
        let subscription = Subscription {
            id: SubscriptionId(QueueId::from_bytes([1; 16])),
            source: QueueId::from_bytes([2; 16]),
            subscriber: Subscriber::Pull(String::new()),
            options: SubscriptionOptions::empty(),
            ttl: u64::MAX,
            renewed: Timestamp::from_millis(5),
            secrets: Vec::new(),
            is_from_oldest: false,
            confirmation: None,
        };
        assert!(subscription.is_live(Timestamp::from_millis(u64::MAX - 1)));
        assert!(check_ttl(0).is_err() && check_ttl(59).is_err());
        assert_eq!(check_ttl(220_367_260_800).unwrap(), 220_367_260_800);
    }
}
