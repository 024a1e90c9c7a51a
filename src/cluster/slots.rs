//! Taking slots. A replica alone takes all of them.

use uuid::Uuid;

use crate::catalogue::{Catalogue, OwnedSlot};
use crate::domain::ids::Slot;
use crate::domain::limits;
use crate::error::{Error, Part};

/// Takes one slot, again or for the first time; see [`take_all`].
pub async fn take(catalogue: &Catalogue, slot: Slot, nonce: Uuid) -> Result<OwnedSlot, Error> {
    let taken = catalogue.slots_take(&[slot], nonce).await?.pop();
    taken.ok_or_else(|| Error::unavailable(Part::Coordination, "no slot was taken"))
}

/// Takes every slot for this process; `nonce` tells its nodes from those of any other.
pub async fn take_all(catalogue: &Catalogue, nonce: Uuid) -> Result<Vec<OwnedSlot>, Error> {
    let slots: Vec<Slot> = Slot::all().collect();
    let mut owned = Vec::with_capacity(slots.len());
    for some in slots.chunks(limits::TREE_BATCH_OPS) {
        owned.extend(catalogue.slots_take(some, nonce).await?);
    }
    Ok(owned)
}
