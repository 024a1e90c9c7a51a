//! Removal of a pool that is gone for good, with the messages in it. Its queues continue empty in other pools.
//!
//! ```text
//! pool closed to new queues ──each queue: one commit to another pool──▶ no record names it ──▶ deleted
//! ```
//!
//! The pool need not be reachable. While it answers, it is read for two things: the number of discarded messages, for
//! the log; and the sources of messages in transfer into its queues, so that such a message stays at its source until it
//! is sent again. A queue keeps its name, its metadata and its place in the quota, and has another id, so that no claim,
//! receipt or message of the former one is taken for one of the new. A queue under migration keeps its id and the messages
//! in the other of its two pools. Each step is one commit, so a removal that was cut short can be repeated.

use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, sleep, timeout};
use tracing::warn;

use angarium_catalogue::{Placement, PoolEntry, PoolUsers, QueueEntry, QueueRecord};
use angarium_cluster::peer_client::{ClosedPool, LEAVE, LeaveRequest, LeaveResponse};
use angarium_core::error::{Error, Part};
use angarium_core::ids::{QueueId, Slot};
use angarium_core::mutation::{Mutation, is_on};
use angarium_core::names::{PoolName, QueueRef};
use angarium_core::queue::Metadata;
use angarium_core::quota::Quota;

use crate::balance::Balance;
use crate::limits;
use crate::open_queues::copies::WaitingCopies;
use crate::pools::deletion::Leftovers;
use crate::slot::closed_figures::OpenedContents;
use crate::slot::slot_queue::SlotQueue;
use crate::slots::table::SlotLocation;
use crate::stores::is_of_storage;
use crate::stores::table::CHANGE_TRIES;

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
        let Some(mut leaving) = pools.close_to_queues(name).await? else { return Ok(()) };
        self.0.replica.catalogue.catch_up().await?;
        self.check_places(name).await?;
        // From here on queues may have left the pool.
        let removed = async {
            for _ in 0..CHANGE_TRIES {
                self.empty_pool(&leaving).await?;
                match pools.pool_delete(name, Leftovers::Abandoned).await {
                    // Another caller has reopened the pool meanwhile.
                    Err(Error::InUse { .. }) => sleep(limits::LEAVE_PAUSE).await,
                    deleted => return deleted,
                }
                let Some(closed) = pools.close_to_queues(name).await? else { return Ok(()) };
                leaving = closed;
                self.0.replica.catalogue.catch_up().await?;
            }
            Err(Error::Busy("the pool was used again each time"))
        };
        removed.await.map_err(|error| Error::unknown(Part::Pool(name.clone()), error))
    }

    /// Checks that each queue in a pool finds another one.
    async fn check_places(&self, name: &PoolName) -> Result<(), Error> {
        for slot in Slot::all() {
            for (at, record) in self.queues_in(slot, name).await? {
                if record.placement()?.older.is_none() {
                    let placed = self.place_elsewhere(&at, &record).await;
                    placed.map_err(|error| no_place(&at, error))?;
                }
            }
        }
        Ok(())
    }

    /// Moves every queue out of a pool that takes no new ones.
    async fn empty_pool(&self, leaving: &PoolEntry) -> Result<(), Error> {
        for slot in Slot::all() {
            if self.0.replica.catalogue.slot_uses_pool(slot, &leaving.name).await? == PoolUsers::Queues {
                self.leave_in_slot(slot, leaving).await?;
            }
        }
        Ok(())
    }

    /// Has the owner of a slot move all its queues out of a pool. Tries again while the slot is recovered or changes its
    /// owner.
    async fn leave_in_slot(&self, slot: Slot, leaving: &PoolEntry) -> Result<(), Error> {
        let mut failures = 0;
        loop {
            match self.leave_anywhere(slot, leaving).await {
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

    async fn leave_anywhere(&self, slot: Slot, leaving: &PoolEntry) -> Result<bool, Error> {
        let closed = ClosedPool { id: leaving.pool.id, version: leaving.version };
        let SlotLocation::There(owner) = self.0.slots.slot_location(slot) else {
            return self.leave_pool(slot, &leaving.name, closed).await;
        };
        let question = LeaveRequest { slot: slot.0, pool: leaving.name.to_string(), closed: Some(closed) };
        let LeaveResponse { is_more } =
            self.0.slots.peer_client()?.ask(&owner.address, LEAVE, &question).await?;
        Ok(is_more)
    }

    /// Moves queues of a slot that is served here out of a pool, for another replica.
    pub async fn leave_local(&self, question: LeaveRequest) -> Result<LeaveResponse, Error> {
        let (balance, name) = (self.clone(), PoolName::new(&question.pool)?);
        let slot = question.slot;
        let why = "a removal by an older replica, which does not state the record of the pool";
        let closed = question.closed.ok_or_else(|| Error::unavailable(Part::Server, why))?;
        let leave = async move { balance.leave_pool(Slot(slot), &name, closed).await };
        let is_more = self.0.replica.carry_out(leave).await?;
        Ok(LeaveResponse { is_more })
    }

    /// Moves some queues of a slot that is served here out of a pool: at most [`limits::LEAVE_QUEUES`], and those under
    /// migration last. Returns whether there are more.
    ///
    /// Moves none, and reports no more, when the record of the pool is not the `closed` one: the request was late, and the
    /// pool serves again or is another one; or the record was changed during the removal, which then reads it again.
    async fn leave_pool(&self, number: Slot, name: &PoolName, closed: ClosedPool) -> Result<bool, Error> {
        self.0.replica.catalogue.catch_up().await?;
        let Some(leaving) = self.0.replica.catalogue.pool(name).await? else { return Ok(false) };
        if (closed.id, closed.version) != (leaving.pool.id, leaving.version) {
            return Ok(false);
        }
        self.0.stores.mark_lost(name);
        let slot = self.0.slots.served(number).await?;
        let _guard = slot.lost_on_panic();
        let mut queues = self.queues_in(number, name).await?;
        queues.sort_by_key(|(_, record)| record.migration.is_some());
        let (begun, count) = (Instant::now(), queues.len());
        let (mut left, mut saved, mut outcome) = (0, Vec::new(), Ok(()));
        for (at, _) in queues.into_iter().take(limits::LEAVE_QUEUES) {
            match self.leave_queue(&slot.queue(&at), &leaving).await {
                Ok(gate) => saved.extend(gate),
                Err(error) => outcome = Err(error),
            }
            left += usize::from(outcome.is_ok());
            if outcome.is_err() || begun.elapsed() > limits::LEAVE_TURN {
                break;
            }
        }
        if !saved.is_empty() {
            // Their claims are still valid, and memory has forgotten them. The gates keep the queues closed until then.
            slot.lose("a pool of a queue was removed");
        }
        outcome.map(|()| left < count)
    }

    /// Returns the queues of a slot that are in a pool, without the ones of subscriptions: these are where their sources are.
    async fn queues_in(&self, slot: Slot, name: &PoolName) -> Result<Vec<(QueueRef, QueueRecord)>, Error> {
        let catalogue = &self.0.replica.catalogue;
        let mut found = Vec::new();
        for project in catalogue.slot_projects(slot).await? {
            let mut queues = catalogue.project_queues(slot, &project).await?;
            queues.retain(|at| at.source().is_none());
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

    /// Moves a queue out of a pool. Returns the gate of the queue if it keeps the other of its two pools: the caller holds
    /// it until the slot is lost.
    async fn leave_queue(
        &self,
        queue: &SlotQueue,
        leaving: &PoolEntry,
    ) -> Result<Option<OwnedMutexGuard<()>>, Error> {
        let (slot, at, name) = (queue.slot(), queue.at(), &leaving.name);
        let _moves = self.0.slots.hold_transfers(at).await?;
        self.keep_at_sources(queue, name).await?;
        let gate = queue.hold_gate_soon().await?;
        let Some(entry) = queue.entry().await? else { return Ok(None) };
        let placement = entry.record.placement()?;
        if !placement.contains(name) {
            return Ok(None);
        }
        let survivor = placement.pools().find(|other| *other != name);
        let _pools = queue.hold_pools_soon(&placement).await?;
        if survivor.is_some() && !is_on(Mutation::SweepLeftQueue) {
            // Its claims are about to leave memory.
            slot.spare_from_sweeps(entry.record.id);
        }
        let open = slot.close_queue(at, entry.record.id, OpenedContents::Unsure);
        if let Some(open) = &open
            && timeout(limits::CLOSE_DEADLINE, open.unused()).await.is_err()
        {
            slot.lose("a queue was closed with unfinished work");
            return Err(Error::unavailable(Part::Storage, "the unfinished work of the queue does not end"));
        }
        let lost = self.count_lost(queue, name, &entry.record).await;
        let placed = match survivor {
            Some(survivor) => self.stay_in_one(queue, &entry, survivor, leaving).await,
            None => {
                let claims = open.map(|open| open.claims()).unwrap_or_default();
                slot.add_orphans(entry.record.id, claims);
                self.restart_queue(queue, &entry, leaving).await
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
            project = %at.project, queue = %at.name, pool = %name, messages, in_transfer,
            "messages of a queue discarded with their pool"
        );
        Ok(survivor.map(|_| gate))
    }

    /// Makes sure, while the pool answers, that messages in transfer into the queue stay at their sources until they are
    /// sent again. The caller holds the transfers into the queue.
    async fn keep_at_sources(&self, queue: &SlotQueue, name: &PoolName) -> Result<(), Error> {
        if !self.0.stores.lost_answers(name) {
            return Ok(());
        }
        let Some(record) = queue.record().await? else { return Ok(()) };
        match timeout(limits::LEAVE_READ, self.0.transfers.transfers_of(queue, &record)).await {
            Ok(Ok(transfers)) => self.0.transfers.keep_at_sources(queue, &transfers).await,
            Ok(Err(error)) if !is_of_storage(&error, |pool| pool == name) => Err(error),
            Ok(Err(_)) | Err(_) => {
                self.0.stores.lost_is_silent(name);
                Ok(())
            }
        }
    }

    /// Ends the migration of a queue in the one of its two pools that is left. Returns false when its record, or that of
    /// the other pool, has changed since it was read.
    async fn stay_in_one(
        &self,
        queue: &SlotQueue,
        entry: &QueueEntry,
        survivor: &PoolName,
        leaving: &PoolEntry,
    ) -> Result<bool, Error> {
        let mut entry = entry.clone();
        entry.record.place(&Placement::one(survivor.clone()), None);
        self.0.replica.catalogue.queue_place(&queue.slot().owned, queue.at(), &entry, leaving, None).await
    }

    /// Gives a queue another id and another pool. Returns false when a record has changed since it was read.
    async fn restart_queue(
        &self,
        queue: &SlotQueue,
        former: &QueueEntry,
        leaving: &PoolEntry,
    ) -> Result<bool, Error> {
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
        let placed = catalogue.queue_restart(&slot.owned, at, former, &record, [&to.entry, leaving]).await;
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

    /// Counts what a queue and its subscriptions have in a pool, for the log; none when the pool does not answer.
    async fn count_lost(
        &self,
        queue: &SlotQueue,
        name: &PoolName,
        record: &QueueRecord,
    ) -> Option<WaitingCopies> {
        if !self.0.stores.lost_answers(name) {
            return None;
        }
        let store = self.0.stores.get(name)?.store().ok()?;
        let read = timeout(limits::LEAVE_READ, store.totals(record.id)).await;
        if !matches!(read, Ok(Ok(_))) {
            self.0.stores.lost_is_silent(name);
        }
        let there = Placement::one(name.clone());
        let copies = self.0.open_queues.count_copies(queue, record, &there).await?;
        let own = read.ok()?.ok()?;
        Some(WaitingCopies {
            messages: own.messages + copies.messages,
            in_transfer: own.in_transfer + copies.in_transfer,
        })
    }
}

/// The error of a pool with a queue that finds no other one: a conflict if no pool takes such a queue.
fn no_place(at: &QueueRef, error: Error) -> Error {
    match error {
        Error::NoPool | Error::NotDurable(_) | Error::Invalid { .. } => {
            let (project, name) = (&at.project, &at.name);
            Error::Conflict(format!("queue {name} of project {project} finds no other pool: {error}"))
        }
        error => error,
    }
}
