//! The slots of the installation: the location of each, the slots that are served here, and all tasks that change that.
//! The state of a slot is in [`crate::slot`].

pub(crate) mod assignment;
pub(crate) mod components;
pub(crate) mod membership;
pub(crate) mod peer_secret;
pub(crate) mod peers;
pub(crate) mod recovery;
pub(crate) mod reservation;
pub(crate) mod table;
pub(crate) mod transfer_gates;

use std::sync::Arc;

use parking_lot::Mutex;

use angarium_catalogue::SlotOwner;
use angarium_core::ids::Slot as SlotNumber;

use crate::ledger::quota_ledger::Ledger;
use crate::replica::LocalReplica;
use crate::slot::SlotSurroundings;
use crate::slot::shared_holds::SharedHolds;
use crate::slot::state::Slot;
use crate::slots::assignment::Assignment;
use crate::slots::membership::Membership;
use crate::slots::peers::ServingPeer;
use crate::slots::table::SlotTable;
use crate::stores::table::PoolTable;

/// The slot table, and this replica's part in it. Clones share it.
#[derive(Clone)]
pub(crate) struct Slots(pub(crate) Arc<SlotsParts>);

pub(crate) struct SlotsParts {
    pub(in crate::slots) replica: Arc<LocalReplica>,
    pub(in crate::slots) stores: Arc<PoolTable>,
    pub(in crate::slots) ledger: Arc<Ledger>,
    /// Parts that every slot shares.
    pub(in crate::slots) around: SlotSurroundings,
    /// The other serving replicas. The lock is held for single reads or writes.
    pub(in crate::slots) serving: Mutex<Vec<ServingPeer>>,
    pub(in crate::slots) table: SlotTable,
    pub(in crate::slots) assignment: Assignment,
    pub(in crate::slots) membership: Membership,
}

impl Slots {
    pub(crate) fn new(around: SlotSurroundings, membership: Membership) -> Self {
        Self(Arc::new(SlotsParts {
            replica: Arc::clone(&around.replica),
            stores: Arc::clone(&around.stores),
            ledger: Arc::clone(&around.ledger),
            serving: Mutex::default(),
            table: SlotTable::new(Arc::clone(&around.foreign)),
            assignment: Assignment::default(),
            membership,
            around,
        }))
    }

    /// Returns every slot that is served here now.
    pub(crate) fn owned(&self) -> impl Iterator<Item = Arc<Slot>> {
        self.0.table.owned()
    }

    /// Returns the slot, if it is served here now.
    pub(crate) fn get(&self, number: SlotNumber) -> Option<Arc<Slot>> {
        self.0.table.get(number)
    }

    /// Number of slots that are served here now.
    pub(crate) fn count(&self) -> usize {
        self.0.table.count()
    }

    /// Returns the other replicas that serve slots, each once.
    pub(crate) fn others(&self) -> Vec<SlotOwner> {
        self.0.table.others()
    }

    /// Waits until the records of pools may have changed.
    pub(crate) async fn pools_changed(&self) {
        self.0.assignment.pools.notified().await;
    }

    /// Waits until the records of holds of pools and projects may have changed.
    pub(crate) async fn holds_changed(&self) {
        self.0.assignment.holds.notified().await;
    }

    /// Returns the holds of pools and projects in memory.
    pub(crate) fn shared_holds(&self) -> &SharedHolds {
        &self.0.around.holds
    }

    /// Waits until another replica requests a record of the time.
    pub(crate) async fn time_asked(&self) {
        self.0.assignment.time.notified().await;
    }
}
