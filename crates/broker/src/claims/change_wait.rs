//! The wait of a request for another caller that is changing its claim.

use tokio::time::Instant;

use angarium_core::error::{Error, Part};

use crate::limits;

/// Waits for changes of claims, at most [`limits::CLAIM_DEADLINE`] in all: in a busy slot some claim changes all the time.
pub(crate) struct ChangeWait {
    end: Instant,
}

impl ChangeWait {
    pub(crate) fn begin() -> Self {
        Self { end: Instant::now() + limits::CLAIM_DEADLINE }
    }

    /// Waits for the next change of a claim of the slot, after an attempt that another caller's change has stopped.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] after the deadline. A change at the last moment is followed by another attempt.
    pub(crate) async fn next(&self, changed: impl Future<Output = ()>) -> Result<(), Error> {
        let is_changed =
            Instant::now() < self.end && tokio::time::timeout_at(self.end, changed).await.is_ok();
        let late = || Error::unavailable(Part::Coordination, "a change of the claim has no outcome yet");
        is_changed.then_some(()).ok_or_else(late)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn changes_of_other_claims_do_not_prolong_the_wait() {
        for pause in [Duration::ZERO, Duration::from_secs(1), Duration::from_secs(60)] {
            let (begun, wait) = (Instant::now(), ChangeWait::begin());
            while wait.next(tokio::time::sleep(pause)).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let took = begun.elapsed();
            let most = limits::CLAIM_DEADLINE + Duration::from_secs(1);
            assert!(limits::CLAIM_DEADLINE <= took && took < most, "{pause:?}: {took:?}");
        }
    }
}
