//! Queues: create, look up, count.

use std::sync::Arc;

use super::pools::OpenPool;
use super::slot::Slot;
use super::{Broker, storage_failed};
use crate::catalogue::QueueRecord;
use crate::domain::ids::{MessageId, QueueId};
use crate::domain::message::Header;
use crate::domain::names::QueueRef;
use crate::domain::pool::PoolState;
use crate::domain::queue::{Created, Metadata, Milestone, QueueStats};
use crate::error::{Error, Part};
use crate::placement::weighted;
use crate::storage::{Direction, Order, PoolStore};

/// How often a creation looks again when the pool it chose changed under it.
const CREATE_TRIES: usize = 4;

impl Broker {
    /// Creates a queue in a pool chosen by weight. One that exists stays as it is, its metadata too.
    pub async fn queue_create(&self, at: &QueueRef, metadata: Metadata) -> Result<Created, Error> {
        let (broker, at) = (self.clone(), at.clone());
        let create = async move {
            let slot = broker.slot(&at).await?;
            let _gate = slot.gate.lock().await;
            match broker.create_gated(&slot, &at, &metadata).await? {
                Created::New => Ok(Created::New),
                Created::Existed => broker.check_ours(&slot).map(|()| Created::Existed),
            }
        };
        self.carry_out(create).await
    }

    /// The metadata of a queue, or none when there is no such queue.
    pub async fn queue_metadata(&self, at: &QueueRef) -> Result<Option<Metadata>, Error> {
        let slot = self.slot(at).await?;
        let record = self.0.catalogue.queue(&slot.owned, at).await;
        let record = self.confirm(&slot, record)?;
        record.map(|record| Metadata::new(record.metadata)).transpose()
    }

    /// What is in a queue; nothing when there is no such queue.
    pub async fn queue_stats(&self, at: &QueueRef) -> Result<QueueStats, Error> {
        let slot = self.slot(at).await?;
        let stats = self.stats(&slot, at).await;
        self.confirm(&slot, stats)
    }

    async fn stats(&self, slot: &Arc<Slot>, at: &QueueRef) -> Result<QueueStats, Error> {
        if !self.open(slot, at).await? {
            return Ok(QueueStats::default());
        }
        let (id, store, claimed, oldest, newest) = {
            let state = slot.state.lock();
            let Some(queue) = state.queues.get(at) else { return Ok(QueueStats::default()) };
            let (oldest, newest) = queue.engine.ends();
            let store = self.pool(&queue.pool)?.store()?;
            (queue.id, store, queue.engine.claimed(), oldest.cloned(), newest.cloned())
        };
        let total = store.totals(id).await.map_err(storage_failed)?.messages;
        if total == 0 {
            return Ok(QueueStats::default());
        }
        let claimed = claimed.min(total);
        let oldest = self.milestone(&*store, id, oldest, Direction::Up).await?;
        let newest = self.milestone(&*store, id, newest, Direction::Down).await?;
        Ok(QueueStats { claimed, free: total - claimed, oldest, newest })
    }

    /// One end of a queue: as memory has it, or else as the pool has it.
    async fn milestone(
        &self,
        store: &dyn PoolStore,
        queue: QueueId,
        known: Option<Header>,
        direction: Direction,
    ) -> Result<Option<Milestone>, Error> {
        let header = match known {
            Some(header) => Some(header),
            None => {
                let page = store.scan(queue, Order::Ready, direction, None, 1, 0).await;
                let page = page.map_err(storage_failed)?;
                page.messages.into_iter().next().map(|message| message.header)
            }
        };
        let now = self.0.clock.now();
        let milestone = |header: Header| {
            let age = now.seconds_since(header.created);
            Milestone { id: header.id, created: header.created, age }
        };
        Ok(header.map(milestone))
    }

    /// Opens a queue, and creates it when there is none: Zaqar's queues exist from their first message on.
    pub(super) async fn open_or_create(&self, slot: &Arc<Slot>, at: &QueueRef) -> Result<(), Error> {
        if slot.state.lock().queues.contains_key(at) {
            return Ok(());
        }
        self.queue_create(at, Metadata::empty()).await.map(|_| ())
    }

    async fn create_gated(
        &self,
        slot: &Arc<Slot>,
        at: &QueueRef,
        metadata: &Metadata,
    ) -> Result<Created, Error> {
        for _ in 0..CREATE_TRIES {
            if self.open_gated(slot, at).await? {
                return Ok(Created::Existed);
            }
            let pool = self.place()?;
            let id = QueueId::new(slot.owned.slot, &mut rand::rng());
            let record = QueueRecord::new(id, &pool.entry.name, metadata, self.0.clock.now());
            if self.0.catalogue.queue_create(&slot.owned, at, &record, &pool.entry).await? {
                // The queue is there, whatever becomes of opening it.
                let opened = self.open_record(slot, at, &record).await;
                return opened.map(|()| Created::New).map_err(Error::into_unknown);
            }
        }
        Err(Error::unavailable(Part::Coordination, "the chosen pool changed each time"))
    }

    /// Chooses the pool of a new queue: one that is active, by weight.
    fn place(&self) -> Result<&OpenPool, Error> {
        let mut candidates: Vec<&OpenPool> =
            self.0.pools.values().filter(|pool| pool.entry.pool.state == PoolState::Active).collect();
        candidates.sort_by(|a, b| a.entry.name.cmp(&b.entry.name));
        let weights: Vec<u32> = candidates.iter().map(|pool| pool.entry.pool.weight).collect();
        let choice = weighted::choose(&weights, &mut rand::rng()).ok_or(Error::NoPool)?;
        Ok(candidates[choice])
    }

    /// Whether the pool has a message.
    pub(super) async fn message_exists(
        &self,
        slot: &Slot,
        at: &QueueRef,
        id: MessageId,
    ) -> Result<bool, Error> {
        let (queue, store) = {
            let state = slot.state.lock();
            let Some(queue) = state.queues.get(at) else { return Ok(false) };
            (queue.id, self.pool(&queue.pool)?.store()?)
        };
        let found = store.get(queue, &[id]).await.map_err(storage_failed)?;
        Ok(!found.is_empty())
    }
}
