//! Group commit to the pools: one slot writer per slot and pool, with one batch under way at a time.
//!
//! All that gathers while a batch is under way moves into the next one; an idle slot writer sends at once. Batches are
//! numbered, so one whose outcome is unknown is repeated under its number until it is known (P1). If it stays
//! unknown the slot writer is closed and its slot is recovered, which finds out what was written.

mod apart;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::oneshot;
use tokio_util::task::task_tracker::TaskTrackerToken;
use uuid::Uuid;

use super::Broker;
use super::batch_commit::{Outcome, send};
use super::changes::{self, Change, PoolRoute};
use super::ledger::Reservation;
use super::pool_table::NamedStore;
use super::slot::{OpenQueue, Slot, SlotState};
use angarium_catalogue::Placement;
use angarium_core::durability::Durability;
use angarium_core::error::{Error, Part};
use angarium_core::ids::{MessageId, QueueId};
use angarium_core::limits;
use angarium_core::names::{PoolName, QueueRef};
use angarium_core::quota::Amount;
use angarium_metrics::CommitMeter;
use angarium_storage::{Batch, KnownEntry, QueueChanges};

/// The way of one slot to one pool.
pub(super) struct SlotWriter {
    /// The pool that it leads to, whatever name that has.
    pool: Uuid,
    store: NamedStore,
    /// The number of the last batch that was applied.
    seq: u64,
    /// Posts in it are bounded by messages and bytes; removals and returns by what the engine hides.
    waiting: VecDeque<Write>,
    messages_waiting: usize,
    bytes_waiting: usize,
    is_running: bool,
    is_closed: bool,
    meter: CommitMeter,
}

/// A change on its way to the pool, and who waits for its outcome.
pub(super) struct Write {
    /// The queue by its name; absent when it is not open.
    at: Option<QueueRef>,
    queue: QueueId,
    change: Change,
    /// What is known of the entries that it removes, where the queue is in this pool alone.
    leaving: Vec<KnownEntry>,
    durability: Durability,
    /// Room that is kept for its messages until it is settled.
    reserved: Amount,
    reply: oneshot::Sender<Result<(), Error>>,
    /// Until it is settled the queue is not deleted. Of one that is not open, the slot's gate sees to that.
    _use: Option<TaskTrackerToken>,
    leg: Leg,
}

/// Which part of a change a work is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Leg {
    /// All of it.
    Only,
    /// When it is done the same moves to this pool.
    First(PoolName),
    /// The other pool has it already.
    Second,
}

impl Write {
    /// Tells who waits that it was never sent.
    pub(super) fn refuse(self) {
        let why = "the slot is being recovered";
        let error = match self.leg {
            Leg::Only | Leg::First(_) => Error::unavailable(Part::Storage, why),
            Leg::Second => Error::unknown(Part::Storage, why),
        };
        // No replica may be waiting any more.
        let _ = self.reply.send(Err(error));
    }
}

impl Write {
    /// What became of the whole change, of which the batch is a part.
    fn outcome(&self, batch: Outcome) -> Outcome {
        match (&self.leg, batch) {
            (Leg::Second, Outcome::NotDone | Outcome::Full | Outcome::Damaged) => Outcome::Unknown,
            (Leg::Only | Leg::First(_) | Leg::Second, outcome) => outcome,
        }
    }
}

impl SlotWriter {
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

    /// Continues over another handle of the same storage.
    pub(super) fn switch_store(&mut self, store: NamedStore) {
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
        if self.messages_waiting >= limits::WRITER_MESSAGES || self.bytes_waiting >= limits::WRITER_BYTES {
            return Err(Error::unavailable(self.store.part(), "too many messages wait for the pool"));
        }
        self.store.check_open().map_err(|error| self.store.failed(error))
    }

    /// Accepts nothing any more, and gives back what was not sent.
    pub(super) fn close(&mut self) -> Vec<Write> {
        self.is_closed = true;
        (self.messages_waiting, self.bytes_waiting) = (0, 0);
        self.waiting.drain(..).collect()
    }

    fn push(&mut self, work: Write) {
        self.messages_waiting += work.change.len();
        self.bytes_waiting += work.change.bytes();
        self.waiting.push_back(work);
    }

    fn next_writes(&mut self) -> Vec<Write> {
        let (mut writes, mut messages, mut bytes) = (Vec::new(), 0, 0);
        while let Some(work) = self.waiting.front() {
            messages += work.change.len();
            bytes += work.change.bytes();
            let is_full = messages > limits::BATCH_MESSAGES || bytes > limits::BATCH_BYTES;
            if is_full && !writes.is_empty() {
                break;
            }
            self.messages_waiting -= work.change.len();
            self.bytes_waiting -= work.change.bytes();
            writes.extend(self.waiting.pop_front());
        }
        writes
    }
}

impl SlotState {
    /// The slot writer's next batch; none when nothing waits, and then the slot writer is stopped.
    fn next_batch(&mut self, slot: &Slot, pool: &PoolName) -> Option<(Batch, Vec<Write>)> {
        let writer = self.writers.get_mut(pool)?;
        let writes = writer.next_writes();
        if writes.is_empty() {
            writer.is_running = false;
            return None;
        }
        let batch = self.batch(slot, pool, &writes)?;
        Some((batch, writes))
    }

    /// The pool that a change of an open queue moves to, and whether that is all.
    fn route(&self, open: &OpenQueue, change: &Change) -> Option<(PoolName, Leg)> {
        let Placement { pool, older } = &open.placement;
        let Some(older) = older else {
            let is_there = change.way() != PoolRoute::Older;
            return is_there.then(|| (pool.clone(), Leg::Only));
        };
        let is_older_up = self.writers.get(older).is_some_and(|writer| writer.store.check_open().is_ok());
        Some(match change.way() {
            PoolRoute::Newer => (pool.clone(), Leg::Only),
            PoolRoute::Older => (older.clone(), Leg::Only),
            // What one of the two is about to refuse is not begun at the other.
            PoolRoute::Both if !is_older_up => (older.clone(), Leg::First(pool.clone())),
            PoolRoute::Both | PoolRoute::NewerFirst => (pool.clone(), Leg::First(older.clone())),
        })
    }

    /// The slot writer's next batch, of these works.
    fn batch(&self, slot: &Slot, pool: &PoolName, writes: &[Write]) -> Option<Batch> {
        let seq = self.writers.get(pool)?.seq + 1;
        let mut places: HashMap<QueueId, usize> = HashMap::new();
        let mut queues: Vec<QueueChanges> = Vec::new();
        for work in writes {
            let place = *places.entry(work.queue).or_insert_with(|| {
                let open = work.at.as_ref().and_then(|at| self.queues.get(at));
                let low = open.map_or(MessageId::ZERO, |queue| queue.engine.low());
                queues.push(QueueChanges::of(work.queue, low));
                queues.len() - 1
            });
            work.change.add_to(&mut queues[place]);
            queues[place].leaving.extend_from_slice(&work.leaving);
        }
        // One that must be synced takes the others along.
        let durability = writes.iter().map(|work| work.durability).max().unwrap_or_default();
        Some(Batch { slot: slot.owned.slot, epoch: slot.epoch, seq, durability, queues })
    }

    /// Shows a batch's outcome to the engines, then to those who wait. Returns what is to be done next for which
    /// queues, and the slot writers to which works went on.
    fn settle(
        &mut self,
        pool: &PoolName,
        writes: Vec<Write>,
        outcome: Outcome,
    ) -> (Vec<(QueueRef, FollowUp)>, HashSet<PoolName>) {
        let (mut next, mut pools) = (Vec::new(), HashSet::new());
        if let Some(writer) = self.writers.get_mut(pool) {
            writer.seq += u64::from(outcome == Outcome::Done);
            writer.is_closed |= outcome == Outcome::Unknown;
        }
        for work in writes {
            let outcome = work.outcome(outcome);
            let Some(work) = self.advance(work, outcome, &mut pools) else { continue };
            let Write { at, queue, change, reply, .. } = work;
            if let Some(at) = at
                && let Some(todo) = self.settle_one(&at, queue, change, outcome)
            {
                next.push((at, todo));
            }
            let part = || Part::Pool(pool.clone());
            // No replica may be waiting any more; the outcome is the same.
            let _ = reply.send(match outcome {
                Outcome::Done => Ok(()),
                Outcome::NotDone => Err(Error::unavailable(part(), "the batch was not written")),
                Outcome::Full => Err(Error::Full),
                Outcome::Damaged => Err(Error::damaged(part(), "the batch needs damaged data")),
                Outcome::Unknown => Err(Error::unknown(part(), "the batch has no known outcome")),
            });
        }
        (next, pools)
    }

    /// Puts a work on its way to the second pool of its queue, if there is one and the first has it, and notes that pool.
    /// Otherwise it gives the work back, which is settled.
    fn advance(&mut self, mut work: Write, outcome: Outcome, pools: &mut HashSet<PoolName>) -> Option<Write> {
        let Leg::First(then) = &work.leg else { return Some(work) };
        let then = then.clone();
        let open = work.at.as_ref().and_then(|at| self.queues.get(at)).filter(|open| open.id == work.queue);
        // A pool that the queue has left meanwhile has nothing of it.
        let is_there = open.is_some_and(|open| open.placement.contains(&then));
        match self.writers.get_mut(&then) {
            Some(writer) if outcome == Outcome::Done && is_there => {
                work.leg = Leg::Second;
                writer.push(work);
                pools.insert(then);
                None
            }
            _ => Some(work),
        }
    }

    /// Shows the outcome of a change to its engine. What is unknown stays hidden.
    fn settle_one(
        &mut self,
        at: &QueueRef,
        queue: QueueId,
        change: Change,
        outcome: Outcome,
    ) -> Option<FollowUp> {
        let is_waited_for = !self.lines.is_empty();
        let open = self.queues.get_mut(at).map(Box::as_mut).filter(|open| open.id == queue)?;
        if open.shown.change() {
            self.figures.note_due(at);
        }
        if !change.is_copy() {
            open.pace.count();
        }
        if outcome == Outcome::Done {
            open.retained.note(change.headers());
            if let Change::Prepare(messages) = &change {
                open.pace.count_posted(count(messages));
            }
        }
        match (change, outcome) {
            (Change::Post(messages, notes), Outcome::Done) => {
                open.counters.sent.inc_by(count(&messages));
                open.pace.count_posted(count(&messages));
                open.engine.dedup_posted(&changes::duplicates(&notes));
                open.engine.posted(messages);
                self.note_wake(at);
            }
            (Change::Wake(headers), Outcome::Done) => open.engine.woken(&changes::ids(&headers)),
            (Change::Wake(headers), Outcome::NotDone | Outcome::Full | Outcome::Damaged) => {
                open.engine.wake_failed(&changes::ids(&headers));
                return None;
            }
            (Change::Transfer(headers), Outcome::Done) => {
                open.engine.mark_in_transfer(&changes::ids(&headers));
                return Some(FollowUp::Move);
            }
            (Change::Transfer(headers), Outcome::NotDone | Outcome::Full | Outcome::Damaged) => {
                open.engine.put_back(&changes::ids(&headers));
                return None;
            }
            (Change::Remove(ids) | Change::Depart(ids), Outcome::Done) => {
                let over = open.engine.removed(&ids);
                open.pace.count_removed(count(&ids));
                open.count_removals();
                let frees = open.engine.is_ordered();
                self.spend(over);
                // What is gone blocks its group no more.
                return (frees && is_waited_for).then_some(FollowUp::Serve);
            }
            (Change::Post(_, notes), Outcome::NotDone | Outcome::Full | Outcome::Damaged) => {
                open.engine.dedup_failed(&changes::duplicates(&notes));
                return None;
            }
            (
                Change::Remove(ids) | Change::Depart(ids),
                Outcome::NotDone | Outcome::Full | Outcome::Damaged,
            ) => {
                open.engine.remove_failed(&ids);
            }
            // The sender continues when it has the outcome.
            (Change::Update(_) | Change::Prepare(_) | Change::ForgetTwins(_), _)
            | (Change::Copy(..) | Change::Leave(_) | Change::CopyNotes(_) | Change::Arrived, _)
            | (_, Outcome::Unknown) => return None,
        }
        is_waited_for.then_some(FollowUp::Serve)
    }
}

/// What is to be done for a queue after its engine was told of an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FollowUp {
    /// Serve those who wait for it.
    Serve,
    /// Carry its moves on.
    Move,
}

fn count<T>(elements: &[T]) -> u64 {
    u64::try_from(elements.len()).unwrap_or(u64::MAX)
}

impl Broker {
    /// Puts a change on its way to the pool of its queue, which must be open in `state`. The receiver learns
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
        let (pool, leg) = state.route(open, &change).ok_or_else(gone)?;
        if slot.closed.is_cancelled() {
            return Err(Error::unavailable(Part::Storage, "the slot is being recovered"));
        }
        let (reply, outcome) = oneshot::channel();
        let durability = change.durability(&open.attributes);
        let in_use = Some(open.uses.token());
        let leaving = if leg == Leg::Only { change.leaving(&open.engine) } else { Vec::new() };
        let (queue, reserved, at) = (open.id, room.bind(open.id, slot.epoch), Some(at.clone()));
        let writer = state.writers.get_mut(&pool).ok_or_else(gone)?;
        writer.push(Write { at, queue, change, leaving, durability, reserved, reply, _use: in_use, leg });
        self.start_writer(slot, &pool, writer);
        Ok(outcome)
    }

    /// As [`Broker::submit`], to remove messages of a queue that is not open. The caller holds the gate of
    /// the pool, so that it is not opened meanwhile, and has opened the slot writer.
    pub(super) fn submit_unopened(
        &self,
        slot: &Arc<Slot>,
        state: &mut SlotState,
        pool: &PoolName,
        queue: QueueId,
        gone: Vec<MessageId>,
    ) -> Option<oneshot::Receiver<Result<(), Error>>> {
        let writer = state.writers.get_mut(pool)?;
        let (reply, outcome) = oneshot::channel();
        writer.push(Write {
            at: None,
            queue,
            change: Change::Remove(gone),
            leaving: Vec::new(),
            durability: Durability::Sync,
            reserved: Amount::default(),
            reply,
            _use: None,
            leg: Leg::Only,
        });
        self.start_writer(slot, pool, writer);
        Some(outcome)
    }

    fn start_writer(&self, slot: &Arc<Slot>, pool: &PoolName, writer: &mut SlotWriter) {
        if !std::mem::replace(&mut writer.is_running, true) {
            let (broker, slot, pool) = (self.clone(), Arc::clone(slot), pool.clone());
            self.spawn_in(&Arc::clone(&slot), async move { broker.run_writer(&slot, &pool).await });
        }
    }

    /// Tells the engines what became of works, and those who wait for it; then serves those who wait for messages, and
    /// carries moves on.
    async fn settle(&self, slot: &Arc<Slot>, pool: &PoolName, writes: Vec<Write>, outcome: Outcome) {
        let outcomes = || writes.iter().map(|work| work.outcome(outcome));
        if outcome == Outcome::Unknown || outcomes().any(|outcome| outcome == Outcome::Unknown) {
            // Before any replica learns of it: what they ask next must not be answered from this memory.
            slot.lose("a batch has no known outcome");
        }
        let counted = match outcome {
            Outcome::Done => {
                let is_whole = |work: &&Write| !matches!(work.leg, Leg::First(_));
                let changed = writes.iter().filter(|work| work.change.counts()).filter(is_whole);
                let queues = changed.map(|work| (work.queue, work.at.as_ref()));
                self.count_after(slot, pool, queues).await
            }
            Outcome::NotDone | Outcome::Full | Outcome::Damaged | Outcome::Unknown => Vec::new(),
        };
        let mut state = slot.state.lock();
        // What is unknown stays reserved, and so does what a slot had that is recovered: it is counted again.
        if outcome != Outcome::Unknown && !slot.closed.is_cancelled() {
            let reserved = writes.iter().filter(|work| work.reserved != Amount::default());
            let ended: Vec<_> = reserved.map(|work| (work.queue, work.reserved)).collect();
            if !(counted.is_empty() && ended.is_empty()) {
                self.0.ledger.settle(slot.epoch, &counted, &ended);
            }
        }
        let (next, pools) = state.settle(pool, writes, outcome);
        for pool in pools {
            if let Some(writer) = state.writers.get_mut(&pool) {
                self.start_writer(slot, &pool, writer);
            }
        }
        for (at, next) in next {
            match (next, state.queues.get_mut(&at)) {
                (FollowUp::Serve, _) => self.serve(slot, &mut state, &at),
                (FollowUp::Move, Some(queue)) => self.start_mover(slot, &at, queue),
                (FollowUp::Move, None) => {}
            }
        }
    }

    /// Sends batches until nothing waits.
    async fn run_writer(&self, slot: &Arc<Slot>, pool: &PoolName) {
        loop {
            let (next, store, meter, is_closed) = {
                let mut state = slot.state.lock();
                let next = state.next_batch(slot, pool);
                let Some(writer) = state.writers.get(pool) else { return };
                (next, writer.store(), writer.meter.clone(), writer.is_closed)
            };
            let Some((batch, writes)) = next else { return };
            let began = Instant::now();
            let failures = &self.0.task_failures;
            let outcome =
                if is_closed { Outcome::NotDone } else { send(&*store, &batch, pool, failures).await };
            meter.note(writes.iter().map(|work| work.change.len()).sum(), began.elapsed());
            match outcome {
                Outcome::Full => self.send_without_posts(slot, pool, writes, &*store).await,
                Outcome::Damaged => self.send_apart(slot, pool, writes, &*store).await,
                outcome => self.settle(slot, pool, writes, outcome).await,
            }
        }
    }
}
