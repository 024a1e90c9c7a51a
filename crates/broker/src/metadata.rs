//! Changing the metadata of a queue.

use std::sync::Arc;

use super::Broker;
use super::slot::Slot;
use angarium_catalogue::QueueRecord;
use angarium_core::attributes::{self, Attributes};
use angarium_core::error::{Error, InvalidPart, Part, Resource};
use angarium_core::limits::Limits;
use angarium_core::names::QueueRef;
use angarium_core::patch::Change;
use angarium_core::queue::Metadata;

/// How often a change looks again when the record changed under it.
const TRIES: usize = 4;

impl Broker {
    /// Changes the metadata of a queue, and returns what it is then. All changes are durable when this returns, or
    /// none is made. One of another flavor than that of its pool begins to move to a pool of that flavor.
    pub async fn queue_patch(&self, at: &QueueRef, changes: Vec<Change>) -> Result<Metadata, Error> {
        let limits = self.0.limits.clone();
        self.queue_patch_within(at, changes, limits).await
    }

    /// As [`Broker::queue_patch`], for a caller with bounds of its own for what is set.
    pub async fn queue_patch_within(
        &self,
        at: &QueueRef,
        changes: Vec<Change>,
        limits: Limits,
    ) -> Result<Metadata, Error> {
        let (broker, at) = (self.clone(), at.clone());
        let patch = async move {
            let slot = broker.slot(&at).await?;
            // Held so that no caller opens the queue with what it was before.
            let _gate = slot.queue_gates.hold(&at).await;
            let patched = broker.patch_gated(&slot, &at, &changes, &limits).await;
            broker.confirm_refusal(&slot, patched)
        };
        self.carry_out(patch).await
    }

    async fn patch_gated(
        &self,
        slot: &Arc<Slot>,
        at: &QueueRef,
        changes: &[Change],
        limits: &Limits,
    ) -> Result<Metadata, Error> {
        for _ in 0..TRIES {
            let Some(mut entry) = self.0.catalogue.queue_entry(&slot.owned, at).await? else {
                return Err(Error::NotFound { resource: Resource::Queue, name: at.name.to_string() });
            };
            let before = Metadata::stored(entry.record.metadata.clone())?;
            let (entry_id, old) = (entry.record.id, before.attributes().clone());
            let metadata = before.patched(changes, limits)?;
            metadata.attributes().check_for(&at.name)?;
            metadata.attributes().check_after(&old)?;
            if metadata.attributes().durability != old.durability {
                self.check_durability(&entry.record, metadata.attributes()).await?;
            }
            entry.record.metadata = metadata.as_raw().to_owned();
            entry.record.modified = Some(self.0.clock.now().as_millis());
            let is_set = match metadata.attributes().flavor == old.flavor {
                true => {
                    let set = self.0.catalogue.queue_set(&slot.owned, at, &entry).await;
                    self.note_placed(slot, set)?
                }
                false => self.change_flavor(slot, at, entry, &metadata).await?,
            };
            if is_set {
                let retention = metadata.attributes().retention(&self.0.limits);
                let mut state = slot.state.lock();
                state.resting.set_retention(entry_id, retention);
                if let Some(queue) = state.queues.get_mut(at) {
                    queue.attributes = metadata.attributes().clone();
                    queue.engine.set_retention(retention);
                }
                return Ok(metadata);
            }
        }
        Err(Error::unavailable(Part::Coordination, "the queue's record changed each time"))
    }

    /// Whether the pools of a queue are as durable as its attributes are to ask for (P11).
    async fn check_durability(&self, record: &QueueRecord, attributes: &Attributes) -> Result<(), Error> {
        for name in record.placement()?.pools() {
            let reach = self.pool_of_record(name).await?.store()?.reach();
            if !attributes.allow(reach) {
                let why = format!("the pool of the queue only reaches {reach}");
                return Err(Error::invalid(InvalidPart::Limit, attributes::DURABILITY, why));
            }
        }
        Ok(())
    }
}
