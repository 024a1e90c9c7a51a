//! Entries in transfer of a queue in its pools: keeping messages at their sources when their target is deleted, and
//! forwarded messages that have not left a queue.

use std::sync::Arc;

use angarium_catalogue::QueueRecord;
use angarium_core::error::Error;
use angarium_core::ids::{MessageId, QueueId};
use angarium_core::maps::HashSet;
use angarium_core::message::{Header, Message, Peer, State};
use angarium_storage::{Direction, Order, Position};

use crate::limits;
use crate::slot::slot_queue::SlotQueue;
use crate::stores::table::NamedStore;
use crate::transfer::MessageTransfers;
use crate::transfer::peers::{PreparedMessages, by_peer};

impl MessageTransfers {
    /// Returns the storages in which a queue has entries that are prepared, moving or without a target. Fences each of its pools
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

    /// Reads the entries in transfer of a queue that is about to be deleted.
    pub(crate) async fn transfers_of(
        &self,
        queue: &SlotQueue,
        record: &QueueRecord,
    ) -> Result<QueueTransfers, Error> {
        let mut found = QueueTransfers::default();
        let mut known = HashSet::default();
        let mut pages = self.transfer_pages(queue, record).await?;
        while let Some(messages) = pages.next().await? {
            let room = limits::MOVE_MESSAGES - found.forwards.len();
            found.forwards.extend(forward_ids(&messages).take(room));
            let peers = by_peer(messages).prepared.into_iter().map(|PreparedMessages { peer, .. }| peer);
            found.sources.extend(peers.filter(|peer| known.insert(peer.at.clone())));
        }
        Ok(found)
    }

    /// Makes sure that no message is lost with a queue that is about to be deleted: messages that are prepared there,
    /// and that their source has not removed, stay at their source for good. The caller holds the transfers into the
    /// queue. A transfer that is in progress, or that an earlier owner has begun, could still remove a message at the
    /// source, so the source's owner is asked: it waits for the one and opens the source, which fences off the other.
    pub(crate) async fn keep_at_sources(
        &self,
        queue: &SlotQueue,
        transfers: &QueueTransfers,
    ) -> Result<(), Error> {
        for peer in &transfers.sources {
            self.fates(queue.slot(), peer, &[]).await?;
        }
        Ok(())
    }

    /// Returns the messages that a settle has forwarded or moved and that have not left the queue: their number, and the
    /// first of them.
    pub(crate) async fn forwards_of(
        &self,
        queue: &SlotQueue,
        record: &QueueRecord,
    ) -> Result<LeavingForwards, Error> {
        let mut found = LeavingForwards::default();
        let mut pages = self.transfer_pages(queue, record).await?;
        while let Some(messages) = pages.next().await? {
            let room = limits::MOVE_MESSAGES - found.first.len();
            found.first.extend(forward_ids(&messages).take(room));
            found.count += forward_ids(&messages).count();
        }
        Ok(found)
    }

    async fn transfer_pages(&self, queue: &SlotQueue, record: &QueueRecord) -> Result<TransferPages, Error> {
        let stores = self.stores_in_transfer(queue, record).await?;
        Ok(TransferPages { stores, queue: record.id, after: None })
    }
}

/// Entries in transfer of a queue.
#[derive(Default)]
pub(crate) struct QueueTransfers {
    /// The first messages that a settle has forwarded or moved and that have not left the queue.
    pub(crate) forwards: Vec<MessageId>,
    /// The queues from which messages are prepared here.
    sources: Vec<Arc<Peer>>,
}

/// Messages that a settle has forwarded or moved and that have not left their queue.
#[derive(Default)]
pub(crate) struct LeavingForwards {
    pub(crate) count: usize,
    /// The first of them, at most [`limits::MOVE_MESSAGES`].
    pub(crate) first: Vec<MessageId>,
}

/// Reads the entries of a queue that are neither ready nor kept, a page at a time.
struct TransferPages {
    /// The storages that were not read to the end.
    stores: Vec<NamedStore>,
    queue: QueueId,
    after: Option<Position>,
}

impl TransferPages {
    /// Returns the next page; none at the end.
    async fn next(&mut self) -> Result<Option<Vec<Message>>, Error> {
        let Some(store) = self.stores.last() else { return Ok(None) };
        let (messages, bytes) = (limits::MOVE_MESSAGES, limits::MOVE_BYTES);
        let page = store.scan(self.queue, Order::Aside, Direction::Up, self.after, messages, bytes).await;
        let page = page.map_err(|error| store.failed(error))?;
        self.after = page.messages.last().map(|message| Position::id(message.header.id));
        if page.is_last {
            self.stores.pop();
            self.after = None;
        }
        Ok(Some(page.messages))
    }
}

/// Whether a settle has forwarded or moved a message that has not left its queue. Dead letters and redriven messages
/// are none of these: their queue has received them from a producer.
pub(crate) fn is_forward(header: &Header) -> bool {
    let is_settled = || header.extras.as_ref().is_some_and(|extras| extras.arrival.is_some());
    matches!(header.state, State::Moving(_)) && is_settled()
}

fn forward_ids(messages: &[Message]) -> impl Iterator<Item = MessageId> {
    messages.iter().map(|message| &message.header).filter(|header| is_forward(header)).map(|header| header.id)
}
