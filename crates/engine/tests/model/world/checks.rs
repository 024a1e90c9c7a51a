//! Crashes, the checks after each step, and the drain at the end.

use super::*;

impl World {
    /// Builds the engine from the pool and the records, as the broker does when it opens a queue.
    pub(super) fn crash(&mut self) {
        (self.flight, self.refill) = (None, None);
        self.waiting.clear();
        self.granting.clear();
        self.ending.clear();
        self.splits.clear();
        self.returns.clear();
        self.requeues.clear();
        self.kept_page = None;
        self.spent.clear();
        self.unrecorded.clear();
        (self.waking, self.sweep) = (None, None);
        self.departing.clear();
        (self.line, self.turns) = (WaitLines::default(), Vec::new());
        let totals = self.pool.totals();
        let found = StoredTotals {
            tail: self.last_id,
            has_ready: totals.ready() > 0,
            is_scheduled: totals.scheduled > 0,
            has_aside: totals.in_transfer > 0,
        };
        self.reads.clear();
        self.engine = self.opened(found);
        self.follow_holds();
        if totals.kept > 0 {
            self.engine.expect_kept();
        }
        self.restore_dedup_ids();
        self.truth = Truth::default();
        for message in self.pool.entries.values() {
            self.truth.posted(message.header.clone());
        }
        for claim in self.tree.keys().copied().collect::<Vec<_>>() {
            self.restore_claim(claim);
        }
    }

    /// Restores a claim from its record: it holds those messages that it did not lose by a settle.
    fn restore_claim(&mut self, claim: ClaimId) {
        let Record { terms, expires, messages } = &self.tree[&claim];
        let (mut headers, mut held) = (Vec::new(), Vec::new());
        for (id, attempt) in messages {
            let Some(header) = self.pool.entries.get(id).map(|entry| &entry.header) else { continue };
            headers.push((header.clone(), *attempt));
            let is_here = matches!(header.state, State::Ready | State::Scheduled);
            if is_here && header.grant() <= *attempt {
                held.push((*id, *attempt));
            }
            self.met.stale_records += u32::from(is_here && header.grant() > *attempt);
        }
        let ids: Vec<MessageId> = held.iter().map(|(id, _)| *id).collect();
        if !ids.is_empty() {
            self.truth.grant(claim, *terms, *expires, &ids);
            self.truth.claims.get_mut(&claim).expect("it was granted").may_be_settled = true;
        }
        for (id, attempt) in held {
            let known = self.truth.messages.get_mut(&id).expect("the pool has it");
            known.header.set_grant(attempt);
            known.header.state = State::Ready;
        }
        let ended = self.engine.restore_claim(claim, *terms, *expires, headers);
        assert_eq!(ended.is_empty(), !ids.is_empty(), "whether the claim {claim} has ended");
        self.engine.note_holder(claim, Some(holder()));
        self.spent.extend(ended);
    }

    /// Checks that the engine knows which claimed messages the pool stores as scheduled, unless they are just changing.
    fn check_claimed_counts(&self) {
        if self.flight.is_some() || !self.ending.is_empty() {
            return;
        }
        let is_scheduled = |id: &MessageId| {
            self.pool.entries.get(id).is_some_and(|message| message.header.state == State::Scheduled)
        };
        let claimed = self.truth.messages.iter().filter(|(_, known)| known.state.holder().is_some());
        let scheduled = claimed.filter(|(id, _)| is_scheduled(id)).count();
        assert_eq!(
            self.engine.claimed_counts().scheduled,
            scheduled as u64,
            "claimed and scheduled in the pool"
        );
    }

    /// Checks the invariants after a step.
    pub fn check(&self) {
        self.check_line();
        self.check_receipts();
        self.check_dedup_ids();
        self.check_recalls();
        if self.engine.is_known_empty() && self.waiting.is_empty() && self.flight.is_none() {
            assert!(self.pool.entries.is_empty(), "the pool has messages");
        }
        let is_claimed = |state: MessageState| state == MessageState::Taking || state.holder().is_some();
        let claimed = self.truth.messages.values().filter(|known| is_claimed(known.state)).count();
        assert_eq!(self.engine.claimed(), claimed as u64, "claimed");
        self.check_claimed_counts();
        let mut entries = self.pool.entries.values().map(|message| &message.header);
        if let Some(Header { id: oldest, .. }) = entries.find(|header| header.state == State::Ready) {
            assert!(self.engine.low() <= *oldest, "{} is above {oldest}", self.engine.low());
            assert!(self.low <= *oldest, "the pool's hint {} is above {oldest}", self.low);
        }
        for (claim, lease) in &self.truth.claims {
            let is_due = lease.is_settled() && lease.expires <= self.now;
            assert_eq!(self.engine.is_due(*claim, self.now), is_due, "whether the claim is due");
        }
        for (id, known) in &self.truth.messages {
            let expected = match known.state {
                MessageState::Claimed(claim)
                | MessageState::Settling(claim)
                | MessageState::Returning(claim)
                | MessageState::Returned(claim) => Some((claim, known.header.clone())),
                MessageState::Ready | MessageState::Scheduled | MessageState::Waking => None,
                MessageState::Taking | MessageState::Leaving | MessageState::InTransfer => None,
                MessageState::Kept | MessageState::Requeuing(_) => None,
            };
            assert_eq!(self.engine.hold(*id), expected, "the holder of {id}");
            if known.removals == 0 && !self.departing.contains(id) {
                self.check_durable(&known.header, known.state);
            }
        }
    }

    /// Checks that a crash at this moment would lose nothing that was acknowledged.
    pub(super) fn check_durable(&self, header: &Header, state: MessageState) {
        let id = header.id;
        let entry = self.pool.entries.get(&id).map(|entry| &entry.header);
        let is_leaving = matches!(state, MessageState::Settling(_));
        assert!(entry.is_some() || is_leaving, "the pool has a message without removal");
        let named = |record: &Record| record.messages.iter().find(|(of, _)| *of == id).map(|(_, n)| *n);
        let is_restored = |record: &Record| named(record).is_some_and(|attempt| attempt >= header.grant());
        match state {
            MessageState::Ready | MessageState::Scheduled => {
                assert_eq!(entry, Some(header), "the stored header of a free message");
                assert!(!self.tree.values().any(is_restored), "a free message is under a record");
            }
            MessageState::InTransfer | MessageState::Kept => {
                assert_eq!(entry, Some(header), "the stored header");
            }
            MessageState::Returned(claim) => {
                assert_eq!(entry, Some(header), "the stored header of a settled message");
                let is_out = self.returns.iter().any(|returns| returns.has_taken_out(id));
                self.check_record(claim, id, (!is_out).then_some(header.grant()));
            }
            MessageState::Claimed(claim) if self.truth.claims[&claim].ending.is_none() => {
                let claim = self.splits.iter().find_map(|split| split.recorded(id)).unwrap_or(claim);
                self.check_record(claim, id, Some(header.grant()));
            }
            MessageState::Settling(claim) => self.check_record(claim, id, Some(header.grant())),
            MessageState::Taking | MessageState::Claimed(_) | MessageState::Returning(_) => {}
            MessageState::Waking | MessageState::Leaving | MessageState::Requeuing(_) => {}
        }
    }

    /// Checks the number under which the record of a claim names a message; none: not at all.
    fn check_record(&self, claim: ClaimId, id: MessageId, expected: Option<u32>) {
        if self.unrecorded.contains(&claim) {
            return;
        }
        let messages = self.tree.get(&claim).map(|record| &record.messages[..]).unwrap_or_default();
        let named = messages.iter().find(|(of, _)| *of == id).map(|(_, attempt)| *attempt);
        assert_eq!(named, expected, "{id} in the record of its claim");
    }

    /// Finishes all operations in progress, then takes all messages: exactly the ready ones, in order.
    pub fn drain(&mut self) {
        (self.line, self.turns) = (WaitLines::default(), Vec::new());
        self.finish_refill();
        self.flush();
        self.release_all();
        while self.engine.is_waking(self.now) {
            self.begin_wake();
            self.flush();
        }
        let (now, retention) = (self.now, self.retention);
        let is_due = |header: &Header| header.state == State::Scheduled && header.ready <= now;
        assert!(self.truth.messages.values().all(|known| !is_due(&known.header)), "due, and not ready");
        if self.bounds.is_some() {
            return self.drain_groups();
        }
        let ready = self.truth.ready().into_iter().filter(|header| !header.is_expired(now, retention));
        let expected: Vec<MessageId> =
            ready.filter(|header| header.attempts < MAX_CLAIMS).map(|header| header.id).collect();
        let mut drained = Vec::new();
        for _ in 0..ROUNDS {
            let taken = self.take(3);
            drained.extend(taken.messages.iter().map(|(header, _)| header.id));
            if taken.is_empty() && !self.engine.has_more() {
                assert_eq!(drained, expected);
                return self.check_swept();
            }
            self.begin_refill();
            assert!(!taken.is_empty() || self.refill.is_some(), "an empty ready cache is not refilled");
            self.finish_refill();
            self.flush();
            self.check();
        }
        panic!("the queue is never whole");
    }

    /// Checks that a sweep removes all expired messages except those in transfer and those under a claim; of the latter
    /// only messages that have a life of their own, or whose claim has expired too.
    pub(super) fn check_swept(&mut self) {
        self.begin_sweep();
        self.finish_sweep();
        self.flush();
        for known in
            self.truth.messages.values().filter(|known| known.header.is_expired(self.now, self.retention))
        {
            let is_own = known.header.life.retained_since().is_none();
            let is_over = |claim| self.truth.claims.get(&claim).is_none_or(|lease| lease.expires <= self.now);
            let is_kept = match known.state {
                MessageState::Claimed(claim) => is_own || is_over(claim),
                state => state == MessageState::InTransfer,
            };
            assert!(is_kept, "{} has expired and stays", known.header.id);
        }
    }

    pub(super) fn flush(&mut self) {
        while self.flight.is_some() || !self.waiting.is_empty() {
            self.send();
            self.apply();
            self.settle();
        }
        while !self.granting.is_empty() {
            self.grant(0);
        }
        while !self.ending.is_empty() {
            self.finish_end(0);
        }
        while !self.splits.is_empty() {
            self.finish_split_model(0);
        }
        self.flush_returns();
        while !self.requeues.is_empty() {
            self.read_requeued(0);
        }
        while matches!(self.waking, Some(Waking::Begun(_) | Waking::Read(..))) {
            self.wake_page();
        }
        while self.flight.is_some() || !self.waiting.is_empty() {
            self.send();
            self.apply();
            self.settle();
        }
        self.finish_wake();
        self.clear_spent();
    }
}
