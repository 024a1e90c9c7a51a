//! Taking slots and giving them up, a commit for many.

use angarium_catalogue::{Catalogue, OwnedSlot, Owner};
use angarium_core::error::Error;
use angarium_core::limits;

/// Shows as owner again after a session was lost. Slots that a replica took in the meantime are lost.
pub async fn hold_all(catalogue: &Catalogue, owned: &[OwnedSlot], me: &Owner) -> Result<(), Error> {
    for some in owned.chunks(limits::SLOTS_TAKEN) {
        catalogue.slots_hold(some, me).await?;
    }
    Ok(())
}
