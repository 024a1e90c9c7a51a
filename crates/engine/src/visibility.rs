//! Receipts: the rights of a holder over the message. Also the change of visibility of some messages of a claim, which
//! moves them to a claim of their own (P7).

use std::collections::BTreeSet;

use super::claims::Claim;
use super::hidden::{HiddenReason, RemovalKind};
use super::queue::QueueEngine;
use super::removal::Removal;
use super::renewal::ClaimSnapshot;
use angarium_core::claim::ClaimTerms;
use angarium_core::error::Error;
use angarium_core::ids::{ClaimId, MessageId};
use angarium_core::message::Header;
use angarium_core::time::Timestamp;

/// Validity of a receipt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiptStatus {
    /// The message is under this live claim. In an ordered queue it is the claim of the receipt.
    Holds(ClaimId),
    /// The claim of the receipt has ended. The message exists.
    Over,
    /// A claim of the message is being written or released, and the receipt is valid for that claim too: ask again
    /// after that. Never in an ordered queue.
    Changing,
    /// The message is not in memory: only the pool knows whether it exists.
    AskPool,
    /// The message is being removed: whether it exists is known after that.
    Removing,
}

/// Result of a request to split messages off a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimSplit {
    /// The request names all messages of the claim: renew or end it in place.
    Whole,
    /// Write both claims in one commit, then report the outcome.
    Begun {
        /// The old claim with its remaining messages, under its terms.
        rest: ClaimSnapshot,
        /// The messages of the new claim, with their attempts.
        parted: Vec<(MessageId, u32)>,
    },
    /// Another request is changing the claim: ask again after that.
    Busy,
    /// The claim does not exist, or has expired.
    Ended,
}

impl QueueEngine {
    /// Returns the validity of a receipt from the `attempt`-th claim of a message, at `received`. In an ordered queue
    /// it is valid for that claim alone; a message that returned from another queue is a new one there, whose claims
    /// count from one. In other queues it is valid for every claim of the message (SQS).
    pub fn worth(&self, id: MessageId, attempt: u32, received: Timestamp, now: Timestamp) -> ReceiptStatus {
        let Some(hidden) = self.hidden.get(&id) else {
            return if self.ready(id).is_some() { ReceiptStatus::Over } else { ReceiptStatus::AskPool };
        };
        match hidden.why {
            HiddenReason::Claimed(claim) => {
                let is_same = |header: &Header| header.grant() == attempt && header.created <= received;
                let is_same = hidden.header.as_ref().is_some_and(is_same);
                let is_live = self.claims.get(claim).is_some_and(|claim| claim.is_live(now));
                let is_good = is_same || !self.is_ordered();
                if is_good && is_live { ReceiptStatus::Holds(claim) } else { ReceiptStatus::Over }
            }
            HiddenReason::Taking | HiddenReason::Returning(_) | HiddenReason::Settling(_)
                if !self.is_ordered() =>
            {
                ReceiptStatus::Changing
            }
            HiddenReason::Taking
            | HiddenReason::Returning(_)
            | HiddenReason::Settling(_)
            | HiddenReason::Requeuing
            | HiddenReason::Waking
            | HiddenReason::Publishing
            | HiddenReason::Leaving
            | HiddenReason::Copying => ReceiptStatus::Over,
            HiddenReason::Removing(_) => ReceiptStatus::Removing,
        }
    }

    /// Begins to remove a message for a client with a receipt of it, which need not be the last one (SQS: a handle of a
    /// standard queue deletes the message even after its receive has ended). None while the message is being claimed or
    /// released: ask again after that.
    pub fn begin_remove_received(&mut self, id: MessageId, now: Timestamp) -> Result<Option<Removal>, Error> {
        if self.begin_remove_claimed(id) {
            return Ok(Some(Removal::Begun));
        }
        match self.hidden.get(&id).map(|hidden| hidden.why) {
            Some(HiddenReason::Taking | HiddenReason::Returning(_) | HiddenReason::Settling(_)) => Ok(None),
            _ => self.begin_remove(id, None, now).map(Some),
        }
    }

    /// Begins to remove a message that is under a claim of any client. Returns false, and begins nothing, when it is
    /// not claimed.
    pub fn begin_remove_claimed(&mut self, id: MessageId) -> bool {
        let is_claimed =
            self.hidden.get(&id).is_some_and(|hidden| matches!(hidden.why, HiddenReason::Claimed(_)));
        if is_claimed {
            self.begin_remove_any(id, RemovalKind::Acked);
        }
        is_claimed
    }

    /// Begins to split messages off a claim. Until the outcome is reported the claim does not end, at any time.
    pub fn begin_split(&mut self, id: ClaimId, parted: &[MessageId], now: Timestamp) -> ClaimSplit {
        let Some(mut held) = self.held(id, now) else {
            let is_ending = self.claims.get(id).is_some_and(|claim| !claim.is_settled());
            return if is_ending { ClaimSplit::Busy } else { ClaimSplit::Ended };
        };
        let Some(claim) = self.claims.get_mut(id).filter(|claim| claim.is_settled()) else {
            return ClaimSplit::Busy;
        };
        let (split, staying): (Vec<_>, Vec<_>) =
            held.headers.into_iter().partition(|header| parted.contains(&header.id));
        if split.is_empty() {
            return ClaimSplit::Ended;
        }
        if staying.is_empty() {
            return ClaimSplit::Whole;
        }
        claim.is_renewing = true;
        held.headers = staying;
        let parted = split.iter().map(|header| (header.id, header.grant())).collect();
        ClaimSplit::Begun { rest: held, parted }
    }

    /// Both claims are durable. Returns those that have no message left by now.
    pub fn finish_split(
        &mut self,
        old: ClaimId,
        new: ClaimId,
        terms: ClaimTerms,
        expires: Timestamp,
        messages: &[(MessageId, u32)],
    ) -> Vec<ClaimId> {
        let mut moved = BTreeSet::new();
        for (id, _) in messages {
            let Some(hidden) = self.hidden.get_mut(id) else { continue };
            hidden.why = match hidden.why {
                HiddenReason::Claimed(holder) if holder == old => HiddenReason::Claimed(new),
                HiddenReason::Removing(Some(holder)) if holder == old => HiddenReason::Removing(Some(new)),
                _ => continue,
            };
            if let Some(header) = &mut hidden.header {
                terms.extend(header, expires);
            }
            moved.insert(*id);
        }
        let (client, by) = (self.client_of(old), self.holder_of(old));
        let mut ended = Vec::new();
        self.claims.set_attempt(old, None);
        if let Some(claim) = self.claims.get_mut(old) {
            claim.is_renewing = false;
            claim.messages.retain(|id| !moved.contains(id));
            if claim.messages.is_empty() {
                self.claims.remove(old);
                ended.push(old);
            }
        }
        if moved.is_empty() {
            ended.push(new);
        } else {
            self.claims.insert(new, Claim::new(terms, expires, moved));
            self.note_client(new, client);
            self.note_holder(new, by);
        }
        ended
    }
}
