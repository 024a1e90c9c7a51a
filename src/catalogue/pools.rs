//! Records of pools.

use super::{Catalogue, failed, from_json, layout, to_json};
use crate::coordination::{Fence, Op, Refusal, TreeError};
use crate::domain::names::PoolName;
use crate::domain::pool::Pool;
use crate::error::{Error, Part};

/// A pool with its name and the version of its record.
#[derive(Clone, Debug)]
pub struct PoolEntry {
    /// Its name.
    pub name: PoolName,
    /// Its record.
    pub pool: Pool,
    /// The version a commit that relies on the record must check.
    pub version: u32,
}

impl PoolEntry {
    /// A fence that holds while the record is as it was read.
    pub(super) fn fence(&self) -> Fence {
        Fence { path: layout::pool(&self.name), version: self.version }
    }
}

impl Catalogue {
    /// All pools, by name.
    pub async fn pools(&self) -> Result<Vec<PoolEntry>, Error> {
        let mut pools = Vec::new();
        for element in self.tree.children(layout::POOLS).await.map_err(failed)? {
            let name = layout::unescape(&element).and_then(|name| PoolName::new(&name).ok());
            let Some(name) = name else {
                return Err(Error::unavailable(Part::Coordination, format!("{element:?} is no pool")));
            };
            // One that went between the two reads is not there.
            if let Some(node) = self.node(&layout::pool(&name)).await? {
                pools.push(PoolEntry { name, pool: from_json(&node)?, version: node.version });
            }
        }
        Ok(pools)
    }

    /// Records a pool. One that is there already is left as it is.
    pub async fn pool_create(&self, name: &PoolName, pool: &Pool) -> Result<(), Error> {
        let op = Op::create(layout::pool(name), to_json(pool));
        match self.tree.commit(&[], &[op]).await {
            Ok(_) | Err(TreeError::Refused { why: Refusal::NodeExists, .. }) => Ok(()),
            Err(error) => Err(failed(error)),
        }
    }
}
