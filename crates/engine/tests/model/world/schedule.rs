//! Scheduled messages that become ready, and sweeps of expired ones.

use angarium_core::names::PoolName;
use angarium_storage::{Order, Position};

use super::*;

/// The pool of the queue.
fn swept_pool() -> PoolName {
    PoolName::new("pool").unwrap()
}

impl World {
    pub(super) fn begin_wake(&mut self) {
        if self.engine.begin_wake(self.now) {
            assert!(self.waking.is_none(), "two look for what is due");
            self.waking = Some(Waking::Begun(None));
        }
    }

    /// Reads a page. The engine must track all changes until its wake.
    pub(super) fn read_due(&mut self) {
        let Some(Waking::Begun(after)) = self.waking else { return };
        self.engine.begin_wake_page();
        let page = self.pool.scan(Order::Schedule, Direction::Up, after, 2, 1 << 20);
        self.waking = Some(Waking::Read(after, page));
    }

    /// Wakes the due messages of the page; then the next page is read, if there may be more.
    pub(super) fn wake_page(&mut self) {
        self.read_due();
        if !matches!(self.waking, Some(Waking::Read(..))) {
            return;
        }
        let Some(Waking::Read(after, page)) = self.waking.take() else { return };
        let last = page.messages.last().map(|message| Position::of(&message.header));
        let headers = page.messages.into_iter().map(|message| message.header);
        let (due, later): (Vec<Header>, Vec<Header>) = headers.partition(|header| header.ready <= self.now);
        let is_gone = due.iter().any(|header| !self.pool.entries.contains_key(&header.id));
        self.met.gone_while_due += u32::from(is_gone);
        let Some(ready) = self.engine.wake_page(due.clone(), self.now) else {
            self.waking = Some(Waking::Begun(after));
            return;
        };
        self.check_woken(&due, &ready);
        self.submit_wake(&due, ready);
        self.waking = Some(match later.first() {
            Some(next) => Waking::Done(Some(next.ready)),
            None if page.is_last => Waking::Done(None),
            None => Waking::Begun(last),
        });
    }

    /// Checks that no message is woken that was removed or changed.
    fn check_woken(&self, due: &[Header], ready: &[Header]) {
        for header in due.iter().filter(|header| ready.iter().any(|ready| ready.id == header.id)) {
            assert!(self.pool.entries.contains_key(&header.id), "{} is gone, and woken", header.id);
            if let Some(known) = self.truth.messages.get(&header.id) {
                assert_eq!(
                    (known.removals, known.state),
                    (0, MessageState::Scheduled),
                    "{} is woken",
                    header.id
                );
                assert_eq!(&known.header, header, "it is woken as it was");
            }
        }
    }

    pub(super) fn wake(&mut self, headers: Vec<Header>) {
        let ready = self.engine.wake(headers.clone(), self.now);
        for header in &headers {
            let is_woken = ready.iter().any(|ready| ready.id == header.id);
            let Some(known) = self.truth.messages.get(&header.id) else { continue };
            let is_free = known.removals == 0
                && !self.is_requeuing(header.id)
                && matches!(known.state, MessageState::Scheduled | MessageState::InTransfer);
            assert_eq!(is_woken, is_free, "whether {} is woken", header.id);
        }
        for header in &ready {
            let is_delayed = header.ready > self.now;
            self.met.published_later += u32::from(is_delayed);
            let expected = if is_delayed { State::Scheduled } else { State::Ready };
            assert_eq!(header.state, expected, "the state of {}, which is published", header.id);
        }
        self.submit_wake(&headers, ready);
    }

    fn submit_wake(&mut self, headers: &[Header], ready: Vec<Header>) {
        // A message of an unacknowledged post may be due already.
        for header in &ready {
            if !self.truth.messages.contains_key(&header.id) {
                let before = headers.iter().find(|before| before.id == header.id);
                self.truth.posted(before.expect("it was read").clone());
            }
            self.truth.move_to(header.id, MessageState::Waking);
        }
        if !ready.is_empty() {
            self.waiting.push_back(Change::Wake(ready));
        }
    }

    pub(super) fn settle_wake(&mut self, headers: &[Header], is_durable: bool) {
        let ids: Vec<MessageId> = headers.iter().map(|header| header.id).collect();
        if is_durable {
            self.engine.woken(&ids);
            self.truth.woken(headers);
        } else {
            self.engine.wake_failed(&ids);
            self.truth.stay(&ids);
        }
    }

    /// Ends the wake when all of it is settled.
    pub(super) fn finish_wake(&mut self) {
        let Some(Waking::Done(next)) = self.waking else { return };
        let is_wake = |change: &Change| matches!(change, Change::Wake(_));
        let is_under_way = self.waiting.iter().any(is_wake)
            || self.flight.as_ref().is_some_and(|flight| flight.pending.iter().any(is_wake));
        if !is_under_way {
            self.waking = None;
            self.engine.finish_wake(next);
        }
    }

    pub(super) fn begin_sweep(&mut self) {
        self.engine.begin_sweep(&swept_pool());
        let entries = self.pool.entries.values().map(|message| &message.header);
        let expired = entries.filter(|header| {
            header.is_expired(self.now, self.retention)
                && !matches!(header.state, State::Prepared(_) | State::Moving(_))
        });
        self.sweep = Some(expired.cloned().collect());
    }

    pub(super) fn finish_sweep(&mut self) {
        let Some(expired) = self.sweep.take() else { return };
        let gone = self.engine.finish_sweep(&swept_pool(), expired, self.now);
        for id in &gone {
            if let Some(known) = self.truth.messages.get(id) {
                assert!(
                    known.header.is_expired(self.now, self.retention) && known.removals == 0,
                    "{id} is swept"
                );
                let is_retained = known.header.life.retained_since().is_some();
                let is_free =
                    matches!(known.state, MessageState::Ready | MessageState::Scheduled | MessageState::Kept);
                assert!(
                    is_free || (is_retained && matches!(known.state, MessageState::Claimed(_))),
                    "{id} is swept"
                );
                self.met.swept_claimed += u32::from(!is_free);
            }
            self.truth.begin_remove(*id);
        }
        if !gone.is_empty() {
            self.submit_removal(gone);
        }
    }
}
