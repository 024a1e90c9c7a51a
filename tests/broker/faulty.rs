//! A tree and a pool whose next commits fail as told: before they were applied, or after, with nobody knowing.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use angarium::coordination::{Committed, Coordination, Fence, Node, Op, Session, TreeError, Watch};
use angarium::domain::durability::Durability;
use angarium::domain::ids::{MessageId, QueueId, Slot};
use angarium::domain::message::{Header, Message};
use angarium::domain::time::Timestamp;
use angarium::storage::{
    Batch, Direction, Dropped, Due, Epoch, Health, Note, Order, Page, PoolStore, Position, Stamp, StoreError,
    Totals,
};
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

/// What happens to a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is not sent, and that is certain.
    NotSent,
    /// It is not applied, but nobody knows.
    UnknownBefore,
    /// It is applied, but nobody knows.
    UnknownAfter,
    /// It is on its way until [`Plan::release`], and then applied.
    Held,
    /// Nothing happens to it.
    None,
}

/// The faults of the commits to come, one each; none when all go well.
#[derive(Clone, Default)]
pub struct Plan {
    faults: Arc<Mutex<VecDeque<Fault>>>,
    held: Arc<Notify>,
    is_cut: Arc<AtomicBool>,
}

impl Plan {
    pub fn next(&self, faults: &[Fault]) {
        self.faults.lock().extend(faults);
    }

    /// Lets this many commits pass before the faults planned.
    pub fn skip(&self, commits: usize) {
        let mut faults = self.faults.lock();
        (0..commits).for_each(|_| faults.push_front(Fault::None));
    }

    /// Lets the lease of the tree end.
    pub fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
    }

    fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::SeqCst)
    }

    /// Sends what is held.
    pub fn release(&self) {
        self.held.notify_one();
    }

    pub fn is_done(&self) -> bool {
        self.faults.lock().is_empty()
    }

    fn take(&self) -> Option<Fault> {
        self.faults.lock().pop_front()
    }
}

/// A tree with a plan of faults.
pub struct FaultyTree {
    pub tree: Arc<dyn Coordination>,
    pub plan: Plan,
}

#[async_trait]
impl Coordination for FaultyTree {
    async fn get(&self, path: &str) -> Result<Option<Node>, TreeError> {
        self.tree.get(path).await
    }

    async fn get_many(&self, paths: &[String]) -> Result<Vec<Option<Node>>, TreeError> {
        self.tree.get_many(paths).await
    }

    async fn children(&self, path: &str) -> Result<Vec<String>, TreeError> {
        self.tree.children(path).await
    }

    fn watch_tree(&self, path: &str) -> Result<Watch, TreeError> {
        self.tree.watch_tree(path)
    }

    fn session(&self) -> watch::Receiver<Session> {
        self.tree.session()
    }

    async fn commit(&self, fences: &[Fence], ops: &[Op]) -> Result<Committed, TreeError> {
        let unknown = || TreeError::Unknown("as planned".into());
        match self.plan.take() {
            None | Some(Fault::None) => self.tree.commit(fences, ops).await,
            Some(Fault::Held) => {
                self.plan.held.notified().await;
                self.tree.commit(fences, ops).await
            }
            Some(Fault::NotSent) => Err(TreeError::NotSent("as planned".into())),
            Some(Fault::UnknownBefore) => Err(unknown()),
            Some(Fault::UnknownAfter) => {
                self.tree.commit(fences, ops).await?;
                Err(unknown())
            }
        }
    }

    fn check_open(&self) -> Result<(), TreeError> {
        self.tree.check_open()
    }

    fn check_lease(&self) -> Result<(), TreeError> {
        if self.plan.is_cut() {
            return Err(TreeError::NotSent("as planned".into()));
        }
        self.tree.check_lease()
    }

    fn keeps_time(&self) -> bool {
        self.tree.keeps_time()
    }

    fn check_alive(&self) -> Result<(), TreeError> {
        self.tree.check_alive()
    }
}

/// A pool with a plan of faults.
pub struct FaultyPool {
    pub pool: Arc<dyn PoolStore>,
    pub plan: Plan,
}

#[async_trait]
impl PoolStore for FaultyPool {
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
        let unknown = || StoreError::Unknown("as planned".into());
        match self.plan.take() {
            None | Some(Fault::None) => self.pool.commit(batch).await,
            Some(Fault::Held) => {
                self.plan.held.notified().await;
                self.pool.commit(batch).await
            }
            Some(Fault::NotSent) => Err(StoreError::NotSent("as planned".into())),
            Some(Fault::UnknownBefore) => Err(unknown()),
            Some(Fault::UnknownAfter) => {
                self.pool.commit(batch).await?;
                Err(unknown())
            }
        }
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

    async fn health(&self) -> Result<Health, StoreError> {
        self.pool.health().await
    }

    fn check_open(&self) -> Result<(), StoreError> {
        self.pool.check_open()
    }
}
