//! A slot at its owner: its open queues, its slot writers to the pools, its claims' deadlines.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use angarium_catalogue::{ClaimRecord, OwnedSlot, Placement, SlotClaims};
use angarium_core::attributes::Attributes;
use angarium_core::ids::{ClaimId, IdSequence, MessageId, QueueId};
use angarium_core::names::{PoolName, QueueRef};
use angarium_core::time::Timestamp;
use angarium_engine::{QueueEngine, WaitLines};
use angarium_metrics::QueueCounters;
use angarium_storage::Epoch;

use crate::replica::alarm::Alarms;
use crate::slot::SlotSurroundings;
use crate::slot::closed_figures::{OpenedContents, SlotFigures};
use crate::slot::deadlines::Deadline;
use crate::slot::figures::QueueDisplay;
use crate::slot::gates::Gates;
use crate::slot::life::RecoveryPace;
use crate::slot::migration::Migration;
use crate::slot::rates::{ChangeRate, RateSample};
use crate::slot::retention::{ClosedQueues, RetentionWatch};
use crate::slot::transfer_watch::TransferWatch;
use crate::slot::wait_line::Waiter;
use crate::stores::read_failure::ReadFailure;
use crate::writer::pending::SlotWriter;

/// One of the 256, from when it was taken until it is recovered.
///
/// ```text
/// served ──lost──▶ closed: begins nothing more; what is under way ends here, or is refused by tree and pools
/// ```
pub(crate) struct Slot {
    /// Fence of its commits to the tree.
    pub(crate) owned: OwnedSlot,
    /// Fence of its batches to the pools.
    pub(crate) epoch: Epoch,
    pub(crate) around: SlotSurroundings,
    /// Held for the few steps of a decision, never across an await: see [`Slot::lock`].
    pub(in crate::slot) state: Mutex<SlotState>,
    /// Of a queue: held while it is created, opened, changed or deleted, so that one at a time does.
    pub(crate) queue_gates: Gates<QueueRef>,
    /// Of a pool: held while a queue that is not open is read, emptied or opened there. What waits for a pool holds up only
    /// the queues that lie in it.
    pub(crate) pool_gates: Gates<PoolName>,
    /// Held while the list of queues is changed in the tree and in the ledger together. Never over a call
    /// of a pool.
    pub(crate) roll: tokio::sync::Mutex<()>,
    /// Of a pool: held while it is fenced for the slot. A second fence would begin the numbering of batches again.
    pub(crate) fencing: Gates<PoolName>,
    /// Held while the tasks of a queue, or what was done to one lately, are read and written, which one at a time does.
    pub(crate) tasks: tokio::sync::Mutex<()>,
    /// Wakes those who wait for another replica to end or renew a claim.
    pub(crate) changed: Arc<Notify>,
    /// When it was taken.
    pub(crate) taken: RecoveryPace,
    /// No claim from before the taking ends earlier.
    pub(crate) no_expiry_before: Timestamp,
    /// Why it must be recovered; empty while it need not.
    pub(crate) lost: OnceLock<&'static str>,
    /// Whether its queues were all looked at for moves that an owner before has begun.
    pub(crate) is_searched: AtomicBool,
    /// Cancelled under the lock of the state, so that who holds that knows. Long waits end with it.
    pub(crate) closed: CancellationToken,
}

pub(crate) struct SlotState {
    /// In boxes: a table has many more places than queues at times.
    pub(crate) queues: HashMap<QueueRef, Box<OpenQueue>>,
    pub(crate) writers: HashMap<PoolName, SlotWriter>,
    pub(crate) ids: IdSequence,
    /// When claims end; entries of claims that have ended are skipped when their time arrives.
    pub(crate) deadlines: BinaryHeap<Reverse<Deadline>>,
    /// Claims without messages, whose records may go.
    pub(crate) spent: Vec<ClaimId>,
    /// Claims whose record is in the tree.
    pub(crate) live_claims: usize,
    /// Whether a task looks for claims whose time has ended.
    pub(crate) is_expiring: bool,
    /// Where queues lie whose claims are being ended for that; none of queues that have no record.
    pub(crate) expiring: HashSet<Option<Placement>>,
    /// One bit for each directory of claims that is there.
    pub(crate) buckets: u64,
    /// Claims of queues that no replica has opened since the start.
    pub(crate) unopened: HashMap<QueueId, Vec<(ClaimId, ClaimRecord)>>,
    /// Queues that are not open and may have messages that live by their retention.
    pub(crate) resting: ClosedQueues,
    /// Claims of queues deleted since the slot was taken: their records are removed with what else the queues leave.
    pub(crate) orphans: HashMap<QueueId, Vec<ClaimId>>,
    /// When to look for deleted queues that are not cleaned away; none when there are none, or it is being done.
    pub(crate) next_cleaning: Option<Timestamp>,
    /// Deleted queues of the last cleaning: nothing is removed from them in any other way.
    pub(crate) dropped: HashSet<QueueId>,
    /// Claims that wait for messages, by queue, whether it exists or not.
    pub(crate) lines: WaitLines<QueueRef, Waiter>,
    /// When scheduled messages become ready; entries of queues that look for theirs earlier are skipped.
    pub(crate) wakes: BinaryHeap<Reverse<(Timestamp, QueueRef)>>,
    /// What pages of metrics show of the queues.
    pub(crate) figures: SlotFigures,
    /// When it was noted how much is written to the queues.
    pub(crate) paced: RateSample,
    /// Set to what is noted here: when claims end, and when scheduled messages become ready.
    pub(crate) alarms: Alarms,
}

/// A queue in memory.
pub(crate) struct OpenQueue {
    pub(crate) id: QueueId,
    /// Where it is.
    pub(crate) placement: Placement,
    /// Its migration to another pool, while it is in two.
    pub(crate) migration: Option<Arc<Migration>>,
    /// Who reads it where it is holds a token. A migration that begins waits for all, and puts another tracker here.
    pub(crate) readers: TaskTracker,
    pub(crate) engine: QueueEngine,
    /// Why the last page could not be read.
    pub(crate) pool_failed: Option<ReadFailure>,
    /// Who is changing something of the queue in the pool or in the tree holds a token: a deletion waits for all.
    pub(crate) uses: TaskTracker,
    /// What its metadata states of its behaviour.
    pub(crate) attributes: Attributes,
    /// Its earliest message that lives by its retention.
    pub(crate) retained: RetentionWatch,
    /// When its scheduled messages are looked at next, as far as the slot has noted.
    pub(crate) wakes_at: Option<Timestamp>,
    /// Whether a task carries its moves on.
    pub(crate) is_moving: bool,
    /// Wakes that task when messages were marked in transfer.
    pub(crate) marked: Arc<Notify>,
    /// How often it went over what is aside.
    pub(crate) move_passes: u64,
    /// Who waits for messages to arrive where they move.
    pub(crate) transfers: TransferWatch,
    /// Whether a replica carries on a task that moves its messages away.
    pub(crate) has_task: bool,
    /// Whether a replica has claimed from it since the memory of all ready caches was looked at.
    pub(crate) is_claimed_from: bool,
    /// What happens to its messages is counted here.
    pub(crate) counters: Arc<QueueCounters>,
    /// How often that was before.
    pub(crate) pace: ChangeRate,
    /// What pages of metrics know of it.
    pub(crate) shown: QueueDisplay,
    /// Rounds of [`crate::sweeps::idle_queues`] since it was used.
    pub(crate) idle_rounds: u8,
}

/// How a slot was taken.
pub(crate) struct SlotTerms {
    pub(crate) taken: RecoveryPace,
    /// No claim from before the taking ends earlier.
    pub(crate) no_expiry_before: Timestamp,
}

impl Slot {
    /// A slot as it was taken, with the claims that were found then.
    pub(crate) fn new(
        owned: OwnedSlot,
        epoch: Epoch,
        found: SlotClaims,
        terms: SlotTerms,
        around: SlotSurroundings,
    ) -> Self {
        let SlotTerms { taken, no_expiry_before } = terms;
        let alarms = around.replica.alarms.clone();
        let state = SlotState::new(found, no_expiry_before, alarms);
        Self {
            owned,
            epoch,
            around,
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
}

impl SlotState {
    /// Nothing but the claims that were found when the slot was taken.
    fn new(found: SlotClaims, no_expiry_before: Timestamp, alarms: Alarms) -> Self {
        let mut unopened: HashMap<QueueId, Vec<_>> = HashMap::new();
        let live_claims = found.claims.len();
        let mut deadlines = BinaryHeap::new();
        for (id, record) in found.claims {
            let (at, queue) = (Timestamp::from_millis(record.expires), record.at.clone());
            deadlines.push(Reverse(Deadline { at, claim: id, queue }));
            unopened.entry(record.queue).or_default().push((id, record));
        }
        Self {
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
        }
    }

    /// The open queue, if it is still this incarnation.
    pub(crate) fn queue(&self, at: &QueueRef, id: QueueId) -> Option<&OpenQueue> {
        self.queues.get(at).map(Box::as_ref).filter(|queue| queue.id == id)
    }

    /// The open queue, if it is still this incarnation.
    pub(crate) fn queue_mut(&mut self, at: &QueueRef, id: QueueId) -> Option<&mut OpenQueue> {
        self.queues.get_mut(at).map(Box::as_mut).filter(|queue| queue.id == id)
    }

    /// Takes a queue out, so that nothing more begins there. One that is not open holds `contents`.
    pub(crate) fn close_queue(
        &mut self,
        at: &QueueRef,
        id: QueueId,
        contents: OpenedContents,
    ) -> Option<OpenQueue> {
        if let Some(claims) = self.unopened.remove(&id) {
            self.orphans.entry(id).or_default().extend(claims.into_iter().map(|(claim, _)| claim));
        }
        if self.queues.contains_key(at) {
            self.figures.forget_open(at, id);
        } else {
            self.figures.forget_closed(at, id, contents);
        }
        self.resting.forget(id);
        let queue = self.queues.remove(at)?;
        queue.uses.close();
        Some(*queue)
    }

    /// Whether deleted queues are to be cleaned away now; the caller then does so.
    pub(crate) fn begin_cleaning(&mut self, now: Timestamp) -> bool {
        let begins = self.next_cleaning.is_some_and(|at| at <= now);
        if begins {
            self.next_cleaning = None;
        }
        begins
    }

    /// Notes claims that have no messages left.
    pub(crate) fn spend(&mut self, claims: Vec<ClaimId>) {
        self.spent.extend(claims);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use angarium_core::names::{ProjectId, QueueName};

    impl SlotState {
        /// Of a slot without claims, that sets these alarms.
        pub(crate) fn empty(alarms: &Alarms) -> Self {
            Self::new(SlotClaims::default(), Timestamp::default(), alarms.clone())
        }
    }

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
                marked: Arc::default(),
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
