//! Migrations of queues to other pools while they are used (P6): begin, turn round, end, and how far one is. The
//! copying is in [`crate::migration::copy_phase`].
//!
//! ```text
//! [old] ──one commit──▶ [old, new] ──nothing left in old, old emptied, one commit──▶ [new]
//!                        │     ▲
//!                    cancel: [new, old], which ends with [old]
//! ```
//!
//! The record of the queue states first where it will lie, and memory does as it states then: what is new moves to the
//! newer pool, what changes a message to both, and both are read as one. So a crash anywhere is followed by an opening
//! that finds all of it. No caller waits for any of this but who claims a message in the moment in which it is copied.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::timeout;

use angarium_catalogue::{FlavorEntry, MigrationRecord, Placement, QueueEntry, Schema};
use angarium_core::attributes::Attributes;
use angarium_core::error::{Error, InvalidPart, Part, Resource};
use angarium_core::names::{PoolName, QueueRef};
use angarium_core::queue::Metadata;
use angarium_core::time::Timestamp;
use angarium_storage::DropResult;

use crate::limits;
use crate::migration::Migrations;
use crate::open_queues::lookup::{PlacedQueue, no_queue};
use crate::slot::migration::{LastWrites, Migration, MovingQueue};
use crate::slot::queue_handle::QueueHandle;
use crate::slot::slot_queue::SlotQueue;
use crate::stores::table::{CHANGE_TRIES, OpenPool};
use crate::writer::pending::settled;

/// How far a migration is.
#[derive(Clone, Debug)]
pub struct MigrationView {
    /// The pool that the queue leaves.
    pub from: PoolName,
    /// The pool that it moves to, which takes what is new.
    pub to: PoolName,
    /// Whether it was canceled, and returns to where it came from.
    pub is_canceled: bool,
    /// When it began, or was canceled.
    pub started: Timestamp,
    /// Messages a second that are copied at most.
    pub rate: Option<u32>,
    /// Messages that were copied since then, or since another replica continued it.
    pub copied: u64,
    /// Messages that are left in the pool that the queue leaves, claimed ones too.
    pub left: u64,
}

/// Where a queue shall go.
#[derive(Clone, Debug)]
pub struct Destination {
    /// The pool.
    pub pool: PoolName,
    /// Messages a second that are copied at most.
    pub rate: Option<u32>,
}

impl Destination {
    /// Checks a rate: 1 to a million messages a second.
    pub fn new(pool: PoolName, rate: Option<i64>) -> Result<Self, Error> {
        Ok(Self { pool, rate: Self::check_rate(rate)? })
    }

    /// The rate alone.
    pub fn check_rate(rate: Option<i64>) -> Result<Option<u32>, Error> {
        let (least, most) = limits::MIGRATION_RATE;
        let check = |rate: i64| u32::try_from(rate).ok().filter(|rate| (least..=most).contains(rate));
        let wrong =
            || Error::invalid(InvalidPart::Limit, "rate", format!("it is not between {least} and {most}"));
        rate.map(|rate| check(rate).ok_or_else(wrong)).transpose()
    }
}

impl Migrations {
    /// Begins to move a queue to another pool; it is used on meanwhile. What follows happens by itself, no matter which
    /// caller serves the queue by then. One that moves already, or is in that pool, is a conflict.
    pub async fn queue_migrate(&self, at: &QueueRef, to: Destination) -> Result<MigrationView, Error> {
        let (migrations, at) = (self.clone(), at.clone());
        let migrate = async move {
            let queue = migrations.0.slots.queue(&at).await?;
            // Held so that no caller opens, deletes or moves the queue meanwhile, and no migration ends.
            let _gate = queue.hold_gate().await;
            let begun = migrations.begin_migration(&queue, &to).await;
            migrations.0.slots.confirm_refusal(queue.slot(), begun)?;
            migrations.migration_of(&queue).await.map_err(looked_too_late)
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

    /// Replaces the record of an open queue, which is in one pool, by this one that puts it into another pool too, and
    /// begins to copy. It can be taken there if [`check_takes`] reports it. False when the record of the queue, of the
    /// pool or of the flavor that chose it is not as it was read.
    pub(crate) async fn commit_migration(
        &self,
        queue: &SlotQueue,
        mut entry: QueueEntry,
        pool: &OpenPool,
        flavor: Option<&FlavorEntry>,
        rate: Option<u32>,
    ) -> Result<bool, Error> {
        let (slot, at) = (queue.slot(), queue.at());
        let to = pool.entry.name.clone();
        self.0.replica.catalogue.schema_reach(Schema::MIGRATIONS).await?;
        slot.open_writer(&to, pool).await?;
        let record =
            MigrationRecord { started: self.0.replica.clock.now().as_millis(), rate, is_canceled: false };
        let placement = Placement { pool: to, older: Some(entry.record.placement()?.pool) };
        entry.record.place(&placement, Some(record));
        let placed = self.0.replica.catalogue.queue_place(&slot.owned, at, &entry, &pool.entry, flavor).await;
        let is_placed = slot.note_placed(placed)?;
        if is_placed {
            queue.with_id(entry.record.id).follow(placement, Some(record));
        }
        Ok(is_placed)
    }

    /// How far the migration of a queue is.
    pub async fn migration_get(&self, at: &QueueRef) -> Result<MigrationView, Error> {
        let queue = self.0.slots.queue(at).await?;
        let found = match self.0.open_queues.open(&queue).await {
            Ok(Some(_)) => self.migration_of(&queue).await,
            Ok(None) => Err(no_queue(at)),
            Err(error) => Err(error),
        };
        self.0.slots.confirm(queue.slot(), found)
    }

    /// As `migration_get`, of a queue that is open.
    async fn migration_of(&self, queue: &SlotQueue) -> Result<MigrationView, Error> {
        let at = queue.at();
        let queue = queue.handle().ok_or_else(|| no_queue(at))?;
        let moving = queue.moving().ok_or_else(|| no_queue(at))?;
        let MovingQueue { id, from, to, migration } = moving.ok_or_else(|| not_moving(at))?;
        let store = self.0.stores.pool(&from)?.store()?;
        let left = store.totals(id).await.map_err(|error| store.failed(error))?.messages;
        let MigrationRecord { started, rate, is_canceled } = migration.record;
        let copied = migration.copied.load(Ordering::Relaxed);
        Ok(MigrationView {
            from,
            to,
            is_canceled,
            started: Timestamp::from_millis(started),
            rate,
            copied,
            left,
        })
    }

    /// Turns a migration round: what is new moves to the pool again that the queue came from, and so does what went
    /// over. One that was canceled already continues. While that pool does not have the queue's flavor it is a
    /// conflict.
    pub async fn migration_cancel(&self, at: &QueueRef) -> Result<MigrationView, Error> {
        let (migrations, at) = (self.clone(), at.clone());
        let cancel = async move {
            let queue = migrations.0.slots.queue(&at).await?;
            let _gate = queue.hold_gate().await;
            let turned = migrations.cancel_gated(&queue).await;
            migrations.0.slots.confirm_refusal(queue.slot(), turned)?;
            migrations.migration_of(&queue).await.map_err(looked_too_late)
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

    /// Replaces the record of an open queue that moves by this one that names its two pools the other way round, and does
    /// so. False when the record of the queue, of the pool that it left or of a flavor is not as it was read.
    pub(crate) async fn reverse_migration(
        &self,
        queue: &SlotQueue,
        mut entry: QueueEntry,
        back: &OpenPool,
        flavor: Option<&FlavorEntry>,
    ) -> Result<bool, Error> {
        let (slot, at) = (queue.slot(), queue.at());
        let queue = queue.with_id(entry.record.id);
        let migration = queue.migration().ok_or_else(|| not_moving(at))?;
        // Nothing is in both pools while this is held, and nothing is copied once it reports it.
        let ended = timeout(limits::CLOSE_DEADLINE, migration.step.lock()).await;
        let mut ended = ended
            .map_err(|_| Error::unavailable(Part::Storage, "messages are on their way to another pool"))?;
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
            *ended = true;
            queue.follow(placement, Some(record));
        }
        Ok(is_placed)
    }

    /// Ends a migration: the pool that the queue leaves has no message of it. What else it has is first, so that the
    /// queue can come back into an empty place; a crash in between leaves a migration that ends at the next opening.
    pub(crate) async fn finish_migration(
        &self,
        queue: &QueueHandle,
        migration: &Arc<Migration>,
    ) -> Result<(), Error> {
        let (slot, at, named) = (queue.slot(), queue.at(), queue.in_slot());
        let _gate = named.hold_gate().await;
        let mut ended = migration.step.lock().await;
        let PlacedQueue { mut entry, placement } = match self.0.open_queues.placed(&named).await {
            Ok(placed) if placed.entry.record.id == queue.id() && !*ended => placed,
            Ok(_) | Err(Error::NotFound { .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        let Some(older) = placement.older.clone() else { return Ok(()) };
        let LastWrites { left, arrived } = queue.begin_finish()?;
        let emptied = async {
            settled(left).await?;
            settled(arrived).await?;
            self.empty_older(queue, &older).await
        };
        let placed = match emptied.await {
            Ok(()) => {
                entry.record.place(&Placement::one(placement.pool), None);
                let placed = self.0.replica.catalogue.queue_set(&slot.owned, at, &entry).await;
                slot.note_placed(placed)
            }
            Err(error) => Err(error),
        };
        match placed {
            Ok(true) => {
                if queue.end_migration().is_some() {
                    *ended = true;
                }
                Ok(())
            }
            Ok(false) | Err(_) => match queue.stay_in(older) {
                Some(()) => placed.map(|_| ()),
                None => Ok(()),
            },
        }
    }

    /// Removes what a queue has in the pool that it leaves beside messages, of which there are none.
    async fn empty_older(&self, queue: &QueueHandle, older: &PoolName) -> Result<(), Error> {
        let (slot, id) = (queue.slot(), queue.id());
        let store = self.0.stores.pool(older)?.store()?;
        loop {
            let dropped = store.drop_queue(slot.owned.slot, slot.epoch, id, limits::DROPPED_TURN).await;
            match dropped.map_err(|error| store.failed(error))? {
                DropResult::Done => return Ok(()),
                DropResult::More => tokio::task::yield_now().await,
            }
        }
    }

    /// The pool that a queue is to go to, if it can be used for that.
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

/// Whether a pool takes a queue of these attributes now. Its flavor is not looked at.
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

/// What becomes of a failed look at what was just written: its caller must not take it for undone.
fn looked_too_late(error: Error) -> Error {
    match error {
        Error::NotFound { .. } => Error::unknown(Part::Coordination, error),
        error => error.into_unknown(),
    }
}

fn not_moving(at: &QueueRef) -> Error {
    Error::NotFound { resource: Resource::Migration, name: at.name.to_string() }
}
