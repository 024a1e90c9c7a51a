//! The course of tree time over the machine's monotonic time: where it is, and how it follows the clock of the coordination
//! servers without a step. Pure: monotonic time is an argument.

use crate::limits;

/// Where tree time is and where it is going. `passed` is monotonic time in milliseconds, everywhere.
#[derive(Clone, Debug)]
pub(super) struct Course {
    /// Tree time less `passed`, as of `from`.
    pub(super) base: u64,
    /// The `passed` from which `correction` is made.
    from: u64,
    /// What is still to be added to the base, or taken off, to be where the servers' clock is, in milliseconds, once the lead is
    /// given up.
    correction: i64,
    /// How far it is ahead of the other replicas, which it waits for, in milliseconds.
    lead: u64,
    /// The clock of the servers less `passed`, as last learnt; none before the first time.
    servers: Option<u64>,
    /// Whether the servers' clock made a step that is not followed to its end yet.
    is_behind_step: bool,
}

/// What was learnt of the servers' clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ServerTime {
    /// The step that it made since it was learnt before, in milliseconds.
    pub(super) step: i64,
    /// How far it is from tree time, in milliseconds.
    pub(super) gap: i64,
}

impl Course {
    pub(super) fn new(base: u64) -> Self {
        Self { base, from: 0, correction: 0, lead: 0, servers: None, is_behind_step: false }
    }

    /// Tree time.
    pub(super) fn at(&self, passed: u64) -> u64 {
        let (made, given_up) = self.made(passed);
        self.base.saturating_add(passed).saturating_add_signed(made).saturating_sub(given_up)
    }

    /// Whether nothing is to be corrected.
    pub(super) fn is_steady(&self) -> bool {
        self.correction == 0 && self.lead == 0
    }

    /// What of the correction is made by then, and what of the lead is given up. The servers' clock is followed for a while only
    /// after it was last seen: a replica that is cut off from it runs on at the rate of real time.
    fn made(&self, passed: u64) -> (i64, u64) {
        let unseen = u64::try_from(limits::CLOCK_SLEW_UNSEEN.as_millis()).unwrap_or(u64::MAX);
        let elapsed = passed.saturating_sub(self.from);
        let most = i64::try_from(elapsed.min(unseen) / limits::CLOCK_SLEW_PARTS).unwrap_or(i64::MAX);
        (self.correction.clamp(-most, most), self.lead.min(elapsed / limits::CLOCK_LEAD_PARTS))
    }

    /// What is left of the lead, in milliseconds.
    pub(super) fn lead(&self, passed: u64) -> u64 {
        self.lead - self.made(passed).1
    }

    /// Enters what is made of the correction by now into the base.
    fn settle(&mut self, passed: u64) {
        let (made, given_up) = self.made(passed);
        self.base = self.base.saturating_add_signed(made).saturating_sub(given_up);
        self.correction -= made;
        self.lead -= given_up;
        self.from = passed;
    }

    /// Sets the base, with nothing to correct.
    pub(super) fn set(&mut self, base: u64, passed: u64) {
        (self.base, self.from, self.correction, self.lead) = (base, passed, 0, 0);
    }

    /// Takes in the least and the greatest offset of the servers' clock that agree with an answer. It is taken to be where it
    /// was before as far as that agrees.
    pub(super) fn learn(&mut self, offset: Bounds, passed: u64) -> ServerTime {
        self.settle(passed);
        let before = self.servers.unwrap_or(self.base);
        let servers = before.clamp(offset.low, offset.high);
        let step = if self.servers.is_some() { difference(servers, before) } else { 0 };
        self.servers = Some(servers);
        ServerTime { step, gap: difference(servers, self.base.saturating_sub(self.lead)) }
    }

    /// Follows the servers' clock over this gap from now on.
    pub(super) fn follow(&mut self, ServerTime { step, gap }: ServerTime) {
        let told = i64::try_from(limits::CLOCK_STEP_TOLD.as_millis()).unwrap_or(i64::MAX);
        self.is_behind_step |= step.abs() > told;
        self.is_behind_step &= gap.abs() > told / 5;
        self.correction = gap;
    }

    /// Does not follow the servers' clock.
    pub(super) fn hold(&mut self) {
        self.is_behind_step = false;
        self.correction = 0;
    }

    /// Leaves over to the time of the other replicas, which is within `time` by now: at once to a
    /// later one, at half the rate to an earlier one. Returns by how much it was behind; negative when it was ahead.
    pub(super) fn agree(&mut self, time: Bounds, passed: u64) -> i64 {
        self.settle(passed);
        let here = self.at(passed);
        let behind = difference(here.clamp(time.low, time.high), here);
        // What is left of the way to the servers' clock stays as far.
        self.correction -= difference(self.lead, 0) + behind;
        self.lead = behind.min(0).unsigned_abs();
        self.base = self.base.saturating_add_signed(behind.max(0));
        behind
    }

    /// Moves by `step`, either way, before any caller was told the time. What is left of the way to the servers' clock
    /// follows.
    pub(super) fn shift(&mut self, step: i64, passed: u64) {
        self.settle(passed);
        self.base = self.base.saturating_add_signed(step);
        self.correction -= step;
    }

    /// How far the servers' clock is from tree time after a step that is not followed to its end, in milliseconds.
    pub(super) fn gap(&self, passed: u64) -> Option<i64> {
        let servers = self.servers.filter(|_| self.is_behind_step)?;
        Some(difference(servers, self.at(passed).saturating_sub(passed)))
    }
}

/// The least and the greatest value that something may have, in milliseconds.
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
