//! A queue: its metadata and its figures.

use std::collections::BTreeMap;

use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::domain::ids::MessageId;
use crate::domain::time::Timestamp;
use crate::error::{Error, Place};

/// The metadata of a queue: a JSON object, kept as its text. Zaqar's reserved keys change what a queue does;
/// one that would have no effect here is refused, not ignored.
#[derive(Clone, Debug)]
pub struct Metadata(Box<RawValue>);

impl Metadata {
    /// Metadata without any key.
    pub fn empty() -> Self {
        Self(RawValue::from_string("{}".into()).expect("an empty object is JSON"))
    }

    /// Checks JSON text: an object within the bound, without reserved keys.
    pub fn new(text: Box<RawValue>) -> Result<Self, Error> {
        let Ok(keys) = serde_json::from_str::<BTreeMap<String, IgnoredAny>>(text.get()) else {
            return Err(Error::invalid(Place::Body, "", "queue metadata must be a JSON object"));
        };
        if let Some(key) = keys.keys().find(|key| key.starts_with('_')) {
            let why = "keys that begin with an underscore are reserved, and this one is not known";
            return Err(Error::invalid(Place::Body, key.clone(), why));
        }
        Ok(Self(text))
    }

    /// The JSON text.
    pub fn as_raw(&self) -> &RawValue {
        &self.0
    }

    /// The JSON text.
    pub fn into_raw(self) -> Box<RawValue> {
        self.0
    }
}

/// Whether a request to create a queue made one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Created {
    /// There was none.
    New,
    /// There was one, and it was left as it is.
    Existed,
}

/// What is in a queue. Claimed and free messages add up to the total; free ones may have expired unnoticed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueStats {
    /// Messages under a live claim.
    pub claimed: u64,
    /// Messages under none.
    pub free: u64,
    /// The oldest message, if there is one.
    pub oldest: Option<Milestone>,
    /// The newest message, if there is one.
    pub newest: Option<Milestone>,
}

/// A message that statistics point to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Milestone {
    /// Its id.
    pub id: MessageId,
    /// When it was posted.
    pub created: Timestamp,
    /// Seconds since then.
    pub age: u64,
}
