//! Settles: the holder of a claim decides what becomes of its messages.
//!
//! ```text
//!                     begin_settle              outcome durable
//!  claimed ─────────────────────────▶ settling ──┬─ settle_gone ────▶ removed, kept or in transfer: known to the pool only
//!     ▲                                  │       └─ settle_returned ▶ returning ──finish_returns──▶ ready or scheduled
//!     └──────────── settle_failed ───────┘
//! ```
//!
//! While messages of a claim are being settled the claim does not end, and gets no new terms. A message that returns is
//! shown once the record of the claim does not name it any more (P7).

use super::hidden::HiddenReason;
use super::queue::QueueEngine;
use angarium_core::claim::ClaimTerms;
use angarium_core::ids::{ClaimId, ClientId, MessageId};
use angarium_core::message::{Header, State};
use angarium_core::outcome::Holder;
use angarium_core::time::Timestamp;

/// Result of a request to settle a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettleStart {
    /// Write the outcome, then report it.
    Begun(HeldMessage),
    /// Another request is changing the claim, or removes the message: ask again after that.
    Busy,
    /// The claim does not hold the message. It may have settled it before.
    NotHeld,
    /// The message was recalled from the claim.
    Recalled,
}

/// A message that is being settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldMessage {
    /// Its header under the claim.
    pub header: Header,
    /// The name that the holder gave itself.
    pub by: Option<Holder>,
    /// Seconds since the claim was made, or given its last terms.
    pub seconds: u32,
    /// Whether a note of an earlier settle by the same claim must be looked up first.
    pub may_be_settled: bool,
}

/// The record of a claim without the messages that return.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRest {
    /// Its terms.
    pub terms: ClaimTerms,
    /// When it expires.
    pub expires: Timestamp,
    /// The `Client-ID` of the request that made it.
    pub client: Option<ClientId>,
    /// The name that its holder gave itself.
    pub by: Option<Holder>,
    /// Its other messages, with the numbers of this claim among their claims.
    pub messages: Vec<(MessageId, u32)>,
}

impl QueueEngine {
    /// Begins to settle a message for the holder of `claim`.
    pub fn begin_settle(&mut self, id: MessageId, claim: ClaimId, now: Timestamp) -> SettleStart {
        if self.is_recalled(id, claim) {
            return SettleStart::Recalled;
        }
        let is_removing =
            self.hidden.get(&id).is_some_and(|hidden| hidden.why == HiddenReason::Removing(Some(claim)));
        if is_removing || self.is_being_recalled(id, claim) {
            return SettleStart::Busy;
        }
        let Some(held) = self.claims.get_mut(claim) else { return SettleStart::NotHeld };
        let Some(hidden) = self.hidden.get_mut(&id) else { return SettleStart::NotHeld };
        match (hidden.why, &hidden.header) {
            (HiddenReason::Settling(holder) | HiddenReason::Returning(holder), _) if holder == claim => {
                SettleStart::Busy
            }
            (HiddenReason::Claimed(holder), Some(header)) if holder == claim => {
                if held.is_renewing {
                    return SettleStart::Busy;
                }
                if !held.is_live(now) {
                    return SettleStart::NotHeld;
                }
                hidden.why = HiddenReason::Settling(claim);
                held.settles.count += 1;
                SettleStart::Begun(HeldMessage {
                    header: header.clone(),
                    by: held.by.clone(),
                    seconds: held.seconds_held(now),
                    may_be_settled: held.settles.are_unread,
                })
            }
            _ => SettleStart::NotHeld,
        }
    }

    /// A settled message has durably left the claim: it was removed, is kept, or is in transfer. Returns the claim if it
    /// has no message left.
    pub fn settle_gone(&mut self, id: MessageId, state: Option<&State>) -> Option<ClaimId> {
        let claim = self.settling(id)?;
        let header = self.hidden.get(&id).and_then(|hidden| hidden.header.clone());
        let group = header.and_then(|header| header.group);
        if let Some(refill) = &mut self.refill {
            refill.remove(id);
        }
        self.schedule.note_change(id);
        self.sweeps.note_change(id);
        self.claimed -= 1;
        if state.is_some_and(State::is_in_transfer) {
            self.in_transfer.add(&[id]);
            self.hidden.mark_in_transfer(id);
            if let Some(groups) = &mut self.groups {
                groups.gone(id, group.as_ref());
            }
        } else {
            self.hidden.remove(&id);
            self.removed_from_group(id, group.as_ref());
            self.tally.count_settled(state);
            if state.is_some_and(State::is_kept) {
                self.expect_kept();
            }
        }
        self.end_settle(claim);
        self.claims.forget(claim, id).then_some(claim)
    }

    /// The header of a settled message that returns is durable. The message stays hidden until
    /// [`QueueEngine::finish_returns`].
    pub fn settle_returned(&mut self, header: Header) {
        let Some(claim) = self.settling(header.id) else { return };
        let (id, is_ready) = (header.id, header.state == State::Ready);
        if let Some(hidden) = self.hidden.get_mut(&id) {
            hidden.why = HiddenReason::Returning(claim);
            hidden.is_stored_ready = is_ready;
            hidden.header = Some(header);
        }
        if is_ready {
            self.hidden.note_unclaimed(id);
        } else {
            self.hidden.note_put_off(id);
        }
    }

    /// A settle was certainly not carried out: the claim holds the message as before.
    pub fn settle_failed(&mut self, id: MessageId) {
        let Some(claim) = self.settling(id) else { return };
        if let Some(hidden) = self.hidden.get_mut(&id) {
            hidden.why = HiddenReason::Claimed(claim);
        }
        self.end_settle(claim);
    }

    /// Begins to change the record of a claim, so that it does not name these messages, which return. Others that return
    /// have a change of their own. None while another request is changing it: ask again after that.
    pub fn begin_returns(&mut self, claim: ClaimId, ids: &[MessageId]) -> Option<ClaimRest> {
        let held = self.claims.get_mut(claim).filter(|held| !held.is_renewing)?;
        held.is_renewing = true;
        let hidden = &self.hidden;
        let stays = |id: &MessageId| {
            let header = hidden.get(id)?.header.as_ref()?;
            (!ids.contains(id)).then(|| (*id, header.grant()))
        };
        Some(ClaimRest {
            terms: held.terms,
            expires: held.expires,
            client: held.client(),
            by: held.by.clone(),
            messages: held.messages.iter().filter_map(stays).collect(),
        })
    }

    /// The record of a claim names the messages that return no more: they become ready or scheduled. Returns whether the
    /// claim has ended with them.
    pub fn finish_returns(&mut self, claim: ClaimId, ids: &[MessageId]) -> ReturnsEnd {
        let mut has_ended = false;
        for id in ids {
            let is_returning =
                self.hidden.get(id).is_some_and(|hidden| hidden.why == HiddenReason::Returning(claim));
            if !is_returning {
                continue;
            }
            self.end_settle(claim);
            self.claimed -= 1;
            has_ended |= self.claims.forget(claim, *id);
            if let Some(header) = self.hidden.remove(id).and_then(|hidden| hidden.header) {
                self.show(header, None);
            }
        }
        if let Some(held) = self.claims.get_mut(claim) {
            held.is_renewing = false;
        }
        if has_ended { ReturnsEnd::Claim } else { ReturnsEnd::Messages }
    }

    /// The record of a claim was certainly not changed: the claim holds the messages as the pool has them now.
    pub fn returns_failed(&mut self, claim: ClaimId, ids: &[MessageId]) {
        for id in ids {
            let Some(hidden) = self.hidden.get_mut(id) else { continue };
            if hidden.why != HiddenReason::Returning(claim) {
                continue;
            }
            hidden.why = HiddenReason::Claimed(claim);
            // Under the claim it counts as ready.
            if let Some(header) = &mut hidden.header {
                header.state = State::Ready;
            }
            self.end_settle(claim);
        }
        if let Some(held) = self.claims.get_mut(claim) {
            held.is_renewing = false;
            held.settles.are_unread = true;
        }
    }

    /// The claim whose holder settles a message.
    fn settling(&self, id: MessageId) -> Option<ClaimId> {
        match self.hidden.get(&id)?.why {
            HiddenReason::Settling(claim) => Some(claim),
            _ => None,
        }
    }

    fn end_settle(&mut self, claim: ClaimId) {
        if let Some(held) = self.claims.get_mut(claim) {
            held.settles.count = held.settles.count.saturating_sub(1);
        }
    }
}

/// What ended with the return of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReturnsEnd {
    /// The messages left the claim, which has others.
    Messages,
    /// The claim, whose last messages they were.
    Claim,
}
