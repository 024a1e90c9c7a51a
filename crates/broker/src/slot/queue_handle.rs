//! An open queue at the slot that serves it: the handle of parts above the slots.

use std::sync::Arc;

use tokio_util::task::task_tracker::TaskTrackerToken;

use angarium_core::attributes::Attributes;
use angarium_core::error::{Error, Part};
use angarium_core::ids::{MessageId, QueueId};
use angarium_core::limits::Limits;
use angarium_core::names::QueueRef;
use angarium_engine::QueueEngine;

use crate::slot::slot_queue::SlotQueue;
use crate::slot::state::{OpenQueue, Slot};
use crate::stores::queue_store::QueueStore;
use crate::writer::change::Change;
use crate::writer::pending::WriteOutcome;

/// A queue that was open when this handle was made: its slot, its name and its id. A queue of the same name that was
/// created later is another one: then each verb reports the queue as closed.
#[derive(Clone)]
pub(crate) struct QueueHandle {
    pub(in crate::slot) slot: Arc<Slot>,
    pub(in crate::slot) at: QueueRef,
    pub(in crate::slot) id: QueueId,
}

/// A value from the engine of a queue, and the store of the queue at that moment.
pub(crate) struct EngineReading<T> {
    pub(crate) store: QueueStore,
    pub(crate) shown: T,
}

impl Slot {
    /// Returns the queue of this name, if it is open, and counts as a use of it.
    pub(crate) fn handle(self: &Arc<Self>, at: &QueueRef) -> Option<QueueHandle> {
        let id = self.lock().use_queue(at)?;
        Some(QueueHandle { slot: Arc::clone(self), at: at.clone(), id })
    }

    /// Returns the store of an open queue. It must be dropped soon: a migration that begins waits for it.
    pub(crate) fn store_of(self: &Arc<Self>, queue: &OpenQueue) -> Result<QueueStore, Error> {
        self.around.stores.store_at(&queue.placement, queue.readers.token())
    }
}

impl QueueHandle {
    /// The queue with this id in this slot, open or not.
    pub(crate) fn new(slot: Arc<Slot>, at: QueueRef, id: QueueId) -> Self {
        Self { slot, at, id }
    }

    pub(crate) fn slot(&self) -> &Arc<Slot> {
        &self.slot
    }

    pub(crate) fn at(&self) -> &QueueRef {
        &self.at
    }

    pub(crate) fn id(&self) -> QueueId {
        self.id
    }

    /// Returns the queue of the same name in the same slot, whatever its id.
    pub(crate) fn in_slot(&self) -> SlotQueue {
        self.slot.queue(&self.at)
    }

    /// The error for a queue that was closed, to be deleted or because its slot is recovered: nothing was written.
    pub(crate) fn closed(&self) -> Error {
        closed(&self.at)
    }

    /// Runs a decision of the engine under the lock of the slot. Returns none when the queue is closed.
    pub(crate) fn decide<T>(&self, decision: impl FnOnce(&mut QueueEngine) -> T) -> Option<T> {
        self.lock_queue(|queue| decision(&mut queue.engine))
    }

    /// Reads the engine. Returns the result with the store of the queue at that moment.
    ///
    /// Fails when the queue is closed: it is not known then whether it still exists, so nothing may be answered about its
    /// contents.
    pub(crate) fn read<T>(
        &self,
        look: impl FnOnce(&mut QueueEngine) -> T,
    ) -> Result<EngineReading<T>, Error> {
        self.read_some(|engine| Some(look(engine)))?.ok_or_else(|| self.closed())
    }

    /// Like `read`, but returns none when `look` does: then the store is not needed.
    pub(crate) fn read_some<T>(
        &self,
        look: impl FnOnce(&mut QueueEngine) -> Option<T>,
    ) -> Result<Option<EngineReading<T>>, Error> {
        let mut state = self.slot.lock();
        let queue = state.queue_mut(&self.at, self.id).ok_or_else(|| self.closed())?;
        let Some(shown) = look(&mut queue.engine) else { return Ok(None) };
        Ok(Some(EngineReading { store: self.slot.store_of(queue)?, shown }))
    }

    /// Returns the store of the queue. It must be dropped soon: a migration that begins waits for it.
    pub(crate) fn store(&self) -> Result<QueueStore, Error> {
        Ok(self.read(|_| ())?.store)
    }

    /// Submits a change. The outcome arrives after the engine was told.
    pub(crate) fn submit(&self, change: Change) -> Result<WriteOutcome, Error> {
        let mut state = self.slot.lock();
        state.queue_mut(&self.at, self.id).ok_or_else(|| self.closed())?;
        state.submit(&self.at, change)
    }

    /// Makes chosen messages ready again, and serves the waiting claims.
    pub(crate) fn put_back(&self, ids: &[MessageId]) {
        let mut state = self.slot.lock();
        if let Some(queue) = state.queue_mut(&self.at, self.id) {
            queue.engine.put_back(ids);
        }
        state.serve(&self.at);
    }

    /// Keeps the queue from being deleted while the token is held. Returns none when the queue is closed.
    pub(crate) fn hold_use(&self) -> Option<TaskTrackerToken> {
        self.lock_queue(|queue| queue.uses.token())
    }

    /// Max bytes of a message. None when the queue is closed.
    pub(crate) fn message_bytes(&self, limits: &Limits) -> Option<usize> {
        self.lock_queue(|queue| queue.attributes.message_bytes(limits))
    }

    pub(crate) fn attributes(&self) -> Option<Attributes> {
        self.lock_queue(|queue| queue.attributes.clone())
    }

    pub(in crate::slot) fn lock_queue<T>(&self, step: impl FnOnce(&mut OpenQueue) -> T) -> Option<T> {
        self.slot.lock().queue_mut(&self.at, self.id).map(step)
    }
}

/// The error for a queue that was closed before anything was written.
pub(crate) fn closed(at: &QueueRef) -> Error {
    Error::unavailable(Part::Server, format!("queue {} was closed", at.name))
}
