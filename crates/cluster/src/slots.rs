//! Operations on many slots, split into commits of bounded size.

use angarium_catalogue::{Catalogue, OwnedSlot, Owner};
use angarium_core::error::Error;
use angarium_core::limits;

/// Creates the owner nodes again after a session was lost. Slots that another replica took meanwhile are lost.
pub async fn hold_all(catalogue: &Catalogue, owned: &[OwnedSlot], me: &Owner) -> Result<(), Error> {
    for chunk in owned.chunks(limits::SLOTS_TAKEN) {
        catalogue.slots_hold(chunk, me).await?;
    }
    Ok(())
}
