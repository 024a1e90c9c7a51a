//! Keeping tree time: learning it from the tree's own clock, and recording how far it has come.

use tracing::warn;

use super::Broker;
use crate::catalogue::Catalogue;
use crate::clock::Clock;
use crate::domain::limits;
use crate::error::Error;

/// Begins with the time of the tree, if that has a clock of its own. An embedded one goes by ours, which its journal
/// has set already.
pub(super) async fn begin(catalogue: &Catalogue, clock: &Clock) -> Result<(), Error> {
    if !catalogue.keeps_time() {
        return Ok(());
    }
    let last = catalogue.time().await?;
    let asked = clock.asking();
    // What was recorded stays, until it is known whether the tree's clock can be believed.
    let theirs = catalogue.time_record(last.unwrap_or_else(|| clock.now())).await?;
    clock.begin(asked, theirs, last);
    Ok(())
}

impl Broker {
    /// Records and learns the time until the service stops.
    pub(super) async fn keep_time(&self) {
        while self.next_turn(limits::CLOCK_TICK).await {
            let asked = self.0.clock.asking();
            match self.0.catalogue.time_record(self.0.clock.now()).await {
                Ok(theirs) if self.0.catalogue.keeps_time() => self.0.clock.learn(asked, theirs),
                Ok(_) => {}
                Err(error) => warn!(%error, "the time could not be recorded"),
            }
        }
    }

    /// As [`Broker::check_ready`]; then what an operator should know of a service that serves.
    pub fn readiness(&self) -> Result<Vec<String>, Error> {
        self.check_ready()?;
        let doubt = self.0.clock.doubt().map(|step| {
            format!(
                "the clock differs by {} s from the last write and is not believed; if it is right, restart with \
                 --accept-clock",
                step.as_secs()
            )
        });
        Ok(doubt.into_iter().collect())
    }
}
