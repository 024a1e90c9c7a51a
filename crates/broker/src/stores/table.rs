//! The open pools: the storage of each name, opened, checked and exchanged while requests use it.

use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use tokio::time::{Instant, timeout};
use tracing::warn;
use uuid::Uuid;

use crate::limits;
use crate::replica::pool_outages::PoolStates;
use crate::stores::tenants::PoolTenants;
use crate::stores::usage_notes::PoolUse;

pub(crate) use crate::stores::open_pool::NamedStore;
pub(crate) use crate::stores::open_pool::OpenPool;
use crate::stores::open_pool::StorageFault;
use crate::stores::refusal::storage_refusal;
use angarium_catalogue::{Catalogue, PoolEntry, System};
use angarium_cluster::random::Random;
use angarium_core::error::{Error, Part};
use angarium_core::maps::HashMap;
use angarium_core::names::PoolName;
use angarium_core::pool::PoolUri;
use angarium_engine::placement::Algorithm;
use angarium_storage::open::{Opener, PoolOpenError};
use angarium_storage::{PoolStore, Stamp, StoreError, Tenant};

/// Attempts to change a record that others change meanwhile.
pub(crate) const CHANGE_TRIES: usize = 8;

/// The first pool of an installation that has none.
#[derive(Clone, Debug)]
pub struct FirstPool {
    /// Name of the pool.
    pub name: PoolName,
    /// The URI of its storage.
    pub uri: PoolUri,
    /// Its share of new queues, once there are other pools.
    pub weight: u32,
}

/// Settings of the pools.
#[derive(Clone)]
pub struct PoolSettings {
    /// Created when there is no pool. Without it the service waits until a client adds one.
    pub first: Option<FirstPool>,
    /// Opens storages.
    pub opener: Arc<dyn Opener>,
    /// Chooses the pool of a new queue.
    pub placement: Algorithm,
}

/// The pools as this process knows them. The catalogue decides: the commit that places a queue checks the record of its
/// pool, and a caller whose commit is refused reads the records again.
pub(crate) struct PoolTable {
    pub(crate) system: System,
    random: Random,
    pub(crate) placement: Algorithm,
    opener: Arc<dyn Opener>,
    /// The lock is held for single look-ups and exchanges, never across an await.
    pools: RwLock<HashMap<PoolName, Arc<OpenPool>>>,
    /// Pools that are being removed with the messages in them. The lock is held for single accesses.
    lost: Mutex<HashMap<PoolName, LostPool>>,
    pub(crate) states: Arc<PoolStates>,
    pub(crate) pool_use: PoolUse,
    pub(crate) tenants: PoolTenants,
    /// Held by the one caller that changes pools or flavors, or reads all of them again.
    pub(crate) changing: tokio::sync::Mutex<()>,
}

/// A pool that is being removed with the messages in it.
struct LostPool {
    until: Instant,
    is_answering: bool,
}

impl PoolTable {
    pub(crate) fn new(system: System, settings: &PoolSettings, random: Random) -> Self {
        Self {
            system,
            random,
            placement: settings.placement,
            opener: Arc::clone(&settings.opener),
            pools: RwLock::default(),
            lost: Mutex::default(),
            states: Arc::default(),
            pool_use: PoolUse::default(),
            tenants: PoolTenants::default(),
            changing: tokio::sync::Mutex::default(),
        }
    }

    /// Returns the table for a process that uses its pools alone.
    pub(crate) fn used_by(self, me: Option<Tenant>) -> Self {
        Self { tenants: PoolTenants::new(me), ..self }
    }

    /// Returns the outages of pools.
    pub(crate) fn outages(&self) -> Arc<PoolStates> {
        Arc::clone(&self.states)
    }

    pub(crate) fn get(&self, name: &PoolName) -> Option<Arc<OpenPool>> {
        self.pools.read().get(name).cloned()
    }

    /// Returns all pools, in order of name.
    pub(crate) fn all(&self) -> Vec<Arc<OpenPool>> {
        let mut pools: Vec<_> = self.pools.read().values().cloned().collect();
        pools.sort_by(|a, b| a.entry.name.cmp(&b.entry.name));
        pools
    }

    /// Inserts or replaces a pool, and logs whether it can be used when that has changed.
    pub(crate) fn insert(&self, pool: OpenPool) {
        self.states.note(&pool.entry.name, pool.unusable().map(|found| found.why.as_str()));
        self.pools.write().insert(pool.entry.name.clone(), Arc::new(pool));
    }

    /// Inserts a pool at the start, without a log entry: the start may fail because of the pool, and its error then
    /// gives the reason.
    pub(crate) fn insert_at_start(&self, pool: OpenPool) {
        self.pools.write().insert(pool.entry.name.clone(), Arc::new(pool));
    }

    /// Logs the pools that cannot be used, once the start is certain to continue without them.
    pub(crate) fn tell_states(&self) {
        for pool in self.all() {
            self.states.note(&pool.entry.name, pool.unusable().map(|found| found.why.as_str()));
        }
    }

    /// Replaces the record of a pool. Its storage stays.
    pub(crate) fn update(&self, entry: PoolEntry) {
        let mut pools = self.pools.write();
        if let Some(pool) = pools.get_mut(&entry.name) {
            *pool = Arc::new(pool.with(entry));
        }
    }

    /// Removes a pool and closes its storage, unless another pool uses that. Waits at most [`limits::POOL_CLOSE`] for a
    /// storage that hangs; it is closed when it answers again.
    pub(crate) async fn remove(&self, name: &PoolName) {
        let Some(pool) = self.pools.write().remove(name) else { return };
        self.states.forget(name);
        self.unmark_lost(name);
        let (opener, is_used) = (Arc::clone(&self.opener), self.is_used(&pool.entry.pool.uri));
        let close = move || {
            let uri = pool.entry.pool.uri.clone();
            // The last handle of a storage closes it.
            drop(pool);
            if !is_used {
                opener.close(uri.as_str());
            }
        };
        if timeout(limits::POOL_CLOSE, self.run_blocking(close)).await.is_err() {
            warn!(pool = %name, "storage of removed pool not closed yet");
        }
    }

    /// Notes that a pool is being removed with the messages in it. For [`limits::LEAVE_MARK`] no queue is opened there and
    /// nothing is cleaned there: either could hang, and hold what the removal needs.
    pub(crate) fn mark_lost(&self, name: &PoolName) {
        let mut all = self.lost.lock();
        all.retain(|_, lost| lost.until > Instant::now());
        let lost = all.entry(name.clone()).or_insert(LostPool { until: Instant::now(), is_answering: true });
        lost.until = Instant::now() + limits::LEAVE_MARK;
    }

    /// Takes back [`PoolTable::mark_lost`].
    pub(crate) fn unmark_lost(&self, name: &PoolName) {
        self.lost.lock().remove(name);
    }

    /// Whether a pool is being removed with the messages in it.
    pub(crate) fn is_lost(&self, name: &PoolName) -> bool {
        let mut all = self.lost.lock();
        all.retain(|_, lost| lost.until > Instant::now());
        all.contains_key(name)
    }

    /// Whether a pool that is being removed has answered each time. If not, it is not read again.
    pub(crate) fn lost_answers(&self, name: &PoolName) -> bool {
        self.lost.lock().get(name).is_none_or(|lost| lost.is_answering)
    }

    /// Notes that a pool that is being removed did not answer.
    pub(crate) fn lost_is_silent(&self, name: &PoolName) {
        if let Some(lost) = self.lost.lock().get_mut(name) {
            lost.is_answering = false;
        }
    }

    /// Closes a storage unless a pool uses it, possibly under another spelling of its URI.
    pub(crate) fn close(&self, uri: &PoolUri) {
        if !self.is_used(uri) {
            self.opener.close(uri.as_str());
        }
    }

    fn is_used(&self, uri: &PoolUri) -> bool {
        let uses = |pool: &Arc<OpenPool>| pool.store.is_ok() && pool.entry.pool.uri.is_at(uri);
        self.pools.read().values().any(uses)
    }

    /// Opens a storage, outside of the threads that serve requests.
    pub(crate) async fn open(&self, uri: &PoolUri) -> Result<Arc<dyn PoolStore>, PoolOpenError> {
        let (opener, uri) = (Arc::clone(&self.opener), uri.clone());
        self.run_blocking(move || opener.open(uri.as_str())).await.and_then(|opened| opened)
    }

    /// Runs a call of the opener outside of the threads that serve requests, if it may block.
    async fn run_blocking<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, PoolOpenError> {
        if self.opener.never_blocks() {
            return Ok(call());
        }
        let ended = tokio::task::spawn_blocking(call).await;
        ended.map_err(|error| PoolOpenError::Interrupted(error.to_string()))
    }

    /// Opens the storage of a pool, if it exists and has the stamp of the pool, and no later process has taken it. A storage
    /// that cannot be used is closed again: the next attempt may find another disk in its place.
    pub(crate) async fn open_entry(&self, entry: PoolEntry) -> OpenPool {
        let (opener, uri) = (Arc::clone(&self.opener), entry.pool.uri.clone());
        let opened = self.run_blocking(move || opener.open_registered(uri.as_str())).await;
        let store = match opened.and_then(|opened| opened) {
            Ok(store) => {
                let fault = |error: StoreError| StorageFault { is_absent: false, why: error.to_string() };
                let mut usable = store.verify(self.stamp(entry.pool.id)).await.map_err(fault);
                if usable.is_ok() {
                    usable = self.tenants.occupy(&entry, &*store).await;
                }
                if usable.is_err() {
                    self.close(&entry.pool.uri);
                }
                usable.map(|()| store)
            }
            Err(error) => {
                let is_absent = matches!(error, PoolOpenError::Absent(_));
                Err(StorageFault { is_absent, why: error.to_string() })
            }
        };
        OpenPool::new(entry, store)
    }

    /// Returns the stamp of a pool of this installation.
    pub(crate) fn stamp(&self, pool: Uuid) -> Stamp {
        Stamp { system: self.system.id, pool }
    }

    /// Stamps the storage of a new pool before the pool is recorded, and returns the pool's id. A stamp of this
    /// installation that no pool of `others` has is taken over: it is from a deleted pool, or from an addition that was
    /// interrupted between stamp and record.
    pub(crate) async fn register(
        &self,
        uri: &PoolUri,
        store: &dyn PoolStore,
        others: &[PoolEntry],
    ) -> Result<Uuid, Error> {
        let no_pool = |failure| storage_refusal(uri, failure);
        let is_free = |id: Uuid| others.iter().all(|other| other.pool.id != id);
        let id = match store.stamp().await.map_err(no_pool)? {
            Some(stamp) if stamp.system == self.system.id => {
                if let Some(other) = others.iter().find(|other| other.pool.id == stamp.pool) {
                    return Err(Error::Conflict(format!("uri: the storage is that of pool {}", other.name)));
                }
                stamp.pool
            }
            Some(_) => {
                let why = "uri: the storage belongs to another installation";
                return Err(Error::Conflict(why.to_owned()));
            }
            None => self.random.uuid(),
        };
        match store.register(self.stamp(id)).await {
            // Another replica of this installation stamped it at the same time.
            Err(StoreError::Stamped(by)) if by.system == self.system.id && is_free(by.pool) => Ok(by.pool),
            registered => registered.map(|()| id).map_err(no_pool),
        }
    }

    /// Checks that some pool accepts new messages now.
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        let pools = self.all();
        if pools.is_empty() {
            return Err(Error::NoPool);
        }
        if pools.iter().any(|pool| pool.is_writable()) {
            return Ok(());
        }
        let named = pools.iter().filter_map(|pool| pool.closed_text()).take(limits::CLOSED_POOLS_NAMED);
        let mut text = named.collect::<Vec<_>>().join("; ");
        if let Some(more) = pools.len().checked_sub(limits::CLOSED_POOLS_NAMED + 1) {
            text.push_str(&format!("; and {} more", more + 1));
        }
        Err(Error::PoolsClosed { pools: text, cause: "no pool accepts new messages".into() })
    }

    /// Checks that a start makes sense: some pool can be used, or there is none yet, or the storage of one is absent
    /// and this is the only replica. With other replicas running, taking the slots would only stop the replica that has
    /// the storage.
    pub(crate) async fn check_start(&self, catalogue: &Catalogue, me: Uuid) -> Result<(), Error> {
        let is_alone = catalogue.registry().await?.others(me).next().is_none();
        let pools = self.all();
        let may_come =
            |pool: &Arc<OpenPool>| is_alone && pool.unusable().is_some_and(|found| found.is_absent);
        if pools.iter().any(|pool| pool.store.is_ok() || may_come(pool)) {
            return Ok(());
        }
        let Some((pool, unusable)) = pools.last().and_then(|pool| Some((pool, pool.unusable()?))) else {
            return Ok(());
        };
        let (uri, why) = (pool.entry.pool.uri.without_password(), &unusable.why);
        Err(Error::unavailable(Part::Pool(pool.entry.name.clone()), format!("{uri}: {why}")))
    }

    /// Returns the text for probes of each pool that takes no new messages.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let pools = self.all();
        pools.iter().filter_map(|pool| pool.closed_text()).collect()
    }
}

impl PoolTable {
    /// Returns the open pool of a name.
    pub(crate) fn pool(&self, name: &PoolName) -> Result<Arc<OpenPool>, Error> {
        let pool = self.get(name);
        pool.ok_or_else(|| Error::unavailable(Part::Pool(name.clone()), "it is not open"))
    }
}
