//! The slots of the installation: where each is served, the ones that are served here, and all that changes that. The
//! state of a slot is [`crate::slot`]'s.

pub(crate) mod assignment;
pub(crate) mod components;
pub(crate) mod membership;
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
    /// What each slot is given.
    pub(in crate::slots) around: SlotSurroundings,
    /// The other replicas that serve. Held for single looks.
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

    /// Every slot that is served here now.
    pub(crate) fn owned(&self) -> impl Iterator<Item = Arc<Slot>> {
        self.0.table.owned()
    }

    /// The slot as it is served here now.
    pub(crate) fn get(&self, number: SlotNumber) -> Option<Arc<Slot>> {
        self.0.table.get(number)
    }

    /// How many are served here now.
    pub(crate) fn count(&self) -> usize {
        self.0.table.count()
    }

    /// The other replicas that serve slots, each once.
    pub(crate) fn others(&self) -> Vec<SlotOwner> {
        self.0.table.others()
    }

    /// Waits until the records of pools may have changed.
    pub(crate) async fn pools_changed(&self) {
        self.0.assignment.pools.notified().await;
    }

    /// Waits until another replica asks for a record of the time.
    pub(crate) async fn time_asked(&self) {
        self.0.assignment.time.notified().await;
    }
}
