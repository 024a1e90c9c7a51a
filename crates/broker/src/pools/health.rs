//! Health of the pools: for administrators, and for background tasks that keep it up to date.

use std::sync::Arc;

use tokio::time::timeout;

use angarium_catalogue::PoolQueues;
use angarium_core::error::Error;
use angarium_core::hold::Hold;
use angarium_core::names::PoolName;
use angarium_core::pool::Pool;
use angarium_storage::{Health, Usage};

use crate::limits;
use crate::pools::Pools;
use crate::pools::changes::PoolView;
use crate::stores::table::OpenPool;

/// Health of a pool.
#[derive(Clone, Debug)]
pub struct PoolHealth {
    /// Name of the pool.
    pub name: PoolName,
    /// Its record.
    pub pool: Pool,
    /// Whether the pool can accept a post now.
    pub writable: bool,
    /// Its report of itself, or the reason why there is none.
    pub health: Result<Health, String>,
}

/// A pool with its health and its usage.
#[derive(Clone, Debug)]
pub struct PoolReport {
    /// Its health.
    pub health: PoolHealth,
    /// The usage of all its queues together, if the pool answered in time.
    pub usage: Option<Usage>,
    /// The number of queues in it, with messages or without, if they could be counted in time.
    pub queues: Option<PoolQueues>,
    /// Its hold in force, as this replica knows it.
    pub hold: Option<Hold>,
}

impl Pools {
    /// Returns a pool and its report of itself. Takes at most [`limits::HEALTH_DEADLINE`] and writes nothing.
    pub async fn pool_report(&self, name: &PoolName) -> Result<PoolReport, Error> {
        let PoolView { name, pool, hold } = self.pool_get(name).await?;
        let open = self.pool_of_record(&name).await?;
        let store = open.store().ok();
        let usage = async {
            let store = store?;
            timeout(limits::HEALTH_DEADLINE, store.usage()).await.ok()?.ok()
        };
        let (health, usage, queues) =
            tokio::join!(ask(Arc::clone(&open)), usage, self.count_queues_in(&name));
        Ok(PoolReport { health: PoolHealth { pool, ..health }, usage, queues, hold })
    }

    pub(crate) async fn ask_pools(&self) -> Vec<PoolHealth> {
        let ask = |pool| self.0.replica.tasks.spawn(async move { ask(pool).await });
        let asked: Vec<_> = self.0.stores.all().into_iter().map(ask).collect();
        let mut answers = Vec::with_capacity(asked.len());
        for answer in asked {
            // The task fails only by a panic in a driver. Then its pool is left out.
            answers.extend(answer.await);
        }
        answers
    }

    /// Reads the records of the pools again after each change, by this replica or another.
    pub(crate) async fn follow_pools(&self) {
        loop {
            tokio::select! {
                biased;
                () = self.0.replica.stop.cancelled() => return,
                () = self.0.slots.pools_changed() => {}
            }
            while let Err(error) = self.reload_pools().await {
                self.0.replica.task_failed("read pool records", "catalogue", &error);
                if !self.0.replica.sleep_tick(limits::POOL_TICK).await {
                    return;
                }
            }
        }
    }

    /// Checks at an interval how full the pools are, and opens pools that could not be opened.
    pub(crate) async fn watch_pools(&self) {
        loop {
            for answer in self.ask_pools().await {
                if let Some(pool) = self.0.stores.get(&answer.name) {
                    let reason = answer.health.as_ref().err().map(String::as_str);
                    self.0.stores.states.note(&answer.name, reason);
                    pool.note_health(answer.health.ok());
                }
            }
            self.0.replica.failures.settle();
            if !self.0.replica.sleep_tick(limits::POOL_TICK).await {
                return;
            }
            self.reopen_pools().await;
            self.look_up_tenants().await;
        }
    }
}

/// Returns the cause of an error. Its text leaves the cause out because it is written for clients.
pub(crate) fn reason(error: &Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

pub(crate) async fn ask(pool: Arc<OpenPool>) -> PoolHealth {
    let store = pool.store();
    let writable = pool.is_writable();
    let health = match store {
        Ok(store) => match timeout(limits::HEALTH_DEADLINE, store.health()).await {
            Ok(answer) => answer.map_err(|error| error.to_string()),
            Err(_) => Err(format!("no answer within {} s", limits::HEALTH_DEADLINE.as_secs())),
        },
        Err(error) => Err(reason(&error)),
    };
    PoolHealth { name: pool.entry.name.clone(), pool: pool.entry.pool.clone(), writable, health }
}
