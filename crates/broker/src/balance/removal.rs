//! Removal of a pool that is gone for good, with the messages in it. Its queues continue empty in other pools.
//!
//! ```text
//! pool closed to new queues ──each queue: one commit to another pool──▶ no record names it ──▶ deleted
//! ```
//!
//! The pool need not be reachable. While it answers, it is read for two things: the number of discarded messages, for
//! the log; and the sources of messages in transfer into its queues, so that such a message stays at its source until it
//! is sent again. A queue keeps its name, its metadata and its place in the quota, and has another id, so that no claim,
//! receipt or message of the former one is taken for one of the new. A queue under migration keeps its id and what is in
//! the other of its two pools. Each step is one commit, so a removal that was cut short can be repeated.

use tokio::time::{sleep, timeout};
use tracing::warn;

use angarium_catalogue::{Placement, PoolUsers, QueueEntry, QueueRecord};
use angarium_cluster::peer_client::{LEAVE, LeaveRequest, LeaveResponse};
use angarium_core::error::{Error, Part};
use angarium_core::ids::{QueueId, Slot};
use angarium_core::names::{PoolName, QueueRef};
use angarium_core::queue::Metadata;
use angarium_core::quota::Quota;
use angarium_storage::Totals;

use crate::balance::Balance;
use crate::limits;
use crate::pools::deletion::Leftovers;
use crate::slot::closed_figures::OpenedContents;
use crate::slot::slot_queue::SlotQueue;
use crate::slots::table::SlotLocation;
use crate::stores::is_of_storage;
use crate::stores::table::CHANGE_TRIES;

/// A pool that is being removed.
struct LostPool<'a> {
    name: &'a PoolName,
    /// Whether it has answered so far. If not, it is not read any more.
    is_answering: bool,
}

impl Balance {
    /// Deletes a pool with the messages in it, which need not be reachable. Its queues continue empty in pools that
    /// placement chooses. It is no error when the pool does not exist.
    ///
    /// # Errors
    ///
    /// A conflict, with nothing changed, when no other pool takes one of its queues. The pool stays after any error.
    /// After one with an unknown outcome, queues that have left the pool stay where they are.
    pub async fn pool_delete_forced(&self, name: &PoolName) -> Result<(), Error> {
        let (balance, name) = (self.clone(), name.clone());
        let delete = async move {
            let deleted = balance.remove_pool(&name).await;
            if deleted.is_err() {
                balance.0.pools.give_up_deletion(&name).await;
            }
            deleted
        };
        self.0.replica.carry_out(delete).await
    }

    async fn remove_pool(&self, name: &PoolName) -> Result<(), Error> {
        let pools = &self.0.pools;
        for attempt in 0..CHANGE_TRIES {
            if !pools.close_to_queues(name).await? {
                return Ok(());
            }
            self.0.replica.catalogue.catch_up().await?;
            if attempt == 0 {
                self.check_places(name).await?;
            }
            let emptied = self.empty_pool(name).await;
            emptied.map_err(|error| Error::unknown(Part::Pool(name.clone()), error))?;
            match pools.pool_delete(name, Leftovers::Abandoned).await {
                // Another caller has reopened the pool meanwhile.
                Err(Error::InUse { .. }) => sleep(limits::LEAVE_PAUSE).await,
                deleted => return deleted.map_err(Error::into_unknown),
            }
        }
        let why = "it was used again each time";
        Err(Error::unknown(Part::Pool(name.clone()), why))
    }

    /// Checks that each queue in a pool finds another one.
    async fn check_places(&self, name: &PoolName) -> Result<(), Error> {
        for slot in Slot::all() {
            for (at, record) in self.queues_in(slot, name).await? {
                if record.placement()?.older.is_none() {
                    let placed = self.place_elsewhere(&at, &record).await;
                    placed.map_err(|error| no_place(&at, &error))?;
                }
            }
        }
        Ok(())
    }

    /// Moves every queue out of a pool that takes no new ones.
    async fn empty_pool(&self, name: &PoolName) -> Result<(), Error> {
        let mut pool = LostPool { name, is_answering: true };
        for slot in Slot::all() {
            if self.0.replica.catalogue.slot_uses_pool(slot, name).await? == PoolUsers::Queues {
                self.leave_in_slot(slot, &mut pool).await?;
            }
        }
        Ok(())
    }

    /// Has the owner of a slot move all its queues out of a pool. Tries again while the slot is recovered or changes its
    /// owner.
    async fn leave_in_slot(&self, slot: Slot, pool: &mut LostPool<'_>) -> Result<(), Error> {
        let mut failures = 0;
        loop {
            match self.leave_anywhere(slot, pool).await {
                Ok(true) => failures = 0,
                Ok(false) => return Ok(()),
                Err(Error::Moved(_) | Error::Busy(_) | Error::Unavailable { .. } | Error::Unknown { .. })
                    if failures < limits::LEAVE_TRIES =>
                {
                    failures += 1;
                    sleep(limits::LEAVE_PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn leave_anywhere(&self, slot: Slot, pool: &mut LostPool<'_>) -> Result<bool, Error> {
        let SlotLocation::There(owner) = self.0.slots.slot_location(slot) else {
            return self.leave_pool(slot, pool).await;
        };
        let LostPool { name, is_answering } = *pool;
        let question = LeaveRequest { slot: slot.0, pool: name.to_string(), is_answering };
        let answer: LeaveResponse = self.0.slots.peer_client()?.ask(&owner.address, LEAVE, &question).await?;
        pool.is_answering = answer.is_answering;
        Ok(answer.is_more)
    }

    /// Moves queues of a slot that is served here out of a pool, for another replica.
    pub async fn leave_local(&self, question: LeaveRequest) -> Result<LeaveResponse, Error> {
        let name = PoolName::new(&question.pool)?;
        let mut pool = LostPool { name: &name, is_answering: question.is_answering };
        let is_more = self.leave_pool(Slot(question.slot), &mut pool).await?;
        Ok(LeaveResponse { is_answering: pool.is_answering, is_more })
    }

    /// Moves at most [`limits::LEAVE_QUEUES`] queues of a slot that is served here out of a pool. Returns whether there
    /// are more.
    async fn leave_pool(&self, number: Slot, pool: &mut LostPool<'_>) -> Result<bool, Error> {
        let slot = self.0.slots.served(number).await?;
        let queues = self.queues_in(number, pool.name).await?;
        let is_more = queues.len() > limits::LEAVE_QUEUES;
        for (at, _) in queues.into_iter().take(limits::LEAVE_QUEUES) {
            self.leave_queue(&slot.queue(&at), pool).await?;
            if slot.lost().is_some() {
                return Ok(true);
            }
        }
        Ok(is_more)
    }

    /// Returns the queues of a slot that are in a pool.
    async fn queues_in(&self, slot: Slot, name: &PoolName) -> Result<Vec<(QueueRef, QueueRecord)>, Error> {
        let catalogue = &self.0.replica.catalogue;
        let mut found = Vec::new();
        for project in catalogue.slot_projects(slot).await? {
            let queues = catalogue.project_queues(slot, &project).await?;
            let records = catalogue.queue_records(&queues).await?;
            for (at, record) in queues.into_iter().zip(records) {
                // The queue was deleted meanwhile.
                let Some(record) = record else { continue };
                if record.placement()?.contains(name) {
                    found.push((at, record));
                }
            }
        }
        Ok(found)
    }

    /// Moves a queue out of a pool.
    async fn leave_queue(&self, queue: &SlotQueue, pool: &mut LostPool<'_>) -> Result<(), Error> {
        let (slot, at) = (queue.slot(), queue.at());
        let _moves = self.0.slots.hold_transfers(at).await?;
        self.keep_at_sources(queue, pool).await?;
        let _gate = queue.hold_gate().await;
        let Some(mut entry) = queue.entry().await? else { return Ok(()) };
        let placement = entry.record.placement()?;
        if !placement.contains(pool.name) {
            return Ok(());
        }
        let _pools = slot.pool_gates.hold_all(&placement).await;
        let open = slot.close_queue(at, entry.record.id, OpenedContents::Unsure);
        if let Some(open) = &open
            && timeout(limits::CLOSE_DEADLINE, open.unused()).await.is_err()
        {
            slot.lose("a queue was closed with unfinished work");
            return Err(Error::unavailable(Part::Storage, "the unfinished work of the queue does not end"));
        }
        let lost = self.count_lost(pool, entry.record.id).await;
        let placed = match placement.pools().find(|other| *other != pool.name) {
            Some(survivor) => {
                entry.record.place(&Placement::one(survivor.clone()), None);
                let placed = self.0.replica.catalogue.queue_set(&slot.owned, at, &entry).await;
                // Its claims are still valid.
                slot.lose("a pool of a queue was removed");
                placed
            }
            None => {
                if let Some(open) = &open {
                    slot.add_orphans(entry.record.id, open.claims());
                }
                self.restart_queue(queue, &entry).await
            }
        };
        if !matches!(placed, Ok(true)) {
            // Its state in memory is gone.
            slot.lose("a queue was closed and perhaps not moved out of its pool");
            let changed =
                || Error::unavailable(Part::Coordination, "the records of the queue or its pool changed");
            return Err(placed.err().unwrap_or_else(changed));
        }
        let (messages, in_transfer) = lost.map(|lost| (lost.messages, lost.in_transfer)).unzip();
        warn!(
            project = %at.project, queue = %at.name, pool = %pool.name, messages, in_transfer,
            "messages of a queue discarded with their pool"
        );
        Ok(())
    }

    /// Makes sure, while the pool answers, that messages in transfer into the queue stay at their sources until they are
    /// sent again. The caller holds the transfers into the queue.
    async fn keep_at_sources(&self, queue: &SlotQueue, pool: &mut LostPool<'_>) -> Result<(), Error> {
        if !pool.is_answering {
            return Ok(());
        }
        let Some(record) = queue.record().await? else { return Ok(()) };
        match timeout(limits::LEAVE_READ, self.0.transfers.transfers_of(queue, &record)).await {
            Ok(Ok(transfers)) => self.0.transfers.keep_at_sources(queue, &transfers).await,
            Ok(Err(error)) if !is_of_storage(&error) => Err(error),
            Ok(Err(_)) | Err(_) => {
                pool.is_answering = false;
                Ok(())
            }
        }
    }

    /// Gives a queue another id and another pool. Returns false when a record has changed since it was read.
    async fn restart_queue(&self, queue: &SlotQueue, former: &QueueEntry) -> Result<bool, Error> {
        let (slot, at) = (queue.slot(), queue.at());
        let to = self.place_elsewhere(at, &former.record).await?;
        let Some(to) = self.0.stores.get(&to) else { return Ok(false) };
        let mut record = former.record.clone();
        record.id = QueueId::new(slot.owned.slot, &mut self.0.replica.random.clone());
        record.place(&Placement::one(to.entry.name.clone()), None);
        let roll = slot.roll.lock().await;
        let ledger = &self.0.ledger;
        // It takes the place of the former one, so no quota refuses it.
        ledger.add_queue(&ledger.account_of(&at.project), &Quota::NONE, record.id, slot.epoch)?;
        let catalogue = &self.0.replica.catalogue;
        let placed = catalogue.queue_restart(&slot.owned, at, former, &record, &to.entry).await;
        match &placed {
            Ok(true) => {
                ledger.remove_queue(former.record.id);
                slot.clean_at(self.0.replica.clock.now());
            }
            Ok(false) => ledger.remove_queue(record.id),
            Err(error) if error.nothing_written() => ledger.remove_queue(record.id),
            // The slot is recovered, which reads the queues again.
            Err(_) => {}
        }
        drop(roll);
        if matches!(placed, Ok(false)) {
            self.0.pools.reload_pools().await?;
        }
        placed
    }

    /// Returns the pool that placement chooses for a queue of this record.
    async fn place_elsewhere(&self, at: &QueueRef, record: &QueueRecord) -> Result<PoolName, Error> {
        let metadata = Metadata::stored(record.metadata.clone())?;
        let attributes = metadata.attributes();
        let pool = self.0.pools.place_again(at, attributes.flavor.as_ref(), attributes).await?;
        Ok(pool.entry.name.clone())
    }

    /// Counts what a queue has in a pool, for the log; none when the pool does not answer.
    async fn count_lost(&self, pool: &mut LostPool<'_>, queue: QueueId) -> Option<Totals> {
        if !pool.is_answering {
            return None;
        }
        let store = self.0.stores.get(pool.name)?.store().ok()?;
        let read = timeout(limits::LEAVE_READ, store.totals(queue)).await;
        pool.is_answering = matches!(read, Ok(Ok(_)));
        read.ok()?.ok()
    }
}

/// The error of a pool with a queue that no other pool takes.
fn no_place(at: &QueueRef, error: &Error) -> Error {
    let (project, name) = (&at.project, &at.name);
    Error::Conflict(format!("queue {name} of project {project} finds no other pool: {error}"))
}
