//! Waking of delayed messages when they are due.

use crate::limits;
use crate::sweeps::Sweeps;

impl Sweeps {
    /// Begins to wake due messages of all slots, until the service stops.
    pub(crate) async fn wake_scheduled(&self) {
        let alarm = &self.0.replica.alarms.schedule;
        while self.0.replica.next_deadline(alarm, || self.0.replica.clock.now(), limits::SCHEDULE_TICK).await
        {
            let now = self.0.replica.clock.now();
            alarm.forget();
            for slot in self.0.slots.owned() {
                if let Some(next) = slot.start_due_wakes(now) {
                    alarm.set(next);
                }
            }
        }
    }
}
