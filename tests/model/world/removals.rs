//! Removals, by whoever names whichever claim, and the pages read from the pool.

use angarium::storage::{Order, Position};

use super::*;

impl World {
    pub(super) fn remove(&mut self, target: Target, named: Named) {
        let Some(id) = self.target(target) else { return };
        let claim = self.named(id, named);
        let verdict = self.truth.judge(id, claim, self.now);
        let answer = self.engine.begin_remove(id, claim, self.now);
        let is_right = match (&answer, verdict) {
            (Ok(Removal::Begun), verdict) => verdict == Verdict::Begun,
            (Ok(Removal::AskPool), Verdict::AskPool | Verdict::Free) => true,
            (Err(Error::NotClaimed(of)), Verdict::Free) => *of == id,
            (Err(Error::Claimed(of)), Verdict::Claimed) => *of == id,
            (Err(Error::ClaimEnded(_)), Verdict::ClaimEnded) => true,
            (Ok(Removal::AskPool) | Err(_), _) => false,
        };
        assert!(is_right, "{answer:?} for {id}, and not {verdict:?}");
        match answer {
            Ok(Removal::Begun) => {}
            Ok(Removal::AskPool) if self.pool.entries.contains_key(&id) => return,
            Ok(Removal::AskPool) => self.engine.begin_remove_absent(id),
            Err(_) => return,
        }
        self.truth.begin_remove(id);
        self.waiting.push_back(Change::Remove(vec![id]));
    }

    pub(super) fn target(&self, target: Target) -> Option<MessageId> {
        match target {
            Target::Known(number) => {
                let known: Vec<MessageId> = self.truth.messages.keys().copied().collect();
                nth(&known, number).map(|at| known[at])
            }
            Target::Unanswered(number) => {
                let is_unanswered = |id: &&MessageId| !self.truth.messages.contains_key(id);
                let listed: Vec<&MessageId> = self.pool.entries.keys().filter(is_unanswered).collect();
                nth(&listed, number).map(|at| *listed[at])
            }
            Target::Gone(number) => nth(&self.gone, number).map(|at| self.gone[at]),
            Target::Never => Some(MessageId::from_bytes([1; 16])),
        }
    }

    pub(super) fn named(&mut self, id: MessageId, named: Named) -> Option<ClaimId> {
        match named {
            Named::Nobody => None,
            Named::Holder => match self.truth.messages.get(&id)?.place {
                Place::Claimed(claim) | Place::Returning(claim) => Some(claim),
                Place::Ready | Place::Taking => None,
            },
            Named::Other(number) => {
                let claims: Vec<ClaimId> = self.truth.claims.keys().copied().collect();
                nth(&claims, number).map(|at| claims[at])
            }
            Named::Stranger => Some(ClaimId::new(&mut self.claims)),
        }
    }
}

/// Pages.
impl World {
    pub(super) fn begin_refill(&mut self) {
        if let Some(refill) = self.engine.begin_refill() {
            assert!(self.refill.is_none(), "two pages are read at once");
            self.refill = Some((refill, None));
        }
    }

    pub(super) fn read_page(&mut self, limit: usize) {
        if let Some((refill, page @ None)) = &mut self.refill {
            let after = Some(refill.after).filter(|after| *after > MessageId::ZERO);
            *page =
                Some(self.pool.scan(Order::Ready, Direction::Up, after.map(Position::id), limit, 1 << 20));
        }
    }

    pub(super) fn finish_refill(&mut self) {
        self.read_page(1_024);
        if let Some((refill, Some(page))) = self.refill.take() {
            self.engine.finish_refill(refill, page.messages, page.is_last);
        }
    }

    pub(super) fn fail_refill(&mut self) {
        if self.refill.take().is_some() {
            self.engine.refill_failed();
        }
    }
}
