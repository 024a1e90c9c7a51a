//! Settles: their batches, and the changes of the records of claims whose messages return.

use std::sync::Arc;

use angarium_core::outcome::{Event, EventKind};
use angarium_engine::{ClaimRest, ClaimSplit, HeldMessage, Renewal, ReturnsEnd, SettleStart};

use super::transfers::peer;
use super::*;
use crate::step::{ForwardKind, SettleKind};
use crate::truth::SettleVerdict;

/// A settle whose batch was submitted.
#[derive(Clone, Debug)]
pub(super) struct PendingSettle {
    claim: ClaimId,
    id: MessageId,
    /// The new header; none if the message is removed.
    header: Option<Header>,
    forward: Option<Message>,
}

impl PendingSettle {
    pub(super) fn add_to(&self, changes: &mut Changes) {
        changes.appends.extend(self.forward.clone());
        match &self.header {
            Some(header) => changes.updates.push(header.clone()),
            None => changes.removes.push(self.id),
        }
    }

    fn returns(&self) -> bool {
        let returns = |header: &Header| matches!(header.state, State::Ready | State::Scheduled);
        self.header.as_ref().is_some_and(returns)
    }
}

/// A change of the record of a claim from which messages return.
pub(super) struct PendingReturns {
    claim: ClaimId,
    ids: Vec<MessageId>,
    rest: ClaimRest,
    /// Whether the changed record is durable.
    is_recorded: bool,
}

impl PendingReturns {
    /// Whether the record does not name a message any more.
    pub(super) fn has_taken_out(&self, id: MessageId) -> bool {
        self.is_recorded && self.ids.contains(&id)
    }
}

/// The settles.
impl World {
    pub(super) fn begin_settle(&mut self, claim: u8, message: u8, kind: SettleKind, forward: ForwardKind) {
        let Some((claim, id)) = self.settled_by(claim, message) else { return };
        let verdict = self.truth.judge_settle(id, claim, self.now);
        let held = match (self.engine.begin_settle(id, claim, self.now), verdict) {
            (SettleStart::Begun(held), SettleVerdict::Begun) => held,
            (SettleStart::Busy, SettleVerdict::Busy) | (SettleStart::NotHeld, SettleVerdict::NotHeld) => {
                return;
            }
            (SettleStart::Recalled, SettleVerdict::Recalled) => return self.met.recalled += 1,
            (start, verdict) => panic!("{start:?} for a settle of {id}, and not {verdict:?}"),
        };
        let lease = &self.truth.claims[&claim];
        let seconds = lease.seconds_held(self.now);
        let header = self.truth.header(id).clone();
        let may_be_settled = lease.may_be_settled;
        let expected = HeldMessage { header: header.clone(), by: Some(holder()), seconds, may_be_settled };
        assert_eq!(held, expected, "the message of a settle");
        self.truth.begin_settle(id, claim);
        self.check_busy(claim);
        if may_be_settled && self.settle_notes.contains(&(claim, id)) {
            return self.resume_return(id);
        }
        let header = self.outcome(header, kind);
        let forward = self.forward(forward);
        self.waiting.push_back(Change::Settle(PendingSettle { claim, id, header, forward }));
    }

    /// An earlier owner wrote the outcome, and did not change the record of the claim.
    fn resume_return(&mut self, id: MessageId) {
        self.met.resumed += 1;
        let stored = self.pool.entries[&id].header.clone();
        self.engine.settle_returned(stored.clone());
        self.truth.settle_returned(stored);
    }

    /// The claim and the message of a settle: mostly one that the claim holds.
    fn settled_by(&self, claim: u8, message: u8) -> Option<(ClaimId, MessageId)> {
        if message % 8 == 7 {
            let recalled: Vec<(MessageId, ClaimId)> = self.truth.recalled.iter().copied().collect();
            return nth(&recalled, claim).map(|at| (recalled[at].1, recalled[at].0));
        }
        let claims: Vec<ClaimId> = self.truth.claims.keys().copied().collect();
        let claim = claims[nth(&claims, claim)?];
        let ids = match message % 8 {
            6 => self.truth.messages.keys().copied().collect(),
            _ => self.truth.held_by(claim),
        };
        nth(&ids, message).map(|at| (claim, ids[at]))
    }

    /// Checks that a claim does not change while messages of it are settled or return.
    fn check_busy(&mut self, claim: ClaimId) {
        let held = self.truth.held_by(claim);
        assert_eq!(self.engine.begin_renew(claim, self.now), Renewal::Busy, "a renewal during a settle");
        assert_eq!(self.engine.begin_split(claim, &held, self.now), ClaimSplit::Busy, "a split");
        assert!(self.engine.begin_release(claim, Release::COUNTED).is_none(), "the end of the claim");
    }

    /// The header of a message after a settle; none if it is removed.
    fn outcome(&self, mut header: Header, kind: SettleKind) -> Option<Header> {
        let now = self.now;
        let note = |header: &mut Header, what| {
            header.note(Event { at: now, what, by: Some(holder()), reason: None, seconds: 0 });
        };
        match kind {
            SettleKind::Removed => return None,
            SettleKind::Done | SettleKind::Failed => {
                header.state = if kind == SettleKind::Done { State::Done } else { State::Failed };
                header.ready = now;
                header.extras_mut().life = Some(header.life);
                header.life = Life::lasting(60, now);
            }
            SettleKind::Moved => {
                note(&mut header, EventKind::Moved);
                header.restart_attempts();
                header.state = State::Moving(Arc::new(peer()));
            }
            SettleKind::Returned => {
                note(&mut header, EventKind::Moved);
                header.restart_attempts();
                header.ready = now;
            }
            SettleKind::Deferred(seconds) => {
                if header.attempts > 0 {
                    header.attempts -= 1;
                    header.extras_mut().forgotten += 1;
                }
                header.first_claimed = header.first_claimed.filter(|_| header.attempts > 0);
                self.put_off(&mut header, seconds);
            }
            SettleKind::Retried(seconds) => {
                note(&mut header, EventKind::Failed);
                self.put_off(&mut header, seconds);
            }
        }
        Some(header)
    }

    fn put_off(&self, header: &mut Header, seconds: u8) {
        header.ready = self.now.plus_seconds(u32::from(seconds));
        header.state = if seconds > 0 { State::Scheduled } else { State::Ready };
    }

    fn forward(&mut self, kind: ForwardKind) -> Option<Message> {
        let (state, is_own) = match kind {
            ForwardKind::Nothing => return None,
            ForwardKind::ToOther => (State::Moving(Arc::new(peer())), false),
            ForwardKind::ToSelf => (State::Ready, true),
        };
        let mut message = self.new_message(0, Life::lasting(3_600, self.now), 0);
        // Its group at the target does not block one of this queue.
        message.header.group = message.header.group.filter(|_| is_own);
        message.header.state = state;
        Some(message)
    }

    /// Reports the outcome of the batch.
    pub(super) fn finish_settle(&mut self, settle: PendingSettle, is_durable: bool) {
        if !is_durable {
            self.engine.settle_failed(settle.id);
            return self.truth.settle_failed(settle.id);
        }
        let returns = settle.returns();
        let PendingSettle { claim, id, header, forward } = settle;
        if let Some(header) = header.clone().filter(|_| returns) {
            self.settle_notes.insert((claim, id));
            self.truth.settle_returned(header.clone());
            self.engine.settle_returned(header);
        } else {
            let ended = self.engine.settle_gone(id, header.as_ref().map(|header| &header.state));
            self.gone.extend(header.is_none().then_some(id));
            assert_eq!(ended, self.truth.settle_gone(id, header), "the claim of the last message");
            self.spent.extend(ended);
        }
        match forward {
            Some(message) if message.header.state.is_in_transfer() => {
                self.engine.expect_in_transfer(&[message.header.id]);
                self.truth.posted(message.header);
            }
            Some(message) => self.posted(vec![message]),
            None => {}
        }
    }
}

/// The messages that return.
impl World {
    /// The messages of each claim that return, and whose record is not being changed yet.
    fn returned(&self) -> BTreeMap<ClaimId, Vec<MessageId>> {
        let mut returned: BTreeMap<ClaimId, Vec<MessageId>> = BTreeMap::new();
        for (id, known) in &self.truth.messages {
            let is_begun = self.returns.iter().any(|returns| returns.ids.contains(id));
            if let MessageState::Returned(claim) = known.state
                && !is_begun
            {
                returned.entry(claim).or_default().push(*id);
            }
        }
        returned
    }

    pub(super) fn begin_returns(&mut self, number: u8, which: u8) {
        let returned: Vec<(ClaimId, Vec<MessageId>)> = self.returned().into_iter().collect();
        let Some(at) = nth(&returned, number) else { return };
        let (claim, all) = &returned[at];
        let chosen = all.iter().enumerate().filter(|(at, _)| which >> (at % 8) & 1 == 1).map(|(_, id)| *id);
        let ids: Vec<MessageId> = chosen.collect();
        if !ids.is_empty() {
            self.begin_returns_of(*claim, ids);
        }
    }

    fn begin_returns_of(&mut self, claim: ClaimId, ids: Vec<MessageId>) {
        let lease = &self.truth.claims[&claim];
        let rest = self.engine.begin_returns(claim, &ids);
        assert_eq!(rest.is_none(), lease.is_changing, "whether the record is being changed");
        let Some(rest) = rest else { return };
        let staying = self.truth.held_by(claim).into_iter().filter(|id| !ids.contains(id));
        let messages = staying.map(|id| (id, self.truth.header(id).grant())).collect();
        let (terms, expires, by) = (lease.terms, lease.expires, Some(holder()));
        assert_eq!(rest, ClaimRest { terms, expires, client: None, by, messages }, "the rest of the claim");
        self.truth.set_changing(claim, true);
        self.check_busy(claim);
        self.returns.push(PendingReturns { claim, ids, rest, is_recorded: false });
    }

    /// Makes the changed record durable. One that does not exist names no message.
    pub(super) fn record_returns(&mut self, at: usize) {
        let PendingReturns { claim, rest, is_recorded, .. } = &mut self.returns[at];
        *is_recorded = true;
        if rest.messages.is_empty() {
            self.tree.remove(claim);
        } else if let Some(record) = self.tree.get_mut(claim) {
            record.messages = rest.messages.clone();
        }
    }

    pub(super) fn finish_returns(&mut self, at: usize) {
        self.record_returns(at);
        let PendingReturns { claim, ids, rest, .. } = self.returns.swap_remove(at);
        let end = self.engine.finish_returns(claim, &ids);
        let ended = self.truth.finish_returns(claim, &ids);
        assert_eq!(end == ReturnsEnd::Claim, ended.is_some(), "whether the claim has ended");
        if let Some(ended) = ended {
            self.unrecorded.remove(&ended);
            self.spent.extend((!rest.messages.is_empty()).then_some(ended));
        }
        for id in ids {
            self.settle_notes.remove(&(claim, id));
        }
    }

    /// The record was certainly not changed.
    pub(super) fn fail_returns(&mut self, at: usize) {
        if !self.returns[at].is_recorded {
            let PendingReturns { claim, ids, .. } = self.returns.swap_remove(at);
            self.met.returns_failed += 1;
            self.engine.returns_failed(claim, &ids);
            self.truth.returns_failed(claim, &ids);
        }
    }

    /// Finishes the changes of records in progress, then those of all other messages that return.
    pub(super) fn flush_returns(&mut self) {
        while !self.returns.is_empty() {
            self.finish_returns(0);
        }
        for (claim, ids) in self.returned() {
            self.begin_returns_of(claim, ids);
            self.finish_returns(0);
        }
    }
}
