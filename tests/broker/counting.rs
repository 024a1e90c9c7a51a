//! A pool that counts how often it is asked for the totals of a queue, and else is the one behind it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use angarium::domain::durability::Durability;
use angarium::domain::group::GroupName;
use angarium::domain::ids::{MessageId, QueueId, Slot};
use angarium::domain::message::{Header, Message};
use angarium::domain::time::Timestamp;
use angarium::storage::{
    Batch, Direction, Dropped, Due, Epoch, GroupHead, Health, Note, Order, Page, PoolStore, Position, Stamp,
    StoreError, Totals, Usage,
};
use async_trait::async_trait;
use bytes::Bytes;

/// A pool with a counter.
pub struct CountingPool {
    pub pool: Arc<dyn PoolStore>,
    pub totals: Arc<AtomicUsize>,
}

#[async_trait]
impl PoolStore for CountingPool {
    async fn stamp(&self) -> Result<Option<Stamp>, StoreError> {
        self.pool.stamp().await
    }

    async fn register(&self, stamp: Stamp) -> Result<(), StoreError> {
        self.pool.register(stamp).await
    }

    async fn fence(&self, slot: Slot, epoch: Epoch) -> Result<MessageId, StoreError> {
        self.pool.fence(slot, epoch).await
    }

    async fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        self.pool.commit(batch).await
    }

    async fn scan(
        &self,
        queue: QueueId,
        order: Order,
        direction: Direction,
        after: Option<Position>,
        messages: usize,
        bytes: usize,
    ) -> Result<Page, StoreError> {
        self.pool.scan(queue, order, direction, after, messages, bytes).await
    }

    async fn group(
        &self,
        queue: QueueId,
        group: &GroupName,
        after: Option<MessageId>,
        messages: usize,
        bytes: usize,
    ) -> Result<Page, StoreError> {
        self.pool.group(queue, group, after, messages, bytes).await
    }

    async fn groups(
        &self,
        queue: QueueId,
        after: Option<GroupName>,
        limit: usize,
    ) -> Result<Vec<GroupHead>, StoreError> {
        self.pool.groups(queue, after, limit).await
    }

    async fn get(&self, queue: QueueId, ids: &[MessageId]) -> Result<Vec<Message>, StoreError> {
        self.pool.get(queue, ids).await
    }

    async fn due(
        &self,
        slot: Slot,
        due: Due,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<(QueueId, Header)>, StoreError> {
        self.pool.due(slot, due, before, limit).await
    }

    async fn totals(&self, queue: QueueId) -> Result<Totals, StoreError> {
        self.totals.fetch_add(1, Ordering::Relaxed);
        self.pool.totals(queue).await
    }

    async fn notes(
        &self,
        queue: QueueId,
        kind: u8,
        after: Option<Bytes>,
        limit: usize,
    ) -> Result<Vec<Note>, StoreError> {
        self.pool.notes(queue, kind, after, limit).await
    }

    async fn drop_queue(
        &self,
        slot: Slot,
        epoch: Epoch,
        queue: QueueId,
        limit: usize,
    ) -> Result<Dropped, StoreError> {
        self.pool.drop_queue(slot, epoch, queue, limit).await
    }

    fn reach(&self) -> Durability {
        self.pool.reach()
    }

    async fn usage(&self) -> Result<Usage, StoreError> {
        self.pool.usage().await
    }

    async fn health(&self) -> Result<Health, StoreError> {
        self.pool.health().await
    }

    fn check_open(&self) -> Result<(), StoreError> {
        self.pool.check_open()
    }
}
