//! Rate limit of requests for each project. Pure: instants are arguments.

use std::num::NonZeroU32;

use crate::time::Timestamp;

/// Max requests in a second. A project that made none for a second may make those of one second at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate(NonZeroU32);

const SECOND: u64 = 1_000_000;

/// The used part of a rate: the time in microseconds at which the project has its whole rate again. Source: the virtual
/// scheduling of the Generic Cell Rate Algorithm (ITU-T I.371).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateUse(u64);

impl Rate {
    /// This many requests in a second.
    pub fn new(per_second: NonZeroU32) -> Self {
        Self(per_second)
    }

    /// The number of requests in a second.
    pub fn per_second(self) -> u32 {
        self.0.get()
    }

    /// Uses one request at `now`; none when the rate has none left.
    pub fn spend(self, used: RateUse, now: Timestamp) -> Option<RateUse> {
        let now = micros(now);
        let whole = used.0.max(now) + SECOND / u64::from(self.0.get());
        (whole - now <= SECOND).then_some(RateUse(whole))
    }
}

impl RateUse {
    /// Whether the whole rate is available at `now`.
    pub fn is_over(self, now: Timestamp) -> bool {
        self.0 <= micros(now)
    }
}

fn micros(time: Timestamp) -> u64 {
    time.as_millis().saturating_mul(1_000).min(u64::MAX / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(per_second: u32) -> Rate {
        Rate::new(NonZeroU32::new(per_second).unwrap())
    }

    /// Number of requests at `now` that the rate allows.
    fn spent(rate: Rate, used: &mut RateUse, now: u64) -> usize {
        let mut spent = 0;
        while let Some(next) = rate.spend(*used, Timestamp::from_millis(now)) {
            *used = next;
            spent += 1;
        }
        spent
    }

    #[test]
    fn a_rest_gives_one_second_at_once_and_no_more() {
        for per_second in [1, 7, 1_000, 50_000] {
            let (rate, mut used) = (rate(per_second), RateUse::default());
            let expected = usize::try_from(per_second).unwrap();
            assert_eq!(spent(rate, &mut used, 1_000), expected);
            assert_eq!(spent(rate, &mut used, 1_000), 0);
            assert_eq!(spent(rate, &mut used, 100_000), expected);
        }
    }

    #[test]
    fn used_rate_returns_evenly() {
        let (rate, mut used) = (rate(10), RateUse::default());
        assert_eq!(spent(rate, &mut used, 0), 10);
        assert_eq!(spent(rate, &mut used, 99), 0);
        assert_eq!(spent(rate, &mut used, 100), 1);
        assert_eq!(spent(rate, &mut used, 600), 5);
        assert!(!used.is_over(Timestamp::from_millis(1_000)));
        assert!(used.is_over(Timestamp::from_millis(1_600)));
    }

    #[test]
    fn no_time_is_too_late_for_the_sum() {
        assert!(rate(1).spend(RateUse::default(), Timestamp::from_millis(u64::MAX)).is_some());
    }
}
