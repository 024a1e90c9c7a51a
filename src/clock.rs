//! The one place that reads clocks. Everybody else gets a `Clock` or an instant.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use tracing::error;

use crate::domain::limits;
use crate::domain::time::Timestamp;

/// Tells the time: tree time, by which messages and claims live (P3).
///
/// It never goes back, whatever happens to the machine's clock, while the process runs or between two runs:
/// [`Clock::resume`] tells it how far time had come. On a tree with a clock of its own it follows that one:
/// [`Clock::begin`], [`Clock::learn`].
///
/// A step of more than a day is more likely a broken clock than the truth, and would end the life of everything. It is
/// not made, but reported: time goes on from where it was until an operator accepts the step. Clones are the same
/// clock.
#[derive(Clone, Debug)]
pub struct Clock {
    source: Source,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Milliseconds since the Unix epoch: at the process's start, or what the hand shows.
    base: AtomicU64,
    /// The latest instant that was told.
    told: AtomicU64,
    /// Milliseconds of a step that was not made; 0 when there is none.
    doubt: AtomicU64,
    /// Whether an operator accepts steps of any size.
    accepts: AtomicBool,
    /// Milliseconds since the Unix epoch that the wall clock of a manual clock shows.
    wall: AtomicU64,
}

#[derive(Clone, Copy, Debug)]
enum Source {
    /// A monotonic clock, set by the wall clock once.
    System { started: Instant },
    /// Moved by hand, for tests.
    Manual,
}

/// When somebody else was asked for the time.
#[derive(Clone, Copy, Debug)]
pub struct Asked(u64);

impl Clock {
    /// The machine's clock.
    pub fn system() -> Self {
        Self::of(Source::System { started: Instant::now() }, wall_millis())
    }

    /// A clock that stands at `millis` until it is moved.
    pub fn manual(millis: u64) -> Self {
        Self::of(Source::Manual, millis)
    }

    fn of(source: Source, base: u64) -> Self {
        let shared = Shared {
            base: AtomicU64::new(base),
            told: AtomicU64::new(0),
            doubt: AtomicU64::new(0),
            accepts: AtomicBool::new(false),
            wall: AtomicU64::new(base),
        };
        Self { source, shared: Arc::new(shared) }
    }

    /// Accepts steps of any size, because an operator says that they are right.
    pub fn accept_steps(&self) {
        self.shared.accepts.store(true, Ordering::Relaxed);
    }

    /// Now.
    pub fn now(&self) -> Timestamp {
        let now = self.shared.base.load(Ordering::Relaxed).saturating_add(self.passed());
        Timestamp::from_millis(self.shared.told.fetch_max(now, Ordering::Relaxed).max(now))
    }

    /// What the machine's wall clock shows, whatever tree time is: for dates that other machines write by theirs, as those of
    /// signatures. It may go back. A manual clock shows what it was set to and advanced by, without the steps of tree time.
    pub fn wall(&self) -> Timestamp {
        Timestamp::from_millis(match self.source {
            Source::System { .. } => wall_millis(),
            Source::Manual => self.shared.wall.load(Ordering::Relaxed),
        })
    }

    /// Milliseconds since the start of a machine's clock.
    fn passed(&self) -> u64 {
        match self.source {
            Source::System { started } => u64::try_from(started.elapsed().as_millis()).unwrap_or(0),
            Source::Manual => 0,
        }
    }

    /// The step of more than a day that was not made, if there is one.
    pub fn doubt(&self) -> Option<Duration> {
        let step = self.shared.doubt.load(Ordering::Relaxed);
        (step > 0).then(|| Duration::from_millis(step))
    }

    /// Goes on from `last`, when something was last written: not from before, and not from more than a day later.
    pub fn resume(&self, last: Timestamp) {
        let last = last.as_millis();
        if last == 0 {
            return;
        }
        let base = last.saturating_sub(self.passed());
        let here = self.shared.base.load(Ordering::Relaxed);
        if here > base && self.is_doubtful(here - base) {
            self.report(here - base);
            self.shared.base.store(base, Ordering::Relaxed);
        } else {
            self.shared.base.fetch_max(base, Ordering::Relaxed);
        }
    }

    /// Goes on from `last` if that is later. Another storage than the first may have been quiet for any time: it says
    /// nothing of a clock that is ahead.
    pub fn not_before(&self, last: Timestamp) {
        let base = last.as_millis().saturating_sub(self.passed());
        self.shared.base.fetch_max(base, Ordering::Relaxed);
    }

    /// To be kept before somebody else is asked for the time.
    pub fn asking(&self) -> Asked {
        Asked(self.passed())
    }

    /// Follows the clock of the tree from here on: it showed `theirs` some time after it was asked. `last` is when
    /// something was last written to the tree. To be called once, before anybody was told the time.
    pub fn begin(&self, asked: Asked, theirs: Timestamp, last: Option<Timestamp>) {
        let (low, high) = self.bounds(asked, theirs);
        let here = self.shared.base.load(Ordering::Relaxed);
        self.shared.base.store(here.clamp(low, high), Ordering::Relaxed);
        self.shared.told.store(0, Ordering::Relaxed);
        self.shared.doubt.store(0, Ordering::Relaxed);
        self.resume(last.unwrap_or_default());
    }

    /// Corrects the time by what the clock of the tree showed some time after it was asked, no further than the
    /// length of the question leaves room for. A clock that must go back stands still.
    pub fn learn(&self, asked: Asked, theirs: Timestamp) {
        let (low, high) = self.bounds(asked, theirs);
        let here = self.shared.base.load(Ordering::Relaxed);
        let right = here.clamp(low, high);
        if self.is_doubtful(right.abs_diff(here)) {
            self.report(right.abs_diff(here));
        } else {
            self.shared.doubt.store(0, Ordering::Relaxed);
            self.shared.base.store(right, Ordering::Relaxed);
        }
    }

    /// The least and the greatest base that agree with an answer.
    fn bounds(&self, Asked(asked): Asked, theirs: Timestamp) -> (u64, u64) {
        let (low, high) = (self.passed(), asked);
        (theirs.as_millis().saturating_sub(low), theirs.as_millis().saturating_sub(high))
    }

    fn is_doubtful(&self, step: u64) -> bool {
        u128::from(step) > limits::CLOCK_STEP.as_millis() && !self.shared.accepts.load(Ordering::Relaxed)
    }

    fn report(&self, step: u64) {
        if self.shared.doubt.swap(step, Ordering::Relaxed) == 0 {
            error!(
                step = ?Duration::from_millis(step),
                "the clock differs by more than a day from the last write; time goes on from there, so that nothing \
                 expires early. If the clock is right, restart with --accept-clock"
            );
        }
    }

    /// Moves a manual clock on. The machine's clock moves by itself.
    pub fn advance(&self, millis: u64) {
        if let Source::Manual = self.source {
            self.shared.base.fetch_add(millis, Ordering::Relaxed);
            self.shared.wall.fetch_add(millis, Ordering::Relaxed);
        }
    }
}

fn wall_millis() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(wall.as_millis()).unwrap_or(u64::MAX / 2)
}

/// Milliseconds since the machine started. It goes on while the machine is suspended and while this process is
/// stopped, so a lease that is measured by it ends in time.
pub fn since_boot() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1_000 + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000_000;
    const DAY: u64 = 24 * 3_600 * 1_000;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn time_goes_on_from_where_it_had_come() {
        for clock in [Clock::system(), Clock::manual(NOW)] {
            let ahead = at(clock.now().as_millis() + 1_000_000);
            clock.resume(ahead);
            let now = clock.now();
            assert!(now >= ahead);
            clock.resume(at(ahead.as_millis() - 500_000));
            assert!(clock.now() >= now);
        }
    }

    #[test]
    fn a_storage_that_was_quiet_for_long_does_not_set_it_back() {
        let clock = Clock::manual(NOW);
        clock.not_before(at(NOW - 7 * DAY));
        assert_eq!((clock.now(), clock.doubt()), (at(NOW), None));
        clock.not_before(at(NOW + 5));
        assert_eq!(clock.now(), at(NOW + 5));
    }

    #[test]
    fn a_step_of_more_than_a_day_since_the_last_write_is_not_made_until_it_is_accepted() {
        let clock = Clock::manual(NOW);
        clock.resume(at(NOW - DAY));
        assert_eq!((clock.now(), clock.doubt()), (at(NOW), None));

        let clock = Clock::manual(NOW);
        clock.resume(at(NOW - DAY - 1));
        assert_eq!(clock.now(), at(NOW - DAY - 1));
        assert_eq!(clock.doubt(), Some(Duration::from_millis(DAY + 1)));

        let clock = Clock::manual(NOW);
        clock.accept_steps();
        clock.resume(at(NOW - DAY - 1));
        assert_eq!((clock.now(), clock.doubt()), (at(NOW), None));
    }

    #[test]
    fn wall_clock_ignores_steps_of_tree_time() {
        let clock = Clock::manual(NOW);
        clock.begin(clock.asking(), at(NOW - 7_000_000), None);
        assert_eq!((clock.now(), clock.wall()), (at(NOW - 7_000_000), at(NOW)));
        clock.learn(clock.asking(), at(NOW + 7_000_000));
        assert_eq!((clock.now(), clock.wall()), (at(NOW + 7_000_000), at(NOW)));
        clock.advance(5);
        assert_eq!(clock.wall(), at(NOW + 5));
    }

    #[test]
    fn it_follows_the_clock_of_the_tree_and_never_goes_back() {
        let clock = Clock::manual(NOW);
        clock.begin(clock.asking(), at(NOW - 7_000), None);
        assert_eq!(clock.now(), at(NOW - 7_000), "at the start the machine's clock does not count");
        clock.learn(clock.asking(), at(NOW));
        assert_eq!(clock.now(), at(NOW));
        clock.learn(clock.asking(), at(NOW - 1_000));
        assert_eq!(clock.now(), at(NOW), "it stands still");
        clock.advance(1_001);
        assert_eq!(clock.now(), at(NOW + 1));
    }

    #[test]
    fn a_slow_answer_moves_it_no_further_than_it_must() {
        let clock = Clock::system();
        clock.begin(clock.asking(), at(NOW), None);
        let asked = Asked(0);
        std::thread::sleep(Duration::from_millis(5));
        let before = clock.shared.base.load(Ordering::Relaxed);
        // What an honest clock may have shown at any time since it was asked.
        clock.learn(asked, at(before + 3));
        assert_eq!(clock.shared.base.load(Ordering::Relaxed), before);
    }

    #[test]
    fn a_tree_that_is_more_than_a_day_off_is_not_followed_until_it_is_right_again() {
        for wrong in [NOW + DAY + 1, NOW - DAY - 1] {
            let clock = Clock::manual(NOW);
            clock.begin(clock.asking(), at(NOW), Some(at(NOW - 5)));
            clock.learn(clock.asking(), at(wrong));
            assert_eq!(clock.now(), at(NOW));
            assert!(clock.doubt().is_some());
            clock.learn(clock.asking(), at(NOW + 1));
            assert_eq!((clock.now(), clock.doubt()), (at(NOW + 1), None));
        }
    }
}
