//! The naive queue: every message in one map, with its state. It has no ready cache, no cursor and no budget. The
//! engine must agree with it.

use std::collections::{BTreeMap, BTreeSet};

use angarium_core::claim::ClaimTerms;
use angarium_core::ids::{ClaimId, MessageId};
use angarium_core::message::{Header, State};
use angarium_core::outcome::{Event, Holder};
use angarium_core::time::Timestamp;
use angarium_engine::{AttemptCount, Release, ReleaseEvent};

mod settles;

pub use settles::{RequeueVerdict, SettleVerdict};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageState {
    Ready,
    Scheduled,
    /// Was scheduled or prepared.
    Waking,
    Taking,
    Claimed(ClaimId),
    Returning(ClaimId),
    /// Its holder settles it.
    Settling(ClaimId),
    /// Its holder settled it, and it returns: the record of the claim may still name it.
    Returned(ClaimId),
    Leaving,
    /// Prepared, moving or without a target.
    InTransfer,
    /// Done or failed, and kept: only the pool has it.
    Kept,
    /// Being made available again, by a request that has read it in the pool or not.
    Requeuing(PoolRead),
}

/// Whether a requeue has read its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolRead {
    Pending,
    Done,
}

impl MessageState {
    /// State of an entry in the pool on which no operation runs.
    pub fn of(state: &State) -> Self {
        match state {
            State::Ready => Self::Ready,
            State::Scheduled => Self::Scheduled,
            State::Prepared(_) | State::Moving(_) | State::NoTarget => Self::InTransfer,
            State::Done | State::Failed => Self::Kept,
        }
    }

    /// The claim that holds the message, also while that changes.
    pub fn holder(self) -> Option<ClaimId> {
        match self {
            Self::Claimed(claim) | Self::Returning(claim) => Some(claim),
            Self::Settling(claim) | Self::Returned(claim) => Some(claim),
            Self::Ready | Self::Scheduled | Self::Waking | Self::Taking | Self::Leaving => None,
            Self::InTransfer | Self::Kept | Self::Requeuing(_) => None,
        }
    }
}

/// A message whose post was acknowledged.
#[derive(Clone, Debug)]
pub struct KnownMessage {
    pub header: Header,
    /// Its state, or the state that it has if its removals fail.
    pub state: MessageState,
    /// Removals in progress. While there are any, no client sees it.
    pub removals: u32,
}

#[derive(Clone, Debug)]
pub struct Lease {
    pub terms: ClaimTerms,
    pub expires: Timestamp,
    /// The release, while the claim is being ended.
    pub ending: Option<Release>,
    /// Whether its record is being changed: messages are split off, or return.
    pub is_changing: bool,
    /// Number of messages that are being settled or return.
    pub settles: usize,
    /// Whether the pool may have a note of a settle of a message that it still holds.
    pub may_be_settled: bool,
}

impl Lease {
    fn new(terms: ClaimTerms, expires: Timestamp) -> Self {
        let (ending, is_changing, settles, may_be_settled) = (None, false, 0, false);
        Self { terms, expires, ending, is_changing, settles, may_be_settled }
    }

    /// Whether no change of it is in progress.
    pub fn is_settled(&self) -> bool {
        self.ending.is_none() && !self.is_changing && self.settles == 0
    }

    pub fn is_live(&self, now: Timestamp) -> bool {
        self.ending.is_none() && now < self.expires
    }

    pub fn seconds_held(&self, now: Timestamp) -> u32 {
        let since = self.expires.minus_seconds(self.terms.ttl());
        u32::try_from(now.seconds_since(since)).expect("histories are short")
    }

    /// The header of a message after this end of the claim.
    pub fn returned(&self, header: &Header, ending: Release) -> Header {
        // A message that its holder moved to its own queue, and that did not return, has no attempt under the claim.
        let is_counted = ending.counts == AttemptCount::Yes;
        let attempts = header.attempts.saturating_sub(u32::from(!is_counted));
        let (ready, state) = ending.ready.map_or((header.ready, State::Ready), |at| (at, State::Scheduled));
        let first_claimed = header.first_claimed.filter(|_| is_counted || attempts > 0);
        let mut returned = Header { attempts, ready, state, first_claimed, ..header.clone() };
        if let Some(extras) = &mut returned.extras {
            extras.forgotten += header.attempts - attempts;
        }
        if let Some(ReleaseEvent { what, at }) = ending.event {
            let (by, seconds) = (Some(holder()), self.seconds_held(at));
            returned.note(Event { at, what, by, reason: None, seconds });
        }
        returned
    }
}

/// The name of all holders.
pub fn holder() -> Holder {
    Holder::cut("worker").expect("a lawful name")
}

/// The expected answer of the engine to a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Begun,
    Claimed,
    ClaimEnded,
    /// The message is in transfer to or from another queue.
    InTransfer,
    /// The message is not claimed, or only the pool knows it.
    Free,
    AskPool,
    /// Another request is making the message available again.
    Changing,
    /// The message was recalled from the claim.
    Recalled,
}

#[derive(Clone, Debug, Default)]
pub struct Truth {
    pub messages: BTreeMap<MessageId, KnownMessage>,
    pub claims: BTreeMap<ClaimId, Lease>,
    /// Removals in progress of ids that are not among the messages.
    pub unknown: BTreeMap<MessageId, u32>,
    /// Ids that are not among the messages and are being made available again.
    pub requeued_unknown: BTreeMap<MessageId, PoolRead>,
    /// Messages that were recalled, with the claims that held them.
    pub recalled: BTreeSet<(MessageId, ClaimId)>,
}

impl Truth {
    pub fn posted(&mut self, header: Header) {
        let removals = self.unknown.remove(&header.id).unwrap_or(0);
        let requeued = self.requeued_unknown.remove(&header.id);
        let state = requeued.map_or_else(|| MessageState::of(&header.state), MessageState::Requeuing);
        self.messages.insert(header.id, KnownMessage { header, state, removals });
    }

    /// Messages that may be claimed, oldest first.
    pub fn ready(&self) -> Vec<&Header> {
        let ready =
            self.messages.values().filter(|known| known.state == MessageState::Ready && known.removals == 0);
        ready.map(|known| &known.header).collect()
    }

    pub fn header(&self, id: MessageId) -> &Header {
        &self.messages[&id].header
    }

    #[track_caller]
    fn at(&mut self, id: MessageId) -> &mut KnownMessage {
        self.messages.get_mut(&id).expect("the message is known")
    }

    pub fn move_to(&mut self, id: MessageId, state: MessageState) {
        self.at(id).state = state;
    }

    pub fn grant(&mut self, id: ClaimId, terms: ClaimTerms, expires: Timestamp, ids: &[MessageId]) {
        for message in ids {
            let known = self.at(*message);
            known.state = MessageState::Claimed(id);
            known.header.attempts += 1;
            known.header.first_claimed.get_or_insert(expires.minus_seconds(terms.ttl()));
            terms.extend(&mut known.header, expires);
        }
        self.claims.insert(id, Lease::new(terms, expires));
    }

    pub fn set_changing(&mut self, claim: ClaimId, is_changing: bool) {
        if let Some(lease) = self.claims.get_mut(&claim) {
            lease.is_changing = is_changing;
        }
    }

    /// Moves those of the messages that the old claim still has to the new one. Returns the claims that have ended.
    pub fn finish_split(
        &mut self,
        old: ClaimId,
        new: ClaimId,
        terms: ClaimTerms,
        expires: Timestamp,
        ids: &[MessageId],
    ) -> Vec<ClaimId> {
        let mut over = Vec::new();
        for id in ids {
            if let Some(known) =
                self.messages.get_mut(id).filter(|known| known.state == MessageState::Claimed(old))
            {
                known.state = MessageState::Claimed(new);
                terms.extend(&mut known.header, expires);
            }
        }
        self.set_changing(old, false);
        if self.held_by(old).is_empty() && self.claims.remove(&old).is_some() {
            over.push(old);
        }
        if self.held_by(new).is_empty() {
            over.push(new);
        } else {
            self.claims.insert(new, Lease::new(terms, expires));
        }
        over
    }

    pub fn held_by(&self, claim: ClaimId) -> Vec<MessageId> {
        let held = self.messages.values().filter(|known| known.state.holder() == Some(claim));
        held.map(|known| known.header.id).collect()
    }

    pub fn begin_release(&mut self, claim: ClaimId, ending: Release) {
        for id in self.held_by(claim) {
            let known = self.at(id);
            if known.removals == 0 {
                known.state = MessageState::Returning(claim);
            }
        }
        self.claims.get_mut(&claim).expect("the claim lives").ending = Some(ending);
    }

    pub fn finish_release(&mut self, claim: ClaimId) {
        let held = self.held_by(claim);
        let lease = self.claims.remove(&claim).expect("the claim is ending");
        let ending = lease.ending.expect("the claim is ending");
        for id in held {
            let known = self.at(id);
            known.header = lease.returned(&known.header, ending);
            known.state = MessageState::of(&known.header.state);
        }
    }

    pub fn release_failed(&mut self, claim: ClaimId) {
        self.claims.get_mut(&claim).expect("the claim is ending").ending = None;
        for id in self.held_by(claim) {
            self.move_to(id, MessageState::Claimed(claim));
        }
    }

    /// The messages are ready or scheduled now, whether they are being removed or not.
    pub fn woken(&mut self, headers: &[Header]) {
        for header in headers {
            let known = self.at(header.id);
            (known.header.state, known.state) = (header.state.clone(), MessageState::of(&header.state));
        }
    }

    /// The messages have the state that the pool has.
    pub fn stay(&mut self, ids: &[MessageId]) {
        for id in ids {
            let known = self.at(*id);
            known.state = MessageState::of(&known.header.state);
        }
    }

    pub fn mark_in_transfer(&mut self, headers: &[Header]) {
        for header in headers {
            let known = self.at(header.id);
            (known.header, known.state) = (header.clone(), MessageState::InTransfer);
        }
    }

    /// Zaqar's table of answers.
    pub fn judge(&self, id: MessageId, claim: Option<ClaimId>, now: Timestamp) -> Verdict {
        let is_live = |claim| self.claims.get(&claim).is_some_and(|lease| lease.is_live(now));
        if claim.is_some_and(|claim| self.recalled.contains(&(id, claim))) {
            let is_decided = !self.messages.contains_key(&id);
            return if is_decided { Verdict::Recalled } else { Verdict::Changing };
        }
        let Some(known) = self.messages.get(&id) else {
            if self.requeued_unknown.contains_key(&id) {
                return Verdict::Changing;
            }
            let is_known = claim.is_none() || self.unknown.contains_key(&id);
            return if is_known { Verdict::Begun } else { Verdict::AskPool };
        };
        if known.removals > 0 {
            return Verdict::Begun;
        }
        if matches!(known.state, MessageState::Leaving | MessageState::InTransfer) {
            return Verdict::InTransfer;
        }
        match (known.state, claim) {
            (MessageState::Requeuing(_), _) => Verdict::Changing,
            // A message that is being published is a free message already.
            (MessageState::Ready | MessageState::Scheduled | MessageState::Waking, None) => Verdict::Begun,
            (MessageState::Ready | MessageState::Scheduled | MessageState::Waking, Some(_)) => Verdict::Free,
            (MessageState::Kept, None) => Verdict::Begun,
            (MessageState::Kept, Some(_)) => Verdict::Free,
            (MessageState::Claimed(holder), Some(claim)) if claim == holder && is_live(claim) => {
                Verdict::Begun
            }
            (MessageState::Settling(holder), Some(claim)) if claim == holder => Verdict::Changing,
            (_, None) => Verdict::Claimed,
            (_, Some(claim)) if is_live(claim) => Verdict::Claimed,
            (_, Some(_)) => Verdict::ClaimEnded,
        }
    }

    pub fn begin_remove(&mut self, id: MessageId) {
        match self.messages.get_mut(&id) {
            Some(known) => known.removals += 1,
            None => *self.unknown.entry(id).or_default() += 1,
        }
    }

    /// Returns the claim that ended by the removal.
    pub fn removed(&mut self, id: MessageId) -> Option<ClaimId> {
        self.unknown.remove(&id);
        let known = self.messages.remove(&id)?;
        let MessageState::Claimed(claim) = known.state else { return None };
        let is_over = self.held_by(claim).is_empty() && self.claims[&claim].ending.is_none();
        is_over.then(|| self.claims.remove(&claim)).map(|_| claim)
    }

    pub fn remove_failed(&mut self, id: MessageId) {
        if let Some(known) = self.messages.get_mut(&id) {
            known.removals = known.removals.saturating_sub(1);
            if known.removals == 0 {
                self.recalled.retain(|(recalled, _)| *recalled != id);
            }
        } else if let Some(removals) = self.unknown.get_mut(&id) {
            *removals -= 1;
            if *removals == 0 {
                self.unknown.remove(&id);
            }
        }
    }
}
