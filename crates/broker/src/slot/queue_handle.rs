//! An open queue at the slot that serves it: what parts above the slots hold of a queue.

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

/// A queue that was open when this was made: its slot, its name and its id. A queue of the same name that was created
/// after it is another one: then each verb finds it closed.
#[derive(Clone)]
pub(crate) struct QueueHandle {
    pub(in crate::slot) slot: Arc<Slot>,
    pub(in crate::slot) at: QueueRef,
    pub(in crate::slot) id: QueueId,
}

/// What the engine of a queue showed, and where the queue is read.
pub(crate) struct EngineReading<T> {
    pub(crate) store: QueueStore,
    pub(crate) shown: T,
}

impl Slot {
    /// The queue of this name, if it is open. It is in use then.
    pub(crate) fn handle(self: &Arc<Self>, at: &QueueRef) -> Option<QueueHandle> {
        let id = self.lock().use_queue(at)?;
        Some(QueueHandle { slot: Arc::clone(self), at: at.clone(), id })
    }

    /// Where an open queue is read. It is not to be kept for long: a migration that begins waits for it.
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

    /// That the queue was closed, to be deleted or for its slot to be recovered: nothing was written.
    pub(crate) fn closed(&self) -> Error {
        closed(&self.at)
    }

    /// Lets the engine decide, under the lock of the slot. None when the queue is closed.
    pub(crate) fn decide<T>(&self, decision: impl FnOnce(&mut QueueEngine) -> T) -> Option<T> {
        self.lock_queue(|queue| decision(&mut queue.engine))
    }

    /// What the engine shows, and the store of the queue at that moment. None when the queue is closed.
    pub(crate) fn read<T>(
        &self,
        look: impl FnOnce(&mut QueueEngine) -> T,
    ) -> Result<Option<EngineReading<T>>, Error> {
        self.read_some(|engine| Some(look(engine)))
    }

    /// As `read`; where the engine has nothing to show, the pool does not matter. None also then.
    pub(crate) fn read_some<T>(
        &self,
        look: impl FnOnce(&mut QueueEngine) -> Option<T>,
    ) -> Result<Option<EngineReading<T>>, Error> {
        let mut state = self.slot.lock();
        let Some(queue) = state.queue_mut(&self.at, self.id) else { return Ok(None) };
        let Some(shown) = look(&mut queue.engine) else { return Ok(None) };
        Ok(Some(EngineReading { store: self.slot.store_of(queue)?, shown }))
    }

    /// Where the queue is read. None when it is closed. Not to be kept for long: a migration that begins waits for it.
    pub(crate) fn store(&self) -> Result<Option<QueueStore>, Error> {
        Ok(self.read(|_| ())?.map(|reading| reading.store))
    }

    /// Puts a change on its way to the pool. The outcome is known when the engine has been told.
    pub(crate) fn submit(&self, change: Change) -> Result<WriteOutcome, Error> {
        let mut state = self.slot.lock();
        state.queue_mut(&self.at, self.id).ok_or_else(|| self.closed())?;
        state.submit(&self.at, change)
    }

    /// Makes messages ready again that were chosen, and serves the claims that wait.
    pub(crate) fn put_back(&self, ids: &[MessageId]) {
        let mut state = self.slot.lock();
        if let Some(queue) = state.queue_mut(&self.at, self.id) {
            queue.engine.put_back(ids);
        }
        state.serve(&self.at);
    }

    /// Keeps the queue from being deleted while this is held. None when it is closed.
    pub(crate) fn hold_use(&self) -> Option<TaskTrackerToken> {
        self.lock_queue(|queue| queue.uses.token())
    }

    /// How many bytes a message may have at most. None when the queue is closed.
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

/// The error of a queue that was closed before anything was written.
pub(crate) fn closed(at: &QueueRef) -> Error {
    Error::unavailable(Part::Server, format!("queue {} was closed", at.name))
}
