//! Explanation of a message: its state, since when it is in it, and what must happen before a client can claim it.

use angarium_core::access::Role;
use angarium_core::error::Error;
use angarium_core::hold::GroupHold;
use angarium_core::ids::MessageId;
use angarium_core::names::{QueueName, QueueRef};
use angarium_core::settle::MessageState;
use angarium_core::time::Timestamp;
use angarium_engine::MessageFacts;

use crate::explain::Explanations;
use crate::explain::message_text;
use crate::explain::queue::slot_limits;
use crate::explain::queue_text::{barred, refusal};
use crate::messages::single::no_message;
use crate::messages::view::MessageView;
use crate::slot::explain::MessageMoment;
use crate::slot::slot_queue::SlotQueue;

/// What must happen before a client can claim a message.
#[derive(Clone, Debug)]
pub struct MessageExplanation {
    /// One or two sentences for a person.
    pub says: String,
    /// The time that the instants are to be compared with.
    pub now: Timestamp,
    /// The message.
    pub view: MessageView,
    /// Since when it is in its state. None when that is not known.
    pub since: Option<Timestamp>,
    /// Facts from memory.
    pub facts: MessageFacts,
    /// Where dead letters of its queue go.
    pub dead_letter_queue: Option<QueueName>,
    /// Why it could not leave for the queue that it is in transfer to, as far as memory knows.
    pub transfer_refusal: Option<String>,
    /// Why all claims of its queue are refused now, if they are.
    pub claim_refusal: Option<String>,
    /// The hold of its group, in force or released.
    pub group_hold: Option<GroupHold>,
}

impl Explanations {
    /// Explains a message; see [`crate::Broker::message_explain`].
    pub(crate) async fn message_explain(
        &self,
        at: &QueueRef,
        id: MessageId,
        role: Role,
    ) -> Result<MessageExplanation, Error> {
        let queue = self.0.slots.queue(at).await?;
        let explained = self.explain_message(&queue, id, role).await;
        self.0.slots.confirm(queue.slot(), explained)
    }

    async fn explain_message(
        &self,
        queue: &SlotQueue,
        id: MessageId,
        role: Role,
    ) -> Result<MessageExplanation, Error> {
        let open = self.0.open_queues.open(queue).await?.ok_or_else(|| no_message(id))?;
        let view = self.0.messages.read_open(&open, id).await?;
        let now = self.0.replica.clock.now();
        let (group, target) = (view.group.as_ref(), view.target.as_ref());
        let MessageMoment { facts, dead_letter_queue, transfer_refusal } =
            open.message_moment(id, group, target, now)?;
        let limits = slot_limits(open.slot().load(open.at()));
        let hold = barred(&open.slot().applied_holds(open.at()).shown_to(role));
        let group_hold =
            view.group.as_ref().and_then(|group| open.slot().group_holds(open.at()).remove(group));
        let mut explained = MessageExplanation {
            says: String::new(),
            now,
            since: since(&view, &facts),
            view,
            facts,
            dead_letter_queue,
            transfer_refusal,
            claim_refusal: hold.or_else(|| refusal(self.0.replica.session_state(), &limits)),
            group_hold,
        };
        explained.says = message_text::text(&explained);
        Ok(explained)
    }
}

/// Returns since when a message is in its state, as far as its header tells.
fn since(view: &MessageView, facts: &MessageFacts) -> Option<Timestamp> {
    let last_event = view.extras.as_deref().and_then(|extras| extras.history.last()).map(|event| event.at);
    match view.state {
        MessageState::Claimed => facts.claimed_since,
        MessageState::Done | MessageState::Failed => view.settled,
        // The hold may be older, or later.
        MessageState::InTransfer | MessageState::Held => None,
        // Without an event only a message that was never claimed tells.
        MessageState::Ready | MessageState::Delayed
            if last_event.is_none() && view.first_claimed.is_some() =>
        {
            None
        }
        MessageState::Ready => Some(last_event.map_or(view.ready, |event| event.max(view.ready))),
        MessageState::Delayed => {
            let came = view.envelope.as_deref().is_some_and(|envelope| envelope.source.is_some());
            last_event.or(Some(view.created).filter(|_| !came))
        }
    }
}
