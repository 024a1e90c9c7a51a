//! Figures of the queues of a slot for pages of metrics. A page reads only the queues that were changed since the page
//! before and those whose figures have a name, however many other queues there are.
//!
//! ```text
//!           changed, opened, claimed from         read by a page, nothing claimed
//! not due ─────────────────────────────▶ due ─────────────────────────────────▶ not due
//! ```
//!
//! A queue with a name is shown in its state at that moment. The others share one sum: each has in it the figures of
//! its last read. Such a queue stays due while some of its messages are claimed, since claims expire without a change.
//! The figures of closed queues are kept in [`crate::slot::closed_figures`].

use std::sync::Arc;

use angarium_core::ids::QueueId;
use angarium_core::maps::HashSet;
use angarium_core::message::Header;
use angarium_core::names::QueueRef;
use angarium_core::time::Timestamp;
use angarium_engine::ClaimedCounts;
use angarium_metrics::{Meter, ObservedQueue, QueueFigures, ServiceState};
use angarium_storage::Totals;

use crate::slot::closed_figures::ClosedQueueFigures;
use crate::slot::figure_sums::Contents;
use crate::slot::state::{OpenQueue, Slot, SlotState};

/// The state of a queue that its pool reported.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolSample {
    /// Number of changes of the queue before the pool was read.
    pub(crate) changes: u64,
    pub(crate) totals: Totals,
    /// When the oldest ready or claimed message was posted.
    pub(crate) oldest: Option<Timestamp>,
}

impl PoolSample {
    pub(crate) fn contents(&self, claimed: ClaimedCounts) -> Contents {
        Contents { oldest: self.oldest, ..Contents::of(&self.totals, claimed) }
    }
}

/// Which figures show a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FigureSet {
    /// Figures with the queue's own name.
    Named,
    /// The figures that all other queues share.
    #[default]
    Shared,
}

impl FigureSet {
    /// Returns the set of a queue, as the meter has it now.
    pub(crate) fn of(meter: &Meter, at: &QueueRef) -> Self {
        if meter.is_named(at) { Self::Named } else { Self::Shared }
    }
}

/// The state of an open queue for the pages of metrics.
#[derive(Debug, Default)]
pub(crate) struct QueueDisplay {
    /// Number of changes of the queue in its pools.
    pub(crate) changes: u64,
    /// The last report of its pool.
    pub(crate) seen: Option<PoolSample>,
    /// Which figures show the queue.
    pub(crate) set: FigureSet,
    pub(crate) is_due: bool,
}

impl QueueDisplay {
    /// Counts a change of the queue. Returns true when the slot must add the queue to the due ones.
    pub(crate) fn change(&mut self) -> bool {
        self.changes += 1;
        self.make_due()
    }

    /// Has the next page read the queue. Returns true when the slot must add the queue to the due ones.
    pub(crate) fn make_due(&mut self) -> bool {
        !std::mem::replace(&mut self.is_due, true)
    }

    /// Whether the last report of the pool includes all changes. True also when no page has read the queue.
    pub(crate) fn is_seen(&self) -> bool {
        self.seen.is_none_or(|seen| seen.changes >= self.changes)
    }
}

/// A queue that a page of metrics must read.
#[derive(Debug)]
pub(crate) struct DueQueue {
    pub(crate) at: QueueRef,
    pub(crate) id: QueueId,
    pub(crate) changes: u64,
    /// Whether its pool must be read.
    pub(crate) is_changed: bool,
    /// The oldest message, if memory has it.
    pub(crate) oldest: Option<Header>,
}

impl Slot {
    /// Takes the queues that a page of metrics must read. The first page reads all open ones.
    pub(crate) fn take_due(self: &Arc<Self>) -> Vec<DueQueue> {
        self.lock().take_due()
    }

    /// Ends the read of a queue for a page, with the report of its pool. If the pool had to be read and `seen` is none,
    /// the next page reads the queue again.
    pub(crate) fn looked_at(self: &Arc<Self>, due: &DueQueue, seen: Option<PoolSample>) {
        self.lock().looked_at(due, seen);
    }

    /// Adds to a page the claims of the slot, the progress of counting its queues, and the figures of the `named`
    /// queues and of all others. Costs one look at each open queue.
    pub(crate) fn show_figures(
        self: &Arc<Self>,
        named: Vec<QueueRef>,
        now: Timestamp,
        page: &mut ServiceState,
    ) {
        let mut state = self.lock();
        state.figures.settle();
        page.claims += state.live_claims.saturating_sub(state.spent.len());
        page.waiting_claims += state.lines.len();
        for since in state.holds.times(now).chain(state.group_holds.times(now)) {
            page.holds.queues += 1;
            page.holds.oldest_age = page.holds.oldest_age.max(now.seconds_since(since));
        }
        page.suspended_subscriptions += state.suspended();
        let progress = &state.figures.progress;
        page.queues_here += progress.queues();
        page.counted_queues += progress.counted();
        page.counted_slots += usize::from(progress.is_done());
        page.add_unnamed(state.figures.unnamed(now));
        for at in named {
            if let Some(figures) = state.named_figures(&at, now) {
                page.queues.push(ObservedQueue { at, figures });
            }
        }
    }

    /// Offers the queues without names of their own, with their depths, the deepest first, until `take` returns false.
    pub(crate) fn offer_deepest(self: &Arc<Self>, mut take: impl FnMut(u64, QueueId, &QueueRef) -> bool) {
        let state = self.lock();
        let mut queues = state.figures.deepest();
        while queues.next().is_some_and(|(depth, id, at)| take(depth, id, at)) {}
    }

    /// Number of messages in a queue with a name, as far as known.
    pub(crate) fn named_depth(self: &Arc<Self>, at: &QueueRef) -> u64 {
        self.lock().named_depth(at)
    }

    /// Gives the figures of a queue a name, or takes it away, as the meter has it now. `unnamed` is the queue's id if
    /// it had no name.
    pub(crate) fn rename(self: &Arc<Self>, at: &QueueRef, unnamed: Option<QueueId>) {
        self.lock().rename(at, unnamed, &self.around.replica.meter);
    }
}

impl SlotState {
    /// Takes the queues that a page of metrics must read. The first page reads all open ones.
    pub(crate) fn take_due(&mut self) -> Vec<DueQueue> {
        let due = match self.figures.due.replace(HashSet::default()) {
            Some(due) => due.into_iter().collect(),
            None => self.queues.keys().cloned().collect::<Vec<_>>(),
        };
        let mut taken = Vec::with_capacity(due.len());
        for at in due {
            let Some(queue) = self.queues.get_mut(&at) else { continue };
            let QueueDisplay { changes, seen, ref mut is_due, .. } = queue.shown;
            *is_due = false;
            let is_changed = seen.is_none_or(|seen| seen.changes < changes);
            let oldest = queue.engine.ends().0.cloned();
            taken.push(DueQueue { id: queue.id, changes, is_changed, oldest, at });
        }
        taken
    }

    /// Ends the read of a queue for a page; see [`Slot::looked_at`].
    pub(crate) fn looked_at(&mut self, due: &DueQueue, seen: Option<PoolSample>) {
        let queue = self.queues.get_mut(&due.at).filter(|queue| queue.id == due.id);
        let Some(OpenQueue { shown, engine, .. }) = queue.map(Box::as_mut) else { return };
        let is_over = seen.is_some() || !due.is_changed;
        shown.seen = seen.or(shown.seen);
        match shown.seen.map(|seen| seen.contents(engine.claimed_counts())) {
            Some(contents) if shown.set == FigureSet::Shared => {
                let at = due.at.clone();
                self.figures.put(due.id, ClosedQueueFigures { at, contents, set: shown.set, is_open: true });
            }
            // A queue with a name is shown in its state at the moment of the page.
            Some(_) => drop(self.figures.take(due.id)),
            None => {}
        }
        let is_at_work = shown.set == FigureSet::Shared && engine.claimed() > 0;
        if (!is_over || is_at_work) && shown.make_due() {
            self.figures.note_due(&due.at);
        }
    }

    /// Returns the figures of a queue with a name, as far as its pool was read.
    pub(crate) fn named_figures(&self, at: &QueueRef, now: Timestamp) -> Option<QueueFigures> {
        self.named_contents(at).map(|contents| contents.figures(now))
    }

    pub(crate) fn named_contents(&self, at: &QueueRef) -> Option<Contents> {
        let open = self.queues.get(at);
        let seen = open.and_then(|queue| Some(queue.shown.seen?.contents(queue.engine.claimed_counts())));
        seen.or_else(|| Some(self.figures.known.get(self.figures.named.get(at)?)?.contents))
    }

    /// Number of messages in a queue with a name, as far as known.
    pub(crate) fn named_depth(&self, at: &QueueRef) -> u64 {
        self.named_contents(at).map_or(0, Contents::depth)
    }

    /// Gives the figures of a queue a name, or takes it away, as the meter has it now.
    pub(crate) fn rename(&mut self, at: &QueueRef, unnamed: Option<QueueId>, meter: &Meter) {
        let set = FigureSet::of(meter, at);
        let Some(queue) = self.queues.get_mut(at) else {
            let id = unnamed.or_else(|| self.figures.named.get(at).copied());
            if let Some((id, known)) = id.and_then(|id| Some((id, self.figures.take(id)?))) {
                self.figures.put(id, ClosedQueueFigures { set, ..known });
            }
            return;
        };
        queue.counters = meter.known_counters(at);
        queue.shown.set = set;
        let contents = queue.shown.seen.map(|seen| seen.contents(queue.engine.claimed_counts()));
        if let Some(contents) = contents {
            self.figures.put(queue.id, ClosedQueueFigures { at: at.clone(), contents, set, is_open: true });
        }
        if queue.shown.make_due() {
            self.figures.note_due(at);
        }
    }

    /// Enters the names of all queues of the slot. Closed queues without known figures must be counted.
    pub(crate) fn list_queues(&mut self, names: Vec<QueueRef>) {
        let queues = names.len() as u64;
        self.note_sources(&names);
        let closed = names.into_iter().filter(|at| !self.queues.contains_key(at)).collect();
        self.figures.list_closed(queues, closed);
    }

    /// Notes that a pool has corrected the totals of a queue.
    pub(crate) fn note_corrected(&mut self, id: QueueId) {
        match self.queues.iter_mut().find(|(_, queue)| queue.id == id) {
            Some((at, queue)) => {
                if queue.shown.change() {
                    self.figures.note_due(at);
                }
            }
            None => {
                self.figures.changed_closed(id);
                // A queue that seemed empty has no figures, so only its name can bring it back.
                self.figures.progress.relist();
            }
        }
    }
}
