//! The end of a claim: its messages are hidden until the end is durable, then they are ready or scheduled.

use super::claims::Claim;
use super::hidden::{HiddenMessage, HiddenReason};
use super::queue::QueueEngine;
use angarium_core::ids::ClaimId;
use angarium_core::message::{Header, State};
use angarium_core::mutation::{Mutation, is_on};
use angarium_core::outcome::{Event, EventKind};
use angarium_core::time::Timestamp;

/// Whether the end of a claim counts as an attempt to handle its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptCount {
    /// The holder received the messages.
    Yes,
    /// No client received the messages.
    No,
}

/// How a claim ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// Whether it counts as an attempt.
    pub counts: AttemptCount,
    /// When its messages may be claimed again; none: at once. It does not extend their life.
    pub ready: Option<Timestamp>,
    /// The event that enters the history of its messages, if one does.
    pub event: Option<ReleaseEvent>,
}

/// The end of a claim as an event in the history of its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReleaseEvent {
    /// What happened.
    pub what: EventKind,
    /// When it happened.
    pub at: Timestamp,
}

impl Release {
    /// Counts as an attempt, and the messages are ready at once.
    pub const COUNTED: Self = Self { counts: AttemptCount::Yes, ready: None, event: None };
    /// Does not count as an attempt, and the messages are ready at once.
    pub const UNCOUNTED: Self = Self { counts: AttemptCount::No, ready: None, event: None };

    /// Changes the header of a message by the end of its claim; `event` is that end for its history.
    fn apply(self, header: &mut Header, event: Option<&Event>) {
        if self.counts == AttemptCount::No {
            // A settle that is repeated may still name the claim, so the number of a settled message only grows.
            if header.attempts > 0
                && let Some(extras) = &mut header.extras
            {
                extras.forgotten = extras.forgotten.saturating_add(1);
            }
            header.attempts = header.attempts.saturating_sub(1);
            header.first_claimed = header.first_claimed.filter(|_| header.attempts > 0);
        }
        if let Some(ready) = self.ready {
            header.ready = ready;
            header.state = State::Scheduled;
        }
        if let Some(event) = event {
            header.note(event.clone());
        }
    }
}

impl Claim {
    /// The end of the claim as its messages have it in their history.
    fn end_event(&self, ending: Release) -> Option<Event> {
        let ReleaseEvent { what, at } = ending.event?;
        Some(Event { at, what, by: self.by.clone(), reason: None, seconds: self.seconds_held(at) })
    }
}

/// The headers that the pool has after an end of a claim that was not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndedHeaders {
    /// The headers from before the end.
    Unwritten,
    /// The headers of the end, though the claim lives on.
    Written,
}

/// The updates for the pool at the end of a claim.
#[derive(Debug)]
pub struct ReleaseUpdates {
    /// Headers to write to the pool before the record of the claim is deleted.
    pub headers: Vec<Header>,
}

impl QueueEngine {
    /// Begins to end a claim. None when it does not exist, or another change of it is in progress. A message that is
    /// being removed stays hidden until its removal has ended.
    pub fn begin_release(&mut self, id: ClaimId, ending: Release) -> Option<ReleaseUpdates> {
        let claim = self.claims.get_mut(id).filter(|claim| claim.is_settled())?;
        claim.ending = Some(ending);
        let event = claim.end_event(ending);
        let mut headers = Vec::with_capacity(claim.messages.len());
        for message in &claim.messages {
            if let Some(HiddenMessage { header: Some(header), why, is_stored_ready, .. }) =
                self.hidden.get_mut(message)
            {
                if *why == HiddenReason::Claimed(id) {
                    *why = HiddenReason::Returning(id);
                }
                // If the claim continues after all, it is unknown here how much of the end was written.
                *is_stored_ready &= ending.ready.is_none();
                // Also for messages that are being removed: if the removal fails, the record of the claim does not
                // exist any more.
                let mut returned = header.clone();
                ending.apply(&mut returned, event.as_ref());
                headers.push(returned);
            }
        }
        Some(ReleaseUpdates { headers })
    }

    /// The end of a claim is durable: its messages become ready or scheduled, except messages that are being removed.
    /// Returns their number.
    pub fn finish_release(&mut self, id: ClaimId) -> u64 {
        let Some(claim) = self.claims.remove(id) else { return 0 };
        let mut given_back = 0;
        let ending = claim.ending.unwrap_or(Release::COUNTED);
        let event = claim.end_event(ending);
        for message in claim.messages {
            match self.hidden.get_mut(&message) {
                Some(HiddenMessage { why: why @ HiddenReason::Removing(_), header, .. })
                    if !is_on(Mutation::ShowDeleteAtExpiry) =>
                {
                    *why = HiddenReason::Removing(None);
                    header.iter_mut().for_each(|header| ending.apply(header, event.as_ref()));
                    self.hidden.note_unclaimed(message);
                }
                // It is still claimed if it was being removed when the end began, and the removal failed.
                Some(HiddenMessage {
                    why: HiddenReason::Returning(_) | HiddenReason::Claimed(_) | HiddenReason::Removing(_),
                    ..
                }) => {
                    let hidden = self.hidden.remove(&message);
                    if let Some(mut header) = hidden.and_then(|hidden| hidden.header) {
                        ending.apply(&mut header, event.as_ref());
                        self.show(header, None);
                        given_back += 1;
                    }
                }
                Some(HiddenMessage {
                    why:
                        HiddenReason::Taking
                        | HiddenReason::Waking
                        | HiddenReason::Publishing
                        | HiddenReason::Leaving
                        | HiddenReason::Copying
                        | HiddenReason::Settling(_)
                        | HiddenReason::Requeuing,
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

    /// The end of a claim was certainly not carried out: it may be repeated.
    pub fn release_failed(&mut self, id: ClaimId, headers: EndedHeaders) {
        let Some(claim) = self.claims.get_mut(id) else { return };
        let written = claim.ending.take().filter(|_| headers == EndedHeaders::Written);
        for message in &claim.messages {
            if let Some(ending) = written {
                self.hidden.store_ending(*message, ending);
            }
            if let Some(HiddenMessage { why, .. }) = self.hidden.get_mut(message)
                && *why == HiddenReason::Returning(id)
            {
                *why = HiddenReason::Claimed(id);
            }
        }
    }

    /// When a claim expires, also if it is being ended; none when it does not exist.
    pub fn expires(&self, id: ClaimId) -> Option<Timestamp> {
        self.claims.get(id).map(|claim| claim.expires)
    }

    /// Whether a claim exists, also if it is being ended.
    pub fn has_claim(&self, id: ClaimId) -> bool {
        self.claims.get(id).is_some()
    }

    /// Whether a claim has expired by `now`, and its end has not begun.
    pub fn is_due(&self, id: ClaimId, now: Timestamp) -> bool {
        self.claims.get(id).is_some_and(|claim| claim.is_settled() && claim.expires <= now)
    }
}
