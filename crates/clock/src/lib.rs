//! The only crate that reads clocks. All other code gets a `Clock` or an instant.

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

/// The clock for tree time, which decides when messages and claims expire (P3).
///
/// Tree time never runs backwards, whatever the machine's clock does, while the process runs and between two runs:
/// [`Clock::resume`] sets the last recorded time. On a tree with its own clock, tree time follows that clock:
/// [`Clock::begin`], [`Clock::learn`]. It follows by at most 1 s in 10 s, so a step of the servers' clock expires no
/// claim and no message early; meanwhile [`Clock::agree`] keeps the replicas together.
///
/// A step of more than a day is more likely a broken clock than the truth, and would expire everything. Such a step is
/// reported and not followed: tree time continues from its last value until an operator accepts the step. Clones share
/// one clock.
#[derive(Clone, Debug)]
pub struct Clock {
    source: Source,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Tree time minus the passed time, while `is_steady`. A copy of the base of the course.
    base: AtomicU64,
    /// Whether the course has no remaining adjustment, so that `base` alone determines the time.
    is_steady: AtomicBool,
    /// The course of tree time. The lock is held for single reads and changes.
    course: Mutex<Course>,
    /// The latest time that was returned.
    last_returned: AtomicU64,
    /// Milliseconds of a step that was not followed; 0 when there is none.
    doubt: AtomicU64,
    /// Milliseconds for which the machine was suspended, as far as detected. A monotonic clock does not count them.
    slept: AtomicU64,
    /// Whether an operator accepts steps of any size.
    accepts: AtomicBool,
    /// Milliseconds by which the clock of this process was set back at its start, see [`Clock::run_behind`].
    behind: AtomicU64,
    /// Wall clock of a manual clock, in milliseconds since the Unix epoch.
    wall: AtomicU64,
}

#[derive(Clone, Copy, Debug)]
enum Source {
    /// A monotonic clock, set by the wall clock at its start.
    System {
        started: Instant,
        /// Value of [`since_boot`] at the start.
        booted: u64,
    },
    /// A clock moved by tests.
    Manual,
    /// The clock of the runtime, which a simulation pauses and advances.
    Runtime { started: tokio::time::Instant },
}

/// The moment before a request for another clock's time.
#[derive(Clone, Copy, Debug)]
pub struct ClockQuery(u64);

/// The last record of the time by a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeRecords {
    /// Tree time at the write.
    pub time: Timestamp,
    /// The servers' clock at the write.
    pub servers: Timestamp,
}

impl TimeRecords {
    /// Returns how far the servers' clock was ahead of tree time, in milliseconds; negative when it was behind.
    pub fn gap(&self) -> i64 {
        difference(self.servers.as_millis(), self.time.as_millis())
    }
}

impl Clock {
    /// Creates a clock that runs with the machine's clock.
    pub fn system() -> Self {
        Self::of(Source::System { started: Instant::now(), booted: since_boot() }, wall_millis())
    }

    /// Creates a clock that stays at `millis` until it is advanced.
    pub fn manual(millis: u64) -> Self {
        Self::of(Source::Manual, millis)
    }

    /// Creates a clock that begins at `millis` and runs with the clock of the tokio runtime. If that is paused, time
    /// passes only when no task of the runtime can run.
    pub fn of_runtime(millis: u64) -> Self {
        Self::of(Source::Runtime { started: tokio::time::Instant::now() }, millis)
    }

    fn of(source: Source, base: u64) -> Self {
        let shared = Shared {
            base: AtomicU64::new(base),
            is_steady: AtomicBool::new(true),
            course: Mutex::new(Course::new(base)),
            last_returned: AtomicU64::new(0),
            doubt: AtomicU64::new(0),
            slept: AtomicU64::new(0),
            accepts: AtomicBool::new(false),
            behind: AtomicU64::new(0),
            wall: AtomicU64::new(base),
        };
        Self { source, shared: Arc::new(shared) }
    }

    /// Accepts steps of any size, on behalf of an operator.
    pub fn accept_steps(&self) {
        self.shared.accepts.store(true, Ordering::Relaxed);
    }

    /// Returns whether an operator accepts steps of any size.
    pub fn accepts(&self) -> bool {
        self.shared.accepts.load(Ordering::Relaxed)
    }

    /// Runs behind the machine's clock by `behind`, because the contents of the stores are those of a backup. Must be
    /// called once, before any caller reads the time.
    pub fn run_behind(&self, behind: Duration) {
        let millis = u64::try_from(behind.as_millis()).unwrap_or(u64::MAX);
        if millis == 0 {
            return;
        }
        self.shared.behind.store(millis, Ordering::Relaxed);
        self.shared.last_returned.store(0, Ordering::Relaxed);
        self.change(|course, passed| course.set(course.base.saturating_sub(millis), passed));
        warn!(
            behind_ms = millis,
            next_step = "restart with --accept-clock when the restored messages may expire",
            "tree time continues from backup"
        );
    }

    /// Returns how far tree time is behind the machine's clock since a restore, if it is.
    pub fn behind(&self) -> Option<Duration> {
        let behind = self.shared.behind.load(Ordering::Relaxed);
        (behind > 0).then(|| Duration::from_millis(behind))
    }

    pub fn now(&self) -> Timestamp {
        let now = if self.shared.is_steady.load(Ordering::Acquire) {
            self.shared.base.load(Ordering::Relaxed).saturating_add(self.passed())
        } else {
            let course = self.shared.course.lock();
            course.at(self.passed())
        };
        Timestamp::from_millis(self.shared.last_returned.fetch_max(now, Ordering::Relaxed).max(now))
    }

    /// Returns the time shared by the other replicas: tree time without the remaining lead.
    pub fn agreed(&self) -> Timestamp {
        let now = self.now();
        let lead = self.shared.course.lock().lead(self.passed());
        Timestamp::from_millis(now.as_millis().saturating_sub(lead))
    }

    /// Returns the machine's wall clock, independent of tree time. It is for dates that other machines write, such as
    /// those of signatures, and may run backwards. A manual clock returns its start plus all advances, without the
    /// steps of tree time; a clock of the runtime returns its start plus the time passed.
    pub fn wall(&self) -> Timestamp {
        Timestamp::from_millis(match self.source {
            Source::System { .. } => wall_millis(),
            Source::Manual => self.shared.wall.load(Ordering::Relaxed),
            Source::Runtime { .. } => self.shared.wall.load(Ordering::Relaxed).saturating_add(self.passed()),
        })
    }

    /// Returns the milliseconds since the clock started. Suspended time is included from the next [`Clock::asking`] on.
    fn passed(&self) -> u64 {
        let slept = self.shared.slept.load(Ordering::Relaxed);
        match self.source {
            Source::System { started, .. } => {
                u64::try_from(started.elapsed().as_millis()).unwrap_or(0).saturating_add(slept)
            }
            Source::Manual => slept,
            Source::Runtime { started } => {
                u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX / 2)
            }
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

    /// Returns the step of more than a day that was not followed, if there is one.
    pub fn doubt(&self) -> Option<Duration> {
        let step = self.shared.doubt.load(Ordering::Relaxed);
        (step > 0).then(|| Duration::from_millis(step))
    }

    /// Returns the difference of the servers' clock from tree time in milliseconds, while a large step is being
    /// followed.
    pub fn gap(&self) -> Option<i64> {
        self.shared.course.lock().gap(self.passed())
    }

    /// Continues from `last`, the time of the last write. Tree time starts at that time or later, but at most a day
    /// later.
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

    /// Continues from `last` if that is later. The last write of a further storage may be old, so it is no evidence
    /// that the clock is ahead.
    pub fn not_before(&self, last: Timestamp) {
        self.change(|course, passed| {
            let base = last.as_millis().saturating_sub(passed);
            course.set(course.base.max(base), passed);
        });
    }

    /// Returns the moment before a request for another clock's time. The response is passed on together with it.
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

    /// Starts from the clock of the tree, which showed `theirs` at some moment after `query`. Must be called once,
    /// before any caller reads the time.
    ///
    /// Tree time continues from the last record, by as much as the clock of the tree has moved since that record. So a
    /// step that other replicas are still following is no step here. Without a record, tree time starts at the clock of
    /// the tree.
    pub fn begin(&self, query: ClockQuery, theirs: Timestamp, last: Option<TimeRecords>) {
        self.shared.doubt.store(0, Ordering::Relaxed);
        self.shared.last_returned.store(0, Ordering::Relaxed);
        self.change(|course, passed| {
            let offset = bounds(query, theirs, passed);
            *course = Course::new(course.base.clamp(offset.low, offset.high));
            course.learn(offset, passed);
            let Some(TimeRecords { time, servers }) = last else { return };
            let now = course.at(passed);
            let (time, age) = (time.as_millis(), now.saturating_sub(servers.as_millis()));
            if self.shared.accepts.load(Ordering::Relaxed) {
                return course.set(now.max(time).saturating_sub(passed), passed);
            }
            let is_old = self.is_doubtful(age);
            let continued = if is_old { time } else { carry_forward(time, servers.as_millis(), age) };
            course.set(continued.saturating_sub(passed), passed);
            let gap = difference(now, continued);
            if self.is_doubtful(gap.unsigned_abs()) {
                self.report(gap.unsigned_abs())
            } else {
                self.follow(course, ServerTime { step: gap, gap })
            }
        });
    }

    /// Adopts the time of another replica like [`Clock::agree`], right after [`Clock::begin`]. No caller has acted on
    /// the time yet, so it moves at once in either direction.
    pub fn begin_beside(&self, query: ClockQuery, theirs: Timestamp) {
        let behind = self.change(|course, passed| {
            let time = peer_bounds(query, theirs, passed);
            let own = course.at(passed);
            let behind = difference(own.clamp(time.low, time.high), own);
            course.shift(behind, passed);
            behind
        });
        self.shared.last_returned.store(0, Ordering::Relaxed);
        log_agreed(behind);
    }

    /// Adopts the time of the other replicas, one of which recorded `theirs` at some moment after `query`: a later time
    /// at once, an earlier one by running at half the rate.
    pub fn agree(&self, query: ClockQuery, theirs: Timestamp) {
        log_agreed(self.change(|course, passed| course.agree(peer_bounds(query, theirs, passed), passed)));
    }

    /// Learns that the clock of the tree showed `theirs` at some moment after `query`. Its offset changes only as far
    /// as the duration of the request leaves no doubt. Tree time follows by at most 1 s in 10 s, and never stops.
    pub fn learn(&self, query: ClockQuery, theirs: Timestamp) {
        self.change(|course, passed| {
            let learnt = course.learn(bounds(query, theirs, passed), passed);
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

    /// Advances a manual clock. Has no effect on the machine's clock.
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

/// Returns the bounds of the servers' clock offset that are consistent with a response.
fn bounds(ClockQuery(started): ClockQuery, theirs: Timestamp, passed: u64) -> Bounds {
    let theirs = theirs.as_millis();
    Bounds { low: theirs.saturating_sub(passed), high: theirs.saturating_sub(started) }
}

/// Returns the bounds of the current tree time of a replica that recorded `theirs` at some moment after the request.
fn peer_bounds(ClockQuery(started): ClockQuery, theirs: Timestamp, passed: u64) -> Bounds {
    let max_age = passed.saturating_sub(started);
    let max = theirs.as_millis().saturating_add(max_age + max_age / limits::CLOCK_SLEW_PARTS);
    Bounds { low: theirs.as_millis(), high: max }
}

fn log_agreed(behind: i64) {
    if u128::from(behind.unsigned_abs()) > core_limits::CLOCK_LOOK.as_millis() {
        info!(behind_ms = behind, "tree time taken from replicas");
    }
}

/// Returns the tree time that was recorded as `time` when the servers' clock showed `servers`, after that clock has
/// moved on by `age`. Running replicas have followed the servers' clock meanwhile.
fn carry_forward(time: u64, servers: u64, age: u64) -> u64 {
    let gap = difference(servers, time);
    let max = if u128::from(gap.unsigned_abs()) > limits::CLOCK_STEP.as_millis() {
        0
    } else {
        i64::try_from(age / limits::CLOCK_SLEW_PARTS).unwrap_or(i64::MAX)
    };
    time.saturating_add(age).saturating_add_signed(gap.clamp(-max, max))
}

/// Returns the milliseconds since the machine started. They include the time while the machine was suspended or this
/// process was stopped, so a lease measured by them ends in time.
pub fn since_boot() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1_000 + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000
}
