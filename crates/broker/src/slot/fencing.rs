//! The fence that a slot puts up in a pool before it first uses it, and what it means that a pool refuses one.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tokio_util::task::TaskTracker;
use tracing::debug;

use angarium_core::error::Error;
use angarium_core::ids::MessageId;
use angarium_core::names::PoolName;
use angarium_storage::StoreError;

use crate::slot::state::Slot;
use crate::stores::table::{NamedStore, OpenPool};
use crate::writer::pending::SlotWriter;

/// How long a slot that was taken waits for the fences of the pools that it used. A pool that hangs delays the queues
/// of other pools for no longer.
const FENCES_WAIT: Duration = Duration::from_millis(500);

impl Slot {
    /// Fences a pool for the slot, once. From then on no owner before can write there, and ids go on from
    /// the greatest one that any of them gave.
    ///
    /// A fence is completed even when the caller leaves: an abandoned one could arrive after the next one and the batches
    /// behind it, and restart their numbering.
    pub(crate) async fn open_writer(self: &Arc<Self>, name: &PoolName, pool: &OpenPool) -> Result<(), Error> {
        // Before it is asked: what cannot be reached is used all the same.
        self.around.stores.pool_use.note(name);
        let id = pool.entry.pool.id;
        let is_open = || self.lock().writers.get(name).is_some_and(|writer| writer.leads_to(id));
        if is_open() {
            return Ok(());
        }
        let fencing = self.fencing.hold(name).await;
        if is_open() {
            return Ok(());
        }
        let store = pool.store()?;
        let (slot, name) = (Arc::clone(self), name.clone());
        let fence = async move {
            let (_fencing, _guard) = (fencing, slot.lost_on_panic());
            let last = fence(&slot, &store).await?;
            let mut state = slot.lock();
            state.ids.skip_to(last);
            let meter = slot.around.replica.meter.commits(name.as_str());
            state.writers.insert(name, SlotWriter::new(id, store, meter));
            Ok(())
        };
        self.around.replica.carry_out(fence).await
    }

    /// Fences the pools that the slot used, so that they refuse the batches of its old object. A pool that does not
    /// answer now is fenced before its first use.
    pub(crate) async fn fence_pools(self: &Arc<Self>, pools: &[PoolName]) {
        let fences = TaskTracker::new();
        for name in pools {
            let (slot, name) = (Arc::clone(self), name.clone());
            // A fence that is given up half way could arrive after the next one, and begin its numbering again.
            let token = fences.token();
            self.around.replica.tasks.spawn(async move {
                let fenced = match slot.around.stores.pool(&name) {
                    Ok(pool) => slot.open_writer(&name, &pool).await,
                    Err(error) => Err(error),
                };
                if let Err(error) = fenced {
                    slot.around.replica.task_failed(
                        "fence pools",
                        format_args!("slot {} pool {name}", slot.owned.slot.0),
                        &error,
                    );
                }
                drop(token);
            });
        }
        fences.close();
        if timeout(FENCES_WAIT, fences.wait()).await.is_err() {
            debug!(slot = self.owned.slot.0, "slot served before all pools are fenced");
        }
    }

    /// Continues over another handle of the storage that the slot writer to a pool leads to.
    pub(crate) fn switch_store(self: &Arc<Self>, name: &PoolName, store: &NamedStore) {
        if let Some(writer) = self.lock().writers.get_mut(name) {
            writer.switch_store(store.clone());
        }
    }

    /// Forgets the slot writer to a pool that no queue of the slot is in.
    pub(crate) fn drop_writer(self: &Arc<Self>, name: &PoolName) {
        drop(self.lock().writers.remove(name));
    }

    /// The pools it has a slot writer to.
    pub(crate) fn pools(self: &Arc<Self>) -> Vec<PoolName> {
        self.lock().writers.keys().cloned().collect()
    }

    /// Whether an open queue is in a pool.
    pub(crate) fn uses_pool(self: &Arc<Self>, name: &PoolName) -> bool {
        self.lock().queues.values().any(|queue| queue.placement.contains(name))
    }
}

/// Fences a pool for the slot. The greatest id that any owner gave there.
pub(crate) async fn fence(slot: &Slot, store: &NamedStore) -> Result<MessageId, Error> {
    let fenced = store.fence(slot.owned.slot, slot.epoch).await;
    // One of another generation is not reached by recovering the slot.
    if matches!(&fenced, Err(StoreError::Fenced(by)) if by.generation == slot.epoch.generation) {
        slot.lose("a pool knows a later owner");
    }
    fenced.map_err(|error| store.failed(error))
}
