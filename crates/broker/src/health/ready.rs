//! Readiness of this replica for clients.

use tracing::{info, warn};

use angarium_core::error::{Error, Part};

use crate::health::Health;

impl Health {
    /// Whether clients should use this replica: some pool accepts writes, the replica is registered in its session or
    /// no other replica is known to have one (see [`reach`]), and it was not told to stop. Probes call this often, so
    /// only a change of the answer is logged.
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
