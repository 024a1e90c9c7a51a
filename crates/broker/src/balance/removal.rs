//! Removal of a pool that is gone for good, with the messages in it. Its queues continue empty in other pools.
//!
//! ```text
//! pool closed to new queues ──each queue: one commit to another pool──▶ no record names it ──▶ deleted
//! ```
//!
//! The pool need not be reachable: nothing is read from it or written to it, except that the messages are counted for the
//! log while it answers. A queue keeps its name, its metadata and its place in the quota, and has another id, so that no
//! claim, receipt or message of the former one is taken for one of the new. A queue under migration keeps what is in the
//! other of its two pools. Each step is one commit, so a removal that was cut short can be repeated.

use std::iter;

use tokio::time::{sleep, timeout};
use tracing::warn;

use angarium_catalogue::{Placement, PoolUsers, QueueEntry};
use angarium_cluster::peer_client::{LEAVE, LeaveRequest, LeaveResponse};
use angarium_core::error::{Error, Part};
use angarium_core::ids::{QueueId, Slot};
use angarium_core::names::{PoolName, QueueRef};
use angarium_core::queue::Metadata;
use angarium_storage::Totals;

use crate::balance::Balance;
use crate::limits;
use crate::pools::deletion::Leftovers;
use crate::slot::closed_figures::OpenedContents;
use crate::slot::slot_queue::SlotQueue;
use crate::slots::table::SlotLocation;
use crate::stores::table::CHANGE_TRIES;

impl Balance {
    /// Deletes a pool with the messages in it, which need not be reachable. Its queues continue empty in pools that
    /// placement chooses. It is no error when the pool does not exist.
    ///
    /// # Errors
    ///
    /// The pool stays when a queue cannot leave it, for example because no other pool takes it. Queues that have left
    /// stay where they are.
    pub async fn pool_delete_forced(&self, name: &PoolName) -> Result<(), Error> {
        let (balance, name) = (self.clone(), name.clone());
        let delete = async move {
            let pools = &balance.0.pools;
            for _ in 0..CHANGE_TRIES {
                if !pools.close_to_queues(&name).await? {
                    return Ok(());
                }
                if let Err(error) = balance.empty_pool(&name).await {
                    pools.give_up_deletion(&name).await;
                    return Err(error);
                }
                match pools.pool_delete(&name, Leftovers::Abandoned).await {
                    // Another caller has reopened the pool meanwhile, or a slot is still being recovered.
                    Err(Error::InUse { .. }) => sleep(limits::LEAVE_PAUSE).await,
                    deleted => return deleted,
                }
            }
            Err(Error::Busy("the pool was used again each time, please try again in a few seconds"))
        };
        self.0.replica.carry_out(delete).await
    }

    /// Moves every queue out of a pool that takes no new ones.
    async fn empty_pool(&self, name: &PoolName) -> Result<(), Error> {
        self.0.replica.catalogue.catch_up().await?;
        for slot in Slot::all() {
            if self.0.replica.catalogue.slot_uses_pool(slot, name).await? == PoolUsers::Queues {
                self.leave_in_slot(slot, name).await?;
            }
        }
        Ok(())
    }

    /// Has the owner of a slot move all its queues out of a pool. Tries again while the slot is recovered or changes its
    /// owner.
    async fn leave_in_slot(&self, slot: Slot, name: &PoolName) -> Result<(), Error> {
        let mut failures = 0;
        loop {
            match self.leave_anywhere(slot, name).await {
                Ok(true) => failures = 0,
                Ok(false) => return Ok(()),
                Err(Error::Moved(_) | Error::Unavailable { .. } | Error::Unknown { .. })
                    if failures < limits::LEAVE_TRIES =>
                {
                    failures += 1;
                    sleep(limits::LEAVE_PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn leave_anywhere(&self, slot: Slot, name: &PoolName) -> Result<bool, Error> {
        let SlotLocation::There(owner) = self.0.slots.slot_location(slot) else {
            return self.leave_pool(slot, name).await;
        };
        let question = LeaveRequest { slot: slot.0, pool: name.to_string() };
        let LeaveResponse { is_more } =
            self.0.slots.peer_client()?.ask(&owner.address, LEAVE, &question).await?;
        Ok(is_more)
    }

    /// Moves queues of a slot that is served here out of a pool, for another replica.
    pub async fn leave_local(&self, question: LeaveRequest) -> Result<LeaveResponse, Error> {
        let pool = PoolName::new(&question.pool)?;
        let is_more = self.leave_pool(Slot(question.slot), &pool).await?;
        Ok(LeaveResponse { is_more })
    }

    /// Moves at most [`limits::LEAVE_QUEUES`] queues of a slot that is served here out of a pool. Returns whether there
    /// are more. The slot is recovered afterwards: it forgets all that it knew of the former queues.
    async fn leave_pool(&self, number: Slot, name: &PoolName) -> Result<bool, Error> {
        let slot = self.0.slots.served(number).await?;
        let found = self.survey_of(iter::once(number)).await?;
        let mut queues: Vec<QueueRef> =
            found.queues.into_iter().filter(|queue| queue.placement.contains(name)).map(|q| q.at).collect();
        let is_more = queues.len() > limits::LEAVE_QUEUES || !found.is_whole;
        queues.truncate(limits::LEAVE_QUEUES);
        let mut outcome = Ok(is_more);
        for at in queues {
            if let Err(error) = self.leave_queue(&slot.queue(&at), name).await {
                outcome = Err(error);
                break;
            }
        }
        slot.lose("a pool was removed with its queues");
        outcome
    }

    /// Moves a queue out of a pool without reading it there.
    async fn leave_queue(&self, queue: &SlotQueue, name: &PoolName) -> Result<(), Error> {
        let (slot, at) = (queue.slot(), queue.at());
        let _moves = self.0.slots.hold_transfers(at).await?;
        let _gate = queue.hold_gate().await;
        for _ in 0..CHANGE_TRIES {
            let Some(entry) = queue.entry().await? else { return Ok(()) };
            let placement = entry.record.placement()?;
            if !placement.contains(name) {
                return Ok(());
            }
            let _pools = slot.pool_gates.hold_all(&placement).await;
            if let Some(open) = slot.close_queue(at, entry.record.id, OpenedContents::Unsure)
                && timeout(limits::CLOSE_DEADLINE, open.unused()).await.is_err()
            {
                slot.lose("a queue was closed with unfinished work");
                return Err(Error::unavailable(
                    Part::Storage,
                    "the unfinished work of the queue does not end",
                ));
            }
            let lost = self.count_lost(name, entry.record.id).await;
            let survivor = placement.pools().find(|pool| *pool != name).cloned();
            let placed = match &survivor {
                Some(pool) => self.stay_in_one(queue, entry, pool).await,
                None => self.restart_queue(queue, &entry).await,
            };
            if slot.note_placed(placed)? {
                let (messages, in_transfer) = lost.map(|lost| (lost.messages, lost.in_transfer)).unzip();
                warn!(
                    project = %at.project, queue = %at.name, pool = %name, messages, in_transfer,
                    "messages of a queue discarded with their pool"
                );
                return Ok(());
            }
            self.0.pools.reload_pools().await?;
        }
        Err(Error::unavailable(Part::Coordination, "the queue's record changed each time"))
    }

    /// Ends the migration of a queue in the one of its two pools that is left.
    async fn stay_in_one(
        &self,
        queue: &SlotQueue,
        mut entry: QueueEntry,
        pool: &PoolName,
    ) -> Result<bool, Error> {
        entry.record.place(&Placement::one(pool.clone()), None);
        self.0.replica.catalogue.queue_set(&queue.slot().owned, queue.at(), &entry).await
    }

    /// Gives a queue another id and another pool.
    async fn restart_queue(&self, queue: &SlotQueue, former: &QueueEntry) -> Result<bool, Error> {
        let (slot, at) = (queue.slot(), queue.at());
        let metadata = Metadata::stored(former.record.metadata.clone())?;
        let attributes = metadata.attributes();
        let pool = self.0.pools.place_again(at, attributes.flavor.as_ref(), attributes).await?;
        let mut record = former.record.clone();
        record.id = QueueId::new(slot.owned.slot, &mut self.0.replica.random.clone());
        record.place(&Placement::one(pool.entry.name.clone()), None);
        self.0.replica.catalogue.queue_restart(&slot.owned, at, former, &record, &pool.entry).await
    }

    /// Counts what a queue has in a pool, for the log; none when the pool does not answer.
    async fn count_lost(&self, name: &PoolName, queue: QueueId) -> Option<Totals> {
        let pool = self.0.stores.get(name).filter(|pool| pool.is_up())?;
        let store = pool.store().ok()?;
        timeout(limits::LEAVE_COUNT, store.totals(queue)).await.ok()?.ok()
    }
}
