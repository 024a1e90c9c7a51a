//! Flavors: create, look up, change, delete. A flavor's pools are those whose records name it.

use angarium_catalogue::{FlavorEntry, PoolEntry, PoolUpdate};
use angarium_core::durability::Durability;
use angarium_core::error::{Error, InvalidPart, Resource};
use angarium_core::flavor::{Capability, Flavor};
use angarium_core::limits;
use angarium_core::names::{FlavorName, PoolName};
use angarium_core::pool::Pool;

use crate::pools::Pools;
use crate::pools::changes::changed_each_time;
use crate::stores::table::CHANGE_TRIES;

/// A flavor as its users see it.
#[derive(Clone, Debug)]
pub struct FlavorView {
    /// Name of the flavor.
    pub name: FlavorName,
    /// Capabilities of all its pools that are known here.
    pub capabilities: Vec<Capability>,
    /// Its pools, by name.
    pub pools: Vec<PoolName>,
}

impl Pools {
    /// Returns a flavor with the pools among `pools` that belong to it. A pool that cannot be used now does not count
    /// as durable.
    fn flavor_view(&self, entry: FlavorEntry, pools: &[PoolEntry]) -> FlavorView {
        let members = pools.iter().filter(|pool| pool.pool.flavor.as_ref() == Some(&entry.name));
        let pools: Vec<PoolName> = members.map(|pool| pool.name.clone()).collect();
        let reach = |name| self.0.stores.pool(name).and_then(|pool| pool.store()).map(|store| store.reach());
        let class = pools.iter().map(|name| reach(name).unwrap_or(Durability::Relaxed)).min();
        FlavorView { name: entry.name, capabilities: Capability::of(class.unwrap_or_default()), pools }
    }

    /// Returns a flavor.
    pub async fn flavor_get(&self, name: &FlavorName) -> Result<FlavorView, Error> {
        self.0.replica.catalogue.catch_up().await?;
        let entry = self.0.replica.catalogue.flavor(name).await?.ok_or_else(|| no_flavor(name))?;
        Ok(self.flavor_view(entry, &self.0.replica.catalogue.pools().await?))
    }

    /// Returns at most `limit` flavors, by name, after `marker`.
    pub async fn flavors_list(&self, marker: Option<&str>, limit: usize) -> Result<Vec<FlavorView>, Error> {
        self.0.replica.catalogue.catch_up().await?;
        let names = self.0.replica.catalogue.flavor_names().await?;
        let pools = self.0.replica.catalogue.pools().await?;
        let after = names.into_iter().filter(|name| marker.is_none_or(|marker| name.as_str() > marker));
        let mut flavors = Vec::new();
        for name in after.take(limit) {
            let entry = self.0.replica.catalogue.flavor(&name).await?;
            flavors.extend(entry.map(|entry| self.flavor_view(entry, &pools)));
        }
        Ok(flavors)
    }

    /// Creates a flavor of exactly these pools, or changes it to them. Each of them must exist. A pool that had another
    /// flavor leaves that one.
    pub async fn flavor_put(&self, name: &FlavorName, pools: Vec<PoolName>) -> Result<(), Error> {
        let (registry, name) = (self.clone(), name.clone());
        let put = async move {
            let _turn = registry.pool_lock().await?;
            for _ in 0..CHANGE_TRIES {
                registry.0.replica.catalogue.catch_up().await?;
                let entry = registry.0.replica.catalogue.flavor(&name).await?;
                if registry.set_flavor(&name, entry, &pools).await? {
                    return registry.read_pools().await.map_err(Error::into_unknown);
                }
            }
            Err(changed_each_time())
        };
        self.0.replica.carry_out(put).await
    }

    /// Gives an existing flavor exactly these pools.
    pub async fn flavor_patch(&self, name: &FlavorName, pools: Vec<PoolName>) -> Result<FlavorView, Error> {
        let (registry, name) = (self.clone(), name.clone());
        let patch = async move {
            let _turn = registry.pool_lock().await?;
            for _ in 0..CHANGE_TRIES {
                registry.0.replica.catalogue.catch_up().await?;
                let entry =
                    registry.0.replica.catalogue.flavor(&name).await?.ok_or_else(|| no_flavor(&name))?;
                if registry.set_flavor(&name, Some(entry), &pools).await? {
                    registry.read_pools().await.map_err(Error::into_unknown)?;
                    return registry.flavor_get(&name).await.map_err(Error::after_change);
                }
            }
            Err(changed_each_time())
        };
        self.0.replica.carry_out(patch).await
    }

    /// Deletes a flavor. Its pools then have none. Queues that it has placed stay where they are. It is no error when
    /// the flavor does not exist.
    pub async fn flavor_delete(&self, name: &FlavorName) -> Result<(), Error> {
        let (registry, name) = (self.clone(), name.clone());
        let delete = async move {
            let _turn = registry.pool_lock().await?;
            for _ in 0..CHANGE_TRIES {
                registry.0.replica.catalogue.catch_up().await?;
                let Some(entry) = registry.0.replica.catalogue.flavor(&name).await? else { return Ok(()) };
                let updates = memberships(&name, &[], registry.0.replica.catalogue.pools().await?)?;
                if registry.0.replica.catalogue.flavor_delete(&entry, &updates).await? {
                    return registry.read_pools().await.map_err(Error::into_unknown);
                }
            }
            Err(changed_each_time())
        };
        self.0.replica.carry_out(delete).await
    }

    /// Returns false when a record changed meanwhile.
    async fn set_flavor(
        &self,
        name: &FlavorName,
        entry: Option<FlavorEntry>,
        pools: &[PoolName],
    ) -> Result<bool, Error> {
        let updates = memberships(name, pools, self.0.replica.catalogue.pools().await?)?;
        let flavor = Flavor::default();
        match entry {
            Some(entry) => self.0.replica.catalogue.flavor_set(&entry, &flavor, &updates).await,
            None => self.0.replica.catalogue.flavor_create(name, &flavor, &updates).await,
        }
    }
}

/// Returns the changes after which exactly `members` are the pools of a flavor.
fn memberships(
    flavor: &FlavorName,
    members: &[PoolName],
    all: Vec<PoolEntry>,
) -> Result<Vec<PoolUpdate>, Error> {
    if let Some(missing) = members.iter().find(|name| all.iter().all(|pool| pool.name != **name)) {
        return Err(Error::invalid(InvalidPart::Body, "pool_list", format!("pool {missing} does not exist")));
    }
    let mut updates = Vec::new();
    for entry in all {
        let (is_member, shall_be) =
            (entry.pool.flavor.as_ref() == Some(flavor), members.contains(&entry.name));
        if is_member != shall_be {
            let pool = Pool { flavor: shall_be.then(|| flavor.clone()), ..entry.pool.clone() };
            updates.push((entry, pool));
        }
    }
    if updates.len() >= limits::TREE_BATCH_OPS {
        return Err(Error::invalid(
            InvalidPart::Limit,
            "pool_list",
            "too many pools would change their flavor at once",
        ));
    }
    Ok(updates)
}

pub(crate) fn no_flavor(name: &FlavorName) -> Error {
    Error::NotFound { resource: Resource::Flavor, name: name.to_string() }
}
