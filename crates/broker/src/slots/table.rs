//! The 256 places of slots as this replica knows them: each holds the slot as it is served here, or who serves it, or
//! nothing. Who should serve which is decided in [`crate::slots::assignment`].
//!
//! ```text
//!            ┌──────────── leave ──────────────┐
//!            │                                 ▼
//! free ──claim──▶ away ──enter──▶ owned      away: recovered, or handed over
//!  ▲ │             │ ▲                         │
//!  │ └──learn──┐   │ └───────claim─────────────┘
//!  │           ▼   ▼ free
//!  └─learn── elsewhere
//! ```
//!
//! The task that made a place *away* works on it, and no other task touches it until it is owned or free.

use crate::slot::foreign_slots::ForeignSlots;
use std::sync::Arc;

use tokio::sync::watch;

use crate::limits;
use crate::slot::gates::Gates;
use crate::slot::state::Slot;
use angarium_catalogue::SlotOwner;
use angarium_core::error::{Error, Part};
use angarium_core::ids::Slot as SlotNumber;
use angarium_core::names::QueueRef;
use angarium_storage::Epoch;

/// All places, by number of slot.
pub(crate) struct SlotTable {
    foreign: Arc<ForeignSlots>,
    places: Vec<watch::Sender<SlotEntry>>,
    /// Of a queue: held by the task that moves messages into it, from the first write there to the last, and by any
    /// replica that deletes it: two never deal with the same message, and the queue does not go between two steps of a
    /// move (P5). They outlive the objects that serve the slots, since a move may have begun under another one.
    pub(in crate::slots) moves: Gates<QueueRef>,
    /// Of a queue: held by the task that takes messages out for another queue, or answers for them. So an
    /// owner of their target that was replaced takes nothing out after its successor was told.
    pub(in crate::slots) removals: Gates<QueueRef>,
}

/// What is in a place.
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
    /// Places of slots that no replica serves.
    pub(crate) fn new(foreign: Arc<ForeignSlots>) -> Self {
        let places = SlotNumber::all().map(|_| watch::Sender::new(SlotEntry::Free)).collect();
        Self { foreign, places, moves: Gates::default(), removals: Gates::default() }
    }

    fn place(&self, SlotNumber(number): SlotNumber) -> &watch::Sender<SlotEntry> {
        &self.places[usize::from(number)]
    }

    /// The slot as it is served now.
    pub(crate) fn get(&self, number: SlotNumber) -> Option<Arc<Slot>> {
        self.place(number).borrow().slot()
    }

    /// The slot, waiting for it while no replica serves it, but not for longer than [`limits::SLOT_WAIT`].
    pub(crate) async fn wait(&self, number: SlotNumber) -> Result<Arc<Slot>, Error> {
        let mut place = self.place(number).subscribe();
        let settled = place.wait_for(SlotEntry::is_settled);
        let why = match tokio::time::timeout(limits::SLOT_WAIT, settled).await {
            Ok(Ok(place)) => match &*place {
                SlotEntry::Owned(slot) => return Ok(Arc::clone(slot)),
                SlotEntry::Elsewhere(_) => return Err(Error::Moved(number)),
                SlotEntry::Away(why) => why,
                SlotEntry::Free => FREE,
            },
            Ok(Err(_)) | Err(_) => match &*self.place(number).borrow() {
                SlotEntry::Owned(_) | SlotEntry::Elsewhere(_) => "it was taken a moment ago",
                SlotEntry::Away(why) => why,
                SlotEntry::Free => FREE,
            },
        };
        Err(Error::unavailable(Part::Coordination, format!("slot {number} is not served: {why}")))
    }

    /// Where a slot is served now.
    pub(crate) fn slot_location(&self, number: SlotNumber) -> SlotLocation {
        match &*self.place(number).borrow() {
            SlotEntry::Owned(slot) => SlotLocation::Here(slot.epoch),
            SlotEntry::Elsewhere(owner) => SlotLocation::There(owner.clone()),
            SlotEntry::Away(_) | SlotEntry::Free => SlotLocation::Nowhere,
        }
    }

    /// Waits until a slot is served, and elsewhere or in another epoch than there.
    pub(crate) async fn moved(&self, number: SlotNumber, before: &SlotLocation) {
        let mut place = self.place(number).subscribe();
        let is_other = |place: &SlotEntry| match (place, before) {
            (SlotEntry::Owned(slot), SlotLocation::Here(before)) => slot.epoch != *before,
            (SlotEntry::Elsewhere(owner), SlotLocation::There(before)) => owner != before,
            (SlotEntry::Away(_) | SlotEntry::Free, _) => false,
            (SlotEntry::Owned(_) | SlotEntry::Elsewhere(_), _) => true,
        };
        // The sender is ours, and lives as long as this.
        let _ = place.wait_for(is_other).await;
    }

    /// Every slot that is served here now.
    pub(crate) fn owned(&self) -> impl Iterator<Item = Arc<Slot>> {
        self.places.iter().filter_map(|place| place.borrow().slot())
    }

    /// The other replicas that serve slots, each once.
    pub(crate) fn others(&self) -> Vec<SlotOwner> {
        let owner = |place: &watch::Sender<SlotEntry>| match &*place.borrow() {
            SlotEntry::Elsewhere(owner) => Some(owner.clone()),
            SlotEntry::Owned(_) | SlotEntry::Away(_) | SlotEntry::Free => None,
        };
        let mut owners: Vec<SlotOwner> = self.places.iter().filter_map(owner).collect();
        owners.sort_by_key(|owner| owner.instance);
        owners.dedup_by_key(|owner| owner.instance);
        owners
    }

    /// How many are served here now.
    pub(crate) fn count(&self) -> usize {
        self.places.iter().filter(|place| matches!(&*place.borrow(), SlotEntry::Owned(_))).count()
    }

    /// Empties the place of a slot for the task that recovers it or hands it over. False when another task did,
    /// or put another object there.
    pub(crate) fn leave(&self, slot: &Arc<Slot>, why: &'static str) -> bool {
        self.place(slot.owned.slot).send_if_modified(|place| {
            let is_there = matches!(place, SlotEntry::Owned(there) if Arc::ptr_eq(there, slot));
            if is_there {
                *place = SlotEntry::Away(why);
            }
            is_there
        })
    }

    /// Makes a free place that of the task that takes the slot. False when it is not free.
    pub(crate) fn claim(&self, number: SlotNumber, why: &'static str) -> bool {
        self.place(number).send_if_modified(|place| {
            let is_free = matches!(place, SlotEntry::Free);
            if is_free {
                *place = SlotEntry::Away(why);
            }
            is_free
        })
    }

    /// Puts a slot in its place and wakes those who wait for it.
    pub(crate) fn enter(&self, slot: Arc<Slot>) {
        self.place(slot.owned.slot).send_replace(SlotEntry::Owned(slot));
    }

    /// The task that made the place away is done with it, and the slot is not served.
    pub(crate) fn free(&self, number: SlotNumber) {
        self.place(number).send_replace(SlotEntry::Free);
    }

    /// Takes in who serves a slot. Returns the slot that is served here though another replica has it.
    pub(crate) fn learn(&self, number: SlotNumber, owner: Option<SlotOwner>) -> Option<Arc<Slot>> {
        let mut overtaken = None;
        self.place(number).send_if_modified(|place| match (&*place, owner) {
            (SlotEntry::Owned(slot), Some(_)) => {
                overtaken = Some(Arc::clone(slot));
                false
            }
            // An owner node that went with its session is made again; a place that a replica works on is his.
            (SlotEntry::Owned(_), None) | (SlotEntry::Away(_), _) | (SlotEntry::Free, None) => false,
            (SlotEntry::Elsewhere(before), Some(owner)) if *before == owner => false,
            (SlotEntry::Free | SlotEntry::Elsewhere(_), owner) => {
                *place = match owner {
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
