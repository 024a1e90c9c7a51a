//! Holds of pools and projects.

use angarium_core::error::Error;
use angarium_core::hold::{AppliedHold, Hold, HoldTarget};

use crate::broker::Broker;
use crate::holds::terms::HoldTerms;

impl Broker {
    /// Holds all queues in a pool or of a project, in place of an earlier hold. When this returns, no claim that begins
    /// later gets a message of them, or no post that begins later is stored. Claims that exist continue.
    pub async fn hold_make(&self, target: &HoldTarget, terms: HoldTerms) -> Result<Hold, Error> {
        self.0.holds.hold_make(target, terms).await
    }

    /// Returns the hold of a pool or of a project; not found when it is not held.
    pub async fn hold_get(&self, target: &HoldTarget) -> Result<Hold, Error> {
        self.0.holds.hold_get(target).await
    }

    /// Returns at most `most` holds of pools and projects behind `after`, pools first, as this replica knows them.
    pub fn holds_list(&self, after: Option<&HoldTarget>, most: usize) -> Vec<AppliedHold> {
        self.0.holds.holds_list(after, most)
    }

    /// Ends the hold of a pool or of a project, for the caller with this name. It is no error when there is no hold.
    pub async fn hold_release(&self, target: &HoldTarget, by: Option<String>) -> Result<(), Error> {
        self.0.holds.hold_release(target, by).await
    }
}
