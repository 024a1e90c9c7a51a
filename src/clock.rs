//! The one place that reads clocks. Everybody else gets a `Clock` or an instant.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::domain::time::Timestamp;

/// Tells the time. It never goes back, whatever happens to the machine's clock while the process runs.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    /// A monotonic clock, set by the wall clock once.
    System { started: Instant, offset: u64 },
    /// Moved by hand, for tests.
    Manual(Arc<AtomicU64>),
}

impl Clock {
    /// The machine's clock.
    pub fn system() -> Self {
        #[expect(clippy::disallowed_methods, reason = "this is the clock")]
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let offset = u64::try_from(wall.as_millis()).unwrap_or(u64::MAX / 2);
        Self(Source::System { started: Instant::now(), offset })
    }

    /// A clock that stands at `millis` until it is moved.
    pub fn manual(millis: u64) -> Self {
        Self(Source::Manual(Arc::new(AtomicU64::new(millis))))
    }

    /// Now.
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::System { started, offset } => {
                let passed = u64::try_from(started.elapsed().as_millis()).unwrap_or(0);
                Timestamp::from_millis(offset.saturating_add(passed))
            }
            Source::Manual(millis) => Timestamp::from_millis(millis.load(Ordering::SeqCst)),
        }
    }

    /// Moves a manual clock on. The machine's clock moves by itself.
    pub fn advance(&self, millis: u64) {
        if let Source::Manual(at) = &self.0 {
            at.fetch_add(millis, Ordering::SeqCst);
        }
    }
}
