//! The 256 places of slots at this replica: each holds the slot as it is served now, or nothing while it is
//! being taken anew. How a slot is taken is not decided here.
//!
//! ```text
//! owned ──leave──▶ away ──enter──▶ owned (another object, another epoch)
//! ```

use std::sync::Arc;

use tokio::sync::{Mutex, watch};

use super::slot::Slot;
use crate::domain::ids::Slot as SlotNumber;
use crate::domain::limits;
use crate::error::{Error, Part};

/// All places, by number of slot.
pub(super) struct Cells {
    places: Vec<watch::Sender<Place>>,
    /// See [`Cells::moves`].
    moves: Vec<Mutex<()>>,
}

/// What is in a place.
#[derive(Clone)]
enum Place {
    Owned(Arc<Slot>),
    /// Why the slot is not served.
    Away(&'static str),
}

impl Place {
    fn slot(&self) -> Option<Arc<Slot>> {
        match self {
            Self::Owned(slot) => Some(Arc::clone(slot)),
            Self::Away(_) => None,
        }
    }
}

impl Cells {
    /// Places for all slots, in order.
    pub(super) fn new(slots: Vec<Arc<Slot>>) -> Self {
        let moves = slots.iter().map(|_| Mutex::default()).collect();
        let places = slots.into_iter().map(|slot| watch::Sender::new(Place::Owned(slot))).collect();
        Self { places, moves }
    }

    fn place(&self, SlotNumber(number): SlotNumber) -> &watch::Sender<Place> {
        &self.places[usize::from(number)]
    }

    /// Held by whoever moves messages into queues of a slot, from the first write there to the last, and by whoever
    /// deletes such a queue: two never deal with the same message, and no queue goes between two steps of a move (P5).
    /// It outlives the objects that serve the slot, since a move may have begun under another one.
    pub(super) fn moves(&self, SlotNumber(number): SlotNumber) -> &Mutex<()> {
        &self.moves[usize::from(number)]
    }

    /// The slot as it is served now.
    pub(super) fn get(&self, number: SlotNumber) -> Option<Arc<Slot>> {
        self.place(number).borrow().slot()
    }

    /// The slot, waiting for it while it is taken anew, but not for longer than [`limits::SLOT_WAIT`].
    pub(super) async fn wait(&self, number: SlotNumber) -> Result<Arc<Slot>, Error> {
        let mut place = self.place(number).subscribe();
        let owned = place.wait_for(|place| place.slot().is_some());
        match tokio::time::timeout(limits::SLOT_WAIT, owned).await {
            Ok(Ok(place)) => place.slot(),
            Ok(Err(_)) | Err(_) => None,
        }
        .ok_or_else(|| self.away(number))
    }

    fn away(&self, number: SlotNumber) -> Error {
        let why = match &*self.place(number).borrow() {
            Place::Owned(_) => "it was taken anew a moment ago",
            Place::Away(why) => why,
        };
        Error::unavailable(Part::Coordination, format!("slot {number} is not served: {why}"))
    }

    /// Every slot that is served now.
    pub(super) fn owned(&self) -> impl Iterator<Item = Arc<Slot>> {
        self.places.iter().filter_map(|place| place.borrow().slot())
    }

    /// Empties the place of a slot. False when somebody else did, or put another object there.
    pub(super) fn leave(&self, slot: &Arc<Slot>, why: &'static str) -> bool {
        self.place(slot.owned.slot).send_if_modified(|place| {
            let is_there = matches!(place, Place::Owned(there) if Arc::ptr_eq(there, slot));
            if is_there {
                *place = Place::Away(why);
            }
            is_there
        })
    }

    /// Puts a slot in its place and wakes those who wait for it.
    pub(super) fn enter(&self, slot: Arc<Slot>) {
        self.place(slot.owned.slot).send_replace(Place::Owned(slot));
    }
}
