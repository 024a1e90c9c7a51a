//! The terms of a hold.

use angarium_core::error::{Error, InvalidPart};
use angarium_core::hold::{Hold, HoldEffects, HoldReason};
use angarium_core::time::Timestamp;

/// The terms of a hold, as a caller states them.
#[derive(Clone, Debug)]
pub struct HoldTerms {
    /// Its effects.
    pub effects: HoldEffects,
    /// Why it is made.
    pub reason: HoldReason,
    /// The caller, if it has a name.
    pub by: Option<String>,
    /// When it ends by itself; none when a request must end it.
    pub until: Option<Timestamp>,
}

impl HoldTerms {
    /// Returns the hold that begins now.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] when it would have ended already.
    pub(crate) fn begin(self, now: Timestamp) -> Result<Hold, Error> {
        let Self { effects, reason, by, until } = self;
        let hold = Hold { effects, reason, by, since: now, until };
        if !hold.is_in_force(now) {
            return Err(Error::invalid(InvalidPart::Limit, "until", "it has passed"));
        }
        Ok(hold)
    }
}
