//! The next deadline over all slots. Each caller that notes a deadline sets the alarm, and the one task that handles
//! due deadlines sleeps until then.
//!
//! ```text
//! note a deadline ──set──▶ alarm ◀──rest──▶ task: forget, check every slot (which sets the alarm again), rest
//! ```
//!
//! The task forgets the alarm before it checks the slots, so a deadline that is noted meanwhile stays set: the task may
//! check once too often, and misses none. A deadline that is later than the alarm does not wake the task.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use angarium_core::time::Timestamp;

use crate::limits;
use crate::replica::LocalReplica;

/// The earliest of many deadlines.
#[derive(Debug)]
pub(crate) struct Alarm {
    /// In milliseconds; the greatest number while no deadline is known.
    at: AtomicU64,
    /// Notified when the deadline becomes earlier.
    earlier: Notify,
}

impl Default for Alarm {
    fn default() -> Self {
        Self { at: AtomicU64::new(u64::MAX), earlier: Notify::new() }
    }
}

/// The alarms of a broker. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Alarms {
    /// For the expiry of claims.
    pub(crate) claims: Arc<Alarm>,
    /// For scheduled messages that become due.
    pub(crate) schedule: Arc<Alarm>,
}

impl Alarm {
    /// Records a deadline.
    pub(crate) fn set(&self, at: Timestamp) {
        if self.at.fetch_min(at.as_millis(), Ordering::AcqRel) > at.as_millis() {
            self.earlier.notify_one();
        }
    }

    /// Forgets the deadline: the caller is about to check everything.
    pub(crate) fn forget(&self) {
        self.at.store(u64::MAX, Ordering::Release);
    }

    /// Returns how long the task rests at the time `now`: until the deadline, but at least [`limits::DEADLINE_GRAIN`],
    /// so that one check meets many deadlines, and at most `longest`.
    pub(crate) fn pause(&self, now: Timestamp, longest: Duration) -> Duration {
        let left = self.at.load(Ordering::Acquire).saturating_sub(now.as_millis());
        Duration::from_millis(left).clamp(limits::DEADLINE_GRAIN, longest)
    }

    /// Sleeps for the time of `pause`. A deadline that is set meanwhile shortens the sleep.
    pub(crate) async fn rest(&self, now: impl Fn() -> Timestamp, longest: Duration) {
        let began = Instant::now();
        loop {
            let end = (Instant::now() + self.pause(now(), longest)).min(began + longest);
            tokio::select! {
                biased;
                () = self.earlier.notified() => {}
                () = sleep_until(end) => return,
            }
        }
    }
}

impl LocalReplica {
    /// Sleeps until the deadline of an alarm by the clock `now`, at most `longest`. Returns false when the service
    /// stops.
    pub(crate) async fn next_deadline(
        &self,
        alarm: &Alarm,
        now: impl Fn() -> Timestamp,
        longest: Duration,
    ) -> bool {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => false,
            () = alarm.rest(now, longest) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use angarium_clock::Clock;

    const LONGEST: Duration = Duration::from_millis(250);

    #[test]
    fn pause_ends_at_the_earliest_deadline() {
        let (clock, alarm) = (Clock::manual(1_000_000), Alarm::default());
        assert_eq!(alarm.pause(clock.now(), LONGEST), LONGEST, "there is no deadline");
        for (after, pause) in [(200, 200), (220, 200), (90, 90), (5_000, 90)] {
            alarm.set(Timestamp::from_millis(1_000_000 + after));
            assert_eq!(alarm.pause(clock.now(), LONGEST).as_millis(), pause, "set to {after} ms from now");
        }
        clock.advance(60);
        assert_eq!(alarm.pause(clock.now(), LONGEST).as_millis(), 30);
        clock.advance(60);
        assert_eq!(alarm.pause(clock.now(), LONGEST), limits::DEADLINE_GRAIN, "no rest without a sleep");
        alarm.forget();
        assert_eq!(alarm.pause(clock.now(), LONGEST), LONGEST);
    }

    #[tokio::test(start_paused = true)]
    async fn earlier_deadline_shortens_the_rest() {
        let (clock, alarm) = (Clock::manual(1_000_000), Arc::new(Alarm::default()));
        alarm.set(clock.now().plus_seconds(60));
        let (began, resting) = (Instant::now(), Arc::clone(&alarm));
        let longest = Duration::from_secs(100);
        let mut rest = tokio::task::JoinSet::new();
        rest.spawn(async move { resting.rest(|| Timestamp::from_millis(1_000_000), longest).await });
        tokio::time::sleep(Duration::from_millis(10)).await;
        alarm.set(Timestamp::from_millis(1_000_040));
        rest.join_next().await.unwrap().unwrap();
        assert_eq!(began.elapsed().as_millis(), 50, "it goes by the clock that it was given");
    }
}
