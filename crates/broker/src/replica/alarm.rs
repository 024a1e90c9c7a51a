//! When the next deadline is, over all slots: kept by the task that notes a deadline, slept until by the one task
//! that looks what is due.
//!
//! ```text
//! note a deadline ──set──▶ alarm ◀──rest──▶ task: forget, look at every slot (which sets the alarm again), rest
//! ```
//!
//! The task forgets before it looks, so a deadline that is noted meanwhile stays set: it is looked at once too often,
//! and never missed. A deadline that is later than the alarm wakes no caller.

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
    /// In milliseconds; the greatest number while none is known.
    at: AtomicU64,
    /// Told when it became earlier.
    earlier: Notify,
}

impl Default for Alarm {
    fn default() -> Self {
        Self { at: AtomicU64::new(u64::MAX), earlier: Notify::new() }
    }
}

/// The alarms of a broker. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Alarms {
    /// For claims whose time has ended.
    pub(crate) claims: Arc<Alarm>,
    /// For scheduled messages that become ready.
    pub(crate) schedule: Arc<Alarm>,
}

impl Alarm {
    /// Something is to be looked at by then.
    pub(crate) fn set(&self, at: Timestamp) {
        if self.at.fetch_min(at.as_millis(), Ordering::AcqRel) > at.as_millis() {
            self.earlier.notify_one();
        }
    }

    /// The caller is about to look at everything.
    pub(crate) fn forget(&self) {
        self.at.store(u64::MAX, Ordering::Release);
    }

    /// How long the task rests when it is `now`: until the deadline, but [`limits::DEADLINE_GRAIN`] at least, so that many
    /// deadlines are met by one look, and `longest` at most.
    pub(crate) fn pause(&self, now: Timestamp, longest: Duration) -> Duration {
        let left = self.at.load(Ordering::Acquire).saturating_sub(now.as_millis());
        Duration::from_millis(left).clamp(limits::DEADLINE_GRAIN, longest)
    }

    /// Rests so long. A deadline that is set meanwhile shortens it.
    pub(crate) async fn rest(&self, now: impl Fn() -> Timestamp, longest: Duration) {
        let began = Instant::now();
        loop {
            let end = (Instant::now() + self.pause(now(), longest)).min(began + longest);
            tokio::select! {
                () = self.earlier.notified() => {}
                () = sleep_until(end) => return,
            }
        }
    }
}

impl LocalReplica {
    /// Rests until the deadline of an alarm by a clock, `longest` at most. False when the service stops.
    pub(crate) async fn next_deadline(
        &self,
        alarm: &Alarm,
        now: impl Fn() -> Timestamp,
        longest: Duration,
    ) -> bool {
        tokio::select! {
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
