//! Sums of the contents of queues, and the queues in order of depth. Both are updated with each queue, so reading them
//! reads no queue.

use std::collections::{BTreeMap, BTreeSet};

use angarium_core::ids::QueueId;
use angarium_core::time::Timestamp;
use angarium_engine::ClaimedCounts;
use angarium_metrics::QueueFigures;
use angarium_storage::Totals;

/// The contents of a queue, or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    pub(crate) ready: u64,
    pub(crate) claimed: u64,
    pub(crate) delayed: u64,
    pub(crate) in_transfer: u64,
    /// Messages that are done or failed.
    pub(crate) kept: u64,
    /// Bytes of the bodies of all messages.
    pub(crate) bytes: u64,
    /// When the oldest ready or claimed message was posted.
    pub(crate) oldest: Option<Timestamp>,
}

impl Contents {
    /// Combines the totals of a pool with the claims in memory. The claims are a later state, so the totals bound them.
    pub(crate) fn of(totals: &Totals, claimed: ClaimedCounts) -> Self {
        let put_off = claimed.scheduled.min(totals.scheduled);
        let from_ready = claimed.all.saturating_sub(claimed.scheduled).min(totals.ready());
        Self {
            ready: totals.ready() - from_ready,
            claimed: from_ready + put_off,
            delayed: totals.scheduled - put_off,
            in_transfer: totals.in_transfer,
            kept: totals.kept,
            bytes: totals.bytes,
            oldest: None,
        }
    }

    /// Returns the contents as a page of metrics shows them.
    pub(crate) fn figures(self, now: Timestamp) -> QueueFigures {
        let Self { ready, claimed, delayed, in_transfer, kept, bytes, oldest } = self;
        let oldest_age = oldest.map(|oldest| now.seconds_since(oldest));
        QueueFigures { ready, claimed, delayed, in_transfer, kept, bytes, oldest_age }
    }

    /// Adds the contents of another queue; the oldest message is the older of both.
    pub(crate) fn add(&mut self, other: Self) {
        self.ready += other.ready;
        self.claimed += other.claimed;
        self.delayed += other.delayed;
        self.in_transfer += other.in_transfer;
        self.kept += other.kept;
        self.bytes += other.bytes;
        self.oldest = self.oldest.into_iter().chain(other.oldest).min();
    }

    /// Subtracts the contents of one queue; the result has no oldest message. None when a number would be negative.
    pub(crate) fn without(self, other: Self) -> Option<Self> {
        Some(Self {
            ready: self.ready.checked_sub(other.ready)?,
            claimed: self.claimed.checked_sub(other.claimed)?,
            delayed: self.delayed.checked_sub(other.delayed)?,
            in_transfer: self.in_transfer.checked_sub(other.in_transfer)?,
            kept: self.kept.checked_sub(other.kept)?,
            bytes: self.bytes.checked_sub(other.bytes)?,
            oldest: None,
        })
    }

    /// Number of messages in any state.
    pub(crate) fn depth(self) -> u64 {
        self.ready + self.claimed + self.delayed + self.in_transfer + self.kept
    }
}

/// The sum of the figures of the queues without names of their own.
#[derive(Debug, Default)]
pub(crate) struct FigureSums {
    pub(crate) queues: usize,
    pub(crate) sum: Contents,
    /// Number of queues by the time of their oldest message.
    pub(crate) oldest: BTreeMap<Timestamp, usize>,
    /// The queues that are not empty, the deepest last.
    pub(crate) depths: BTreeSet<(u64, QueueId)>,
}

impl FigureSums {
    pub(crate) fn add(&mut self, queue: QueueId, contents: Contents) {
        self.queues += 1;
        self.sum.ready += contents.ready;
        self.sum.claimed += contents.claimed;
        self.sum.delayed += contents.delayed;
        self.sum.in_transfer += contents.in_transfer;
        self.sum.kept += contents.kept;
        self.sum.bytes += contents.bytes;
        if let Some(oldest) = contents.oldest {
            *self.oldest.entry(oldest).or_default() += 1;
        }
        if contents.depth() > 0 {
            self.depths.insert((contents.depth(), queue));
        }
    }

    /// Subtracts a queue with the contents that were added.
    pub(crate) fn remove(&mut self, queue: QueueId, contents: Contents) {
        self.queues -= 1;
        self.sum.ready -= contents.ready;
        self.sum.claimed -= contents.claimed;
        self.sum.delayed -= contents.delayed;
        self.sum.in_transfer -= contents.in_transfer;
        self.sum.kept -= contents.kept;
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

    /// Returns the contents of all queues together; none when there is no queue.
    pub(crate) fn contents(&self) -> Option<Contents> {
        let oldest = self.oldest.first_key_value().map(|(oldest, _)| *oldest);
        (self.queues > 0).then_some(Contents { oldest, ..self.sum })
    }

    /// The queues that are not empty with their depths, the deepest first.
    pub(crate) fn deepest(&self) -> impl Iterator<Item = (u64, QueueId)> {
        self.depths.iter().rev().copied()
    }
}
