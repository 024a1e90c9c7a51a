//! Receipts: messages that are split off into a claim of their own, deletes by the holder of a receipt, and the
//! validity of receipts.

use angarium_engine::{ClaimSnapshot, ClaimSplit, ReceiptStatus};

use super::*;

/// Messages that are being split off from a claim.
pub(super) struct PendingSplit {
    old: ClaimId,
    new: ClaimId,
    terms: ClaimTerms,
    expires: Timestamp,
    rest: ClaimSnapshot,
    parted: Vec<(MessageId, u32)>,
    /// Whether the commit of both claims is durable.
    is_recorded: bool,
}

impl PendingSplit {
    /// The new claim of a message, if its record is durable already.
    pub(super) fn recorded(&self, id: MessageId) -> Option<ClaimId> {
        let is_here = self.is_recorded && self.parted.iter().any(|(parted, _)| *parted == id);
        is_here.then_some(self.new)
    }
}

impl World {
    /// Changes the visibility of some messages of a claim, one for each bit.
    pub(super) fn split(&mut self, number: u8, which: u8) {
        let claims: Vec<ClaimId> = self.truth.claims.keys().copied().collect();
        let Some(at) = nth(&claims, number) else { return };
        let (old, held) = (claims[at], self.truth.held_by(claims[at]));
        let ids: Vec<MessageId> =
            held.iter().enumerate().filter(|(at, _)| which >> (at % 8) & 1 == 1).map(|(_, id)| *id).collect();
        let lease = &self.truth.claims[&old];
        let is_changing = !lease.is_settled();
        let is_over = self.now >= lease.expires || ids.is_empty();
        match self.engine.begin_split(old, &ids, self.now) {
            ClaimSplit::Busy => assert!(is_changing, "an unchanged claim can be split"),
            ClaimSplit::Ended => assert!(!is_changing && is_over, "a live claim can be split"),
            ClaimSplit::Whole => assert!(!is_changing && !is_over && ids == held, "some of it stays"),
            ClaimSplit::Begun { rest, parted } => {
                assert!(!is_changing && !is_over && ids.len() < held.len(), "nothing of it stays");
                let staying: Vec<&Header> =
                    held.iter().filter(|id| !ids.contains(id)).map(|id| self.truth.header(*id)).collect();
                assert_eq!(rest.headers.iter().collect::<Vec<_>>(), staying, "messages that stay");
                let going: Vec<_> = ids.iter().map(|id| (*id, self.truth.header(*id).grant())).collect();
                assert_eq!(parted, going, "messages that are split off");
                let terms = ClaimTerms::stored(u32::from(which), 60);
                let (new, expires) =
                    (ClaimId::new(&mut self.claims), self.now.plus_seconds(u32::from(which)));
                self.truth.set_changing(old, true);
                self.splits.push(PendingSplit { old, new, terms, expires, rest, parted, is_recorded: false });
            }
        }
    }

    /// Makes both claims durable in one commit, if the old one still exists.
    pub(super) fn record_split(&mut self, at: usize) {
        let PendingSplit { old, new, terms, expires, rest, parted, is_recorded } = &mut self.splits[at];
        let Some(record) = self.tree.get_mut(old).filter(|_| !*is_recorded) else { return };
        record.messages = rest.headers.iter().map(|header| (header.id, header.grant())).collect();
        self.tree.insert(*new, Record { terms: *terms, expires: *expires, messages: parted.clone() });
        *is_recorded = true;
    }

    pub(super) fn finish_split_model(&mut self, at: usize) {
        self.record_split(at);
        if !self.splits[at].is_recorded {
            return self.fail_split(at);
        }
        let PendingSplit { old, new, terms, expires, parted, .. } = self.splits.swap_remove(at);
        let over = self.engine.finish_split(old, new, terms, expires, &parted);
        let ids: Vec<MessageId> = parted.iter().map(|(id, _)| *id).collect();
        assert_eq!(over, self.truth.finish_split(old, new, terms, expires, &ids), "claims that have ended");
        self.spent.extend(over);
    }

    /// The commit was certainly not carried out.
    pub(super) fn fail_split(&mut self, at: usize) {
        if !self.splits[at].is_recorded {
            let PendingSplit { old, .. } = self.splits.swap_remove(at);
            self.engine.renew_failed(old);
            self.truth.set_changing(old, false);
        }
    }

    /// The holder of a receipt deletes its message, in any state of the receive.
    pub(super) fn remove_received(&mut self, target: Target) {
        let Some(id) = self.target(target) else { return };
        let known = self.truth.messages.get(&id).filter(|known| known.removals == 0);
        let is_claimed = known.is_some_and(|known| matches!(known.state, MessageState::Claimed(_)));
        let is_changing = known.is_some_and(|known| is_between(known.state));
        if is_claimed || is_changing {
            let answer = self.engine.begin_remove_received(id, self.now).expect("it is not in transfer");
            assert_eq!(answer.is_none(), is_changing, "{id} is claimed or given back just now");
            if is_claimed {
                self.begin_removal(id);
            }
            return;
        }
        // Without a claim it is an ordinary removal.
        self.remove_as(id, None, |engine, now| {
            engine.begin_remove_received(id, now).map(|removal| removal.expect("it is not being changed"))
        });
    }

    /// Checks the validity of receipts, of the last receive and of others.
    pub(super) fn check_receipts(&self) {
        for (id, known) in &self.truth.messages {
            let attempts = known.header.grant();
            let worth = self.engine.worth(*id, attempts, self.now, self.now);
            let is_right = match known.state {
                _ if known.removals > 0 => worth == ReceiptStatus::Removing,
                MessageState::Claimed(claim) => {
                    let lease = &self.truth.claims[&claim];
                    let is_live = lease.ending.is_none() && self.now < lease.expires;
                    worth == if is_live { ReceiptStatus::Holds(claim) } else { ReceiptStatus::Over }
                }
                state if is_between(state) && !self.engine.is_ordered() => worth == ReceiptStatus::Changing,
                MessageState::Taking
                | MessageState::Returning(_)
                | MessageState::Settling(_)
                | MessageState::Returned(_)
                | MessageState::Leaving
                | MessageState::Requeuing(_)
                | MessageState::Waking => worth == ReceiptStatus::Over,
                // It need not be in memory.
                MessageState::Ready | MessageState::Scheduled | MessageState::InTransfer => {
                    matches!(worth, ReceiptStatus::Over | ReceiptStatus::AskPool)
                }
                MessageState::Kept => worth == ReceiptStatus::AskPool,
            };
            assert!(is_right, "a receipt of {id}, which is {:?}, is worth {worth:?}", known.state);
            let before = known.header.created.minus_seconds(1);
            let others =
                [(attempts + 1, self.now), (attempts.saturating_sub(1), self.now), (attempts, before)];
            let is_other = |(n, received): &(u32, _)| *n != attempts || *received < known.header.created;
            for (attempt, received) in others.into_iter().filter(is_other) {
                let of_other = self.engine.worth(*id, attempt, received, self.now);
                if self.engine.is_ordered() {
                    assert!(!matches!(of_other, ReceiptStatus::Holds(_)), "another receive of {id} holds it")
                } else {
                    assert_eq!(of_other, worth, "of a queue without order each receipt is as good")
                }
            }
        }
    }
}

/// Whether a message gets or loses its claim just now.
fn is_between(state: MessageState) -> bool {
    let is_held = matches!(state, MessageState::Claimed(_));
    state == MessageState::Taking || (state.holder().is_some() && !is_held)
}
