//! Records of slots: who may write to a slot's part of the tree and of the pools.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use uuid::Uuid;

use super::{Catalogue, failed, layout, to_json};
use crate::coordination::{Committed, Fence, Mode, Op, TreeError};
use crate::domain::ids::Slot;
use crate::error::{Error, Part};

/// How often to look again when owners change at the same time: a session that ends takes its nodes along.
const TRIES: usize = 4;

/// Who takes slots.
#[derive(Clone, Debug)]
pub struct Owner {
    /// The replica.
    pub instance: Uuid,
    /// Where others reach it.
    pub address: String,
    /// Tells what this process wrote from what others of the same replica did.
    pub nonce: Uuid,
}

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

    fn lose(&self) {
        self.is_lost.store(true, Ordering::Relaxed);
    }

    /// A fence that holds while nobody else took the slot.
    fn fence(&self) -> Fence {
        Fence { path: layout::slot(self.slot), version: self.version }
    }
}

#[derive(Serialize)]
struct SlotRecord {
    instance: Uuid,
    nonce: Uuid,
}

#[derive(Serialize)]
struct OwnerRecord<'a> {
    instance: Uuid,
    address: &'a str,
}

impl Catalogue {
    /// Takes slots in one commit, at most [`crate::domain::limits::SLOTS_TAKEN`]: from then on commits of their
    /// owners before are refused, and their owner nodes are gone.
    pub async fn slots_take(&self, slots: &[Slot], me: &Owner) -> Result<Vec<OwnedSlot>, Error> {
        for _ in 0..TRIES {
            let ops = self.taking(slots, me).await?;
            let committed = match self.tree.commit(&[], &ops).await {
                Ok(committed) => committed,
                Err(TreeError::Refused { .. }) => continue,
                Err(error) => return Err(failed(error)),
            };
            let set = ops.iter().zip(committed).filter(|(op, _)| matches!(op, Op::Set { .. }));
            let owned = slots.iter().zip(set).map(|(slot, (_, stat))| {
                let unknown = || failed(TreeError::Unknown("a set node has no version".into()));
                let stat = stat.ok_or_else(unknown)?;
                Ok(OwnedSlot::new(*slot, stat.version, stat.modified))
            });
            return owned.collect();
        }
        Err(Error::unavailable(Part::Coordination, "the owners of slots change all the time"))
    }

    async fn taking(&self, slots: &[Slot], me: &Owner) -> Result<Vec<Op>, Error> {
        let paths: Vec<String> = slots.iter().map(|slot| layout::slot(*slot)).collect();
        let nodes = self.tree.get_many(&paths).await.map_err(failed)?;
        let mut ops = Vec::with_capacity(3 * slots.len());
        let record = to_json(&SlotRecord { instance: me.instance, nonce: me.nonce });
        for (path, node) in paths.into_iter().zip(nodes) {
            let Some(node) = node else {
                return Err(Error::unavailable(Part::Coordination, format!("{path} is missing")));
            };
            ops.push(Op::Set { path, data: record.clone(), version: Some(node.version) });
        }
        ops.extend(self.owning(slots, me).await?);
        Ok(ops)
    }

    /// What puts this owner's nodes in place of whatever is there.
    async fn owning(&self, slots: &[Slot], me: &Owner) -> Result<Vec<Op>, Error> {
        let paths: Vec<String> = slots.iter().map(|slot| layout::owner(*slot)).collect();
        let nodes = self.tree.get_many(&paths).await.map_err(failed)?;
        let record = to_json(&OwnerRecord { instance: me.instance, address: &me.address });
        let mut ops = Vec::with_capacity(2 * slots.len());
        for (path, node) in paths.into_iter().zip(nodes) {
            if node.is_some() {
                ops.push(Op::Delete { path: path.clone() });
            }
            ops.push(Op::Create { path, data: record.clone(), mode: Mode::Ephemeral });
        }
        Ok(ops)
    }

    /// Makes owner nodes again after a session was lost, for slots that nobody took in the meantime; the others are
    /// lost, as [`OwnedSlot::is_lost`] says. At most [`crate::domain::limits::SLOTS_TAKEN`].
    pub async fn slots_hold(&self, owned: &[OwnedSlot], me: &Owner) -> Result<(), Error> {
        let mut held: Vec<&OwnedSlot> = owned.iter().collect();
        for _ in 0..TRIES + owned.len() {
            let slots: Vec<Slot> = held.iter().map(|owned| owned.slot).collect();
            let fences: Vec<Fence> = held.iter().map(|owned| owned.fence()).collect();
            let ops = self.owning(&slots, me).await?;
            match self.tree.commit(&fences, &ops).await {
                Ok(_) => return Ok(()),
                Err(TreeError::Fenced(index)) if index < held.len() => held.remove(index).lose(),
                Err(TreeError::Refused { .. }) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Err(Error::unavailable(Part::Coordination, "the owners of slots change all the time"))
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
            slot.lose();
        }
        outcome
    }
}
