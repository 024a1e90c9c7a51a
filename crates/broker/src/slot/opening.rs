//! Queues that enter or leave the memory of their slot.

use std::cmp::Reverse;
use std::sync::Arc;

use tokio_util::task::TaskTracker;

use angarium_catalogue::{ClaimRecord, Placement};
use angarium_core::attributes::Attributes;
use angarium_core::error::Error;
use angarium_core::ids::{ClaimId, MessageId, QueueId};
use angarium_core::maps::HashSet;
use angarium_core::message::Retention;
use angarium_core::mutation::{Mutation, is_on};
use angarium_core::names::{PoolName, ProjectId, QueueRef};
use angarium_core::time::Timestamp;
use angarium_engine::{EngineSettings, QueueEngine};
use angarium_metrics::QueueCounters;
use angarium_storage::Totals;

use crate::ledger::quota_ledger::CountStart;
use crate::slot::backlog::Backlog;
use crate::slot::closed_figures::OpenedContents;
use crate::slot::deadlines::Deadline;
use crate::slot::delivery_pace::DeliveryPace;
use crate::slot::figures::{FigureSet, PoolSample, QueueDisplay};
use crate::slot::fill::Fill;
use crate::slot::migration::Migration;
use crate::slot::outcome_watch::OutcomeWatch;
use crate::slot::queue_handle::QueueHandle;
use crate::slot::rates::ChangeRate;
use crate::slot::retention::RetentionWatch;
use crate::slot::settle_notes::SettleNotes;
use crate::slot::state::{OpenQueue, Slot};
use crate::slot::subscriptions::KnownSubscription;
use crate::slot::transfer_watch::TransferWatch;
use crate::writer::pending::WriteOutcome;

/// State of the slot for a queue that is about to be opened.
pub(crate) struct OpeningState {
    /// The last message id that the slot assigned.
    pub(crate) tail: MessageId,
    /// The claims of the queue that were read when the slot was acquired.
    pub(crate) claims: Vec<(ClaimId, ClaimRecord)>,
}

/// A queue as read from its record and its pools.
pub(crate) struct OpenedQueue {
    pub(crate) id: QueueId,
    pub(crate) placement: Placement,
    pub(crate) migration: Option<Arc<Migration>>,
    pub(crate) readers: TaskTracker,
    pub(crate) engine: QueueEngine,
    pub(crate) attributes: Attributes,
    pub(crate) retained: RetentionWatch,
    pub(crate) settle_notes: SettleNotes,
    pub(crate) totals: Totals,
    /// Number of earlier reads of its totals in the ledger.
    pub(crate) looks: u64,
    pub(crate) restored: RestoredClaims,
    pub(crate) subscriptions: Vec<KnownSubscription>,
    pub(crate) source: Option<QueueId>,
    pub(crate) fill: Option<Fill>,
    pub(crate) backlog: Option<Backlog>,
    pub(crate) delivery_pace: DeliveryPace,
}

/// The claims of a queue that was opened.
#[derive(Default)]
pub(crate) struct RestoredClaims {
    /// Claims without any message left.
    pub(crate) spent: Vec<ClaimId>,
    /// When the other claims expire.
    pub(crate) ends: Vec<(Timestamp, ClaimId)>,
}

impl OpenQueue {
    /// Returns a queue that was opened, without the claims to restore.
    fn new(opened: OpenedQueue, counters: Arc<QueueCounters>, shown: QueueDisplay) -> Self {
        Self {
            id: opened.id,
            placement: opened.placement,
            migration: opened.migration,
            readers: opened.readers,
            engine: opened.engine,
            pool_failed: None,
            claim_refusal: None,
            uses: TaskTracker::new(),
            attributes: opened.attributes,
            retained: opened.retained,
            wakes_at: None,
            is_moving: false,
            marked: Arc::default(),
            move_passes: 0,
            transfers: TransferWatch::default(),
            targets: Vec::new(),
            outcomes: OutcomeWatch::default(),
            subscriptions: opened.subscriptions.into(),
            source: opened.source,
            fill: opened.fill,
            removals: None,
            backlog: opened.backlog.map(Box::new),
            delivery_pace: opened.delivery_pace,
            has_task: false,
            is_claimed_from: false,
            counters,
            pace: ChangeRate::default(),
            shown,
            settle_notes: opened.settle_notes,
            refuses_settles: false,
            idle_rounds: 0,
        }
    }
}

impl Slot {
    /// Returns the state of the slot for a queue that is about to be opened. The caller holds the gate of the queue.
    ///
    /// # Errors
    ///
    /// When the slot is lost: a queue that was closed and perhaps not deleted still has its claims, which are no longer
    /// in memory (P4).
    pub(crate) fn opening_state(self: &Arc<Self>, queue: QueueId) -> Result<OpeningState, Error> {
        if !is_on(Mutation::OpenInLostSlot) {
            self.check_served()?;
        }
        let state = self.lock();
        let claims = state.unopened.get(&queue).cloned().unwrap_or_default();
        Ok(OpeningState { tail: state.ids.last(), claims })
    }

    /// Adds an opened queue to the slot, resumes its unfinished work, and serves the waiting claims. The caller holds
    /// the gate of the queue.
    pub(crate) fn enter_queue(
        self: &Arc<Self>,
        at: &QueueRef,
        mut opened: OpenedQueue,
        account: &ProjectId,
    ) -> QueueHandle {
        let (id, totals) = (opened.id, opened.totals);
        let is_divided = opened.placement.older.is_some();
        let start = CountStart { epoch: self.epoch, looks: opened.looks, is_divided };
        let mut state = self.lock();
        state.unopened.remove(&id);
        state.resting.forget(id);
        let meter = &self.around.replica.meter;
        // From here on the queue has a name in the metrics if one was left.
        let counters = meter.queue(at);
        let contents = match &opened.migration {
            Some(_) => OpenedContents::Unsure,
            None => OpenedContents::Read(
                PoolSample { changes: 0, totals, oldest: None }.contents(opened.engine.claimed_counts()),
            ),
        };
        let shown = state.figures.open(at, id, FigureSet::of(meter, at), contents);
        let RestoredClaims { spent, ends } = std::mem::take(&mut opened.restored);
        let deadline = |(end, claim)| Reverse(Deadline { at: end, claim, queue: at.clone() });
        state.deadlines.extend(ends.into_iter().map(deadline));
        state.set_expiry_alarm();
        state.spend(spent);
        let queue = OpenQueue::new(opened, counters, shown);
        // No message has the end of a fill as its id, nor the position at which one arrived, so the pool's last id may be
        // before them: a later post would be copied by its batch and by a page.
        if let Some(newest) = queue.backlog.as_deref().and_then(Backlog::newest) {
            state.ids.skip_to(newest);
        }
        let has_fill = queue.has_fill();
        if !self.closed.is_cancelled() {
            self.around.ledger.opened(account, id, start, totals);
        }
        state.note_source(at, &queue.subscriptions);
        state.queues.insert(at.clone(), Box::new(queue));
        if has_fill {
            state.note_fill(at);
        }
        state.follow_group_holds(at);
        state.start_mover(at);
        state.start_copy_phase(at);
        state.note_wake(at);
        state.serve(at);
        QueueHandle::new(Arc::clone(self), at.clone(), id)
    }

    /// Records a queue that is not open as one that may have retained messages.
    pub(crate) fn note_closed(
        self: &Arc<Self>,
        at: &QueueRef,
        pool: &PoolName,
        queue: QueueId,
        retention: Retention,
    ) {
        let mut state = self.lock();
        if !state.queues.contains_key(at) {
            state.resting.rest(pool, queue, retention, RetentionWatch::unknown());
        }
    }

    /// Applies changed attributes to a queue, whether it is open or not.
    pub(crate) fn set_attributes(self: &Arc<Self>, at: &QueueRef, id: QueueId, attributes: &Attributes) {
        let settings = EngineSettings::of(attributes, &at.name, &self.around.replica.limits);
        let mut state = self.lock();
        state.resting.set_retention(id, settings.retention);
        if let Some(queue) = state.queues.get_mut(at) {
            queue.attributes = attributes.clone();
            queue.engine.follow(settings);
        }
    }

    /// Returns the messages under claims of a queue that is not open.
    pub(crate) fn claimed_unopened(self: &Arc<Self>, queue: QueueId) -> HashSet<MessageId> {
        self.lock().claimed_unopened(queue)
    }

    /// Removes messages of a queue that is not open. Returns none when there is no slot writer to the pool, or when the
    /// slot is lost. The caller holds the gate of the pool.
    pub(crate) fn remove_unopened(
        self: &Arc<Self>,
        pool: &PoolName,
        queue: QueueId,
        gone: Vec<MessageId>,
    ) -> Option<WriteOutcome> {
        self.lock().submit_unopened(pool, queue, gone)
    }

    /// Adds a created queue to the figures.
    pub(crate) fn note_created(self: &Arc<Self>, at: &QueueRef) {
        self.lock().figures.progress.created(at);
    }

    /// Has the names of the slot's queues read again for the figures: it is unknown whether a queue was created.
    pub(crate) fn relist(self: &Arc<Self>) {
        self.lock().figures.progress.relist();
    }

    /// Notes that a pool has corrected the totals of a queue: the ledger has them read again.
    pub(crate) fn note_corrected(self: &Arc<Self>, queue: QueueId) {
        self.lock().note_corrected(queue);
        self.enter(|ledger| ledger.corrected(queue));
    }
}
