//! Numbers of one open queue and of a whole slot, for counts and reports. Reading them does not count as use of a
//! queue.

use std::sync::Arc;

use angarium_core::error::Error;
use angarium_core::ids::QueueId;
use angarium_core::message::Header;
use angarium_core::names::QueueRef;
use angarium_core::time::Timestamp;
use angarium_engine::ClaimedCounts;

use crate::slot::state::Slot;
use crate::stores::queue_store::QueueStore;

/// Numbers of an open queue.
pub(crate) struct QueueGauge {
    pub(crate) id: QueueId,
    /// Must be dropped soon: a migration that begins waits for it.
    pub(crate) store: QueueStore,
    /// Messages under claims.
    pub(crate) claimed: ClaimedCounts,
    /// The oldest message, if memory has it.
    pub(crate) oldest: Option<Header>,
    /// Messages per minute, over the last 30 to 60 seconds.
    pub(crate) posted_per_minute: u64,
    pub(crate) removed_per_minute: u64,
}

/// Numbers of the memory of a slot. Reading them costs a look at each open queue.
pub(crate) struct SlotGauge {
    pub(crate) open_queues: u64,
    /// Messages under claims of open queues.
    pub(crate) claimed_messages: u64,
    /// Number of waiting claims.
    pub(crate) waiting_claims: usize,
}

impl Slot {
    pub(crate) fn is_open(self: &Arc<Self>, at: &QueueRef) -> bool {
        self.lock().queues.contains_key(at)
    }

    /// Returns the numbers of a queue; none when it is not open.
    pub(crate) fn gauge(
        self: &Arc<Self>,
        at: &QueueRef,
        now: Timestamp,
    ) -> Result<Option<QueueGauge>, Error> {
        let state = self.lock();
        let Some(queue) = state.queues.get(at) else { return Ok(None) };
        let (posted_per_minute, removed_per_minute) = state.rates(queue.pace, now);
        Ok(Some(QueueGauge {
            id: queue.id,
            store: self.store_of(queue)?,
            claimed: queue.engine.claimed_counts(),
            oldest: queue.engine.ends().0.cloned(),
            posted_per_minute,
            removed_per_minute,
        }))
    }

    /// Returns the store of an open queue with this id; none when the queue is closed.
    pub(crate) fn open_store(
        self: &Arc<Self>,
        at: &QueueRef,
        id: QueueId,
    ) -> Result<Option<QueueStore>, Error> {
        self.lock().queue(at, id).map(|queue| self.store_of(queue)).transpose()
    }

    pub(crate) fn slot_gauge(self: &Arc<Self>) -> SlotGauge {
        let state = self.lock();
        SlotGauge {
            open_queues: state.queues.len() as u64,
            claimed_messages: state.queues.values().map(|queue| queue.engine.claimed()).sum(),
            waiting_claims: state.lines.len(),
        }
    }
}
