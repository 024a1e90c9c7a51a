//! The explanation of a message as its readers see it.

use serde::Serialize;
use utoipa::ToSchema;

use super::explain::seconds_until;
use angarium_broker::{GroupBlocker, MessageExplanation as BrokerExplanation};
use angarium_core::ids::MessageId;
use angarium_core::settle::MessageState;
use angarium_core::time::Timestamp;

/// What must happen before a client can claim a message.
#[derive(Debug, Serialize, ToSchema)]
pub struct MessageExplanation {
    /// Its id.
    #[schema(value_type = uuid::Uuid)]
    id: MessageId,
    /// `ready`, `delayed`, `claimed`, `in_transfer`, `held`, `done` or `failed`.
    #[schema(example = "delayed")]
    state: &'static str,
    /// The explanation for a person. Its words may change with each version; programs read the fields.
    #[schema(example = "It is delayed: a client can claim it from 2026-11-21T08:00:00Z on.")]
    says: String,
    /// Since when it is in this state, as `YYYY-MM-DDTHH:MM:SSZ`; of a claimed message when its claim was made or last
    /// renewed. Absent when that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    since: Option<String>,
    /// How often it has been claimed. A requeue and a move to another queue set it to 0; a deferral takes one away.
    attempts: u32,
    /// The group that it belongs to, if it does to one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    group: Option<String>,
    /// Seconds until its delay ends; of a delayed message only, and absent if it is parked.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    ready_in: Option<u64>,
    /// When that is, as `YYYY-MM-DDTHH:MM:SSZ`; of a delayed message only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    not_before: Option<String>,
    /// Its claim; of a claimed message only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    claim: Option<MessageClaim>,
    /// The queue that it is in transfer to, if it is in transfer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    to: Option<String>,
    /// Why that queue could not take it yet, as far as memory knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    why: Option<String>,
    /// The earlier message of its group that it waits for, in a FIFO queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    behind: Option<GroupMessage>,
}

/// The claim of a message, without its id, which is for its holder.
#[derive(Debug, Serialize, ToSchema)]
struct MessageClaim {
    /// The name that its holder gave itself, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    by: Option<String>,
    /// When it expires, as `YYYY-MM-DDTHH:MM:SSZ`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    expires: Option<String>,
    /// Seconds until then; 0 when it is being ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    expires_in: Option<u64>,
}

/// A message that another one of its group follows.
#[derive(Debug, Serialize, ToSchema)]
struct GroupMessage {
    /// Its id.
    #[schema(value_type = uuid::Uuid)]
    id: MessageId,
    /// `claimed`, `delayed`, `in_transfer`, or `changing` while a change of it is in progress.
    #[schema(example = "claimed")]
    state: &'static str,
}

impl From<BrokerExplanation> for MessageExplanation {
    fn from(explained: BrokerExplanation) -> Self {
        let BrokerExplanation { says, now, view, since, facts, transfer_refusal, .. } = explained;
        let claim = (view.state == MessageState::Claimed).then(|| MessageClaim {
            by: facts.holder.as_ref().map(ToString::to_string),
            expires: facts.claim_expires.map(Timestamp::calendar),
            expires_in: facts.claim_expires.map(|at| seconds_until(at, now)),
        });
        Self {
            id: view.id,
            state: view.state.as_str(),
            says,
            since: since.map(Timestamp::calendar),
            attempts: view.attempts,
            group: view.group.as_ref().map(ToString::to_string),
            ready_in: view.delay.map(|delay| delay.seconds),
            not_before: view.delay.map(|delay| delay.until.calendar()),
            claim,
            to: view.target.as_ref().map(ToString::to_string),
            why: transfer_refusal,
            behind: facts.blocker.map(GroupMessage::from),
        }
    }
}

impl From<GroupBlocker> for GroupMessage {
    fn from(blocker: GroupBlocker) -> Self {
        let state = match blocker {
            GroupBlocker::Claimed(_) => MessageState::Claimed.as_str(),
            GroupBlocker::Delayed(_) => MessageState::Delayed.as_str(),
            GroupBlocker::InTransfer(_) => MessageState::InTransfer.as_str(),
            GroupBlocker::Changing(_) => "changing",
        };
        Self { id: blocker.id(), state }
    }
}
