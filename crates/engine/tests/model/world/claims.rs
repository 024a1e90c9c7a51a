//! Claims: take, grant and end, as the broker does them.

use super::*;

impl World {
    /// Takes messages, and checks that they are the oldest ready ones, without a gap.
    pub(super) fn take(&mut self, limit: usize) -> ClaimSelection {
        if self.bounds.is_some() {
            return self.take_of_groups(limit);
        }
        let ready: Vec<Header> = self.truth.ready().into_iter().cloned().collect();
        let taken = self.engine.take(limit, self.now);
        let (mut messages, mut expired, mut dead) =
            (taken.messages.iter(), taken.expired.iter(), taken.dead.iter());
        let mut withheld = taken.withheld.iter();
        let count = messages.len() + expired.len() + dead.len() + withheld.len();
        assert!(count <= ready.len(), "{count} taken of {} that are ready", ready.len());
        for header in &ready[..count] {
            if header.is_expired(self.now, self.retention) {
                assert_eq!(expired.next(), Some(&header.id));
                continue;
            }
            if let Some(hold) = self.hold_of(header.group.as_ref()) {
                assert_eq!(withheld.next(), Some(&header.clone().withhold(hold)));
                continue;
            }
            if header.attempts >= MAX_CLAIMS {
                assert_eq!(dead.next(), Some(header));
                continue;
            }
            let (found, body) = messages.next().expect("no hole among the taken");
            assert_eq!(found, header);
            let stored = &self.pool.entries.get(&header.id).expect("the pool has what is taken").body;
            assert!(body.as_ref().is_none_or(|body| body == stored), "the body of another message");
        }
        let is_all = count == ready.len() || self.engine.has_more() || taken.messages.len() == limit;
        assert!(is_all, "{count} taken of {}, and the engine has no more", ready.len());
        self.hide_taken(&taken);
        taken
    }

    pub(super) fn hide_taken(&mut self, taken: &ClaimSelection) {
        let ids: Vec<MessageId> = taken.messages.iter().map(|(header, _)| header.id).collect();
        ids.iter().for_each(|id| self.truth.move_to(*id, MessageState::Taking));
        if !ids.is_empty() {
            let id = ClaimId::new(&mut self.claims);
            self.granting.push(Granting { id, ids, recorded: None });
        }
        if !taken.expired.is_empty() {
            taken.expired.iter().for_each(|id| self.truth.begin_remove(*id));
            self.submit_removal(taken.expired.clone());
        }
        if !taken.dead.is_empty() {
            taken.dead.iter().for_each(|header| self.truth.move_to(header.id, MessageState::Leaving));
            self.mark_in_transfer(&taken.dead);
        }
        for header in &taken.withheld {
            self.truth.begin_requeue(header.id);
            self.truth.requeue_read(header.id);
            self.waiting.push_back(Change::Requeue(header.clone()));
        }
    }

    pub(super) fn record(&mut self, at: usize) {
        let granting = &mut self.granting[at];
        if granting.recorded.is_some() {
            return;
        }
        let expires = self.now.plus_seconds(terms().ttl());
        granting.recorded = Some(expires);
        let attempt = |id: &MessageId| (*id, self.truth.header(*id).grant() + 1);
        let messages = granting.ids.iter().map(attempt).collect();
        self.tree.insert(granting.id, Record { terms: terms(), expires, messages });
    }

    pub(super) fn grant(&mut self, at: usize) {
        self.record(at);
        let Granting { id, ids, recorded } = self.granting.swap_remove(at);
        let expires = recorded.expect("it was recorded");
        let headers = self.engine.grant(id, terms(), expires, &ids);
        self.engine.note_holder(id, Some(holder()));
        self.truth.grant(id, terms(), expires, &ids);
        let expected: Vec<&Header> = ids.iter().map(|id| self.truth.header(*id)).collect();
        assert_eq!(headers.iter().collect::<Vec<_>>(), expected, "the headers for the claim's holder");
    }

    pub(super) fn put_back(&mut self, at: usize) {
        if self.granting[at].recorded.is_some() {
            return;
        }
        let Granting { ids, .. } = self.granting.swap_remove(at);
        self.engine.put_back(&ids);
        ids.iter().for_each(|id| self.truth.move_to(*id, MessageState::Ready));
    }

    pub(super) fn end(&mut self, number: u8, ending: Release) {
        let claims: Vec<ClaimId> = self.truth.claims.keys().copied().collect();
        let Some(at) = nth(&claims, number) else { return };
        let claim = claims[at];
        let Some(ended) = self.engine.begin_release(claim, ending) else {
            let lease = &self.truth.claims[&claim];
            return assert!(!lease.is_settled(), "a live claim can be ended");
        };
        assert!(self.truth.claims[&claim].is_settled(), "a claim is ended once at a time");
        for header in &ended.headers {
            let expected = self.truth.claims[&claim].returned(self.truth.header(header.id), ending);
            assert_eq!(header, &expected, "the stored header of a returning message");
        }
        self.truth.begin_release(claim, ending);
        if ended.headers.is_empty() {
            return self.ending.push((claim, Stage::HeadersDurable));
        }
        self.ending.push((claim, Stage::Pending));
        self.waiting.push_back(Change::Return(claim, ended.headers));
    }

    pub(super) fn set_stage(&mut self, claim: ClaimId, to: Stage) {
        for (_, stage) in self.ending.iter_mut().filter(|(ending, _)| *ending == claim) {
            *stage = to;
        }
    }

    pub(super) fn unrecord(&mut self, at: usize) {
        let (claim, stage) = self.ending[at];
        if stage == Stage::HeadersDurable {
            self.tree.remove(&claim);
            self.set_stage(claim, Stage::Unrecorded);
        }
    }

    pub(super) fn finish_end(&mut self, at: usize) {
        self.unrecord(at);
        if self.ending[at].1 == Stage::Unrecorded {
            let (claim, _) = self.ending.swap_remove(at);
            self.unrecorded.remove(&claim);
            self.engine.finish_release(claim);
            self.truth.finish_release(claim);
        }
    }

    pub(super) fn fail_end(&mut self, at: usize) {
        if self.ending[at].1 == Stage::HeadersDurable {
            self.release_failed(self.ending[at].0, EndedHeaders::Written);
        }
    }

    /// The record is deleted, but its owner does not learn it: the claim continues until it is ended again.
    pub(super) fn lose_end(&mut self, at: usize) {
        let (claim, stage) = self.ending[at];
        if stage == Stage::HeadersDurable {
            self.tree.remove(&claim);
            self.unrecorded.insert(claim);
            self.met.records_lost += 1;
            self.release_failed(claim, EndedHeaders::Written);
        }
    }

    pub(super) fn release_failed(&mut self, claim: ClaimId, headers: EndedHeaders) {
        self.ending.retain(|(ending, _)| *ending != claim);
        self.engine.release_failed(claim, headers);
        self.truth.release_failed(claim);
    }
}
