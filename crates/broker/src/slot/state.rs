//! A slot at its owner: its open queues, its slot writers to the pools, its claims' deadlines.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use angarium_catalogue::{ClaimRecord, OwnedSlot, Placement, SlotClaims};
use angarium_core::attributes::Attributes;
use angarium_core::group::GroupName;
use angarium_core::hold::{GroupHold, Hold};
use angarium_core::ids::{ClaimId, IdSequence, MessageId, QueueId, SubscriptionId};
use angarium_core::maps::{HashMap, HashSet};
use angarium_core::mutation::{Mutation, is_on};
use angarium_core::names::{PoolName, QueueRef};
use angarium_core::time::Timestamp;
use angarium_engine::{QueueEngine, WaitLines};
use angarium_metrics::QueueCounters;
use angarium_storage::Epoch;

use crate::replica::alarm::Alarms;
use crate::slot::SlotSurroundings;
use crate::slot::backlog::Backlog;
use crate::slot::closed_figures::{OpenedContents, SlotFigures};
use crate::slot::deadlines::Deadline;
use crate::slot::delivery_pace::DeliveryPace;
use crate::slot::explain::ClaimRefusal;
use crate::slot::figures::QueueDisplay;
use crate::slot::fill::Fill;
use crate::slot::gates::Gates;
use crate::slot::group_holds::SlotGroupHolds;
use crate::slot::holds::SlotHolds;
use crate::slot::life::RecoveryPace;
use crate::slot::migration::Migration;
use crate::slot::outcome_watch::OutcomeWatch;
use crate::slot::rates::{ChangeRate, RateSample};
use crate::slot::removal_watch::RemovalWatch;
use crate::slot::retention::{ClosedQueues, RetentionWatch};
use crate::slot::settle_notes::SettleNotes;
use crate::slot::subscriptions::KnownSubscription;
use crate::slot::transfer_targets::TransferTarget;
use crate::slot::transfer_watch::TransferWatch;
use crate::slot::wait_line::Waiter;
use crate::stores::read_failure::ReadFailure;
use crate::writer::pending::SlotWriter;

/// One of the 256 slots, from its acquisition until it is recovered.
///
/// ```text
/// served ──lost──▶ closed: begins nothing more; operations in progress end here, or tree and pools refuse them
/// ```
pub(crate) struct Slot {
    /// Fence of its commits to the tree.
    pub(crate) owned: OwnedSlot,
    /// Fence of its batches to the pools.
    pub(crate) epoch: Epoch,
    pub(crate) around: SlotSurroundings,
    /// Held for the few steps of a decision, never across an await: see [`Slot::lock`].
    pub(in crate::slot) state: Mutex<SlotState>,
    /// Gates of queues: held while a queue is created, opened, changed or deleted, so that one task at a time does.
    pub(crate) queue_gates: Gates<QueueRef>,
    /// Gates of queues with subscriptions: held while the pools of such a queue change, and while the queue of one of its
    /// subscriptions is opened or deleted, since that has the pools of its source.
    pub(crate) placing_gates: Gates<QueueRef>,
    /// Gates of queues with subscriptions: held while a page of the queue, or of one of its subscriptions, is copied to
    /// another pool. So a migration copies one page at a time, within its rate.
    pub(crate) copy_gates: Gates<QueueRef>,
    /// Gates of pools: held while a queue that is not open is read, emptied or opened there. A wait for a pool delays
    /// only the queues in that pool.
    pub(crate) pool_gates: Gates<PoolName>,
    /// Held while the list of queues is changed in the tree and in the ledger together. Never held during a call of a
    /// pool.
    pub(crate) roll: tokio::sync::Mutex<()>,
    /// Gates of pools: held while a pool is fenced for the slot. A second fence would restart the numbering of batches.
    pub(crate) fencing: Gates<PoolName>,
    /// Held while the redrive tasks or the recent acts of a queue are read and written, so that one task at a time
    /// does.
    pub(crate) tasks: tokio::sync::Mutex<()>,
    /// Wakes requests that wait for another caller's change of a claim, or its end.
    pub(crate) changed: Arc<Notify>,
    /// When the slot was acquired.
    pub(crate) taken: RecoveryPace,
    /// No claim from before the acquisition expires earlier.
    pub(crate) no_expiry_before: Timestamp,
    /// Why the slot must be recovered; empty while it need not be.
    pub(crate) lost: OnceLock<&'static str>,
    /// Whether all queues were checked for transfers that an earlier owner has begun.
    pub(crate) is_searched: AtomicBool,
    /// Cancelled under the lock of the state, so that a holder of the lock can rely on it. Ends long waits.
    pub(crate) closed: CancellationToken,
}

pub(crate) struct SlotState {
    /// Boxed, because the table may have many more entries than queues at times.
    pub(crate) queues: HashMap<QueueRef, Box<OpenQueue>>,
    pub(crate) writers: HashMap<PoolName, SlotWriter>,
    pub(crate) ids: IdSequence,
    /// When claims expire; entries of claims that have ended are skipped when their time arrives.
    pub(crate) deadlines: BinaryHeap<Reverse<Deadline>>,
    /// Claims without messages, whose records may be removed.
    pub(crate) spent: Vec<ClaimId>,
    /// Number of claims with a record in the tree.
    pub(crate) live_claims: usize,
    /// Whether a task is expiring claims.
    pub(crate) is_expiring: bool,
    /// Placements whose expired claims are being released. None is for queues without a record.
    pub(crate) expiring: HashSet<Option<Placement>>,
    /// One bit for each existing directory of claims.
    pub(crate) buckets: u64,
    /// Claims of queues that were not opened since the slot was acquired.
    pub(crate) unopened: HashMap<QueueId, Vec<(ClaimId, ClaimRecord)>>,
    /// Queues that are not open and may have retained messages.
    pub(crate) resting: ClosedQueues,
    /// Claims of queues that were deleted since the slot was acquired: the cleaning of the queues removes their
    /// records.
    pub(crate) orphans: HashMap<QueueId, Vec<ClaimId>>,
    /// When to look for deleted queues that must be cleaned; none when there are none, or during the cleaning.
    pub(crate) next_cleaning: Option<Timestamp>,
    /// Deleted queues of the last cleaning: sweeps of expired messages leave them out.
    pub(crate) dropped: HashSet<QueueId>,
    /// Queues that were closed although their claims are in force. Memory has forgotten the claims, so sweeps of expired
    /// messages leave these queues out until the slot is recovered.
    pub(crate) spared: HashSet<QueueId>,
    /// Holds of queues.
    pub(crate) holds: SlotHolds,
    /// Holds of groups of queues.
    pub(crate) group_holds: SlotGroupHolds,
    /// Queues with subscriptions, open or not, and when the next one ends; none until the queue was opened.
    pub(crate) sources: HashMap<QueueRef, Option<Timestamp>>,
    /// The webhooks among the subscriptions of the sources, as far as they were opened.
    pub(crate) webhooks: HashMap<QueueRef, Vec<SubscriptionId>>,
    /// The subscriptions whose queues may have to be filled with the messages that waited, by their sources, as far as
    /// these were opened.
    pub(crate) fills: HashMap<QueueRef, Vec<SubscriptionId>>,
    /// Waiting claims by queue, whether the queue exists or not.
    pub(crate) lines: WaitLines<QueueRef, Waiter>,
    /// When scheduled messages become ready; entries of queues that have an earlier entry are skipped.
    pub(crate) wakes: BinaryHeap<Reverse<(Timestamp, QueueRef)>>,
    /// Figures of the queues for pages of metrics.
    pub(crate) figures: SlotFigures,
    /// When the counts of changes of the queues were last sampled.
    pub(crate) paced: RateSample,
    /// Alarms for the deadlines of claims and for scheduled messages.
    pub(crate) alarms: Alarms,
}

/// A queue in memory.
pub(crate) struct OpenQueue {
    pub(crate) id: QueueId,
    /// The pool or pools of the queue.
    pub(crate) placement: Placement,
    /// The migration to another pool, while the queue is in two.
    pub(crate) migration: Option<Arc<Migration>>,
    /// Each reader of the queue at its placement holds a token. A migration that begins replaces the tracker, and waits
    /// for all readers of the old one.
    pub(crate) readers: TaskTracker,
    pub(crate) engine: QueueEngine,
    /// Why the last page could not be read.
    pub(crate) pool_failed: Option<ReadFailure>,
    /// The last claim that was refused.
    pub(crate) claim_refusal: Option<ClaimRefusal>,
    /// Each task that changes the queue in a pool or in the tree holds a token: a deletion waits for all.
    pub(crate) uses: TaskTracker,
    /// Settings of the queue from its metadata.
    pub(crate) attributes: Attributes,
    /// Its earliest retained message.
    pub(crate) retained: RetentionWatch,
    /// When its scheduled messages are examined next, as the slot has recorded it.
    pub(crate) wakes_at: Option<Timestamp>,
    /// Whether a task does its transfers.
    pub(crate) is_moving: bool,
    /// Wakes that task when messages were marked in transfer.
    pub(crate) marked: Arc<Notify>,
    /// Number of the task's passes over all messages in transfer.
    pub(crate) move_passes: u64,
    /// Claims that wait for messages to arrive in their target queue.
    pub(crate) transfers: TransferWatch,
    /// The targets of its transfers, as its task last left them.
    pub(crate) targets: Vec<TransferTarget>,
    /// Requests that wait for the outcomes of its messages.
    pub(crate) outcomes: OutcomeWatch,
    /// Its subscriptions, replaced as a whole by each change.
    pub(crate) subscriptions: Arc<[KnownSubscription]>,
    /// For the queue of a subscription: the id of its source.
    pub(crate) source: Option<QueueId>,
    /// For the queue of a subscription: the rest of its fill.
    pub(crate) fill: Option<Fill>,
    /// The messages that have left it since a page of it was begun to be read for a fill; none when none is read.
    pub(crate) removals: Option<RemovalWatch>,
    /// The bounds of its messages. None when it is the queue of no subscription.
    pub(crate) backlog: Option<Box<Backlog>>,
    /// For the queue of a subscription: the pace of its deliveries.
    pub(crate) delivery_pace: DeliveryPace,
    /// Whether a task redrives its messages.
    pub(crate) has_task: bool,
    /// Whether a caller has claimed from it since the last check of the ready caches' memory.
    pub(crate) is_claimed_from: bool,
    /// Counters of its messages' events.
    pub(crate) counters: Arc<QueueCounters>,
    /// Counts of its changes, now and at the last samples.
    pub(crate) pace: ChangeRate,
    /// State of the queue for the pages of metrics.
    pub(crate) shown: QueueDisplay,
    /// Notes of settles that its pool has.
    pub(crate) settle_notes: SettleNotes,
    /// Whether settles are refused, because the queue is being deleted.
    pub(crate) refuses_settles: bool,
    /// Rounds of [`crate::sweeps::idle_queues`] since the last use of the queue.
    pub(crate) idle_rounds: u8,
}

/// Records of a slot that were read when it was acquired.
pub(crate) struct SlotRecords {
    pub(crate) claims: SlotClaims,
    pub(crate) holds: Vec<(QueueRef, Hold)>,
    pub(crate) group_holds: Vec<(QueueRef, Vec<(GroupName, GroupHold)>)>,
}

/// The terms of an acquisition.
pub(crate) struct SlotTerms {
    pub(crate) taken: RecoveryPace,
    /// No claim from before the acquisition expires earlier.
    pub(crate) no_expiry_before: Timestamp,
}

impl Slot {
    /// A slot as acquired, with the records that were found then.
    pub(crate) fn new(
        owned: OwnedSlot,
        epoch: Epoch,
        found: SlotRecords,
        terms: SlotTerms,
        around: SlotSurroundings,
    ) -> Self {
        let SlotRecords { claims, holds, group_holds } = found;
        let SlotTerms { taken, no_expiry_before } = terms;
        let alarms = around.replica.alarms.clone();
        let mut state = SlotState::new(claims, no_expiry_before, alarms);
        if !is_on(Mutation::ForgetHolds) {
            state.holds = SlotHolds::new(holds);
        }
        if !is_on(Mutation::ForgetGroupHolds) {
            state.group_holds = SlotGroupHolds::new(group_holds);
        }
        Self {
            owned,
            epoch,
            around,
            state: Mutex::new(state),
            queue_gates: Gates::default(),
            placing_gates: Gates::default(),
            copy_gates: Gates::default(),
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
    /// State with only the claims that were found when the slot was acquired.
    fn new(found: SlotClaims, no_expiry_before: Timestamp, alarms: Alarms) -> Self {
        let mut unopened: HashMap<QueueId, Vec<_>> = HashMap::default();
        let live_claims = found.claims.len();
        let mut deadlines = BinaryHeap::new();
        for (id, record) in found.claims {
            let (at, queue) = (Timestamp::from_millis(record.expires), record.at.clone());
            deadlines.push(Reverse(Deadline { at, claim: id, queue }));
            unopened.entry(record.queue).or_default().push((id, record));
        }
        Self {
            queues: HashMap::default(),
            writers: HashMap::default(),
            ids: IdSequence::after(MessageId::ZERO),
            deadlines,
            spent: Vec::new(),
            live_claims,
            is_expiring: false,
            expiring: HashSet::default(),
            buckets: found.buckets,
            unopened,
            resting: ClosedQueues::default(),
            orphans: HashMap::default(),
            next_cleaning: Some(Timestamp::default()),
            dropped: HashSet::default(),
            spared: HashSet::default(),
            holds: SlotHolds::default(),
            group_holds: SlotGroupHolds::default(),
            sources: HashMap::default(),
            webhooks: HashMap::default(),
            fills: HashMap::default(),
            lines: WaitLines::default(),
            wakes: BinaryHeap::new(),
            figures: SlotFigures::default(),
            paced: RateSample::since(no_expiry_before),
            alarms,
        }
    }

    /// Returns the open queue, if it has this id.
    pub(crate) fn queue(&self, at: &QueueRef, id: QueueId) -> Option<&OpenQueue> {
        self.queues.get(at).map(Box::as_ref).filter(|queue| queue.id == id)
    }

    /// Returns the open queue, if it has this id.
    pub(crate) fn queue_mut(&mut self, at: &QueueRef, id: QueueId) -> Option<&mut OpenQueue> {
        self.queues.get_mut(at).map(Box::as_mut).filter(|queue| queue.id == id)
    }

    /// Takes a queue out of memory, so that no operation begins in it any more. `contents` are those of a queue that is
    /// not open.
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

    /// Whether the cleaning of deleted queues is due. If so, the caller must do it.
    pub(crate) fn begin_cleaning(&mut self, now: Timestamp) -> bool {
        let begins = self.next_cleaning.is_some_and(|at| at <= now);
        if begins {
            self.next_cleaning = None;
        }
        begins
    }

    /// Records claims that have no messages left.
    pub(crate) fn spend(&mut self, claims: Vec<ClaimId>) {
        self.spent.extend(claims);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use angarium_core::names::{ProjectId, QueueName};

    impl SlotState {
        /// The state of a slot without claims, that sets these alarms.
        pub(crate) fn empty(alarms: &Alarms) -> Self {
            Self::new(SlotClaims::default(), Timestamp::default(), alarms.clone())
        }
    }

    impl OpenQueue {
        /// A queue with this engine, under any name.
        pub(crate) fn of(engine: QueueEngine) -> Self {
            Self {
                id: QueueId::from_bytes([0; 16]),
                placement: Placement::one(PoolName::new("pool").unwrap()),
                migration: None,
                readers: TaskTracker::new(),
                engine,
                pool_failed: None,
                claim_refusal: None,
                uses: TaskTracker::new(),
                attributes: Attributes::default(),
                retained: RetentionWatch::default(),
                wakes_at: None,
                is_moving: false,
                marked: Arc::default(),
                move_passes: 0,
                transfers: TransferWatch::default(),
                targets: Vec::new(),
                outcomes: OutcomeWatch::default(),
                subscriptions: Arc::default(),
                source: None,
                fill: None,
                removals: None,
                backlog: None,
                delivery_pace: DeliveryPace::default(),
                has_task: false,
                is_claimed_from: false,
                counters: angarium_metrics::Meter::default().queue(&QueueRef {
                    project: ProjectId::new("").unwrap(),
                    name: QueueName::new("q").unwrap(),
                }),
                pace: ChangeRate::default(),
                shown: QueueDisplay::default(),
                settle_notes: SettleNotes::default(),
                refuses_settles: false,
                idle_rounds: 0,
            }
        }
    }
}
