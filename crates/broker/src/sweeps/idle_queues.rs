//! Closing of idle queues, so that memory has only the queues in use. The next use opens a queue again, at the cost of
//! a read.
//!
//! ```text
//!          used                     no operation in progress, unused for [`limits::IDLE_ROUNDS`] rounds
//! open ◀──────────── open, idle ───────────────────────────────────────────────────────────▶ closed
//!  ▲                                                                                            │
//!  └──────────────────────────────────── used, or a claim expires ──────────────────────────────┘
//! ```
//!
//! A task that looks a queue up under the lock of its slot counts as a use, and needs far less time than these rounds
//! until it uses the queue.

use crate::limits;
use crate::sweeps::Sweeps;

impl Sweeps {
    /// Closes idle queues until the service stops.
    pub(crate) async fn close_idle_queues(&self) {
        while self.0.replica.sleep_tick(limits::IDLE_TICK).await {
            self.close_idle_round();
        }
    }

    /// Runs one round. Returns how many queues were closed, and how many are open.
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
