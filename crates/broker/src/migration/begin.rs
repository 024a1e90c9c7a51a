//! Migrations of queues to other pools while clients use them (P6): begin, cancel, end, progress. The copying is in
//! [`crate::migration::copy_phase`].
//!
//! ```text
//! [old] ──one commit──▶ [old, new] ──nothing left in old, old emptied, one commit──▶ [new]
//!                        │     ▲
//!                    cancel: [new, old], which ends with [old]
//! ```
//!
//! The queues of its subscriptions migrate with it: their records name no pools of their own, so one commit begins or ends the
//! migration of all of them ([`crate::slot::queue_family`]).
//!
//! The record of the queue changes first, and memory follows it: new messages go to the newer pool, changes of messages
//! go to both, and reads combine both. So the opening after a crash at any point finds all of it. Only a claim of a
//! message that is just being copied waits for the migration.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::MutexGuard;
use tokio::time::timeout;

use angarium_catalogue::{EndedMigration, FlavorEntry, MigrationRecord, Placement, QueueEntry, Schema};
use angarium_core::attributes::Attributes;
use angarium_core::error::{Error, InvalidPart, Part, Resource};
use angarium_core::ids::QueueId;
use angarium_core::mutation::{Mutation, is_on};
use angarium_core::names::{PoolName, QueueRef};
use angarium_core::queue::Metadata;
use angarium_core::time::Timestamp;
use angarium_storage::DropResult;

use crate::limits;
use crate::migration::Migrations;
use crate::open_queues::lookup::{PlacedQueue, no_queue};
use crate::slot::migration::{Migration, MovingQueue};
use crate::slot::queue_family::QueueFamily;
use crate::slot::queue_handle::{QueueHandle, closed};
use crate::slot::slot_queue::SlotQueue;
use crate::slot::state::Slot;
use crate::stores::table::{CHANGE_TRIES, OpenPool};
use crate::writer::pending::settled;

/// Progress of a migration.
#[derive(Clone, Debug)]
pub struct MigrationView {
    /// The pool that the queue leaves.
    pub from: PoolName,
    /// The pool that it moves to, which takes new messages.
    pub to: PoolName,
    /// Whether it was canceled, and the queue returns to its former pool.
    pub is_canceled: bool,
    /// When it began, or was canceled.
    pub started: Timestamp,
    /// Maximum of messages copied per second.
    pub rate: Option<u32>,
    /// Messages copied since it began or was canceled, or since another replica continued it; with the ones of the queue's
    /// subscriptions.
    pub copied: u64,
    /// Messages left in the pool that the queue leaves, with claimed ones and the ones of the queue's subscriptions.
    pub left: u64,
}

/// The destination of a migration.
#[derive(Clone, Debug)]
pub struct Destination {
    /// The pool.
    pub pool: PoolName,
    /// Maximum of messages copied per second.
    pub rate: Option<u32>,
}

impl Destination {
    /// Checks the rate: 1 to a million messages per second.
    pub fn new(pool: PoolName, rate: Option<i64>) -> Result<Self, Error> {
        Ok(Self { pool, rate: Self::check_rate(rate)? })
    }

    /// Checks a rate.
    pub fn check_rate(rate: Option<i64>) -> Result<Option<u32>, Error> {
        let (least, most) = limits::MIGRATION_RATE;
        let check = |rate: i64| u32::try_from(rate).ok().filter(|rate| (least..=most).contains(rate));
        let wrong =
            || Error::invalid(InvalidPart::Limit, "rate", format!("it is not between {least} and {most}"));
        rate.map(|rate| check(rate).ok_or_else(wrong)).transpose()
    }
}

impl Migrations {
    /// Begins to migrate a queue to another pool. Clients use it meanwhile. The migration continues by itself, also
    /// with a later owner of the queue. A queue that is being migrated already, or that is in that pool, is a conflict.
    pub async fn queue_migrate(&self, at: &QueueRef, to: Destination) -> Result<MigrationView, Error> {
        let (migrations, at) = (self.clone(), at.clone());
        let migrate = async move {
            let queue = migrations.0.slots.queue(&at).await?;
            // Held so that no caller opens, deletes or migrates the queue meanwhile, and no migration ends.
            let _gate = queue.hold_gate().await;
            let begun = migrations.begin_migration(&queue, &to).await;
            migrations.0.slots.confirm_refusal(queue.slot(), begun)?;
            migrations
                .migration_of(&queue.handle().ok_or_else(|| closed(&at))?)
                .await
                .map_err(Error::after_change)
        };
        self.0.replica.carry_out(migrate).await
    }

    async fn begin_migration(&self, queue: &SlotQueue, to: &Destination) -> Result<(), Error> {
        for _ in 0..CHANGE_TRIES {
            let PlacedQueue { entry, placement } = self.0.open_queues.placed(queue).await?;
            check_still(&placement, &to.pool)?;
            let pool = self.check_destination(queue, &to.pool).await?;
            if self.commit_migration(queue, entry, &pool, None, to.rate).await? {
                return Ok(());
            }
            // The record of the pool has changed.
            self.0.pools.reload_pools().await?;
        }
        Err(Error::unavailable(Part::Coordination, "the pool changed each time"))
    }

    /// Replaces the record of an open queue in one pool by one that adds another pool, and begins to copy. The caller
    /// has checked the pool with [`check_takes`]. Returns false when the record of the queue, of the pool or of the
    /// flavor that chose it has changed since it was read.
    pub(crate) async fn commit_migration(
        &self,
        queue: &SlotQueue,
        mut entry: QueueEntry,
        pool: &OpenPool,
        flavor: Option<&FlavorEntry>,
        rate: Option<u32>,
    ) -> Result<bool, Error> {
        let (slot, at) = (queue.slot(), queue.at());
        check_source(&entry)?;
        let to = pool.entry.name.clone();
        let form =
            if entry.record.has_subscriptions { Schema::SUBSCRIBED_MIGRATIONS } else { Schema::MIGRATIONS };
        self.0.replica.catalogue.schema_reach(form).await?;
        slot.open_writer(&to, pool).await?;
        let _placements = queue.hold_placements().await?;
        let family = family_of(&queue.with_id(entry.record.id))?;
        // The forced removal of a pool leaves its messages of a queue that keeps its id, and a pool of the same storage
        // may have been registered since.
        for id in family.ids() {
            self.empty(slot, id, &to).await?;
        }
        let record =
            MigrationRecord { started: self.0.replica.clock.now().as_millis(), rate, is_canceled: false };
        let placement = Placement { pool: to, older: Some(entry.record.placement()?.pool) };
        entry.record.place(&placement, Some(record));
        let placed = self.0.replica.catalogue.queue_place(&slot.owned, at, &entry, &pool.entry, flavor).await;
        let is_placed = slot.note_placed(placed)?;
        if is_placed {
            family.follow(&placement, record);
        }
        Ok(is_placed)
    }

    /// Returns the progress of the migration of a queue.
    pub async fn migration_get(&self, at: &QueueRef) -> Result<MigrationView, Error> {
        let queue = self.0.slots.queue(at).await?;
        let found = match self.0.open_queues.open(&queue).await {
            Ok(Some(open)) => self.migration_of(&open).await,
            Ok(None) => Err(no_queue(at)),
            Err(error) => Err(error),
        };
        self.0.slots.confirm(queue.slot(), found)
    }

    /// As `migration_get`, of an open queue.
    async fn migration_of(&self, queue: &QueueHandle) -> Result<MigrationView, Error> {
        // One that was closed meanwhile may still move.
        let moving = queue.moving().ok_or_else(|| queue.closed())?;
        let MovingQueue { id, to, migration } = moving.ok_or_else(|| not_moving(queue.at()))?;
        let store = self.0.stores.pool(&migration.from)?.store()?;
        let total = async |id| store.totals(id).await.map_err(|error| store.failed(error));
        let mut left = total(id).await?.messages;
        let MigrationRecord { started, rate, is_canceled } = migration.record;
        let mut copied = migration.copied.load(Ordering::Relaxed);
        for copy in family_of(queue)?.copies() {
            left += total(copy.id()).await?.messages;
            copied += copy.migration().map_or(0, |own| own.copied.load(Ordering::Relaxed));
        }
        Ok(MigrationView {
            from: migration.from.clone(),
            to,
            is_canceled,
            started: Timestamp::from_millis(started),
            rate,
            copied,
            left,
        })
    }

    /// Reverses a migration: new messages go to the former pool again, and the copied ones return to it. A migration
    /// that was canceled already continues. While the former pool does not have the queue's flavor it is a conflict.
    pub async fn migration_cancel(&self, at: &QueueRef) -> Result<MigrationView, Error> {
        let (migrations, at) = (self.clone(), at.clone());
        let cancel = async move {
            let queue = migrations.0.slots.queue(&at).await?;
            let _gate = queue.hold_gate().await;
            let turned = migrations.cancel_gated(&queue).await;
            migrations.0.slots.confirm_refusal(queue.slot(), turned)?;
            migrations
                .migration_of(&queue.handle().ok_or_else(|| closed(&at))?)
                .await
                .map_err(Error::after_change)
        };
        self.0.replica.carry_out(cancel).await
    }

    async fn cancel_gated(&self, queue: &SlotQueue) -> Result<(), Error> {
        for _ in 0..CHANGE_TRIES {
            let PlacedQueue { entry, placement } = self.0.open_queues.placed(queue).await?;
            let back = placement.older.ok_or_else(|| not_moving(queue.at()))?;
            if entry.record.migration.unwrap_or_default().is_canceled {
                return Ok(());
            }
            let pool = self.0.stores.pool(&back)?;
            let metadata = Metadata::stored(entry.record.metadata.clone())?;
            if pool.entry.pool.flavor != metadata.attributes().flavor {
                let why =
                    format!("pool {back} does not have the flavor of the queue, which would return there");
                return Err(Error::Conflict(why));
            }
            if self.reverse_migration(queue, entry, &pool, None).await? {
                return Ok(());
            }
            self.0.pools.reload_pools().await?;
        }
        Err(Error::unavailable(Part::Coordination, "the queue's record changed each time"))
    }

    /// Replaces the record of an open queue under migration by one with its two pools exchanged, and reverses the
    /// copying. Returns false when the record of the queue, of the pool that it left or of a flavor has changed since
    /// it was read.
    pub(crate) async fn reverse_migration(
        &self,
        queue: &SlotQueue,
        mut entry: QueueEntry,
        back: &OpenPool,
        flavor: Option<&FlavorEntry>,
    ) -> Result<bool, Error> {
        let (slot, at) = (queue.slot(), queue.at());
        let source = queue.with_id(entry.record.id);
        let migration = source.migration().ok_or_else(|| not_moving(at))?;
        // An opening removes what a crash has left in both pools, before these are exchanged.
        if !self.open_copies(&source).await? {
            self.0.open_queues.read_subscriptions(&source).await?;
        }
        let _placements = queue.hold_placements().await?;
        let family = family_of(&source)?;
        let migrations = family.migrations().ok_or_else(|| source.closed())?;
        // While these locks are held no message is in both pools. Once they hold true, the former copy phase copies nothing
        // more.
        let held = timeout(limits::CLOSE_DEADLINE, hold_steps(&migrations)).await;
        let mut ended =
            held.map_err(|_| Error::unavailable(Part::Storage, "messages are on their way to another pool"))?;
        // The pool that the queue left may still remove it, until it is fenced again.
        slot.check_served()?;
        let record = MigrationRecord {
            started: self.0.replica.clock.now().as_millis(),
            is_canceled: !migration.record.is_canceled,
            ..migration.record
        };
        let left = entry.record.placement()?.pool;
        let placement = Placement { pool: back.entry.name.clone(), older: Some(left) };
        entry.record.place(&placement, Some(record));
        let placed = self.0.replica.catalogue.queue_place(&slot.owned, at, &entry, &back.entry, flavor).await;
        let is_placed = slot.note_placed(placed)?;
        if is_placed {
            ended.iter_mut().for_each(|ended| **ended = true);
            family.follow(&placement, record);
        }
        Ok(is_placed)
    }

    /// Ends a migration: the pool that the queue leaves has no message of it, nor of its subscriptions. Their other data in
    /// that pool is removed first, so that the queue can return to an empty pool. After a crash in between, the next opening
    /// of the queue ends the migration. Returns false when the queue of a subscription is still to be copied.
    pub(crate) async fn finish_migration(
        &self,
        queue: &QueueHandle,
        migration: &Arc<Migration>,
    ) -> Result<bool, Error> {
        let (slot, at, named) = (queue.slot(), queue.at(), queue.in_slot());
        let _gate = named.hold_gate().await;
        let PlacedQueue { mut entry, placement } = match self.0.open_queues.placed(&named).await {
            Ok(placed) if placed.entry.record.id == queue.id() => placed,
            Ok(_) | Err(Error::NotFound { .. }) => return Ok(true),
            Err(error) => return Err(error),
        };
        let Some(older) = placement.older.clone() else { return Ok(true) };
        let _placements = named.hold_placements().await?;
        let family = family_of(queue)?;
        let Some(migrations) = family.migrations().filter(|_| family.copies_have_left()) else {
            return Ok(false);
        };
        if !migrations.iter().any(|known| Arc::ptr_eq(known, migration)) {
            return Ok(true);
        }
        let mut ended = hold_steps(&migrations).await;
        // The record may have the two pools exchanged, by a reversal of which memory has not learned: then the slot is
        // lost, and the older pool is not the one that was found empty.
        slot.check_served()?;
        let last = family.begin_finish()?;
        let emptied = async {
            for outcome in last {
                settled(outcome).await?;
            }
            // No messages are left there.
            for id in family.ids() {
                self.empty(slot, id, &older).await?;
            }
            Ok(())
        };
        let placed = match emptied.await {
            Ok(()) => {
                entry.record.place(&Placement::one(placement.pool), None);
                let ended = self.0.replica.clock.now().as_millis();
                entry.record.migrated = Some(EndedMigration { ended, from: older.to_string() });
                let placed = self.0.replica.catalogue.queue_set(&slot.owned, at, &entry).await;
                slot.note_placed(placed)
            }
            Err(error) => Err(error),
        };
        match placed {
            Ok(true) => {
                family.end_migration();
                ended.iter_mut().for_each(|ended| **ended = true);
            }
            Ok(false) | Err(_) => family.stay_in(&older),
        }
        placed.map(|_| true)
    }

    /// Removes all data of a queue from a pool that has no part in it, or none any more. A removal without an answer may
    /// still be carried out, and would take messages that are written to the pool later: then the slot is lost, and its
    /// next epoch fences the pool first.
    async fn empty(&self, slot: &Slot, id: QueueId, pool: &PoolName) -> Result<(), Error> {
        let store = self.0.stores.pool(pool)?.store()?;
        loop {
            let dropped = store.drop_queue(slot.owned.slot, slot.epoch, id, limits::dropped_turn()).await;
            if dropped.as_ref().is_err_and(|error| !error.nothing_written())
                && !is_on(Mutation::KeepSlotAfterLateDrop)
            {
                slot.lose("a queue may be removed late from a pool");
            }
            match dropped.map_err(|error| store.failed(error))? {
                DropResult::Done => return Ok(()),
                DropResult::More => tokio::task::yield_now().await,
            }
        }
    }

    /// Returns the destination pool of a migration, if it takes the queue.
    async fn check_destination(&self, queue: &SlotQueue, name: &PoolName) -> Result<Arc<OpenPool>, Error> {
        let unknown = || Error::invalid(InvalidPart::Body, "pool", format!("pool {name} does not exist"));
        if self.0.stores.get(name).is_none() {
            self.0.pools.reload_pools().await?;
        }
        let pool = self.0.stores.get(name).ok_or_else(unknown)?;
        let attributes = queue.handle().and_then(|queue| queue.attributes()).unwrap_or_default();
        if pool.entry.pool.flavor != attributes.flavor {
            let why = format!("pool {name} does not have the flavor of the queue");
            return Err(Error::invalid(InvalidPart::Limit, "pool", why));
        }
        check_takes(&pool, &attributes)?;
        Ok(pool)
    }
}

/// Checks that a pool takes a queue of these attributes now, apart from the flavor.
pub(crate) fn check_takes(pool: &OpenPool, attributes: &Attributes) -> Result<(), Error> {
    let name = &pool.entry.name;
    if pool.entry.pool.closing {
        return Err(Error::unavailable(Part::Pool(name.clone()), "another request may be deleting it"));
    }
    let store = pool.store()?;
    store.check_room().map_err(|error| store.failed(error))?;
    if attributes.allow(store.reach()) { Ok(()) } else { Err(Error::NotDurable(name.clone())) }
}

fn check_still(placement: &Placement, to: &PoolName) -> Result<(), Error> {
    if let Some(older) = &placement.older {
        let pool = &placement.pool;
        return Err(Error::Conflict(format!("pool: the queue moves from pool {older} to pool {pool}")));
    }
    if placement.pool == *to {
        return Err(Error::Conflict(format!("pool: the queue is in pool {to}")));
    }
    Ok(())
}

fn not_moving(at: &QueueRef) -> Error {
    Error::NotFound { resource: Resource::Migration, name: at.name.to_string() }
}

/// Checks that a queue is that of no subscription.
fn check_source(entry: &QueueEntry) -> Result<(), Error> {
    if entry.record.subscription.is_some() {
        let why = "a subscription is in the pool of its queue, and moves with it";
        return Err(Error::Conflict(why.into()));
    }
    Ok(())
}

/// The family of a queue that is open.
fn family_of(queue: &QueueHandle) -> Result<QueueFamily, Error> {
    QueueFamily::of(queue).ok_or_else(|| queue.closed())
}

/// Waits until none of these migrations is copying a batch, and keeps it so.
async fn hold_steps(migrations: &[Arc<Migration>]) -> Vec<MutexGuard<'_, bool>> {
    let mut held = Vec::with_capacity(migrations.len());
    for migration in migrations {
        held.push(migration.step.lock().await);
    }
    held
}
