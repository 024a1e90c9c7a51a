//! Group commit to the pools: one lane per slot and pool, with one batch under way at a time.
//!
//! All that gathers while a batch is under way goes into the next one; an idle lane sends at once. Batches are
//! numbered, so one whose outcome is unknown is repeated under its number until it is known (P1). If it stays
//! unknown the lane is closed and its slot is taken anew, which finds out what was written.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::oneshot;
use tokio_util::task::task_tracker::TaskTrackerToken;
use uuid::Uuid;

use super::Broker;
use super::ledger::Reservation;
use super::pool_table::NamedStore;
use super::sending::{Outcome, send};
use super::slot::{Slot, SlotState};
use super::twins;
use crate::domain::attributes::Attributes;
use crate::domain::dedup::DedupKey;
use crate::domain::durability::Durability;
use crate::domain::ids::{MessageId, QueueId};
use crate::domain::limits;
use crate::domain::message::{Header, Message};
use crate::domain::names::{PoolName, QueueRef};
use crate::domain::quota::Amount;
use crate::error::{Error, Part};
use crate::metrics::CommitMeter;
use crate::storage::{Batch, Note, PoolStore, QueueChanges};

/// The way of one slot to one pool.
pub(super) struct Lane {
    /// The pool that it leads to, whatever name that has.
    pool: Uuid,
    store: NamedStore,
    /// The number of the last batch that was applied.
    seq: u64,
    /// Posts in it are bounded by messages and bytes; removals and returns by what the engine hides.
    waiting: VecDeque<Work>,
    messages_waiting: usize,
    bytes_waiting: usize,
    is_running: bool,
    is_closed: bool,
    meter: CommitMeter,
}

/// A change of one queue's entries.
#[derive(Clone, Debug)]
pub(super) enum Change {
    /// New messages, and the notes of those that were posted with an id of deduplication.
    Post(Vec<Message>, Vec<(DedupKey, Note)>),
    /// Ids of deduplication that are forgotten.
    ForgetTwins(Vec<DedupKey>),
    /// Headers as they now are, of messages that stay hidden until whoever sends them goes on.
    Update(Vec<Header>),
    /// Messages that become ready, with their headers as they then are.
    Wake(Vec<Header>),
    /// Messages that go aside, to be moved to another queue.
    SetAside(Vec<Header>),
    /// Messages that come from another queue, and are not to be seen yet.
    Prepare(Vec<Message>),
    /// Messages that go.
    Remove(Vec<MessageId>),
    /// Messages that a move takes out: the other queue has them, or keeps them.
    Depart(Vec<MessageId>),
}

impl Change {
    fn len(&self) -> usize {
        match self {
            Self::Post(messages, _) | Self::Prepare(messages) => messages.len(),
            Self::ForgetTwins(keys) => keys.len(),
            Self::Update(headers) | Self::Wake(headers) | Self::SetAside(headers) => headers.len(),
            Self::Remove(ids) | Self::Depart(ids) => ids.len(),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Post(messages, _) | Self::Prepare(messages) => {
                messages.iter().map(|message| message.body.len()).sum()
            }
            Self::Update(_) | Self::Wake(_) | Self::SetAside(_) | Self::Remove(_) | Self::Depart(_) => 0,
            Self::ForgetTwins(_) => 0,
        }
    }

    /// Whether the queue holds more or less by it.
    fn counts(&self) -> bool {
        match self {
            Self::Post(..) | Self::Prepare(_) | Self::Remove(_) | Self::Depart(_) => true,
            Self::Update(_) | Self::Wake(_) | Self::SetAside(_) | Self::ForgetTwins(_) => false,
        }
    }

    /// How durable it must be. Only posts and deletes may be less than synced (P11).
    fn durability(&self, attributes: &Attributes) -> Durability {
        match self {
            Self::Post(..) | Self::Remove(_) | Self::ForgetTwins(_) => {
                attributes.durability.unwrap_or_default()
            }
            Self::Update(_) | Self::Wake(_) | Self::SetAside(_) | Self::Prepare(_) | Self::Depart(_) => {
                Durability::Sync
            }
        }
    }

    fn add_to(&self, changes: &mut QueueChanges) {
        match self {
            Self::Post(messages, notes) => {
                changes.appends.extend_from_slice(messages);
                changes.notes.extend(notes.iter().map(|(_, note)| note.clone()));
            }
            Self::ForgetTwins(keys) => changes.note_removes.extend(keys.iter().map(twins::note_name)),
            Self::Prepare(messages) => changes.appends.extend_from_slice(messages),
            Self::Update(headers) | Self::Wake(headers) | Self::SetAside(headers) => {
                changes.updates.extend_from_slice(headers);
            }
            Self::Remove(ids) | Self::Depart(ids) => changes.removes.extend_from_slice(ids),
        }
    }
}

/// A change on its way to the pool, and who waits for its outcome.
pub(super) struct Work {
    /// The queue by its name; absent when it is not open.
    at: Option<QueueRef>,
    queue: QueueId,
    change: Change,
    durability: Durability,
    /// Room that is kept for its messages until it is settled.
    reserved: Amount,
    reply: oneshot::Sender<Result<(), Error>>,
    /// Until it is settled the queue is not deleted. Of one that is not open, the slot's gate sees to that.
    _use: Option<TaskTrackerToken>,
}

impl Work {
    /// Tells who waits that it was never sent.
    pub(super) fn refuse(self) {
        // Nobody may be waiting any more.
        let _ = self.reply.send(Err(Error::unavailable(Part::Storage, "the slot is taken anew")));
    }
}

impl Lane {
    pub(super) fn new(pool: Uuid, store: NamedStore, meter: CommitMeter) -> Self {
        Self {
            pool,
            store,
            seq: 0,
            waiting: VecDeque::new(),
            messages_waiting: 0,
            bytes_waiting: 0,
            is_running: false,
            is_closed: false,
            meter,
        }
    }

    /// Whether it leads to this pool.
    pub(super) fn leads_to(&self, pool: Uuid) -> bool {
        self.pool == pool
    }

    /// Goes on over another handle of the same storage.
    pub(super) fn reach_over(&mut self, store: NamedStore) {
        self.store = store;
    }

    pub(super) fn store(&self) -> NamedStore {
        self.store.clone()
    }

    /// The most durable class of writes that its pool can reach.
    pub(super) fn reach(&self) -> Durability {
        self.store.reach()
    }

    /// Whether new messages are accepted. Removals and returns always are: they free what is held.
    pub(super) fn check_open(&self) -> Result<(), Error> {
        if self.is_closed {
            return Err(Error::unavailable(self.store.part(), "an earlier batch had no known outcome"));
        }
        if self.messages_waiting >= limits::LANE_MESSAGES || self.bytes_waiting >= limits::LANE_BYTES {
            return Err(Error::unavailable(self.store.part(), "too many messages wait for the pool"));
        }
        self.store.check_open().map_err(|error| self.store.failed(error))
    }

    /// Accepts nothing any more, and gives back what was not sent.
    pub(super) fn close(&mut self) -> Vec<Work> {
        self.is_closed = true;
        (self.messages_waiting, self.bytes_waiting) = (0, 0);
        self.waiting.drain(..).collect()
    }

    fn push(&mut self, work: Work) {
        self.messages_waiting += work.change.len();
        self.bytes_waiting += work.change.bytes();
        self.waiting.push_back(work);
    }

    fn next_works(&mut self) -> Vec<Work> {
        let (mut works, mut messages, mut bytes) = (Vec::new(), 0, 0);
        while let Some(work) = self.waiting.front() {
            messages += work.change.len();
            bytes += work.change.bytes();
            let is_full = messages > limits::BATCH_MESSAGES || bytes > limits::BATCH_BYTES;
            if is_full && !works.is_empty() {
                break;
            }
            self.messages_waiting -= work.change.len();
            self.bytes_waiting -= work.change.bytes();
            works.extend(self.waiting.pop_front());
        }
        works
    }
}

impl SlotState {
    /// The lane's next batch; none when nothing waits, and then the lane stands still.
    fn next_batch(&mut self, slot: &Slot, pool: &PoolName) -> Option<(Batch, Vec<Work>)> {
        let lane = self.lanes.get_mut(pool)?;
        let works = lane.next_works();
        if works.is_empty() {
            lane.is_running = false;
            return None;
        }
        let batch = self.batch(slot, pool, &works)?;
        Some((batch, works))
    }

    /// The lane's next batch, of these works.
    fn batch(&self, slot: &Slot, pool: &PoolName, works: &[Work]) -> Option<Batch> {
        let seq = self.lanes.get(pool)?.seq + 1;
        let mut places: HashMap<QueueId, usize> = HashMap::new();
        let mut queues: Vec<QueueChanges> = Vec::new();
        for work in works {
            let place = *places.entry(work.queue).or_insert_with(|| {
                let open = work.at.as_ref().and_then(|at| self.queues.get(at));
                let low = open.map_or(MessageId::ZERO, |queue| queue.engine.low());
                queues.push(QueueChanges::of(work.queue, low));
                queues.len() - 1
            });
            work.change.add_to(&mut queues[place]);
        }
        // One that must be synced takes the others along.
        let durability = works.iter().map(|work| work.durability).max().unwrap_or_default();
        Some(Batch { slot: slot.owned.slot, epoch: slot.epoch, seq, durability, queues })
    }

    /// Shows a batch's outcome to the engines, then to those who wait. Returns what is to be done next for which
    /// queues.
    fn settle(&mut self, pool: &PoolName, works: Vec<Work>, outcome: Outcome) -> Vec<(QueueRef, Next)> {
        let mut next = Vec::new();
        if let Some(lane) = self.lanes.get_mut(pool) {
            lane.seq += u64::from(outcome == Outcome::Done);
            lane.is_closed |= outcome == Outcome::Unknown;
        }
        for Work { at, queue, change, durability: _, reserved: _, reply, _use } in works {
            if let Some(at) = at
                && let Some(todo) = self.settle_one(&at, queue, change, outcome)
            {
                next.push((at, todo));
            }
            let part = || Part::Pool(pool.clone());
            // Nobody may be waiting any more; the outcome is the same.
            let _ = reply.send(match outcome {
                Outcome::Done => Ok(()),
                Outcome::NotDone => Err(Error::unavailable(part(), "the batch was not written")),
                Outcome::Full => Err(Error::Full),
                Outcome::Unknown => Err(Error::unknown(part(), "the batch has no known outcome")),
            });
        }
        next
    }

    /// Shows the outcome of a change to its engine. What is unknown stays hidden.
    fn settle_one(
        &mut self,
        at: &QueueRef,
        queue: QueueId,
        change: Change,
        outcome: Outcome,
    ) -> Option<Next> {
        let is_waited_for = !self.lines.is_empty();
        let open = self.queue_mut(at, queue)?;
        open.changes += 1;
        match (change, outcome) {
            (Change::Post(messages, notes), Outcome::Done) => {
                open.counters.sent.inc_by(count(&messages));
                open.engine.twins_posted(&keys(&notes));
                open.engine.posted(messages);
                self.note_wake(at);
            }
            (Change::Wake(headers), Outcome::Done) => open.engine.woken(&ids(&headers)),
            (Change::Wake(headers), Outcome::NotDone | Outcome::Full) => {
                open.engine.wake_failed(&ids(&headers));
                return None;
            }
            (Change::SetAside(headers), Outcome::Done) => {
                open.engine.set_aside(&ids(&headers));
                return Some(Next::Move);
            }
            (Change::SetAside(headers), Outcome::NotDone | Outcome::Full) => {
                open.engine.put_back(&ids(&headers));
                return None;
            }
            (Change::Remove(ids) | Change::Depart(ids), Outcome::Done) => {
                let over = open.engine.removed(&ids);
                open.count_removals();
                let frees = open.engine.is_ordered();
                self.spend(over);
                // What is gone blocks its group no more.
                return (frees && is_waited_for).then_some(Next::Serve);
            }
            (Change::Post(_, notes), Outcome::NotDone | Outcome::Full) => {
                open.engine.twins_failed(&keys(&notes));
                return None;
            }
            (Change::Remove(ids) | Change::Depart(ids), Outcome::NotDone | Outcome::Full) => {
                open.engine.remove_failed(&ids);
            }
            // Whoever sent it goes on when he has the outcome.
            (Change::Update(_) | Change::Prepare(_) | Change::ForgetTwins(_), _) | (_, Outcome::Unknown) => {
                return None;
            }
        }
        is_waited_for.then_some(Next::Serve)
    }
}

/// What is to be done for a queue after its engine was told of an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Serve those who wait for it.
    Serve,
    /// Carry its moves on.
    Move,
}

fn count<T>(elements: &[T]) -> u64 {
    u64::try_from(elements.len()).unwrap_or(u64::MAX)
}

fn keys(notes: &[(DedupKey, Note)]) -> Vec<DedupKey> {
    notes.iter().map(|(key, _)| *key).collect()
}

fn ids(headers: &[Header]) -> Vec<MessageId> {
    headers.iter().map(|header| header.id).collect()
}

impl Broker {
    /// Puts a change on its way to the pool of its queue, which must be open in `state`. The receiver hears
    /// when the outcome is known and the engine has been told.
    pub(super) fn submit(
        &self,
        slot: &Arc<Slot>,
        state: &mut SlotState,
        at: &QueueRef,
        change: Change,
    ) -> Result<oneshot::Receiver<Result<(), Error>>, Error> {
        self.submit_reserved(slot, state, at, change, Reservation::none())
    }

    /// As [`Broker::submit`], of messages for which room is kept.
    pub(super) fn submit_reserved(
        &self,
        slot: &Arc<Slot>,
        state: &mut SlotState,
        at: &QueueRef,
        change: Change,
        room: Reservation,
    ) -> Result<oneshot::Receiver<Result<(), Error>>, Error> {
        let gone = || Error::unavailable(Part::Server, "the queue is not open");
        let open = state.queues.get(at).ok_or_else(gone)?;
        let lane = state.lanes.get_mut(&open.pool).ok_or_else(gone)?;
        if slot.closed.is_cancelled() {
            return Err(Error::unavailable(Part::Storage, "the slot is taken anew"));
        }
        let (reply, outcome) = oneshot::channel();
        let durability = change.durability(&open.attributes);
        let in_use = Some(open.uses.token());
        let reserved = room.bind(open.id, slot.epoch);
        let at = Some(at.clone());
        lane.push(Work { at, queue: open.id, change, durability, reserved, reply, _use: in_use });
        self.start_lane(slot, &open.pool, lane);
        Ok(outcome)
    }

    /// As [`Broker::submit`], to remove messages of a queue that is not open. Whoever calls holds the slot's gate, so
    /// that it is not opened meanwhile, and has opened the lane.
    pub(super) fn submit_unopened(
        &self,
        slot: &Arc<Slot>,
        state: &mut SlotState,
        pool: &PoolName,
        queue: QueueId,
        gone: Vec<MessageId>,
    ) -> Option<oneshot::Receiver<Result<(), Error>>> {
        let lane = state.lanes.get_mut(pool)?;
        let (reply, outcome) = oneshot::channel();
        let (change, durability, reserved) = (Change::Remove(gone), Durability::Sync, Amount::default());
        lane.push(Work { at: None, queue, change, durability, reserved, reply, _use: None });
        self.start_lane(slot, pool, lane);
        Some(outcome)
    }

    fn start_lane(&self, slot: &Arc<Slot>, pool: &PoolName, lane: &mut Lane) {
        if !std::mem::replace(&mut lane.is_running, true) {
            let (broker, slot, pool) = (self.clone(), Arc::clone(slot), pool.clone());
            self.0.tasks.spawn(async move { broker.run_lane(&slot, &pool).await });
        }
    }

    /// Tells the engines what became of works, and those who wait for it; then serves those who wait for messages, and
    /// carries moves on.
    async fn settle(
        &self,
        slot: &Arc<Slot>,
        (pool, store): (&PoolName, &dyn PoolStore),
        works: Vec<Work>,
        outcome: Outcome,
    ) {
        let counted = match outcome {
            Outcome::Done => {
                let changed = works.iter().filter(|work| work.change.counts());
                let queues = changed.map(|work| (work.queue, work.at.as_ref().map(|at| &at.project)));
                self.count_after(queues, store).await
            }
            Outcome::NotDone | Outcome::Full | Outcome::Unknown => Vec::new(),
        };
        let mut state = slot.state.lock();
        // What is unknown stays reserved, and so does what a slot had that is taken anew: it is counted again.
        if outcome != Outcome::Unknown && !slot.closed.is_cancelled() {
            let reserved = works.iter().filter(|work| work.reserved != Amount::default());
            let ended: Vec<_> = reserved.map(|work| (work.queue, work.reserved)).collect();
            if !(counted.is_empty() && ended.is_empty()) {
                self.0.ledger.settle(slot.epoch, &counted, &ended);
            }
        }
        for (at, next) in state.settle(pool, works, outcome) {
            match (next, state.queues.get_mut(&at)) {
                (Next::Serve, _) => self.serve(slot, &mut state, &at),
                (Next::Move, Some(queue)) => self.start_mover(slot, &at, queue),
                (Next::Move, None) => {}
            }
        }
    }

    /// Sends batches until nothing waits.
    async fn run_lane(&self, slot: &Arc<Slot>, pool: &PoolName) {
        loop {
            let (next, store, meter, is_closed) = {
                let mut state = slot.state.lock();
                let next = state.next_batch(slot, pool);
                let Some(lane) = state.lanes.get(pool) else { return };
                (next, lane.store(), lane.meter.clone(), lane.is_closed)
            };
            let Some((batch, works)) = next else { return };
            let began = Instant::now();
            let outcome = if is_closed { Outcome::NotDone } else { send(&*store, &batch, pool).await };
            meter.note(works.iter().map(|work| work.change.len()).sum(), began.elapsed());
            if outcome == Outcome::Unknown {
                // Before anybody hears of it: what they ask next must not be answered from this memory.
                slot.lose("a batch has no known outcome");
            }
            if outcome == Outcome::Full {
                self.send_without_posts(slot, pool, works, &*store).await;
            } else {
                self.settle(slot, (pool, &*store), works, outcome).await;
            }
        }
    }

    /// Refuses the posts of a batch for which there was no room, and sends the rest: it may make room.
    async fn send_without_posts(
        &self,
        slot: &Arc<Slot>,
        pool: &PoolName,
        works: Vec<Work>,
        store: &dyn PoolStore,
    ) {
        let is_post = |work: &Work| matches!(work.change, Change::Post(..) | Change::Prepare(_));
        let (posts, rest): (Vec<Work>, Vec<Work>) = works.into_iter().partition(is_post);
        self.settle(slot, (pool, store), posts, Outcome::Full).await;
        let batch = slot.state.lock().batch(slot, pool, &rest);
        let Some(batch) = batch.filter(|_| !rest.is_empty()) else { return };
        let outcome = send(store, &batch, pool).await;
        if outcome == Outcome::Unknown {
            slot.lose("a batch has no known outcome");
        }
        self.settle(slot, (pool, store), rest, outcome).await;
    }
}
