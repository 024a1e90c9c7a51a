//! What is in a queue that is not open, read without opening it: out of the totals that its pool keeps with each batch
//! (P14), and the claims that were read when its slot was taken.
//!
//! Pools know nothing of claims. The claims of a queue that no caller has opened since its slot was taken are in
//! memory, with the ids of their messages; those that the pool still has are claimed, as they will be when the queue is
//! opened.

use tokio_util::task::TaskTracker;

use super::Broker;
use super::figure_sums::Contents;
use super::queue_figures::PoolSample;
use super::slot::Slot;
use angarium_catalogue::Placement;
use angarium_core::error::Error;
use angarium_core::ids::{MessageId, QueueId};
use angarium_core::limits;
use angarium_core::time::Timestamp;
use angarium_storage::{Direction, Order};

/// What is in a closed queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClosedQueue {
    pub(super) contents: Contents,
    /// When the earliest of its delayed messages becomes ready, if it has any.
    pub(super) next_ready: Option<Timestamp>,
}

impl Broker {
    /// Reads what is in a queue that is not open. Its pools are fenced first: no owner before can change it afterwards.
    /// It is true for as long as no caller opens the queue, and no sweep takes anything out of it.
    ///
    /// It costs the totals; the oldest message and the earliest delayed one, where there are such; and the claimed
    /// messages.
    pub(super) async fn read_closed(
        &self,
        slot: &std::sync::Arc<Slot>,
        id: QueueId,
        placement: &Placement,
    ) -> Result<ClosedQueue, Error> {
        for name in placement.pools() {
            self.open_writer(slot, name, &*self.pool_of_record(name).await?).await?;
        }
        let store = self.store_at(placement, TaskTracker::new().token())?;
        let totals = store.totals(id).await?;
        let oldest = match totals.ready() {
            0 => None,
            _ => self.milestone(&store, id, None, Direction::Up).await?,
        };
        let next_ready = match totals.scheduled {
            0 => None,
            _ => {
                let first = store.scan(id, Order::Schedule, Direction::Up, None, (1, 0)).await?;
                first.messages.first().map(|message| message.header.ready)
            }
        };
        let held: Vec<MessageId> = slot.state.lock().claimed_unopened(id).into_iter().collect();
        let mut claimed = 0;
        for some in held.chunks(limits::COUNT_AT_ONCE) {
            claimed += store.get(id, some).await?.len() as u64;
        }
        let seen = PoolSample { changes: 0, totals, oldest: oldest.map(|oldest| oldest.created) };
        Ok(ClosedQueue { contents: seen.contents(claimed), next_ready })
    }
}
