//! Draining a pool. The pool takes no new queue, and each replica migrates the queues of its slots to pools that
//! placement chooses, a few at a time. The pool's record holds the drain, so it continues after a restart and with the
//! next owner of a slot.

use std::iter;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::Instant;
use tracing::debug;

use angarium_catalogue::Schema;
use angarium_core::error::{Error, Resource};
use angarium_core::ids::Slot;
use angarium_core::maps::{HashMap, HashSet};
use angarium_core::names::{PoolName, QueueRef};
use angarium_core::pool::{DrainTerms, PoolChange, PoolState};
use angarium_core::queue::Metadata;
use angarium_storage::Epoch;

use crate::balance::Balance;
use crate::balance::survey::{Survey, SurveyedQueue};
use crate::limits;
use crate::migration::begin::Destination;
use crate::pools::changes::no_pool;
use crate::slot::migration::Migration;
use crate::stores::table::OpenPool;

/// Progress of the drain of a pool.
#[derive(Clone, Copy, Debug)]
pub struct DrainView {
    /// The terms of the drain.
    pub terms: DrainTerms,
    /// Queues in the pool that wait to be migrated. The queues of subscriptions count with their sources.
    pub waiting: u64,
    /// Queues that are being migrated out of the pool, counted likewise.
    pub moving: u64,
    /// Whether every queue was read.
    pub is_whole: bool,
}

/// State of the drain of one pool on this replica.
#[derive(Default)]
struct DrainRun {
    /// Queues in the pool, as they were last read.
    waiting: Vec<QueueRef>,
    /// Queues whose migrations this replica has begun and not seen end.
    moving: HashSet<QueueRef>,
    /// Slots whose queues were read, with their epoch at that time. A drained pool takes no new queue, so reading them
    /// once is enough.
    looked: HashMap<Slot, Epoch>,
    /// Queues that could not be migrated, and when they are tried again.
    refused: Vec<QueueRef>,
    retry_at: Option<Instant>,
}

impl DrainRun {
    /// Whether one more migration may begin. The `held` migrations, which only wait for claims to end, do not count for
    /// [`limits::DRAIN_AT_ONCE`].
    fn has_place(&self, held: usize) -> bool {
        self.moving.len() - held < limits::DRAIN_AT_ONCE && held < limits::DRAIN_HELD
    }

    /// Tries a queue again after a pause.
    fn put_off(&mut self, at: QueueRef) {
        self.refused.push(at);
        self.retry_at.get_or_insert(Instant::now() + limits::DRAIN_LOOK);
    }
}

impl Balance {
    /// Begins to migrate all queues of a pool to others. Refused while no other pool takes new queues of its flavor.
    pub async fn pool_drain(&self, name: &PoolName, rate: Option<u32>) -> Result<DrainView, Error> {
        self.0.pools.reload_pools().await?;
        let pool = self.0.stores.get(name).ok_or_else(|| no_pool(name))?;
        let flavor = pool.entry.pool.flavor.as_ref();
        let mut others = self.0.stores.all().into_iter().filter(|other| other.entry.name != *name);
        if !others.any(|other| other.entry.pool.takes(flavor)) {
            let why = format!("no other pool takes queues of the flavor of pool {name}");
            return Err(Error::Conflict(why));
        }
        self.0.replica.catalogue.schema_reach(Schema::MIGRATIONS).await?;
        let (state, drain) = (Some(PoolState::Draining), Some(DrainTerms { rate }));
        self.0.pools.pool_patch(name, PoolChange { state, drain, ..PoolChange::default() }).await?;
        // The drain has begun, even if reading its progress fails.
        self.pool_drain_get(name).await.map_err(Error::into_unknown)
    }

    /// Returns the progress of a drain. A pool that is not drained is not found.
    pub async fn pool_drain_get(&self, name: &PoolName) -> Result<DrainView, Error> {
        let terms = self.0.pools.pool_get(name).await?.pool.drain.ok_or_else(|| not_drained(name))?;
        let Survey { queues, is_whole } = self.survey().await?;
        // The queue of a subscription leaves with its source, also while that is being deleted.
        let own = |queue: &SurveyedQueue| queue.at.source().unwrap_or_else(|| queue.at.clone());
        let count = |is_counted: &dyn Fn(&&SurveyedQueue) -> bool| {
            let counted: HashSet<QueueRef> = queues.iter().filter(is_counted).map(own).collect();
            counted.len() as u64
        };
        let waiting = count(&|queue| queue.placement.pool == *name);
        let moving = count(&|queue| queue.placement.older.as_ref() == Some(name));
        Ok(DrainView { terms, waiting, moving, is_whole })
    }

    /// Ends a drain: the pool takes new queues again by its weight. Migrated queues stay in their new pool, and
    /// migrations in progress continue.
    pub async fn pool_drain_stop(&self, name: &PoolName) -> Result<(), Error> {
        self.0.pools.pool_get(name).await?.pool.drain.ok_or_else(|| not_drained(name))?;
        let change = PoolChange { state: Some(PoolState::Active), ..PoolChange::default() };
        self.0.pools.pool_patch(name, change).await.map(|_| ())
    }

    /// Migrates queues out of drained pools until the service stops.
    pub(crate) async fn drain_pools(&self) {
        let mut courses: HashMap<PoolName, DrainRun> = HashMap::default();
        while self.0.replica.sleep_tick(limits::DRAIN_TICK).await {
            let drained =
                |pool: &Arc<OpenPool>| pool.entry.pool.drain.map(|terms| (pool.entry.name.clone(), terms));
            let drained: HashMap<PoolName, DrainTerms> =
                self.0.stores.all().iter().filter_map(drained).collect();
            courses.retain(|name, _| drained.contains_key(name));
            for (name, terms) in drained {
                let course = courses.entry(name.clone()).or_default();
                if let Err(error) = self.drain_on(&name, terms, course).await {
                    self.0.replica.task_failed("drain pool", format_args!("pool {name}"), &error);
                }
            }
        }
    }

    async fn drain_on(&self, name: &PoolName, terms: DrainTerms, course: &mut DrainRun) -> Result<(), Error> {
        // A migration that has ended may have been canceled, or be another replica's now: the record of the queue shows
        // which.
        let ended = course.moving.extract_if(|at| self.local_migration(at).is_none());
        course.waiting.extend(ended);
        if course.retry_at.is_some_and(|at| at <= Instant::now()) {
            course.retry_at = None;
            course.waiting.append(&mut course.refused);
        }
        self.find_pool_queues(name, course).await?;
        let is_held = |at: &&QueueRef| {
            self.local_migration(at).is_some_and(|migration| migration.is_held.load(Ordering::Relaxed))
        };
        let held = course.moving.iter().filter(is_held).count();
        let (mut refused, mut last) = (0, None);
        while course.has_place(held) && refused < limits::DRAIN_AT_ONCE {
            let Some(at) = course.waiting.pop() else { break };
            match self.drain_queue(&at, name, terms).await {
                Ok(true) => {
                    course.moving.insert(at);
                }
                // The queue is served by another replica, was deleted, or has left the pool.
                Ok(false) | Err(Error::Moved(_) | Error::NotFound { .. }) => {}
                Err(Error::Conflict(_)) => course.put_off(at),
                // The other queues do not wait for this one.
                Err(error) => {
                    debug!(queue = %at.name, %error, "queue not sent out of drained pool");
                    (refused, last) = (refused + 1, Some(error));
                    course.put_off(at);
                }
            }
        }
        last.map_or(Ok(()), Err)
    }

    /// Finds the queues of a pool in the slots that were recovered since the last call. Reads each record once.
    async fn find_pool_queues(&self, name: &PoolName, course: &mut DrainRun) -> Result<(), Error> {
        let owned: HashMap<Slot, Epoch> =
            self.0.slots.owned().map(|slot| (slot.owned.slot, slot.epoch)).collect();
        course.looked.retain(|slot, epoch| owned.get(slot) == Some(epoch));
        for (slot, epoch) in owned {
            if course.looked.contains_key(&slot) || course.waiting.len() >= limits::SURVEY_QUEUES {
                continue;
            }
            // One survey for each slot, because the size of a survey is bounded.
            let Survey { queues, is_whole } = self.survey_of(iter::once(slot)).await?;
            let leaves =
                |queue: &SurveyedQueue| queue.placement.contains(name) && queue.at.source().is_none();
            for queue in queues.into_iter().filter(leaves) {
                if queue.placement.older.is_none() {
                    course.waiting.push(queue.at);
                    continue;
                }
                // Migrations that an earlier owner began continue by themselves once their queues are open.
                match self.open_local(&queue.at).await {
                    Ok(true) => drop(course.moving.insert(queue.at)),
                    Ok(false) | Err(Error::Moved(_)) => {}
                    Err(error) => {
                        debug!(queue = %queue.at.name, %error, "queue under migration not opened");
                        course.put_off(queue.at);
                    }
                }
            }
            if is_whole {
                course.looked.insert(slot, epoch);
            }
        }
        Ok(())
    }

    /// Begins the migration of a queue to a pool that placement chooses. Returns false when the queue does not exist or
    /// is not in the drained pool.
    async fn drain_queue(&self, at: &QueueRef, from: &PoolName, terms: DrainTerms) -> Result<bool, Error> {
        let record = self.0.replica.catalogue.queue_records(std::slice::from_ref(at)).await?.pop().flatten();
        let Some(record) = record else { return Ok(false) };
        let placement = record.placement()?;
        if !placement.contains(from) {
            return Ok(false);
        }
        if placement.older.is_some() {
            return self.open_local(at).await;
        }
        let metadata = Metadata::stored(record.metadata)?;
        let attributes = metadata.attributes();
        let pool = self.0.pools.place(at, attributes.flavor.as_ref(), attributes)?.entry.name.clone();
        if self.0.pools.is_held(&pool) && !self.0.pools.is_held(from) {
            return Err(Error::Busy("each pool that takes the queue is held"));
        }
        debug!(queue = %at.name, %pool, "queue sent out of drained pool");
        self.0.migrations.queue_migrate(at, Destination { pool, rate: terms.rate }).await.map(|_| true)
    }

    /// Opens a queue that is served here. Returns false when there is no such queue.
    async fn open_local(&self, at: &QueueRef) -> Result<bool, Error> {
        let queue = self.0.slots.queue(at).await?;
        self.0.open_queues.open_if_there(&queue).await.map(|queue| queue.is_some())
    }

    /// Returns the migration of a queue that is served here; none when there is none.
    fn local_migration(&self, at: &QueueRef) -> Option<Arc<Migration>> {
        self.0.slots.get(at.slot())?.migration(at)
    }
}

fn not_drained(name: &PoolName) -> Error {
    Error::NotFound { resource: Resource::PoolDrain, name: name.to_string() }
}
