//! A queue's name at the slot that serves it: the handle of parts above the slots for a queue that may not be open.

use std::sync::Arc;

use tokio::sync::OwnedMutexGuard;
use tokio::time::timeout;

use angarium_catalogue::{Placement, QueueEntry, QueueRecord};
use angarium_core::error::{Error, Part};
use angarium_core::ids::QueueId;
use angarium_core::names::QueueRef;

use crate::limits;
use crate::slot::queue_handle::QueueHandle;
use crate::slot::state::Slot;

/// The name of a queue with the slot that serves it. The queue may be open or closed, or may not exist.
#[derive(Clone)]
pub(crate) struct SlotQueue {
    slot: Arc<Slot>,
    at: QueueRef,
}

impl Slot {
    /// Returns the queue of this name in this slot.
    pub(crate) fn queue(self: &Arc<Self>, at: &QueueRef) -> SlotQueue {
        SlotQueue { slot: Arc::clone(self), at: at.clone() }
    }
}

impl SlotQueue {
    pub(crate) fn slot(&self) -> &Arc<Slot> {
        &self.slot
    }

    pub(crate) fn at(&self) -> &QueueRef {
        &self.at
    }

    /// Returns the handle of the queue, if it is open, and counts as a use of it.
    pub(crate) fn handle(&self) -> Option<QueueHandle> {
        self.slot.handle(&self.at)
    }

    /// Returns the handle of the queue with this name and this id, open or not.
    pub(crate) fn with_id(&self, id: QueueId) -> QueueHandle {
        QueueHandle::new(Arc::clone(&self.slot), self.at.clone(), id)
    }

    /// Waits for the gate of the queue. While it is held no other task creates, opens, changes or deletes the queue.
    pub(crate) async fn hold_gate(&self) -> OwnedMutexGuard<()> {
        self.slot.queue_gates.hold(&self.at).await
    }

    /// Like `hold_gate`, for a caller that must not wait for a task that hangs in a pool: the slot is recovered then, and
    /// the caller can try again.
    pub(crate) async fn hold_gate_soon(&self) -> Result<OwnedMutexGuard<()>, Error> {
        timeout(limits::LEAVE_GATE, self.hold_gate()).await.map_err(|_| self.held_too_long())
    }

    /// Like `hold_gate_soon`, for a background task, which tries again later: nothing is recovered.
    pub(crate) async fn hold_gate_in_background(&self) -> Option<OwnedMutexGuard<()>> {
        timeout(limits::LEAVE_GATE, self.hold_gate()).await.ok()
    }

    /// Holds the gate of the queue, if no other task holds it: for a background task that has other queues to do.
    pub(crate) fn try_hold_gate(&self) -> Option<OwnedMutexGuard<()>> {
        self.slot.queue_gates.try_hold(&self.at)
    }

    /// Waits until no task changes the pools of the queue, and keeps it so. For the queue of a subscription: these are the
    /// pools of its source. Another queue needs no more than its own gate.
    pub(crate) async fn hold_placement(&self) -> Option<OwnedMutexGuard<()>> {
        let source = self.at.source()?;
        Some(self.slot.placing_gates.hold(&source).await)
    }

    /// Like `hold_placement`, within the time of `hold_gate_soon`.
    pub(crate) async fn hold_placement_soon(&self) -> Result<Option<OwnedMutexGuard<()>>, Error> {
        timeout(limits::LEAVE_GATE, self.hold_placement()).await.map_err(|_| self.held_too_long())
    }

    /// Waits until the queue of no subscription to this queue is being opened or deleted, and keeps it so: then the pools of
    /// all of them can change. The caller holds the gate of the queue.
    pub(crate) async fn hold_placements(&self) -> Result<OwnedMutexGuard<()>, Error> {
        let held = timeout(limits::CLOSE_DEADLINE, self.slot.placing_gates.hold(&self.at)).await;
        held.map_err(|_| Error::unavailable(Part::Storage, "a subscription of the queue is being opened"))
    }

    /// Waits for the gates of the pools of a placement, like `hold_gate_soon`.
    pub(crate) async fn hold_pools_soon(
        &self,
        placement: &Placement,
    ) -> Result<Vec<OwnedMutexGuard<()>>, Error> {
        let held = timeout(limits::LEAVE_GATE, self.slot.pool_gates.hold_all(placement)).await;
        held.map_err(|_| self.held_too_long())
    }

    fn held_too_long(&self) -> Error {
        self.slot.lose("a task hangs in a pool of a queue");
        Error::unavailable(Part::Storage, "another task holds the queue or its pool")
    }

    /// Reads the record of the queue in the tree; none when there is no such queue.
    pub(crate) async fn record(&self) -> Result<Option<QueueRecord>, Error> {
        self.slot.around.replica.catalogue.queue(&self.slot.owned, &self.at).await
    }

    /// Like `record`, with the version of the record.
    pub(crate) async fn entry(&self) -> Result<Option<QueueEntry>, Error> {
        self.slot.around.replica.catalogue.queue_entry(&self.slot.owned, &self.at).await
    }
}
