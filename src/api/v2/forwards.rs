//! New messages that the settle of a message forwards, and the fields that they share with posts.

use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::api::json::{into_bytes, not_null};
use crate::api::sqs::BoundedList;
use angarium_core::envelope::Envelope;
use angarium_core::error::{Error, InvalidPart};
use angarium_core::group::GroupName;
use angarium_core::limits::{self, Limits};
use angarium_core::message::MessageTtl;
use angarium_core::names::QueueName;
use angarium_core::outcome::{Keep, Tags};
use angarium_core::settle::Forward;

/// The tags of a message in a request.
pub type TagList = BoundedList<String, { limits::TAGS }>;

/// Checks the tags of a message; absent ones are none.
pub fn tags(list: Option<TagList>, field: String) -> Result<Tags, Error> {
    let most = limits::TAGS;
    let list = list.unwrap_or_default().whole().map_err(|count| {
        Error::invalid(
            InvalidPart::Limit,
            &*field,
            format!("there are {count} tags; at most {most} are possible"),
        )
    })?;
    Tags::new(list, field)
}

/// A new message that follows from a settled one. Unknown keys are refused.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ForwardedMessage)]
pub struct ForwardBody {
    /// The queue that it is posted to, in the same project. A queue that does not exist is created.
    #[schema(min_length = 1, max_length = 80, pattern = r"^[A-Za-z0-9_.\-]+$")]
    queue: String,
    /// Any JSON. It is kept and given back byte for byte.
    #[schema(value_type = serde_json::Value)]
    body: Box<RawValue>,
    /// Seconds until it can be claimed; the `_default_message_delay` of its queue when absent.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(minimum = 0, maximum = 900, nullable = false)]
    delay: Option<i64>,
    /// Seconds that it lives; the `_default_message_ttl` of its queue when absent.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(minimum = 60, maximum = 1_209_600, nullable = false)]
    ttl: Option<i64>,
    /// The group that it belongs to; in a queue with `_fifo` it is `default` when absent.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(min_length = 1, max_length = 128, pattern = "^[!-~]+$", nullable = false)]
    group: Option<String>,
    /// Texts that stay with it: at most 8, with 256 bytes together.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(max_items = 8, value_type = Option<Vec<String>>, nullable = false)]
    tags: Option<TagList>,
    /// Seconds that it is kept after it was settled; the `_keep` of its queue when absent.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(minimum = 0, maximum = 1_209_600, nullable = false)]
    keep: Option<i64>,
}

impl ForwardBody {
    /// Checks the message, whose path in the request is `path`. It is posted in the trace of `envelope`.
    pub fn into_forward(self, path: &str, envelope: &Envelope, limits: &Limits) -> Result<Forward, Error> {
        let field = |name| format!("{path}.{name}");
        Ok(Forward {
            target: queue(&self.queue, field("queue"))?,
            body: envelope.before(into_bytes(self.body)),
            delay: self.delay.map(|delay| limits.message_delay.seconds(delay, field("delay"))).transpose()?,
            ttl: self.ttl.map(|ttl| MessageTtl::new(ttl, field("ttl"), limits)).transpose()?,
            group: self.group.map(|group| GroupName::new(&group, field("group"))).transpose()?,
            tags: tags(self.tags, field("tags"))?,
            keep: self.keep.map(|keep| Keep::new(keep, field("keep"))).transpose()?,
        })
    }
}

/// Checks the name of a queue in the body of a request.
pub fn queue(name: &str, field: String) -> Result<QueueName, Error> {
    QueueName::new(name).map_err(|error| match error {
        Error::Invalid { why, .. } => Error::Invalid { place: InvalidPart::Limit, field, why },
        other => other,
    })
}
