//! What pages of metrics show of the queues of a slot, kept so that a page looks at the queues that were at work since the one
//! before and at those whose figures have a name, however many others there are.
//!
//! ```text
//!           changed, opened, taken from           looked at, nothing claimed
//! not due ─────────────────────────────▶ due ─────────────────────────────────▶ not due
//! ```
//!
//! A queue with a name is shown as it is at that moment. The others share one set of figures: each has its share of it, as it
//! was when it was last looked at, and stays due while something in it is claimed, since claims end without a change. What is
//! in a closed queue was seen by the last page before, or is counted by [`crate::counting::background`].

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use angarium_core::ids::QueueId;
use angarium_core::message::Header;
use angarium_core::names::QueueRef;
use angarium_core::time::Timestamp;
use angarium_engine::ClaimedCounts;
use angarium_metrics::{Meter, ObservedQueue, QueueFigures, ServiceState};
use angarium_storage::Totals;

use crate::limits;
use crate::slot::count_progress::{CountProgress, Finished};
use crate::slot::figure_sums::{Contents, FigureSums};
use crate::slot::state::{OpenQueue, Slot, SlotState};

/// What the pool of a queue said of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolSample {
    /// How many changes there were before it was asked.
    pub(crate) changes: u64,
    pub(crate) totals: Totals,
    /// When the oldest message that is ready or claimed was posted.
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
    /// Figures with its own name.
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

/// What pages know of an open queue.
#[derive(Debug, Default)]
pub(crate) struct QueueDisplay {
    /// How often something of it was changed in its pools.
    pub(crate) changes: u64,
    /// What its pool last said of it.
    pub(crate) seen: Option<PoolSample>,
    /// Which figures show it.
    pub(crate) set: FigureSet,
    pub(crate) is_due: bool,
}

impl QueueDisplay {
    /// Something of it was changed. True when the slot is to note that it is due.
    pub(crate) fn change(&mut self) -> bool {
        self.changes += 1;
        self.make_due()
    }

    /// The next page looks at it. True when the slot is to note that.
    pub(crate) fn make_due(&mut self) -> bool {
        !std::mem::replace(&mut self.is_due, true)
    }

    /// Whether pages have seen it as it is, if there are any.
    pub(crate) fn is_seen(&self) -> bool {
        self.seen.is_none_or(|seen| seen.changes >= self.changes)
    }
}

/// The share of a queue that is closed and not empty, or open and without a name.
#[derive(Debug)]
pub(crate) struct ClosedQueueFigures {
    pub(crate) at: QueueRef,
    pub(crate) contents: Contents,
    pub(crate) set: FigureSet,
}

/// What pages show of the queues of a slot.
#[derive(Debug, Default)]
pub(crate) struct SlotFigures {
    /// Those that the next page looks at; none until a first page has asked, since no caller may.
    pub(crate) due: Option<HashSet<QueueRef>>,
    pub(crate) known: HashMap<QueueId, ClosedQueueFigures>,
    /// Those of the known ones that have names.
    pub(crate) named: HashMap<QueueRef, QueueId>,
    pub(crate) unnamed: FigureSums,
    /// Which of the closed ones are not known yet.
    pub(crate) progress: CountProgress,
}

impl SlotFigures {
    /// The next page looks at a queue.
    pub(crate) fn note_due(&mut self, at: &QueueRef) {
        if let Some(due) = &mut self.due {
            due.insert(at.clone());
        }
    }

    /// Enters a queue that is opened. What is known of it is shown until a page looks at it.
    pub(crate) fn open(&mut self, at: &QueueRef, id: QueueId, set: FigureSet) -> QueueDisplay {
        self.progress.forget(at);
        if let Some(known) = self.take(id) {
            self.put(id, ClosedQueueFigures { set, ..known });
        }
        self.note_due(at);
        QueueDisplay { set, is_due: true, ..QueueDisplay::default() }
    }

    /// Enters a queue that is closed because no caller uses it. If no page has seen it as it is, it waits to be counted.
    pub(crate) fn rest(&mut self, at: &QueueRef, id: QueueId, shown: &QueueDisplay) {
        self.forget_due(at);
        match shown.seen.filter(|_| shown.is_seen()) {
            Some(seen) => self.keep_closed(at, id, seen.contents(ClaimedCounts::default()), shown.set),
            None => self.progress.recount(at),
        }
    }

    /// As `rest`, for a queue that is known to be empty: there is nothing to count.
    pub(crate) fn rest_empty(&mut self, at: &QueueRef, id: QueueId) {
        self.forget_due(at);
        self.take(id);
    }

    /// A queue is deleted, or another one has its name.
    pub(crate) fn forget(&mut self, at: &QueueRef, id: QueueId) {
        self.forget_due(at);
        self.take(id);
        self.progress.forget(at);
    }

    pub(crate) fn forget_due(&mut self, at: &QueueRef) {
        if let Some(due) = &mut self.due {
            due.remove(at);
        }
    }

    /// Keeps the share of a closed queue, unless it is empty or there is no room.
    pub(crate) fn keep_closed(&mut self, at: &QueueRef, id: QueueId, contents: Contents, set: FigureSet) {
        self.take(id);
        if contents.depth() == 0 {
            return;
        }
        if self.known.len() >= limits::SLOT_COUNTED {
            return self.progress.leave_out(at);
        }
        self.put(id, ClosedQueueFigures { at: at.clone(), contents, set });
    }

    pub(crate) fn put(&mut self, id: QueueId, known: ClosedQueueFigures) {
        self.take(id);
        if known.set == FigureSet::Named {
            self.named.insert(known.at.clone(), id);
        } else {
            self.unnamed.add(id, known.contents);
        }
        self.known.insert(id, known);
    }

    pub(crate) fn take(&mut self, id: QueueId) -> Option<ClosedQueueFigures> {
        let known = self.known.remove(&id)?;
        if known.set == FigureSet::Named {
            self.named.remove(&known.at);
        } else {
            self.unnamed.remove(id, known.contents);
        }
        Some(known)
    }

    /// So many expired messages are being removed from a queue that is not open, of which so many were delayed. Which ones are
    /// left is not known until it is counted again.
    pub(crate) fn lessen(&mut self, id: QueueId, messages: u64, delayed: u64) {
        let Some(mut known) = self.take(id) else { return };
        let contents = &mut known.contents;
        contents.ready = contents.ready.saturating_sub(messages.saturating_sub(delayed));
        contents.delayed = contents.delayed.saturating_sub(delayed);
        contents.oldest = None;
        self.put(id, known);
    }

    /// The pool of a queue that is not open has changed what it holds, or states that its totals were wrong: it is
    /// counted again.
    pub(crate) fn changed_closed(&mut self, id: QueueId) {
        self.progress.note_changed(id);
        if let Some(known) = self.known.get(&id) {
            self.progress.recount(&known.at);
        }
    }

    /// The figures of the queues without names of their own, if there are any.
    pub(crate) fn unnamed(&self, now: Timestamp) -> Option<QueueFigures> {
        self.unnamed.figures(now)
    }

    /// The queues without names that are not empty, with their depths, the deepest first.
    pub(crate) fn deepest(&self) -> impl Iterator<Item = (u64, QueueId, &QueueRef)> {
        self.unnamed.deepest().filter_map(|(depth, id)| Some((depth, id, &self.known.get(&id)?.at)))
    }

    /// The slot has so many queues. Those of the closed ones that are not known are to be counted.
    pub(crate) fn list_closed(&mut self, queues: u64, closed: Vec<QueueRef>) {
        let known: HashSet<QueueRef> = self.known.values().map(|known| known.at.clone()).collect();
        let room = limits::SLOT_COUNTED.saturating_sub(known.len());
        self.progress.list(queues, closed.into_iter().filter(|at| !known.contains(at)), room);
    }
}

/// A queue that a page looks at.
#[derive(Debug)]
pub(crate) struct DueQueue {
    pub(crate) at: QueueRef,
    pub(crate) id: QueueId,
    pub(crate) changes: u64,
    /// Whether its pool is to be asked.
    pub(crate) is_changed: bool,
    /// The oldest message, if memory knows it.
    pub(crate) oldest: Option<Header>,
}

impl Slot {
    /// The queues that a page looks at. The first one looks at all that are open.
    pub(crate) fn take_due(self: &Arc<Self>) -> Vec<DueQueue> {
        self.lock().take_due()
    }

    /// A page has looked at a queue, and this is what its pool said if it was asked; none when it is to be looked at again.
    pub(crate) fn looked_at(self: &Arc<Self>, due: &DueQueue, seen: Option<PoolSample>) {
        self.lock().looked_at(due, seen);
    }

    /// Shows on a page the claims of the slot, how far its queues are counted, and the figures of the queues with these
    /// names and of all others. It looks at the named queues alone.
    pub(crate) fn show_figures(
        self: &Arc<Self>,
        named: Vec<QueueRef>,
        now: Timestamp,
        page: &mut ServiceState,
    ) {
        let state = self.lock();
        page.claims += state.live_claims.saturating_sub(state.spent.len());
        page.waiting_claims += state.lines.len();
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

    /// Shows the queues without names of their own, with their depths, the deepest first, while they are taken.
    pub(crate) fn offer_deepest(self: &Arc<Self>, mut take: impl FnMut(u64, QueueId, &QueueRef) -> bool) {
        let state = self.lock();
        let mut queues = state.figures.deepest();
        while queues.next().is_some_and(|(depth, id, at)| take(depth, id, at)) {}
    }

    /// Messages in a queue with a name, as far as is known.
    pub(crate) fn named_depth(self: &Arc<Self>, at: &QueueRef) -> u64 {
        self.lock().named_depth(at)
    }

    /// The figures of a queue have a name from here on, or have none any more. The id is known of one that had none.
    pub(crate) fn rename(self: &Arc<Self>, at: &QueueRef, unnamed: Option<QueueId>) {
        self.lock().rename(at, unnamed, &self.around.replica.meter);
    }
}

impl SlotState {
    /// The queues that a page looks at. The first one looks at all that are open.
    pub(crate) fn take_due(&mut self) -> Vec<DueQueue> {
        let due = match self.figures.due.replace(HashSet::new()) {
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

    /// A page has looked at a queue, and this is what its pool said if it was asked; none when it is to be looked at again.
    pub(crate) fn looked_at(&mut self, due: &DueQueue, seen: Option<PoolSample>) {
        let queue = self.queues.get_mut(&due.at).filter(|queue| queue.id == due.id);
        let Some(OpenQueue { shown, engine, .. }) = queue.map(Box::as_mut) else { return };
        let is_over = seen.is_some() || !due.is_changed;
        shown.seen = seen.or(shown.seen);
        match shown.seen.map(|seen| seen.contents(engine.claimed_counts())) {
            Some(contents) if shown.set == FigureSet::Shared => {
                let figures = ClosedQueueFigures { at: due.at.clone(), contents, set: shown.set };
                self.figures.put(due.id, figures);
            }
            // It is shown as it is at that moment.
            Some(_) => drop(self.figures.take(due.id)),
            None => {}
        }
        let is_at_work = shown.set == FigureSet::Shared && engine.claimed() > 0;
        if (!is_over || is_at_work) && shown.make_due() {
            self.figures.note_due(&due.at);
        }
    }

    /// What is in a queue with a name, as far as its pool was asked.
    pub(crate) fn named_figures(&self, at: &QueueRef, now: Timestamp) -> Option<QueueFigures> {
        self.named_contents(at).map(|contents| contents.figures(now))
    }

    pub(crate) fn named_contents(&self, at: &QueueRef) -> Option<Contents> {
        let open = self.queues.get(at);
        let seen = open.and_then(|queue| Some(queue.shown.seen?.contents(queue.engine.claimed_counts())));
        seen.or_else(|| Some(self.figures.known.get(self.figures.named.get(at)?)?.contents))
    }

    /// Messages in a queue with a name, as far as is known.
    pub(crate) fn named_depth(&self, at: &QueueRef) -> u64 {
        self.named_contents(at).map_or(0, Contents::depth)
    }

    /// The figures of a queue have a name from here on, or have none any more.
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
            self.figures.put(queue.id, ClosedQueueFigures { at: at.clone(), contents, set });
        }
        if queue.shown.make_due() {
            self.figures.note_due(at);
        }
    }

    /// These are all queues of the slot. Those that are not open and not known are to be counted.
    pub(crate) fn list_queues(&mut self, names: Vec<QueueRef>) {
        let queues = names.len() as u64;
        let closed = names.into_iter().filter(|at| !self.queues.contains_key(at)).collect();
        self.figures.list_closed(queues, closed);
    }

    /// A pool was asked for what a closed queue holds.
    pub(crate) fn finish_count(&mut self, at: &QueueRef, id: QueueId, contents: Contents, set: FigureSet) {
        match self.figures.progress.finish(at) {
            Finished::True => self.figures.keep_closed(at, id, contents, set),
            Finished::Stale | Finished::Gone => {}
        }
    }

    /// The totals of a queue were corrected by its pool.
    pub(crate) fn note_corrected(&mut self, id: QueueId) {
        match self.queues.iter_mut().find(|(_, queue)| queue.id == id) {
            Some((at, queue)) => {
                if queue.shown.change() {
                    self.figures.note_due(at);
                }
            }
            None => {
                self.figures.changed_closed(id);
                // One that seemed empty is not known.
                self.figures.progress.relist();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use angarium_core::names::{ProjectId, QueueName};

    const NOW: Timestamp = Timestamp::from_millis(60_000);

    fn queue(name: &str) -> QueueRef {
        QueueRef { project: ProjectId::new("").unwrap(), name: QueueName::new(name).unwrap() }
    }

    fn id(number: u8) -> QueueId {
        QueueId::from_bytes([number; 16])
    }

    fn shown(messages: u64, oldest: u64) -> QueueDisplay {
        let totals = Totals { messages, bytes: 10 * messages, ..Totals::default() };
        let seen = PoolSample { changes: 0, totals, oldest: Some(Timestamp::from_millis(oldest)) };
        QueueDisplay { seen: Some(seen), ..QueueDisplay::default() }
    }

    fn sum(figures: &SlotFigures) -> Option<(u64, Option<u64>)> {
        figures.unnamed(NOW).map(|figures| (figures.ready, figures.oldest_age))
    }

    #[test]
    fn shares_of_queues_follow_them_to_their_end() {
        let mut figures = SlotFigures::default();
        assert_eq!(sum(&figures), None);
        figures.rest(&queue("a"), id(1), &shown(3, 10_000));
        figures.rest(&queue("b"), id(2), &shown(4, 20_000));
        assert_eq!(sum(&figures), Some((7, Some(50))));
        figures.lessen(id(1), 2, 0);
        assert_eq!(sum(&figures), Some((5, Some(40))));
        figures.changed_closed(id(1));
        assert_eq!(figures.progress.begin(None, 10), [queue("a")], "its oldest message is looked for");
        figures.forget(&queue("a"), id(1));
        assert_eq!(sum(&figures), Some((4, Some(40))));
        assert_eq!(figures.progress.finish(&queue("a")), Finished::Gone);
        figures.open(&queue("b"), id(2), FigureSet::Shared);
        assert_eq!(sum(&figures), Some((4, Some(40))), "until a page looks at it");
        figures.rest(&queue("b"), id(2), &shown(0, 0));
        assert_eq!(sum(&figures), None);
        assert!(figures.known.is_empty());
    }

    #[test]
    fn named_queue_leaves_unnamed_figures() {
        let mut figures = SlotFigures::default();
        figures.rest(&queue("a"), id(1), &shown(3, 0));
        let named = figures.open(&queue("a"), id(1), FigureSet::Named);
        assert_eq!(sum(&figures), None);
        figures.rest(&queue("a"), id(1), &QueueDisplay { set: named.set, ..shown(2, 0) });
        assert_eq!(figures.named.get(&queue("a")), Some(&id(1)));
        figures.forget(&queue("a"), id(1));
        assert!(figures.named.is_empty() && figures.known.is_empty());
    }

    #[test]
    fn queue_closed_unseen_waits_to_be_counted() {
        let mut figures = SlotFigures::default();
        figures.rest(&queue("a"), id(1), &QueueDisplay::default());
        figures.rest(&queue("b"), id(2), &QueueDisplay { changes: 1, ..shown(2, 0) });
        figures.rest_empty(&queue("c"), id(3));
        assert_eq!(figures.progress.begin(None, 10), [queue("a"), queue("b")]);
    }

    #[test]
    fn deepest_queues_are_in_order_of_depth() {
        let mut figures = SlotFigures::default();
        for (number, messages) in [(1, 5), (2, 9), (3, 7)] {
            figures.rest(&queue(&format!("q{number}")), id(number), &shown(messages, 0));
        }
        let deepest: Vec<_> = figures.deepest().map(|(depth, _, at)| (depth, at.name.as_str())).collect();
        assert_eq!(deepest, [(9, "q2"), (7, "q3"), (5, "q1")]);
    }

    #[test]
    fn closed_queues_beyond_the_bound_are_not_kept() {
        let mut figures = SlotFigures::default();
        for number in 0..=limits::SLOT_COUNTED as u64 {
            let mut bytes = [0; 16];
            bytes[8..].copy_from_slice(&number.to_be_bytes());
            figures.rest(&queue(&format!("q{number}")), QueueId::from_bytes(bytes), &shown(1, 0));
        }
        assert_eq!(figures.known.len(), limits::SLOT_COUNTED);
        assert!(!figures.progress.is_done());
    }
}
