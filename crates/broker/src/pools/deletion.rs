//! Deletion of pools. A pool is deleted only when no queue is in it, even if queues are created at the same time.
//!
//! ```text
//! active record ──mark closing──▶ takes no new queue ──no record names it──▶ deleted
//!        ▲                              │ some record names it
//!        └──────────────────────────────┘
//! ```
//!
//! The commit that creates a queue checks the version of its pool's record. So after the mark is written no new queue
//! is placed in the pool, and the reads that follow see all earlier ones. A deletion waits up to
//! [`limits::POOL_CLEANING`] for the removal of the data of deleted queues. A mark that a crash has left is removed at
//! the next start, and by any other change of the pool. The removal of a pool that is gone for good is in
//! [`crate::balance::removal`].

use std::borrow::Cow;

use tokio::time::{Instant, sleep, timeout};
use tracing::warn;

use angarium_catalogue::{PoolEntry, PoolQueues, PoolUsers};
use angarium_core::error::{Error, Resource};
use angarium_core::ids::Slot;
use angarium_core::names::PoolName;
use angarium_core::pool::Pool;

use crate::limits;
use crate::pools::Pools;
use crate::pools::changes::changed_each_time;
use crate::stores::table::CHANGE_TRIES;

/// The fate of data that deleted queues have left in a pool when the pool is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leftovers {
    /// The deletion waits until it is removed, and is refused while it is not.
    Removed,
    /// It stays in the storage.
    Abandoned,
}

/// What uses a pool with queues, before they are counted.
const QUEUES: &str = "queues are in it";

impl Pools {
    /// Deletes a pool that no queue uses and closes its storage. The data stays in the storage. It is no error when the
    /// pool does not exist.
    pub async fn pool_delete(&self, name: &PoolName, leftovers: Leftovers) -> Result<(), Error> {
        let (pools, name) = (self.clone(), name.clone());
        let delete = async move {
            match pools.delete_unused(&name, leftovers).await {
                // Counted without the lock of the pools.
                Err(Error::InUse { by, .. }) if by == QUEUES && leftovers == Leftovers::Removed => {
                    Err(pools.used_by_queues(&name).await)
                }
                deleted => deleted,
            }
        };
        self.0.replica.carry_out(delete).await
    }

    async fn delete_unused(&self, name: &PoolName, leftovers: Leftovers) -> Result<(), Error> {
        let _turn = self.pool_lock().await?;
        for _ in 0..CHANGE_TRIES {
            self.0.replica.catalogue.catch_up().await?;
            let Some(entry) = self.0.replica.catalogue.pool(name).await? else {
                self.forget_pool(name).await;
                return Ok(());
            };
            self.check_flavor_keeps_a_pool(&entry).await?;
            let Some(closed) = self.close_unused(&entry, leftovers).await? else { continue };
            match self.0.replica.catalogue.pool_delete(&closed).await {
                Ok(true) => {
                    self.forget_pool(name).await;
                    return Ok(());
                }
                Ok(false) => {}
                Err(error) => {
                    // If the pool was deleted after all, there is no mark to remove.
                    let reopened = self.reopen_to_queues(&closed).await;
                    reopened.unwrap_or_else(|error| warn_left_closed(name, &error));
                    return Err(error);
                }
            }
        }
        Err(changed_each_time())
    }

    /// Marks a pool as one that is being deleted, so that no new queue is placed there, and returns its changed record.
    /// Returns none when there is no such pool. Refused for the last pool of a registered flavor.
    pub(crate) async fn close_to_queues(&self, name: &PoolName) -> Result<Option<PoolEntry>, Error> {
        let _turn = self.pool_lock().await?;
        for _ in 0..CHANGE_TRIES {
            self.0.replica.catalogue.catch_up().await?;
            let Some(entry) = self.0.replica.catalogue.pool(name).await? else { return Ok(None) };
            self.check_flavor_keeps_a_pool(&entry).await?;
            if let Some(closed) = self.mark_closing(&entry).await? {
                return Ok(Some(closed));
            }
        }
        Err(changed_each_time())
    }

    /// Returns the changed record; none when it has changed since it was read.
    ///
    /// A record that has the mark stays as it is: another caller relies on its version.
    async fn mark_closing(&self, entry: &PoolEntry) -> Result<Option<PoolEntry>, Error> {
        if entry.pool.closing {
            return Ok(Some(entry.clone()));
        }
        let mark = Pool { closing: true, ..entry.pool.clone() };
        let closed = self.0.replica.catalogue.pool_set(entry, &mark).await?;
        if let Some(closed) = &closed {
            self.0.stores.update(closed.clone());
        }
        Ok(closed)
    }

    /// Removes the marks of a deletion that was given up.
    pub(crate) async fn give_up_deletion(&self, name: &PoolName) {
        self.0.stores.unmark_lost(name);
        let reopened = async {
            match self.0.replica.catalogue.pool(name).await? {
                Some(entry) if entry.pool.closing => self.reopen_to_queues(&entry).await,
                _ => Ok(()),
            }
        };
        reopened.await.unwrap_or_else(|error| warn_left_closed(name, &error));
    }

    /// Refuses to delete the last pool of a registered flavor: without it the queues of the flavor could not be
    /// created.
    async fn check_flavor_keeps_a_pool(&self, entry: &PoolEntry) -> Result<(), Error> {
        let Some(flavor) = &entry.pool.flavor else { return Ok(()) };
        if self.0.replica.catalogue.flavor(flavor).await?.is_none() {
            return Ok(());
        }
        let pools = self.0.replica.catalogue.pools().await?;
        let is_other =
            |other: &PoolEntry| other.name != entry.name && other.pool.flavor.as_ref() == Some(flavor);
        if pools.iter().any(is_other) {
            return Ok(());
        }
        Err(in_use(&entry.name, "it is the last pool of its flavor".into()))
    }

    /// Closes a pool to new queues and checks that none is in it. Returns the changed record. When the pool is used,
    /// the record is restored and the error gives the reason. Returns none when the record changed meanwhile.
    pub(crate) async fn close_unused(
        &self,
        entry: &PoolEntry,
        leftovers: Leftovers,
    ) -> Result<Option<PoolEntry>, Error> {
        // A queue in memory is reason enough; the record need not change.
        if self.0.slots.owned().any(|slot| slot.uses_pool(&entry.name)) {
            return Err(in_use(&entry.name, QUEUES.into()));
        }
        let Some(closed) = self.mark_closing(entry).await? else { return Ok(None) };
        match self.await_cleaned(&entry.name, leftovers).await {
            Ok(PoolUsers::Nothing) => Ok(Some(closed)),
            Ok(PoolUsers::Remains) if leftovers == Leftovers::Abandoned => Ok(Some(closed)),
            Ok(PoolUsers::Queues) => {
                // A removal moves them out and tries again. Until then no queue may be placed there.
                if leftovers == Leftovers::Removed {
                    self.reopen_to_queues(&closed).await?;
                }
                Err(in_use(&entry.name, QUEUES.into()))
            }
            Ok(PoolUsers::Remains) => {
                self.reopen_to_queues(&closed).await?;
                let by = "data of deleted queues is still being removed from it";
                Err(Error::InUse {
                    resource: Resource::Pool,
                    name: entry.name.to_string(),
                    by: by.into(),
                    is_passing: true,
                })
            }
            Err(error) => {
                self.reopen_to_queues(&closed).await?;
                Err(error)
            }
        }
    }

    /// Returns the number of queues in a pool, with messages or without; none when they cannot be counted in time.
    pub(crate) async fn count_queues_in(&self, name: &PoolName) -> Option<PoolQueues> {
        let count = async {
            // It reads the records of all queues, so one count at a time.
            let _turn = self.0.counting.lock().await;
            self.0.replica.catalogue.pool_queues(name).await
        };
        timeout(limits::HEALTH_DEADLINE, count).await.ok()?.ok()
    }

    async fn used_by_queues(&self, name: &PoolName) -> Error {
        in_use(name, self.count_queues_in(name).await.map_or_else(|| QUEUES.into(), users))
    }

    /// Whether a queue is in a pool, or a deleted queue has left data there.
    pub(crate) async fn is_pool_used(&self, name: &PoolName) -> Result<bool, Error> {
        for slot in Slot::all() {
            if self.0.replica.catalogue.slot_uses_pool(slot, name).await? != PoolUsers::Nothing {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the users of a pool that takes no new queues, once the data of deleted queues is removed from it, unless
    /// that is abandoned. Waits for that at most [`limits::POOL_CLEANING`]: the removal begins with the answer to the
    /// deletion of the queue.
    async fn await_cleaned(&self, name: &PoolName, leftovers: Leftovers) -> Result<PoolUsers, Error> {
        let (end, mut pause) = (Instant::now() + limits::POOL_CLEANING.0, limits::POOL_CLEANING.1);
        let mut slots: Vec<Slot> = Slot::all().collect();
        loop {
            // A slot in which nothing uses the pool stays so.
            let mut left = Vec::new();
            for slot in slots {
                match self.0.replica.catalogue.slot_uses_pool(slot, name).await? {
                    PoolUsers::Nothing => {}
                    PoolUsers::Remains => left.push(slot),
                    PoolUsers::Queues => return Ok(PoolUsers::Queues),
                }
            }
            if left.is_empty() {
                return Ok(PoolUsers::Nothing);
            }
            if leftovers == Leftovers::Abandoned || Instant::now() >= end {
                return Ok(PoolUsers::Remains);
            }
            sleep(pause).await;
            (slots, pause) = (left, pause * 2);
        }
    }

    /// Removes the mark. Another caller may have removed it already.
    pub(crate) async fn reopen_to_queues(&self, closed: &PoolEntry) -> Result<(), Error> {
        let pool = Pool { closing: false, ..closed.pool.clone() };
        if let Some(entry) = self.0.replica.catalogue.pool_set(closed, &pool).await? {
            self.0.stores.update(entry);
        }
        Ok(())
    }

    /// Removes marks that a killed process has left. A deletion still in progress then finds the record changed, and
    /// starts again.
    pub(crate) async fn reopen_marked_pools(&self) {
        for pool in self.0.stores.all() {
            if pool.entry.pool.closing
                && let Err(error) = self.reopen_to_queues(&pool.entry).await
            {
                warn_left_closed(&pool.entry.name, &error);
            }
        }
    }
}

fn warn_left_closed(pool: &PoolName, error: &Error) {
    warn!(%pool, error = %error.detail(), "pool left closed to new queues");
}

/// Names the queues that use a pool. An operator looks for those of users among the queues, and for the others among
/// the subscriptions.
fn users(PoolQueues { all, of_subscriptions }: PoolQueues) -> Cow<'static, str> {
    let of_subscriptions = match (all, of_subscriptions) {
        (0, _) => return QUEUES.into(),
        (_, 0) => String::new(),
        (1, _) => " of a subscription".to_owned(),
        (all, some) if all == some => " of subscriptions".to_owned(),
        (_, 1) => ", 1 of them of a subscription,".to_owned(),
        (_, some) => format!(", {some} of them of subscriptions,"),
    };
    let (queues, are) = if all == 1 { ("queue", "is") } else { ("queues", "are") };
    format!("{all} {queues}{of_subscriptions} {are} in it, with messages or without").into()
}

pub(crate) fn in_use(name: &PoolName, by: Cow<'static, str>) -> Error {
    Error::InUse { resource: Resource::Pool, name: name.to_string(), by, is_passing: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_of_a_pool_tell_queues_of_subscriptions_apart() {
        let said = |all, of_subscriptions| users(PoolQueues { all, of_subscriptions }).into_owned();
        assert_eq!(said(0, 0), QUEUES);
        assert_eq!(said(1, 0), "1 queue is in it, with messages or without");
        assert_eq!(said(1, 1), "1 queue of a subscription is in it, with messages or without");
        assert_eq!(said(2, 0), "2 queues are in it, with messages or without");
        assert_eq!(said(2, 2), "2 queues of subscriptions are in it, with messages or without");
        assert_eq!(said(3, 1), "3 queues, 1 of them of a subscription, are in it, with messages or without");
        assert_eq!(said(5, 2), "5 queues, 2 of them of subscriptions, are in it, with messages or without");
    }
}
