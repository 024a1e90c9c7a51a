//! Records of flavors, and commits that change a flavor together with its pools.

use super::{Catalogue, PoolEntry, failed, from_json, layout, to_json};
use angarium_coordination::{Fence, Op, Refusal, TreeError};
use angarium_core::error::{Error, Part};
use angarium_core::flavor::Flavor;
use angarium_core::names::FlavorName;
use angarium_core::pool::Pool;

/// A flavor with its name and the version of its record.
#[derive(Clone, Debug)]
pub struct FlavorEntry {
    pub name: FlavorName,
    pub flavor: Flavor,
    /// Version of the record. A commit that relies on the record checks it.
    pub version: u32,
}

impl FlavorEntry {
    /// Returns a fence on the version of the record.
    pub(super) fn fence(&self) -> Fence {
        Fence { path: layout::flavor(&self.name), version: self.version }
    }
}

/// A pool as it was read, with its new value.
pub type PoolUpdate = (PoolEntry, Pool);

impl Catalogue {
    /// Returns the names of all flavors, sorted.
    pub async fn flavor_names(&self) -> Result<Vec<FlavorName>, Error> {
        let elements = self.tree.children(layout::FLAVORS).await.map_err(failed)?;
        let name = |element: &String| {
            let name = layout::unescape(element).and_then(|name| FlavorName::new(&name).ok());
            name.ok_or_else(|| Error::unavailable(Part::Coordination, format!("{element:?} is no flavor")))
        };
        let mut names = elements.iter().map(name).collect::<Result<Vec<_>, _>>()?;
        names.sort_unstable();
        Ok(names)
    }

    /// Returns a flavor, if it exists.
    pub async fn flavor(&self, name: &FlavorName) -> Result<Option<FlavorEntry>, Error> {
        let Some(node) = self.node(&layout::flavor(name)).await? else { return Ok(None) };
        Ok(Some(FlavorEntry { name: name.clone(), flavor: from_json(&node)?, version: node.version }))
    }

    /// Creates a flavor and changes pools with it, all or none. Returns false when a record has changed since it was
    /// read: then the caller reads it again.
    pub async fn flavor_create(
        &self,
        name: &FlavorName,
        flavor: &Flavor,
        pools: &[PoolUpdate],
    ) -> Result<bool, Error> {
        let op = Op::create(layout::flavor(name), to_json(flavor));
        self.commit_with_pools(op, pools).await
    }

    /// Replaces a flavor and changes pools with it, all or none. Returns false when a record has changed since it was
    /// read.
    pub async fn flavor_set(
        &self,
        entry: &FlavorEntry,
        flavor: &Flavor,
        pools: &[PoolUpdate],
    ) -> Result<bool, Error> {
        let path = layout::flavor(&entry.name);
        let op = Op::Set { path, data: to_json(flavor), version: Some(entry.version) };
        self.commit_with_pools(op, pools).await
    }

    /// Deletes a flavor and changes pools with it, all or none. Returns false when a record has changed since it was
    /// read.
    pub async fn flavor_delete(&self, entry: &FlavorEntry, pools: &[PoolUpdate]) -> Result<bool, Error> {
        self.commit_with_pools(Op::Delete { path: layout::flavor(&entry.name) }, pools).await
    }

    async fn commit_with_pools(&self, op: Op, pools: &[PoolUpdate]) -> Result<bool, Error> {
        let mut ops = vec![op];
        ops.extend(pools.iter().map(|(entry, pool)| entry.set(pool)));
        match self.tree.commit(&[], &ops).await {
            Ok(_) => Ok(true),
            Err(TreeError::Refused { why, .. }) => match why {
                Refusal::NodeExists | Refusal::NoNode | Refusal::BadVersion => Ok(false),
                Refusal::NotEmpty | Refusal::Full => {
                    Err(Error::unavailable(Part::Coordination, "a record of flavors cannot be changed"))
                }
            },
            Err(error) => Err(failed(error)),
        }
    }
}
