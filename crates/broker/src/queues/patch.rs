//! Changing the metadata of a queue.

use angarium_catalogue::QueueRecord;
use angarium_core::attributes::{self, Attributes};
use angarium_core::error::{Error, InvalidPart, Part};
use angarium_core::limits::Limits;
use angarium_core::names::QueueRef;
use angarium_core::patch::Change;
use angarium_core::queue::Metadata;

use crate::open_queues::lookup::no_queue;
use crate::queues::Queues;
use crate::slot::slot_queue::SlotQueue;

/// Attempts of a change when the record changes meanwhile.
const TRIES: usize = 4;

impl Queues {
    /// Changes the metadata of a queue, and returns the result. All changes are durable when this returns, or none is
    /// made. With a new flavor that its pool does not have, the queue begins to migrate to a pool of that flavor.
    pub async fn queue_patch(&self, at: &QueueRef, changes: Vec<Change>) -> Result<Metadata, Error> {
        let limits = self.0.replica.limits.clone();
        self.queue_patch_within(at, changes, limits).await
    }

    /// As `queue_patch`, for a caller with bounds of its own for the new values.
    pub async fn queue_patch_within(
        &self,
        at: &QueueRef,
        changes: Vec<Change>,
        limits: Limits,
    ) -> Result<Metadata, Error> {
        let (queues, at) = (self.clone(), at.clone());
        let patch = async move {
            let queue = queues.0.slots.queue(&at).await?;
            // Held so that no caller opens the queue with its former metadata.
            let _gate = queue.hold_gate().await;
            let patched = queues.patch_gated(&queue, &changes, &limits).await;
            queues.0.slots.confirm_refusal(queue.slot(), patched)
        };
        self.0.replica.carry_out(patch).await
    }

    async fn patch_gated(
        &self,
        queue: &SlotQueue,
        changes: &[Change],
        limits: &Limits,
    ) -> Result<Metadata, Error> {
        let (slot, at) = (queue.slot(), queue.at());
        for _ in 0..TRIES {
            let Some(mut entry) = queue.entry().await? else {
                self.0.open_queues.check_missing(queue).await?;
                return Err(no_queue(at));
            };
            let before = Metadata::stored(entry.record.metadata.clone())?;
            let (entry_id, old) = (entry.record.id, before.attributes().clone());
            let metadata = before.patched(changes, limits)?;
            metadata.attributes().check_for(&at.name)?;
            metadata.attributes().check_after(&old)?;
            if metadata.attributes().dead_letter_queue != old.dead_letter_queue {
                let (open_queues, field) = (&self.0.open_queues, attributes::DEAD_LETTER_QUEUE);
                open_queues.check_dead_letters(&at.project, metadata.attributes(), field).await?;
            }
            if metadata.attributes().durability != old.durability {
                self.check_durability(&entry.record, metadata.attributes()).await?;
            }
            entry.record.metadata = metadata.as_raw().to_owned();
            entry.record.modified = Some(self.0.replica.clock.now().as_millis());
            let is_set = if metadata.attributes().flavor == old.flavor {
                let set = self.0.replica.catalogue.queue_set(&slot.owned, at, &entry).await;
                slot.note_placed(set)?
            } else {
                self.change_flavor(queue, entry, &metadata).await?
            };
            if is_set {
                slot.set_attributes(at, entry_id, metadata.attributes());
                return Ok(metadata);
            }
        }
        Err(Error::unavailable(Part::Coordination, "the queue's record changed each time"))
    }

    /// Checks that the pools of a queue are as durable as its new attributes require (P11).
    async fn check_durability(&self, record: &QueueRecord, attributes: &Attributes) -> Result<(), Error> {
        for name in record.placement()?.pools() {
            let reach = self.0.pools.pool_of_record(name).await?.store()?.reach();
            if !attributes.allow(reach) {
                let why = format!("the pool of the queue only reaches {reach}");
                return Err(Error::invalid(InvalidPart::Limit, attributes::DURABILITY, why));
            }
        }
        Ok(())
    }
}
