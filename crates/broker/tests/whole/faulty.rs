//! A pool whose next commits fail as planned, like the commits of [`FaultyTree`]: before they were applied, or after,
//! with an unknown outcome.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

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
use tokio::sync::watch;
use tokio_util::task::TaskTracker;

pub use angarium_testbed::faulty_tree::{Fault, FaultyTree, LinkOutage, Plan};

/// A pool with a plan of faults. It records the batches that it was given.
pub struct FaultyPool {
    pool: Arc<dyn PoolStore>,
    plan: Plan,
    given: Mutex<Vec<Batch>>,
    /// Fences that are held.
    pub fences: Plan,
    fenced: Mutex<Vec<Slot>>,
    /// Removals of queues that are held: the caller gets no answer, and they are carried out after the release.
    pub drops: Plan,
    /// Removals that are held.
    pub late_drops: TaskTracker,
    /// The durability class that it reports; if it is not set, the class of the pool behind it.
    pub reach: Mutex<Option<Durability>>,
    /// Pages of `held_order` are held after they are read and before they are returned.
    pub pages: Plan,
    pub held_order: Mutex<Option<Order>>,
    /// Messages that reads by id leave out.
    pub lost: Mutex<Vec<MessageId>>,
    /// Totals of `totals_of` are held after they are read and before they are returned, or not read.
    pub totals: Plan,
    pub totals_of: Mutex<Option<QueueId>>,
    /// Whether the totals of all queues are empty.
    pub hides_totals: AtomicBool,
    /// The stored data of this queue is damaged: no batch with changes of it is applied.
    pub damaged: Mutex<Option<QueueId>>,
    /// Whether it has no room for messages and results.
    pub is_full: AtomicBool,
    /// Whether it answers nothing any more.
    pub is_gone: AtomicBool,
    /// Whether the next commit panics.
    pub panics: AtomicBool,
    /// Whether the next read of due messages panics.
    pub panics_at_due: AtomicBool,
    /// Minimum duration of a commit.
    pub slowness: Mutex<Duration>,
    /// Whether the pool hangs. While it does, all reads of messages wait.
    hangs: watch::Sender<bool>,
    /// Calls until it hangs by itself; never below one.
    answered: AtomicI64,
}

impl FaultyPool {
    pub fn new(pool: Arc<dyn PoolStore>, plan: Plan) -> Self {
        Self {
            pool,
            plan,
            given: Mutex::default(),
            fences: Plan::default(),
            fenced: Mutex::default(),
            drops: Plan::default(),
            late_drops: TaskTracker::new(),
            reach: Mutex::default(),
            pages: Plan::default(),
            held_order: Mutex::default(),
            lost: Mutex::default(),
            totals: Plan::default(),
            totals_of: Mutex::default(),
            hides_totals: AtomicBool::default(),
            damaged: Mutex::default(),
            is_full: AtomicBool::default(),
            is_gone: AtomicBool::default(),
            panics: AtomicBool::default(),
            panics_at_due: AtomicBool::default(),
            slowness: Mutex::default(),
            hangs: watch::Sender::new(false),
            answered: AtomicI64::default(),
        }
    }

    /// Hangs from now on, or answers again.
    pub fn hang(&self, hangs: bool) {
        self.hangs.send_replace(hangs);
    }

    /// Answers this number of calls, and hangs after them.
    pub fn hang_after(&self, calls: i64) {
        self.answered.store(calls + 1, Ordering::SeqCst);
    }

    pub fn is_hanging(&self) -> bool {
        *self.hangs.borrow()
    }

    /// Waits while the pool hangs. Fails while it is gone.
    async fn answers(&self) -> Result<(), StoreError> {
        if self.is_gone.load(Ordering::SeqCst) {
            return Err(StoreError::NotSent("it is gone".into()));
        }
        if self.answered.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.hang(true);
        }
        let mut hangs = self.hangs.subscribe();
        hangs.wait_for(|hangs| !hangs).await.unwrap();
        Ok(())
    }

    /// Returns the slots for which it was fenced, in order.
    pub fn fenced(&self) -> Vec<Slot> {
        self.fenced.lock().clone()
    }

    /// Returns the batches that it was given, with any outcome.
    pub fn given(&self) -> Vec<Batch> {
        self.given.lock().clone()
    }
}

#[async_trait]
impl PoolStore for FaultyPool {
    async fn stamp(&self) -> Result<Option<Stamp>, StoreError> {
        self.pool.stamp().await
    }

    async fn put_stamp(&self, stamp: Stamp) -> Result<Stamp, StoreError> {
        self.pool.put_stamp(stamp).await
    }

    async fn tenant(&self) -> Result<Option<String>, StoreError> {
        self.pool.tenant().await
    }

    async fn replace_tenant(&self, found: Option<&str>, record: &str) -> Result<bool, StoreError> {
        self.pool.replace_tenant(found, record).await
    }

    fn reach(&self) -> Durability {
        self.reach.lock().unwrap_or_else(|| self.pool.reach())
    }

    async fn health(&self) -> Result<Health, StoreError> {
        self.answers().await?;
        self.pool.health().await
    }

    fn check_open(&self) -> Result<(), StoreError> {
        self.pool.check_open()
    }
}

#[async_trait]
impl PoolWrites for FaultyPool {
    async fn fence(&self, slot: Slot, epoch: Epoch) -> Result<MessageId, StoreError> {
        self.fenced.lock().push(slot);
        self.answers().await?;
        if self.fences.take() == Fault::Held {
            // The fence arrives, even if its caller is canceled.
            let (pool, fences) = (Arc::clone(&self.pool), self.fences.clone());
            let late = async move {
                fences.held().await;
                pool.fence(slot, epoch).await
            };
            return TaskTracker::new().spawn(late).await.unwrap();
        }
        self.pool.fence(slot, epoch).await
    }

    async fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        let unknown = || StoreError::Unknown("as planned".into());
        self.given.lock().push(batch.clone());
        assert!(!self.panics.swap(false, Ordering::SeqCst), "as planned");
        self.answers().await?;
        if self.is_full.load(Ordering::SeqCst) && batch.needs_room() {
            return Err(StoreError::Full);
        }
        let fault = self.plan.take();
        let (damaged, slowness) = (*self.damaged.lock(), *self.slowness.lock());
        tokio::time::sleep(slowness).await;
        if batch.queues.iter().any(|changes| Some(changes.queue) == damaged) {
            return Err(StoreError::Damaged("as planned".into()));
        }
        match fault {
            Fault::None => self.pool.commit(batch).await,
            Fault::Held => {
                self.plan.held().await;
                self.pool.commit(batch).await
            }
            Fault::NotSent => Err(StoreError::NotSent("as planned".into())),
            Fault::Panic => panic!("as planned"),
            Fault::HeldAndLost => {
                self.plan.held().await;
                Err(StoreError::NotSent("as planned".into()))
            }
            Fault::UnknownBefore => Err(unknown()),
            Fault::UnknownAfter => {
                self.pool.commit(batch).await?;
                Err(unknown())
            }
        }
    }

    async fn drop_queue(
        &self,
        slot: Slot,
        epoch: Epoch,
        queue: QueueId,
        limit: usize,
    ) -> Result<DropResult, StoreError> {
        self.answers().await?;
        if self.drops.take() == Fault::Held {
            let (pool, drops) = (Arc::clone(&self.pool), self.drops.clone());
            self.late_drops.spawn(async move {
                drops.held().await;
                pool.drop_queue(slot, epoch, queue, limit).await
            });
            return Err(StoreError::Unknown("as planned".into()));
        }
        self.pool.drop_queue(slot, epoch, queue, limit).await
    }
}

#[async_trait]
impl PoolReads for FaultyPool {
    async fn scan(
        &self,
        queue: QueueId,
        order: Order,
        direction: Direction,
        after: Option<Position>,
        messages: usize,
        bytes: usize,
    ) -> Result<Page, StoreError> {
        self.answers().await?;
        let page = self.pool.scan(queue, order, direction, after, messages, bytes).await;
        let is_held = *self.held_order.lock() == Some(order);
        if is_held && self.pages.take() == Fault::Held {
            self.pages.held().await;
        }
        page
    }

    async fn group(
        &self,
        queue: QueueId,
        group: &GroupName,
        after: Option<MessageId>,
        messages: usize,
        bytes: usize,
    ) -> Result<Page, StoreError> {
        self.answers().await?;
        self.pool.group(queue, group, after, messages, bytes).await
    }

    async fn groups(
        &self,
        queue: QueueId,
        after: Option<GroupName>,
        limit: usize,
    ) -> Result<Vec<GroupHead>, StoreError> {
        self.answers().await?;
        self.pool.groups(queue, after, limit).await
    }

    async fn get(&self, queue: QueueId, ids: &[MessageId]) -> Result<Vec<Message>, StoreError> {
        self.answers().await?;
        let mut found = self.pool.get(queue, ids).await?;
        found.retain(|message| !self.lost.lock().contains(&message.header.id));
        Ok(found)
    }

    async fn holds_any(&self, queue: QueueId) -> Result<bool, StoreError> {
        self.answers().await?;
        self.pool.holds_any(queue).await
    }

    async fn totals(&self, queue: QueueId) -> Result<Totals, StoreError> {
        self.answers().await?;
        let totals = self.pool.totals(queue).await?;
        let is_meant = *self.totals_of.lock() == Some(queue);
        match if is_meant { self.totals.take() } else { Fault::None } {
            Fault::Held => self.totals.held().await,
            Fault::NotSent => return Err(StoreError::NotSent("as planned".into())),
            _ => {}
        }
        Ok(if self.hides_totals.load(Ordering::SeqCst) { Totals::default() } else { totals })
    }

    async fn notes(
        &self,
        queue: QueueId,
        kind: u8,
        after: Option<Bytes>,
        limit: usize,
    ) -> Result<Vec<Note>, StoreError> {
        self.answers().await?;
        self.pool.notes(queue, kind, after, limit).await
    }

    async fn usage(&self) -> Result<Usage, StoreError> {
        self.answers().await?;
        self.pool.usage().await
    }
}

#[async_trait]
impl PoolDeadlines for FaultyPool {
    async fn retained(
        &self,
        queue: QueueId,
        from: Option<RetainedPlace>,
        before: Timestamp,
        limit: usize,
    ) -> Result<RetainedEntries, StoreError> {
        self.answers().await?;
        self.pool.retained(queue, from, before, limit).await
    }

    async fn due(
        &self,
        slot: Slot,
        due: Due,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<(QueueId, Header)>, StoreError> {
        assert!(!self.panics_at_due.swap(false, Ordering::SeqCst), "as planned");
        self.answers().await?;
        self.pool.due(slot, due, before, limit).await
    }
}
