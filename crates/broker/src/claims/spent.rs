//! Removal of the records of claims whose messages were all deleted.

use crate::claims::Claims;
use crate::limits;

impl Claims {
    pub(crate) async fn clear_spent_claims(&self) {
        let mut goes_on = true;
        while goes_on {
            goes_on = self.0.replica.sleep_tick(limits::CLAIM_SHRINK_TICK).await;
            for slot in self.0.slots.owned() {
                if let Err(error) = slot.clear_spent_claims().await {
                    self.0.replica.task_failed(
                        "clear claim records",
                        format_args!("slot {}", slot.owned.slot.0),
                        &error,
                    );
                }
            }
        }
    }
}
