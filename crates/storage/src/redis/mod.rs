//! The Redis driver: entries in a Redis or Valkey server, in the master that Sentinels name, or in a cluster.
//!
//! A batch is one call of a script, which checks the record of its slot before it writes. `docs/pools/redis.md`
//! describes the addresses of servers, the meaning of an acknowledgement, and when a pool is refused; `stored.rs` has
//! the layout.

mod address;
mod batch;
mod connection;
mod due;
mod errors;
pub mod limits;
mod link;
mod reads;
mod retained;
mod scripts;
mod server;
mod stored;
mod writes;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use parking_lot::Mutex;

pub use address::{Address, AddressError};

use super::{Health, PoolStore, Stamp, StoreError};
use angarium_core::durability::Durability;
use angarium_core::ids::Slot;
use due::DueCursor;
use link::{Link, ServerState};
use stored::Numbering;

/// A pool in Redis. It connects at its first use, and again when needed.
pub struct RedisPool {
    address: Arc<Address>,
    known: Arc<ServerState>,
    reads: Link,
    /// Several if batches wait for replicas, because each of them blocks the later ones of its connection.
    writes: Vec<Link>,
    /// For each slot, where the last look-up of expired entries ended. Held for a read or a write of one element.
    cursors: Mutex<HashMap<Slot, DueCursor>>,
    /// The numbering that the last fence of each slot began. Held for a read or a write of one element.
    numberings: Mutex<HashMap<Slot, Numbering>>,
}

impl RedisPool {
    /// Returns the pool at `address`, without a connection.
    pub fn new(address: Address) -> Self {
        let (address, known) = (Arc::new(address), Arc::new(ServerState::default()));
        let link = || Link::new(Arc::clone(&address), Arc::clone(&known));
        let many = if address.waits.any() { limits::WAITING } else { 1 };
        let (reads, writes) = (link(), (0..many).map(|_| link()).collect());
        Self { address, known, reads, writes, cursors: Mutex::default(), numberings: Mutex::default() }
    }

    /// Creates the records of all slots, then the stamp if there is none. Returns the stamp that the storage has then.
    async fn make(&self, stamp: Stamp) -> Result<Stamp, StoreError> {
        let mut open = self.reads.open().await?;
        let keys = stored::Keys::new(&self.address.prefix, stamp);
        let unknown = |error: redis::RedisError| errors::write_failed(&error, errors::SendMode::Repeatedly);
        let record = |slot| {
            let mut set = redis::cmd("SET");
            set.arg(keys.record(slot)).arg(stored::first_record()).arg("NX");
            set
        };
        let records: Vec<_> = Slot::all().map(record).collect();
        link::make_all(&mut open.connection, &records, self.address.waits).await.map_err(unknown)?;
        let mut set = redis::cmd("SET");
        set.arg(stored::stamp_key(&self.address.prefix)).arg(stored::encode_stamp(stamp)).arg("NX");
        let made = link::make_all(&mut open.connection, &[set], self.address.waits).await;
        // Another process may have written its stamp first, so the stamp is read again, with a new connection.
        self.reads.forget(&open);
        made.map_err(unknown)?;
        self.reads.open().await?.stamp.ok_or(StoreError::WentBack)
    }
}

#[async_trait]
impl PoolStore for RedisPool {
    async fn stamp(&self) -> Result<Option<Stamp>, StoreError> {
        Ok(self.reads.open().await?.stamp)
    }

    async fn put_stamp(&self, stamp: Stamp) -> Result<Stamp, StoreError> {
        match self.reads.open().await?.stamp {
            Some(found) => Ok(found),
            None => self.make(stamp).await,
        }
    }

    async fn tenant(&self) -> Result<Option<String>, StoreError> {
        let session = self.reads.session().await?;
        let mut command = redis::cmd("GET");
        command.arg(stored::tenant_key(&self.address.prefix));
        let answer = self.reads.query(session, &command).await?;
        redis::from_redis_value(answer).map_err(|_| stored::damaged("the tenant of the pool"))
    }

    async fn replace_tenant(&self, found: Option<&str>, record: &str) -> Result<bool, StoreError> {
        let link = self.writes.first().unwrap_or(&self.reads);
        let session = link.session().await?;
        let mut call = scripts::TENANT.call(&[stored::tenant_key(&self.address.prefix)]);
        call.arg(found.unwrap_or_default()).arg(record);
        let answer = link.write(session, &scripts::TENANT, call, self.address.waits).await?;
        let replaced: u32 =
            redis::from_redis_value(answer).map_err(|_| stored::damaged("the tenant of the pool"))?;
        Ok(replaced == 1)
    }

    fn reach(&self) -> Durability {
        self.known.class()
    }

    async fn health(&self) -> Result<Health, StoreError> {
        let session = self.reads.session().await?;
        let mut command = redis::cmd("GET");
        command.arg(session.keys.record(Slot(0)));
        let asked = Instant::now();
        self.reads.query(session, &command).await?;
        let took = asked.elapsed();
        let memory = self.known.memory();
        Ok(Health {
            took,
            class: self.reach(),
            free: memory.map(|(used, max)| max.saturating_sub(used)),
            total: memory.map(|(_, max)| max),
        })
    }

    fn check_open(&self) -> Result<(), StoreError> {
        self.reads.check()?;
        self.writes.iter().try_for_each(Link::check)
    }
}
