//! The slot table: an entry for each of the 256 slots, with the slot as it is served here, or its owner, or nothing. Who should serve which is decided in [`crate::slots::assignment`].
//!
//! ```text
//!            ┌─────────── take_out ────────────┐
//!            │                                 ▼
//! free ──claim──▶ away ──enter──▶ owned      away: recovered, or handed over
//!  ▲ │             │ ▲                         │
//!  │ └──learn──┐   │ └───────claim─────────────┘
//!  │           ▼   ▼ free
//!  └─learn── elsewhere
//! ```
//!
//! The task that made an entry *away* works on the slot. No other task changes the entry until it is owned or free.

use std::sync::Arc;

use tokio::sync::watch;

use angarium_catalogue::SlotOwner;
use angarium_core::error::{Error, Part};
use angarium_core::ids::Slot as SlotNumber;
use angarium_core::names::QueueRef;
use angarium_storage::Epoch;

use crate::limits;
use crate::slot::foreign_slots::ForeignSlots;
use crate::slot::gates::Gates;
use crate::slot::state::Slot;

/// All entries, by number of slot.
pub(crate) struct SlotTable {
    foreign: Arc<ForeignSlots>,
    entries: Vec<watch::Sender<SlotEntry>>,
    /// Of a queue: held by the task that moves messages into it, from the first write there to the last, and by any
    /// replica that deletes it: two never deal with the same message, and the queue does not go between two steps of a
    /// move (P5). They outlive the objects that serve the slots, since a move may have begun under another one.
    pub(in crate::slots) moves: Gates<QueueRef>,
    /// Of a queue: held by the task that takes messages out for another queue, or answers for them. So an
    /// owner of their target that was replaced takes nothing out after its successor was told.
    pub(in crate::slots) removals: Gates<QueueRef>,
}

/// Where a slot is.
#[derive(Clone)]
enum SlotEntry {
    Owned(Arc<Slot>),
    /// A replica here works on it. Why it is not served meanwhile.
    Away(&'static str),
    /// No replica serves the slot, as far as is known.
    Free,
    /// Another replica serves it.
    Elsewhere(SlotOwner),
}

impl SlotEntry {
    pub(crate) fn slot(&self) -> Option<Arc<Slot>> {
        match self {
            Self::Owned(slot) => Some(Arc::clone(slot)),
            Self::Away(_) | Self::Free | Self::Elsewhere(_) => None,
        }
    }

    pub(crate) fn is_settled(&self) -> bool {
        match self {
            Self::Owned(_) | Self::Elsewhere(_) => true,
            Self::Away(_) | Self::Free => false,
        }
    }
}

/// Where a slot is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotLocation {
    /// By this replica, in this epoch.
    Here(Epoch),
    /// By another one.
    There(SlotOwner),
    /// By no replica at this moment.
    Nowhere,
}

impl SlotTable {
    /// A table of slots that no replica serves.
    pub(crate) fn new(foreign: Arc<ForeignSlots>) -> Self {
        let entries = SlotNumber::all().map(|_| watch::Sender::new(SlotEntry::Free)).collect();
        Self { foreign, entries, moves: Gates::default(), removals: Gates::default() }
    }

    fn entry(&self, SlotNumber(number): SlotNumber) -> &watch::Sender<SlotEntry> {
        &self.entries[usize::from(number)]
    }

    /// The slot as it is served now.
    pub(crate) fn get(&self, number: SlotNumber) -> Option<Arc<Slot>> {
        self.entry(number).borrow().slot()
    }

    /// The slot, waiting for it while no replica serves it, but not for longer than [`limits::SLOT_WAIT`].
    pub(crate) async fn wait(&self, number: SlotNumber) -> Result<Arc<Slot>, Error> {
        let mut entry = self.entry(number).subscribe();
        let settled = entry.wait_for(SlotEntry::is_settled);
        let why = match tokio::time::timeout(limits::SLOT_WAIT, settled).await {
            Ok(Ok(entry)) => match &*entry {
                SlotEntry::Owned(slot) => return Ok(Arc::clone(slot)),
                SlotEntry::Elsewhere(_) => return Err(Error::Moved(number)),
                SlotEntry::Away(why) => why,
                SlotEntry::Free => FREE,
            },
            Ok(Err(_)) | Err(_) => match &*self.entry(number).borrow() {
                SlotEntry::Owned(_) | SlotEntry::Elsewhere(_) => "it was taken a moment ago",
                SlotEntry::Away(why) => why,
                SlotEntry::Free => FREE,
            },
        };
        Err(Error::unavailable(Part::Coordination, format!("slot {number} is not served: {why}")))
    }

    /// Where a slot is served now.
    pub(crate) fn slot_location(&self, number: SlotNumber) -> SlotLocation {
        match &*self.entry(number).borrow() {
            SlotEntry::Owned(slot) => SlotLocation::Here(slot.epoch),
            SlotEntry::Elsewhere(owner) => SlotLocation::There(owner.clone()),
            SlotEntry::Away(_) | SlotEntry::Free => SlotLocation::Nowhere,
        }
    }

    /// Waits until a slot is served, and elsewhere or in another epoch than there.
    pub(crate) async fn moved(&self, number: SlotNumber, before: &SlotLocation) {
        let mut entry = self.entry(number).subscribe();
        let is_other = |entry: &SlotEntry| match (entry, before) {
            (SlotEntry::Owned(slot), SlotLocation::Here(before)) => slot.epoch != *before,
            (SlotEntry::Elsewhere(owner), SlotLocation::There(before)) => owner != before,
            (SlotEntry::Away(_) | SlotEntry::Free, _) => false,
            (SlotEntry::Owned(_) | SlotEntry::Elsewhere(_), _) => true,
        };
        // The sender is ours, and lives as long as this.
        let _ = entry.wait_for(is_other).await;
    }

    /// Every slot that is served here now.
    pub(crate) fn owned(&self) -> impl Iterator<Item = Arc<Slot>> {
        self.entries.iter().filter_map(|entry| entry.borrow().slot())
    }

    /// The other replicas that serve slots, each once.
    pub(crate) fn others(&self) -> Vec<SlotOwner> {
        let owner = |entry: &watch::Sender<SlotEntry>| match &*entry.borrow() {
            SlotEntry::Elsewhere(owner) => Some(owner.clone()),
            SlotEntry::Owned(_) | SlotEntry::Away(_) | SlotEntry::Free => None,
        };
        let mut owners: Vec<SlotOwner> = self.entries.iter().filter_map(owner).collect();
        owners.sort_by_key(|owner| owner.instance);
        owners.dedup_by_key(|owner| owner.instance);
        owners
    }

    /// How many are served here now.
    pub(crate) fn count(&self) -> usize {
        self.entries.iter().filter(|entry| matches!(&*entry.borrow(), SlotEntry::Owned(_))).count()
    }

    /// Takes a slot out of the table for the task that recovers it or hands it over. False when another task did,
    /// or entered another object.
    pub(crate) fn take_out(&self, slot: &Arc<Slot>, why: &'static str) -> bool {
        self.entry(slot.owned.slot).send_if_modified(|entry| {
            let is_there = matches!(entry, SlotEntry::Owned(there) if Arc::ptr_eq(there, slot));
            if is_there {
                *entry = SlotEntry::Away(why);
            }
            is_there
        })
    }

    /// Reserves a free entry for the task that takes the slot. False when the entry is not free.
    pub(crate) fn claim(&self, number: SlotNumber, why: &'static str) -> bool {
        self.entry(number).send_if_modified(|entry| {
            let is_free = matches!(entry, SlotEntry::Free);
            if is_free {
                *entry = SlotEntry::Away(why);
            }
            is_free
        })
    }

    /// Enters a slot and wakes its waiters.
    pub(crate) fn enter(&self, slot: Arc<Slot>) {
        self.entry(slot.owned.slot).send_replace(SlotEntry::Owned(slot));
    }

    /// Frees an entry: the task that made it away has ended, and the slot is not served.
    pub(crate) fn free(&self, number: SlotNumber) {
        self.entry(number).send_replace(SlotEntry::Free);
    }

    /// Takes in who serves a slot. Returns the slot that is served here though another replica has it.
    pub(crate) fn learn(&self, number: SlotNumber, owner: Option<SlotOwner>) -> Option<Arc<Slot>> {
        let mut overtaken = None;
        self.entry(number).send_if_modified(|entry| match (&*entry, owner) {
            (SlotEntry::Owned(slot), Some(_)) => {
                overtaken = Some(Arc::clone(slot));
                false
            }
            // An owner node that ended with its session is made again; an entry that is away is left to its task.
            (SlotEntry::Owned(_), None) | (SlotEntry::Away(_), _) | (SlotEntry::Free, None) => false,
            (SlotEntry::Elsewhere(before), Some(owner)) if *before == owner => false,
            (SlotEntry::Free | SlotEntry::Elsewhere(_), owner) => {
                *entry = match owner {
                    Some(owner) => {
                        self.foreign.add(number);
                        SlotEntry::Elsewhere(owner)
                    }
                    None => {
                        self.foreign.remove(number);
                        SlotEntry::Free
                    }
                };
                true
            }
        });
        overtaken
    }
}

/// Why no replica serves a slot that is free.
const FREE: &str = "no replica has taken it yet";
