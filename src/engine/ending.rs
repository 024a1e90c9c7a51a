//! The end of a claim: its messages are hidden until that is durable, then they are ready again, or put off.

use super::hidden::{Hidden, Why};
use super::queue::QueueEngine;
use crate::domain::ids::ClaimId;
use crate::domain::message::{Header, State};
use crate::domain::time::Timestamp;

/// Whether a claim that ends counts as an attempt to handle its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counts {
    /// Its holder had them.
    Yes,
    /// Nobody was told of it.
    No,
}

/// How a claim ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    /// Whether it counts.
    pub counts: Counts,
    /// When its messages may be claimed again; at once when absent. Their life does not become longer by it.
    pub ready: Option<Timestamp>,
}

impl Ending {
    /// It counts, and its messages are ready at once.
    pub const COUNTED: Self = Self { counts: Counts::Yes, ready: None };
    /// Nobody was told of it.
    pub const UNCOUNTED: Self = Self { counts: Counts::No, ready: None };

    /// What it makes of a message.
    fn apply(self, header: &mut Header) {
        if self.counts == Counts::No {
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
pub struct Ended {
    /// What to write to the pool before the claim's record may go.
    pub headers: Vec<Header>,
}

impl QueueEngine {
    /// Begins to end a claim. None when there is no such claim, or somebody changes it already. Messages that are
    /// being removed stay with the removal.
    pub fn begin_end(&mut self, id: ClaimId, ending: Ending) -> Option<Ended> {
        let claim = self.claims.get_mut(id).filter(|claim| claim.is_settled())?;
        claim.ending = Some(ending);
        let mut headers = Vec::with_capacity(claim.messages.len());
        for message in &claim.messages {
            if let Some(Hidden { header: Some(header), why, is_stored_ready, .. }) =
                self.hidden.get_mut(message)
            {
                if *why == Why::Claimed(id) {
                    *why = Why::Returning(id);
                }
                // If the claim lives on nobody knows here how far its end came.
                *is_stored_ready &= ending.ready.is_none();
                // Of those being removed too: their removal may fail, and then the claim's record is gone.
                let mut returned = header.clone();
                ending.apply(&mut returned);
                headers.push(returned);
            }
        }
        Some(Ended { headers })
    }

    /// The end of a claim is durable: its messages are ready or put off, but for those being removed. Returns how many.
    pub fn ended(&mut self, id: ClaimId) -> u64 {
        let Some(claim) = self.claims.remove(id) else { return 0 };
        let mut given_back = 0;
        let ending = claim.ending.unwrap_or(Ending::COUNTED);
        for message in claim.messages {
            match self.hidden.get_mut(&message) {
                Some(Hidden { why: why @ Why::Removing(_), header, .. }) => {
                    *why = Why::Removing(None);
                    header.iter_mut().for_each(|header| ending.apply(header));
                }
                // It is claimed still when it was being removed as the end began, and the removal failed.
                Some(Hidden { why: Why::Returning(_) | Why::Claimed(_), .. }) => {
                    let hidden = self.hidden.remove(&message);
                    if let Some(mut header) = hidden.and_then(|hidden| hidden.header) {
                        ending.apply(&mut header);
                        self.show(header, None);
                        given_back += 1;
                    }
                }
                Some(Hidden { why: Why::Taking | Why::Waking | Why::Leaving | Why::Copying, .. }) | None => {
                    continue;
                }
            }
            self.claimed -= 1;
        }
        given_back
    }

    /// The end of a claim certainly did not happen: it may be tried again.
    pub fn end_failed(&mut self, id: ClaimId) {
        let Some(claim) = self.claims.get_mut(id) else { return };
        claim.ending = None;
        for message in &claim.messages {
            if let Some(Hidden { why, .. }) = self.hidden.get_mut(message)
                && *why == Why::Returning(id)
            {
                *why = Why::Claimed(id);
            }
        }
    }

    /// When a claim ends by itself, whether somebody ends it already or not; none when there is no such claim.
    pub fn expires(&self, id: ClaimId) -> Option<Timestamp> {
        self.claims.get(id).map(|claim| claim.expires)
    }

    /// Whether there is such a claim, ending or not.
    pub fn has_claim(&self, id: ClaimId) -> bool {
        self.claims.get(id).is_some()
    }

    /// Whether a claim is over by `now` and waits to be ended.
    pub fn is_due(&self, id: ClaimId, now: Timestamp) -> bool {
        self.claims.get(id).is_some_and(|claim| claim.is_settled() && claim.expires <= now)
    }
}
