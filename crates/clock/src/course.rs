//! The course of tree time over the machine's monotonic time: its current value, and how it follows the clock of the
//! coordination servers without a step. Pure: monotonic time is an argument.

use crate::limits;
use angarium_core::mutation::{Mutation, is_on};

/// The state of tree time. In all methods, `passed` is monotonic time in milliseconds.
#[derive(Clone, Debug)]
pub(super) struct Course {
    /// Tree time minus `passed`, at `from`.
    pub(super) base: u64,
    /// The value of `passed` at which the adjustment starts.
    from: u64,
    /// Remaining adjustment of the base in milliseconds, positive or negative, that brings tree time to the servers'
    /// clock once the lead is given up.
    correction: i64,
    /// Lead over the other replicas in milliseconds. This replica slows down until they have caught up.
    lead: u64,
    /// The servers' clock minus `passed`, as last learned; none before the first time.
    servers: Option<u64>,
    /// Whether the servers' clock made a large step that tree time has not followed to the end.
    is_behind_step: bool,
}

/// An observation of the servers' clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ServerTime {
    /// Step of the servers' clock since the last observation, in milliseconds.
    pub(super) step: i64,
    /// Difference of the servers' clock from tree time, in milliseconds.
    pub(super) gap: i64,
}

impl Course {
    pub(super) fn new(base: u64) -> Self {
        Self { base, from: 0, correction: 0, lead: 0, servers: None, is_behind_step: false }
    }

    /// Returns tree time.
    pub(super) fn at(&self, passed: u64) -> u64 {
        let (applied, given_up) = self.applied(passed);
        self.base.saturating_add(passed).saturating_add_signed(applied).saturating_sub(given_up)
    }

    /// Returns whether there is no remaining adjustment.
    pub(super) fn is_steady(&self) -> bool {
        self.correction == 0 && self.lead == 0
    }

    /// Returns the part of the correction that is applied by then, and the part of the lead that is given up. After the
    /// servers' clock was last seen, tree time follows it only for a while: a cut-off replica continues at the rate of
    /// real time.
    fn applied(&self, passed: u64) -> (i64, u64) {
        let unseen = u64::try_from(limits::CLOCK_SLEW_UNSEEN.as_millis()).unwrap_or(u64::MAX);
        let elapsed = passed.saturating_sub(self.from);
        let slew = i64::try_from(elapsed.min(unseen) / limits::CLOCK_SLEW_PARTS).unwrap_or(i64::MAX);
        let max = if is_on(Mutation::BelieveClockStep) { i64::MAX } else { slew };
        (self.correction.clamp(-max, max), self.lead.min(elapsed / limits::CLOCK_LEAD_PARTS))
    }

    /// Returns the remaining lead in milliseconds.
    pub(super) fn lead(&self, passed: u64) -> u64 {
        self.lead - self.applied(passed).1
    }

    /// Adds the part of the adjustment that is applied by now to the base.
    fn settle(&mut self, passed: u64) {
        let (applied, given_up) = self.applied(passed);
        self.base = self.base.saturating_add_signed(applied).saturating_sub(given_up);
        self.correction -= applied;
        self.lead -= given_up;
        self.from = passed;
    }

    /// Sets the base, without a remaining adjustment.
    pub(super) fn set(&mut self, base: u64, passed: u64) {
        (self.base, self.from, self.correction, self.lead) = (base, passed, 0, 0);
    }

    /// Records the bounds of the servers' clock offset that are consistent with a response. The offset stays as close
    /// to its last value as these bounds allow.
    pub(super) fn learn(&mut self, offset: Bounds, passed: u64) -> ServerTime {
        self.settle(passed);
        let before = self.servers.unwrap_or(self.base);
        let servers = before.clamp(offset.low, offset.high);
        let step = if self.servers.is_some() { difference(servers, before) } else { 0 };
        self.servers = Some(servers);
        ServerTime { step, gap: difference(servers, self.base.saturating_sub(self.lead)) }
    }

    /// Starts to follow the servers' clock over this gap.
    pub(super) fn follow(&mut self, ServerTime { step, gap }: ServerTime) {
        let large = i64::try_from(limits::CLOCK_STEP_TOLD.as_millis()).unwrap_or(i64::MAX);
        self.is_behind_step |= step.abs() > large;
        self.is_behind_step &= gap.abs() > large / 5;
        self.correction = gap;
    }

    /// Stops following the servers' clock.
    pub(super) fn hold(&mut self) {
        self.is_behind_step = false;
        self.correction = 0;
    }

    /// Adopts the time of the other replicas, which is within `time` by now: a later one at once, an earlier one by
    /// running at half the rate. Returns by how much this replica was behind; negative when it was ahead.
    pub(super) fn agree(&mut self, time: Bounds, passed: u64) -> i64 {
        self.settle(passed);
        let own = self.at(passed);
        let behind = difference(own.clamp(time.low, time.high), own);
        // The remaining distance to the servers' clock does not change.
        self.correction -= difference(self.lead, 0) + behind;
        self.lead = behind.min(0).unsigned_abs();
        self.base = self.base.saturating_add_signed(behind.max(0));
        behind
    }

    /// Moves tree time by `step`, forwards or backwards, before any caller has read it. The remaining correction
    /// changes by the opposite amount.
    pub(super) fn shift(&mut self, step: i64, passed: u64) {
        self.settle(passed);
        self.base = self.base.saturating_add_signed(step);
        self.correction -= step;
    }

    /// Returns the difference of the servers' clock from tree time in milliseconds, while a large step is being
    /// followed.
    pub(super) fn gap(&self, passed: u64) -> Option<i64> {
        let servers = self.servers.filter(|_| self.is_behind_step)?;
        Some(difference(servers, self.at(passed).saturating_sub(passed)))
    }
}

/// Min and max of a value in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) low: u64,
    pub(super) high: u64,
}

/// `a - b`.
pub(super) fn difference(a: u64, b: u64) -> i64 {
    let size = i64::try_from(a.abs_diff(b)).unwrap_or(i64::MAX);
    if a < b { -size } else { size }
}
