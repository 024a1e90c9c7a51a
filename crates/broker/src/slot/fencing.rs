//! The fence that a slot sets in a pool before its first use of the pool, and the meaning of a refused fence.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tokio_util::task::TaskTracker;
use tracing::debug;

use angarium_core::error::Error;
use angarium_core::ids::MessageId;
use angarium_core::mutation::{Mutation, is_on};
use angarium_core::names::PoolName;
use angarium_storage::StoreError;

use crate::slot::state::Slot;
use crate::stores::table::{NamedStore, OpenPool};
use crate::writer::pending::SlotWriter;

/// Max wait of a recovered slot for the fences of the pools that it used. A pool that hangs delays the queues of other
/// pools for no longer.
const FENCES_WAIT: Duration = Duration::from_millis(500);

impl Slot {
    /// Fences a pool for the slot, once. After that no earlier owner can write there, and new message ids follow the
    /// greatest one that any earlier owner assigned.
    ///
    /// A fence is completed even when the caller leaves: an abandoned fence could arrive after the next one and its
    /// batches, and restart their numbering.
    pub(crate) async fn open_writer(self: &Arc<Self>, name: &PoolName, pool: &OpenPool) -> Result<(), Error> {
        // Before the pool is called: a pool that cannot be reached counts as used too.
        self.around.stores.pool_use.note(name);
        let id = pool.entry.pool.id;
        if self.has_writer(pool) {
            return Ok(());
        }
        let fencing = self.fencing.hold(name).await;
        if self.has_writer(pool) {
            return Ok(());
        }
        let store = pool.store()?;
        let (slot, name) = (Arc::clone(self), name.clone());
        let fence = async move {
            let (_fencing, _guard) = (fencing, slot.lost_on_panic());
            let skips = is_on(Mutation::OpenPoolWithoutFence);
            let last = if skips { MessageId::ZERO } else { fence(&slot, &store).await? };
            let mut state = slot.lock();
            if !is_on(Mutation::IgnoreLastId) {
                state.ids.skip_to(last);
            }
            let meter = slot.around.replica.meter.commits(name.as_str());
            state.writers.insert(name, SlotWriter::new(id, store, meter));
            Ok(())
        };
        self.around.replica.carry_out(fence).await
    }

    /// Whether the slot has fenced a pool.
    pub(crate) fn has_writer(self: &Arc<Self>, pool: &OpenPool) -> bool {
        self.lock().writers.get(&pool.entry.name).is_some_and(|writer| writer.leads_to(pool.entry.pool.id))
    }

    /// Fences the pools that the slot used, so that they refuse batches of earlier epochs of the slot. A pool that does
    /// not answer in time is fenced before its first use.
    pub(crate) async fn fence_pools(self: &Arc<Self>, pools: &[PoolName]) {
        let fences = TaskTracker::new();
        for name in pools {
            let (slot, name) = (Arc::clone(self), name.clone());
            // An abandoned fence could arrive after the next one, and restart the numbering of batches.
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

    /// Has the slot writer to a pool continue over another handle of the pool's storage.
    pub(crate) fn switch_store(self: &Arc<Self>, name: &PoolName, store: &NamedStore) {
        if let Some(writer) = self.lock().writers.get_mut(name) {
            writer.switch_store(store.clone());
        }
    }

    /// Removes the slot writer to a pool in which the slot has no queue.
    pub(crate) fn drop_writer(self: &Arc<Self>, name: &PoolName) {
        drop(self.lock().writers.remove(name));
    }

    /// Returns the pools to which the slot has a slot writer.
    pub(crate) fn pools(self: &Arc<Self>) -> Vec<PoolName> {
        self.lock().writers.keys().cloned().collect()
    }

    /// Whether an open queue is in a pool.
    pub(crate) fn uses_pool(self: &Arc<Self>, name: &PoolName) -> bool {
        self.lock().queues.values().any(|queue| queue.placement.contains(name))
    }
}

/// Fences a pool for the slot. Returns the greatest message id that any owner assigned there.
pub(crate) async fn fence(slot: &Slot, store: &NamedStore) -> Result<MessageId, Error> {
    let fenced = store.fence(slot.owned.slot, slot.epoch).await;
    // Recovering the slot does not help against a fence of another generation.
    if matches!(&fenced, Err(StoreError::Fenced(by)) if by.generation == slot.epoch.generation) {
        slot.lose("a pool knows a later owner");
    }
    fenced.map_err(|error| store.failed(error))
}
