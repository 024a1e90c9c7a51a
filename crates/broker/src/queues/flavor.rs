//! Change of the flavor of a queue, or its removal. The commit that changes the metadata also begins a migration to a
//! pool of the new flavor, so such a change never leaves a queue in a pool that its flavor does not have. Zaqar leaves
//! the messages behind in the former pool.

use std::sync::Arc;

use angarium_catalogue::{FlavorEntry, QueueEntry};
use angarium_core::error::Error;
use angarium_core::names::PoolName;
use angarium_core::queue::Metadata;

use crate::migration::begin::check_takes;
use crate::queues::Queues;
use crate::slot::slot_queue::SlotQueue;
use crate::stores::table::OpenPool;

impl Queues {
    /// Replaces the record of a queue by one whose metadata names another flavor than before. If the queue is in a pool
    /// of that flavor, or migrates to one, it stays or continues. If it is leaving such a pool, its migration is
    /// reversed. Otherwise it migrates to a pool that placement chooses; if it is being migrated already, that is a
    /// conflict. Nothing is written when no pool takes it.
    ///
    /// Returns false when the record of the queue, of the pool or of the flavor has changed since it was read. The
    /// caller holds the gate.
    pub(crate) async fn change_flavor(
        &self,
        queue: &SlotQueue,
        entry: QueueEntry,
        metadata: &Metadata,
    ) -> Result<bool, Error> {
        let (slot, at) = (queue.slot(), queue.at());
        let flavor = self.0.pools.flavor_of(metadata).await?;
        let placement = entry.record.placement()?;
        let is_set = if let Some(pool) = self.pool_of_flavor(&placement.pool, flavor.as_ref()).await? {
            let set = self
                .0
                .replica
                .catalogue
                .queue_place(&slot.owned, at, &entry, &pool.entry, flavor.as_ref())
                .await;
            slot.note_placed(set)?
        } else if let Some(older) = &placement.older {
            let Some(back) = self.pool_of_flavor(older, flavor.as_ref()).await? else {
                let to = &placement.pool;
                let why = format!(
                    "_flavor: the queue moves from pool {older} to pool {to}, neither of which has it"
                );
                return Err(Error::Conflict(why));
            };
            self.0.open_queues.open_gated(queue).await?;
            self.0.migrations.reverse_migration(queue, entry, &back, flavor.as_ref()).await?
        } else {
            let attributes = metadata.attributes();
            let pool = self.0.pools.place_again(at, attributes.flavor.as_ref(), attributes).await?;
            check_takes(&pool, attributes)?;
            self.0.open_queues.open_gated(queue).await?;
            self.0.migrations.commit_migration(queue, entry, &pool, flavor.as_ref(), None).await?
        };
        if !is_set {
            // The record of a pool may have changed.
            self.0.pools.reload_pools().await?;
        }
        Ok(is_set)
    }

    /// Returns a pool if it has this flavor or, for none, if it has no flavor.
    async fn pool_of_flavor(
        &self,
        name: &PoolName,
        flavor: Option<&FlavorEntry>,
    ) -> Result<Option<Arc<OpenPool>>, Error> {
        let pool = self.0.pools.pool_of_record(name).await?;
        let has = pool.entry.pool.flavor.as_ref() == flavor.map(|flavor| &flavor.name);
        Ok(has.then_some(pool))
    }
}
