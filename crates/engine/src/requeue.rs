//! Requeues: a message that no claim holds is made available again under its id.
//!
//! The message is hidden by its id first. Then the pool is read, and no change of the message can precede the new header.

use super::hidden::{HiddenMessage, HiddenReason};
use super::queue::QueueEngine;
use super::removal::{changing_error, in_transfer_error};
use angarium_core::error::Error;
use angarium_core::ids::MessageId;
use angarium_core::message::Header;

impl QueueEngine {
    /// Hides a message to make it available again. Read it in the pool next, and call [`QueueEngine::requeue_read`] with
    /// its header there, or [`QueueEngine::cancel_requeue`].
    pub fn begin_requeue(&mut self, id: MessageId) -> Result<(), Error> {
        match self.hidden.get(&id).map(|hidden| hidden.why) {
            None => {}
            Some(
                HiddenReason::Claimed(_)
                | HiddenReason::Taking
                | HiddenReason::Returning(_)
                | HiddenReason::Settling(_),
            ) => return Err(Error::Claimed(id)),
            Some(HiddenReason::Leaving) => return Err(in_transfer_error()),
            Some(
                HiddenReason::Removing(_)
                | HiddenReason::Waking
                | HiddenReason::Publishing
                | HiddenReason::Copying
                | HiddenReason::Requeuing,
            ) => return Err(changing_error()),
        }
        if self.in_transfer.has(id) == Some(true) {
            return Err(in_transfer_error());
        }
        let hidden = match self.take_out(id) {
            Some(header) => HiddenMessage::new(header, HiddenReason::Requeuing),
            None => HiddenMessage::unknown(HiddenReason::Requeuing),
        };
        self.hidden.insert(id, hidden);
        Ok(())
    }

    /// Records the header that the pool has of a message. One in transfer stays hidden by its id alone: cancel the
    /// requeue.
    pub fn requeue_read(&mut self, header: &Header) {
        if self.is_requeuing(header.id) && !header.state.is_in_transfer() {
            self.hidden.learn(header.clone());
        }
    }

    /// The new header of a message is durable: it is ready or scheduled. What a hold has put aside, or releases, is not
    /// counted.
    pub fn requeued(&mut self, header: Header) {
        if !self.is_requeuing(header.id) {
            return;
        }
        if let Some(refill) = &mut self.refill {
            refill.remove(header.id);
        }
        let before = self.hidden.remove(&header.id).and_then(|hidden| hidden.header);
        let was_held = before.is_some_and(|before| before.held().is_some());
        if !was_held && header.held().is_none() {
            self.note_requeued();
        }
        self.show(header, None);
    }

    /// The pool has no message to make available: nothing was missed while its id was hidden.
    pub fn requeue_absent(&mut self, id: MessageId) {
        if !self.is_requeuing(id) {
            return;
        }
        // The post of the message may have become durable after the read.
        if let Some(header) = self.hidden.remove(&id).and_then(|hidden| hidden.header) {
            self.show(header, None);
        }
    }

    /// The new header was certainly not written, or the pool could not be read: the message is as before.
    pub fn cancel_requeue(&mut self, id: MessageId) {
        if !self.is_requeuing(id) {
            return;
        }
        match self.hidden.remove(&id).and_then(|hidden| hidden.header) {
            Some(header) => self.show(header, None),
            None => self.read_again(id),
        }
    }

    /// A message in the place of another one is durable. During a migration it may be in the older pool: then posts to the
    /// newer one with greater ids may be known already, and a page read beyond it.
    pub fn replacement_posted(&mut self, header: Header) {
        if self.hidden.contains_key(&header.id) {
            self.hidden.learn(header);
        } else {
            self.show(header, None);
        }
    }

    fn is_requeuing(&self, id: MessageId) -> bool {
        self.hidden.get(&id).is_some_and(|hidden| hidden.why == HiddenReason::Requeuing)
    }
}

/// Lets the claims of a message begin again when no claim holds it. The record of an earlier claim that still names it,
/// because a settle took it out, has no effect any more.
pub fn forget_claims(header: &mut Header) {
    if header.grant() > 0 {
        header.restart_attempts();
        let forgotten = &mut header.extras_mut().forgotten;
        *forgotten = forgotten.saturating_add(1);
    }
}
