//! Group commit to the pools: one slot writer per slot and pool, with one batch under way at a time.
//!
//! All that gathers while a batch is under way moves into the next one; an idle slot writer sends at once. Batches are
//! numbered, so one whose outcome is unknown is repeated under its number until it is known (P1). If it stays
//! unknown the slot writer is closed and its slot is recovered, which finds out what was written.

use crate::slot::locked::LockedSlot;
use crate::writer::pending::Leg;
use crate::writer::pending::SlotWriter;
use crate::writer::pending::Write;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::oneshot;

use crate::ledger::quota_ledger::{EndedReservation, Reservation};
use crate::slot::state::OpenQueue;
use crate::slot::state::Slot;
use crate::slot::state::SlotState;
use crate::writer::change as changes;
use crate::writer::change::Change;
use crate::writer::change::PoolRoute;
use crate::writer::send::Outcome;
use crate::writer::send::send;
use angarium_catalogue::Placement;
use angarium_core::durability::Durability;
use angarium_core::error::{Error, Part};
use angarium_core::ids::{MessageId, QueueId};
use angarium_core::names::{PoolName, QueueRef};
use angarium_core::quota::Amount;
use angarium_storage::{Batch, QueueChanges};

impl SlotState {
    /// The slot writer's next batch; none when nothing waits, and then the slot writer is stopped.
    pub(crate) fn next_batch(&mut self, slot: &Slot, pool: &PoolName) -> Option<(Batch, Vec<Write>)> {
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
    pub(crate) fn route(&self, open: &OpenQueue, change: &Change) -> Option<(PoolName, Leg)> {
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
    pub(crate) fn batch(&self, slot: &Slot, pool: &PoolName, writes: &[Write]) -> Option<Batch> {
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
    pub(crate) fn settle_writes(
        &mut self,
        pool: &PoolName,
        writes: Vec<Write>,
        outcome: Outcome,
    ) -> (Vec<(QueueRef, NextStep)>, HashSet<PoolName>) {
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
    pub(crate) fn advance(
        &mut self,
        mut work: Write,
        outcome: Outcome,
        pools: &mut HashSet<PoolName>,
    ) -> Option<Write> {
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
    pub(crate) fn settle_one(
        &mut self,
        at: &QueueRef,
        queue: QueueId,
        change: Change,
        outcome: Outcome,
    ) -> Option<NextStep> {
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
                return Some(NextStep::Move);
            }
            (Change::Transfer(headers), Outcome::NotDone | Outcome::Full | Outcome::Damaged) => {
                open.engine.put_back(&changes::ids(&headers));
                return None;
            }
            (Change::Remove(ids) | Change::Depart(ids), Outcome::Done) => {
                let over = open.engine.removed(&ids);
                open.pace.count_removed(count(&ids));
                open.count_removals();
                let frees = open.engine.frees_by_removal();
                self.spend(over);
                return (frees && is_waited_for).then_some(NextStep::Serve);
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
            (Change::Update(_) | Change::Prepare(_) | Change::ForgetDedup(_), _)
            | (Change::Copy(..) | Change::Leave(_) | Change::CopyNotes(_) | Change::Arrived, _)
            | (_, Outcome::Unknown) => return None,
        }
        is_waited_for.then_some(NextStep::Serve)
    }
}

/// What is to be done for a queue after its engine was told of an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// Serve those who wait for it.
    Serve,
    /// Carry its moves on.
    Move,
}

pub(crate) fn count<T>(elements: &[T]) -> u64 {
    u64::try_from(elements.len()).unwrap_or(u64::MAX)
}

impl LockedSlot<'_> {
    /// Puts a change on its way to the pool of its queue, which must be open in `state`. The receiver learns
    /// when the outcome is known and the engine has been told.
    pub(crate) fn submit(
        &mut self,
        at: &QueueRef,
        change: Change,
    ) -> Result<oneshot::Receiver<Result<(), Error>>, Error> {
        self.submit_reserved(at, change, Reservation::none())
    }

    /// As `submit`, of messages for which room is kept.
    pub(crate) fn submit_reserved(
        &mut self,
        at: &QueueRef,
        change: Change,
        room: Reservation,
    ) -> Result<oneshot::Receiver<Result<(), Error>>, Error> {
        let gone = || Error::unavailable(Part::Server, "the queue is not open");
        let open = self.state.queues.get(at).ok_or_else(gone)?;
        let (pool, leg) = self.state.route(open, &change).ok_or_else(gone)?;
        if self.slot.closed.is_cancelled() {
            return Err(Error::unavailable(Part::Storage, "the slot is being recovered"));
        }
        let (reply, outcome) = oneshot::channel();
        let durability = change.durability(&open.attributes);
        let in_use = Some(open.uses.token());
        let leaving = if leg == Leg::Only { change.leaving(&open.engine) } else { Vec::new() };
        let (queue, reserved, at) = (open.id, room.bind(open.id, self.slot.epoch), Some(at.clone()));
        let writer = self.state.writers.get_mut(&pool).ok_or_else(gone)?;
        writer.push(Write { at, queue, change, leaving, durability, reserved, reply, _use: in_use, leg });
        self.slot.start_writer(&pool, writer);
        Ok(outcome)
    }

    /// As `submit`, to remove messages of a queue that is not open. The caller holds the gate of
    /// the pool, so that it is not opened meanwhile, and has opened the slot writer.
    pub(crate) fn submit_unopened(
        &mut self,
        pool: &PoolName,
        queue: QueueId,
        gone: Vec<MessageId>,
    ) -> Option<oneshot::Receiver<Result<(), Error>>> {
        let writer = self.state.writers.get_mut(pool)?;
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
        self.slot.start_writer(pool, writer);
        Some(outcome)
    }
}

impl Slot {
    pub(crate) fn start_writer(self: &Arc<Self>, pool: &PoolName, writer: &mut SlotWriter) {
        if !std::mem::replace(&mut writer.is_running, true) {
            let (slot, pool) = (Arc::clone(self), pool.clone());
            self.spawn(async move { slot.run_writer(&pool).await });
        }
    }

    /// Tells the engines what became of works, and those who wait for it; then serves those who wait for messages, and
    /// carries moves on.
    pub(crate) async fn settle(self: &Arc<Self>, pool: &PoolName, writes: Vec<Write>, outcome: Outcome) {
        let outcomes = || writes.iter().map(|work| work.outcome(outcome));
        if outcome == Outcome::Unknown || outcomes().any(|outcome| outcome == Outcome::Unknown) {
            // Before any replica learns of it: what they ask next must not be answered from this memory.
            self.lose("a batch has no known outcome");
        }
        let counted = match outcome {
            Outcome::Done => {
                let is_whole = |work: &&Write| !matches!(work.leg, Leg::First(_));
                let changed = writes.iter().filter(|work| work.change.counts()).filter(is_whole);
                let queues = changed.map(|work| (work.queue, work.at.as_ref()));
                self.count_after(pool, queues).await
            }
            Outcome::NotDone | Outcome::Full | Outcome::Damaged | Outcome::Unknown => Vec::new(),
        };
        let mut state = self.lock();
        // What is unknown stays reserved, and so does what a slot had that is recovered: it is counted again.
        if outcome != Outcome::Unknown && !self.closed.is_cancelled() {
            let reserved = writes.iter().filter(|work| work.reserved != Amount::default());
            let ended = |work: &Write| EndedReservation { queue: work.queue, amount: work.reserved };
            let ended: Vec<_> = reserved.map(ended).collect();
            if !(counted.is_empty() && ended.is_empty()) {
                self.around.ledger.settle(self.epoch, &counted, &ended);
            }
        }
        let (next, pools) = state.settle_writes(pool, writes, outcome);
        for pool in pools {
            if let Some(writer) = state.writers.get_mut(&pool) {
                self.start_writer(&pool, writer);
            }
        }
        for (at, next) in next {
            match next {
                NextStep::Serve => state.serve(&at),
                NextStep::Move => state.start_mover(&at),
            }
        }
    }

    /// Sends batches until nothing waits.
    pub(crate) async fn run_writer(self: &Arc<Self>, pool: &PoolName) {
        loop {
            let (next, store, meter, is_closed) = {
                let mut state = self.lock();
                let next = state.next_batch(self, pool);
                let Some(writer) = state.writers.get(pool) else { return };
                (next, writer.store(), writer.meter.clone(), writer.is_closed)
            };
            let Some((batch, writes)) = next else { return };
            let began = Instant::now();
            let failures = &self.around.replica.failures;
            let outcome =
                if is_closed { Outcome::NotDone } else { send(&*store, &batch, pool, failures).await };
            meter.note(writes.iter().map(|work| work.change.len()).sum(), began.elapsed());
            match outcome {
                Outcome::Full => self.send_without_posts(pool, writes, &*store).await,
                Outcome::Damaged => self.send_apart(pool, writes, &*store).await,
                outcome => self.settle(pool, writes, outcome).await,
            }
        }
    }
}
