//! Single messages: get, delete.

use angarium_core::error::{Error, Resource};
use angarium_core::ids::{ClaimId, MessageId};
use angarium_core::message::Message;
use angarium_core::mutation::{Mutation, is_on};
use angarium_core::names::QueueRef;
use angarium_engine::LookupResult;

use crate::messages::Messages;
use crate::messages::view::{MessageView, ViewedAt};
use crate::slot::delete::DeleteStart;
use crate::slot::queue_handle::{EngineReading, QueueHandle};
use crate::slot::slot_queue::SlotQueue;
use crate::writer::pending::{WriteOutcome, settled};

impl Messages {
    /// Returns one message, claimed or not. A kept message is missing.
    pub async fn message_get(&self, at: &QueueRef, id: MessageId) -> Result<MessageView, Error> {
        let queue = self.0.slots.queue(at).await?;
        let found = self.read_message(&queue, id).await;
        self.0.slots.confirm(queue.slot(), found)
    }

    async fn read_message(&self, queue: &SlotQueue, id: MessageId) -> Result<MessageView, Error> {
        let queue = self.0.open_queues.open(queue).await?.ok_or_else(|| no_message(id))?;
        let view = self.read_open(&queue, id).await?;
        if view.state.is_final() { Err(no_message(id)) } else { Ok(view) }
    }

    /// Reads a message of an open queue, kept or not.
    pub(crate) async fn read_open(&self, queue: &QueueHandle, id: MessageId) -> Result<MessageView, Error> {
        let missing = || no_message(id);
        let EngineReading { store, shown: (hold, lives_longer, retention) } =
            queue.read(|engine| (engine.hold(id), engine.may_live_longer(id), engine.retention()))?;
        let found = store.get(queue.id(), &[id]).await?;
        let Message { header, body } = found.into_iter().next().ok_or_else(missing)?;
        let at = ViewedAt { now: self.0.replica.clock.now(), retention };
        match hold {
            // Its holder can settle it until it is removed, even if its life has ended.
            Some((claim, header)) => Ok(MessageView::claimed(&header, claim, body, at)),
            None if at.shows(&header, lives_longer) => Ok(MessageView::free(&header, body, at)),
            None => Err(missing()),
        }
    }

    /// Deletes a message for a caller that holds `claim`, or no claim, by Zaqar's table of answers. It is gone from the
    /// pool when this returns. A missing message is no error.
    pub async fn message_delete(
        &self,
        at: &QueueRef,
        id: MessageId,
        claim: Option<ClaimId>,
    ) -> Result<(), Error> {
        let queue = self.0.slots.queue(at).await?;
        let slot = queue.slot();
        let removal = self.delete_or_refuse(&queue, id, claim).await;
        match self.0.slots.confirm_refusal(slot, removal)? {
            Some(outcome) => settled(outcome).await,
            None => self.0.slots.check_ours(slot),
        }
    }

    /// Begins to delete a message. Returns none when there is no such queue.
    pub(in crate::messages) async fn delete_or_refuse(
        &self,
        queue: &SlotQueue,
        id: MessageId,
        claim: Option<ClaimId>,
    ) -> Result<Option<WriteOutcome>, Error> {
        let Some(queue) = self.0.open_queues.open(queue).await? else { return Ok(None) };
        if is_on(Mutation::SkipDeleteWithoutClaim)
            && queue.decide(|engine| engine.hold(id)).flatten().is_none()
        {
            return Ok(None);
        }
        let now = self.0.slots.claim_time();
        let mut begun = queue.begin_delete(id, now, |engine, now| engine.begin_remove(id, claim, now))?;
        loop {
            let asked = match begun {
                DeleteStart::Removal(outcome) => return Ok(Some(outcome)),
                DeleteStart::Asked(asked) => asked,
            };
            let state = queue.message_state(id).await?;
            let answered = state.as_ref().map_or(LookupResult::Absent, LookupResult::There);
            begun = queue.begin_delete(id, self.0.slots.claim_time(), |engine, now| {
                engine.begin_remove_after_lookup(id, claim, asked, answered, now)
            })?;
        }
    }
}

/// The error for a message that does not exist.
pub(crate) fn no_message(id: MessageId) -> Error {
    Error::NotFound { resource: Resource::Message, name: id.to_string() }
}
