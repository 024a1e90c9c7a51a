//! The one place that reads clocks. Every caller else gets a `Clock` or an instant.

mod course;
pub mod limits;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use tracing::{error, info, warn};

use angarium_core::limits as core_limits;
use angarium_core::time::Timestamp;
use course::{Bounds, Course, ServerTime, difference};

/// Tells the time: tree time, by which messages and claims live (P3).
///
/// It never returns, whatever happens to the machine's clock, while the process runs or between two runs:
/// [`Clock::resume`] tells it how far time had come. On a tree with a clock of its own it follows that one:
/// [`Clock::begin`], [`Clock::learn`]. It follows by at most 1 s in 10 s, so a step of the servers' clock ends no claim
/// and no life early; [`Clock::agree`] holds replicas together meanwhile.
///
/// A step of more than a day is more likely a broken clock than the truth, and would end the life of everything. It is
/// not made, but reported: time continues from where it was until an operator accepts the step. Clones are the same
/// clock.
#[derive(Clone, Debug)]
pub struct Clock {
    source: Source,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Tree time less the time that has passed, while `is_steady`. A copy of that of the course.
    base: AtomicU64,
    /// Whether the course has nothing to correct, so that `base` is all there is to know.
    is_steady: AtomicBool,
    /// Where time is going. Held for single looks and changes.
    course: Mutex<Course>,
    /// The latest instant that was told.
    told: AtomicU64,
    /// Milliseconds of a step that was not made; 0 when there is none.
    doubt: AtomicU64,
    /// Milliseconds for which the machine was suspended, as far as was noticed. A monotonic clock leaves them out.
    slept: AtomicU64,
    /// Whether an operator accepts steps of any size.
    accepts: AtomicBool,
    /// Milliseconds since the Unix epoch that the wall clock of a manual clock shows.
    wall: AtomicU64,
}

#[derive(Clone, Copy, Debug)]
enum Source {
    /// A monotonic clock, set by the wall clock once.
    System {
        started: Instant,
        /// [`since_boot`] at that moment.
        booted: u64,
    },
    /// Moved by hand, for tests.
    Manual,
}

/// When another caller was asked for the time.
#[derive(Clone, Copy, Debug)]
pub struct ClockQuery(u64);

/// What the replicas have recorded last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeRecords {
    /// Tree time at the write.
    pub time: Timestamp,
    /// What the clock of the servers showed at the write.
    pub servers: Timestamp,
}

impl TimeRecords {
    /// How far the servers' clock was ahead of tree time, in milliseconds; negative when it was behind.
    pub fn gap(&self) -> i64 {
        difference(self.servers.as_millis(), self.time.as_millis())
    }
}

impl Clock {
    /// The machine's clock.
    pub fn system() -> Self {
        Self::of(Source::System { started: Instant::now(), booted: since_boot() }, wall_millis())
    }

    /// A clock that is at `millis` until it is moved.
    pub fn manual(millis: u64) -> Self {
        Self::of(Source::Manual, millis)
    }

    fn of(source: Source, base: u64) -> Self {
        let shared = Shared {
            base: AtomicU64::new(base),
            is_steady: AtomicBool::new(true),
            course: Mutex::new(Course::new(base)),
            told: AtomicU64::new(0),
            doubt: AtomicU64::new(0),
            slept: AtomicU64::new(0),
            accepts: AtomicBool::new(false),
            wall: AtomicU64::new(base),
        };
        Self { source, shared: Arc::new(shared) }
    }

    /// Accepts steps of any size, because an operator states that they are right.
    pub fn accept_steps(&self) {
        self.shared.accepts.store(true, Ordering::Relaxed);
    }

    pub fn now(&self) -> Timestamp {
        let now = if self.shared.is_steady.load(Ordering::Acquire) {
            self.shared.base.load(Ordering::Relaxed).saturating_add(self.passed())
        } else {
            let course = self.shared.course.lock();
            course.at(self.passed())
        };
        Timestamp::from_millis(self.shared.told.fetch_max(now, Ordering::Relaxed).max(now))
    }

    /// Now, as the other replicas have it: without a lead that is being given up.
    pub fn agreed(&self) -> Timestamp {
        let now = self.now();
        let lead = self.shared.course.lock().lead(self.passed());
        Timestamp::from_millis(now.as_millis().saturating_sub(lead))
    }

    /// What the machine's wall clock shows, whatever tree time is: for dates that other machines write by theirs, as those of
    /// signatures. It may go back. A manual clock shows what it was set to and advanced by, without the steps of tree time.
    pub fn wall(&self) -> Timestamp {
        Timestamp::from_millis(match self.source {
            Source::System { .. } => wall_millis(),
            Source::Manual => self.shared.wall.load(Ordering::Relaxed),
        })
    }

    /// Milliseconds since the start of a machine's clock. The time that a suspension took is in from [`Clock::asking`] on.
    fn passed(&self) -> u64 {
        let slept = self.shared.slept.load(Ordering::Relaxed);
        match self.source {
            Source::System { started, .. } => {
                u64::try_from(started.elapsed().as_millis()).unwrap_or(0).saturating_add(slept)
            }
            Source::Manual => slept,
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut Course, u64) -> T) -> T {
        let mut course = self.shared.course.lock();
        self.shared.is_steady.store(false, Ordering::Release);
        let outcome = change(&mut course, self.passed());
        self.shared.base.store(course.base, Ordering::Relaxed);
        self.shared.is_steady.store(course.is_steady(), Ordering::Release);
        outcome
    }

    /// The step of more than a day that was not made, if there is one.
    pub fn doubt(&self) -> Option<Duration> {
        let step = self.shared.doubt.load(Ordering::Relaxed);
        (step > 0).then(|| Duration::from_millis(step))
    }

    /// How far the servers' clock is from tree time, in milliseconds, after a step of it that is being followed.
    pub fn gap(&self) -> Option<i64> {
        self.shared.course.lock().gap(self.passed())
    }

    /// Continues from `last`, when something was last written: not from before, and not from more than a day later.
    pub fn resume(&self, last: Timestamp) {
        let last = last.as_millis();
        if last == 0 {
            return;
        }
        self.change(|course, passed| {
            let base = last.saturating_sub(passed);
            if course.base > base && self.is_doubtful(course.base - base) {
                self.report(course.base - base);
                course.set(base, passed);
            } else {
                course.set(course.base.max(base), passed);
            }
        });
    }

    /// Continues from `last` if that is later. Another storage than the first may have been quiet for any time: it
    /// states nothing of a clock that is ahead.
    pub fn not_before(&self, last: Timestamp) {
        self.change(|course, passed| {
            let base = last.as_millis().saturating_sub(passed);
            course.set(course.base.max(base), passed);
        });
    }

    /// To be kept before another caller is asked for the time.
    pub fn asking(&self) -> ClockQuery {
        if let Source::System { started, booted } = self.source {
            let awake = u64::try_from(started.elapsed().as_millis()).unwrap_or(0);
            let slept = since_boot().saturating_sub(booted).saturating_sub(awake);
            // The two clocks are not read at the same instant.
            if slept > self.shared.slept.load(Ordering::Relaxed) + 1_000 {
                self.shared.slept.store(slept, Ordering::Relaxed);
            }
        }
        ClockQuery(self.passed())
    }

    /// Begins with the clock of the tree, which showed `theirs` some time after it was asked. To be called once, before
    /// any caller was told the time.
    ///
    /// Time continues from what was last recorded, by as much as the clock of the tree has moved since then: so a step
    /// that others are still following is no step here. Without a record the clock of the tree is the time.
    pub fn begin(&self, asked: ClockQuery, theirs: Timestamp, last: Option<TimeRecords>) {
        self.shared.doubt.store(0, Ordering::Relaxed);
        self.shared.told.store(0, Ordering::Relaxed);
        self.change(|course, passed| {
            let offset = bounds(asked, theirs, passed);
            *course = Course::new(course.base.clamp(offset.low, offset.high));
            course.learn(offset, passed);
            let Some(TimeRecords { time, servers }) = last else { return };
            let now = course.at(passed);
            let (time, age) = (time.as_millis(), now.saturating_sub(servers.as_millis()));
            if self.shared.accepts.load(Ordering::Relaxed) {
                return course.set(now.max(time).saturating_sub(passed), passed);
            }
            let is_old = self.is_doubtful(age);
            let goes_on = if is_old { time } else { carried(time, servers.as_millis(), age) };
            course.set(goes_on.saturating_sub(passed), passed);
            let gap = difference(now, goes_on);
            if self.is_doubtful(gap.unsigned_abs()) {
                self.report(gap.unsigned_abs())
            } else {
                self.follow(course, ServerTime { step: gap, gap })
            }
        });
    }

    /// As [`Clock::agree`], right after [`Clock::begin`]: no caller acts on what it told so far, so it leaves either
    /// way at once.
    pub fn begin_beside(&self, asked: ClockQuery, theirs: Timestamp) {
        let behind = self.change(|course, passed| {
            let time = beside(asked, theirs, passed);
            let here = course.at(passed);
            let behind = difference(here.clamp(time.low, time.high), here);
            course.shift(behind, passed);
            behind
        });
        self.shared.told.store(0, Ordering::Relaxed);
        tell_agreed(behind);
    }

    /// Leaves over to the time of the other replicas, one of which has recorded `theirs` some time after it was asked:
    /// at once to a later time, at half the rate to an earlier one.
    pub fn agree(&self, asked: ClockQuery, theirs: Timestamp) {
        tell_agreed(self.change(|course, passed| course.agree(beside(asked, theirs, passed), passed)));
    }

    /// Learns what the clock of the tree showed some time after it was asked, no further than the length of the question
    /// leaves room for. Tree time follows it by at most 1 s in 10 s, and never stops.
    pub fn learn(&self, asked: ClockQuery, theirs: Timestamp) {
        self.change(|course, passed| {
            let learnt = course.learn(bounds(asked, theirs, passed), passed);
            if self.is_doubtful(learnt.gap.unsigned_abs()) {
                course.hold();
                self.report(learnt.gap.unsigned_abs());
            } else {
                self.shared.doubt.store(0, Ordering::Relaxed);
                self.follow(course, learnt);
            }
        });
    }

    fn follow(&self, course: &mut Course, learnt: ServerTime) {
        if u128::from(learnt.step.unsigned_abs()) > limits::CLOCK_STEP_TOLD.as_millis() {
            warn!(step_ms = learnt.step, gap_ms = learnt.gap, "coordination clock stepped");
        }
        course.follow(learnt);
    }

    fn is_doubtful(&self, step: u64) -> bool {
        u128::from(step) > limits::CLOCK_STEP.as_millis() && !self.shared.accepts.load(Ordering::Relaxed)
    }

    fn report(&self, step: u64) {
        if self.shared.doubt.swap(step, Ordering::Relaxed) == 0 {
            error!(
                step_ms = step,
                next_step = "nothing expires early; restart with --accept-clock if the clock is right",
                "clock differs from last write"
            );
        }
    }

    /// Moves a manual clock on. The machine's clock moves by itself.
    pub fn advance(&self, millis: u64) {
        if let Source::Manual = self.source {
            self.shared.slept.fetch_add(millis, Ordering::Relaxed);
            self.shared.wall.fetch_add(millis, Ordering::Relaxed);
        }
    }
}

fn wall_millis() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(wall.as_millis()).unwrap_or(u64::MAX / 2)
}

/// The least and the greatest offset of the servers' clock that agree with an answer.
fn bounds(ClockQuery(asked): ClockQuery, theirs: Timestamp, passed: u64) -> Bounds {
    let theirs = theirs.as_millis();
    Bounds { low: theirs.saturating_sub(passed), high: theirs.saturating_sub(asked) }
}

/// The least and the greatest that tree time can be by now at a replica that recorded `theirs` some time after it was asked.
fn beside(ClockQuery(asked): ClockQuery, theirs: Timestamp, passed: u64) -> Bounds {
    let longest = passed.saturating_sub(asked);
    let latest = theirs.as_millis().saturating_add(longest + longest / limits::CLOCK_SLEW_PARTS);
    Bounds { low: theirs.as_millis(), high: latest }
}

fn tell_agreed(behind: i64) {
    if u128::from(behind.unsigned_abs()) > core_limits::CLOCK_LOOK.as_millis() {
        info!(behind_ms = behind, "tree time taken from replicas");
    }
}

/// Tree time that was recorded as `time` when the servers' clock showed `servers`, after that has moved on by `age`. Who is
/// beside it has followed the servers' clock meanwhile.
fn carried(time: u64, servers: u64, age: u64) -> u64 {
    let gap = difference(servers, time);
    let most = if u128::from(gap.unsigned_abs()) > limits::CLOCK_STEP.as_millis() {
        0
    } else {
        i64::try_from(age / limits::CLOCK_SLEW_PARTS).unwrap_or(i64::MAX)
    };
    time.saturating_add(age).saturating_add_signed(gap.clamp(-most, most))
}

/// Milliseconds since the machine started. It continues while the machine is suspended and while this process is
/// stopped, so a lease that is measured by it ends in time.
pub fn since_boot() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1_000 + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000
}
