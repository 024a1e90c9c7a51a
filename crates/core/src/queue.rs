//! A queue: its metadata and its statistics.

use serde_json::value::RawValue;

use crate::attributes::{self, Attributes, IgnoredAttribute};
use crate::error::{Error, InvalidPart};
use crate::ids::MessageId;
use crate::limits::Limits;
use crate::maps::HashMap;
use crate::time::Timestamp;

/// The metadata of a queue: a JSON object, stored as its text, and the values of its reserved keys.
#[derive(Clone, Debug)]
pub struct Metadata {
    text: Box<RawValue>,
    attributes: Attributes,
    ignored: Vec<IgnoredAttribute>,
}

impl Metadata {
    /// Metadata without any key.
    pub fn empty() -> Self {
        let text = RawValue::from_string("{}".into()).expect("an empty object is JSON");
        Self { text, attributes: Attributes::default(), ignored: Vec::new() }
    }

    /// The metadata of a FIFO queue without any other key.
    pub fn fifo() -> Self {
        let text = format!("{{\"{}\":true}}", attributes::FIFO);
        let text = RawValue::from_string(text).expect("an object with one key is JSON");
        let attributes = Attributes { is_fifo: true, ..Attributes::default() };
        Self { text, attributes, ignored: Vec::new() }
    }

    /// Reads metadata that was checked before it was stored, maybe under other limits than today's, or by a version to which
    /// a reserved key was free metadata. An attribute that this version does not understand is ignored.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] when the text is no JSON object.
    pub fn stored(text: Box<RawValue>) -> Result<Self, Error> {
        let (attributes, ignored) = Attributes::stored(&entries(&text)?);
        Ok(Self { text, attributes, ignored })
    }

    /// Checks JSON text: an object whose reserved keys have values within their bounds, which agree with each other.
    pub fn new(text: Box<RawValue>, limits: &Limits) -> Result<Self, Error> {
        Self::read(text, limits)?.in_agreement()
    }

    /// Like [`Metadata::new`], but without the check that the keys agree with each other.
    pub(super) fn read(text: Box<RawValue>, limits: &Limits) -> Result<Self, Error> {
        let attributes = Attributes::new(&entries(&text)?, limits)?;
        Ok(Self { text, attributes, ignored: Vec::new() })
    }

    /// Checks the keys that are only stored, and keys that depend on each other. Stored metadata is not checked in
    /// this way, because it may be older than the checks.
    pub(super) fn in_agreement(self) -> Result<Self, Error> {
        if let Some(entries) = attributes::entries(&self.text) {
            self.attributes.check_sqs_keys(&entries)?;
        }
        Ok(self)
    }

    /// Returns the metadata with `text`, into which the caller has written this message bound.
    pub(super) fn bounded(self, text: Box<RawValue>, bytes: usize) -> Self {
        Self { text, attributes: Attributes { max_message_bytes: Some(bytes), ..self.attributes }, ..self }
    }

    /// The values of the reserved keys.
    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// Reserved keys that are stored and have no effect.
    pub fn ignored(&self) -> &[IgnoredAttribute] {
        &self.ignored
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

/// The keys and values of metadata.
fn entries(text: &RawValue) -> Result<HashMap<String, &RawValue>, Error> {
    let no_object = || Error::invalid(InvalidPart::Body, "", "queue metadata must be a JSON object");
    attributes::entries(text).ok_or_else(no_object)
}

/// Result of a request to create a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateResult {
    /// The queue is new.
    New,
    /// The queue existed, and is unchanged.
    Existed,
}

/// Statistics of a queue. Claimed, free and kept messages add up to the total; some free or kept messages may have
/// expired.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueStats {
    /// Whether the queue exists.
    pub exists: bool,
    /// Messages under a live claim.
    pub claimed: u64,
    /// Messages under no live claim, in any state but kept.
    pub free: u64,
    /// Free messages whose delay has not ended.
    pub delayed: u64,
    /// Free messages in transfer to or from another queue.
    pub in_transfer: u64,
    /// Messages that are kept: done or failed.
    pub kept: u64,
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

/// A message that statistics name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Milestone {
    /// The id; the message may be gone meanwhile.
    pub id: MessageId,
    /// When it was posted.
    pub created: Timestamp,
    /// Seconds since then.
    pub age: u64,
}
