//! Pools and flavors, and the balance of queues between pools.

use angarium_core::error::Error;
use angarium_core::names::{FlavorName, PoolName};
use angarium_core::pool::PoolChange;

use crate::balance::drain::DrainView;
use crate::balance::survey::{BalancePlan, PlannedMove, Survey};
use crate::broker::Broker;
use crate::pools::changes::PoolView;
use crate::pools::flavors::FlavorView;
use crate::pools::health::PoolReport;

impl Broker {
    /// A flavor.
    pub async fn flavor_get(&self, name: &FlavorName) -> Result<FlavorView, Error> {
        self.0.pools.flavor_get(name).await
    }

    /// At most `limit` flavors, by name, after `marker`.
    pub async fn flavors_list(&self, marker: Option<&str>, limit: usize) -> Result<Vec<FlavorView>, Error> {
        self.0.pools.flavors_list(marker, limit).await
    }

    /// Makes a flavor of exactly these pools, whether it exists or not. Each of them must exist; one that had
    /// another flavor leaves that.
    pub async fn flavor_put(&self, name: &FlavorName, pools: Vec<PoolName>) -> Result<(), Error> {
        self.0.pools.flavor_put(name, pools).await
    }

    /// Gives a flavor that exists exactly these pools.
    pub async fn flavor_patch(&self, name: &FlavorName, pools: Vec<PoolName>) -> Result<FlavorView, Error> {
        self.0.pools.flavor_patch(name, pools).await
    }

    /// Deletes a flavor; its pools then have none. Queues that it has placed stay where they are. One that does not
    /// exist is deleted already.
    pub async fn flavor_delete(&self, name: &FlavorName) -> Result<(), Error> {
        self.0.pools.flavor_delete(name).await
    }

    /// Deletes a pool that no queue uses and closes its storage, whose data stays. One that does not exist is
    /// deleted already.
    pub async fn pool_delete(&self, name: &PoolName) -> Result<(), Error> {
        self.0.pools.pool_delete(name).await
    }

    /// A pool and what it states of itself. Takes at most [`limits::HEALTH_DEADLINE`]; writes nothing.
    pub async fn pool_report(&self, name: &PoolName) -> Result<PoolReport, Error> {
        self.0.pools.pool_report(name).await
    }

    /// A pool. The answer is what the catalogue states, no matter which caller changed it.
    pub async fn pool_get(&self, name: &PoolName) -> Result<PoolView, Error> {
        self.0.pools.pool_get(name).await
    }

    /// At most `limit` pools, by name, after `marker`.
    pub async fn pools_list(&self, marker: Option<&str>, limit: usize) -> Result<Vec<PoolView>, Error> {
        self.0.pools.pools_list(marker, limit).await
    }

    /// Adds a pool and opens its storage, which is then served without a restart; or makes one that exists what
    /// `wanted` states. A storage that another pool has is a conflict.
    pub async fn pool_put(&self, name: &PoolName, wanted: PoolChange) -> Result<(), Error> {
        self.0.pools.pool_put(name, wanted).await
    }

    /// Changes a pool. The URI of one that is used may change only if the same storage is found there.
    pub async fn pool_patch(&self, name: &PoolName, change: PoolChange) -> Result<PoolView, Error> {
        self.0.pools.pool_patch(name, change).await
    }

    /// Begins to move all queues of a pool away. Refused while no other pool takes new queues of its flavor: they would have
    /// nowhere to go.
    pub async fn pool_drain(&self, name: &PoolName, rate: Option<u32>) -> Result<DrainView, Error> {
        self.0.balance.pool_drain(name, rate).await
    }

    /// How far it is. One that is not drained is not found.
    pub async fn pool_drain_get(&self, name: &PoolName) -> Result<DrainView, Error> {
        self.0.balance.pool_drain_get(name).await
    }

    /// Ends it: the pool takes new queues again by its weight. What has gone stays where it is, and what is on its way
    /// continues.
    pub async fn pool_drain_stop(&self, name: &PoolName) -> Result<(), Error> {
        self.0.balance.pool_drain_stop(name).await
    }

    /// Where the queues of all projects lie.
    pub async fn survey(&self) -> Result<Survey, Error> {
        self.0.balance.survey().await
    }

    /// At most `most` moves that would bring each pool to its share by weight of what is held and of what is written. A pool of
    /// weight 0, or one that is drained, has no share and neither gives nor takes; queues stay among the pools of their flavor.
    pub async fn balance_plan(&self, most: usize) -> Result<BalancePlan, Error> {
        self.0.balance.balance_plan(most).await
    }

    /// Begins each of these moves at the replica that serves the queue. What became of each.
    pub async fn balance_begin(
        &self,
        moves: Vec<PlannedMove>,
        rate: Option<u32>,
    ) -> Vec<(PlannedMove, Result<(), Error>)> {
        self.0.balance.balance_begin(moves, rate).await
    }
}
