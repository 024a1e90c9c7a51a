//! Crashes, what holds after each step, and the drain at the end.

use super::*;

impl World {
    /// Builds the engine again from the pool and the records, as the broker does when it opens a queue.
    pub(super) fn crash(&mut self) {
        (self.flight, self.refill) = (None, None);
        self.waiting.clear();
        self.granting.clear();
        self.ending.clear();
        self.spent.clear();
        self.engine = QueueEngine::open(self.last_id);
        self.truth = Truth::default();
        for message in self.pool.entries.values() {
            self.truth.posted(message.header.clone());
        }
        for (claim, record) in &self.tree {
            let ids: Vec<MessageId> = record.messages.iter().map(|(id, _)| *id).collect();
            let found: Vec<Header> = self.pool.get(&ids).into_iter().map(|message| message.header).collect();
            if found.is_empty() {
                self.spent.push(*claim);
                continue;
            }
            let ids: Vec<MessageId> = found.iter().map(|header| header.id).collect();
            self.truth.grant(*claim, terms(), record.expires, &ids);
            let mut headers = Vec::new();
            for header in found {
                let attempt = record.messages.iter().find(|(id, _)| *id == header.id).map_or(0, |(_, n)| *n);
                let known = self.truth.messages.get_mut(&header.id).expect("the pool has it");
                known.header.attempts = header.attempts.max(attempt);
                headers.push((header, attempt));
            }
            self.engine.restore_claim(*claim, terms(), record.expires, headers);
        }
    }

    /// What holds after each step.
    pub fn check(&self) {
        let hidden = |place| !matches!(place, Place::Ready);
        let claimed = self.truth.messages.values().filter(|known| hidden(known.place)).count();
        assert_eq!(self.engine.claimed(), claimed as u64, "claimed");
        if let Some(oldest) = self.pool.entries.keys().next() {
            assert!(self.engine.low() <= *oldest, "{} is above {oldest}", self.engine.low());
            assert!(self.low <= *oldest, "the pool's hint {} is above {oldest}", self.low);
        }
        for (claim, lease) in &self.truth.claims {
            let is_due = !lease.is_ending && lease.expires <= self.now;
            assert_eq!(self.engine.is_due(*claim, self.now), is_due, "whether the claim is due");
        }
        for (id, known) in &self.truth.messages {
            let expected = match known.place {
                Place::Claimed(claim) => Some((claim, known.header.clone())),
                Place::Ready | Place::Taking | Place::Returning(_) => None,
            };
            assert_eq!(self.engine.hold(*id), expected, "who holds {id}");
            if known.removals == 0 {
                self.check_durable(&known.header, known.place);
            }
        }
    }

    /// A crash now would lose nothing that anybody was told.
    pub(super) fn check_durable(&self, header: &Header, place: Place) {
        let entry = self.pool.entries.get(&header.id).expect("the pool has what nobody removes");
        let named =
            |record: &Record| record.messages.iter().find(|(id, _)| *id == header.id).map(|(_, n)| *n);
        match place {
            Place::Ready => {
                assert_eq!(&entry.header, header, "the stored header of a ready message");
                assert!(!self.tree.values().any(|r| named(r).is_some()), "a ready message is under a record");
            }
            Place::Claimed(claim) if !self.truth.claims[&claim].is_ending => {
                assert_eq!(self.tree.get(&claim).and_then(named), Some(header.attempts), "its record");
            }
            Place::Taking | Place::Claimed(_) | Place::Returning(_) => {}
        }
    }

    /// Lets everything under way come to its end, then takes all there is: exactly what is ready, in order.
    pub fn drain(&mut self) {
        self.finish_refill();
        self.flush();
        let now = self.now;
        let ready = self.truth.ready().into_iter().filter(|header| !header.is_expired(now));
        let expected: Vec<MessageId> = ready.map(|header| header.id).collect();
        let mut drained = Vec::new();
        for _ in 0..ROUNDS {
            let taken = self.take(3);
            drained.extend(taken.messages.iter().map(|(header, _)| header.id));
            let is_empty = taken.messages.is_empty() && taken.expired.is_empty();
            if is_empty && !self.engine.has_more() {
                assert_eq!(drained, expected);
                return;
            }
            self.begin_refill();
            assert!(!is_empty || self.refill.is_some(), "an empty window is not filled");
            self.finish_refill();
            self.flush();
            self.check();
        }
        panic!("the queue is never whole");
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
        self.clear_spent();
    }
}
