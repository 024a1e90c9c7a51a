//! Whether clients should ask this replica.

use tracing::{info, warn};

use angarium_core::error::{Error, Part};

use crate::health::Health;

impl Health {
    /// Whether clients should ask this replica: some pool accepts writes, the replica is a member in the session there
    /// is or no other is known to do better (see [`reach`]), and no caller has told it to stop. Probes ask this again
    /// and again, so it is logged when the answer changes, and not where it is given.
    pub fn check_ready(&self) -> Result<(), Error> {
        let ready = self.find_ready();
        let why = ready.as_ref().err().map(crate::pools::health::reason);
        let mut unready = self.0.unready.lock();
        if *unready != why {
            match &why {
                Some(reason) => warn!(reason, "not ready"),
                None => info!("ready again"),
            }
            *unready = why;
        }
        ready
    }

    fn find_ready(&self) -> Result<(), Error> {
        if self.0.replica.waits.is_cancelled() {
            return Err(Error::unavailable(Part::Server, "the service is stopping"));
        }
        if self.0.slots.is_leaving() {
            return Err(Error::unavailable(Part::Server, "the replica hands its queues over to others"));
        }
        self.check_session()?;
        self.0.stores.check_open()
    }
}
