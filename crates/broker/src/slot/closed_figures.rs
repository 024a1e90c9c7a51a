//! The figures of the queues of a slot: of named queues, of closed queues, and of all others as one sum.
//!
//! At most [`limits::SLOT_COUNTED`] closed queues, the deepest ones, have figures of their own; the others are one sum
//! ([`crate::slot::remainder`]). The last page of metrics before a queue was closed read its contents, or
//! [`crate::counting::background`] reads them.

use crate::slot::count_progress::{CountProgress, Share};
use crate::slot::figure_sums::{Contents, FigureSums};
use crate::slot::figures::{FigureSet, QueueDisplay};
use crate::slot::remainder::{ClosedChange, Contradiction, Remainder};
use angarium_core::ids::QueueId;
use angarium_core::maps::{HashMap, HashSet};
use angarium_core::names::QueueRef;
use angarium_core::time::Timestamp;
use angarium_engine::ClaimedCounts;
use angarium_metrics::QueueFigures;

/// Number of shallow queues that are examined to find one that makes room for a deeper one.
const ROOM_LOOKS: usize = 16;

/// The figures of a queue that is closed and not empty, or open and without a name.
#[derive(Debug)]
pub(crate) struct ClosedQueueFigures {
    pub(crate) at: QueueRef,
    pub(crate) contents: Contents,
    pub(crate) set: FigureSet,
    pub(crate) is_open: bool,
}

/// The contents of a queue, as read while it is opened or deleted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OpenedContents {
    Read(Contents),
    /// The queue is in two pools, which count some of its messages twice.
    Unsure,
}

/// The figures of a slot's queues for the pages of metrics.
#[derive(Debug, Default)]
pub(crate) struct SlotFigures {
    /// Open queues that the next page of metrics must read. None until the first page is requested: there may never be
    /// one.
    pub(crate) due: Option<HashSet<QueueRef>>,
    pub(crate) known: HashMap<QueueId, ClosedQueueFigures>,
    /// The queues of `known` that have names.
    pub(crate) named: HashMap<QueueRef, QueueId>,
    pub(crate) unnamed: FigureSums,
    /// The sum of the counted closed queues that are not in `known`.
    pub(crate) remainder: Remainder,
    /// Which closed queues are not counted yet.
    pub(crate) progress: CountProgress,
}

impl SlotFigures {
    /// Has the next page of metrics read a queue.
    pub(crate) fn note_due(&mut self, at: &QueueRef) {
        if let Some(due) = &mut self.due {
            due.insert(at.clone());
        }
    }

    /// Enters a queue that is being opened. Until a page of metrics reads it, its known contents are shown.
    pub(crate) fn open(
        &mut self,
        at: &QueueRef,
        id: QueueId,
        set: FigureSet,
        contents: OpenedContents,
    ) -> QueueDisplay {
        let contents = match self.take(id) {
            Some(known) => {
                self.progress.forget(at);
                Some(known.contents)
            }
            None => self.leave_remainder(at, id, contents),
        };
        if let Some(contents) = contents {
            self.put(id, ClosedQueueFigures { at: at.clone(), contents, set, is_open: true });
        }
        self.note_due(at);
        QueueDisplay { set, is_due: true, ..QueueDisplay::default() }
    }

    /// Enters a queue that is closed because no caller uses it. If it has changed since a page of metrics last read it,
    /// it waits to be counted.
    pub(crate) fn rest(&mut self, at: &QueueRef, id: QueueId, shown: &QueueDisplay) {
        self.forget_due(at);
        match shown.seen.filter(|_| shown.is_seen()) {
            Some(seen) => self.keep_closed(at, id, seen.contents(ClaimedCounts::default()), shown.set),
            None => {
                if let Some(known) = self.known.get_mut(&id) {
                    known.is_open = false;
                    self.progress.recount(at, Share::Apart);
                } else {
                    self.progress.wait(at);
                }
            }
        }
    }

    /// Like `rest`, for a queue that is known to be empty: there is nothing to count.
    pub(crate) fn rest_empty(&mut self, at: &QueueRef, id: QueueId) {
        self.forget_due(at);
        self.take(id);
    }

    /// Forgets an open queue that is being deleted.
    pub(crate) fn forget_open(&mut self, at: &QueueRef, id: QueueId) {
        self.forget_due(at);
        self.take(id);
        self.progress.forget(at);
    }

    /// Forgets a closed queue that is being deleted. `contents` is what the queue held, if it was read.
    pub(crate) fn forget_closed(&mut self, at: &QueueRef, id: QueueId, contents: OpenedContents) {
        match self.take(id) {
            Some(_) => self.progress.forget(at),
            None => drop(self.leave_remainder(at, id, contents)),
        }
    }

    pub(crate) fn forget_due(&mut self, at: &QueueRef) {
        if let Some(due) = &mut self.due {
            due.remove(at);
        }
    }

    /// Whether a closed queue may be in the sum of the queues without figures of their own.
    pub(crate) fn may_be_in_remainder(&self, at: &QueueRef, id: QueueId) -> bool {
        !self.remainder.is_empty() && !self.known.contains_key(&id) && self.progress.is_in_sum(at)
    }

    /// Removes a queue that is not in `known`, because it is no longer closed. Returns its contents if they were
    /// counted.
    fn leave_remainder(&mut self, at: &QueueRef, id: QueueId, contents: OpenedContents) -> Option<Contents> {
        let is_in_sum = self.progress.is_in_sum(at);
        self.progress.forget_uncounted(at);
        if !is_in_sum || self.remainder.is_empty() {
            self.remainder.forget_changes(id);
            return None;
        }
        let OpenedContents::Read(contents) = contents else {
            self.progress.relist();
            return None;
        };
        let removed = self.remainder.remove(id, contents);
        self.heal(removed);
        Some(contents)
    }

    /// Has all queues counted again after a contradiction in their sum.
    fn heal(&mut self, outcome: Result<(), Contradiction>) {
        if outcome.is_err() {
            self.progress.relist();
        }
    }

    /// Keeps the figures of a closed queue, unless it is empty.
    pub(crate) fn keep_closed(&mut self, at: &QueueRef, id: QueueId, contents: Contents, set: FigureSet) {
        self.take(id);
        if contents.depth() == 0 {
            return;
        }
        let is_full = self.known.len() >= self.progress.room;
        if is_full && set == FigureSet::Shared && !self.make_room(contents.depth()) {
            return self.enter_remainder(at, id, contents);
        }
        self.put(id, ClosedQueueFigures { at: at.clone(), contents, set, is_open: false });
    }

    /// Moves a queue shallower than `depth` to those without figures of their own. Returns false when there is none.
    fn make_room(&mut self, depth: u64) -> bool {
        let shallow = self.unnamed.depths.iter().take(ROOM_LOOKS).take_while(|(than, _)| *than < depth);
        let is_at_rest = |id: &QueueId| {
            let known = &self.known[id];
            !known.is_open && !self.progress.is_pending(&known.at) && !self.remainder.is_sweeping(*id)
        };
        let Some(id) = shallow.map(|(_, id)| *id).find(is_at_rest) else { return false };
        if let Some(known) = self.take(id) {
            self.enter_remainder(&known.at, id, known.contents);
        }
        true
    }

    /// Enters a closed queue that has no figures of its own: in the sum, or among the queues to be counted.
    fn enter_remainder(&mut self, at: &QueueRef, id: QueueId, contents: Contents) {
        if self.progress.is_beyond(at) {
            self.progress.wait(at);
        } else {
            self.remainder.add(id, contents);
        }
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

    /// Subtracts the numbers of expired messages that are being removed from a queue that is not open. The time of its
    /// oldest message is unknown until the queue is counted again.
    pub(crate) fn lessen(&mut self, id: QueueId, gone: Contents) {
        let Some(mut known) = self.take(id) else { return };
        let contents = &mut known.contents;
        contents.ready = contents.ready.saturating_sub(gone.ready);
        contents.delayed = contents.delayed.saturating_sub(gone.delayed);
        contents.kept = contents.kept.saturating_sub(gone.kept);
        contents.oldest = None;
        self.put(id, known);
    }

    /// Notes that a sweep is about to change a closed queue: until the sweep ends, its figures stay where they are.
    /// Returns whether the sweep must read the contents before and after; only the sum of the queues without figures of
    /// their own needs them.
    pub(crate) fn begin_sweep(&mut self, id: QueueId) -> bool {
        self.remainder.begin_sweep(id);
        !self.remainder.is_empty() && !self.known.contains_key(&id)
    }

    /// Notes the end of a sweep that did not have to read the contents.
    pub(crate) fn end_sweep(&mut self, id: QueueId) {
        self.remainder.end_sweep(id);
    }

    /// Like [`Self::end_sweep`], for a sweep that had to read the change. `change` is none when it is uncertain: then
    /// all queues are counted again.
    pub(crate) fn end_sweep_with(&mut self, id: QueueId, change: Option<ClosedChange>) {
        self.end_sweep(id);
        let Some(change) = change else { return self.progress.relist() };
        let noted = self.remainder.note_change(id, change);
        self.heal(noted);
        self.settle();
    }

    /// Has a queue that is not open counted again, because its pool has changed its contents or has corrected its
    /// totals.
    pub(crate) fn changed_closed(&mut self, id: QueueId) {
        self.progress.note_changed(id);
        if let Some(known) = self.known.get(&id) {
            self.progress.recount(&known.at, Share::Apart);
        }
    }

    /// Has a closed queue counted again because one of its delayed messages is due.
    pub(crate) fn look_again(&mut self, at: &QueueRef) {
        let share = if self.progress.is_in_sum(at) { Share::InSum } else { Share::Apart };
        self.progress.recount(at, share);
    }

    /// Enters the contents of a closed queue, as they were read.
    pub(crate) fn finish_count(&mut self, at: &QueueRef, id: QueueId, contents: Contents, set: FigureSet) {
        if self.remainder.is_sweeping(id) {
            self.progress.note_changed(id);
        }
        let Some(share) = self.progress.finish(at) else { return };
        if share == Share::InSum && !self.known.contains_key(&id) {
            let removed = self.remainder.remove(id, contents);
            self.heal(removed);
        } else {
            self.remainder.forget_changes(id);
        }
        self.keep_closed(at, id, contents, set);
        self.settle();
    }

    /// Applies the pending changes once all queues are counted.
    pub(crate) fn settle(&mut self) {
        if self.progress.is_settled() {
            let settled = self.remainder.settle();
            self.heal(settled);
        }
    }

    /// Returns the figures of all queues without names together; none when there are no such queues.
    pub(crate) fn unnamed(&self, now: Timestamp) -> Option<QueueFigures> {
        let known = self.unnamed.contents();
        let Some(remainder) = self.remainder.shown() else { return known.map(|known| known.figures(now)) };
        let mut all = known.unwrap_or_default();
        all.add(remainder);
        Some(all.figures(now))
    }

    /// The queues without names that are not empty, with their depths, the deepest first.
    pub(crate) fn deepest(&self) -> impl Iterator<Item = (u64, QueueId, &QueueRef)> {
        self.unnamed.deepest().filter_map(|(depth, id)| Some((depth, id, &self.known.get(&id)?.at)))
    }

    /// Enters all names of the slot, `closed` being those of queues that are not open. Those of them without known
    /// figures are to be counted.
    pub(crate) fn list_closed(&mut self, queues: u64, mut closed: Vec<QueueRef>) {
        if self.progress.begins_again() {
            self.remainder.restart();
        }
        let known: HashSet<&QueueRef> = self.known.values().map(|known| &known.at).collect();
        closed.retain(|at| !known.contains(at));
        self.progress.list(queues, closed);
        self.settle();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slot::figures::PoolSample;
    use angarium_core::names::{ProjectId, QueueName};
    use angarium_storage::Totals;

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
        let mut figures = listed();
        assert_eq!(sum(&figures), None);
        figures.rest(&queue("a"), id(1), &shown(3, 10_000));
        figures.rest(&queue("b"), id(2), &shown(4, 20_000));
        assert_eq!(sum(&figures), Some((7, Some(50))));
        figures.lessen(id(1), Contents { ready: 2, ..Contents::default() });
        assert_eq!(sum(&figures), Some((5, Some(40))));
        figures.changed_closed(id(1));
        assert_eq!(figures.progress.begin(None, 10), [queue("a")], "its oldest message is looked for");
        figures.forget_closed(&queue("a"), id(1), OpenedContents::Unsure);
        assert_eq!(sum(&figures), Some((4, Some(40))));
        assert_eq!(figures.progress.finish(&queue("a")), None);
        figures.open(&queue("b"), id(2), FigureSet::Shared, OpenedContents::Unsure);
        assert_eq!(sum(&figures), Some((4, Some(40))), "until a page looks at it");
        figures.rest(&queue("b"), id(2), &shown(0, 0));
        assert_eq!(sum(&figures), None);
        assert!(figures.known.is_empty());
    }

    #[test]
    fn named_queue_leaves_unnamed_figures() {
        let mut figures = listed();
        figures.rest(&queue("a"), id(1), &shown(3, 0));
        let named = figures.open(&queue("a"), id(1), FigureSet::Named, OpenedContents::Unsure);
        assert_eq!(sum(&figures), None);
        figures.rest(&queue("a"), id(1), &QueueDisplay { set: named.set, ..shown(2, 0) });
        assert_eq!(figures.named.get(&queue("a")), Some(&id(1)));
        figures.forget_closed(&queue("a"), id(1), OpenedContents::Unsure);
        assert!(figures.named.is_empty() && figures.known.is_empty());
    }

    #[test]
    fn queue_closed_unseen_waits_to_be_counted() {
        let mut figures = listed();
        figures.rest(&queue("a"), id(1), &QueueDisplay::default());
        figures.rest(&queue("b"), id(2), &QueueDisplay { changes: 1, ..shown(2, 0) });
        figures.rest_empty(&queue("c"), id(3));
        assert_eq!(figures.progress.begin(None, 10), [queue("a"), queue("b")]);
    }

    #[test]
    fn deepest_queues_are_in_order_of_depth() {
        let mut figures = listed();
        for (number, messages) in [(1, 5), (2, 9), (3, 7)] {
            figures.rest(&queue(&format!("q{number}")), id(number), &shown(messages, 0));
        }
        let deepest: Vec<_> = figures.deepest().map(|(depth, _, at)| (depth, at.name.as_str())).collect();
        assert_eq!(deepest, [(9, "q2"), (7, "q3"), (5, "q1")]);
    }

    /// Figures of a slot of which all names were read.
    fn listed() -> SlotFigures {
        let mut figures = SlotFigures::default();
        figures.list_closed(0, Vec::new());
        figures
    }
}
