//! The slot table: an entry for each of the 256 slots, with the slot itself if it is served here, or its owner, or
//! nothing. [`crate::slots::assignment`] decides which replica should serve which slot.
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

/// All entries, by number of the slot.
pub(crate) struct SlotTable {
    foreign: Arc<ForeignSlots>,
    entries: Vec<watch::Sender<SlotEntry>>,
    /// Gates of target queues: held by the task that transfers messages into a queue, from the first write there to the
    /// last, and by any task that deletes the queue. So two tasks never work on the same message, and the queue is not
    /// deleted between two steps of a transfer (P5). They outlive the objects of the slots, since a transfer may have
    /// begun under an earlier one.
    pub(in crate::slots) moves: Gates<QueueRef>,
    /// Gates of source queues: held by the task that removes transferred messages, or that answers for their states. So
    /// a replaced owner of their target removes nothing after its successor got an answer.
    pub(in crate::slots) removals: Gates<QueueRef>,
}

/// Location of a slot, with the slot itself if it is served here.
#[derive(Clone)]
enum SlotEntry {
    Owned(Arc<Slot>),
    /// A task of this replica works on the slot. The text is why the slot is not served meanwhile.
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

/// Location of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotLocation {
    /// This replica serves it, in this epoch.
    Here(Epoch),
    /// Another replica serves it.
    There(SlotOwner),
    /// No replica serves it at this moment.
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

    /// Returns the slot, if it is served here now.
    pub(crate) fn get(&self, number: SlotNumber) -> Option<Arc<Slot>> {
        self.entry(number).borrow().slot()
    }

    /// Returns the slot. Waits at most [`limits::SLOT_WAIT`] while no replica serves it.
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

    /// Returns the location of a slot.
    pub(crate) fn slot_location(&self, number: SlotNumber) -> SlotLocation {
        match &*self.entry(number).borrow() {
            SlotEntry::Owned(slot) => SlotLocation::Here(slot.epoch),
            SlotEntry::Elsewhere(owner) => SlotLocation::There(owner.clone()),
            SlotEntry::Away(_) | SlotEntry::Free => SlotLocation::Nowhere,
        }
    }

    /// Waits until a slot is served at another location or in another epoch than `before`.
    pub(crate) async fn moved(&self, number: SlotNumber, before: &SlotLocation) {
        let mut entry = self.entry(number).subscribe();
        let is_other = |entry: &SlotEntry| match (entry, before) {
            (SlotEntry::Owned(slot), SlotLocation::Here(before)) => slot.epoch != *before,
            (SlotEntry::Elsewhere(owner), SlotLocation::There(before)) => owner != before,
            (SlotEntry::Away(_) | SlotEntry::Free, _) => false,
            (SlotEntry::Owned(_) | SlotEntry::Elsewhere(_), _) => true,
        };
        // The table owns the sender, so the channel stays open.
        let _ = entry.wait_for(is_other).await;
    }

    /// Returns every slot that is served here now.
    pub(crate) fn owned(&self) -> impl Iterator<Item = Arc<Slot>> {
        self.entries.iter().filter_map(|entry| entry.borrow().slot())
    }

    /// Returns the other replicas that serve slots, each once.
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

    /// Number of slots that are served here now.
    pub(crate) fn count(&self) -> usize {
        self.entries.iter().filter(|entry| matches!(&*entry.borrow(), SlotEntry::Owned(_))).count()
    }

    /// Takes a slot out of the table for the task that recovers it or hands it over. Returns false when another task
    /// did, or entered another object of the slot.
    pub(crate) fn take_out(&self, slot: &Arc<Slot>, why: &'static str) -> bool {
        self.entry(slot.owned.slot).send_if_modified(|entry| {
            let is_there = matches!(entry, SlotEntry::Owned(there) if Arc::ptr_eq(there, slot));
            if is_there {
                *entry = SlotEntry::Away(why);
            }
            is_there
        })
    }

    /// Reserves a free entry for the task that takes the slot. Returns false when the entry is not free.
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

    /// Records the owner of a slot. Returns the slot that is served here although another replica has it.
    pub(crate) fn learn(&self, number: SlotNumber, owner: Option<SlotOwner>) -> Option<Arc<Slot>> {
        let mut overtaken = None;
        self.entry(number).send_if_modified(|entry| match (&*entry, owner) {
            (SlotEntry::Owned(slot), Some(_)) => {
                overtaken = Some(Arc::clone(slot));
                false
            }
            // An owner node that ended with its session is created again; an entry that is away is left to its task.
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
