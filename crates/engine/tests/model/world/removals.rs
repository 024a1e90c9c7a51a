//! Removals, under any claim, and pages that are read from the pool.

use angarium_core::claim::Holdings;
use angarium_storage::{Order, Position};

use super::*;

impl World {
    pub(super) fn remove(&mut self, target: Target, named: Deleter) {
        let Some(id) = self.target(target) else { return };
        let claim = self.named(id, named);
        self.remove_as(id, claim, |engine, now| engine.begin_remove(id, claim, now));
    }

    /// Begins a removal for the holder of `claim`; the engine must decide by the table.
    pub(super) fn remove_as(
        &mut self,
        id: MessageId,
        claim: Option<ClaimId>,
        begin: impl FnOnce(&mut QueueEngine, Timestamp) -> Result<Removal, Error>,
    ) {
        let verdict = match self.truth.judge(id, claim, self.now) {
            Verdict::AskPool if self.pool.entries.contains_key(&id) => Verdict::Free,
            Verdict::AskPool => Verdict::Begun,
            verdict => verdict,
        };
        let mut answer = begin(&mut self.engine, self.now);
        if let Ok(Removal::AskPool(asked)) = answer {
            let entry = self.pool.entries.get(&id);
            let answered =
                entry.map_or(LookupResult::Absent, |entry| LookupResult::There(&entry.header.state));
            answer = self.engine.begin_remove_after_lookup(id, claim, asked, answered, self.now);
        }
        let is_right = match (&answer, verdict) {
            // It has left for the other queue, and the engine was not told yet.
            (Ok(Removal::Begun), Verdict::InTransfer) => !self.pool.entries.contains_key(&id),
            (Ok(Removal::Begun), verdict) => verdict == Verdict::Begun,
            (Err(Error::NotClaimed(of)), Verdict::Free) => *of == id,
            (Err(Error::Claimed(of)), Verdict::Claimed) => *of == id,
            (Err(Error::ClaimEnded(_)), Verdict::ClaimEnded) => true,
            (Err(Error::Busy(_)), Verdict::InTransfer | Verdict::Changing) => true,
            (Err(Error::Gone(of)), Verdict::Recalled) => *of == id,
            (Ok(Removal::AskPool(_)) | Err(_), _) => false,
        };
        assert!(is_right, "{answer:?} for {id}, and not {verdict:?}");
        if answer.is_ok() {
            self.begin_removal(id);
        }
    }

    pub(super) fn begin_removal(&mut self, id: MessageId) {
        self.truth.begin_remove(id);
        self.submit_removal(vec![id]);
    }

    pub(super) fn target(&self, target: Target) -> Option<MessageId> {
        match target {
            Target::Known(number) => {
                let known: Vec<MessageId> = self.truth.messages.keys().copied().collect();
                nth(&known, number).map(|at| known[at])
            }
            Target::Unanswered(number) => {
                let is_unanswered = |message: &&Message| {
                    let header = &message.header;
                    // Clients never see prepared messages.
                    MessageState::of(&header.state) != MessageState::InTransfer
                        && !self.truth.messages.contains_key(&header.id)
                };
                let listed: Vec<&Message> = self.pool.entries.values().filter(is_unanswered).collect();
                nth(&listed, number).map(|at| listed[at].header.id)
            }
            Target::Kept(number) => {
                let known = self.truth.messages.values();
                let kept = known.filter(|known| known.header.state.is_kept()).map(|known| known.header.id);
                let kept: Vec<MessageId> = kept.collect();
                nth(&kept, number).map(|at| kept[at])
            }
            Target::Gone(number) => nth(&self.gone, number).map(|at| self.gone[at]),
            Target::Never => Some(MessageId::from_bytes([1; 16])),
        }
    }

    pub(super) fn named(&mut self, id: MessageId, named: Deleter) -> Option<ClaimId> {
        match named {
            Deleter::NoClaim => None,
            Deleter::Holder => self.truth.messages.get(&id)?.state.holder(),
            Deleter::Other(number) => {
                let claims: Vec<ClaimId> = self.truth.claims.keys().copied().collect();
                nth(&claims, number).map(|at| claims[at])
            }
            Deleter::UnknownClaim => Some(ClaimId::new(&mut self.claims)),
        }
    }
}

/// Removals of many messages at once.
impl World {
    /// Purges all messages of the pool; messages that are being claimed, released or transferred stay.
    pub(super) fn purge(&mut self) {
        let headers = self.pool.entries.values().map(|message| &message.header);
        let is_here = |header: &&Header| !matches!(header.state, State::Prepared(_) | State::Moving(_));
        let ids: Vec<MessageId> = headers.filter(is_here).map(|header| header.id).collect();
        let begun = self.engine.begin_purge(&ids);
        for id in &ids {
            let known = self.truth.messages.get(id).filter(|known| known.removals == 0);
            let is_changing = known.is_some_and(|known| match known.state {
                MessageState::Taking | MessageState::Waking | MessageState::Leaving => true,
                MessageState::Requeuing(_) => true,
                MessageState::Returning(_) | MessageState::Settling(_) | MessageState::Returned(_) => true,
                MessageState::Ready | MessageState::Scheduled | MessageState::Claimed(_) => false,
                MessageState::InTransfer | MessageState::Kept => false,
            }) || self.truth.requeued_unknown.contains_key(id);
            assert!(!(is_changing && begun.contains(id)), "{id} is purged while it changes");
            assert!(is_changing || begun.contains(id), "{id} is not purged");
        }
        self.begin_removals(begun);
    }

    pub(super) fn remove_all(&mut self, which: u8) {
        let known = self.truth.messages.keys().enumerate();
        let ids: Vec<MessageId> =
            known.filter(|(at, _)| which >> (at % 8) & 1 == 1).map(|(_, id)| *id).take(5).collect();
        let claims: Vec<ClaimId> = self.truth.claims.keys().copied().collect();
        let mut answer = self.engine.begin_remove_all(&ids, Holdings::of_claims(&claims), None, self.now);
        if let Ok(Removal::AskPool(asked)) = answer {
            let is_moving = |state: &State| matches!(state, State::Prepared(_) | State::Moving(_));
            if self.pool.get(&ids).iter().any(|message| is_moving(&message.header.state)) {
                return;
            }
            answer = self.engine.begin_remove_all(&ids, Holdings::of_claims(&claims), Some(asked), self.now);
        }
        if matches!(answer, Ok(Removal::Begun)) {
            self.begin_removals(ids);
        }
    }

    pub(super) fn begin_removals(&mut self, ids: Vec<MessageId>) {
        ids.iter().for_each(|id| self.truth.begin_remove(*id));
        if !ids.is_empty() {
            self.submit_removal(ids);
        }
    }
}

/// Pages that are read from the pool.
impl World {
    pub(super) fn begin_refill(&mut self) {
        if let Some(read) = self.engine.begin_group_read() {
            self.reads.push_back((read, None));
        }
        if let Some(refill) = self.engine.begin_refill() {
            assert!(self.refill.is_none(), "two pages are read at once");
            self.refill = Some((refill, None));
        }
    }

    pub(super) fn read_page(&mut self, limit: usize) {
        self.read_groups(limit);
        if let Some((refill, page @ None)) = &mut self.refill {
            let after = Some(refill.after).filter(|after| *after > MessageId::ZERO);
            *page =
                Some(self.pool.scan(Order::Ready, Direction::Up, after.map(Position::id), limit, 1 << 20));
        }
    }

    pub(super) fn finish_refill(&mut self) {
        self.read_page(1_024);
        self.finish_groups();
        if let Some((refill, Some(page))) = self.refill.take() {
            self.engine.finish_refill(refill, page.messages, page.is_last);
        }
    }

    pub(super) fn fail_refill(&mut self) {
        if let Some((read, _)) = self.reads.pop_front() {
            self.engine.group_read_failed(&read);
        }
        if self.refill.take().is_some() {
            self.engine.refill_failed();
        }
    }
}
