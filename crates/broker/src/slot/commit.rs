//! Group commit to the pools: one slot writer per slot and pool, with one batch in flight at a time.
//!
//! Writes that arrive while a batch is in flight are sent in the next one; an idle slot writer sends at once. Batches
//! are numbered, so a batch whose outcome is unknown is repeated under its number until the outcome is known (P1). If
//! the outcome stays unknown, the slot writer is closed and the slot is recovered, which reads the pool.

use crate::slot::locked::LockedSlot;
use crate::writer::pending::Leg;
use crate::writer::pending::SlotWriter;
use crate::writer::pending::{Write, WriteCopy};
use crate::writer::purpose::{PoolRoute, Purpose};
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::ledger::quota_ledger::{EndedReservation, Reservation};
use crate::slot::settle::SettleEffects;
use crate::slot::state::OpenQueue;
use crate::slot::state::Slot;
use crate::slot::state::SlotState;
use crate::writer::change as changes;
use crate::writer::change::Change;
use crate::writer::send::Outcome;
use crate::writer::send::send;
use angarium_catalogue::Placement;
use angarium_core::durability::Durability;
use angarium_core::error::{Error, Part};
use angarium_core::ids::{MessageId, QueueId};
use angarium_core::maps::{HashMap, HashSet};
use angarium_core::mutation::{Mutation, is_on};
use angarium_core::names::{PoolName, QueueRef};
use angarium_core::quota::Amount;
use angarium_storage::{Batch, Changes, QueueChanges};

impl SlotState {
    /// Takes the slot writer's next batch. Returns none when no write is pending; then the slot writer is stopped.
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

    /// Returns the pool that receives a write of an open queue first, and whether a second pool follows.
    pub(crate) fn route(&self, open: &OpenQueue, route: PoolRoute) -> Option<(PoolName, Leg)> {
        let Placement { pool, older } = &open.placement;
        let Some(older) = older else {
            return (route != PoolRoute::Older).then(|| (pool.clone(), Leg::Only));
        };
        let is_older_up = self.writers.get(older).is_some_and(|writer| writer.store.check_open().is_ok());
        Some(match route {
            PoolRoute::Newer => (pool.clone(), Leg::Only),
            PoolRoute::Older => (older.clone(), Leg::Only),
            // An older pool that is out of use is asked first: it refuses the write, so the newer pool gets nothing of
            // it.
            PoolRoute::Both if !is_older_up => (older.clone(), Leg::First(pool.clone())),
            PoolRoute::Both | PoolRoute::NewerFirst => (pool.clone(), Leg::First(older.clone())),
        })
    }

    /// Makes the slot writer's next batch of these writes.
    pub(crate) fn batch(&self, slot: &Slot, pool: &PoolName, writes: &[Write]) -> Option<Batch> {
        let seq = self.writers.get(pool)?.seq + 1;
        let mut places: HashMap<QueueId, usize> = HashMap::default();
        let mut queues: Vec<QueueChanges> = Vec::new();
        for (at, queue, change) in writes.iter().flat_map(Write::parts) {
            let place = *places.entry(queue).or_insert_with(|| {
                let open = at.and_then(|at| self.queues.get(at));
                let low = open.map_or(MessageId::ZERO, |queue| queue.engine.low());
                queues.push(QueueChanges::of(queue, low));
                queues.len() - 1
            });
            queues[place].changes.merge(change.changes());
        }
        // A batch is as durable as its most durable write.
        let durability = writes.iter().map(|write| write.durability).max().unwrap_or_default();
        Some(Batch { slot: slot.owned.slot, epoch: slot.epoch, seq, durability, queues })
    }

    /// Tells the engines the outcome of a batch, then the waiters. Returns the next steps of queues, and the pools
    /// whose slot writers received writes as the second pool.
    pub(crate) fn settle_writes(
        &mut self,
        pool: &PoolName,
        writes: Vec<Write>,
        outcome: Outcome,
    ) -> (Vec<(QueueRef, NextStep)>, HashSet<PoolName>) {
        let (mut next, mut pools) = (Vec::new(), HashSet::default());
        if let Some(writer) = self.writers.get_mut(pool) {
            writer.seq += u64::from(outcome == Outcome::Done && !is_on(Mutation::ReuseBatchNumber));
            writer.is_closed |= outcome == Outcome::Unknown;
        }
        for write in writes {
            let outcome = write.outcome(outcome);
            let Some(write) = self.advance(write, outcome, &mut pools) else { continue };
            let Write { at, queue, change, reply, copies, .. } = write;
            let main = at.map(|at| (at, queue, change));
            let copies = copies.into_iter().map(|WriteCopy { at, queue, change, .. }| (at, queue, change));
            for (at, queue, change) in main.into_iter().chain(copies) {
                if let Some(todo) = self.settle_one(&at, queue, change, outcome) {
                    next.push((at, todo));
                }
            }
            let part = || Part::Pool(pool.clone());
            // The waiter may have left; the outcome is the same.
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

    /// Submits a write to the second pool of its queue, and adds that pool to `pools`, if there is one and the first
    /// pool has the write. Otherwise returns the write, to be settled.
    pub(crate) fn advance(
        &mut self,
        mut write: Write,
        outcome: Outcome,
        pools: &mut HashSet<PoolName>,
    ) -> Option<Write> {
        let Leg::First(then) = &write.leg else { return Some(write) };
        let then = then.clone();
        let open = write.at.as_ref().and_then(|at| self.queues.get(at)).filter(|open| open.id == write.queue);
        // A pool that left the placement meanwhile has no entry of the queue.
        let is_there = open.is_some_and(|open| open.placement.contains(&then));
        match self.writers.get_mut(&then) {
            Some(writer) if outcome == Outcome::Done && is_there => {
                write.leg = Leg::Second;
                writer.push(write);
                pools.insert(then);
                None
            }
            _ => Some(write),
        }
    }

    /// Tells the engine of a queue the outcome of a change. Messages of an unknown outcome stay hidden.
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
        let purpose = change.purpose();
        if !purpose.is_copy() {
            open.pace.count();
        }
        if outcome == Outcome::Done {
            open.retained.note(change.changes().headers());
            // A message that is removed from the older pool was copied, and has not left the queue.
            if !purpose.is_copy() {
                open.note_removals(change.changes());
                open.outcomes.note(change.changes());
            }
            if purpose == Purpose::Prepare {
                open.pace.count_posted(count(&change.changes().appends));
            }
        }
        match outcome {
            Outcome::Done => self.apply(at, purpose, change.into_changes()),
            Outcome::NotDone | Outcome::Full | Outcome::Damaged => {
                let frees = open.undo(purpose, &change.into_changes());
                (frees && is_waited_for).then_some(NextStep::Serve)
            }
            // The submitter continues when it receives the outcome.
            Outcome::Unknown => None,
        }
    }

    /// Tells the engine of an open queue what was written.
    fn apply(&mut self, at: &QueueRef, purpose: Purpose, changes: Changes) -> Option<NextStep> {
        let serves = (!self.lines.is_empty()).then_some(NextStep::Serve);
        let open = self.queues.get_mut(at).map(Box::as_mut)?;
        let Changes { appends, updates, removes, notes, .. } = changes;
        match purpose {
            Purpose::Post => {
                open.counters.sent.inc_by(count(&appends));
                open.pace.count_posted(count(&appends));
                open.engine.dedup_posted(&changes::duplicates(&notes));
                open.engine.posted(appends);
                self.note_wake(at);
                serves.filter(|_| !is_on(Mutation::LoseWakeAfterPost))
            }
            Purpose::FanOut => {
                let moves = open.take_copies(appends);
                self.note_wake(at);
                match (moves, serves) {
                    (true, _) => Some(NextStep::MoveAndServe),
                    (false, serves) => serves,
                }
            }
            Purpose::Wake | Purpose::Publish | Purpose::PublishInOlder => {
                open.engine.woken(&changes::ids(&updates));
                // An arrival with a delay is scheduled now.
                self.note_wake(at);
                serves
            }
            Purpose::MarkInTransfer => {
                open.engine.mark_in_transfer(&changes::ids(&updates));
                (!is_on(Mutation::LoseMoveOfDeadLetters)).then_some(NextStep::Move)
            }
            Purpose::Remove | Purpose::RemoveTransferred => {
                let over = open.engine.removed(&removes);
                open.pace.count_removed(count(&removes));
                open.count_removals();
                let frees = open.engine.frees_by_removal();
                self.spend(over);
                serves.filter(|_| frees)
            }
            Purpose::Settle | Purpose::SettleInOlder => {
                open.settle_notes.written(&notes);
                let SettleEffects { ended, moves } = open.apply_settle(appends, updates, &removes);
                self.spend(ended);
                self.note_wake(at);
                match (moves, serves) {
                    (true, _) => Some(NextStep::MoveAndServe),
                    (false, serves) => serves,
                }
            }
            Purpose::Requeue => {
                updates.into_iter().for_each(|header| open.engine.requeued(header));
                self.note_wake(at);
                serves
            }
            Purpose::Replace | Purpose::ReplaceInOlder => {
                let over = open.engine.removed(&removes);
                appends.into_iter().for_each(|message| open.engine.replacement_posted(message.header));
                self.spend(over);
                self.note_wake(at);
                serves
            }
            // The submitter continues when it receives the outcome.
            Purpose::Update | Purpose::Prepare | Purpose::ForgetDedup | Purpose::ForgetSettles => None,
            Purpose::Copy | Purpose::RemoveCopied | Purpose::CopyNotes | Purpose::ForgetCopied => None,
        }
    }
}

impl OpenQueue {
    /// Tells the engine that a change was not written. Returns whether messages may be free by that.
    fn undo(&mut self, purpose: Purpose, changes: &Changes) -> bool {
        let Changes { updates, removes, notes, .. } = changes;
        match purpose {
            Purpose::Post => self.engine.dedup_failed(&changes::duplicates(notes)),
            Purpose::Wake | Purpose::Publish | Purpose::PublishInOlder => {
                self.engine.wake_failed(&changes::ids(updates));
            }
            Purpose::MarkInTransfer => self.engine.put_back(&changes::ids(updates)),
            Purpose::Settle | Purpose::SettleInOlder => self.undo_settle(updates, removes),
            Purpose::ForgetSettles => self.settle_notes.search_again(),
            Purpose::Requeue => {
                updates.iter().for_each(|header| self.engine.cancel_requeue(header.id));
                return true;
            }
            Purpose::Remove | Purpose::RemoveTransferred | Purpose::Replace | Purpose::ReplaceInOlder => {
                self.engine.remove_failed(removes);
                return true;
            }
            // The submitter continues when it receives the outcome.
            Purpose::FanOut | Purpose::Update | Purpose::Prepare | Purpose::ForgetDedup => {}
            Purpose::Copy | Purpose::RemoveCopied | Purpose::CopyNotes | Purpose::ForgetCopied => {}
        }
        false
    }
}

/// The next step for a queue after its engine was told an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// Serve the waiting claims.
    Serve,
    /// Continue its transfers.
    Move,
    /// Both.
    MoveAndServe,
}

pub(crate) fn count<T>(elements: &[T]) -> u64 {
    u64::try_from(elements.len()).unwrap_or(u64::MAX)
}

impl LockedSlot<'_> {
    /// Submits a change to the slot writer of an open queue. The receiver gets the outcome after the engine.
    pub(crate) fn submit(
        &mut self,
        at: &QueueRef,
        change: Change,
    ) -> Result<oneshot::Receiver<Result<(), Error>>, Error> {
        self.submit_reserved(at, change, Reservation::none())
    }

    /// Like `submit`, for messages that have a reservation.
    pub(crate) fn submit_reserved(
        &mut self,
        at: &QueueRef,
        change: Change,
        room: Reservation,
    ) -> Result<oneshot::Receiver<Result<(), Error>>, Error> {
        self.submit_with_copies(at, change, Vec::new(), room)
    }

    /// Like `submit_reserved`, with changes of the queues of subscriptions, which are in the same pools. A change with copies
    /// is written to one of them.
    pub(crate) fn submit_with_copies(
        &mut self,
        at: &QueueRef,
        mut change: Change,
        copies: Vec<WriteCopy>,
        room: Reservation,
    ) -> Result<oneshot::Receiver<Result<(), Error>>, Error> {
        let gone = || Error::unavailable(Part::Server, "the queue is not open");
        let open = self.state.queues.get(at).ok_or_else(gone)?;
        let (pool, leg) = self.state.route(open, change.purpose().route()).ok_or_else(gone)?;
        debug_assert!(copies.is_empty() || leg == Leg::Only, "a second pool would get the copies again");
        if self.slot.closed.is_cancelled() {
            return Err(Error::unavailable(Part::Storage, "the slot is being recovered"));
        }
        let (reply, outcome) = oneshot::channel();
        // The queue of a subscription is as durable as its source.
        let changes = std::iter::once(&change).chain(copies.iter().map(|copy| &copy.change));
        let durability = changes.map(|change| change.durability(&open.attributes)).max().unwrap_or_default();
        let in_use = Some(open.uses.token());
        if leg == Leg::Only {
            change.add_hints(&open.engine);
        }
        let (queue, reserved) = (open.id, room.bind(open.id, self.slot.epoch));
        let state: &mut SlotState = &mut self.state;
        let writer = state.writers.get_mut(&pool).ok_or_else(gone)?;
        if change.fill_progress().is_some()
            && let Some(backlog) = state.queues.get_mut(at).and_then(|open| open.backlog.as_mut())
        {
            backlog.begin_fill_note();
        }
        let at = Some(at.clone());
        writer.push(Write { at, queue, change, durability, reserved, reply, _use: in_use, leg, copies });
        self.slot.start_writer(&pool, writer);
        Ok(outcome)
    }

    /// Submits the removal of messages from a queue that is not open. The caller has opened the slot writer and holds
    /// the gate of the pool, so that the queue is not opened meanwhile. Returns none when there is no slot writer, or
    /// when the slot is lost.
    pub(crate) fn submit_unopened(
        &mut self,
        pool: &PoolName,
        queue: QueueId,
        gone: Vec<MessageId>,
    ) -> Option<oneshot::Receiver<Result<(), Error>>> {
        // A lost slot may lack claims of a queue that was closed and not deleted after all.
        self.slot.check_served().ok()?;
        let writer = self.state.writers.get_mut(pool)?;
        let (reply, outcome) = oneshot::channel();
        writer.push(Write {
            at: None,
            queue,
            change: Change::remove(gone),
            durability: Durability::Sync,
            reserved: Amount::default(),
            reply,
            _use: None,
            leg: Leg::Only,
            copies: Vec::new(),
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

    /// Tells the engines the outcome of writes, then the waiters; then serves the waiting claims and continues
    /// transfers.
    pub(crate) async fn settle(self: &Arc<Self>, pool: &PoolName, writes: Vec<Write>, outcome: Outcome) {
        let outcomes = || writes.iter().map(|write| write.outcome(outcome));
        let is_unknown = outcome == Outcome::Unknown || outcomes().any(|outcome| outcome == Outcome::Unknown);
        if is_unknown && !is_on(Mutation::KeepSlotInDoubt) {
            // Before any waiter learns of it: a later request must not be answered from this memory.
            self.lose("a batch has no known outcome");
        }
        let counted = match outcome {
            Outcome::Done => {
                let is_whole = |write: &&Write| !matches!(write.leg, Leg::First(_));
                let parts = writes.iter().filter(is_whole).flat_map(Write::parts);
                let changed = parts.filter(|(_, _, change)| change.purpose().changes_totals());
                self.count_after(pool, changed.map(|(at, queue, _)| (queue, at))).await
            }
            Outcome::NotDone | Outcome::Full | Outcome::Damaged | Outcome::Unknown => Vec::new(),
        };
        let backlogs = match outcome {
            Outcome::Done => self.count_backlogs(pool, &writes).await,
            Outcome::NotDone | Outcome::Full | Outcome::Damaged | Outcome::Unknown => Vec::new(),
        };
        let removes = writes.iter().flat_map(Write::parts).any(|part| !part.2.changes().removes.is_empty());
        let mut state = self.lock();
        // The reservation of a write with an unknown outcome stays, as does that of a slot being recovered: recovery
        // counts the slot again.
        if outcome != Outcome::Unknown && !self.closed.is_cancelled() {
            let reserved = writes.iter().filter(|write| write.reserved != Amount::default());
            let ended = |write: &Write| EndedReservation { queue: write.queue, amount: write.reserved };
            let ended: Vec<_> = reserved.map(ended).collect();
            if !(counted.is_empty() && ended.is_empty()) {
                self.around.ledger.settle(self.epoch, &counted, &ended);
            }
        }
        state.settle_backlogs(&self.around.replica.meter, &writes, outcome);
        state.learn_backlogs(backlogs);
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
                NextStep::MoveAndServe => {
                    state.start_mover(&at);
                    state.serve(&at);
                }
            }
        }
        drop(state);
        // Settles wait for the removal of their message.
        if removes {
            self.changed.notify_waiters();
        }
    }

    /// Sends batches until no write is pending.
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
            meter.note(writes.iter().map(Write::len).sum(), began.elapsed());
            match outcome {
                Outcome::Full if !is_on(Mutation::RefuseDeleteWhenFull) => {
                    self.send_without_posts(pool, writes, &*store).await
                }
                Outcome::Damaged => self.send_apart(pool, writes, &*store).await,
                outcome => self.settle(pool, writes, outcome).await,
            }
        }
    }
}
