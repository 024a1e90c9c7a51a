//! An open pool: its record, its storage or the reason why that cannot be used, and its health at the last check.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::RwLock;

use angarium_catalogue::PoolEntry;
use angarium_core::error::{Error, Part};
use angarium_core::names::PoolName;
use angarium_core::pool::Pool;
use angarium_engine::placement::Candidate;
use angarium_metrics::ObservedPool;
use angarium_storage::{Health, PoolStore, Shortage, StoreError};

use crate::stores::storage_failed;

/// The storage of a pool with the pool's name, so that each error names the pool.
#[derive(Clone)]
pub(crate) struct NamedStore {
    pub(crate) name: PoolName,
    pub(crate) store: Arc<dyn PoolStore>,
}

impl Deref for NamedStore {
    type Target = dyn PoolStore;

    fn deref(&self) -> &Self::Target {
        &*self.store
    }
}

impl NamedStore {
    pub(crate) fn name(&self) -> &PoolName {
        &self.name
    }

    /// Returns the part of the service that it is.
    pub(crate) fn part(&self) -> Part {
        Part::Pool(self.name.clone())
    }

    /// Converts the error of a call into the error of a request.
    pub(crate) fn failed(&self, error: StoreError) -> Error {
        storage_failed(self.part(), error)
    }
}

/// Why the storage of a pool cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StorageFault {
    /// Whether there is no storage at all, for example when its disk is not mounted yet.
    pub(crate) is_absent: bool,
    /// The reason, for operators: it may name paths and servers.
    pub(crate) why: String,
}

/// A pool of the catalogue.
pub(crate) struct OpenPool {
    pub(crate) entry: PoolEntry,
    /// The storage, or the reason why it cannot be used.
    pub(crate) store: Result<Arc<dyn PoolStore>, StorageFault>,
    /// Used bytes of the disk or server, as the pool last reported them.
    pub(crate) used: Arc<AtomicU64>,
    /// Its health at the last check; none when it could not be reached, or was not checked yet. The lock is held for
    /// one access.
    pub(crate) health: Arc<RwLock<Option<Health>>>,
    /// Whether its health was checked.
    was_checked: Arc<AtomicBool>,
}

impl OpenPool {
    pub(crate) fn new(entry: PoolEntry, store: Result<Arc<dyn PoolStore>, StorageFault>) -> Self {
        let (used, health, was_checked) = (Arc::default(), Arc::default(), Arc::default());
        Self { entry, store, used, health, was_checked }
    }

    /// Returns the same pool with another record.
    pub(crate) fn with(&self, entry: PoolEntry) -> Self {
        let (used, health) = (Arc::clone(&self.used), Arc::clone(&self.health));
        Self { entry, store: self.store.clone(), used, health, was_checked: Arc::clone(&self.was_checked) }
    }

    /// Returns the storage of the pool. An unavailable pool affects only its own queues.
    pub(crate) fn store(&self) -> Result<NamedStore, Error> {
        let name = self.entry.name.clone();
        match &self.store {
            Ok(store) => Ok(NamedStore { name, store: Arc::clone(store) }),
            Err(unusable) => Err(Error::unavailable(Part::Pool(name), unusable.why.clone())),
        }
    }

    /// Returns why its storage cannot be used; none when it can.
    pub(crate) fn unusable(&self) -> Option<&StorageFault> {
        self.store.as_ref().err()
    }

    /// Returns the values that placement needs.
    pub(crate) fn candidate(&self) -> Candidate<'_> {
        let used = self.used.load(Ordering::Relaxed);
        Candidate { name: self.entry.name.as_str(), weight: self.entry.pool.weight, used }
    }

    /// Records the health of the pool, none after a failed check, and how full it is. A pool that does not know that
    /// counts as empty.
    pub(crate) fn note_health(&self, health: Option<Health>) {
        *self.health.write() = health;
        self.was_checked.store(true, Ordering::Relaxed);
        if let Some(health) = health {
            let used = health.total.zip(health.free).map_or(0, |(total, free)| total.saturating_sub(free));
            self.used.store(used, Ordering::Relaxed);
        }
    }

    /// Whether the pool can accept a post now.
    pub(crate) fn is_writable(&self) -> bool {
        self.store.as_ref().is_ok_and(|store| store.check_room().is_ok())
    }

    /// Returns the text for probes when the pool takes no new messages, with advice. It names no path or server of this
    /// machine.
    pub(crate) fn closed_text(&self) -> Option<String> {
        let name = &self.entry.name;
        let store = match &self.store {
            Ok(store) => store,
            Err(unusable) if unusable.is_absent => {
                return Some(format!(
                    "pool {name}: its storage is not there; its disk may not be mounted yet"
                ));
            }
            Err(_) => return Some(format!("pool {name} cannot be used; the log has the reason")),
        };
        let refused = store.check_room().err()?;
        Some(match store.shortage() {
            Some(Shortage { free, reserve }) => format!(
                "pool {name} takes no new messages: {free} bytes are free on its disk, less than the reserve of \
                 {reserve} bytes; make room on the disk, delete messages, or lower --reserve"
            ),
            None if matches!(refused, StoreError::Full) => {
                format!("pool {name} takes no new messages: its server has no room; make room there")
            }
            None => format!("pool {name} cannot be used now; the log has the reason"),
        })
    }

    /// Whether the pool answered the last health check.
    pub(crate) fn is_up(&self) -> bool {
        self.store.is_ok() && self.health.read().is_some()
    }

    /// Whether the pool gives no answer: its storage cannot be used, or the last health check failed. Nothing is known of
    /// a pool before its first check.
    pub(crate) fn is_silent(&self) -> bool {
        self.store.is_err() || (self.was_checked.load(Ordering::Relaxed) && !self.is_up())
    }

    /// Returns the figures of the pool for a page of metrics.
    pub(crate) fn observed(&self) -> ObservedPool {
        let health = *self.health.read();
        let health = health.filter(|_| self.store.is_ok());
        ObservedPool {
            name: self.entry.name.to_string(),
            is_up: health.is_some(),
            is_writable: self.is_writable(),
            latency: health.map(|health| health.took),
            space: health.and_then(|health| health.free.zip(health.total)),
            held: None,
            damaged_reads: self
                .store
                .as_ref()
                .ok()
                .and_then(|store| store.damage())
                .map_or(0, |met| met.reads),
        }
    }

    pub(crate) fn is_of(&self, pool: &Pool) -> bool {
        self.entry.pool.id == pool.id && self.entry.pool.uri == pool.uri
    }
}
