//! The migration of an open queue to another pool.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use tokio::sync::{Mutex, MutexGuard};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use angarium_catalogue::{MigrationRecord, Placement};
use angarium_core::dedup::DedupKey;
use angarium_core::error::Error;
use angarium_core::ids::{MessageId, QueueId};
use angarium_core::maps::HashSet;
use angarium_core::message::Message;
use angarium_core::mutation::{Mutation, is_on};
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

/// Messages that a submitted batch copies.
pub(crate) struct BegunCopy {
    pub(crate) outcome: WriteOutcome,
    pub(crate) ids: Vec<MessageId>,
}

/// Deduplication ids that a submitted batch copies.
pub(crate) struct BegunDedupCopy {
    pub(crate) outcome: WriteOutcome,
    /// The last of these ids.
    pub(crate) last: (Timestamp, DedupKey),
}

/// The last batches of a migration, for the pool that the queue leaves.
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
    /// Returns the migration of a queue, if the queue is open and in two pools.
    pub(crate) fn migration(self: &Arc<Self>, at: &QueueRef) -> Option<Arc<Migration>> {
        self.lock().queues.get(at).and_then(|queue| queue.migration.clone())
    }
}

impl QueueHandle {
    /// Returns the migration of the queue, if it is in two pools.
    pub(crate) fn migration(&self) -> Option<Arc<Migration>> {
        self.lock_queue(|queue| queue.migration.clone()).flatten()
    }

    /// Returns the queue with its two pools; the inner option is none when it is in one. None when the queue is closed.
    pub(crate) fn moving(&self) -> Option<Option<MovingQueue>> {
        self.lock_queue(|queue| {
            let (from, migration) = queue.placement.older.clone().zip(queue.migration.clone())?;
            Some(MovingQueue { id: queue.id, from, to: queue.placement.pool.clone(), migration })
        })
    }

    /// Returns the placement of the queue, if this migration of it continues.
    pub(crate) fn placement_in(&self, migration: &Arc<Migration>) -> Option<Placement> {
        self.lock_queue(|queue| {
            let is_this = queue.migration.as_ref().is_some_and(|known| Arc::ptr_eq(known, migration));
            is_this.then(|| queue.placement.clone())
        })
        .flatten()
    }

    /// Follows the record of the queue: from now on the queue is in these pools.
    pub(crate) fn follow(&self, placement: Placement, record: Option<MigrationRecord>) {
        let mut state = self.slot.lock();
        let Some(queue) = state.queue_mut(&self.at, self.id) else { return };
        queue.placement = placement;
        let readers = std::mem::replace(&mut queue.readers, TaskTracker::new());
        queue.migration = record.map(|record| Migration::new(record, readers));
        state.start_copy_phase(&self.at);
    }

    /// Submits the last batches to the pool that the queue leaves; after this nothing is written or read there.
    pub(crate) fn begin_finish(&self) -> Result<LastWrites, Error> {
        let mut state = self.slot.lock();
        state.queue_mut(&self.at, self.id).ok_or_else(|| self.closed())?;
        // Writes that were sent there earlier are settled before this one.
        let left = state.submit(&self.at, Change::remove_copied(Vec::new()))?;
        let arrived = state.submit(&self.at, Change::forget_copied())?;
        let queue = state.queue_mut(&self.at, self.id).ok_or_else(|| self.closed())?;
        queue.placement.older = None;
        Ok(LastWrites { left, arrived })
    }

    /// Notes that the migration has ended. Returns none when the queue is closed.
    pub(crate) fn end_migration(&self) -> Option<()> {
        self.lock_queue(|queue| queue.migration = None)
    }

    /// Notes that the queue is still in the pool that it leaves. Returns none when the queue is closed.
    pub(crate) fn stay_in(&self, older: PoolName) -> Option<()> {
        self.lock_queue(|queue| queue.placement.older = Some(older))
    }

    /// Copies the next deduplication ids to the newer pool. Returns none when there are no more, or when the queue is
    /// closed.
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

    /// Copies hidden messages, as `read` has them, with a note of their ids that the pool keeps until `note_expires`.
    /// Returns none when none of them is to be copied.
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
        // A removal that has begun was sent to both pools: the copy must not follow it.
        go.retain(|message| queue.engine.copy_read(&message.header) || is_on(Mutation::CopyAfterDelete));
        let ids: Vec<MessageId> = go.iter().map(|message| message.header.id).collect();
        if ids.is_empty() {
            return Ok(None);
        }
        let note = copied_note(&ids, note_expires);
        let outcome = state.submit(&self.at, Change::copy(go, note))?;
        Ok(Some(BegunCopy { outcome, ids }))
    }

    /// Shows messages again that were hidden for the copy, and serves the waiting claims.
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
    /// Held while a batch is copied, while the migration is ended, and while the queue is read with no message in both
    /// pools. True once the migration has ended: then nothing is copied any more.
    pub(crate) step: Mutex<bool>,
    /// Messages that were copied since the queue was opened or the migration began.
    pub(crate) copied: AtomicU64,
    /// Whether the last pass found no message to copy: all that are left are claimed or in transfer.
    pub(crate) is_held: AtomicBool,
    /// Readers of the queue at its previous placement: they would miss copied messages.
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

/// Waits until no message of a queue is in two pools, and keeps it so, for counts. When that takes longer than
/// [`limits::COPY_STILL`], because a pool does not answer, returns none: some messages may be counted twice.
pub(crate) async fn still(migration: Option<&Migration>) -> Option<MutexGuard<'_, bool>> {
    timeout(limits::COPY_STILL, migration?.step.lock()).await.ok()
}
