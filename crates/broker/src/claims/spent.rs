//! Clearing away the records of claims whose messages were all deleted.

use crate::claims::Claims;
use crate::limits;
use crate::slot::state::Slot;
use angarium_core::error::Error;
use std::sync::Arc;

impl Claims {
    pub(crate) async fn clear_spent_claims(&self) {
        let mut goes_on = true;
        while goes_on {
            goes_on = self.0.replica.sleep_tick(limits::CLAIM_SHRINK_TICK).await;
            for slot in self.0.slots.owned() {
                if let Err(error) = self.clear_spent(&slot).await {
                    self.0.replica.task_failed(
                        "clear claim records",
                        format_args!("slot {}", slot.owned.slot.0),
                        &error,
                    );
                }
            }
        }
    }

    async fn clear_spent(&self, slot: &Arc<Slot>) -> Result<(), Error> {
        let spent = slot.take_spent();
        if spent.is_empty() {
            return Ok(());
        }
        let outcome = self.0.replica.catalogue.claims_delete(&slot.owned, &spent).await;
        if outcome.is_ok() {
            slot.spent_cleared(spent.len());
        } else {
            slot.return_spent(spent);
        }
        outcome
    }
}
