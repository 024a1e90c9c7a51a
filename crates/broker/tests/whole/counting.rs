//! A pool that counts the reads of totals and of groups, and a tree that counts the nodes read from it. Otherwise they behave like
//! the pool and the tree behind them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use angarium_coordination::{CommitResult, Coordination, Fence, Node, Op, Session, TreeError, Watch};
use angarium_core::durability::Durability;
use angarium_core::group::GroupName;
use angarium_core::ids::{MessageId, QueueId, Slot};
use angarium_core::message::{Header, Message};
use angarium_core::time::Timestamp;
use angarium_storage::{
    Batch, Direction, DropResult, Due, Epoch, GroupHead, Health, Note, Order, Page, PoolDeadlines, PoolReads,
    PoolStore, PoolWrites, Position, RetainedEntries, RetainedPlace, Stamp, StoreError, Totals, Usage,
};
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch::{Receiver, Sender};

/// A pool with a counter.
pub struct CountingPool {
    pub pool: Arc<dyn PoolStore>,
    pub totals: Arc<AtomicUsize>,
    /// Number of reads of messages that live by the retention of their queue, and number of messages that these
    /// returned.
    pub looks: Arc<AtomicUsize>,
    pub shown: Arc<AtomicUsize>,
    /// Number of pages of groups that were read.
    pub pages: Arc<AtomicUsize>,
    pub hold: Arc<Hold>,
}

/// Holds the reads of totals. Nothing is held at first.
pub struct Hold {
    /// The queues whose totals are returned while the totals of others are held; none while nothing is held.
    free: Sender<Option<Vec<QueueId>>>,
    held: AtomicUsize,
    /// The queue whose totals cannot be read.
    refused: Mutex<Option<QueueId>>,
}

impl Default for Hold {
    fn default() -> Self {
        Self { free: Sender::new(None), held: AtomicUsize::new(0), refused: Mutex::default() }
    }
}

impl Hold {
    /// From here on only the totals of these queues are returned.
    pub fn all_but(&self, free: Vec<QueueId>) {
        self.free.send_replace(Some(free));
    }

    /// Returns the totals of all queues again.
    pub fn release(&self) {
        self.free.send_replace(None);
    }

    /// From here on the totals of this queue cannot be read; with none, all can.
    pub fn refuse(&self, queue: Option<QueueId>) {
        *self.refused.lock() = queue;
    }

    /// Number of calls that have waited or are waiting.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    async fn pass(&self, queue: QueueId) {
        let is_free = |free: &Option<Vec<QueueId>>| free.as_ref().is_none_or(|free| free.contains(&queue));
        let mut free = self.free.subscribe();
        if !is_free(&free.borrow_and_update()) {
            self.held.fetch_add(1, Ordering::Relaxed);
        }
        free.wait_for(is_free).await.expect("it is held by the pool");
    }
}

#[async_trait]
impl PoolStore for CountingPool {
    async fn stamp(&self) -> Result<Option<Stamp>, StoreError> {
        self.pool.stamp().await
    }

    async fn put_stamp(&self, stamp: Stamp) -> Result<Stamp, StoreError> {
        self.pool.put_stamp(stamp).await
    }

    fn reach(&self) -> Durability {
        self.pool.reach()
    }

    async fn health(&self) -> Result<Health, StoreError> {
        self.pool.health().await
    }

    fn check_open(&self) -> Result<(), StoreError> {
        self.pool.check_open()
    }
}

#[async_trait]
impl PoolWrites for CountingPool {
    async fn fence(&self, slot: Slot, epoch: Epoch) -> Result<MessageId, StoreError> {
        self.pool.fence(slot, epoch).await
    }

    async fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        self.pool.commit(batch).await
    }

    async fn drop_queue(
        &self,
        slot: Slot,
        epoch: Epoch,
        queue: QueueId,
        limit: usize,
    ) -> Result<DropResult, StoreError> {
        self.pool.drop_queue(slot, epoch, queue, limit).await
    }
}

#[async_trait]
impl PoolReads for CountingPool {
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
        self.pages.fetch_add(1, Ordering::Relaxed);
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

    async fn holds_any(&self, queue: QueueId) -> Result<bool, StoreError> {
        self.pool.holds_any(queue).await
    }

    async fn totals(&self, queue: QueueId) -> Result<Totals, StoreError> {
        self.totals.fetch_add(1, Ordering::Relaxed);
        self.hold.pass(queue).await;
        if *self.hold.refused.lock() == Some(queue) {
            return Err(StoreError::NotSent("as planned".into()));
        }
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

    async fn usage(&self) -> Result<Usage, StoreError> {
        self.pool.usage().await
    }
}

#[async_trait]
impl PoolDeadlines for CountingPool {
    async fn retained(
        &self,
        queue: QueueId,
        from: Option<RetainedPlace>,
        before: Timestamp,
        limit: usize,
    ) -> Result<RetainedEntries, StoreError> {
        let looked = self.pool.retained(queue, from, before, limit).await;
        self.looks.fetch_add(1, Ordering::SeqCst);
        let shown = looked.as_ref().map_or(0, |looked| looked.found.len());
        self.shown.fetch_add(shown, Ordering::SeqCst);
        looked
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
}

/// A tree with a list of the nodes that were read.
pub struct CountingTree {
    tree: Arc<dyn Coordination>,
    read: Mutex<Vec<String>>,
}

impl CountingTree {
    pub fn new(tree: Arc<dyn Coordination>) -> Self {
        Self { tree, read: Mutex::default() }
    }

    /// Returns the number of nodes and directories with this text in their path that were read since the last call.
    pub fn take_reads(&self, part: &str) -> usize {
        std::mem::take(&mut *self.read.lock()).iter().filter(|path| path.contains(part)).count()
    }
}

#[async_trait]
impl Coordination for CountingTree {
    async fn get(&self, path: &str) -> Result<Option<Node>, TreeError> {
        self.read.lock().push(path.to_owned());
        self.tree.get(path).await
    }

    async fn get_many(&self, paths: &[String]) -> Result<Vec<Option<Node>>, TreeError> {
        self.read.lock().extend_from_slice(paths);
        self.tree.get_many(paths).await
    }

    async fn children(&self, path: &str) -> Result<Vec<String>, TreeError> {
        self.read.lock().push(path.to_owned());
        self.tree.children(path).await
    }

    async fn children_behind(
        &self,
        path: &str,
        after: Option<&str>,
        most: usize,
    ) -> Result<Vec<String>, TreeError> {
        self.read.lock().push(path.to_owned());
        self.tree.children_behind(path, after, most).await
    }

    async fn sync(&self) -> Result<(), TreeError> {
        self.tree.sync().await
    }

    async fn commit(&self, fences: &[Fence], ops: &[Op]) -> Result<CommitResult, TreeError> {
        self.tree.commit(fences, ops).await
    }

    fn watch_tree(&self, path: &str) -> Result<Watch, TreeError> {
        self.tree.watch_tree(path)
    }

    fn session(&self) -> Receiver<Session> {
        self.tree.session()
    }

    fn check_open(&self) -> Result<(), TreeError> {
        self.tree.check_open()
    }

    fn check_lease(&self) -> Result<(), TreeError> {
        self.tree.check_lease()
    }

    fn keeps_time(&self) -> bool {
        self.tree.keeps_time()
    }

    fn check_alive(&self) -> Result<(), TreeError> {
        self.tree.check_alive()
    }

    async fn close(&self) {
        self.tree.close().await;
    }
}
