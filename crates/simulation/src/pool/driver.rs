//! The driver of one process for a simulated storage: each call is a request through the simulated network, with a
//! timeout like that of the drivers for servers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use angarium_core::durability::Durability;
use angarium_core::group::GroupName;
use angarium_core::ids::{MessageId, QueueId, Slot};
use angarium_core::message::{Header, Message, Retention, State};
use angarium_core::time::Timestamp;
use angarium_storage::{
    Batch, Direction, DropResult, Due, Epoch, GroupHead, Health, Note, Order, Page, PoolDeadlines, PoolReads,
    PoolStore, PoolWrites, Position, QueueChanges, RetainedEntries, RetainedPlace, Stamp, StoreError, Totals,
    Usage,
};
use angarium_testbed::naive::{NaivePool, NaiveQueue};

use super::lines;
use super::plans::{PostPlan, SlowCall};
use super::storage::{self, CAPACITY, Numbering, Storage};
use crate::faults::Fault;
use crate::world::{Loss, RequestFaults, World};

/// How long a call waits for its answer, as in the PostgreSQL driver.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(6);

const FAULTS: RequestFaults = RequestFaults {
    refused: Fault::PoolRefused,
    lost: Fault::PoolLost,
    unanswered: Fault::PoolUnanswered,
    slow: Fault::PoolSlow,
    hung: Fault::PoolHung,
};

/// The place of the last entry that a look-up of expired entries returned: when it expires, its queue, its id.
type DueCursor = (Timestamp, QueueId, MessageId);

/// A simulated pool as one process uses it.
pub struct SimulatedPool {
    storage: Storage,
    world: World,
    /// The name of the process, for the trace.
    process: Arc<str>,
    /// The numbering that the last fence of each slot began. Held for a read or a write of one element.
    numberings: Mutex<BTreeMap<Slot, Numbering>>,
    /// For each slot, where the last look-up of expired entries ended, because it had the max number. Held for a read
    /// or a write of one element.
    cursors: Mutex<BTreeMap<Slot, DueCursor>>,
    /// Whether the last answer about room was that there is none. Held for a read or a write.
    is_full: Mutex<bool>,
}

/// Why a request has no answer in time.
enum Failure {
    NotSent(String),
    Unknown(String),
}

/// The part of an exchange that takes seconds on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LatePart {
    Request,
    Answer,
}

impl SimulatedPool {
    /// Returns the driver of a process, which has sent nothing yet.
    pub fn new(storage: Storage, world: World, process: &str) -> Self {
        Self {
            storage,
            world,
            process: process.into(),
            numberings: Mutex::default(),
            cursors: Mutex::default(),
            is_full: Mutex::default(),
        }
    }

    /// Sends a request. The storage may carry it out after the failure of this call.
    async fn request<T: Send + 'static>(
        &self,
        serve: impl FnOnce(&Storage, &str) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        if self.storage.is_down() {
            self.world.hop().await;
            return Err(Failure::NotSent("no server of the storage answers".into()));
        }
        let (storage, process) = (self.storage.clone(), Arc::clone(&self.process));
        let request = self.world.request(FAULTS, move || serve(&storage, &process));
        match timeout(ANSWER_TIMEOUT, request).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(Loss::NotSent)) => Err(Failure::NotSent("the connection was refused".into())),
            Ok(Err(Loss::Unknown)) => Err(Failure::Unknown("the connection was lost".into())),
            Err(_) => Err(Failure::Unknown(format!("no answer within {ANSWER_TIMEOUT:?}"))),
        }
    }

    async fn write<T: Send + 'static>(
        &self,
        serve: impl FnOnce(&Storage, &str) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.request(serve).await.map_err(Failure::of_write)?
    }

    /// Reads a queue, with no entries when there is none. `count` returns the number of results for the trace.
    async fn read_queue<T: Send + 'static>(
        &self,
        kind: &'static str,
        queue: QueueId,
        read: impl FnOnce(&NaiveQueue) -> T + Send + 'static,
        count: fn(&T) -> usize,
    ) -> Result<T, StoreError> {
        let read = move |pool: &NaivePool| match pool.queues().get(&queue) {
            Some(held) => read(held),
            None => read(&NaiveQueue::default()),
        };
        self.read(kind, lines::queue(queue), read, count).await
    }

    async fn read<T: Send + 'static>(
        &self,
        kind: &'static str,
        of: String,
        read: impl FnOnce(&NaivePool) -> T + Send + 'static,
        count: fn(&T) -> usize,
    ) -> Result<T, StoreError> {
        let serve = move |storage: &Storage, process: &str| {
            storage.read(&format!("{kind} by {process} {of}"), read, count)
        };
        let answer = self.request(serve).await.map_err(Failure::of_read)?;
        if self.world.happens(Fault::PoolLate) {
            self.be_late().await;
        }
        answer
    }

    async fn be_late(&self) {
        tokio::time::sleep(Duration::from_millis(300 + self.world.below(2_700))).await;
    }

    /// Returns the part of a write that is late, if one is: only of one that adds messages, makes some ready or
    /// delayed, or removes some.
    fn late_part(&self, batch: &Batch) -> Option<LatePart> {
        let is_free = |header: &Header| matches!(header.state, State::Ready | State::Scheduled);
        let is_raced = |QueueChanges { changes, .. }: &QueueChanges| {
            let has_others = !changes.removes.is_empty() || !changes.appends.is_empty();
            has_others || changes.updates.iter().any(is_free)
        };
        if !self.world.is_possible(Fault::PoolLate) || !batch.queues.iter().any(is_raced) {
            return None;
        }
        let late = match self.world.below(8) {
            0 => LatePart::Request,
            1 => LatePart::Answer,
            _ => return None,
        };
        self.world.count(Fault::PoolLate);
        Some(late)
    }

    /// Waits with a batch that is late by plan. Returns the error of one that is in doubt: it arrives some time later,
    /// and the storage is full until then. Returns true for one whose answer is lost by plan.
    async fn follow_plan(&self, batch: &Batch, own: Option<Numbering>) -> Result<bool, StoreError> {
        let mut is_unanswered = false;
        match self.storage.plans().take_post(&self.process, batch) {
            Some(PostPlan::Late(time)) => tokio::time::sleep(time).await,
            Some(PostPlan::LateBesideFull(time)) => {
                let (storage, process, batch) =
                    (self.storage.clone(), Arc::clone(&self.process), batch.clone());
                storage.set_full(true);
                self.world.spawn(async move {
                    tokio::time::sleep(time).await;
                    storage.set_full(false);
                    drop(storage.commit(&process, &batch, own));
                });
                return Err(StoreError::Unknown("the connection was lost, by plan".into()));
            }
            Some(PostPlan::Unanswered(_)) => is_unanswered = true,
            None => {}
        }
        if batch.queues.iter().any(|queue| !queue.changes.removes.is_empty()) {
            self.storage.plans().be_slow(SlowCall::Removal).await;
            if self.storage.plans().refuses_removals() {
                self.world.count(Fault::PoolRefused);
                return Err(StoreError::NotSent("the connection was refused, by plan".into()));
            }
        }
        Ok(is_unanswered)
    }

    /// Delays half of the answers with expired messages, which may change meanwhile.
    async fn delay_expired(&self, found: &[(QueueId, Header)]) {
        if found.is_empty() || !self.world.is_possible(Fault::PoolLate) || self.world.below(2) == 0 {
            return;
        }
        self.world.count(Fault::PoolLate);
        let _late = self.storage.delay_answer(found.iter().map(|(_, header)| header.id).collect());
        self.be_late().await;
    }
}

impl Failure {
    /// The error of a call that writes.
    fn of_write(self) -> StoreError {
        match self {
            Self::NotSent(why) => StoreError::NotSent(why),
            Self::Unknown(why) => StoreError::Unknown(why),
        }
    }

    /// The error of a call that writes nothing.
    fn of_read(self) -> StoreError {
        let (Self::NotSent(why) | Self::Unknown(why)) = self;
        StoreError::NotSent(why)
    }
}

#[async_trait]
impl PoolStore for SimulatedPool {
    async fn stamp(&self) -> Result<Option<Stamp>, StoreError> {
        self.request(|storage, _| storage.stamp()).await.map_err(Failure::of_read)?
    }

    async fn put_stamp(&self, stamp: Stamp) -> Result<Stamp, StoreError> {
        self.write(move |storage, process| storage.put_stamp(process, stamp)).await
    }

    fn reach(&self) -> Durability {
        self.storage.class()
    }

    async fn health(&self) -> Result<Health, StoreError> {
        let sent = Instant::now();
        let free = self.request(|storage, _| storage.free()).await.map_err(Failure::of_read)??;
        *self.is_full.lock() = free == 0;
        Ok(Health { took: sent.elapsed(), class: self.reach(), free: Some(free), total: Some(CAPACITY) })
    }

    fn check_open(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn check_room(&self) -> Result<(), StoreError> {
        self.check_open()?;
        if *self.is_full.lock() { Err(StoreError::Full) } else { Ok(()) }
    }
}

#[async_trait]
impl PoolWrites for SimulatedPool {
    async fn fence(&self, slot: Slot, epoch: Epoch) -> Result<MessageId, StoreError> {
        let fence = move |storage: &Storage, process: &str| storage.fence(process, slot, epoch);
        let (last, numbering) = self.write(fence).await?;
        self.numberings.lock().insert(slot, numbering);
        Ok(last)
    }

    async fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        let (sent, needs_room) = (batch.clone(), batch.needs_room());
        let own = self.numberings.lock().get(&batch.slot).copied();
        let late = self.late_part(batch);
        let is_unanswered = self.follow_plan(batch, own).await?;
        if late == Some(LatePart::Request) {
            self.be_late().await;
        }
        let result = self.write(move |storage, process| storage.commit(process, &sent, own)).await;
        if late == Some(LatePart::Answer) {
            self.be_late().await;
        }
        // The process may have been stopped since.
        if is_unanswered || self.storage.plans().is_unanswered() {
            return Err(StoreError::Unknown("the answer was lost, by plan".into()));
        }
        match &result {
            Ok(()) if needs_room => *self.is_full.lock() = false,
            Err(StoreError::Full) => *self.is_full.lock() = true,
            Ok(()) | Err(_) => {}
        }
        result
    }

    async fn drop_queue(
        &self,
        slot: Slot,
        epoch: Epoch,
        queue: QueueId,
        limit: usize,
    ) -> Result<DropResult, StoreError> {
        self.write(move |storage, process| storage.drop_queue(process, (slot, epoch), queue, limit)).await
    }
}

#[async_trait]
impl PoolReads for SimulatedPool {
    async fn scan(
        &self,
        queue: QueueId,
        order: Order,
        direction: Direction,
        after: Option<Position>,
        messages: usize,
        bytes: usize,
    ) -> Result<Page, StoreError> {
        let kind = match order {
            Order::Ready => "scan of ready",
            Order::Aside => "scan of others",
            Order::Schedule => "scan of schedule",
            Order::Kept => "scan of kept",
        };
        let read =
            move |held: &NaiveQueue| end_early(held.scan(order, direction, after, messages, bytes), bytes);
        let page = self.read_queue(kind, queue, read, |page| page.messages.len()).await;
        self.storage.plans().be_slow(SlowCall::Scan).await;
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
        let group = group.clone();
        let read = move |held: &NaiveQueue| end_early(held.group(&group, after, messages, bytes), bytes);
        self.read_queue("group", queue, read, |page| page.messages.len()).await
    }

    async fn groups(
        &self,
        queue: QueueId,
        after: Option<GroupName>,
        limit: usize,
    ) -> Result<Vec<GroupHead>, StoreError> {
        self.read_queue("groups", queue, move |held| held.groups(after.as_ref(), limit), Vec::len).await
    }

    async fn get(&self, queue: QueueId, ids: &[MessageId]) -> Result<Vec<Message>, StoreError> {
        let ids = ids.to_vec();
        let found = self.read_queue("get", queue, move |held| held.get(&ids), Vec::len).await;
        self.storage.plans().be_slow(SlowCall::Get).await;
        found
    }

    async fn holds_any(&self, queue: QueueId) -> Result<bool, StoreError> {
        let read = |held: &NaiveQueue| held.totals().messages > 0;
        self.read_queue("holds any", queue, read, |holds| usize::from(*holds)).await
    }

    async fn totals(&self, queue: QueueId) -> Result<Totals, StoreError> {
        let count = |totals: &Totals| usize::try_from(totals.messages).unwrap_or(usize::MAX);
        self.read_queue("totals", queue, NaiveQueue::totals, count).await
    }

    async fn notes(
        &self,
        queue: QueueId,
        kind: u8,
        after: Option<Bytes>,
        limit: usize,
    ) -> Result<Vec<Note>, StoreError> {
        self.read_queue("notes", queue, move |held| held.notes(kind, after.as_ref(), limit), Vec::len).await
    }

    async fn usage(&self) -> Result<Usage, StoreError> {
        let count = |usage: &Usage| usize::try_from(usage.queues).unwrap_or(usize::MAX);
        self.read("usage", "all".into(), storage::usage, count).await
    }
}

#[async_trait]
impl PoolDeadlines for SimulatedPool {
    async fn due(
        &self,
        slot: Slot,
        due: Due,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<(QueueId, Header)>, StoreError> {
        let (kind, of) = match due {
            _ if limit == 0 => return Ok(Vec::new()),
            Due::Schedule => ("schedule", format!("slot {slot}")),
            Due::Expiry => ("expiry", format!("slot {slot}")),
        };
        if due == Due::Schedule {
            let read = move |pool: &NaivePool| first(pool.due(slot, due, before), limit);
            return self.read(kind, of, read, Vec::len).await;
        }
        let after = self.cursors.lock().get(&slot).copied();
        let read = move |pool: &NaivePool| first(rotated(pool.due(slot, due, before), after), limit);
        let found = self.read(kind, of, read, Vec::len).await?;
        self.delay_expired(&found).await;
        let mut cursors = self.cursors.lock();
        match found.last().filter(|_| found.len() == limit) {
            Some(last) => cursors.insert(slot, cursor(last)),
            None => cursors.remove(&slot),
        };
        Ok(found)
    }

    async fn retained(
        &self,
        queue: QueueId,
        _from: Option<RetainedPlace>,
        before: Timestamp,
        limit: usize,
    ) -> Result<RetainedEntries, StoreError> {
        let read = move |pool: &NaivePool| {
            let since = |header: &Header| header.life.retained_since();
            let oldest =
                pool.retained(queue, Timestamp::from_millis(u64::MAX)).iter().filter_map(since).min();
            let mut found = pool.retained(queue, before);
            found.sort_by_key(|header| (since(header), header.id));
            RetainedEntries { found: first(found, limit), oldest, resume: None }
        };
        self.read("retained", lines::queue(queue), read, |entries| entries.found.len()).await
    }
}

/// Ends a page once bodies and extras exceed the bytes, as the drivers do.
fn end_early(mut page: Page, bytes: usize) -> Page {
    let mut read = 0;
    let fits = |message: &&Message| {
        let fits = read <= bytes;
        read += message.body.len() + message.header.extras_bytes();
        fits
    };
    let length = page.messages.iter().take_while(fits).count();
    page.is_last &= length == page.messages.len();
    page.messages.truncate(length);
    page
}

fn first<T>(mut all: Vec<T>, limit: usize) -> Vec<T> {
    all.truncate(limit);
    all
}

/// Moves the entries up to a cursor behind the others.
fn rotated(mut due: Vec<(QueueId, Header)>, after: Option<DueCursor>) -> Vec<(QueueId, Header)> {
    if let Some(after) = after {
        let seen = due.partition_point(|entry| cursor(entry) <= after);
        due.rotate_left(seen);
    }
    due
}

fn cursor((queue, header): &(QueueId, Header)) -> DueCursor {
    (header.expires(Retention::LONGEST), *queue, header.id)
}
