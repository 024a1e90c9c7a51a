//! The end of a claim: its messages are hidden until that is durable, then they are ready again, or put off.

use super::hidden::{HiddenMessage, HiddenReason};
use super::queue::QueueEngine;
use angarium_core::ids::ClaimId;
use angarium_core::message::{Header, State};
use angarium_core::time::Timestamp;

/// Whether a claim that ends counts as an attempt to handle its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptCount {
    /// Its holder had them.
    Yes,
    /// No caller was told of it.
    No,
}

/// How a claim ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// Whether it counts.
    pub counts: AttemptCount,
    /// When its messages may be claimed again; at once when absent. Their life does not become longer by it.
    pub ready: Option<Timestamp>,
}

impl Release {
    /// It counts, and its messages are ready at once.
    pub const COUNTED: Self = Self { counts: AttemptCount::Yes, ready: None };
    /// No caller was told of it.
    pub const UNCOUNTED: Self = Self { counts: AttemptCount::No, ready: None };

    /// What it makes of a message.
    fn apply(self, header: &mut Header) {
        if self.counts == AttemptCount::No {
            header.attempts = header.attempts.saturating_sub(1);
            header.first_claimed = header.first_claimed.filter(|_| header.attempts > 0);
        }
        if let Some(ready) = self.ready {
            header.ready = ready;
            header.state = State::Scheduled;
        }
    }
}

/// A claim that is being ended.
#[derive(Debug)]
pub struct ReleaseUpdates {
    /// What to write to the pool before the claim's record may go.
    pub headers: Vec<Header>,
}

impl QueueEngine {
    /// Begins to end a claim. None when there is no such claim, or a caller changes it already. Messages that are
    /// being removed stay with the removal.
    pub fn begin_release(&mut self, id: ClaimId, ending: Release) -> Option<ReleaseUpdates> {
        let claim = self.claims.get_mut(id).filter(|claim| claim.is_settled())?;
        claim.ending = Some(ending);
        let mut headers = Vec::with_capacity(claim.messages.len());
        for message in &claim.messages {
            if let Some(HiddenMessage { header: Some(header), why, is_stored_ready, .. }) =
                self.hidden.get_mut(message)
            {
                if *why == HiddenReason::Claimed(id) {
                    *why = HiddenReason::Returning(id);
                }
                // If the claim lives on it is unknown here how far its end came.
                *is_stored_ready &= ending.ready.is_none();
                // Of those being removed too: their removal may fail, and then the claim's record is gone.
                let mut returned = header.clone();
                ending.apply(&mut returned);
                headers.push(returned);
            }
        }
        Some(ReleaseUpdates { headers })
    }

    /// The end of a claim is durable: its messages are ready or put off, but for those being removed. Returns how many.
    pub fn finish_release(&mut self, id: ClaimId) -> u64 {
        let Some(claim) = self.claims.remove(id) else { return 0 };
        let mut given_back = 0;
        let ending = claim.ending.unwrap_or(Release::COUNTED);
        for message in claim.messages {
            match self.hidden.get_mut(&message) {
                Some(HiddenMessage { why: why @ HiddenReason::Removing(_), header, .. }) => {
                    *why = HiddenReason::Removing(None);
                    header.iter_mut().for_each(|header| ending.apply(header));
                }
                // It is claimed still when it was being removed as the end began, and the removal failed.
                Some(HiddenMessage {
                    why: HiddenReason::Returning(_) | HiddenReason::Claimed(_), ..
                }) => {
                    let hidden = self.hidden.remove(&message);
                    if let Some(mut header) = hidden.and_then(|hidden| hidden.header) {
                        ending.apply(&mut header);
                        self.show(header, None);
                        given_back += 1;
                    }
                }
                Some(HiddenMessage {
                    why:
                        HiddenReason::Taking
                        | HiddenReason::Waking
                        | HiddenReason::Leaving
                        | HiddenReason::Copying,
                    ..
                })
                | None => {
                    continue;
                }
            }
            self.claimed -= 1;
        }
        given_back
    }

    /// The end of a claim certainly did not happen: it may be tried again.
    pub fn release_failed(&mut self, id: ClaimId) {
        let Some(claim) = self.claims.get_mut(id) else { return };
        claim.ending = None;
        for message in &claim.messages {
            if let Some(HiddenMessage { why, .. }) = self.hidden.get_mut(message)
                && *why == HiddenReason::Returning(id)
            {
                *why = HiddenReason::Claimed(id);
            }
        }
    }

    /// When a claim ends by itself, whether a caller ends it already or not; none when there is no such claim.
    pub fn expires(&self, id: ClaimId) -> Option<Timestamp> {
        self.claims.get(id).map(|claim| claim.expires)
    }

    /// Whether there is such a claim, ending or not.
    pub fn has_claim(&self, id: ClaimId) -> bool {
        self.claims.get(id).is_some()
    }

    /// Whether a claim has ended by `now` and waits to be ended.
    pub fn is_due(&self, id: ClaimId, now: Timestamp) -> bool {
        self.claims.get(id).is_some_and(|claim| claim.is_settled() && claim.expires <= now)
    }
}
