//! The bounds of the copies that wait in a subscription, and the messages that it did not get because of them.

use crate::attributes;
use crate::error::{Error, InvalidPart};
use crate::ids::MessageId;
use crate::limits;
use crate::quota::Amount;
use crate::time::Timestamp;
use serde_json::value::RawValue;

/// The effect of a post whose copies do not fit into a subscription.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// The subscription gets no copies until there is room again. They are counted.
    #[default]
    Suspend,
    /// The oldest copies that no claim holds are removed. They are counted.
    DropOldest,
    /// The post is refused.
    Refuse,
}

impl Overflow {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Suspend, Self::DropOldest, Self::Refuse];

    /// The value of the option.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Suspend => "suspend",
            Self::DropOldest => "drop_oldest",
            Self::Refuse => "refuse",
        }
    }
}

/// Max copies that wait in a subscription, in any state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyBounds {
    /// Max messages and max bytes of their bodies.
    pub most: Amount,
    /// The effect of a post beyond them.
    pub overflow: Overflow,
}

impl Default for CopyBounds {
    fn default() -> Self {
        let most = Amount { messages: limits::SUBSCRIPTION_MESSAGES, bytes: limits::SUBSCRIPTION_BYTES };
        Self { most, overflow: Overflow::default() }
    }
}

const MESSAGES: &str = "max_messages";
const BYTES: &str = "max_bytes";
const OVERFLOW: &str = "overflow";

impl CopyBounds {
    /// Reads the bounds of the options of a subscription, a JSON object. Absent keys have their defaults.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`], which names the key.
    pub fn read(options: &RawValue) -> Result<Self, Error> {
        let entries = attributes::entries(options).unwrap_or_default();
        let mut bounds = Self::default();
        for (key, max, bound) in [
            (MESSAGES, limits::SUBSCRIPTION_MESSAGES_MAX, &mut bounds.most.messages),
            (BYTES, limits::SUBSCRIPTION_BYTES_MAX, &mut bounds.most.bytes),
        ] {
            let Some(text) = entries.get(key).map(|text| text.get()) else { continue };
            let number = text.parse().ok().filter(|number| (1..=max).contains(number));
            *bound = number.ok_or_else(|| wrong(key, format!("it is an integer from 1 to {max}")))?;
        }
        if let Some(text) = entries.get(OVERFLOW).map(|text| text.get()) {
            let named = Overflow::ALL.into_iter().find(|one| text == format!("\"{}\"", one.as_str()));
            bounds.overflow = named.ok_or_else(|| {
                wrong(OVERFLOW, "it is none of 'suspend', 'drop_oldest' and 'refuse'".to_owned())
            })?;
        }
        Ok(bounds)
    }

    /// Whether this amount is within the bounds.
    pub fn fit(&self, amount: Amount) -> bool {
        amount.messages <= self.most.messages && amount.bytes <= self.most.bytes
    }

    /// The amount at which a suspended subscription gets copies again: nine tenths of the bounds.
    pub fn resumes_at(&self) -> Amount {
        let part = |bound: u64| bound - bound.div_ceil(10);
        Amount { messages: part(self.most.messages), bytes: part(self.most.bytes) }
    }

    /// Whether a suspended subscription with this amount gets copies again.
    pub fn have_room(&self, amount: Amount) -> bool {
        let resumes_at = self.resumes_at();
        amount.messages <= resumes_at.messages && amount.bytes <= resumes_at.bytes
    }
}

fn wrong(key: &str, why: String) -> Error {
    Error::invalid(InvalidPart::Limit, format!("options.{key}"), why)
}

/// The messages of the source that a subscription did not get, or lost, because of its bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Omissions {
    /// Messages that were not copied, since the subscription was created.
    pub left_out: u64,
    /// Copies that were removed by [`Overflow::DropOldest`], likewise.
    pub dropped: u64,
    /// The last suspension. None when there was none.
    pub gap: Option<Gap>,
}

/// The messages of the source that a suspended subscription did not get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// When the first one was posted.
    pub since: Timestamp,
    /// Its id in the source.
    pub first: MessageId,
    /// The id of the last one.
    pub last: MessageId,
    /// Number of them.
    pub messages: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<CopyBounds, Error> {
        CopyBounds::read(&RawValue::from_string(text.to_owned()).unwrap())
    }

    #[test]
    fn bounds_have_defaults_and_limits() {
        let default = read("{}").unwrap();
        assert_eq!(default.most, Amount { messages: 1_000_000, bytes: 1 << 30 });
        assert_eq!(default.overflow, Overflow::Suspend);
        let own = read(r#"{"max_messages": 10, "max_bytes": 100, "overflow": "drop_oldest"}"#).unwrap();
        let most = Amount { messages: 10, bytes: 100 };
        assert_eq!(own, CopyBounds { most, overflow: Overflow::DropOldest });
        for (wrong, key) in [
            (r#"{"max_messages": 0}"#, "options.max_messages"),
            (r#"{"max_messages": 1.5}"#, "options.max_messages"),
            (r#"{"max_messages": "10"}"#, "options.max_messages"),
            (r#"{"max_messages": 100000001}"#, "options.max_messages"),
            (r#"{"max_bytes": -1}"#, "options.max_bytes"),
            (r#"{"max_bytes": null}"#, "options.max_bytes"),
            (r#"{"max_bytes": 1099511627777}"#, "options.max_bytes"),
            (r#"{"overflow": "Suspend"}"#, "options.overflow"),
            (r#"{"overflow": true}"#, "options.overflow"),
        ] {
            let error = read(wrong).unwrap_err().to_string();
            assert!(error.starts_with(key), "{wrong}: {error}");
        }
    }

    #[test]
    fn suspension_ends_at_nine_tenths() {
        let bounds =
            |messages, bytes| CopyBounds { most: Amount { messages, bytes }, overflow: Overflow::Suspend };
        assert_eq!(bounds(10, 105).resumes_at(), Amount { messages: 9, bytes: 94 });
        assert_eq!(bounds(1, 1).resumes_at(), Amount::default());
        let (bounds, amount) = (bounds(10, 100), |messages, bytes| Amount { messages, bytes });
        assert!(bounds.fit(amount(10, 100)) && !bounds.fit(amount(11, 0)) && !bounds.fit(amount(0, 101)));
        assert!(bounds.have_room(amount(9, 90)));
        assert!(!bounds.have_room(amount(10, 0)) && !bounds.have_room(amount(0, 91)));
    }
}
