//! Queues that no caller uses are closed: memory holds what is at work, whatever there is. The next use opens one
//! again, at the cost of a read.
//!
//! ```text
//!          used                     nothing under way, and unused for [`limits::IDLE_ROUNDS`] rounds
//! open ◀──────────── open, idle ───────────────────────────────────────────────────────────▶ closed
//!  ▲                                                                                            │
//!  └──────────────────────────────────── used, or a claim's end ─────────────────────────────────┘
//! ```
//!
//! A task that looks a queue up under the lock of its slot counts as its user, and has far less than the rounds to
//! come back to it.

use crate::limits;
use crate::sweeps::Sweeps;

impl Sweeps {
    /// Closes the queues that no caller uses until the service stops.
    pub(crate) async fn close_idle_queues(&self) {
        while self.0.replica.sleep_tick(limits::IDLE_TICK).await {
            self.close_idle_round();
        }
    }

    /// One round of it. Returns how many queues were closed, and how many are open.
    pub fn close_idle_round(&self) -> (usize, usize) {
        let (mut closed, mut open) = (0, 0);
        for slot in self.0.slots.owned() {
            let round = slot.close_idle();
            closed += round.closed;
            open += round.open;
        }
        (closed, open)
    }
}
