//! Opening the pools of a queue, and removing messages that a crash in the copy phase left in two of them (P6).

use std::sync::Arc;

use tokio_util::task::TaskTracker;

use angarium_catalogue::{Placement, QueueRecord};
use angarium_core::error::{Error, Part};
use angarium_core::ids::MessageId;
use angarium_core::mutation::{Mutation, is_on};
use angarium_core::names::PoolName;

use crate::open_queues::OpenQueues;
use crate::slot::migration::Migration;
use crate::slot::queue_handle::QueueHandle;
use crate::slot::slot_queue::SlotQueue;
use crate::writer::notes::COPIED_KIND;
use crate::writer::pending::settled;

/// The pools of a queue that is being opened. Each has a slot writer.
pub(crate) struct OpenedPools {
    pub(crate) placement: Placement,
    /// The migration of the queue, if it is in two pools.
    pub(crate) migration: Option<Arc<Migration>>,
}

impl OpenQueues {
    /// Opens the pools of a closed queue, and returns its placement and its migration. The caller holds its gate and
    /// those of its pools.
    pub(crate) async fn open_pools(
        &self,
        queue: &SlotQueue,
        record: &QueueRecord,
    ) -> Result<OpenedPools, Error> {
        let placement = record.placement()?;
        for name in placement.pools() {
            if self.0.stores.is_lost(name) {
                return Err(Error::unavailable(Part::Pool(name.clone()), "it is being removed"));
            }
            let pool = self.0.pools.pool_of_record(name).await?;
            queue.slot().open_writer(name, &pool).await?;
        }
        self.settle_copied(&queue.with_id(record.id), &placement).await?;
        let moving = |from: &PoolName| {
            Migration::new(from.clone(), record.migration.unwrap_or_default(), TaskTracker::new())
        };
        let migration = placement.older.as_ref().map(moving);
        Ok(OpenedPools { placement, migration })
    }

    /// Removes from the older pool the messages that a crash has left in both pools. Both are fenced.
    async fn settle_copied(&self, queue: &QueueHandle, placement: &Placement) -> Result<(), Error> {
        let id = queue.id();
        let Some(older_name) = &placement.older else { return Ok(()) };
        let (older, newer) =
            (self.0.stores.pool(older_name)?.store()?, self.0.stores.pool(&placement.pool)?.store()?);
        let notes = newer.notes(id, COPIED_KIND, None, 1).await.map_err(|error| newer.failed(error))?;
        let Some(note) = notes.first() else { return Ok(()) };
        let ids = note.value.chunks_exact(16).filter_map(|id| id.try_into().ok());
        let ids: Vec<MessageId> = ids.map(MessageId::from_bytes).collect();
        let left = older.get(id, &ids).await.map_err(|error| older.failed(error))?;
        let left: Vec<MessageId> = left.iter().map(|message| message.header.id).collect();
        let both = newer.get(id, &left).await.map_err(|error| newer.failed(error))?;
        let both: Vec<MessageId> = both.iter().map(|message| message.header.id).collect();
        if both.is_empty() || is_on(Mutation::KeepTwoCopies) {
            return Ok(());
        }
        match queue.slot().remove_unopened(older_name, id, both) {
            Some(removal) => settled(removal).await,
            None => Err(older.failed(angarium_storage::StoreError::NotSent("it is not open".to_owned()))),
        }
    }
}
