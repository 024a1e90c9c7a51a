//! Sums of what is in queues, and their order by depth, kept as single queues change: a look at them costs none of the queues.

use std::collections::{BTreeMap, BTreeSet};

use angarium_core::ids::QueueId;
use angarium_core::time::Timestamp;
use angarium_metrics::QueueFigures;

/// What is in a queue, or in several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) ready: u64,
    pub(super) claimed: u64,
    pub(super) delayed: u64,
    pub(super) in_transfer: u64,
    /// Bytes of the bodies of all of them.
    pub(super) bytes: u64,
    /// When the oldest of those that are ready or claimed was posted.
    pub(super) oldest: Option<Timestamp>,
}

impl Contents {
    /// As a page shows it.
    pub(super) fn figures(self, now: Timestamp) -> QueueFigures {
        let Self { ready, claimed, delayed, in_transfer, bytes, oldest } = self;
        let oldest_age = oldest.map(|oldest| now.seconds_since(oldest));
        QueueFigures { ready, claimed, delayed, in_transfer, bytes, oldest_age }
    }

    /// Messages in any state.
    pub(super) fn depth(self) -> u64 {
        self.ready + self.claimed + self.delayed + self.in_transfer
    }
}

/// The figures of the queues without names of their own, together.
#[derive(Debug, Default)]
pub(super) struct FigureSums {
    queues: usize,
    sum: Contents,
    /// How many queues have an oldest message of this time.
    oldest: BTreeMap<Timestamp, usize>,
    /// Those that are not empty, the deepest last.
    depths: BTreeSet<(u64, QueueId)>,
}

impl FigureSums {
    pub(super) fn add(&mut self, queue: QueueId, contents: Contents) {
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
    pub(super) fn remove(&mut self, queue: QueueId, contents: Contents) {
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

    /// The figures of all together, if there are any.
    pub(super) fn figures(&self, now: Timestamp) -> Option<QueueFigures> {
        let oldest = self.oldest.first_key_value().map(|(oldest, _)| *oldest);
        (self.queues > 0).then(|| Contents { oldest, ..self.sum }.figures(now))
    }

    /// Queues that are not empty with their depths, the deepest first.
    pub(super) fn deepest(&self) -> impl Iterator<Item = (u64, QueueId)> {
        self.depths.iter().rev().copied()
    }
}
