//! Changes of a queue's metadata, key by key, and the metadata as clients see it.
//!
//! The form is the part of JSON patch that Zaqar accepts: `add`, `replace` and `remove` of `/metadata/KEY`.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use crate::attributes;
use crate::error::{Error, InvalidPart};
use crate::limits::Limits;
use crate::names::{FIFO_SUFFIX, QueueName};
use crate::queue::Metadata;

/// A change of one key.
#[derive(Clone, Debug)]
pub enum Change {
    /// Sets a key, whether it exists or not.
    Add(String, Box<RawValue>),
    /// Sets a key that exists.
    Replace(String, Box<RawValue>),
    /// Removes a key that exists.
    Remove(String),
    /// Changes nothing, but refuses the whole patch if the key has another value; none: if the key exists. Clients
    /// cannot write it.
    Expect(String, Option<Box<RawValue>>),
}

impl Change {
    /// Checks a change as a client writes it: `at` is its index in the list.
    pub fn new(at: usize, op: &str, path: &str, value: Option<Box<RawValue>>) -> Result<Self, Error> {
        let key = key_of(path).ok_or_else(|| {
            let why = format!("'{path}' is not '/metadata/' and a key, with '~0' for '~' and '~1' for '/'");
            Error::invalid(InvalidPart::Body, format!("[{at}].path"), why)
        })?;
        let value = || {
            let missing =
                || Error::invalid(InvalidPart::Body, format!("[{at}]"), "the field 'value' is missing");
            value.ok_or_else(missing)
        };
        match op {
            "add" => Ok(Self::Add(key, value()?)),
            "replace" => Ok(Self::Replace(key, value()?)),
            "remove" => Ok(Self::Remove(key)),
            _ => {
                let why = format!("'{op}' is not 'add', 'replace' or 'remove'");
                Err(Error::invalid(InvalidPart::Body, format!("[{at}].op"), why))
            }
        }
    }
}

/// Reads the key from a path of exactly two tokens, the first of them `metadata`.
fn key_of(path: &str) -> Option<String> {
    let token = path.strip_prefix("/metadata/")?;
    let mut key = String::with_capacity(token.len());
    let mut rest = token.chars();
    while let Some(next) = rest.next() {
        key.push(match next {
            '/' => return None,
            '~' => match rest.next()? {
                '0' => '~',
                '1' => '/',
                _ => return None,
            },
            other => other,
        });
    }
    Some(key).filter(|key| !key.is_empty())
}

/// Keys that every queue shows, in Zaqar's order, each with the value in a queue that does not set it.
fn defaults(limits: &Limits) -> [(&'static str, String); 7] {
    let null = || "null".to_owned();
    [
        (attributes::MAX_MESSAGE_BYTES, limits.message_bytes.to_string()),
        (attributes::MESSAGE_TTL, limits.message_ttl.default_value().to_string()),
        (attributes::MESSAGE_DELAY, limits.message_delay.default_value().to_string()),
        (attributes::DEAD_LETTER_QUEUE, null()),
        (attributes::DEAD_LETTER_TTL, null()),
        (attributes::MAX_CLAIM_COUNT, null()),
        (attributes::ENCRYPT, "false".to_owned()),
    ]
}

fn has_default(key: &str, limits: &Limits) -> bool {
    defaults(limits).iter().any(|(name, _)| *name == key)
}

fn raw(text: String) -> Box<RawValue> {
    RawValue::from_string(text).expect("numbers, null and false are JSON")
}

/// Max bytes that the service adds to the metadata of a queue without a message bound: no client has to leave room for
/// them.
const START_BYTES: usize = attributes::MAX_MESSAGE_BYTES.len() + "\"\":4194304,".len();

/// Sets the message bound of queues created through REST, if the change has removed the queue's own bound.
fn restore_message_bytes(own: &mut Entries, changed: &str, limits: &Limits) {
    let is_gone = own.get(attributes::MAX_MESSAGE_BYTES).is_none_or(|value| value.get() == "null");
    if changed == attributes::MAX_MESSAGE_BYTES && is_gone {
        own.insert(changed.to_owned(), raw(limits.rest_message_bytes().to_string()));
    }
}

fn written(entries: &Entries) -> String {
    serde_json::to_string(entries).expect("keys are text and values are JSON")
}

/// Keys with their values, in order of the keys.
pub type Entries = BTreeMap<String, Box<RawValue>>;

/// Whether a value is this text, or a number or boolean that is written so.
pub fn is_equal(value: &RawValue, text: &str) -> bool {
    match serde_json::from_str::<String>(value.get()) {
        Ok(string) => string == text,
        Err(_) => value.get() == text,
    }
}

impl Metadata {
    /// Returns the metadata as clients see it: the queue's own values, and the defaults of the reserved keys that it
    /// does not set. Empty values (`null`, an empty name, a count of zero) show as the default too.
    pub fn shown(&self, limits: &Limits) -> Entries {
        let mut shown = self.own();
        for (key, default) in defaults(limits) {
            let is_unset = |value: &RawValue| match value.get() {
                "null" | "\"\"" | "false" => true,
                // A delay of zero is a value where the service has another default.
                "0" => key != attributes::MESSAGE_DELAY,
                _ => false,
            };
            if shown.get(key).is_none_or(|value| is_unset(value)) {
                shown.insert(key.to_owned(), raw(default));
            }
        }
        let key = attributes::MAX_MESSAGE_BYTES;
        if self.ignored().iter().all(|ignored| ignored.key != key) {
            shown.insert(key.to_owned(), raw(self.attributes().message_bytes(limits).to_string()));
        }
        shown
    }

    /// Returns the metadata with this message bound, if it has none.
    pub fn with_message_bytes(self, bytes: usize) -> Self {
        if self.attributes().max_message_bytes.is_some() {
            return self;
        }
        let mut own = self.own();
        own.insert(attributes::MAX_MESSAGE_BYTES.to_owned(), raw(bytes.to_string()));
        self.bounded(raw(written(&own)), bytes)
    }

    /// Returns the metadata with this default ttl in seconds (SQS: the retention).
    pub fn with_message_ttl(self, seconds: u32) -> Result<Self, Error> {
        let mut own = self.own();
        own.insert(attributes::MESSAGE_TTL.to_owned(), raw(seconds.to_string()));
        Self::stored(raw(written(&own)))
    }

    /// The metadata of a new queue with this name. A queue whose name ends in [`FIFO_SUFFIX`] is a FIFO queue, as clients
    /// of SQS expect; metadata that states otherwise is refused.
    pub fn for_new(self, name: &QueueName) -> Result<Self, Error> {
        if self.attributes().is_fifo || !name.is_fifo() {
            return Ok(self);
        }
        let mut own = self.own();
        if own.get(attributes::FIFO).is_some_and(|value| value.get() != "null") {
            let why = format!(
                "a queue whose name ends in {FIFO_SUFFIX} is one: leave it out, or choose another name"
            );
            return Err(Error::invalid(InvalidPart::Limit, attributes::FIFO, why));
        }
        own.insert(attributes::FIFO.to_owned(), raw("true".to_owned()));
        Self::stored(raw(written(&own)))
    }

    /// The keys that the queue itself sets.
    pub fn own(&self) -> Entries {
        let entries = attributes::entries(self.as_raw()).unwrap_or_default();
        entries.into_iter().map(|(key, value)| (key, value.to_owned())).collect()
    }

    /// Returns the metadata after `changes`, in their order; all of them or none. A key that is replaced or removed
    /// must exist, or be reserved: reserved keys always exist, with their defaults. New values must be within `limits`;
    /// old values may be beyond, because they were set under other limits.
    pub fn patched(&self, changes: &[Change], limits: &Limits) -> Result<Self, Error> {
        let (mut own, mut set) = (self.own(), Entries::new());
        for change in changes {
            match change {
                Change::Replace(key, _) | Change::Remove(key)
                    if !own.contains_key(key) && !has_default(key, limits) =>
                {
                    return Err(Error::Conflict(format!("the metadata has no key '{key}'")));
                }
                Change::Add(key, value) | Change::Replace(key, value) => {
                    own.insert(key.clone(), value.clone());
                    set.insert(key.clone(), value.clone());
                    restore_message_bytes(&mut own, key, limits);
                }
                Change::Expect(key, expected) => {
                    let is_same =
                        own.get(key).map(|value| value.get()) == expected.as_deref().map(RawValue::get);
                    if !is_same {
                        return Err(Error::Conflict(format!("another request has changed '{key}'")));
                    }
                }
                Change::Remove(key) => {
                    own.remove(key);
                    restore_message_bytes(&mut own, key, limits);
                }
            }
        }
        let text = written(&own);
        if text.len().saturating_sub(START_BYTES) > limits.metadata_bytes {
            let why = format!("queue metadata is too large: at most {} bytes", limits.metadata_bytes);
            return Err(Error::invalid(InvalidPart::Limit, "", why));
        }
        Self::read(raw(written(&set)), limits)?;
        let after = Self::stored(raw(text))?;
        let before = self.clone().in_agreement().err().map(|error| error.to_string());
        // What disagreed before is not the worse for a change of other keys.
        let is_old = |error: &Error| match error {
            Error::Invalid { field, .. } => !set.contains_key(field) && before == Some(error.to_string()),
            _ => false,
        };
        let agreed = after.clone().in_agreement();
        agreed.or_else(|error| if is_old(&error) { Ok(after) } else { Err(error) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(text: &str) -> Metadata {
        Metadata::stored(raw(text.to_owned())).unwrap()
    }

    fn change(op: &str, key: &str, value: &str) -> Change {
        Change::new(0, op, &format!("/metadata/{key}"), Some(raw(value.to_owned()))).unwrap()
    }

    #[test]
    fn paths_have_two_tokens_and_their_escapes() {
        for (path, key) in [("/metadata/a", "a"), ("/metadata/a~1b~0c", "a/b~c"), ("/metadata/ä ", "ä ")] {
            assert_eq!(key_of(path).as_deref(), Some(key), "{path}");
        }
        for path in [
            "",
            "/",
            "/metadata",
            "/metadata/",
            "/metadata/a/b",
            "/foo/a",
            "metadata/a",
            "/metadata/~2",
            "/metadata/~",
        ] {
            assert_eq!(key_of(path), None, "{path}");
        }
    }

    #[test]
    fn changes_are_made_in_order_and_all_or_none() {
        let before = metadata(r#"{"a":1,"b":1.50}"#);
        let after = before.patched(
            &[change("add", "c", "[]"), change("replace", "c", "2"), change("remove", "a", "0")],
            &Limits::ZAQAR,
        );
        assert_eq!(after.unwrap().as_raw().get(), r#"{"b":1.50,"c":2}"#);
        for missing in [change("replace", "z", "1"), change("remove", "z", "1")] {
            let refused = before.patched(&[change("add", "c", "1"), missing], &Limits::ZAQAR);
            assert!(matches!(refused, Err(Error::Conflict(_))));
        }
    }

    #[test]
    fn reserved_keys_are_always_there_and_always_checked() {
        let key = attributes::MESSAGE_TTL;
        let set = metadata("{}").patched(&[change("replace", key, "300")], &Limits::ZAQAR).unwrap();
        assert_eq!(set.shown(&Limits::ZAQAR)[key].get(), "300");
        let gone =
            set.patched(&[change("remove", key, "0"), change("remove", key, "0")], &Limits::ZAQAR).unwrap();
        assert_eq!(gone.shown(&Limits::ZAQAR)[key].get(), "3600");
        assert!(metadata("{}").patched(&[change("add", key, "59")], &Limits::ZAQAR).is_err());
    }

    #[test]
    fn unset_values_show_the_default() {
        let shown = metadata(r#"{"_max_claim_count":0,"_dead_letter_queue":"","_default_message_ttl":null}"#)
            .shown(&Limits::ZAQAR);
        let values: Vec<_> = shown.iter().map(|(key, value)| format!("{key}={}", value.get())).collect();
        assert_eq!(
            values,
            [
                "_dead_letter_queue=null",
                "_dead_letter_queue_messages_ttl=null",
                "_default_message_delay=0",
                "_default_message_ttl=3600",
                "_enable_encrypt_messages=false",
                "_max_claim_count=null",
                "_max_messages_post_size=1048576",
            ]
        );
    }

    #[test]
    fn message_bound_starts_as_given_and_is_restored() {
        let key = attributes::MAX_MESSAGE_BYTES;
        let limits = Limits { message_bytes: 500_000, ..Limits::ZAQAR };
        let shown = |metadata: &Metadata| metadata.shown(&limits)[key].get().to_owned();
        let started = metadata("{}").with_message_bytes(limits.sqs_message_bytes());
        assert_eq!(
            (shown(&started).as_str(), started.attributes().max_message_bytes),
            ("500000", Some(500_000))
        );
        assert_eq!(shown(&metadata(r#"{"_max_messages_post_size":7}"#).with_message_bytes(9)), "7");
        assert_eq!(shown(&metadata(r#"{"_max_messages_post_size":null}"#).with_message_bytes(9)), "9");
        // A stored bound that is missing, or above the bound of the service today, shows as the bound of the service.
        assert_eq!(shown(&metadata("{}")), "500000");
        assert_eq!(shown(&metadata(r#"{"_max_messages_post_size":600000}"#)), "500000");
        for gone in [change("remove", key, "0"), change("replace", key, "null"), change("add", key, "null")] {
            let restored = started.patched(&[gone], &limits).unwrap();
            assert_eq!(
                (shown(&restored).as_str(), restored.attributes().message_bytes(&limits)),
                ("262144", 262_144)
            );
        }
        // A change of another key leaves a queue of an earlier version without a bound.
        let other = metadata("{}").patched(&[change("add", "a", "1")], &limits).unwrap();
        assert_eq!(other.attributes().max_message_bytes, None);
    }

    #[test]
    fn stored_misfit_is_shown_and_can_be_replaced() {
        let (key, other) = (attributes::MESSAGE_TTL, attributes::KMS_REUSE);
        let before = metadata(r#"{"_default_message_ttl":"long","_kms_data_key_reuse_period":[],"a":1}"#);
        assert_eq!(before.shown(&Limits::ZAQAR)[key].get(), "\"long\"");
        let after = before.patched(&[change("replace", "a", "2")], &Limits::ZAQAR).unwrap();
        assert_eq!(after.shown(&Limits::ZAQAR)[key].get(), "\"long\"");
        for (key, value) in [(key, "\"longer\""), (other, "{}")] {
            assert!(after.patched(&[change("replace", key, value)], &Limits::ZAQAR).is_err(), "{key}");
        }
        let mended =
            after.patched(&[change("replace", key, "60"), change("remove", other, "0")], &Limits::ZAQAR);
        assert!(mended.unwrap().ignored().is_empty());
        let bound = metadata(r#"{"_max_messages_post_size":"big"}"#);
        assert_eq!(bound.shown(&Limits::ZAQAR)[attributes::MAX_MESSAGE_BYTES].get(), "\"big\"");
    }

    #[test]
    fn metadata_never_outgrows_its_bound() {
        let long = raw(format!("\"{}\"", "x".repeat(Limits::ZAQAR.metadata_bytes + START_BYTES)));
        assert!(metadata("{}").patched(&[Change::Add("a".to_owned(), long)], &Limits::ZAQAR).is_err());
    }
}
