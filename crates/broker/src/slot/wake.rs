//! Wakes scheduled messages: they become ready in time, whether a caller claims them or not.
//!
//! Due messages are written as ready in the pool before they are shown, so after a restart in between the write is only
//! repeated. A queue that was not opened since its slot was acquired is opened by [`crate::counting::background`] when
//! its earliest message is due.

use std::cmp::Reverse;
use std::sync::Arc;

use angarium_core::error::Error;
use angarium_core::message::Header;
use angarium_core::names::QueueRef;
use angarium_core::time::Timestamp;
use angarium_storage::{Direction, Order, Position};

use crate::limits;
use crate::slot::locked::LockedSlot;
use crate::slot::queue_handle::QueueHandle;
use crate::slot::state::{OpenQueue, Slot, SlotState};
use crate::stores::queue_store::{PageBound, QueueStore};
use crate::writer::change as changes;
use crate::writer::change::Change;
use crate::writer::pending::{WriteOutcome, settled};

impl SlotState {
    /// Records when a queue's scheduled messages must be examined, if that is sooner than recorded before.
    pub(crate) fn note_wake(&mut self, at: &QueueRef) {
        let Some(queue) = self.queues.get_mut(at) else { return };
        let Some(wakes) = queue.engine.wakes_at() else { return };
        if queue.wakes_at.is_none_or(|noted| wakes < noted) {
            queue.wakes_at = Some(wakes);
            self.alarms.schedule.set(wakes);
            self.wakes.push(Reverse((wakes, at.clone())));
        }
    }

    /// Records when the earliest scheduled message of a closed queue is due.
    pub(crate) fn note_closed_wake(&mut self, at: &QueueRef, due: Timestamp) {
        self.alarms.schedule.set(due);
        self.wakes.push(Reverse((due, at.clone())));
    }

    /// Takes a queue whose scheduled messages must be examined by now.
    pub(crate) fn take_wake(&mut self, now: Timestamp) -> Option<QueueRef> {
        self.wakes.peek().filter(|Reverse((at, _))| *at <= now)?;
        let Reverse((wakes, at)) = self.wakes.pop()?;
        if let Some(queue) = self.queues.get_mut(&at).filter(|queue| queue.wakes_at == Some(wakes)) {
            queue.wakes_at = None;
        }
        Some(at)
    }
}

impl LockedSlot<'_> {
    /// Submits headers that the engine has hidden to make them ready; none when there are none.
    pub(crate) fn submit_wake(
        &mut self,
        at: &QueueRef,
        ready: Vec<Header>,
    ) -> Result<Option<WriteOutcome>, Error> {
        if ready.is_empty() {
            return Ok(None);
        }
        let ids = changes::ids(&ready);
        match self.submit(at, Change::wake(ready)) {
            Ok(outcome) => Ok(Some(outcome)),
            Err(error) => {
                if let Some(queue) = self.state.queues.get_mut(at) {
                    queue.engine.wake_failed(&ids);
                }
                Err(error)
            }
        }
    }
}

impl Slot {
    /// Begins to wake the due messages of all queues. Returns when the next messages are due.
    pub(crate) fn start_due_wakes(self: &Arc<Self>, now: Timestamp) -> Option<Timestamp> {
        let mut state = self.lock();
        while let Some(at) = state.take_wake(now) {
            match state.queues.get_mut(&at) {
                Some(queue) => self.start_wake(&at, queue, now),
                None => state.figures.look_again(&at),
            }
            state.note_wake(&at);
        }
        state.wakes.peek().map(|Reverse((next, _))| *next)
    }

    /// Begins to wake the due messages of a queue, if there may be any.
    pub(crate) fn start_wake(self: &Arc<Self>, at: &QueueRef, queue: &mut OpenQueue, now: Timestamp) {
        if !queue.engine.begin_wake(now) {
            return;
        }
        let handle = QueueHandle::new(Arc::clone(self), at.clone(), queue.id);
        let store = self.store_of(queue);
        self.spawn(async move {
            let replica = &handle.slot.around.replica;
            let next = match handle.wake_due(store).await {
                Ok(next) => next,
                Err(error) => {
                    replica.task_failed(
                        "wake delayed messages",
                        format_args!("queue {}", handle.at.name),
                        &error,
                    );
                    replica.sleep_tick(limits::MOVE_PAUSES.0).await;
                    Some(now)
                }
            };
            let mut state = handle.slot.lock();
            let Some(queue) = state.queue_mut(&handle.at, handle.id) else { return };
            queue.engine.finish_wake(next);
            state.note_wake(&handle.at);
            // Claims may wait for these messages.
            state.serve(&handle.at);
        });
    }
}

impl QueueHandle {
    /// Wakes due messages. Returns when the next scheduled message is due.
    pub(crate) async fn wake_due(
        &self,
        store: Result<QueueStore, Error>,
    ) -> Result<Option<Timestamp>, Error> {
        let store = store?;
        let mut after = None;
        loop {
            if self.decide(|engine| engine.begin_wake_page()).is_none() {
                return Ok(None);
            }
            let most = PageBound { messages: limits::WAKE_MESSAGES, bytes: limits::WAKE_BYTES };
            let page = store.scan(self.id, Order::Schedule, Direction::Up, after, most).await?;
            let last = page.messages.last().map(|message| Position::of(&message.header));
            let now = self.slot.around.replica.clock.now();
            let mut due: Vec<Header> = page.messages.into_iter().map(|message| message.header).collect();
            let later = due.split_off(due.partition_point(|header| header.ready <= now));
            let outcome = {
                let mut state = self.slot.lock();
                let Some(queue) = state.queue_mut(&self.at, self.id) else { return Ok(None) };
                // None when too much has changed during the read: the page is read again.
                let Some(ready) = queue.engine.wake_page(due, now) else { continue };
                state.submit_wake(&self.at, ready)?
            };
            if let Some(outcome) = outcome {
                settled(outcome).await?;
            }
            match later.first() {
                Some(next) => return Ok(Some(next.ready)),
                None if page.is_last => return Ok(None),
                None => after = last,
            }
        }
    }

    /// Makes prepared entries ready, and skips entries that another caller is changing. The caller holds the transfers
    /// into the slot, so no other task removes or wakes them.
    pub(crate) async fn wake(&self, headers: Vec<Header>) -> Result<(), Error> {
        let outcome = {
            let mut state = self.slot.lock();
            let queue = state.queue_mut(&self.at, self.id).ok_or_else(|| self.closed())?;
            let now = self.slot.around.replica.clock.now();
            let ready = queue.engine.wake(headers, now);
            state.submit_wake(&self.at, ready)?
        };
        match outcome {
            Some(outcome) => settled(outcome).await,
            None => Ok(()),
        }
    }
}
