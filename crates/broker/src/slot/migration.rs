//! The migration of an open queue to another pool.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::{Mutex, MutexGuard, OwnedMutexGuard};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use angarium_catalogue::{MigrationRecord, Placement};
use angarium_core::dedup::DedupKey;
use angarium_core::error::{Error, Part};
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
use crate::slot::state::{OpenQueue, Slot};
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

/// An open queue in two pools.
pub(crate) struct MovingQueue {
    pub(crate) id: QueueId,
    pub(crate) to: PoolName,
    pub(crate) migration: Arc<Migration>,
}

impl OpenQueue {
    /// Returns the pools that the record of the queue names: two also when the last batch for the older pool has been
    /// submitted.
    pub(in crate::slot) fn recorded_placement(&self) -> Placement {
        let older = self.migration.as_ref().map(|migration| migration.from.clone());
        Placement { pool: self.placement.pool.clone(), older }
    }
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

    /// Returns the queue with its two pools; the inner option is none when it is in one. A queue is in two until its record
    /// names one, also when its last batch for the older pool has been submitted. None when the queue is closed.
    pub(crate) fn moving(&self) -> Option<Option<MovingQueue>> {
        self.lock_queue(|queue| {
            let migration = queue.migration.clone()?;
            Some(MovingQueue { id: queue.id, to: queue.placement.pool.clone(), migration })
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

    /// Waits until no other page of the queue is copied, nor of its source and the other subscriptions of that.
    pub(crate) async fn hold_copying(&self) -> OwnedMutexGuard<()> {
        let source = self.at.source();
        self.slot.copy_gates.hold(source.as_ref().unwrap_or(&self.at)).await
    }

    /// Notes that the older pool has nothing of the queue that is still needed. Tasks that wait for that look again.
    pub(crate) fn note_left(&self, migration: &Migration) {
        if !migration.has_left.swap(true, Ordering::Relaxed) {
            self.slot.changed.notify_waiters();
        }
    }

    /// Writes the notes of the queue of a subscription to the newer pool. None while another note of its fill is being
    /// written.
    pub(crate) fn copy_backlog_notes(&self) -> Result<Option<WriteOutcome>, Error> {
        let mut state = self.slot.lock();
        let queue = state.queue_mut(&self.at, self.id).ok_or_else(|| self.closed())?;
        let notes = queue.backlog.as_mut().and_then(|backlog| backlog.submit_notes());
        notes.map(|notes| state.submit(&self.at, Change::copy_notes(notes))).transpose()
    }

    /// Copies the next deduplication ids to the newer pool. Returns none when there are no more, or when the queue is
    /// closed. Fails while a purge is forgetting ids: a copy could follow the removal of its note, and without a copy an
    /// id that is kept would be in the older pool alone.
    pub(crate) fn copy_dedup(
        &self,
        after: Option<(Timestamp, DedupKey)>,
    ) -> Result<Option<BegunDedupCopy>, Error> {
        let mut state = self.slot.lock();
        let Some(queue) = state.queue_mut(&self.at, self.id) else { return Ok(None) };
        if queue.engine.is_forgetting_dedup() {
            let why = "a purge is forgetting deduplication ids of the queue";
            return Err(Error::unavailable(Part::Server, why));
        }
        let duplicates = queue.engine.durable_dedup(after, limits::notes_page());
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
        if let Some(backlog) = state.queue_mut(&self.at, self.id).and_then(|queue| queue.backlog.as_mut()) {
            backlog.begin_copy();
        }
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
    /// The pool that the queue leaves.
    pub(crate) from: PoolName,
    pub(crate) record: MigrationRecord,
    /// Held while a batch is copied, while the migration is ended, and while the queue is read with no message in both
    /// pools. True once the migration has ended: then nothing is copied any more.
    pub(crate) step: Mutex<bool>,
    /// Messages that were copied since the queue was opened or the migration began.
    pub(crate) copied: AtomicU64,
    /// Whether the last pass found no message to copy: all that are left are claimed or in transfer.
    pub(crate) is_held: AtomicBool,
    /// Whether the older pool has nothing of the queue that is still needed, and gets nothing any more.
    has_left: AtomicBool,
    /// Readers of the queue at its previous placement: they would miss copied messages.
    pub(crate) readers: TaskTracker,
}

impl Migration {
    pub(crate) fn new(from: PoolName, record: MigrationRecord, readers: TaskTracker) -> Arc<Self> {
        readers.close();
        Arc::new(Self {
            from,
            record,
            step: Mutex::new(false),
            copied: AtomicU64::new(0),
            is_held: AtomicBool::new(false),
            has_left: AtomicBool::new(false),
            readers,
        })
    }

    pub(crate) fn has_left(&self) -> bool {
        self.has_left.load(Ordering::Relaxed)
    }
}

/// Waits until no message of a queue is in two pools, and keeps it so, for counts. When that takes longer than
/// [`limits::COPY_STILL`], because a pool does not answer, returns none: some messages may be counted twice.
pub(crate) async fn still(migration: Option<&Migration>) -> Option<MutexGuard<'_, bool>> {
    timeout(limits::COPY_STILL, migration?.step.lock()).await.ok()
}
