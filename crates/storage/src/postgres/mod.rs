//! The PostgreSQL driver: entries in tables of a database, written by one statement for all batches that wait.
//!
//! A statement commits by itself. Its writes for a slot depend on the record of that slot: if the record does not
//! match, nothing is written for the slot, and the driver reads the reason with another statement.
//! `docs/pools/postgresql.md` describes the address of a server, the meaning of an acknowledgement, and when a pool is
//! refused; `stored.rs` has the layout.

mod address;
mod batch;
mod committer;
mod connection;
mod due;
mod errors;
pub mod limits;
mod link;
mod migrations;
mod reads;
mod retained;
mod stored;
mod tenant;
mod writes;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use parking_lot::Mutex;

pub use address::{Address, AddressError};

use super::{Health, PoolReads, PoolStore, Stamp, StoreError};
use angarium_core::durability::Durability;
use angarium_core::ids::{QueueId, Slot};
use angarium_core::limits as core_limits;
use committer::Committer;
use due::DueCursor;
use link::{Link, ServerState};

/// The id of no queue, for a read with the cost of any small read.
const NO_QUEUE: QueueId = QueueId::from_bytes([0; 16]);

/// A pool in PostgreSQL. It connects at its first use, and again when needed.
pub struct PostgresPool {
    address: Arc<Address>,
    known: Arc<ServerState>,
    reads: Link,
    /// Separate from the link for reads, because batches may wait long for a standby or for each other.
    writes: Link,
    committer: Committer,
    /// For each slot, where the last look-up of expired entries ended. Held for a read or a write of one element.
    cursors: Mutex<HashMap<Slot, DueCursor>>,
    /// For each slot, the state of this process's own writes. Held for a read or a write of one element.
    slots: Mutex<HashMap<Slot, writes::OwnWrites>>,
}

impl PostgresPool {
    /// Returns the pool at `address`, without a connection.
    pub fn new(address: Address) -> Self {
        let (address, known) = (Arc::new(address), Arc::new(ServerState::default()));
        let reads = Link::new(&address, &known, core_limits::POSTGRES_READS);
        let writes = Link::new(&address, &known, limits::WRITES);
        let committer = Committer::default();
        Self { address, known, reads, writes, committer, cursors: Mutex::default(), slots: Mutex::default() }
    }
}

#[async_trait]
impl PoolStore for PostgresPool {
    async fn stamp(&self) -> Result<Option<Stamp>, StoreError> {
        let session = self.reads.open().await?;
        migrations::read_stamp(&session.connection, &self.address.schema).await
    }

    async fn put_stamp(&self, stamp: Stamp) -> Result<Stamp, StoreError> {
        let session = self.writes.open().await?;
        let schema = &self.address.schema;
        match migrations::read_stamp(&session.connection, schema).await? {
            Some(found) => Ok(found),
            None => migrations::create(&session.connection, schema, stamp).await,
        }
    }

    async fn tenant(&self) -> Result<Option<String>, StoreError> {
        let (session, _) = self.reads.session().await?;
        tenant::read(&session.connection, &self.address.schema).await
    }

    async fn replace_tenant(&self, found: Option<&str>, record: &str) -> Result<bool, StoreError> {
        let (session, _) = self.writes.session().await?;
        tenant::replace(&session.connection, &self.address.schema, found, record).await
    }

    fn reach(&self) -> Durability {
        self.known.class()
    }

    async fn health(&self) -> Result<Health, StoreError> {
        let asked = Instant::now();
        self.totals(NO_QUEUE).await?;
        let took = asked.elapsed();
        if self.address.quota.is_some() {
            let (session, _) = self.reads.session().await?;
            self.measure_used(&session.connection).await?;
        }
        let free = self.address.quota.map(|quota| quota.saturating_sub(self.known.used()));
        Ok(Health { took, class: self.reach(), free, total: self.address.quota })
    }

    fn check_open(&self) -> Result<(), StoreError> {
        self.known.check()
    }

    fn check_room(&self) -> Result<(), StoreError> {
        self.check_open()?;
        if self.is_full() { Err(StoreError::Full) } else { Ok(()) }
    }
}
