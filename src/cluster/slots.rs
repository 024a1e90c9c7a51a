//! Taking slots. A replica alone takes all of them.

use crate::catalogue::{Catalogue, OwnedSlot, Owner};
use crate::domain::ids::Slot;
use crate::domain::limits;
use crate::error::{Error, Part};

/// Takes one slot, again or for the first time; see [`take_all`].
pub async fn take(catalogue: &Catalogue, slot: Slot, me: &Owner) -> Result<OwnedSlot, Error> {
    let taken = catalogue.slots_take(&[slot], me).await?.pop();
    taken.ok_or_else(|| Error::unavailable(Part::Coordination, "no slot was taken"))
}

/// Takes every slot, from whoever has it.
pub async fn take_all(catalogue: &Catalogue, me: &Owner) -> Result<Vec<OwnedSlot>, Error> {
    let slots: Vec<Slot> = Slot::all().collect();
    let mut owned = Vec::with_capacity(slots.len());
    for some in slots.chunks(limits::SLOTS_TAKEN) {
        owned.extend(catalogue.slots_take(some, me).await?);
    }
    Ok(owned)
}

/// Shows as owner again after a session was lost. Slots that somebody took in the meantime are lost.
pub async fn hold_all(catalogue: &Catalogue, owned: &[OwnedSlot], me: &Owner) -> Result<(), Error> {
    for some in owned.chunks(limits::SLOTS_TAKEN) {
        catalogue.slots_hold(some, me).await?;
    }
    Ok(())
}
