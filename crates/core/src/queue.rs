//! A queue: its metadata and its figures.

use serde_json::value::RawValue;

use crate::attributes::{self, Attributes};
use crate::error::{Error, InvalidPart};
use crate::ids::MessageId;
use crate::limits::Limits;
use crate::time::Timestamp;

/// The metadata of a queue: a JSON object, kept as its text, and what its reserved keys say.
#[derive(Clone, Debug)]
pub struct Metadata {
    text: Box<RawValue>,
    attributes: Attributes,
}

impl Metadata {
    /// Metadata without any key.
    pub fn empty() -> Self {
        let text = RawValue::from_string("{}".into()).expect("an empty object is JSON");
        Self { text, attributes: Attributes::default() }
    }

    /// The metadata of a queue in order of groups, and nothing else.
    pub fn fifo() -> Self {
        let text = format!("{{\"{}\":true}}", attributes::FIFO);
        let text = RawValue::from_string(text).expect("an object with one key is JSON");
        Self { text, attributes: Attributes { is_fifo: true, ..Attributes::default() } }
    }

    /// Reads what was checked before it was stored, maybe under other limits than those of today.
    pub fn stored(text: Box<RawValue>) -> Result<Self, Error> {
        Self::read(text, &Limits::WIDEST)
    }

    /// Checks JSON text: an object whose reserved keys have values within their bounds, which agree with each other.
    pub fn new(text: Box<RawValue>, limits: &Limits) -> Result<Self, Error> {
        Self::read(text, limits)?.in_agreement()
    }

    /// As [`Metadata::new`], of some keys for themselves.
    pub(super) fn read(text: Box<RawValue>, limits: &Limits) -> Result<Self, Error> {
        let Some(entries) = attributes::entries(&text) else {
            return Err(Error::invalid(InvalidPart::Body, "", "queue metadata must be a JSON object"));
        };
        let attributes = Attributes::new(&entries, limits)?;
        Ok(Self { text, attributes })
    }

    /// Checks the keys that are only kept, and those that depend on each other. Nothing that was stored before they were
    /// checked is the worse for it.
    pub(super) fn in_agreement(self) -> Result<Self, Error> {
        if let Some(entries) = attributes::entries(&self.text) {
            self.attributes.check_kept(&entries)?;
        }
        Ok(self)
    }

    /// The same text with a bound of a message written into it.
    pub(super) fn bounded(self, text: Box<RawValue>, bytes: usize) -> Self {
        Self { text, attributes: Attributes { max_message_bytes: Some(bytes), ..self.attributes } }
    }

    /// What the reserved keys say.
    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// The JSON text.
    pub fn as_raw(&self) -> &RawValue {
        &self.text
    }

    /// The JSON text.
    pub fn into_raw(self) -> Box<RawValue> {
        self.text
    }
}

/// Whether a request to create a queue made one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateResult {
    /// There was none.
    New,
    /// There was one, and it was left as it is.
    Existed,
}

/// What is in a queue. Claimed and free messages add up to the total; free ones may have expired unnoticed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueStats {
    /// Whether there is such a queue.
    pub exists: bool,
    /// Messages under a live claim.
    pub claimed: u64,
    /// Messages under none, in any state.
    pub free: u64,
    /// Free messages whose delay is not over.
    pub delayed: u64,
    /// Free messages on their way to or from another queue.
    pub in_transfer: u64,
    /// The oldest message, if there is one.
    pub oldest: Option<Milestone>,
    /// The newest message, if there is one.
    pub newest: Option<Milestone>,
}

impl QueueStats {
    /// Free messages that can be claimed now.
    pub fn ready(&self) -> u64 {
        self.free.saturating_sub(self.delayed).saturating_sub(self.in_transfer)
    }
}

/// A message that statistics point to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Milestone {
    /// May name a message that is gone by now.
    pub id: MessageId,
    /// When it was posted.
    pub created: Timestamp,
    /// Seconds since then.
    pub age: u64,
}
