//! Pools and flavors, and the balance of queues between pools.

use angarium_core::error::Error;
use angarium_core::names::{FlavorName, PoolName};
use angarium_core::pool::PoolChange;

use crate::balance::automatic::AutomaticBalance;
use crate::balance::drain::DrainView;
use crate::balance::plan::{BalancePlan, PlannedMove};
use crate::balance::survey::Survey;
use crate::broker::Broker;
use crate::pools::changes::PoolView;
use crate::pools::deletion::Leftovers;
use crate::pools::flavors::FlavorView;
use crate::pools::health::PoolReport;

impl Broker {
    /// Returns a flavor.
    pub async fn flavor_get(&self, name: &FlavorName) -> Result<FlavorView, Error> {
        self.0.pools.flavor_get(name).await
    }

    /// Returns at most `limit` flavors, by name, after `marker`.
    pub async fn flavors_list(&self, marker: Option<&str>, limit: usize) -> Result<Vec<FlavorView>, Error> {
        self.0.pools.flavors_list(marker, limit).await
    }

    /// Creates a flavor of exactly these pools, or changes it to them. Each of them must exist. A pool that had another
    /// flavor leaves that one.
    pub async fn flavor_put(&self, name: &FlavorName, pools: Vec<PoolName>) -> Result<(), Error> {
        self.0.pools.flavor_put(name, pools).await
    }

    /// Gives an existing flavor exactly these pools.
    pub async fn flavor_patch(&self, name: &FlavorName, pools: Vec<PoolName>) -> Result<FlavorView, Error> {
        self.0.pools.flavor_patch(name, pools).await
    }

    /// Deletes a flavor. Its pools then have none. Queues that it has placed stay where they are. It is no error when
    /// the flavor does not exist.
    pub async fn flavor_delete(&self, name: &FlavorName) -> Result<(), Error> {
        self.0.pools.flavor_delete(name).await
    }

    /// Deletes a pool that no queue uses and closes its storage. The data stays in the storage. It is no error when the
    /// pool does not exist.
    pub async fn pool_delete(&self, name: &PoolName) -> Result<(), Error> {
        self.0.pools.pool_delete(name, Leftovers::Removed).await
    }

    /// Deletes a pool with the messages in it, which need not be reachable. Its queues keep their metadata and continue
    /// empty in pools that placement chooses; those under migration keep the messages in their other pool. It is no error
    /// when the pool does not exist.
    pub async fn pool_delete_forced(&self, name: &PoolName) -> Result<(), Error> {
        self.0.balance.pool_delete_forced(name).await
    }

    /// Returns a pool and its report of itself. Takes at most [`limits::HEALTH_DEADLINE`] and writes nothing.
    pub async fn pool_report(&self, name: &PoolName) -> Result<PoolReport, Error> {
        self.0.pools.pool_report(name).await
    }

    /// Returns a pool as the catalogue has it, with the changes of every replica.
    pub async fn pool_get(&self, name: &PoolName) -> Result<PoolView, Error> {
        self.0.pools.pool_get(name).await
    }

    /// Returns at most `limit` pools, by name, after `marker`.
    pub async fn pools_list(&self, marker: Option<&str>, limit: usize) -> Result<Vec<PoolView>, Error> {
        self.0.pools.pools_list(marker, limit).await
    }

    /// Adds a pool and opens its storage, which is then served without a restart, or changes an existing pool to
    /// `wanted`. A storage that another pool has is a conflict.
    pub async fn pool_put(&self, name: &PoolName, wanted: PoolChange) -> Result<(), Error> {
        self.0.pools.pool_put(name, wanted).await
    }

    /// Changes a pool. The URI of a used pool may change only if the new URI leads to the same storage.
    pub async fn pool_patch(&self, name: &PoolName, change: PoolChange) -> Result<PoolView, Error> {
        self.0.pools.pool_patch(name, change).await
    }

    /// Begins to migrate all queues of a pool to others. Refused while no other pool takes new queues of its flavor.
    pub async fn pool_drain(&self, name: &PoolName, rate: Option<u32>) -> Result<DrainView, Error> {
        self.0.balance.pool_drain(name, rate).await
    }

    /// Returns the progress of a drain. A pool that is not drained is not found.
    pub async fn pool_drain_get(&self, name: &PoolName) -> Result<DrainView, Error> {
        self.0.balance.pool_drain_get(name).await
    }

    /// Ends a drain: the pool takes new queues again by its weight. Migrated queues stay in their new pool, and
    /// migrations in progress continue.
    pub async fn pool_drain_stop(&self, name: &PoolName) -> Result<(), Error> {
        self.0.balance.pool_drain_stop(name).await
    }

    /// Returns the placement of the queues of all projects.
    pub async fn survey(&self) -> Result<Survey, Error> {
        self.0.balance.survey().await
    }

    /// Balances the pools from now on, on the replica that owns a fixed slot, until the service stops.
    pub fn keep_balanced(&self, terms: AutomaticBalance) {
        self.0.replica.start_background_task("balance", &self.0.balance, move |balance| async move {
            balance.keep_balanced(terms).await;
        });
    }

    /// Plans at most `most` moves that would bring each pool to its share, by weight, of contents and of write load. A
    /// pool that is drained or has weight 0 has no share, and neither gives nor takes queues. Queues stay among the
    /// pools of their flavor.
    pub async fn balance_plan(&self, most: usize) -> Result<BalancePlan, Error> {
        self.0.balance.balance_plan(most).await
    }

    /// Begins each of these moves at the replica that serves the queue. Returns the outcome of each.
    pub async fn balance_begin(
        &self,
        moves: Vec<PlannedMove>,
        rate: Option<u32>,
    ) -> Vec<(PlannedMove, Result<(), Error>)> {
        self.0.balance.balance_begin(moves, rate).await
    }
}
