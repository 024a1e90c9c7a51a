//! The migration of an open queue to another pool.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use tokio::sync::{Mutex, MutexGuard};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use angarium_catalogue::{MigrationRecord, Placement};
use angarium_core::dedup::DedupKey;
use angarium_core::error::Error;
use angarium_core::ids::{MessageId, QueueId};
use angarium_core::message::Message;
use angarium_core::names::{PoolName, QueueRef};
use angarium_core::time::Timestamp;
use angarium_engine::must_copy;

use crate::limits;
use crate::slot::follow_ups::{FollowUp, QueueWork};
use crate::slot::locked::LockedSlot;
use crate::slot::queue_handle::QueueHandle;
use crate::slot::state::Slot;
use crate::writer::change::Change;
use crate::writer::notes::{copied_note, dedup_note};
use crate::writer::pending::WriteOutcome;

impl LockedSlot<'_> {
    /// Begins to copy a queue that is in two pools.
    pub(crate) fn start_copy_phase(&mut self, at: &QueueRef) {
        let Some(queue) = self.state.queues.get(at) else { return };
        let Some(migration) = &queue.migration else { return };
        let work = QueueWork::Copy(Arc::clone(migration));
        let queue = QueueHandle::new(Arc::clone(self.slot), at.clone(), queue.id);
        self.slot.around.follow_ups.add(FollowUp { queue, work });
    }
}

/// Messages that are copied by a batch on its way.
pub(crate) struct BegunCopy {
    pub(crate) outcome: WriteOutcome,
    pub(crate) ids: Vec<MessageId>,
}

/// Ids of deduplication that are copied by a batch on its way.
pub(crate) struct BegunDedupCopy {
    pub(crate) outcome: WriteOutcome,
    /// The last one of them.
    pub(crate) last: (Timestamp, DedupKey),
}

/// The last batches that a migration sends to the pool that the queue leaves.
pub(crate) struct LastWrites {
    pub(crate) left: WriteOutcome,
    pub(crate) arrived: WriteOutcome,
}

/// An open queue in two pools.
pub(crate) struct MovingQueue {
    pub(crate) id: QueueId,
    pub(crate) from: PoolName,
    pub(crate) to: PoolName,
    pub(crate) migration: Arc<Migration>,
}

impl Slot {
    /// The migration of a queue, if it is open and in two pools.
    pub(crate) fn migration(self: &Arc<Self>, at: &QueueRef) -> Option<Arc<Migration>> {
        self.lock().queues.get(at).and_then(|queue| queue.migration.clone())
    }
}

impl QueueHandle {
    /// The migration of the queue, if it is in two pools.
    pub(crate) fn migration(&self) -> Option<Arc<Migration>> {
        self.lock_queue(|queue| queue.migration.clone()).flatten()
    }

    /// The queue with its two pools; none inside when it is in one. None when the queue is closed.
    pub(crate) fn moving(&self) -> Option<Option<MovingQueue>> {
        self.lock_queue(|queue| {
            let (from, migration) = queue.placement.older.clone().zip(queue.migration.clone())?;
            Some(MovingQueue { id: queue.id, from, to: queue.placement.pool.clone(), migration })
        })
    }

    /// Where the queue is, if this migration of it continues.
    pub(crate) fn placement_in(&self, migration: &Arc<Migration>) -> Option<Placement> {
        self.lock_queue(|queue| {
            let is_this = queue.migration.as_ref().is_some_and(|known| Arc::ptr_eq(known, migration));
            is_this.then(|| queue.placement.clone())
        })
        .flatten()
    }

    /// Does as the record of the queue states from now on: it is in these pools.
    pub(crate) fn follow(&self, placement: Placement, record: Option<MigrationRecord>) {
        let mut state = self.slot.lock();
        let Some(queue) = state.queue_mut(&self.at, self.id) else { return };
        queue.placement = placement;
        let readers = std::mem::replace(&mut queue.readers, TaskTracker::new());
        queue.migration = record.map(|record| Migration::new(record, readers));
        state.start_copy_phase(&self.at);
    }

    /// Sends the last batches to the pool that the queue leaves; from here on nothing is written or read there.
    pub(crate) fn begin_finish(&self) -> Result<LastWrites, Error> {
        let mut state = self.slot.lock();
        state.queue_mut(&self.at, self.id).ok_or_else(|| self.closed())?;
        // What was sent there before this is settled with it.
        let left = state.submit(&self.at, Change::remove_copied(Vec::new()))?;
        let arrived = state.submit(&self.at, Change::forget_copied())?;
        let queue = state.queue_mut(&self.at, self.id).ok_or_else(|| self.closed())?;
        queue.placement.older = None;
        Ok(LastWrites { left, arrived })
    }

    /// Notes that the migration has ended. None when the queue is closed.
    pub(crate) fn end_migration(&self) -> Option<()> {
        self.lock_queue(|queue| queue.migration = None)
    }

    /// Notes that the queue is still in the pool that it leaves. None when the queue is closed.
    pub(crate) fn stay_in(&self, older: PoolName) -> Option<()> {
        self.lock_queue(|queue| queue.placement.older = Some(older))
    }

    /// Copies the next ids of deduplication to the newer pool. None when there are no more, or the queue is closed.
    pub(crate) fn copy_dedup(
        &self,
        after: Option<(Timestamp, DedupKey)>,
    ) -> Result<Option<BegunDedupCopy>, Error> {
        let mut state = self.slot.lock();
        let Some(queue) = state.queue_mut(&self.at, self.id) else { return Ok(None) };
        let duplicates = queue.engine.durable_dedup(after, limits::NOTES_PAGE);
        let Some((key, _, expires)) = duplicates.last() else { return Ok(None) };
        let last = (*expires, *key);
        let notes = duplicates.iter().map(|(key, id, expires)| dedup_note(key, *id, *expires)).collect();
        let outcome = state.submit(&self.at, Change::copy_notes(notes))?;
        Ok(Some(BegunDedupCopy { outcome, last }))
    }

    /// Copies hidden messages, as they were read since, with a note of their ids that the pool keeps until
    /// `note_expires`. None when none of them is to be copied.
    pub(crate) fn begin_copy(
        &self,
        hidden: &[MessageId],
        read: Vec<Message>,
        note_expires: Timestamp,
    ) -> Result<Option<BegunCopy>, Error> {
        let mut state = self.slot.lock();
        let queue = state.queue_mut(&self.at, self.id).ok_or_else(|| self.closed())?;
        let mut go = read;
        go.retain(|message| must_copy(&message.header.state));
        let ids: HashSet<MessageId> = go.iter().map(|message| message.header.id).collect();
        let gone: Vec<MessageId> = hidden.iter().filter(|id| !ids.contains(id)).copied().collect();
        queue.engine.not_copied(&gone);
        // A removal that has begun was sent to both pools: it must not come after it.
        go.retain(|message| queue.engine.copy_read(&message.header));
        let ids: Vec<MessageId> = go.iter().map(|message| message.header.id).collect();
        if ids.is_empty() {
            return Ok(None);
        }
        let note = copied_note(&ids, note_expires);
        let outcome = state.submit(&self.at, Change::copy(go, note))?;
        Ok(Some(BegunCopy { outcome, ids }))
    }

    /// Shows messages again that were hidden to be copied, and serves the claims that wait.
    pub(crate) fn show_copied(&self, hidden: &[MessageId]) {
        let mut state = self.slot.lock();
        if let Some(queue) = state.queue_mut(&self.at, self.id) {
            queue.engine.finish_copy(hidden);
        }
        state.note_wake(&self.at);
        state.serve(&self.at);
    }
}

/// The migration of an open queue to another pool.
pub(crate) struct Migration {
    pub(crate) record: MigrationRecord,
    /// Held by who copies a batch, and by who ends this or looks at the queue while nothing is in both pools. Whether
    /// it has ended: then nothing is copied any more.
    pub(crate) step: Mutex<bool>,
    /// Messages that were copied since the queue was opened or the migration began.
    pub(crate) copied: AtomicU64,
    /// Whether the last walk found no message to copy: all that are left are claimed or in transfer.
    pub(crate) is_held: AtomicBool,
    /// Those who read the queue where it was before: they would miss what is copied.
    pub(crate) readers: TaskTracker,
}

impl Migration {
    pub(crate) fn new(record: MigrationRecord, readers: TaskTracker) -> Arc<Self> {
        readers.close();
        Arc::new(Self {
            record,
            step: Mutex::new(false),
            copied: AtomicU64::new(0),
            is_held: AtomicBool::new(false),
            readers,
        })
    }
}

/// Waits until no message of a queue is in two pools, and keeps it so, for the counters. When that takes
/// long, since a pool does not answer, some may be counted twice.
pub(crate) async fn still(migration: Option<&Migration>) -> Option<MutexGuard<'_, bool>> {
    timeout(limits::COPY_STILL, migration?.step.lock()).await.ok()
}
