//! Outcomes of messages: the decision of a holder about a message, and the data that is kept of it.
//!
//! A kept message is done or failed, and stays readable by its id for a time of its own. The extras of a header have all
//! that only some messages have, so a plain message costs nothing for them.

use std::fmt;

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::error::{Error, InvalidPart};
use crate::group::GroupName;
use crate::hold::HoldId;
use crate::ids::MessageId;
use crate::limits;
use crate::message::{Life, seconds_within};
use crate::time::Timestamp;

/// Seconds that a message is kept after it was settled: 0 to 14 days. Zero: it is removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Keep(u32);

impl Keep {
    /// Checks a number of seconds; `field` is the client's name for it.
    pub fn new(seconds: i64, field: impl Into<String>) -> Result<Self, Error> {
        seconds_within(seconds, limits::KEEP, field).map(Self)
    }

    /// A time that was checked before it was stored.
    pub const fn stored(seconds: u32) -> Self {
        Self(seconds)
    }

    /// The number of seconds.
    pub const fn seconds(self) -> u32 {
        self.0
    }

    /// Whether nothing is kept.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

/// The tags of a message: at most 8 texts of at most 256 bytes together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tags(Vec<String>);

impl Tags {
    /// Checks tags; `field` is the client's name for them.
    pub fn new(tags: Vec<String>, field: impl Into<String>) -> Result<Self, Error> {
        let bytes: usize = tags.iter().map(String::len).sum();
        let fits = tags.len() <= limits::TAGS && bytes <= limits::TAG_BYTES;
        if fits && tags.iter().all(|tag| !tag.is_empty()) {
            return Ok(Self(tags));
        }
        let why = format!(
            "there are {} tags with {bytes} bytes; at most {} are possible, none of them empty, with {} bytes together",
            tags.len(),
            limits::TAGS,
            limits::TAG_BYTES
        );
        Err(Error::invalid(InvalidPart::Limit, field, why))
    }

    /// Tags that were checked before they were stored.
    pub const fn stored(tags: Vec<String>) -> Self {
        Self(tags)
    }

    /// The tags, in the order of the client.
    pub fn as_slice(&self) -> &[String] {
        &self.0
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

macro_rules! bounded_text {
    ($($(#[$doc:meta])* $name:ident ($bound:expr);)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq)]
        pub struct $name(Box<str>);

        impl $name {
            /// Checks the text; `field` is the client's name for it.
            pub fn new(text: &str, field: impl Into<String>) -> Result<Self, Error> {
                let characters = text.chars().count();
                if (1..=$bound).contains(&characters) && !text.chars().any(char::is_control) {
                    return Ok(Self(text.into()));
                }
                let why = format!("it has {characters} characters; 1 to {} without control characters are possible", $bound);
                Err(Error::invalid(InvalidPart::Limit, field, why))
            }

            /// Returns the first characters of any text, without control characters; none if nothing is left.
            pub fn cut(text: &str) -> Option<Self> {
                let text: String = text.chars().filter(|c| !c.is_control()).take($bound).collect();
                let text = text.trim();
                (!text.is_empty()).then(|| Self(text.into()))
            }

            /// A text that was checked before it was stored.
            pub fn stored(text: &str) -> Self {
                Self(text.into())
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }
    )*};
}

bounded_text! {
    /// The name that the holder of a claim gives itself: 1 to 80 characters.
    Holder(limits::HOLDER_CHARS);
    /// Why a message failed: 1 to 512 characters.
    Reason(limits::REASON_CHARS);
}

macro_rules! bounded_json {
    ($($(#[$doc:meta])* $name:ident ($bound:expr);)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name(Bytes);

        impl $name {
            /// Checks the bytes of a JSON text; `field` is the client's name for it.
            pub fn new(text: &RawValue, field: impl Into<String>) -> Result<Self, Error> {
                let text = text.get();
                if text.len() <= $bound {
                    return Ok(Self(Bytes::copy_from_slice(text.as_bytes())));
                }
                let why = format!("it has {} bytes; at most {} are possible", text.len(), $bound);
                Err(Error::invalid(InvalidPart::Limit, field, why))
            }

            /// A JSON text that was checked before it was stored.
            pub const fn stored(text: Bytes) -> Self {
                Self(text)
            }

            /// The JSON text.
            pub const fn as_bytes(&self) -> &Bytes {
                &self.0
            }
        }
    )*};
}

bounded_json! {
    /// The result of a message that is done: JSON of at most 64 KiB.
    Outcome(limits::RESULT_BYTES);
    /// Values that holders keep with a message: JSON of at most 1 KiB.
    Meta(limits::META_BYTES);
}

/// What happened to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// Its claim expired.
    Expired,
    /// Its holder released it.
    Released,
    /// Its holder reported a failure.
    Failed,
    /// Its holder put it off.
    Deferred,
    /// Its holder moved it to another queue.
    Moved,
    /// It was made available again.
    Requeued,
}

impl EventKind {
    /// The word of the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Released => "released",
            Self::Failed => "failed",
            Self::Deferred => "deferred",
            Self::Moved => "moved",
            Self::Requeued => "requeued",
        }
    }
}

/// An event in the history of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When it happened.
    pub at: Timestamp,
    /// What happened.
    pub what: EventKind,
    /// The holder of the claim, if it named itself.
    pub by: Option<Holder>,
    /// Why, if the holder said so.
    pub reason: Option<Reason>,
    /// Seconds that the claim had held the message; 0 if none did.
    pub seconds: u32,
}

/// What the target of a transfer gives a message when it arrives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// Seconds until it may be claimed; absent: the default of the target.
    pub delay: Option<u32>,
    /// Its life there.
    pub life: ArrivalLife,
    /// The group that it belongs to there.
    pub group: Option<GroupName>,
}

/// The life of a message where a transfer ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ArrivalLife {
    /// The life that it had.
    #[default]
    Kept,
    /// A new life with the default of the target.
    OfTarget,
    /// A new life of this many seconds.
    Seconds(u32),
}

/// Fields of a header that few messages have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extras {
    /// How long it is kept after it was settled; absent: as its queue states.
    pub keep: Option<Keep>,
    /// Its tags.
    pub tags: Tags,
    /// Values of its holders.
    pub meta: Option<Meta>,
    /// Claims that `attempts` does not count any more: the number of a claim only grows.
    pub forgotten: u32,
    /// The holder that settled it, if it named itself.
    pub by: Option<Holder>,
    /// The result of a message that is done.
    pub result: Option<Outcome>,
    /// Why it failed the last time.
    pub reason: Option<Reason>,
    /// Its life before it was kept.
    pub life: Option<Life>,
    /// For a message in transfer: what it gets where it arrives. A prepared one has a default value, as the mark of a
    /// message that is new in its queue: its publication brings copies to the subscriptions there.
    pub arrival: Option<Arrival>,
    /// Its last events, the oldest first.
    pub history: Vec<Event>,
    /// The hold of its group that has put it aside.
    pub held: Option<HoldId>,
    /// Number of `queue:` subscriptions that have sent it on, one after the other.
    pub hops: u32,
    /// Its position in a queue with subscriptions, if its id is another one: an id of the time at which it arrived, with its
    /// copies. [`MessageId::ZERO`] when it came back and brought none.
    pub arrived: Option<MessageId>,
}

impl Extras {
    /// Whether it has no field.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Bytes of its values of variable length: texts, results and the like.
    pub fn bytes(&self) -> usize {
        let texts = |by: &Option<Holder>, reason: &Option<Reason>| {
            by.as_ref().map_or(0, |by| by.as_str().len())
                + reason.as_ref().map_or(0, |reason| reason.as_str().len())
        };
        let events: usize = self.history.iter().map(|event| 32 + texts(&event.by, &event.reason)).sum();
        let tags: usize = self.tags.as_slice().iter().map(String::len).sum();
        let json = self.meta.as_ref().map_or(0, |meta| meta.as_bytes().len())
            + self.result.as_ref().map_or(0, |result| result.as_bytes().len());
        events + tags + json + texts(&self.by, &self.reason)
    }

    /// Adds an event, and drops the oldest ones beyond the bound.
    pub fn note(&mut self, event: Event) {
        self.history.push(event);
        let excess = self.history.len().saturating_sub(limits::HISTORY_EVENTS);
        self.history.drain(..excess);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(what: EventKind, seconds: u32) -> Event {
        Event { at: Timestamp::default(), what, by: None, reason: None, seconds }
    }

    #[test]
    fn tags_have_a_number_and_bytes() {
        let tags = |count: usize, bytes: usize| Tags::new(vec!["x".repeat(bytes); count], "tags");
        assert!(tags(8, 32).is_ok() && tags(0, 0).is_ok() && tags(1, 256).is_ok());
        assert!(tags(9, 1).is_err() && tags(8, 33).is_err() && tags(1, 0).is_err());
    }

    #[test]
    fn texts_are_bounded_by_characters() {
        assert!(Holder::new(&"ä".repeat(80), "by").is_ok());
        for bad in ["", "a\nb", &"x".repeat(81)] {
            assert!(Holder::new(bad, "by").unwrap_err().to_string().starts_with("by"), "{bad:?}");
        }
        let cut = Reason::cut(&format!(" \u{1b}[1mno{} ", "!".repeat(600))).unwrap();
        assert!(cut.as_str().starts_with("[1mno!") && cut.as_str().chars().count() <= 512);
        assert_eq!(Reason::cut(" \n"), None);
    }

    #[test]
    fn json_is_bounded_by_bytes() {
        let text = |bytes: usize| RawValue::from_string(format!("\"{}\"", "x".repeat(bytes - 2))).unwrap();
        assert!(
            Outcome::new(&text(65_536), "result").is_ok() && Outcome::new(&text(65_537), "result").is_err()
        );
        assert!(Meta::new(&text(1_024), "meta").is_ok() && Meta::new(&text(1_025), "meta").is_err());
    }

    #[test]
    fn history_has_the_last_events() {
        let mut extras = Extras::default();
        (0..20).for_each(|seconds| extras.note(event(EventKind::Failed, seconds)));
        let seconds: Vec<u32> = extras.history.iter().map(|event| event.seconds).collect();
        assert_eq!(seconds, (12..20).collect::<Vec<u32>>());
    }
}
