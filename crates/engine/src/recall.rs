//! Recalls: the removal of a message from under a claim, by a request that does not name the claim.
//!
//! The holder learns of it when it settles or deletes the message. Memory has the last recalled messages only: to the
//! holder of an older one the message does not exist.

use std::collections::VecDeque;

use super::hidden::{HiddenReason, RemovalKind};
use super::limits;
use super::queue::QueueEngine;
use angarium_core::ids::{ClaimId, MessageId};

/// The last messages that were recalled, with the claims that held them.
#[derive(Debug, Default)]
pub(super) struct Recalls(VecDeque<(MessageId, ClaimId)>);

impl Recalls {
    fn has(&self, id: MessageId, claim: ClaimId) -> bool {
        !self.0.is_empty() && self.0.contains(&(id, claim))
    }

    /// A message was not removed after all.
    pub(super) fn forget(&mut self, id: MessageId) {
        self.0.retain(|(recalled, _)| *recalled != id);
    }
}

impl QueueEngine {
    /// Begins to remove a message from under its claim. Returns false, and begins nothing, when no claim holds it.
    pub fn begin_recall(&mut self, id: MessageId) -> bool {
        let Some(HiddenReason::Claimed(claim)) = self.hidden.get(&id).map(|hidden| hidden.why) else {
            return false;
        };
        self.begin_remove_any(id, RemovalKind::Uncounted);
        self.recalls.0.push_back((id, claim));
        if self.recalls.0.len() > limits::RECALLS_KNOWN {
            self.recalls.0.pop_front();
        }
        true
    }

    /// Whether a message was recalled from this claim, durably.
    pub fn is_recalled(&self, id: MessageId, claim: ClaimId) -> bool {
        self.recalls.has(id, claim) && !self.is_known_hidden(id)
    }

    /// Whether a recall of a message from this claim is not durable yet: the claim may hold the message still.
    pub(super) fn is_being_recalled(&self, id: MessageId, claim: ClaimId) -> bool {
        self.recalls.has(id, claim) && self.is_known_hidden(id)
    }

    /// Whether memory has the header of a hidden message: not of one that is removed again after its removal.
    fn is_known_hidden(&self, id: MessageId) -> bool {
        self.hidden.get(&id).is_some_and(|hidden| hidden.header.is_some())
    }
}
