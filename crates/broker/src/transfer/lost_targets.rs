//! Redriven messages whose target is gone: they stay at their source.
//!
//! A redrive names the incarnation of its target when it marks a message in transfer. A queue that was deleted since is
//! not made again for it, and a queue of the same name that was created since does not get it.

use angarium_core::error::{Error, Part};
use angarium_core::ids::{MessageId, QueueId};
use angarium_core::message::{Header, Message, Peer, State};
use angarium_core::names::QueueRef;
use angarium_engine::QueueEngine;

use crate::slot::queue_handle::QueueHandle;
use crate::slot::transfers::Side;
use crate::transfer::MessageTransfers;
use crate::writer::change::Change;

/// Returns the incarnation of the target that messages must have; all of them have the same.
pub(crate) fn required_target(messages: &[Message]) -> Option<QueueId> {
    messages.first().and_then(|message| match &message.header.state {
        State::Moving(peer) => peer.queue,
        State::Ready
        | State::Scheduled
        | State::Prepared(_)
        | State::NoTarget
        | State::Done
        | State::Failed => None,
    })
}

/// Refuses messages whose target is gone. Their source shows them again when it meets them next.
pub(crate) fn check_target(open: Option<&QueueHandle>, messages: &[Message]) -> Result<(), Error> {
    match required_target(messages) {
        Some(required) if open.is_none_or(|open| open.id() != required) => {
            Err(Error::unavailable(Part::Storage, "the target of the messages was deleted"))
        }
        Some(_) | None => Ok(()),
    }
}

impl MessageTransfers {
    /// Shows messages again at their source if their target is gone. Returns whether it is.
    pub(crate) async fn returns_messages(
        &self,
        source: &Side,
        target: &QueueRef,
        messages: &[Message],
    ) -> Result<bool, Error> {
        let Some(required) = required_target(messages) else { return Ok(false) };
        let record = self.0.replica.catalogue.queue_record_now(target).await?;
        if record.is_some_and(|record| record.id == required) {
            return Ok(false);
        }
        // No owner of the target removes them at the source meanwhile: a late one finds them not in transfer.
        let _outgoing = self.0.slots.hold_outgoing(source.queue.at()).await;
        let ids: Vec<MessageId> = messages.iter().map(|message| message.header.id).collect();
        let lost = |peer: &Peer| peer.at == *target && peer.queue == Some(required);
        let found = source.store.get(source.queue.id(), &ids).await?.into_iter();
        let still = found.map(|message| message.header);
        let still = still.filter(|header| matches!(&header.state, State::Moving(peer) if lost(peer)));
        let (kept, open): (Vec<Header>, Vec<Header>) = still.partition(is_kept_in_transfer);
        source.queue.note_returned(kept.iter().chain(&open).map(|header| header.id));
        if !kept.is_empty() {
            let failed = kept.into_iter().map(|header| Header { state: State::Failed, ..header });
            source.queue.decide(QueueEngine::expect_kept);
            source.queue.transfer_change(Change::update(failed.collect())).await?;
        }
        source.queue.wake(open).await?;
        // A message that another request had hidden is still in transfer: the next pass meets it again.
        let found = source.store.get(source.queue.id(), &ids).await?;
        let moving = |id: &MessageId| {
            found.iter().any(|message| message.header.id == *id && message.header.state.is_in_transfer())
        };
        let gone: Vec<MessageId> = ids.into_iter().filter(|id| !moving(id)).collect();
        source.queue.clear_in_transfer(&gone);
        Ok(true)
    }
}

/// Whether a message in transfer is a kept one: it has failed for good, and has its outcome until it arrives.
pub(crate) fn is_kept_in_transfer(header: &Header) -> bool {
    header.extras.as_ref().is_some_and(|extras| extras.life.is_some())
}
