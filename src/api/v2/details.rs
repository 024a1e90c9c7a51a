//! Details of messages that Zaqar does not have: state, tags, outcome, history.

use serde::Serialize;
use utoipa::ToSchema;

use crate::api::json::RawJson;
use angarium_broker::MessageView;
use angarium_core::outcome::{Event, Extras};
use angarium_core::settle::MessageState;

/// What Zaqar does not know of a message.
#[derive(Debug, Serialize, ToSchema)]
pub struct MessageDetails {
    /// How often it has been claimed. A requeue and a move to another queue set it to 0; a deferral takes one away.
    attempts: u32,
    /// The group that it belongs to, if it does to one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    group: Option<String>,
    /// `ready`, `delayed`, `claimed`, `in_transfer`, `held`, `done` or `failed`.
    #[schema(example = "delayed")]
    state: &'static str,
    /// The queue that it is in transfer to, if it is in transfer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    to: Option<String>,
    /// Seconds until its delay ends; of a delayed message only, and absent if it is parked.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    delay: Option<u64>,
    /// When that is, as `YYYY-MM-DDTHH:MM:SSZ`; of a delayed message only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    not_before: Option<String>,
    /// 20 digits that grow from message to message of the queue.
    #[schema(example = "00445637271552163841")]
    sequence_number: String,
    /// Its tags, if it has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    tags: Option<Vec<String>>,
    /// Seconds that it is kept after it was settled, if its post named them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    keep: Option<u32>,
    /// JSON that a settle kept with it, if one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    meta: Option<RawJson>,
    /// Its outcome; of a done or failed message only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    outcome: Option<MessageOutcome>,
    /// Its last events, at most 8, the oldest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    history: Option<Vec<MessageEvent>>,
}

impl MessageDetails {
    pub(super) fn of(view: &MessageView) -> Self {
        let (none, group) = (Extras::default(), view.group.as_ref().map(ToString::to_string));
        let extras = view.extras.as_deref().unwrap_or(&none);
        let history: Vec<MessageEvent> = extras.history.iter().map(MessageEvent::of).collect();
        Self {
            attempts: view.attempts,
            group,
            state: view.state.as_str(),
            to: view.target.as_ref().map(ToString::to_string),
            delay: view.delay.map(|delay| delay.seconds),
            not_before: view.delay.map(|delay| delay.until.calendar()),
            sequence_number: view.id.sequence().to_string(),
            tags: (!extras.tags.is_empty()).then(|| extras.tags.as_slice().to_vec()),
            keep: extras.keep.map(|keep| keep.seconds()),
            meta: extras.meta.as_ref().map(|meta| RawJson(meta.as_bytes().clone())),
            outcome: MessageOutcome::of(view),
            history: (!history.is_empty()).then_some(history),
        }
    }
}

/// The outcome of a message that is kept.
#[derive(Debug, Serialize, ToSchema)]
pub struct MessageOutcome {
    /// `done` or `failed`.
    #[schema(example = "done")]
    state: &'static str,
    /// The result, as its holder gave it; of a done message only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    result: Option<RawJson>,
    /// Why it failed, if its holder gave a reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    reason: Option<String>,
    /// When it was settled, as `YYYY-MM-DDTHH:MM:SSZ`.
    at: String,
    /// The holder of the claim, if it named itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    by: Option<String>,
    /// How often it had been claimed.
    attempts: u32,
}

impl MessageOutcome {
    /// Returns the outcome of a message; none if it is not kept.
    pub(super) fn of(view: &MessageView) -> Option<Self> {
        let (none, at) = (Extras::default(), view.settled?);
        let extras = view.extras.as_deref().unwrap_or(&none);
        // A message that is done may have failed before.
        let reason = extras.reason.as_ref().filter(|_| view.state == MessageState::Failed);
        Some(Self {
            state: view.state.as_str(),
            result: extras.result.as_ref().map(|result| RawJson(result.as_bytes().clone())),
            reason: reason.map(ToString::to_string),
            at: at.calendar(),
            by: extras.by.as_ref().map(ToString::to_string),
            attempts: view.attempts,
        })
    }
}

/// An event in the history of a message.
#[derive(Debug, Serialize, ToSchema)]
struct MessageEvent {
    /// When it happened, as `YYYY-MM-DDTHH:MM:SSZ`.
    at: String,
    /// `expired`, `released`, `failed`, `deferred`, `moved` or `requeued`.
    #[schema(example = "failed")]
    what: &'static str,
    /// The holder of the claim, if it named itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    by: Option<String>,
    /// Why, if the holder gave a reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    reason: Option<String>,
    /// Seconds that the claim had held the message; 0 if it was under no claim.
    seconds: u32,
}

impl MessageEvent {
    fn of(event: &Event) -> Self {
        Self {
            at: event.at.calendar(),
            what: event.what.as_str(),
            by: event.by.as_ref().map(ToString::to_string),
            reason: event.reason.as_ref().map(ToString::to_string),
            seconds: event.seconds,
        }
    }
}
