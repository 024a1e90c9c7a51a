//! Removals of messages, as the slot begins them: of many by their ids, of chosen ones, of all.

use std::sync::Arc;

use angarium_core::claim::Holdings;
use angarium_core::error::Error;
use angarium_core::ids::MessageId;
use angarium_core::message::Retention;
use angarium_core::time::Timestamp;
use angarium_engine::{PoolLookup, Removal};
use angarium_metrics::QueueCounters;

use crate::slot::queue_handle::QueueHandle;
use crate::stores::queue_store::QueueStore;
use crate::writer::change::Change;
use crate::writer::pending::WriteOutcome;

/// How far a delete came.
pub(crate) enum DeleteStart {
    /// The removal is on its way.
    Removal(WriteOutcome),
    /// What the pool has must be known first.
    Asked(PoolLookup),
}

/// How far a removal of many messages came.
pub(crate) enum BulkRemoval {
    /// The queue is closed.
    Closed,
    /// The removal is on its way.
    Begun(WriteOutcome),
    /// What the pool has must be known first.
    AskPool { lookup: PoolLookup, store: QueueStore },
}

/// Chosen messages on their way out of a queue.
pub(crate) struct BegunPop {
    pub(crate) outcome: WriteOutcome,
    pub(crate) counters: Arc<QueueCounters>,
    pub(crate) retention: Retention,
}

/// Messages that a step of a purge removes.
pub(crate) struct BegunPurge {
    pub(crate) messages: usize,
    pub(crate) outcome: WriteOutcome,
}

impl QueueHandle {
    /// Begins to remove all of these messages, which it takes then, or none when one is under another live claim.
    pub(crate) fn remove_all(
        &self,
        ids: &mut Vec<MessageId>,
        held: Holdings<'_>,
        asked: Option<PoolLookup>,
        now: Timestamp,
    ) -> Result<BulkRemoval, Error> {
        let mut state = self.slot.lock();
        let Some(queue) = state.queue_mut(&self.at, self.id) else { return Ok(BulkRemoval::Closed) };
        match queue.engine.begin_remove_all(ids, held, asked, now)? {
            Removal::Begun => {
                state.submit(&self.at, Change::remove(std::mem::take(ids))).map(BulkRemoval::Begun)
            }
            Removal::AskPool(lookup) => {
                Ok(BulkRemoval::AskPool { lookup, store: self.slot.store_of(queue)? })
            }
        }
    }

    /// Begins to remove messages that were chosen and are not ready again.
    pub(crate) fn remove_taken(&self, ids: Vec<MessageId>) -> Result<BegunPop, Error> {
        let mut state = self.slot.lock();
        let queue = state.queue_mut(&self.at, self.id).ok_or_else(|| self.closed())?;
        queue.engine.begin_remove_taken(&ids);
        let (counters, retention) = (Arc::clone(&queue.counters), queue.engine.retention());
        Ok(BegunPop { outcome: state.submit(&self.at, Change::remove(ids))?, counters, retention })
    }

    /// Begins a purge: the newest message that leaves. None when the queue is closed.
    pub(crate) fn begin_purging(&self) -> Option<MessageId> {
        let mut state = self.slot.lock();
        let last = state.ids.last();
        state.queue_mut(&self.at, self.id)?.engine.begin_purging(last);
        Some(last)
    }

    /// Removes those of these messages that no caller changes. None when the queue is closed.
    pub(crate) fn purge(&self, ids: &[MessageId]) -> Result<Option<BegunPurge>, Error> {
        let mut state = self.slot.lock();
        let Some(queue) = state.queue_mut(&self.at, self.id) else { return Ok(None) };
        let begun = queue.engine.begin_purge(ids);
        let messages = begun.len();
        Ok(Some(BegunPurge { messages, outcome: state.submit(&self.at, Change::remove(begun))? }))
    }
}
