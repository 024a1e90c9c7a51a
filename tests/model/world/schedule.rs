//! Scheduled messages that become ready, and sweeps of expired ones.

use angarium::storage::{Order, Position};

use super::*;

impl World {
    pub(super) fn begin_wake(&mut self) {
        if self.engine.begin_wake(self.now) {
            assert!(self.waking.is_none(), "two look for what is due");
            self.waking = Some(Waking::Begun);
        }
    }

    /// All that is due, page by page, as the broker reads it.
    pub(super) fn read_wake(&mut self) {
        if self.waking != Some(Waking::Begun) {
            return;
        }
        let mut after = None;
        let next = loop {
            let page = self.pool.scan(Order::Schedule, Direction::Up, after, 2, 1 << 20);
            after = page.messages.last().map(|message| Position::of(&message.header));
            let headers = page.messages.into_iter().map(|message| message.header);
            let (due, later): (Vec<Header>, Vec<Header>) =
                headers.partition(|header| header.ready <= self.now);
            self.wake(due);
            if let Some(next) = later.first() {
                break Some(next.ready);
            }
            if page.is_last {
                break None;
            }
        };
        self.waking = Some(Waking::Read(next));
    }

    pub(super) fn wake(&mut self, headers: Vec<Header>) {
        let ready = self.engine.wake(headers.clone());
        for header in &headers {
            let is_woken = ready.iter().any(|ready| ready.id == header.id);
            let Some(known) = self.truth.messages.get(&header.id) else { continue };
            let is_free = known.removals == 0 && matches!(known.place, Place::Scheduled | Place::Aside);
            assert_eq!(is_woken, is_free, "whether {} is woken", header.id);
        }
        // A post that is durable and not answered may be due already.
        for header in &ready {
            if !self.truth.messages.contains_key(&header.id) {
                let before = headers.iter().find(|before| before.id == header.id);
                self.truth.posted(before.expect("it was read").clone());
            }
            self.truth.move_to(header.id, Place::Waking);
        }
        if !ready.is_empty() {
            self.waiting.push_back(Change::Wake(ready));
        }
    }

    pub(super) fn settle_wake(&mut self, headers: &[Header], is_durable: bool) {
        let ids: Vec<MessageId> = headers.iter().map(|header| header.id).collect();
        if is_durable {
            self.engine.woken(&ids);
            self.truth.woken(&ids);
        } else {
            self.engine.wake_failed(&ids);
            self.truth.stay(&ids);
        }
    }

    /// As soon as all of it is settled.
    pub(super) fn finish_wake(&mut self) {
        let Some(Waking::Read(next)) = self.waking else { return };
        let is_wake = |change: &Change| matches!(change, Change::Wake(_));
        let is_under_way = self.waiting.iter().any(is_wake)
            || self.flight.as_ref().is_some_and(|flight| flight.works.iter().any(is_wake));
        if !is_under_way {
            self.waking = None;
            self.engine.finish_wake(next);
        }
    }

    pub(super) fn begin_sweep(&mut self) {
        self.engine.begin_sweep();
        let entries = self.pool.entries.values().map(|message| &message.header);
        let expired = entries.filter(|header| {
            header.is_expired(self.now) && !matches!(header.state, State::Prepared(_) | State::Moving(_))
        });
        self.sweep = Some(expired.cloned().collect());
    }

    pub(super) fn finish_sweep(&mut self) {
        let Some(expired) = self.sweep.take() else { return };
        let gone = self.engine.finish_sweep(expired, self.now);
        for id in &gone {
            if let Some(known) = self.truth.messages.get(id) {
                assert!(known.header.is_expired(self.now) && known.removals == 0, "{id} is swept");
                assert!(matches!(known.place, Place::Ready | Place::Scheduled), "{id} is swept");
            }
            self.truth.begin_remove(*id);
        }
        if !gone.is_empty() {
            self.submit_removal(gone);
        }
    }
}
