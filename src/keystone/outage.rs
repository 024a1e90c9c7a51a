//! Whether Keystone can be used, for the log: what fails is logged when it begins, and then now and again with its number.

use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::{info, warn};

use angarium_core::limits;

/// What was logged lately. The lock is held for one look.
#[derive(Default)]
pub(super) struct Outage(Mutex<State>);

#[derive(Default)]
struct State {
    is_out: bool,
    /// When a failure was logged last.
    logged: Option<Instant>,
    /// Failures since then.
    left_out: u64,
}

impl State {
    /// Notes a failure. If it has a line: how many had none since the last one.
    fn fail(&mut self, now: Instant) -> Option<u64> {
        self.is_out = true;
        if self.logged.is_some_and(|logged| now.duration_since(logged) < limits::KEYSTONE_LOG) {
            self.left_out += 1;
            return None;
        }
        self.logged = Some(now);
        Some(std::mem::take(&mut self.left_out))
    }

    /// Notes a success. If it ends an outage whose last line is old enough: how many failures had none.
    fn succeed(&mut self, now: Instant) -> Option<u64> {
        if !self.is_out || self.logged.is_some_and(|logged| now.duration_since(logged) < limits::KEYSTONE_LOG)
        {
            return None;
        }
        self.is_out = false;
        Some(std::mem::take(&mut self.left_out))
    }
}

impl Outage {
    /// A token could not be looked up.
    pub(super) fn note(&self, why: &str) {
        let Some(left_out) = self.0.lock().fail(Instant::now()) else { return };
        warn!(why, left_out, "keystone cannot be used");
    }

    /// A token was looked up.
    pub(super) fn end(&self) {
        let Some(left_out) = self.0.lock().succeed(Instant::now()) else { return };
        info!(left_out, "keystone can be used again");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn failures_are_logged_once_in_a_while() {
        let (mut state, start) = (State::default(), Instant::now());
        assert_eq!(state.succeed(start), None, "nothing has failed");
        assert_eq!(state.fail(start), Some(0));
        assert_eq!((state.fail(start), state.fail(start)), (None, None));
        assert_eq!(state.succeed(start), None, "it may fail again at once");
        let later = start + limits::KEYSTONE_LOG;
        assert_eq!(state.fail(later), Some(2));
        assert_eq!(state.succeed(later + limits::KEYSTONE_LOG), Some(0));
        assert_eq!(state.succeed(later + limits::KEYSTONE_LOG), None);
    }
}
