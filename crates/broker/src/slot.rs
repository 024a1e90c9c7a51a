//! A slot at its owner: its open queues, its slot writers to the pools, its claims' deadlines.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Broker;
use super::alarm::Alarms;
use super::copy_phase::Migration;
use super::deadlines::Deadline;
use super::gates::Gates;
use super::loads::{ChangeRate, RateSample};
use super::queue_contents::RecordOrigin;
use super::queue_figures::{QueueDisplay, SlotFigures};
use super::queue_store::QueueStore;
use super::read_failure::ReadFailure;
use super::recovery::RecoveryPace;
use super::retention::{ClosedQueues, RetentionWatch};
use super::slot_writer::{SlotWriter, Write};
use super::transfer_watch::TransferWatch;
use super::waiters::Waiter;
use angarium_catalogue::{AttemptRecord, ClaimRecord, OwnedSlot, Placement, QueueRecord, SlotClaims};
use angarium_core::attributes::Attributes;
use angarium_core::claim::ClaimTerms;
use angarium_core::error::{Error, Part};
use angarium_core::ids::{ClaimId, IdSequence, MessageId, QueueId};
use angarium_core::names::{PoolName, QueueRef};
use angarium_core::queue::Metadata;
use angarium_core::time::Timestamp;
use angarium_engine::{QueueEngine, WaitLines};
use angarium_metrics::QueueCounters;
use angarium_storage::Epoch;

/// One of the 256, from when it was taken until it is recovered.
///
/// ```text
/// served ──lost──▶ closed: begins nothing more; what is under way ends here, or is refused by tree and pools
/// ```
pub(super) struct Slot {
    /// Fence of its commits to the tree.
    pub(super) owned: OwnedSlot,
    /// Fence of its batches to the pools.
    pub(super) epoch: Epoch,
    /// Held for the few steps of a decision, never across an await.
    pub(super) state: Mutex<SlotState>,
    /// Of a queue: held while it is created, opened, changed or deleted, so that one at a time does.
    pub(super) queue_gates: Gates<QueueRef>,
    /// Of a pool: held while a queue that is not open is read, emptied or opened there. What waits for a pool holds up only
    /// the queues that lie in it.
    pub(super) pool_gates: Gates<PoolName>,
    /// Held while the tree and the books of projects are changed with each other: which queues there are. Never over a call
    /// of a pool.
    pub(super) roll: tokio::sync::Mutex<()>,
    /// Of a pool: held while it is fenced for the slot. A second fence would begin the numbering of batches again.
    pub(super) fencing: Gates<PoolName>,
    /// Held while the tasks of a queue, or what was done to one lately, are read and written, which one at a time does.
    pub(super) tasks: tokio::sync::Mutex<()>,
    /// Wakes those who wait for another replica to end or renew a claim.
    pub(super) changed: Arc<Notify>,
    /// When it was taken.
    pub(super) taken: RecoveryPace,
    /// No claim from before the taking ends earlier.
    no_expiry_before: Timestamp,
    /// Why it must be recovered; empty while it need not.
    lost: OnceLock<&'static str>,
    /// Whether its queues were all looked at for moves that an owner before has begun.
    is_searched: AtomicBool,
    /// Cancelled under the lock of the state, so that who holds that knows. Long waits end with it.
    pub(super) closed: CancellationToken,
}

pub(super) struct SlotState {
    /// In boxes: a table has many more places than queues at times.
    pub(super) queues: HashMap<QueueRef, Box<OpenQueue>>,
    pub(super) writers: HashMap<PoolName, SlotWriter>,
    pub(super) ids: IdSequence,
    /// When claims end; entries of claims that have ended are skipped when their time arrives.
    pub(super) deadlines: BinaryHeap<Reverse<Deadline>>,
    /// Claims without messages, whose records may go.
    pub(super) spent: Vec<ClaimId>,
    /// Claims whose record is in the tree.
    pub(super) live_claims: usize,
    /// Whether a task looks for claims whose time has ended.
    pub(super) is_expiring: bool,
    /// Where queues lie whose claims are being ended for that; none of queues that have no record.
    pub(super) expiring: HashSet<Option<Placement>>,
    /// One bit for each directory of claims that is there.
    pub(super) buckets: u64,
    /// Claims of queues that no replica has opened since the start.
    pub(super) unopened: HashMap<QueueId, Vec<(ClaimId, ClaimRecord)>>,
    /// Queues that are not open and may have messages that live by their retention.
    pub(super) resting: ClosedQueues,
    /// Claims of queues deleted since the slot was taken: their records are removed with what else the queues leave.
    pub(super) orphans: HashMap<QueueId, Vec<ClaimId>>,
    /// When to look for deleted queues that are not cleaned away; none when there are none, or it is being done.
    pub(super) next_cleaning: Option<Timestamp>,
    /// Deleted queues of the last cleaning: nothing is removed from them in any other way.
    pub(super) dropped: HashSet<QueueId>,
    /// Claims that wait for messages, by queue, whether it exists or not.
    pub(super) lines: WaitLines<QueueRef, Waiter>,
    /// When scheduled messages become ready; entries of queues that look for theirs earlier are skipped.
    pub(super) wakes: BinaryHeap<Reverse<(Timestamp, QueueRef)>>,
    /// What pages of metrics show of the queues.
    pub(super) figures: SlotFigures,
    /// When it was noted how much is written to the queues.
    pub(super) paced: RateSample,
    /// Set to what is noted here: when claims end, and when scheduled messages become ready.
    pub(super) alarms: Alarms,
}

/// A queue in memory.
pub(super) struct OpenQueue {
    pub(super) id: QueueId,
    /// Where it is.
    pub(super) placement: Placement,
    /// Its way to another pool, while it is in two.
    pub(super) migration: Option<Arc<Migration>>,
    /// Who reads it where it is holds a token. A migration that begins waits for all, and puts another tracker here.
    pub(super) readers: TaskTracker,
    pub(super) engine: QueueEngine,
    /// Why the last page could not be read.
    pub(super) pool_failed: Option<ReadFailure>,
    /// Who is changing something of the queue in the pool or in the tree holds a token: a deletion waits for all.
    pub(super) uses: TaskTracker,
    /// What its metadata states of its behaviour.
    pub(super) attributes: Attributes,
    /// Its earliest message that lives by its retention.
    pub(super) retained: RetentionWatch,
    /// When its scheduled messages are looked at next, as far as the slot has noted.
    pub(super) wakes_at: Option<Timestamp>,
    /// Whether a task carries its moves on.
    pub(super) is_moving: bool,
    /// Wakes that task when messages were marked in transfer.
    pub(super) set_aside: Arc<Notify>,
    /// How often it went over what is aside.
    pub(super) move_passes: u64,
    /// Who waits for messages to arrive where they move.
    pub(super) transfers: TransferWatch,
    /// Whether a replica carries on a task that moves its messages away.
    pub(super) has_task: bool,
    /// Whether a replica has claimed from it since the memory of all ready caches was looked at.
    pub(super) is_claimed_from: bool,
    /// What happens to its messages is counted here.
    pub(super) counters: Arc<QueueCounters>,
    /// How often that was before.
    pub(super) pace: ChangeRate,
    /// What pages of metrics know of it.
    pub(super) shown: QueueDisplay,
    /// Rounds of [`super::idle_queues`] since it was used.
    pub(super) idle_rounds: u8,
}

impl Slot {
    /// A slot as it was taken, with the claims that were found then.
    pub(super) fn new(
        owned: OwnedSlot,
        epoch: Epoch,
        found: SlotClaims,
        (taken, no_expiry_before): (RecoveryPace, Timestamp),
        alarms: Alarms,
    ) -> Self {
        let mut unopened: HashMap<QueueId, Vec<_>> = HashMap::new();
        let live_claims = found.claims.len();
        let mut deadlines = BinaryHeap::new();
        for (id, record) in found.claims {
            let (at, queue) = (Timestamp::from_millis(record.expires), record.at.clone());
            deadlines.push(Reverse(Deadline { at, claim: id, queue }));
            unopened.entry(record.queue).or_default().push((id, record));
        }
        let state = SlotState {
            queues: HashMap::new(),
            writers: HashMap::new(),
            ids: IdSequence::after(MessageId::ZERO),
            deadlines,
            spent: Vec::new(),
            live_claims,
            is_expiring: false,
            expiring: HashSet::new(),
            buckets: found.buckets,
            unopened,
            resting: ClosedQueues::default(),
            orphans: HashMap::new(),
            next_cleaning: Some(Timestamp::default()),
            dropped: HashSet::new(),
            lines: WaitLines::default(),
            wakes: BinaryHeap::new(),
            figures: SlotFigures::default(),
            paced: RateSample::since(no_expiry_before),
            alarms,
        };
        Self {
            owned,
            epoch,
            state: Mutex::new(state),
            queue_gates: Gates::default(),
            pool_gates: Gates::default(),
            roll: tokio::sync::Mutex::new(()),
            fencing: Gates::default(),
            tasks: tokio::sync::Mutex::new(()),
            changed: Arc::default(),
            taken,
            no_expiry_before,
            lost: OnceLock::new(),
            is_searched: AtomicBool::new(false),
            closed: CancellationToken::new(),
        }
    }

    /// Notes that memory may no longer be right, and why.
    pub(super) fn lose(&self, why: &'static str) {
        // The first reason is.
        let _ = self.lost.set(why);
    }

    /// Why it must be recovered, if it must.
    pub(super) fn lost(&self) -> Option<&'static str> {
        if self.owned.is_lost() {
            self.lose("another replica took it");
        }
        self.lost.get().copied()
    }

    /// Ends all that waits here. Nothing begins from now on; who waits for what is under way learns its outcome.
    pub(super) fn close(&self) {
        let unsent = {
            let mut state = self.state.lock();
            self.closed.cancel();
            state.writers.values_mut().flat_map(SlotWriter::close).collect::<Vec<_>>()
        };
        unsent.into_iter().for_each(Write::refuse);
        self.changed.notify_waiters();
    }

    /// Whether this is still the object that serves the slot.
    pub(super) fn check_served(&self) -> Result<(), Error> {
        if self.closed.is_cancelled() || self.lost().is_some() {
            return Err(Error::unavailable(Part::Coordination, "the slot is being recovered"));
        }
        Ok(())
    }

    /// Whether its queues were all looked at for moves that an owner before has begun.
    pub(super) fn is_searched(&self) -> bool {
        self.is_searched.load(Ordering::Relaxed)
    }

    /// Notes that they were.
    pub(super) fn note_searched(&self) {
        self.is_searched.store(true, Ordering::Relaxed);
    }

    /// The pools it has a slot writer to.
    pub(super) fn pools(&self) -> Vec<PoolName> {
        self.state.lock().writers.keys().cloned().collect()
    }
}

impl SlotState {
    /// The open queue, if it is still this incarnation.
    pub(super) fn queue_mut(&mut self, at: &QueueRef, id: QueueId) -> Option<&mut OpenQueue> {
        self.queues.get_mut(at).map(Box::as_mut).filter(|queue| queue.id == id)
    }

    /// Takes a queue out, so that nothing more begins there.
    pub(super) fn close_queue(&mut self, at: &QueueRef, id: QueueId) -> Option<OpenQueue> {
        if let Some(claims) = self.unopened.remove(&id) {
            self.orphans.entry(id).or_default().extend(claims.into_iter().map(|(claim, _)| claim));
        }
        self.figures.forget(at, id);
        self.resting.forget(id);
        let queue = self.queues.remove(at)?;
        queue.uses.close();
        Some(*queue)
    }

    /// Whether deleted queues are to be cleaned away now; the caller then does so.
    pub(super) fn begin_cleaning(&mut self, now: Timestamp) -> bool {
        let begins = self.next_cleaning.is_some_and(|at| at <= now);
        if begins {
            self.next_cleaning = None;
        }
        begins
    }

    /// Notes claims that have no messages left.
    pub(super) fn spend(&mut self, claims: Vec<ClaimId>) {
        self.spent.extend(claims);
    }
}

impl Broker {
    /// Makes sure that a queue is open. False when there is no such queue. An opening that has begun is completed even when the
    /// caller leaves: it writes to the pools, and the next caller may have no more time for it.
    pub(super) async fn open(&self, slot: &Arc<Slot>, at: &QueueRef) -> Result<bool, Error> {
        if slot.state.lock().is_open(at) {
            return Ok(true);
        }
        let gate = slot.queue_gates.hold(at).await;
        if slot.state.lock().is_open(at) {
            return Ok(true);
        }
        let Some(record) = self.0.catalogue.queue(&slot.owned, at).await? else { return Ok(false) };
        // A request that waits for a pool stops waiting when it ends, so at most one opening per pool outlives its request.
        let pools = slot.pool_gates.hold_all(&record.placement()?).await;
        let (broker, slot, at) = (self.clone(), Arc::clone(slot), at.clone());
        let open = async move {
            let _held = (gate, pools);
            broker.open_behind_gates(&slot, &at, &record, RecordOrigin::Stored).await
        };
        self.carry_out(open).await.map(|()| true)
    }

    /// As [`Broker::open`], for a caller that holds the gate of the queue.
    pub(super) async fn open_gated(&self, slot: &Arc<Slot>, at: &QueueRef) -> Result<bool, Error> {
        if slot.state.lock().is_open(at) {
            return Ok(true);
        }
        match self.0.catalogue.queue(&slot.owned, at).await? {
            Some(record) => self.open_record(slot, at, &record, RecordOrigin::Stored).await.map(|()| true),
            None => Ok(false),
        }
    }

    /// Opens the queue of a record: fences its pools, then takes over its claims, then its head. The caller holds the gate of
    /// the queue.
    pub(super) async fn open_record(
        &self,
        slot: &Arc<Slot>,
        at: &QueueRef,
        record: &QueueRecord,
        origin: RecordOrigin,
    ) -> Result<(), Error> {
        let _pools = slot.pool_gates.hold_all(&record.placement()?).await;
        self.open_behind_gates(slot, at, record, origin).await
    }

    /// As [`Broker::open_record`], for a caller that holds the gates of the pools too.
    async fn open_behind_gates(
        &self,
        slot: &Arc<Slot>,
        at: &QueueRef,
        record: &QueueRecord,
        origin: RecordOrigin,
    ) -> Result<(), Error> {
        let (placement, migration) = self.open_pools(slot, record).await?;
        let attributes = Metadata::stored(record.metadata.clone())?.attributes().clone();
        let readers = TaskTracker::new();
        let store = self.store_at(&placement, readers.token())?;
        let totals = store.totals(record.id).await?;
        let (tail, claims) = {
            let state = slot.state.lock();
            (state.ids.last(), state.unopened.get(&record.id).cloned().unwrap_or_default())
        };
        let found = store.presence(origin, record.id, &totals, tail).await?;
        let mut engine = if attributes.is_fifo {
            self.open_ordered(record.id, found, &store).await?
        } else {
            QueueEngine::open(found)
        };
        engine.set_retention(attributes.retention(&self.0.limits));
        let is_empty = !found.has_ready && !found.is_scheduled && !found.has_aside;
        let retained = if is_empty { RetentionWatch::default() } else { RetentionWatch::unknown() };
        let (spent, ends) =
            restore_claims(&mut engine, claims, (&store, record.id), slot.no_expiry_before).await?;
        let mut state = slot.state.lock();
        state.unopened.remove(&record.id);
        state.resting.forget(record.id);
        let counters = self.0.meter.queue(at);
        let shown = state.figures.open(at, record.id, self.0.meter.is_named(at));
        let deadline = |(end, claim)| Reverse(Deadline { at: end, claim, queue: at.clone() });
        state.deadlines.extend(ends.into_iter().map(deadline));
        state.set_expiry_alarm();
        state.spend(spent);
        let queue = OpenQueue {
            id: record.id,
            placement,
            migration,
            readers,
            engine,
            pool_failed: None,
            uses: TaskTracker::new(),
            attributes,
            retained,
            wakes_at: None,
            is_moving: false,
            set_aside: Arc::default(),
            move_passes: 0,
            transfers: TransferWatch::default(),
            has_task: false,
            is_claimed_from: false,
            counters,
            pace: ChangeRate::default(),
            shown,
            idle_rounds: 0,
        };
        if !slot.closed.is_cancelled() {
            self.0.ledger.opened(&self.account_of(&at.project), record.id, slot.epoch, totals);
        }
        let queue = state.queues.entry(at.clone()).insert_entry(Box::new(queue)).into_mut();
        self.start_mover(slot, at, queue);
        self.start_copy_phase(slot, at, queue);
        state.note_wake(at);
        self.serve(slot, &mut state, at);
        Ok(())
    }
}

/// Restores the claims of a queue that is being opened. Returns the claims that hold no message any more, and when the others end: not before
/// `no_sooner`, since a holder may have been cut off only by the restart (P3).
async fn restore_claims(
    engine: &mut QueueEngine,
    claims: Vec<(ClaimId, ClaimRecord)>,
    (store, queue): (&QueueStore, QueueId),
    no_sooner: Timestamp,
) -> Result<(Vec<ClaimId>, Vec<(Timestamp, ClaimId)>), Error> {
    let (mut spent, mut ends) = (Vec::new(), Vec::new());
    for (id, claim) in claims {
        let expires = Timestamp::from_millis(claim.expires).max(no_sooner);
        let ids: Vec<MessageId> = claim.messages.iter().map(|message| message.id).collect();
        let found = store.get(queue, &ids).await?;
        let attempt = |id| claim.messages.iter().find(|message| message.id == id).map_or(0, |m| m.attempt);
        let headers = found.into_iter().map(|m| (m.header.clone(), attempt(m.header.id))).collect();
        let terms = ClaimTerms::stored(claim.ttl, claim.grace);
        spent.extend(engine.restore_claim(id, terms, expires, headers));
        engine.note_client(id, claim.client);
        engine.note_attempt(id, claim.attempt.as_ref().and_then(AttemptRecord::read));
        ends.push((expires, id));
    }
    Ok((spent, ends))
}

#[cfg(test)]
mod tests {
    use super::*;
    use angarium_core::names::{ProjectId, QueueName};

    impl OpenQueue {
        /// A queue of no matter which name.
        pub(crate) fn of(engine: QueueEngine) -> Self {
            Self {
                id: QueueId::from_bytes([0; 16]),
                placement: Placement::one(PoolName::new("pool").unwrap()),
                migration: None,
                readers: TaskTracker::new(),
                engine,
                pool_failed: None,
                uses: TaskTracker::new(),
                attributes: Attributes::default(),
                retained: RetentionWatch::default(),
                wakes_at: None,
                is_moving: false,
                set_aside: Arc::default(),
                move_passes: 0,
                transfers: TransferWatch::default(),
                has_task: false,
                is_claimed_from: false,
                counters: angarium_metrics::Meter::default().queue(&QueueRef {
                    project: ProjectId::new("").unwrap(),
                    name: QueueName::new("q").unwrap(),
                }),
                pace: ChangeRate::default(),
                shown: QueueDisplay::default(),
                idle_rounds: 0,
            }
        }
    }
}
