//! Removals of messages, as the slot begins them: of many by id, of chosen ones, of all.

use std::sync::Arc;

use angarium_core::claim::Holdings;
use angarium_core::error::Error;
use angarium_core::ids::MessageId;
use angarium_core::message::Retention;
use angarium_core::time::Timestamp;
use angarium_engine::{KeptPage, PoolLookup, Removal};
use angarium_metrics::QueueCounters;

use crate::slot::queue_handle::QueueHandle;
use crate::stores::queue_store::QueueStore;
use crate::writer::change::Change;
use crate::writer::pending::WriteOutcome;

/// The first step of a delete.
pub(crate) enum DeleteStart {
    /// The removal was submitted.
    Removal(WriteOutcome),
    /// The pool must be read first.
    Asked(PoolLookup),
}

/// The first step of a removal of many messages.
pub(crate) enum BulkRemoval {
    /// The removal was submitted.
    Begun(WriteOutcome),
    /// The pool must be read first.
    AskPool { lookup: PoolLookup, store: QueueStore },
}

/// The removal of chosen messages, submitted.
pub(crate) struct BegunPop {
    pub(crate) outcome: WriteOutcome,
    pub(crate) counters: Arc<QueueCounters>,
    pub(crate) retention: Retention,
}

/// A submitted batch of a purge.
pub(crate) struct BegunPurge {
    pub(crate) messages: usize,
    pub(crate) outcome: WriteOutcome,
}

impl QueueHandle {
    /// Begins to remove all of these messages, and empties `ids`; removes none when one of them is under another live
    /// claim.
    pub(crate) fn remove_all(
        &self,
        ids: &mut Vec<MessageId>,
        held: Holdings<'_>,
        asked: Option<PoolLookup>,
        now: Timestamp,
    ) -> Result<BulkRemoval, Error> {
        let mut state = self.slot.lock();
        let queue = state.queue_mut(&self.at, self.id).ok_or_else(|| self.closed())?;
        match queue.engine.begin_remove_all(ids, held, asked, now)? {
            Removal::Begun => {
                state.submit(&self.at, Change::remove(std::mem::take(ids))).map(BulkRemoval::Begun)
            }
            Removal::AskPool(lookup) => {
                Ok(BulkRemoval::AskPool { lookup, store: self.slot.store_of(queue)? })
            }
        }
    }

    /// Begins to remove messages that were chosen and are still hidden.
    pub(crate) fn remove_taken(&self, ids: Vec<MessageId>) -> Result<BegunPop, Error> {
        let mut state = self.slot.lock();
        let queue = state.queue_mut(&self.at, self.id).ok_or_else(|| self.closed())?;
        queue.engine.begin_remove_taken(&ids);
        let (counters, retention) = (Arc::clone(&queue.counters), queue.engine.retention());
        Ok(BegunPop { outcome: state.submit(&self.at, Change::remove(ids))?, counters, retention })
    }

    /// Begins a purge. Returns the newest message that it removes.
    pub(crate) fn begin_purging(&self) -> Result<MessageId, Error> {
        let mut state = self.slot.lock();
        let last = state.ids.last();
        let queue = state.queue_mut(&self.at, self.id).ok_or_else(|| self.closed())?;
        queue.engine.begin_purging(last);
        Ok(last)
    }

    /// Removes those of these messages that no other caller is changing.
    pub(crate) fn purge(&self, ids: &[MessageId]) -> Result<BegunPurge, Error> {
        let mut state = self.slot.lock();
        let queue = state.queue_mut(&self.at, self.id).ok_or_else(|| self.closed())?;
        let begun = queue.engine.begin_purge(ids);
        let messages = begun.len();
        Ok(BegunPurge { messages, outcome: state.submit(&self.at, Change::remove(begun))? })
    }

    /// Removes those kept messages of a page that no other caller is changing. Returns none when the page must be read
    /// again.
    pub(crate) fn purge_kept(
        &self,
        ids: &[MessageId],
        page: KeptPage,
    ) -> Result<Option<WriteOutcome>, Error> {
        let mut state = self.slot.lock();
        let queue = state.queue_mut(&self.at, self.id).ok_or_else(|| self.closed())?;
        match queue.engine.begin_purge_kept(ids, page) {
            Some(begun) => state.submit(&self.at, Change::remove(begun)).map(Some),
            None => Ok(None),
        }
    }

    /// Begins to remove a message from under its claim. Returns none when no claim holds it.
    pub(crate) fn begin_recall(&self, id: MessageId) -> Result<Option<WriteOutcome>, Error> {
        let mut state = self.slot.lock();
        let queue = state.queue_mut(&self.at, self.id).ok_or_else(|| self.closed())?;
        if !queue.engine.begin_recall(id) {
            return Ok(None);
        }
        state.submit(&self.at, Change::remove(vec![id])).map(Some)
    }
}
