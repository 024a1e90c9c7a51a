//! Failures of background tasks. Each kind of task is logged once when it begins to fail, and once when it works again.
//! Every failure is counted.
//!
//! A task meets the same fault at every slot, queue and tick. The log has the first failure of each kind of task; the
//! metric `angarium_background_failures` counts all of them, and the level debug shows each.

use std::collections::BTreeMap;
use std::fmt::Display;

use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use angarium_catalogue::Link;
use angarium_core::error::{Error, Part};
use angarium_core::time::millis;
use angarium_metrics::Meter;

use crate::limits;
use crate::replica::LocalReplica;

/// The kinds of tasks that are failing now.
pub(crate) struct TaskFailures {
    meter: Meter,
    /// By the name of the task; the number of names in the source bounds it. The lock is held for one access.
    failing: Mutex<BTreeMap<&'static str, Failing>>,
}

struct Failing {
    since: Instant,
    last: Instant,
    failures: u64,
}

impl TaskFailures {
    pub(crate) fn new(meter: Meter) -> Self {
        Self { meter, failing: Mutex::default() }
    }

    /// Counts a failure of `task`, and logs the first one. `subject` names the slot, queue or pool at which it failed.
    pub(crate) fn note(&self, task: &'static str, subject: impl Display, error: impl Display) {
        self.meter.fail_task(task);
        let now = Instant::now();
        let is_first = match self.failing.lock().entry(task) {
            std::collections::btree_map::Entry::Occupied(mut known) => {
                let known = known.get_mut();
                (known.last, known.failures) = (now, known.failures + 1);
                false
            }
            std::collections::btree_map::Entry::Vacant(place) => {
                place.insert(Failing { since: now, last: now, failures: 1 });
                true
            }
        };
        if is_first {
            warn!(task, %subject, %error, "background task failing");
        } else {
            debug!(task, %subject, %error, "background task failed");
        }
    }

    /// Counts a failure whose reason is logged elsewhere.
    pub(crate) fn count(&self, task: &'static str, subject: impl Display, error: impl Display) {
        self.meter.fail_task(task);
        debug!(task, %subject, %error, "background task failed");
    }

    /// Removes and logs the tasks that have not failed for [`limits::TASK_QUIET`]. Returns their number.
    pub(crate) fn settle(&self) -> usize {
        let mut failing = self.failing.lock();
        let before = failing.len();
        failing.retain(|task, known| {
            let is_failing = known.last.elapsed() < limits::TASK_QUIET;
            if !is_failing {
                let failing_ms = millis(known.last - known.since);
                info!(task, failures = known.failures, failing_ms, "background task recovered");
            }
            is_failing
        });
        before - failing.len()
    }
}

impl LocalReplica {
    /// Counts a failure of a background task. Logs it when it is the first and its reason is not logged elsewhere: the
    /// store logs damage that it finds, and the tasks that check pools and the session log an unreachable pool or a
    /// lost session.
    pub(crate) fn task_failed(&self, task: &'static str, subject: impl Display, error: &Error) {
        if error.is_damaged() || self.is_told(error) {
            self.failures.count(task, subject, error.detail());
        } else {
            self.failures.note(task, subject, error.detail());
        }
    }

    pub(crate) fn is_told(&self, error: &Error) -> bool {
        match error {
            Error::Unavailable { part: Part::Pool(name), .. } => self.outages.is_away(name),
            Error::Unavailable { part: Part::Coordination, .. } => {
                self.catalogue.session().borrow().link != Link::Connected
            }
            // The slot has moved or is reacquired, which is logged.
            Error::Moved(_) => true,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn failing_task_recovers_after_a_quiet_time() {
        let failures = TaskFailures::new(Meter::default());
        failures.note("expire claims", "slot 1", "no");
        failures.note("expire claims", "slot 2", "no");
        assert_eq!(failures.failing.lock()["expire claims"].failures, 2, "both are one trouble");
        tokio::time::advance(limits::TASK_QUIET / 2).await;
        failures.note("expire claims", "slot 1", "no");
        tokio::time::advance(limits::TASK_QUIET / 2).await;
        assert_eq!(failures.settle(), 0, "it failed again meanwhile");
        tokio::time::advance(limits::TASK_QUIET / 2).await;
        assert_eq!((failures.settle(), failures.settle()), (1, 0), "it is told once");
    }
}
