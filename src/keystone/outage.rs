//! Log of outages of Keystone: a failure is logged when it begins, and then at intervals with the number of failures.
//! Requests that wait for a place are no outage of Keystone, and neither is a user that may not validate tokens.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::{info, warn};

use super::limits;

/// The state of the log. The lock is held for one access.
#[derive(Default)]
pub(super) struct Outage(Mutex<State>);

#[derive(Default)]
struct State {
    is_out: bool,
    /// The time of the last log line of a failure.
    logged: Option<Instant>,
    /// Failures since the last line.
    left_out: u64,
}

impl State {
    /// Records a failure. If it gets a log line, returns the number of failures without one since the last line.
    fn fail(&mut self, now: Instant) -> Option<u64> {
        self.is_out = true;
        if self.logged.is_some_and(|logged| now.duration_since(logged) < limits::KEYSTONE_LOG) {
            self.left_out += 1;
            return None;
        }
        self.logged = Some(now);
        Some(std::mem::take(&mut self.left_out))
    }

    /// Records a success. If it ends an outage whose last line is old enough, returns the number of failures without a
    /// line.
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
    /// Records that a token could not be looked up.
    pub(super) fn note(&self, why: &str) {
        let Some(left_out) = self.0.lock().fail(Instant::now()) else { return };
        warn!(why, left_out, "keystone cannot be used");
    }

    /// Records that Keystone answers but refuses the service itself.
    pub(super) fn note_refusal(&self, why: &str) {
        let Some(left_out) = self.0.lock().fail(Instant::now()) else { return };
        warn!(why, left_out, "keystone refuses the service");
    }

    /// Records that a token was looked up.
    pub(super) fn end(&self) {
        let Some(left_out) = self.0.lock().succeed(Instant::now()) else { return };
        info!(left_out, "keystone can be used again");
    }
}

/// An event with at most one log line per interval.
pub(super) struct RepeatedEvent {
    pause: Duration,
    /// The time of the last line, and the number of events since then. The lock is held for one access.
    logged: Mutex<Option<(Instant, u64)>>,
}

impl RepeatedEvent {
    /// Allows at most one line in each `pause`.
    pub(super) fn new(pause: Duration) -> Self {
        Self { pause, logged: Mutex::default() }
    }

    /// Records an event. If it gets a log line, returns the number of events without one since the last line.
    pub(super) fn note(&self) -> Option<u64> {
        let (mut logged, now) = (self.logged.lock(), Instant::now());
        match &mut *logged {
            Some((when, left_out)) if now.duration_since(*when) < self.pause => {
                *left_out += 1;
                None
            }
            last => {
                let left_out = last.map_or(0, |(_, left_out)| left_out);
                *last = Some((now, 0));
                Some(left_out)
            }
        }
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

    #[tokio::test(start_paused = true)]
    async fn repeated_event_is_logged_once_in_its_pause() {
        let event = RepeatedEvent::new(Duration::from_secs(10));
        assert_eq!([event.note(), event.note(), event.note()], [Some(0), None, None]);
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!([event.note(), event.note()], [Some(2), None]);
    }
}
