//! The circuit breaker of a webhook: a subscriber that fails again and again gets one attempt at a time, after a pause.
//!
//! ```text
//!            BREAK_AFTER failures              pause ends
//!   Closed ───────────────────────▶ Open ─────────────────▶ Probing
//!     ▲                              ▲                         │
//!     │                              └──────── failure ────────┤
//!     └──────────────────────── success ───────────────────────┘
//! ```

use std::time::Duration;

use angarium_core::time::Timestamp;

use crate::limits;

/// The failures in a row of one subscriber.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::webhooks) struct Breaker {
    failures: u32,
    /// No attempt begins before.
    open_until: Timestamp,
}

impl Breaker {
    /// Counts a success: the subscriber works.
    pub(in crate::webhooks) fn succeeded(&mut self) {
        *self = Self::default();
    }

    /// Counts a failure of the subscriber, which may want a pause.
    pub(in crate::webhooks) fn failed(&mut self, retry_after: Option<Duration>, now: Timestamp) {
        self.failures = self.failures.saturating_add(1);
        let own = self.failures.checked_sub(limits::WEBHOOK_BREAK_AFTER).map(|more| {
            let (first, most) = limits::WEBHOOK_PAUSE;
            first.saturating_mul(2_u32.saturating_pow(more.min(16))).min(most)
        });
        let pause = own.max(retry_after.map(|wanted| wanted.min(limits::WEBHOOK_RETRY_AFTER)));
        if let Some(pause) = pause {
            let until = Timestamp::from_millis(now.as_millis().saturating_add(pause.as_millis() as u64));
            self.open_until = self.open_until.max(until);
        }
    }

    /// The failures since the last success.
    pub(in crate::webhooks) fn failures(&self) -> u32 {
        self.failures
    }

    /// Whether only one message may be in delivery.
    pub(in crate::webhooks) fn is_broken(&self) -> bool {
        self.failures >= limits::WEBHOOK_BREAK_AFTER
    }

    /// When the pause ends; none when there is no pause.
    pub(in crate::webhooks) fn open_until(&self, now: Timestamp) -> Option<Timestamp> {
        (now < self.open_until).then_some(self.open_until)
    }

    /// How many messages may be in delivery, of `most`.
    pub(in crate::webhooks) fn room(&self, most: u32) -> u32 {
        if self.is_broken() { 1 } else { most }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    #[test]
    fn breaker_opens_after_failures_and_pauses_longer() {
        let mut breaker = Breaker::default();
        for _ in 1..limits::WEBHOOK_BREAK_AFTER {
            breaker.failed(None, at(0));
            assert_eq!((breaker.open_until(at(0)), breaker.room(10)), (None, 10));
        }
        let mut pauses = Vec::new();
        for _ in 0..8 {
            breaker.failed(None, at(100));
            pauses.push(breaker.open_until(at(100)).unwrap().seconds_since(at(100)));
            assert_eq!(breaker.room(10), 1);
            breaker.open_until = Timestamp::default();
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        breaker.succeeded();
        assert_eq!((breaker, breaker.room(10)), (Breaker::default(), 10));
    }

    #[test]
    fn subscriber_may_want_a_pause_within_bounds() {
        let mut breaker = Breaker::default();
        breaker.failed(Some(Duration::from_secs(7)), at(1));
        assert_eq!(breaker.open_until(at(1)), Some(at(8)));
        breaker.failed(Some(Duration::from_secs(2)), at(1));
        assert_eq!(breaker.open_until(at(1)), Some(at(8)), "the longer pause counts");
        breaker.failed(Some(Duration::MAX), at(1));
        assert_eq!(breaker.open_until(at(1)), Some(at(1 + limits::WEBHOOK_RETRY_AFTER.as_secs())));
    }
}
