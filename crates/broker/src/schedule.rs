//! Scheduled messages become ready in time, whether any caller asks for them or not.
//!
//! What is due is written as ready in the pool before it is shown, so that a restart in between only does it again. A
//! queue that no caller has opened since its slot was taken is opened by [`super::queue_counting`] when its earliest
//! message is due.

use std::cmp::Reverse;
use std::sync::Arc;

use super::Broker;
use super::changes::{self, Change};
use super::messages::{WriteOutcome, settled};
use super::queue_store::QueueStore;
use super::slot::{OpenQueue, Slot, SlotState};
use angarium_core::error::Error;
use angarium_core::ids::QueueId;
use angarium_core::limits;
use angarium_core::message::Header;
use angarium_core::names::QueueRef;
use angarium_core::time::Timestamp;
use angarium_storage::{Direction, Order, Position};

impl SlotState {
    /// Notes when a queue's scheduled messages are to be looked at, if that is sooner than it was noted before.
    pub(super) fn note_wake(&mut self, at: &QueueRef) {
        let Some(queue) = self.queues.get_mut(at) else { return };
        let Some(wakes) = queue.engine.wakes_at() else { return };
        if queue.wakes_at.is_none_or(|noted| wakes < noted) {
            queue.wakes_at = Some(wakes);
            self.alarms.schedule.set(wakes);
            self.wakes.push(Reverse((wakes, at.clone())));
        }
    }

    /// Notes when the earliest scheduled message of a closed queue is due.
    pub(super) fn note_closed_wake(&mut self, at: &QueueRef, due: Timestamp) {
        self.alarms.schedule.set(due);
        self.wakes.push(Reverse((due, at.clone())));
    }

    /// A queue whose scheduled messages are to be looked at by now.
    pub(super) fn take_wake(&mut self, now: Timestamp) -> Option<QueueRef> {
        self.wakes.peek().filter(|Reverse((at, _))| *at <= now)?;
        let Reverse((wakes, at)) = self.wakes.pop()?;
        if let Some(queue) = self.queues.get_mut(&at).filter(|queue| queue.wakes_at == Some(wakes)) {
            queue.wakes_at = None;
        }
        Some(at)
    }
}

impl Broker {
    pub(super) async fn wake_scheduled(&self) {
        let alarm = &self.0.alarms.schedule;
        while self.next_deadline(alarm, || self.0.clock.now(), limits::SCHEDULE_TICK).await {
            let now = self.0.clock.now();
            alarm.forget();
            for slot in self.0.slot_table.owned() {
                let mut state = slot.state.lock();
                while let Some(at) = state.take_wake(now) {
                    match state.queues.get_mut(&at) {
                        Some(queue) => self.start_wake(&slot, &at, queue, now),
                        None => state.figures.progress.recount(&at),
                    }
                    state.note_wake(&at);
                }
                if let Some(Reverse((next, _))) = state.wakes.peek() {
                    alarm.set(*next);
                }
            }
        }
    }

    /// Begins to make ready what is due in a queue, if something may be.
    pub(super) fn start_wake(&self, slot: &Arc<Slot>, at: &QueueRef, queue: &mut OpenQueue, now: Timestamp) {
        if !queue.engine.begin_wake(now) {
            return;
        }
        let (broker, slot, at) = (self.clone(), Arc::clone(slot), at.clone());
        let (id, store) = (queue.id, self.store_of(queue));
        self.spawn_in(&Arc::clone(&slot), async move {
            let next = match broker.wake_due(&slot, &at, id, store).await {
                Ok(next) => next,
                Err(error) => {
                    broker.task_failed("wake delayed messages", format_args!("queue {}", at.name), &error);
                    broker.sleep_tick(limits::MOVE_PAUSES.0).await;
                    Some(now)
                }
            };
            let mut state = slot.state.lock();
            let Some(queue) = state.queue_mut(&at, id) else { return };
            queue.engine.finish_wake(next);
            state.note_wake(&at);
            // A claim that waits for the look at due messages.
            broker.serve(&slot, &mut state, &at);
        });
    }

    /// Makes ready what is due. Returns when the first one is due that is not.
    async fn wake_due(
        &self,
        slot: &Arc<Slot>,
        at: &QueueRef,
        id: QueueId,
        store: Result<QueueStore, Error>,
    ) -> Result<Option<Timestamp>, Error> {
        let store = store?;
        let mut after = None;
        loop {
            match slot.state.lock().queue_mut(at, id) {
                Some(queue) => queue.engine.begin_wake_page(),
                None => return Ok(None),
            }
            let most = (limits::WAKE_MESSAGES, limits::WAKE_BYTES);
            let page = store.scan(id, Order::Schedule, Direction::Up, after, most).await?;
            let last = page.messages.last().map(|message| Position::of(&message.header));
            let now = self.0.clock.now();
            let mut due: Vec<Header> = page.messages.into_iter().map(|message| message.header).collect();
            let later = due.split_off(due.partition_point(|header| header.ready <= now));
            let outcome = {
                let mut state = slot.state.lock();
                let Some(queue) = state.queue_mut(at, id) else { return Ok(None) };
                // Too much changed while it was read.
                let Some(ready) = queue.engine.wake_page(due) else { continue };
                self.submit_wake(slot, &mut state, at, ready)?
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

    /// Makes entries ready that are prepared; those that another caller changes are passed over. No caller but the
    /// caller, who holds the moves into the slot, removes or wakes them.
    pub(super) async fn wake(
        &self,
        slot: &Arc<Slot>,
        at: &QueueRef,
        id: QueueId,
        headers: Vec<Header>,
    ) -> Result<(), Error> {
        let outcome = {
            let mut state = slot.state.lock();
            let Some(queue) = state.queue_mut(at, id) else { return Ok(()) };
            let ready = queue.engine.wake(headers);
            self.submit_wake(slot, &mut state, at, ready)?
        };
        match outcome {
            Some(outcome) => settled(outcome).await,
            None => Ok(()),
        }
    }

    /// Sends headers on their way that the engine has hidden to make them ready; none when there are none.
    fn submit_wake(
        &self,
        slot: &Arc<Slot>,
        state: &mut SlotState,
        at: &QueueRef,
        ready: Vec<Header>,
    ) -> Result<Option<WriteOutcome>, Error> {
        if ready.is_empty() {
            return Ok(None);
        }
        let ids = changes::ids(&ready);
        match self.submit(slot, state, at, Change::Wake(ready)) {
            Ok(outcome) => Ok(Some(outcome)),
            Err(error) => {
                if let Some(queue) = state.queues.get_mut(at) {
                    queue.engine.wake_failed(&ids);
                }
                Err(error)
            }
        }
    }
}
