//! Records of slots: who may write to a slot's part of the tree and of the pools.

use serde::Serialize;
use uuid::Uuid;

use super::{Catalogue, failed, layout, to_json};
use crate::coordination::{Fence, Op, TreeError};
use crate::domain::ids::Slot;
use crate::error::{Error, Part};

/// A slot that this process took, as it must be named in every commit for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnedSlot {
    /// The slot.
    pub slot: Slot,
    /// The version of its node: the fence of its commits.
    pub version: u32,
    /// The transaction that took it: its epoch in the pools.
    pub transaction: u64,
}

impl OwnedSlot {
    /// A fence that holds while nobody else took the slot.
    pub(super) fn fence(&self) -> Fence {
        Fence { path: layout::slot(self.slot), version: self.version }
    }
}

#[derive(Serialize)]
struct SlotRecord {
    nonce: Uuid,
}

impl Catalogue {
    /// Takes slots, at most 100 at once: from then on commits of their owners before are refused.
    pub async fn slots_take(&self, slots: &[Slot], nonce: Uuid) -> Result<Vec<OwnedSlot>, Error> {
        let mut ops = Vec::with_capacity(slots.len());
        for slot in slots {
            let path = layout::slot(*slot);
            let Some(node) = self.node(&path).await? else {
                return Err(Error::unavailable(Part::Coordination, format!("{path} is missing")));
            };
            let data = to_json(&SlotRecord { nonce });
            ops.push(Op::Set { path, data, version: Some(node.version) });
        }
        let committed = self.tree.commit(&[], &ops).await.map_err(failed)?;
        let owned = slots.iter().zip(committed).map(|(slot, stat)| {
            let stat = stat.ok_or_else(|| failed(TreeError::Unknown("a set node has no version".into())))?;
            Ok(OwnedSlot { slot: *slot, version: stat.version, transaction: stat.modified })
        });
        owned.collect()
    }
}
