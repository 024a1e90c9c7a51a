//! The fence that a slot puts up in a pool before it first uses it, and what it means that a pool refuses one.

use std::sync::Arc;

use super::Broker;
use super::pool_table::{NamedStore, OpenPool};
use super::slot::Slot;
use super::slot_writer::SlotWriter;
use angarium_core::error::Error;
use angarium_core::ids::MessageId;
use angarium_core::names::PoolName;
use angarium_storage::StoreError;

impl Broker {
    /// Fences a pool for the slot, once. From then on no owner before can write there, and ids go on from
    /// the greatest one that any of them gave.
    ///
    /// A fence is completed even when the caller leaves: an abandoned one could arrive after the next one and the batches
    /// behind it, and restart their numbering.
    pub(super) async fn open_writer(
        &self,
        slot: &Arc<Slot>,
        name: &PoolName,
        pool: &OpenPool,
    ) -> Result<(), Error> {
        // Before it is asked: what cannot be reached is used all the same.
        self.0.pool_use.note(name);
        let id = pool.entry.pool.id;
        let is_open = || slot.state.lock().writers.get(name).is_some_and(|writer| writer.leads_to(id));
        if is_open() {
            return Ok(());
        }
        let fencing = slot.fencing.hold(name).await;
        if is_open() {
            return Ok(());
        }
        let store = pool.store()?;
        let (broker, slot, name) = (self.clone(), Arc::clone(slot), name.clone());
        let fence = async move {
            let (_fencing, _guard) = (fencing, slot.lost_on_panic());
            let last = fence(&slot, &store).await?;
            let mut state = slot.state.lock();
            state.ids.skip_to(last);
            let meter = broker.0.meter.commits(name.as_str());
            state.writers.insert(name, SlotWriter::new(id, store, meter));
            Ok(())
        };
        self.carry_out(fence).await
    }
}

/// Fences a pool for the slot. The greatest id that any owner gave there.
async fn fence(slot: &Slot, store: &NamedStore) -> Result<MessageId, Error> {
    let fenced = store.fence(slot.owned.slot, slot.epoch).await;
    // One of another generation is not reached by recovering the slot.
    if matches!(&fenced, Err(StoreError::Fenced(by)) if by.generation == slot.epoch.generation) {
        slot.lose("a pool knows a later owner");
    }
    fenced.map_err(|error| store.failed(error))
}
