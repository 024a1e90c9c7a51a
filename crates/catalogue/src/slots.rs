//! Records of slots: the replica that may write to a slot's part of the tree and of the pools.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Catalogue, failed, from_json, layout, to_json};
use angarium_coordination::{CommitResult, Fence, Mode, Op, Refusal, TreeError};
use angarium_core::error::{Error, Part};
use angarium_core::ids::Slot;
use angarium_core::limits;
use angarium_core::mutation::{Mutation, is_on};

/// Max attempts when owners change at the same time. An ending session removes its owner nodes.
const TRIES: usize = 4;

/// The replica that takes slots.
#[derive(Clone, Debug)]
pub struct Owner {
    /// Id of the replica.
    pub instance: Uuid,
    /// Address for requests of other replicas.
    pub address: String,
    /// Distinguishes this process from other processes of the same replica.
    pub nonce: Uuid,
}

/// A slot that this process took. Every commit for the slot names it.
#[derive(Clone, Debug)]
pub struct OwnedSlot {
    pub slot: Slot,
    /// Version of the slot's node: the fence of its commits.
    pub version: u32,
    /// The transaction that took the slot: its epoch in the pools.
    pub transaction: u64,
    /// Whether a commit for the slot was refused, because another replica took it.
    is_lost: Arc<AtomicBool>,
}

impl OwnedSlot {
    /// Creates an owned slot, taken by `transaction`, which gave its node `version`.
    pub fn new(slot: Slot, version: u32, transaction: u64) -> Self {
        Self { slot, version, transaction, is_lost: Arc::default() }
    }

    /// Returns whether a commit for the slot was refused because another replica has taken it since. Every later commit
    /// is refused too.
    pub fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    fn lose(&self) {
        self.is_lost.store(true, Ordering::Relaxed);
    }

    /// Returns a fence that holds while no other replica has taken the slot.
    fn fence(&self) -> Fence {
        Fence { path: layout::slot(self.slot), version: self.version }
    }
}

#[derive(Serialize)]
struct SlotRecord {
    instance: Uuid,
    nonce: Uuid,
}

/// The owner of a slot, as other replicas read it. The record lasts as long as the owner's session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotOwner {
    /// Id of the replica.
    pub instance: Uuid,
    /// Address for requests of other replicas.
    pub address: String,
}

impl Catalogue {
    /// Returns the owner of each slot; none for a slot without a running owner.
    pub async fn slot_owners(&self, slots: &[Slot]) -> Result<Vec<Option<SlotOwner>>, Error> {
        let paths: Vec<String> = slots.iter().map(|slot| layout::owner(*slot)).collect();
        let nodes = self.tree.get_many(&paths).await.map_err(failed)?;
        nodes.iter().map(|node| node.as_ref().map(from_json).transpose()).collect()
    }

    /// Returns the transaction that last took a slot. Waits until reads show the latest state of the ensemble.
    pub async fn slot_transaction(&self, slot: Slot) -> Result<u64, Error> {
        self.catch_up().await?;
        let path = layout::slot(slot);
        let node = self.node(&path).await?;
        node.map(|node| node.modified).ok_or_else(|| missing(&path))
    }

    /// Takes slots in one commit, at most [`angarium_core::limits::SLOTS_TAKEN`]. From then on, commits of the previous
    /// owners are refused. Slots of another replica whose session lasts are left out; slots of an earlier process of
    /// this replica are taken.
    pub async fn slots_take(&self, slots: &[Slot], me: &Owner) -> Result<Vec<OwnedSlot>, Error> {
        let paths: Vec<String> = slots.iter().map(|slot| layout::slot(*slot)).collect();
        for _ in 0..TRIES {
            let nodes = async { self.tree.get_many(&paths).await.map_err(failed) };
            let (nodes, owners) = tokio::try_join!(nodes, self.slot_owners(slots))?;
            let mut open = Vec::with_capacity(slots.len());
            for ((slot, node), owner) in slots.iter().zip(nodes).zip(owners) {
                if owner.as_ref().is_none_or(|owner| owner.instance == me.instance) {
                    let node = node.ok_or_else(|| missing(&layout::slot(*slot)))?;
                    open.push((*slot, node.version, owner));
                }
            }
            if open.is_empty() {
                return Ok(Vec::new());
            }
            let ops = take_ops(&open, me);
            let committed = match self.tree.commit(&[], &ops).await {
                Ok(committed) => committed,
                Err(TreeError::Refused { .. }) => continue,
                Err(error) => return Err(failed(error)),
            };
            let set = ops.iter().zip(committed).filter(|(op, _)| matches!(op, Op::Set { .. }));
            let owned = open.iter().zip(set).map(|((slot, ..), (_, stat))| {
                let unknown = || failed(TreeError::Unknown("a set node has no version".into()));
                let stat = stat.ok_or_else(unknown)?;
                Ok(OwnedSlot::new(*slot, stat.version, stat.modified))
            });
            return owned.collect();
        }
        Err(Error::unavailable(Part::Coordination, "the owners of slots change all the time"))
    }

    /// Creates the owner nodes again after a session was lost, for slots that no other replica took meanwhile. The
    /// other slots are lost: see [`OwnedSlot::is_lost`]. At most [`angarium_core::limits::SLOTS_TAKEN`] slots.
    pub async fn slots_hold(&self, owned: &[OwnedSlot], me: &Owner) -> Result<(), Error> {
        let mut held: Vec<&OwnedSlot> = owned.iter().collect();
        for _ in 0..TRIES + owned.len() {
            let slots: Vec<Slot> = held.iter().map(|owned| owned.slot).collect();
            let fences: Vec<Fence> = held.iter().map(|owned| owned.fence()).collect();
            let owners = self.slot_owners(&slots).await?;
            let ops = owner_ops(slots.iter().copied().zip(&owners), me);
            match self.tree.commit(&fences, &ops).await {
                Ok(_) => return Ok(()),
                Err(TreeError::Fenced(index)) if index < held.len() => held.remove(index).lose(),
                Err(TreeError::Refused { .. }) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Err(Error::unavailable(Part::Coordination, "the owners of slots change all the time"))
    }

    /// Gives slots up, at most [`angarium_core::limits::SLOTS_TAKEN`], so that other replicas may take them. A slot
    /// that another replica has taken, or whose owner's session has ended, counts as given up.
    pub async fn slots_give_up(&self, owned: &[OwnedSlot], me: &Owner) -> Result<(), Error> {
        let mut held: Vec<&OwnedSlot> = owned.iter().collect();
        for _ in 0..TRIES + owned.len() {
            let fences: Vec<Fence> = held.iter().map(|owned| owned.fence()).collect();
            let gone = held.iter().map(|owned| Op::Delete { path: layout::owner(owned.slot) });
            match self.tree.commit(&fences, &gone.collect::<Vec<_>>()).await {
                Ok(_) => return Ok(()),
                Err(TreeError::Fenced(index)) if index < held.len() => held.remove(index).lose(),
                Err(TreeError::Refused { .. }) => {
                    let slots: Vec<Slot> = held.iter().map(|owned| owned.slot).collect();
                    let mut owners = self.slot_owners(&slots).await?.into_iter();
                    held.retain(|_| {
                        owners.next().flatten().is_some_and(|owner| owner.instance == me.instance)
                    });
                }
                Err(error) => return Err(failed(error)),
            }
        }
        Err(Error::unavailable(Part::Coordination, "the owners of slots change all the time"))
    }

    /// Commits for the owner of a slot. Once another replica has taken the slot, the commit is refused, and the slot is
    /// marked as lost. The fence of the slot has index 0, followed by `fences`.
    pub(super) async fn commit_as_owner(
        &self,
        slot: &OwnedSlot,
        fences: &[Fence],
        ops: &[Op],
    ) -> Result<CommitResult, TreeError> {
        if fences.is_empty() && is_on(Mutation::CommitWithoutSlotFence) {
            return self.tree.commit(&[], ops).await;
        }
        let mut all = vec![slot.fence()];
        all.extend_from_slice(fences);
        let outcome = self.tree.commit(&all, ops).await;
        if let Err(TreeError::Fenced(0)) = outcome {
            slot.lose();
        }
        outcome
    }

    /// Reads the records of a directory.
    pub(super) async fn read_directory<R: DeserializeOwned>(&self, directory: &str) -> Result<Vec<R>, Error> {
        let names = self.tree.children(directory).await.map_err(failed)?;
        let mut records = Vec::with_capacity(names.len());
        for chunk in names.chunks(limits::LISTING_RECORDS) {
            let paths: Vec<String> = chunk.iter().map(|name| format!("{directory}/{name}")).collect();
            for node in self.tree.get_many(&paths).await.map_err(failed)?.into_iter().flatten() {
                records.push(from_json(&node)?);
            }
        }
        Ok(records)
    }

    /// Deletes a record of a slot. A record that is already deleted is no error.
    pub(super) async fn delete_of_slot(&self, slot: &OwnedSlot, path: String) -> Result<(), Error> {
        match self.commit_as_owner(slot, &[], &[Op::Delete { path }]).await {
            Ok(_) | Err(TreeError::Refused { why: Refusal::NoNode, .. }) => Ok(()),
            Err(error) => Err(failed(error)),
        }
    }

    /// Writes a record of a slot in a directory that is created with the first one. `what` are the records, for the error
    /// when there are as many as there may be.
    pub(super) async fn write_in_directory(
        &self,
        slot: &OwnedSlot,
        (directory, path): (String, String),
        data: Bytes,
        what: &'static str,
    ) -> Result<(), Error> {
        let set = Op::Set { path: path.clone(), data: data.clone(), version: None };
        match self.commit_as_owner(slot, &[], &[set]).await {
            Ok(_) => return Ok(()),
            Err(TreeError::Refused { why: Refusal::NoNode, .. }) => {}
            Err(error) => return Err(failed(error)),
        }
        let create = Op::create(path, data);
        match self.commit_as_owner(slot, &[], &[Op::create(directory, "{}"), create.clone()]).await {
            Ok(_) => return Ok(()),
            Err(TreeError::Refused { op: 0, why: Refusal::NodeExists }) => {}
            Err(error) => return Err(failed(error)),
        }
        match self.commit_as_owner(slot, &[], &[create]).await {
            Ok(_) => Ok(()),
            Err(TreeError::Refused { why: Refusal::Full, .. }) => {
                Err(Error::TooMany { what, bound: limits::TREE_CHILDREN })
            }
            Err(error) => Err(failed(error)),
        }
    }
}

/// Returns the operations that take slots at these versions and replace owner nodes of earlier processes of this
/// replica.
fn take_ops(slots: &[(Slot, u32, Option<SlotOwner>)], me: &Owner) -> Vec<Op> {
    let record = to_json(&SlotRecord { instance: me.instance, nonce: me.nonce });
    let set = |(slot, version, _): &(Slot, u32, Option<SlotOwner>)| Op::Set {
        path: layout::slot(*slot),
        data: record.clone(),
        version: Some(*version),
    };
    let mut ops: Vec<Op> = slots.iter().map(set).collect();
    ops.extend(owner_ops(slots.iter().map(|(slot, _, owner)| (*slot, owner)), me));
    ops
}

/// Returns the operations that create this owner's nodes, in place of those of earlier processes of this replica. The
/// commit is refused where another replica has an owner node.
fn owner_ops<'o>(slots: impl Iterator<Item = (Slot, &'o Option<SlotOwner>)>, me: &Owner) -> Vec<Op> {
    let record = to_json(&SlotOwner { instance: me.instance, address: me.address.clone() });
    let mut ops = Vec::new();
    for (slot, owner) in slots {
        let path = layout::owner(slot);
        if owner.as_ref().is_some_and(|owner| owner.instance == me.instance) {
            ops.push(Op::Delete { path: path.clone() });
        }
        ops.push(Op::Create { path, data: record.clone(), mode: Mode::Ephemeral });
    }
    ops
}

fn missing(path: &str) -> Error {
    Error::unavailable(Part::Coordination, format!("{path} is missing"))
}
