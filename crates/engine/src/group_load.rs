//! Recent time for which messages of groups were in flight: a group with few slow messages keeps as many consumers busy
//! as a group with many messages. Source: the fair queues of SQS.
//!
//! The time is added each time when messages are taken, by the number of messages in flight just before. Between two
//! measurements this number only decreases, so no group is charged too much. Two spans count: the current one, and the
//! one before.

use crate::limits;
use angarium_core::group::GroupName;
use angarium_core::maps::HashMap;
use angarium_core::time::Timestamp;

/// A shorter interval (in milliseconds) is added to the next measurement.
const STEP: u64 = 1_000;
const SPAN: u64 = limits::NOISY_SPAN_SECONDS as u64 * 1_000;

/// Times in flight, in milliseconds of single messages.
#[derive(Debug, Default)]
struct GroupTimes {
    all: u64,
    groups: HashMap<GroupName, u64>,
}

/// The times of the last two spans.
#[derive(Debug, Default)]
pub(super) struct GroupLoad {
    measured: Option<Timestamp>,
    /// The number of the current span.
    span: u64,
    current: GroupTimes,
    previous: GroupTimes,
}

impl GroupLoad {
    /// Adds the time since the last measurement, for `all` messages in flight and for those of each group.
    pub(super) fn measure<'a>(
        &mut self,
        now: Timestamp,
        all: usize,
        groups: impl Iterator<Item = (&'a GroupName, usize)>,
    ) {
        let measured = *self.measured.get_or_insert(now);
        let passed = now.as_millis().saturating_sub(measured.as_millis());
        if passed < STEP {
            return;
        }
        self.measured = Some(now);
        self.advance_span(now.as_millis() / SPAN);
        let passed = passed.min(SPAN);
        let times = &mut self.current;
        times.all += time(all, passed);
        for (group, count) in groups.filter(|(_, count)| count * limits::NOISY_MIN >= all) {
            if let Some(own) = times.groups.get_mut(group) {
                *own += time(count, passed);
            } else if times.groups.len() < limits::NOISY_KNOWN {
                times.groups.insert(group.clone(), time(count, passed));
            }
        }
    }

    fn advance_span(&mut self, span: u64) {
        if span > self.span {
            let last = std::mem::take(&mut self.current);
            self.previous = if span == self.span + 1 { last } else { GroupTimes::default() };
            self.span = span;
        }
    }

    /// Whether a group had more than its fair share of the time.
    pub(super) fn exceeds_share(&self, group: &GroupName) -> bool {
        let spans = [&self.current, &self.previous];
        let own: u64 = spans.iter().filter_map(|times| times.groups.get(group)).sum();
        let all = spans.iter().map(|times| times.all).sum();
        own >= limits::NOISY_TIME && own.saturating_mul(limits::NOISY_SHARE as u64) > all
    }
}

fn time(messages: usize, passed: u64) -> u64 {
    u64::try_from(messages).unwrap_or(u64::MAX).saturating_mul(passed)
}
