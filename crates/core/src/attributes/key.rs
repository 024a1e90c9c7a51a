//! Values of reserved keys: the form that each must have, and its bounds.

use serde_json::value::RawValue;

use super::entries;
use crate::backoff::Backoff;
use crate::dedup::DedupScope;
use crate::durability::Durability;
use crate::error::{Error, InvalidPart};
use crate::limits::Limits;
use crate::message::MessageTtl;
use crate::outcome::Keep;

/// A reserved key and its value, if it has one.
pub(super) struct Key<'a> {
    pub(super) key: &'static str,
    pub(super) value: Option<&'a RawValue>,
}

impl Key<'_> {
    pub(super) fn wrong(&self, part: InvalidPart, why: impl Into<String>) -> Error {
        Error::invalid(part, self.key, why)
    }

    pub(super) fn integer(&self) -> Result<Option<i64>, Error> {
        let parse = |value: &RawValue| serde_json::from_str(value.get());
        self.value.map(parse).transpose().map_err(|_| self.wrong(InvalidPart::Body, "must be an integer"))
    }

    pub(super) fn checked<T>(&self, check: impl Fn(i64) -> Result<T, Error>) -> Result<Option<T>, Error> {
        self.integer()?.map(check).transpose()
    }

    pub(super) fn within(&self, (min, max): (u32, u32)) -> Result<(), Error> {
        match self.integer()? {
            Some(number) if !(i64::from(min)..=i64::from(max)).contains(&number) => {
                Err(self.wrong(InvalidPart::Limit, format!("{number} is not between {min} and {max}")))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn delay(&self, limits: &Limits) -> Result<Option<u32>, Error> {
        self.integer()?.map(|seconds| limits.message_delay.seconds(seconds, self.key)).transpose()
    }

    pub(super) fn ttl(&self, limits: &Limits) -> Result<Option<MessageTtl>, Error> {
        self.integer()?.map(|seconds| MessageTtl::new(seconds, self.key, limits)).transpose()
    }

    pub(super) fn bytes(&self, limits: &Limits) -> Result<Option<usize>, Error> {
        let within = |bytes: i64| match usize::try_from(bytes) {
            Ok(bytes) if (1..=limits.message_bytes).contains(&bytes) => Ok(bytes),
            _ => {
                let why = format!("{bytes} is not between 1 and {} bytes", limits.message_bytes);
                Err(self.wrong(InvalidPart::Limit, why))
            }
        };
        self.integer()?.map(within).transpose()
    }

    /// Reads a count. Zero is none, as in Zaqar. Zaqar also accepts a negative count and then moves a message at its
    /// first claim; this service refuses it.
    pub(super) fn count(&self) -> Result<Option<u32>, Error> {
        let count = |count| {
            let why = || format!("{count} is not between 0 and {}", u32::MAX);
            u32::try_from(count).map_err(|_| self.wrong(InvalidPart::Limit, why()))
        };
        Ok(self.integer()?.map(count).transpose()?.filter(|count| *count > 0))
    }

    /// Reads a name. An empty name is none, because Zaqar's clients clear a name in this way.
    pub(super) fn name<T>(&self, check: impl Fn(&str) -> Result<T, Error>) -> Result<Option<T>, Error> {
        let Some(value) = self.value else { return Ok(None) };
        let Ok(name) = serde_json::from_str::<String>(value.get()) else {
            return Err(self.wrong(InvalidPart::Body, "must be a string"));
        };
        let named = Some(name).filter(|name| !name.is_empty()).map(|name| check(&name)).transpose();
        named.map_err(|error| self.wrong(InvalidPart::Limit, error.to_string()))
    }

    pub(super) fn durability(&self) -> Result<Option<Durability>, Error> {
        let Some(value) = self.value else { return Ok(None) };
        let class = serde_json::from_str::<String>(value.get()).ok().and_then(|text| text.parse().ok());
        let wrong = || self.wrong(InvalidPart::Limit, "must be \"sync\" or \"relaxed\"");
        class.map(Some).ok_or_else(wrong)
    }

    pub(super) fn check_object(&self) -> Result<(), Error> {
        match self.value.and_then(entries) {
            None if self.value.is_some() => Err(self.wrong(InvalidPart::Body, "must be a JSON object")),
            _ => Ok(()),
        }
    }

    pub(super) fn keep(&self) -> Result<Keep, Error> {
        Ok(self.checked(|seconds| Keep::new(seconds, self.key))?.unwrap_or_default())
    }

    pub(super) fn backoff(&self) -> Result<Option<Backoff>, Error> {
        let parse = |value: &RawValue| Backoff::parse(value.get());
        self.value.map(parse).transpose().map_err(|why| self.wrong(InvalidPart::Limit, why))
    }

    pub(super) fn truth(&self) -> Result<bool, Error> {
        match self.value.map(RawValue::get) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(self.wrong(InvalidPart::Body, "must be true or false")),
        }
    }

    pub(super) fn dedup_scope(&self) -> Result<DedupScope, Error> {
        match self.value.map(RawValue::get) {
            None | Some("\"queue\"") => Ok(DedupScope::Queue),
            Some("\"group\"") => Ok(DedupScope::Group),
            Some(_) => Err(self.wrong(InvalidPart::Limit, "must be \"queue\" or \"group\"")),
        }
    }

    pub(super) fn refuse_encryption(&self) -> Result<(), Error> {
        if self.truth()? {
            return Err(self.wrong(InvalidPart::Limit, "encryption at rest is not available"));
        }
        Ok(())
    }
}
