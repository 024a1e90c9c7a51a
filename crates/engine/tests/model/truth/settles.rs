//! Settles, requeues and recalls of the naive queue.

use angarium_core::ids::{ClaimId, MessageId};
use angarium_core::message::Header;
use angarium_core::time::Timestamp;

use super::{MessageState, PoolRead, Truth};

/// The expected answer of the engine to a settle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettleVerdict {
    Begun,
    Busy,
    NotHeld,
    Recalled,
}

/// The expected answer of the engine to a requeue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequeueVerdict {
    Begun,
    Claimed,
    InTransfer,
    /// Another request is changing the message.
    Changing,
}

/// Settles.
impl Truth {
    pub fn judge_settle(&self, id: MessageId, claim: ClaimId, now: Timestamp) -> SettleVerdict {
        let known = self.messages.get(&id);
        if self.recalled.contains(&(id, claim)) {
            return if known.is_some() { SettleVerdict::Busy } else { SettleVerdict::Recalled };
        }
        let Some(known) = known.filter(|known| known.state.holder() == Some(claim)) else {
            return SettleVerdict::NotHeld;
        };
        if known.removals > 0 {
            return SettleVerdict::Busy;
        }
        let state = known.state;
        let lease = &self.claims[&claim];
        match state {
            MessageState::Claimed(_) if lease.is_changing => SettleVerdict::Busy,
            MessageState::Claimed(_) if lease.is_live(now) => SettleVerdict::Begun,
            MessageState::Claimed(_) => SettleVerdict::NotHeld,
            _ => SettleVerdict::Busy,
        }
    }

    pub fn begin_settle(&mut self, id: MessageId, claim: ClaimId) {
        self.move_to(id, MessageState::Settling(claim));
        self.claims.get_mut(&claim).expect("the claim lives").settles += 1;
    }

    fn end_settle(&mut self, claim: ClaimId) {
        self.claims.get_mut(&claim).expect("a claim does not end during settles").settles -= 1;
    }

    /// The message was removed, is kept, or is in transfer. Returns the claim if that was its last message.
    pub fn settle_gone(&mut self, id: MessageId, header: Option<Header>) -> Option<ClaimId> {
        let claim = self.messages[&id].state.holder().expect("it is being settled");
        match header {
            Some(header) => {
                let known = self.at(id);
                known.state = MessageState::of(&header.state);
                known.header = header;
            }
            None => drop(self.messages.remove(&id)),
        }
        self.end_settle(claim);
        self.end_if_empty(claim)
    }

    /// Ends a claim without messages. Returns it if it has ended.
    fn end_if_empty(&mut self, claim: ClaimId) -> Option<ClaimId> {
        let is_empty = self.held_by(claim).is_empty() && self.claims[&claim].ending.is_none();
        is_empty.then(|| self.claims.remove(&claim)).map(|_| claim)
    }

    pub fn settle_returned(&mut self, header: Header) {
        let known = self.at(header.id);
        let claim = known.state.holder().expect("it is being settled");
        (known.header, known.state) = (header, MessageState::Returned(claim));
    }

    pub fn settle_failed(&mut self, id: MessageId) {
        let claim = self.messages[&id].state.holder().expect("it is being settled");
        self.move_to(id, MessageState::Claimed(claim));
        self.end_settle(claim);
    }

    /// The record does not name the messages any more. Returns the claim if it has ended with them.
    pub fn finish_returns(&mut self, claim: ClaimId, ids: &[MessageId]) -> Option<ClaimId> {
        for id in ids {
            let known = self.at(*id);
            known.state = MessageState::of(&known.header.state);
            self.end_settle(claim);
        }
        self.set_changing(claim, false);
        self.end_if_empty(claim)
    }

    /// The claim holds the messages as the pool has them now.
    pub fn returns_failed(&mut self, claim: ClaimId, ids: &[MessageId]) {
        for id in ids {
            let known = self.at(*id);
            known.state = MessageState::Claimed(claim);
            known.header.state = angarium_core::message::State::Ready;
            self.end_settle(claim);
        }
        let lease = self.claims.get_mut(&claim).expect("a claim does not end during settles");
        (lease.is_changing, lease.may_be_settled) = (false, true);
    }
}

/// Requeues and recalls.
impl Truth {
    pub fn judge_requeue(&self, id: MessageId) -> RequeueVerdict {
        let Some(known) = self.messages.get(&id) else {
            let is_changing = self.unknown.contains_key(&id) || self.requeued_unknown.contains_key(&id);
            return if is_changing { RequeueVerdict::Changing } else { RequeueVerdict::Begun };
        };
        if known.removals > 0 {
            return RequeueVerdict::Changing;
        }
        match known.state {
            MessageState::Ready | MessageState::Scheduled | MessageState::Kept => RequeueVerdict::Begun,
            MessageState::Taking
            | MessageState::Claimed(_)
            | MessageState::Returning(_)
            | MessageState::Settling(_)
            | MessageState::Returned(_) => RequeueVerdict::Claimed,
            MessageState::Leaving | MessageState::InTransfer => RequeueVerdict::InTransfer,
            MessageState::Waking | MessageState::Requeuing(_) => RequeueVerdict::Changing,
        }
    }

    pub fn begin_requeue(&mut self, id: MessageId) {
        self.set_requeuing(id, PoolRead::Pending);
    }

    /// The requeue has read its message.
    pub fn requeue_read(&mut self, id: MessageId) {
        self.set_requeuing(id, PoolRead::Done);
    }

    fn set_requeuing(&mut self, id: MessageId, read: PoolRead) {
        match self.messages.get_mut(&id) {
            Some(known) => known.state = MessageState::Requeuing(read),
            None => drop(self.requeued_unknown.insert(id, read)),
        }
    }

    /// The message is ready or scheduled with this header.
    pub fn requeued(&mut self, header: Header) {
        let known = self.at(header.id);
        known.state = MessageState::of(&header.state);
        known.header = header;
    }

    /// The message is as before.
    pub fn cancel_requeue(&mut self, id: MessageId) {
        self.requeued_unknown.remove(&id);
        if self.messages.contains_key(&id) {
            self.stay(&[id]);
        }
    }

    /// The claim that holds a message which is not being removed or settled.
    pub fn recallable(&self, id: MessageId) -> Option<ClaimId> {
        match self.messages.get(&id).filter(|known| known.removals == 0)?.state {
            MessageState::Claimed(claim) => Some(claim),
            _ => None,
        }
    }
}
