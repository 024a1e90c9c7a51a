//! The PostgreSQL driver: entries in tables of a database, written by one statement for all batches that gathered.
//!
//! A statement commits by itself, and all that it does for a slot hangs on the record of that slot: where that does not
//! match nothing is written. What is wrong then is read afterwards. Where the server is, what an acknowledgement means there and when a pool
//! is refused is in `docs/pools/postgresql.md`; the layout in `stored.rs`.

mod address;
mod batch;
mod committer;
mod connection;
mod errors;
pub mod limits;
mod link;
mod migrations;
mod reads;
mod retained;
mod stored;
mod writes;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;

pub use address::{Address, AddressError};

use super::{
    Batch, Direction, DropResult, Due, Epoch, GroupHead, Health, Note, Order, Page, PoolStore, Position,
    RetainedEntries, RetainedPlace, Stamp, StoreError, Totals, Usage,
};
use angarium_core::durability::Durability;
use angarium_core::group::GroupName;
use angarium_core::ids::{MessageId, QueueId, Slot};
use angarium_core::limits as core_limits;
use angarium_core::message::{Header, Message};
use angarium_core::time::Timestamp;
use committer::Committer;
use link::{Link, ServerState};
use reads::{DueCursor, ScanRequest};

/// No queue has this id: to ask for it costs what any small read does.
const NO_QUEUE: QueueId = QueueId::from_bytes([0; 16]);

/// A pool in PostgreSQL. It connects when it is first used, and again whenever that is needed.
pub struct PostgresPool {
    address: Arc<Address>,
    known: Arc<ServerState>,
    reads: Link,
    /// Apart from those for reads, since batches may wait long for a standby or for each other.
    writes: Link,
    committer: Committer,
    /// Of each slot, where the last look for expired entries ended. Held for a read or a write of one element.
    turns: Mutex<HashMap<Slot, DueCursor>>,
    /// Of each slot, what this process knows of its own writes. Held likewise.
    slots: Mutex<HashMap<Slot, writes::OwnWrites>>,
}

impl PostgresPool {
    /// The pool at `address`. Nothing is connected yet.
    pub fn new(address: Address) -> Self {
        let (address, known) = (Arc::new(address), Arc::new(ServerState::default()));
        let reads = Link::new(&address, &known, core_limits::POSTGRES_READS);
        let writes = Link::new(&address, &known, limits::WRITES);
        let committer = Committer::default();
        Self { address, known, reads, writes, committer, turns: Mutex::default(), slots: Mutex::default() }
    }
}

#[async_trait]
impl PoolStore for PostgresPool {
    async fn stamp(&self) -> Result<Option<Stamp>, StoreError> {
        let way = self.reads.open().await?;
        migrations::look(&way.connection, &self.address.schema).await
    }

    async fn put_stamp(&self, stamp: Stamp) -> Result<Stamp, StoreError> {
        let way = self.writes.open().await?;
        let schema = &self.address.schema;
        match migrations::look(&way.connection, schema).await? {
            Some(found) => Ok(found),
            None => migrations::make(&way.connection, schema, stamp).await,
        }
    }

    async fn fence(&self, slot: Slot, epoch: Epoch) -> Result<MessageId, StoreError> {
        self.raise(slot, epoch).await
    }

    async fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        batch::check_bounds(batch)?;
        self.apply(batch).await
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
        self.page(ScanRequest { queue, order, direction, messages, bytes }, after).await
    }

    async fn group(
        &self,
        queue: QueueId,
        group: &GroupName,
        after: Option<MessageId>,
        messages: usize,
        bytes: usize,
    ) -> Result<Page, StoreError> {
        self.group_page(queue, group, (after, messages, bytes)).await
    }

    async fn groups(
        &self,
        queue: QueueId,
        after: Option<GroupName>,
        limit: usize,
    ) -> Result<Vec<GroupHead>, StoreError> {
        self.group_heads(queue, after, limit).await
    }

    async fn due(
        &self,
        slot: Slot,
        due: Due,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<(QueueId, Header)>, StoreError> {
        match due {
            _ if limit == 0 => Ok(Vec::new()),
            Due::Schedule => self.scheduled(slot, before, limit).await,
            Due::Expiry => self.expired(slot, before, limit).await,
        }
    }

    async fn retained(
        &self,
        queue: QueueId,
        from: Option<RetainedPlace>,
        before: Timestamp,
        limit: usize,
    ) -> Result<RetainedEntries, StoreError> {
        self.read_retained(queue, from, before, limit).await
    }

    async fn get(&self, queue: QueueId, ids: &[MessageId]) -> Result<Vec<Message>, StoreError> {
        self.entries(queue, ids).await
    }

    async fn totals(&self, queue: QueueId) -> Result<Totals, StoreError> {
        self.totals_of(queue).await
    }

    async fn notes(
        &self,
        queue: QueueId,
        kind: u8,
        after: Option<Bytes>,
        limit: usize,
    ) -> Result<Vec<Note>, StoreError> {
        self.notes_of(queue, kind, after, limit).await
    }

    async fn drop_queue(
        &self,
        slot: Slot,
        epoch: Epoch,
        queue: QueueId,
        limit: usize,
    ) -> Result<DropResult, StoreError> {
        self.drop_part(slot, epoch, queue, limit.min(limits::PAGE)).await
    }

    fn reach(&self) -> Durability {
        self.known.class()
    }

    async fn health(&self) -> Result<Health, StoreError> {
        let asked = Instant::now();
        self.totals_of(NO_QUEUE).await?;
        let took = asked.elapsed();
        if self.address.quota.is_some() {
            let (way, _) = self.reads.way().await?;
            self.look_at_room(&way.connection).await?;
        }
        let free = self.address.quota.map(|quota| quota.saturating_sub(self.known.used()));
        Ok(Health { took, class: self.reach(), free, total: self.address.quota })
    }

    async fn usage(&self) -> Result<Usage, StoreError> {
        self.usage_of_all().await
    }

    fn check_open(&self) -> Result<(), StoreError> {
        self.known.check()
    }

    fn check_room(&self) -> Result<(), StoreError> {
        self.check_open()?;
        if self.is_full() { Err(StoreError::Full) } else { Ok(()) }
    }
}
