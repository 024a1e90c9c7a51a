//! Records of slots: who may write to a slot's part of the tree and of the pools.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use uuid::Uuid;

use super::{Catalogue, failed, layout, to_json};
use crate::coordination::{Committed, Fence, Op, TreeError};
use crate::domain::ids::Slot;
use crate::error::{Error, Part};

/// A slot that this process took, as it must be named in every commit for it.
#[derive(Clone, Debug)]
pub struct OwnedSlot {
    /// The slot.
    pub slot: Slot,
    /// The version of its node: the fence of its commits.
    pub version: u32,
    /// The transaction that took it: its epoch in the pools.
    pub transaction: u64,
    /// Whether a commit for it was refused, because somebody else took it.
    is_lost: Arc<AtomicBool>,
}

impl OwnedSlot {
    /// A slot that was taken by `transaction`, which gave its node `version`.
    pub fn new(slot: Slot, version: u32, transaction: u64) -> Self {
        Self { slot, version, transaction, is_lost: Arc::default() }
    }

    /// Whether a commit for it was refused because somebody else has taken it since. Then all will be.
    pub fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    /// A fence that holds while nobody else took the slot.
    fn fence(&self) -> Fence {
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
            Ok(OwnedSlot::new(*slot, stat.version, stat.modified))
        });
        owned.collect()
    }

    /// Commits for the owner of a slot: refused, with everybody told who has the slot in hand, once somebody else
    /// took it. The fence of the slot is number 0, those given follow.
    pub(super) async fn commit_as_owner(
        &self,
        slot: &OwnedSlot,
        fences: &[Fence],
        ops: &[Op],
    ) -> Result<Committed, TreeError> {
        let mut all = vec![slot.fence()];
        all.extend_from_slice(fences);
        let outcome = self.tree.commit(&all, ops).await;
        if let Err(TreeError::Fenced(0)) = outcome {
            slot.is_lost.store(true, Ordering::Relaxed);
        }
        outcome
    }
}
