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
    /// Ends the pause early, for a message that would not live until its end.
    last_attempt: Option<Timestamp>,
}

/// The pause that a subscriber gets of the one that it wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::webhooks) struct SubscriberPause {
    pub(in crate::webhooks) length: Duration,
    /// Whether it is shorter than wanted, for the last attempt of a message.
    pub(in crate::webhooks) is_cut: bool,
}

impl SubscriberPause {
    /// A message that would not live until the subscriber wants it is sent once more before its life ends; when no time is
    /// left for that, the subscriber gets its pause.
    pub(in crate::webhooks) fn of(wanted: Duration, expires: Timestamp, now: Timestamp) -> Self {
        let wanted = wanted.min(limits::WEBHOOK_RETRY_AFTER);
        let rest = Duration::from_millis(expires.as_millis().saturating_sub(now.as_millis()));
        let last = rest.saturating_sub(limits::WEBHOOK_LAST_ATTEMPT);
        let is_cut = wanted >= rest && !last.is_zero();
        Self { length: if is_cut { last } else { wanted }, is_cut }
    }
}

impl Breaker {
    /// Counts a success: the subscriber works.
    pub(in crate::webhooks) fn succeeded(&mut self) {
        *self = Self::default();
    }

    /// Counts a failure of the subscriber, which may want a pause.
    pub(in crate::webhooks) fn failed(&mut self, wanted: Option<SubscriberPause>, now: Timestamp) {
        let after = |pause: Duration| {
            Timestamp::from_millis(now.as_millis().saturating_add(pause.as_millis() as u64))
        };
        let cut = wanted.filter(|wanted| wanted.is_cut).map(|wanted| after(wanted.length));
        self.last_attempt = self.last_attempt.filter(|last| now < *last).into_iter().chain(cut).min();
        self.failures = self.failures.saturating_add(1);
        let own = self.failures.checked_sub(limits::WEBHOOK_BREAK_AFTER).map(|more| {
            let (first, most) = limits::WEBHOOK_PAUSE;
            first.saturating_mul(2_u32.saturating_pow(more.min(16))).min(most)
        });
        if let Some(pause) = own.max(wanted.map(|wanted| wanted.length)) {
            self.open_until = self.open_until.max(after(pause));
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
        let until = self.last_attempt.map_or(self.open_until, |last| last.min(self.open_until));
        (now < until).then_some(until)
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

    /// The pause for a message that lives long.
    fn pause(seconds: u64) -> Option<SubscriberPause> {
        let expires = Timestamp::from_millis(u64::MAX);
        Some(SubscriberPause::of(Duration::from_secs(seconds), expires, Timestamp::default()))
    }

    #[test]
    fn subscriber_may_want_a_pause_within_bounds() {
        let mut breaker = Breaker::default();
        breaker.failed(pause(7), at(1));
        assert_eq!(breaker.open_until(at(1)), Some(at(8)));
        breaker.failed(pause(2), at(1));
        assert_eq!(breaker.open_until(at(1)), Some(at(8)), "the longer pause counts");
        breaker.failed(pause(u64::MAX), at(1));
        assert_eq!(breaker.open_until(at(1)), Some(at(1 + limits::WEBHOOK_RETRY_AFTER.as_secs())));
    }

    #[test]
    fn pause_leaves_time_for_the_last_attempt() {
        let pause = |wanted: u64, life: u64| {
            let pause = SubscriberPause::of(Duration::from_secs(wanted), at(1_000 + life), at(1_000));
            (pause.length.as_secs(), pause.is_cut)
        };
        assert_eq!((pause(100, 101), pause(100_000, 10_000)), ((100, false), (3_600, false)));
        assert_eq!(
            (pause(100, 100), pause(3_600, 31), pause(u64::MAX, 300)),
            ((70, true), (1, true), (270, true))
        );
        assert_eq!((pause(100, 30), pause(100, 0)), ((100, false), (100, false)), "its life ends before");
    }

    #[test]
    fn last_attempt_ends_longer_pause_of_other_messages() {
        let wanted =
            |life: u64, now: u64| Some(SubscriberPause::of(Duration::from_secs(600), at(life), at(now)));
        for lives in [[5_000, 300], [300, 5_000]] {
            let mut breaker = Breaker::default();
            lives.into_iter().for_each(|life| breaker.failed(wanted(life, 0), at(0)));
            assert_eq!(breaker.open_until(at(0)), Some(at(270)), "{lives:?}");
            assert_eq!(breaker.open_until(at(270)), None);
            breaker.failed(wanted(300, 271), at(271));
            assert_eq!(breaker.open_until(at(271)), Some(at(871)), "the last attempt has failed");
        }
    }
}
