//! Contents of a closed queue, read without opening it: the totals that its pool keeps with each batch (P14), and the
//! claims that were read when its slot was recovered.
//!
//! Pools do not store claims. The claims of a queue that was not opened since the recovery of its slot are in memory,
//! with the ids of their messages. Those messages that the pool still has count as claimed, as they will when the queue
//! is opened.

use std::sync::Arc;

use tokio_util::task::TaskTracker;

use angarium_catalogue::Placement;
use angarium_core::error::Error;
use angarium_core::ids::{MessageId, QueueId};
use angarium_core::message::{Message, State};
use angarium_core::queue::Metadata;
use angarium_core::time::Timestamp;
use angarium_engine::ClaimedCounts;
use angarium_storage::{Direction, Order};

use crate::limits;
use crate::open_queues::OpenQueues;
use crate::slot::figure_sums::Contents;
use crate::slot::figures::PoolSample;
use crate::slot::queue_handle::QueueHandle;
use crate::slot::state::Slot;
use crate::stores::queue_store::PageBound;

/// The contents of a closed queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClosedQueue {
    pub(crate) contents: Contents,
    /// When the earliest of its delayed messages becomes ready, if it has any.
    pub(crate) next_ready: Option<Timestamp>,
}

impl OpenQueues {
    /// Reads the contents of a closed queue. Its pools are fenced first, so that no earlier owner can change it
    /// afterwards. The result is valid as long as no caller opens the queue, and no sweep removes messages of it.
    ///
    /// It reads the totals; the oldest message and the earliest delayed one, where there are such; and the claimed
    /// messages.
    pub(crate) async fn read_closed(
        &self,
        slot: &Arc<Slot>,
        id: QueueId,
        placement: &Placement,
    ) -> Result<ClosedQueue, Error> {
        for name in placement.pools() {
            slot.open_writer(name, &*self.0.pools.pool_of_record(name).await?).await?;
        }
        let store = self.0.stores.store_at(placement, TaskTracker::new().token())?;
        let totals = store.totals(id).await?;
        let oldest = match totals.ready() {
            0 => None,
            _ => store.milestone(id, None, Direction::Up, &self.0.replica.clock).await?,
        };
        let next_ready = match totals.scheduled {
            0 => None,
            _ => {
                let first = store.scan(id, Order::Schedule, Direction::Up, None, PageBound::FIRST).await?;
                first.messages.first().map(|message| message.header.ready)
            }
        };
        let held: Vec<MessageId> = slot.claimed_unopened(id).into_iter().collect();
        let mut claimed = ClaimedCounts::default();
        for some in held.chunks(limits::COUNT_AT_ONCE) {
            let found = store.get(id, some).await?;
            let is_scheduled = |message: &&Message| message.header.state == State::Scheduled;
            claimed.all += found.len() as u64;
            claimed.scheduled += found.iter().filter(is_scheduled).count() as u64;
        }
        let seen = PoolSample { changes: 0, totals, oldest: oldest.map(|oldest| oldest.created) };
        Ok(ClosedQueue { contents: seen.contents(claimed), next_ready })
    }

    /// Notes a closed queue that has messages as one that may have retained messages.
    pub(crate) async fn note_closed(&self, queue: &QueueHandle) -> Result<(), Error> {
        let named = queue.in_slot();
        // The retention may have changed since the caller read the record of this queue. The gate keeps it unchanged
        // until it is noted.
        let _gate = named.hold_gate().await;
        let record = named.record().await?;
        let Some(record) = record.filter(|record| record.id == queue.id()) else { return Ok(()) };
        let name = record.placement()?.pool;
        let store = self.0.pools.pool_of_record(&name).await?.store()?;
        let totals = store.totals(record.id).await.map_err(|error| store.failed(error))?;
        let metadata = Metadata::stored(record.metadata.clone())?;
        let retention = metadata.attributes().retention(&self.0.replica.limits);
        if totals.messages > 0 {
            queue.slot().note_closed(queue.at(), &name, record.id, retention);
        }
        Ok(())
    }
}
