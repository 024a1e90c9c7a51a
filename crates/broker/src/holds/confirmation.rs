//! Confirmation of a hold of a pool or a project: in each slot the owner knows it, and no earlier owner can act against
//! it.
//!
//! After the commit of the record the maker reads the version of each slot's node. An owner with a greater version has
//! acquired the slot after the record was written, and has read it then. So each slot needs the confirmation of an owner
//! with this version or a greater one. Before an owner confirms, it fences the pools of the held queues for the slot: a
//! removal or an append of an earlier owner is refused from then on, as its commits to the tree are. So it does not matter
//! whether that replica is stopped, cut off, or slow, and how long its lease lasts.

use std::sync::Arc;

use futures_util::future::{join, join_all};
use futures_util::stream::{self, StreamExt};
use tokio::time::{Instant, sleep, timeout};
use tracing::debug;

use angarium_catalogue::SlotOwner;
use angarium_cluster::peer_client::{HOLD, HeldSlot, HoldRequest, HoldResponse};
use angarium_core::error::{Error, InvalidPart};
use angarium_core::hold::HoldTarget;
use angarium_core::ids::Slot as SlotNumber;
use angarium_core::maps::HashSet;
use angarium_core::mutation::{Mutation, is_on};
use angarium_core::names::{PoolName, ProjectId, QueueRef};

use crate::holds::Holds;
use crate::limits;
use crate::slot::state::Slot;

/// Slots of which the pools are fenced at the same time.
const FENCED_AT_ONCE: usize = 16;

/// The slots in which a hold is not confirmed, each with the version of its node when the hold was in the tree.
struct Unconfirmed(Vec<(SlotNumber, u32)>);

impl Unconfirmed {
    fn confirm(&mut self, held: &[HeldSlot]) {
        let is_confirmed = |(SlotNumber(slot), version): &(SlotNumber, u32)| {
            held.iter().any(|held| held.slot == *slot && held.version >= *version)
        };
        self.0.retain(|unconfirmed| !is_confirmed(unconfirmed));
    }

    fn request(&self, target: &HoldTarget) -> HoldRequest {
        let slots = self.0.iter().map(|(SlotNumber(slot), _)| *slot).collect();
        match target {
            HoldTarget::Pool(pool) => HoldRequest { pool: Some(pool.to_string()), project: None, slots },
            HoldTarget::Project(project) => {
                HoldRequest { pool: None, project: Some(project.to_string()), slots }
            }
        }
    }
}

impl Holds {
    /// Waits until a hold that is in the tree is in force in every slot.
    ///
    /// # Errors
    ///
    /// [`Error::Unconfirmed`] when it is not after [`limits::HOLD_CONFIRMED`]: a slot has no owner, or an owner does not
    /// answer, or a pool of a held queue does not.
    pub(in crate::holds) async fn confirm(&self, target: &HoldTarget) -> Result<(), Error> {
        let end = Instant::now() + limits::HOLD_CONFIRMED;
        // The session may be another one than that of the commit.
        self.0.replica.catalogue.catch_up().await?;
        let versions = self.0.replica.catalogue.slot_versions().await?;
        let mut unconfirmed = Unconfirmed(SlotNumber::all().zip(versions).collect());
        let mut pause = limits::HOLD_ASKED.0;
        loop {
            let request = unconfirmed.request(target);
            for held in self.ask_all(&request).await {
                unconfirmed.confirm(&held);
            }
            let Some((first, _)) = unconfirmed.0.first() else { return Ok(()) };
            if Instant::now() >= end {
                let why = format!(
                    "{} slots of queues, of which {first} is the first, have not confirmed it, because a replica or a pool \
                     does not answer or has many queues",
                    unconfirmed.0.len()
                );
                return Err(Error::Unconfirmed { why, cause: None });
            }
            sleep(pause).await;
            pause = (pause * 2).min(limits::HOLD_ASKED.1);
        }
    }

    /// Has every replica read the holds again after a release. One that does not answer learns it from its watch.
    pub(in crate::holds) async fn announce_release(&self, target: &HoldTarget) {
        self.ask_all(&Unconfirmed(Vec::new()).request(target)).await;
    }

    /// Asks this replica and all other owners of slots. Returns the confirmed slots of each that answers in time.
    async fn ask_all(&self, request: &HoldRequest) -> Vec<Vec<HeldSlot>> {
        let others = self.0.slots.others();
        let asked = join_all(others.iter().map(|owner| self.ask(owner, request)));
        let (here, mut held) =
            join(timeout(limits::HOLD_ANSWER, self.confirm_local(request.clone())), asked).await;
        match here {
            Ok(Ok(HoldResponse { slots })) => held.push(slots),
            Ok(Err(error)) => debug!(%error, "hold not confirmed here"),
            Err(_) => debug!("hold not confirmed here in time"),
        }
        held
    }

    async fn ask(&self, owner: &SlotOwner, request: &HoldRequest) -> Vec<HeldSlot> {
        let Ok(peer_client) = self.0.slots.peer_client() else { return Vec::new() };
        match timeout(limits::HOLD_ANSWER, peer_client.ask(&owner.address, HOLD, request)).await {
            Ok(Ok(HoldResponse { slots })) => slots,
            Ok(Err(error)) => {
                debug!(replica = %owner.address, %error, "replica does not confirm hold");
                Vec::new()
            }
            Err(_) => Vec::new(),
        }
    }

    /// Reads the holds again, and confirms one of them for slots that are served here: for those of them that are ready
    /// within [`limits::HOLD_PART`].
    pub(crate) async fn confirm_local(&self, request: HoldRequest) -> Result<HoldResponse, Error> {
        let HoldRequest { pool, project, slots: asked } = request;
        let target = match (pool, project) {
            (Some(pool), None) => HoldTarget::Pool(PoolName::new(&pool)?),
            (None, Some(project)) => HoldTarget::Project(ProjectId::new(&project)?),
            _ => return Err(Error::invalid(InvalidPart::Limit, "pool", "one resource is held")),
        };
        let end = sleep(limits::HOLD_PART);
        self.0.replica.catalogue.catch_up().await?;
        // A queue of an earlier owner may be in a pool that another replica has added.
        self.0.pools.reload_pools().await?;
        self.0.slots.shared_holds().read(&self.0.replica.catalogue).await?;
        if !self.await_transfers(&target).await {
            return Ok(HoldResponse { slots: Vec::new() });
        }
        let asked: HashSet<u8> = asked.into_iter().collect();
        let served = self.0.slots.owned().filter(|slot| asked.contains(&slot.owned.slot.0));
        let served: Vec<_> = served.filter(|slot| slot.lost().is_none()).collect();
        let confirmed = stream::iter(served).map(async |slot| match self.fence_held(&slot, &target).await {
            Ok(()) => Some(HeldSlot { slot: slot.owned.slot.0, version: slot.owned.version }),
            Err(error) => {
                let number = slot.owned.slot.0;
                self.0.replica.task_failed("confirm holds", format_args!("slot {number}"), &error);
                None
            }
        });
        let confirmed = confirmed.buffer_unordered(FENCED_AT_ONCE).filter_map(async |held| held);
        let slots = confirmed.take_until(end).collect().await;
        Ok(HoldResponse { slots })
    }

    /// Waits until each step has ended that takes messages out of a pool and began without the hold, if it is one of
    /// transfers. Returns false when one does not end in time.
    async fn await_transfers(&self, target: &HoldTarget) -> bool {
        let holds = self.0.slots.shared_holds();
        let hold = holds.hold(target, self.0.replica.clock.now());
        if !hold.is_some_and(|hold| hold.effects.bars_transfers()) {
            return true;
        }
        timeout(limits::HOLD_PART, holds.transfers.write()).await.is_ok()
    }

    /// Fences, for a slot, every pool of the held queues. Without a look at the queues if all pools are fenced.
    async fn fence_held(&self, slot: &Arc<Slot>, target: &HoldTarget) -> Result<(), Error> {
        if is_on(Mutation::ConfirmWithoutFence) {
            return Ok(());
        }
        if let HoldTarget::Pool(name) = target {
            slot.open_writer(name, &*self.0.pools.pool_of_record(name).await?).await?;
        }
        if self.0.pools.all().iter().all(|pool| slot.has_writer(pool)) {
            return Ok(());
        }
        for name in self.held_pools(slot.owned.slot, target).await? {
            let pool = self.0.pools.pool_of_record(&name).await?;
            slot.open_writer(&name, &pool).await?;
        }
        Ok(())
    }

    /// Returns the pools of the held queues of a slot. A queue under migration has two, and an earlier owner may know one
    /// of them only.
    async fn held_pools(&self, slot: SlotNumber, target: &HoldTarget) -> Result<HashSet<PoolName>, Error> {
        let catalogue = &self.0.replica.catalogue;
        let mut pools = HashSet::default();
        let projects = match target {
            HoldTarget::Pool(pool) => {
                pools.insert(pool.clone());
                catalogue.slot_projects(slot).await?
            }
            HoldTarget::Project(project) => vec![project.clone()],
        };
        for project in projects {
            let queues: Vec<QueueRef> = catalogue.project_queues(slot, &project).await?;
            for record in catalogue.queue_records(&queues).await?.into_iter().flatten() {
                let placement = record.placement()?;
                let is_held = match target {
                    HoldTarget::Pool(pool) => placement.contains(pool),
                    HoldTarget::Project(_) => true,
                };
                if is_held {
                    pools.extend(placement.pools().cloned());
                }
            }
        }
        Ok(pools)
    }
}
