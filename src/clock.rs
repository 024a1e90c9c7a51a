//! The one place that reads clocks. Everybody else gets a `Clock` or an instant.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::domain::time::Timestamp;

/// Tells the time. It never goes back, whatever happens to the machine's clock, while the process runs or
/// between two runs: [`Clock::not_before`] tells it how far time had come. Clones are the same clock.
#[derive(Clone, Debug)]
pub struct Clock {
    source: Source,
    /// Milliseconds since the Unix epoch: at the process's start, or what the hand shows.
    base: Arc<AtomicU64>,
}

#[derive(Clone, Copy, Debug)]
enum Source {
    /// A monotonic clock, set by the wall clock once.
    System { started: Instant },
    /// Moved by hand, for tests.
    Manual,
}

impl Clock {
    /// The machine's clock.
    pub fn system() -> Self {
        #[expect(clippy::disallowed_methods, reason = "this is the clock")]
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let base = u64::try_from(wall.as_millis()).unwrap_or(u64::MAX / 2);
        Self { source: Source::System { started: Instant::now() }, base: Arc::new(AtomicU64::new(base)) }
    }

    /// A clock that stands at `millis` until it is moved.
    pub fn manual(millis: u64) -> Self {
        Self { source: Source::Manual, base: Arc::new(AtomicU64::new(millis)) }
    }

    /// Now.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.base.load(Ordering::Relaxed).saturating_add(self.passed()))
    }

    /// Milliseconds since the start of a machine's clock.
    fn passed(&self) -> u64 {
        match self.source {
            Source::System { started } => u64::try_from(started.elapsed().as_millis()).unwrap_or(0),
            Source::Manual => 0,
        }
    }

    /// Sets the clock forward to `earliest` if it is behind. Without this a process that starts with a clock
    /// behind its predecessor's would give messages a life that is over by the right time (P3).
    pub fn not_before(&self, earliest: Timestamp) {
        let base = earliest.as_millis().saturating_sub(self.passed());
        self.base.fetch_max(base, Ordering::Relaxed);
    }

    /// Moves a manual clock on. The machine's clock moves by itself.
    pub fn advance(&self, millis: u64) {
        if let Source::Manual = self.source {
            self.base.fetch_add(millis, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on_from_where_it_had_come() {
        for clock in [Clock::system(), Clock::manual(1_000)] {
            let ahead = Timestamp::from_millis(clock.now().as_millis() + 1_000_000);
            clock.not_before(ahead);
            let now = clock.now();
            assert!(now >= ahead);
            clock.not_before(Timestamp::from_millis(5));
            assert!(clock.now() >= now);
        }
    }
}
