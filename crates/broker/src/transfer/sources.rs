//! Entries in transfer of a queue in its pools, and keeping messages at their sources when their target is deleted.

use std::collections::HashSet;

use angarium_catalogue::QueueRecord;
use angarium_core::error::Error;
use angarium_storage::{Direction, Order, Position};

use crate::limits;
use crate::slot::slot_queue::SlotQueue;
use crate::stores::table::NamedStore;
use crate::transfer::MessageTransfers;
use crate::transfer::peers::{PreparedMessages, by_peer};

impl MessageTransfers {
    /// Returns the storages in which a queue has entries that are prepared, moving or failed. Fences each of its pools
    /// first, so that no earlier owner can add to them.
    pub(crate) async fn stores_in_transfer(
        &self,
        queue: &SlotQueue,
        record: &QueueRecord,
    ) -> Result<Vec<NamedStore>, Error> {
        let mut stores = Vec::new();
        for name in record.placement()?.pools() {
            let pool = self.0.pools.pool_of_record(name).await?;
            queue.slot().open_writer(name, &pool).await?;
            let store = pool.store()?;
            if store.holds_in_transfer(record.id).await? {
                stores.push(store);
            }
        }
        Ok(stores)
    }

    /// Makes sure that no message is lost with a queue that is about to be deleted: messages that are prepared there,
    /// and that their source has not removed, stay at their source for good. The caller holds the transfers into the
    /// queue. A transfer that an earlier owner has begun could still remove a message at the source, so the source's
    /// owner is asked: it opens the source, which fences off that transfer.
    pub(crate) async fn keep_at_sources(&self, queue: &SlotQueue) -> Result<(), Error> {
        let Some(record) = queue.record().await? else { return Ok(()) };
        let mut known = HashSet::new();
        for store in self.stores_in_transfer(queue, &record).await? {
            let mut after = None;
            loop {
                let (messages, bytes) = (limits::MOVE_MESSAGES, limits::MOVE_BYTES);
                let page = store.scan(record.id, Order::Aside, Direction::Up, after, messages, bytes).await;
                let page = page.map_err(|error| store.failed(error))?;
                after = page.messages.last().map(|message| Position::id(message.header.id));
                for PreparedMessages { peer, .. } in by_peer(page.messages).prepared {
                    if known.insert(peer.at.clone()) {
                        self.fates(queue.slot(), &peer, &[]).await?;
                    }
                }
                if page.is_last {
                    break;
                }
            }
        }
        Ok(())
    }
}
