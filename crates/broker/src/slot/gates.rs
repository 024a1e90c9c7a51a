//! Gates by name: locks of single queues and of single pools, so that a task that waits for one delays no task at
//! another.
//!
//! Gates are taken in this order: the gate of the transfers into a queue, the gate of a queue, the gate of the queue of one
//! of its subscriptions, the gate of the placement of the source, the gates of its pools in the order of their names. The gate of the removals of transferred messages from a queue is taken after that of
//! the transfers; while it is held, the source queue may be opened.

use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

use angarium_catalogue::Placement;
use angarium_core::maps::HashMap;
use angarium_core::names::PoolName;

/// Number of gates that are kept before unused ones are removed.
const SPARE: usize = 64;

/// Gates by name. The lock of the map is held only for single look-ups.
pub(crate) struct Gates<K>(Mutex<GateMap<K>>);

pub(crate) struct GateMap<K> {
    pub(crate) gates: HashMap<K, Arc<tokio::sync::Mutex<()>>>,
    /// Number of gates at which unused ones are removed.
    pub(crate) most: usize,
}

impl<K> Default for Gates<K> {
    fn default() -> Self {
        Self(Mutex::new(GateMap { gates: HashMap::default(), most: SPARE }))
    }
}

impl<K: Clone + Eq + Hash> Gates<K> {
    /// Waits for a gate and holds it.
    pub(crate) async fn hold(&self, name: &K) -> OwnedMutexGuard<()> {
        let gate = self.0.lock().gate(name);
        gate.lock_owned().await
    }

    /// Holds a gate if no other task holds it.
    pub(crate) fn try_hold(&self, name: &K) -> Option<OwnedMutexGuard<()>> {
        let gate = self.0.lock().gate(name);
        gate.try_lock_owned().ok()
    }

    /// Waits until every gate that is held now was released.
    pub(crate) async fn rest(&self) {
        let gates: Vec<_> = self.0.lock().gates.values().cloned().collect();
        for gate in gates {
            drop(gate.lock().await);
        }
    }
}

impl Gates<PoolName> {
    /// Waits for the gates of all pools of a placement and holds them.
    pub(crate) async fn hold_all(&self, placement: &Placement) -> Vec<OwnedMutexGuard<()>> {
        let mut names: Vec<&PoolName> = placement.pools().collect();
        names.sort();
        names.dedup();
        let mut held = Vec::with_capacity(names.len());
        for name in names {
            held.push(self.hold(name).await);
        }
        held
    }
}

impl<K: Clone + Eq + Hash> GateMap<K> {
    pub(crate) fn gate(&mut self, name: &K) -> Arc<tokio::sync::Mutex<()>> {
        if self.gates.len() >= self.most {
            // The holder of a gate and each waiter have a handle.
            self.gates.retain(|_, gate| Arc::strong_count(gate) > 1);
            self.most = SPARE.max(2 * self.gates.len());
        }
        Arc::clone(self.gates.entry(name.clone()).or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn held_gate_stops_its_own_name_alone() {
        let gates = Gates::<u32>::default();
        let held = gates.hold(&1).await;
        gates.hold(&2).await;
        let longer = std::time::Duration::from_millis(20);
        assert!(tokio::time::timeout(longer, gates.hold(&1)).await.is_err());
        drop(held);
        gates.hold(&1).await;
    }

    #[tokio::test]
    async fn unheld_gates_are_forgotten() {
        let gates = Gates::<u32>::default();
        let _held = gates.hold(&0).await;
        for name in 1..10_000 {
            gates.hold(&name).await;
        }
        assert!(gates.0.lock().gates.len() <= SPARE);
        assert!(gates.0.lock().gates.contains_key(&0));
    }
}
