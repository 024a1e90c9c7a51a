//! Sums of what is in queues, and their order by depth, kept as single queues change: a look at them costs none of the queues.

use std::collections::{BTreeMap, BTreeSet};

use angarium_core::ids::QueueId;
use angarium_core::time::Timestamp;
use angarium_engine::ClaimedCounts;
use angarium_metrics::QueueFigures;
use angarium_storage::Totals;

/// What is in a queue, or in several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    pub(crate) ready: u64,
    pub(crate) claimed: u64,
    pub(crate) delayed: u64,
    pub(crate) in_transfer: u64,
    /// Bytes of the bodies of all of them.
    pub(crate) bytes: u64,
    /// When the oldest of those that are ready or claimed was posted.
    pub(crate) oldest: Option<Timestamp>,
}

impl Contents {
    /// What the totals of a pool and the claims in memory make together. The totals were read later: they may have less.
    pub(crate) fn of(totals: &Totals, claimed: ClaimedCounts) -> Self {
        let put_off = claimed.scheduled.min(totals.scheduled);
        let from_ready = claimed.all.saturating_sub(claimed.scheduled).min(totals.ready());
        Self {
            ready: totals.ready() - from_ready,
            claimed: from_ready + put_off,
            delayed: totals.scheduled - put_off,
            in_transfer: totals.in_transfer,
            bytes: totals.bytes,
            oldest: None,
        }
    }

    /// As a page shows it.
    pub(crate) fn figures(self, now: Timestamp) -> QueueFigures {
        let Self { ready, claimed, delayed, in_transfer, bytes, oldest } = self;
        let oldest_age = oldest.map(|oldest| now.seconds_since(oldest));
        QueueFigures { ready, claimed, delayed, in_transfer, bytes, oldest_age }
    }

    /// Takes in what is in another queue; the oldest message is the older one.
    pub(crate) fn add(&mut self, other: Self) {
        self.ready += other.ready;
        self.claimed += other.claimed;
        self.delayed += other.delayed;
        self.in_transfer += other.in_transfer;
        self.bytes += other.bytes;
        self.oldest = self.oldest.into_iter().chain(other.oldest).min();
    }

    /// The sum without what is in one queue, and without an oldest message; none when the sum has less of something.
    pub(crate) fn without(self, other: Self) -> Option<Self> {
        Some(Self {
            ready: self.ready.checked_sub(other.ready)?,
            claimed: self.claimed.checked_sub(other.claimed)?,
            delayed: self.delayed.checked_sub(other.delayed)?,
            in_transfer: self.in_transfer.checked_sub(other.in_transfer)?,
            bytes: self.bytes.checked_sub(other.bytes)?,
            oldest: None,
        })
    }

    /// Messages in any state.
    pub(crate) fn depth(self) -> u64 {
        self.ready + self.claimed + self.delayed + self.in_transfer
    }
}

/// The figures of the queues without names of their own, together.
#[derive(Debug, Default)]
pub(crate) struct FigureSums {
    pub(crate) queues: usize,
    pub(crate) sum: Contents,
    /// How many queues have an oldest message of this time.
    pub(crate) oldest: BTreeMap<Timestamp, usize>,
    /// Those that are not empty, the deepest last.
    pub(crate) depths: BTreeSet<(u64, QueueId)>,
}

impl FigureSums {
    pub(crate) fn add(&mut self, queue: QueueId, contents: Contents) {
        self.queues += 1;
        self.sum.ready += contents.ready;
        self.sum.claimed += contents.claimed;
        self.sum.delayed += contents.delayed;
        self.sum.in_transfer += contents.in_transfer;
        self.sum.bytes += contents.bytes;
        if let Some(oldest) = contents.oldest {
            *self.oldest.entry(oldest).or_default() += 1;
        }
        if contents.depth() > 0 {
            self.depths.insert((contents.depth(), queue));
        }
    }

    /// Takes out what was added.
    pub(crate) fn remove(&mut self, queue: QueueId, contents: Contents) {
        self.queues -= 1;
        self.sum.ready -= contents.ready;
        self.sum.claimed -= contents.claimed;
        self.sum.delayed -= contents.delayed;
        self.sum.in_transfer -= contents.in_transfer;
        self.sum.bytes -= contents.bytes;
        self.depths.remove(&(contents.depth(), queue));
        let Some(oldest) = contents.oldest else { return };
        if let Some(queues) = self.oldest.get_mut(&oldest) {
            *queues -= 1;
            if *queues == 0 {
                self.oldest.remove(&oldest);
            }
        }
    }

    /// What is in all together, if there are any.
    pub(crate) fn contents(&self) -> Option<Contents> {
        let oldest = self.oldest.first_key_value().map(|(oldest, _)| *oldest);
        (self.queues > 0).then_some(Contents { oldest, ..self.sum })
    }

    /// Queues that are not empty with their depths, the deepest first.
    pub(crate) fn deepest(&self) -> impl Iterator<Item = (u64, QueueId)> {
        self.depths.iter().rev().copied()
    }
}
