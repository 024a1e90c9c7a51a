//! A queue with the queues of its subscriptions: all are in the pools of the queue, and change them together.
//!
//! A post looks at the pools of all of them under the lock of the slot. So their placements change under one lock, too.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio_util::task::TaskTracker;

use angarium_catalogue::{MigrationRecord, Placement};
use angarium_core::error::Error;
use angarium_core::ids::QueueId;
use angarium_core::names::{PoolName, QueueRef};

use crate::slot::migration::Migration;
use crate::slot::queue_handle::QueueHandle;
use crate::slot::state::Slot;
use crate::slot::subscriptions::KnownSubscription;
use crate::writer::change::Change;
use crate::writer::pending::WriteOutcome;

/// A queue that was open when this was made, and the queues of its subscriptions, open or not.
pub(crate) struct QueueFamily {
    source: QueueHandle,
    copies: Vec<QueueHandle>,
}

impl QueueFamily {
    /// Returns the family of a queue. None when the queue is closed.
    pub(crate) fn of(source: &QueueHandle) -> Option<Self> {
        let own = |known: &KnownSubscription| {
            QueueHandle::new(Arc::clone(source.slot()), known.at.clone(), known.id().0)
        };
        let copies = source.subscriptions()?.iter().map(own).collect();
        Some(Self { source: source.clone(), copies })
    }

    /// The queues of the subscriptions.
    pub(crate) fn copies(&self) -> &[QueueHandle] {
        &self.copies
    }

    /// The ids of all of its queues.
    pub(crate) fn ids(&self) -> impl Iterator<Item = QueueId> {
        self.queues().map(QueueHandle::id)
    }

    fn queues(&self) -> impl Iterator<Item = &QueueHandle> {
        std::iter::once(&self.source).chain(&self.copies)
    }

    /// Returns the migrations of all of its queues. None when one of them is closed, or in one pool.
    pub(crate) fn migrations(&self) -> Option<Vec<Arc<Migration>>> {
        self.queues().map(QueueHandle::migration).collect()
    }

    /// Whether the queue of each subscription has left the older pool: with its messages, and with all else that is needed of
    /// it. False when one of them is closed.
    pub(crate) fn copies_have_left(&self) -> bool {
        let has_left = |copy: &QueueHandle| copy.migration().is_some_and(|migration| migration.has_left());
        self.copies.iter().all(has_left)
    }

    /// Whether no page of a subscription can be copied now: the messages that are left are claimed or in transfer.
    pub(crate) fn copies_are_held(&self) -> bool {
        let is_held =
            |migration: Arc<Migration>| migration.has_left() || migration.is_held.load(Ordering::Relaxed);
        self.copies.iter().filter_map(QueueHandle::migration).all(is_held)
    }

    /// Follows the record of the source: from now on the open queues are in these pools. The caller holds the placements of the
    /// source, so a queue that is opened later follows it too.
    pub(crate) fn follow(&self, placement: &Placement, record: MigrationRecord) {
        let mut state = self.source.slot.lock();
        for QueueHandle { at, id, .. } in self.queues() {
            let Some(queue) = state.queue_mut(at, *id) else { continue };
            queue.placement = placement.clone();
            let readers = std::mem::replace(&mut queue.readers, TaskTracker::new());
            let moving = |from: &PoolName| Migration::new(from.clone(), record, readers);
            queue.migration = placement.older.as_ref().map(moving);
            state.start_copy_phase(at);
        }
    }

    /// Submits the last batches to the pool that the queues leave; after this nothing is written or read there. All of them
    /// are open.
    pub(crate) fn begin_finish(&self) -> Result<Vec<WriteOutcome>, Error> {
        let mut state = self.source.slot.lock();
        for queue in self.queues() {
            state.queue(&queue.at, queue.id).ok_or_else(|| queue.closed())?;
        }
        // Writes that were sent there earlier, of any of the queues, are settled before this one.
        let mut last = vec![state.submit(&self.source.at, Change::remove_copied(Vec::new()))?];
        for queue in self.queues() {
            last.push(state.submit(&queue.at, Change::forget_copied())?);
        }
        for QueueHandle { at, id, .. } in self.queues() {
            if let Some(queue) = state.queue_mut(at, *id) {
                queue.placement.older = None;
            }
        }
        Ok(last)
    }

    /// Notes that the migration has ended.
    pub(crate) fn end_migration(&self) {
        let mut state = self.source.slot.lock();
        for QueueHandle { at, id, .. } in self.queues() {
            if let Some(queue) = state.queue_mut(at, *id) {
                queue.migration = None;
            }
        }
    }

    /// Notes that the queues are still in the pool that they leave.
    pub(crate) fn stay_in(&self, older: &PoolName) {
        let mut state = self.source.slot.lock();
        for QueueHandle { at, id, .. } in self.queues() {
            if let Some(queue) = state.queue_mut(at, *id) {
                queue.placement.older = Some(older.clone());
            }
        }
    }
}

impl Slot {
    /// Whether a queue under migration has left the older pool: no message of it can bring copies there any more.
    pub(crate) fn has_left(self: &Arc<Self>, at: &QueueRef) -> bool {
        self.migration(at).is_some_and(|migration| migration.has_left())
    }
}
