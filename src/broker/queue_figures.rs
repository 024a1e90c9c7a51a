//! What pages of metrics show of the queues of a slot, kept so that a page looks at the queues that were at work since the one
//! before and at those whose figures have a name, however many others there are.
//!
//! ```text
//!           changed, opened, taken from           looked at, nothing claimed
//! not due ─────────────────────────────▶ due ─────────────────────────────────▶ not due
//! ```
//!
//! A queue with a name is shown as it is at that moment. The others share one set of figures: each has its share of it, as it
//! was when it was last looked at, and stays due while something in it is claimed, since claims end without a change.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::slot::{OpenQueue, SlotState};
use crate::domain::ids::QueueId;
use crate::domain::message::Header;
use crate::domain::names::QueueRef;
use crate::domain::time::Timestamp;
use crate::metrics::QueueFigures;
use crate::storage::Totals;

/// What the pool of a queue said of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// How many changes there were before it was asked.
    pub(super) changes: u64,
    pub(super) totals: Totals,
    /// When the oldest message that is ready or claimed was posted.
    pub(super) oldest: Option<Timestamp>,
}

impl Seen {
    /// So many messages were removed that had expired, of which so many were delayed. Which ones are left is not known.
    fn lessen(&mut self, messages: u64, delayed: u64) {
        self.totals.messages = self.totals.messages.saturating_sub(messages);
        self.totals.scheduled = self.totals.scheduled.saturating_sub(delayed);
        self.oldest = None;
    }

    fn share(&self, claimed: u64) -> Share {
        let claimed = claimed.min(self.totals.ready());
        Share {
            ready: self.totals.ready() - claimed,
            claimed,
            delayed: self.totals.scheduled,
            in_transfer: self.totals.aside,
            oldest: self.oldest,
        }
    }
}

/// What is in a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Share {
    ready: u64,
    claimed: u64,
    delayed: u64,
    in_transfer: u64,
    oldest: Option<Timestamp>,
}

impl Share {
    fn figures(self, now: Timestamp) -> QueueFigures {
        let Self { ready, claimed, delayed, in_transfer, oldest } = self;
        let oldest_age = oldest.map(|oldest| now.seconds_since(oldest));
        QueueFigures { ready, claimed, delayed, in_transfer, oldest_age }
    }
}

/// What pages know of an open queue.
#[derive(Debug, Default)]
pub(super) struct Shown {
    /// How often something of it was changed in its pools.
    changes: u64,
    /// What its pool last said of it.
    seen: Option<Seen>,
    /// Whether its figures have its own name.
    has_name: bool,
    is_due: bool,
    /// What it adds to the figures without a name.
    share: Option<Share>,
}

impl Shown {
    /// Something of it was changed. True when the slot is to note that it is due.
    pub(super) fn change(&mut self) -> bool {
        self.changes += 1;
        self.make_due()
    }

    /// The next page looks at it. True when the slot is to note that.
    pub(super) fn make_due(&mut self) -> bool {
        !std::mem::replace(&mut self.is_due, true)
    }

    /// Whether pages have seen it as it is, if there are any.
    pub(super) fn is_seen(&self) -> bool {
        self.seen.is_none_or(|seen| seen.changes >= self.changes)
    }
}

/// The figures of the queues without names of their own, together.
#[derive(Debug, Default)]
struct Unnamed {
    queues: usize,
    sum: Share,
    /// How many queues have an oldest message of this time.
    oldest: BTreeMap<Timestamp, usize>,
}

impl Unnamed {
    fn add(&mut self, share: Share) {
        self.queues += 1;
        self.sum.ready += share.ready;
        self.sum.claimed += share.claimed;
        self.sum.delayed += share.delayed;
        self.sum.in_transfer += share.in_transfer;
        if let Some(oldest) = share.oldest {
            *self.oldest.entry(oldest).or_default() += 1;
        }
    }

    fn remove(&mut self, share: Option<Share>) {
        let Some(share) = share else { return };
        self.queues -= 1;
        self.sum.ready -= share.ready;
        self.sum.claimed -= share.claimed;
        self.sum.delayed -= share.delayed;
        self.sum.in_transfer -= share.in_transfer;
        let Some(oldest) = share.oldest else { return };
        if let Some(queues) = self.oldest.get_mut(&oldest) {
            *queues -= 1;
            if *queues == 0 {
                self.oldest.remove(&oldest);
            }
        }
    }

    fn figures(&self, now: Timestamp) -> Option<QueueFigures> {
        let oldest = self.oldest.first_key_value().map(|(oldest, _)| *oldest);
        (self.queues > 0).then(|| Share { oldest, ..self.sum }.figures(now))
    }
}

/// A queue that was closed with messages in it, as it was seen.
#[derive(Debug)]
struct Resting {
    at: QueueRef,
    seen: Seen,
    /// See [`Shown::share`]; none when it has a name.
    share: Option<Share>,
}

/// What pages show of the queues of a slot.
#[derive(Debug, Default)]
pub(super) struct SlotFigures {
    /// Those that the next page looks at; none until a first page has asked, since nobody may.
    due: Option<HashSet<QueueRef>>,
    resting: HashMap<QueueId, Resting>,
    /// Those of the resting ones that have names.
    resting_named: HashMap<QueueRef, QueueId>,
    unnamed: Unnamed,
}

impl SlotFigures {
    /// The next page looks at a queue.
    pub(super) fn note_due(&mut self, at: &QueueRef) {
        if let Some(due) = &mut self.due {
            due.insert(at.clone());
        }
    }

    /// A queue is opened, whose figures have a name or not.
    pub(super) fn open(&mut self, at: &QueueRef, id: QueueId, has_name: bool) -> Shown {
        let mut share = self.resting.remove(&id).and_then(|resting| resting.share);
        self.resting_named.remove(at);
        if has_name {
            self.unnamed.remove(share.take());
        }
        self.note_due(at);
        Shown { has_name, is_due: true, share, ..Shown::default() }
    }

    /// A queue is closed that nobody uses.
    pub(super) fn rest(&mut self, at: &QueueRef, id: QueueId, shown: Shown) {
        self.forget_due(at);
        let is_seen = shown.is_seen();
        let Some(seen) = shown.seen.filter(|seen| is_seen && seen.totals.messages > 0) else {
            return self.unnamed.remove(shown.share);
        };
        if shown.has_name {
            self.resting_named.insert(at.clone(), id);
        }
        self.resting.insert(id, Resting { at: at.clone(), seen, share: shown.share });
    }

    /// A queue is deleted, or another one has its name.
    pub(super) fn forget(&mut self, at: &QueueRef, id: QueueId) {
        self.forget_due(at);
        if let Some(resting) = self.resting.remove(&id) {
            self.unnamed.remove(resting.share);
            self.resting_named.remove(&resting.at);
        }
    }

    /// As [`SlotFigures::forget`], of a queue that was open.
    pub(super) fn forget_open(&mut self, shown: &mut Shown) {
        self.unnamed.remove(shown.share.take());
    }

    fn forget_due(&mut self, at: &QueueRef) {
        if let Some(due) = &mut self.due {
            due.remove(at);
        }
    }

    /// So many expired messages were removed from a queue that is not open, of which so many were delayed.
    pub(super) fn lessen(&mut self, id: QueueId, messages: u64, delayed: u64) {
        let Some(resting) = self.resting.get_mut(&id) else { return };
        resting.seen.lessen(messages, delayed);
        if resting.share.is_some() {
            let share = resting.seen.share(0);
            self.unnamed.remove(resting.share.replace(share));
            self.unnamed.add(share);
        }
    }

    /// The figures of the queues without names of their own, if there are any.
    pub(super) fn unnamed(&self, now: Timestamp) -> Option<QueueFigures> {
        self.unnamed.figures(now)
    }
}

/// A queue that a page looks at.
#[derive(Debug)]
pub(super) struct Due {
    pub(super) at: QueueRef,
    pub(super) id: QueueId,
    pub(super) changes: u64,
    /// Whether its pool is to be asked.
    pub(super) is_changed: bool,
    /// The oldest message, if memory knows it.
    pub(super) oldest: Option<Header>,
}

impl SlotState {
    /// The queues that a page looks at. The first one looks at all that are open.
    pub(super) fn take_due(&mut self) -> Vec<Due> {
        let due = match self.figures.due.replace(HashSet::new()) {
            Some(due) => due.into_iter().collect(),
            None => self.queues.keys().cloned().collect::<Vec<_>>(),
        };
        let mut taken = Vec::with_capacity(due.len());
        for at in due {
            let Some(queue) = self.queues.get_mut(&at) else { continue };
            let Shown { changes, seen, ref mut is_due, .. } = queue.shown;
            *is_due = false;
            let is_changed = seen.is_none_or(|seen| seen.changes < changes);
            let oldest = queue.engine.ends().0.cloned();
            taken.push(Due { id: queue.id, changes, is_changed, oldest, at });
        }
        taken
    }

    /// A page has looked at a queue, and this is what its pool said if it was asked; none when it is to be looked at again.
    pub(super) fn looked_at(&mut self, due: &Due, seen: Option<Seen>) {
        let queue = self.queues.get_mut(&due.at).filter(|queue| queue.id == due.id);
        let Some(OpenQueue { shown, engine, .. }) = queue.map(Box::as_mut) else { return };
        let is_over = seen.is_some() || !due.is_changed;
        shown.seen = seen.or(shown.seen);
        if !shown.has_name {
            self.figures.unnamed.remove(shown.share.take());
            shown.share = shown.seen.map(|seen| seen.share(engine.claimed()));
            shown.share.into_iter().for_each(|share| self.figures.unnamed.add(share));
        }
        let is_at_work = !shown.has_name && engine.claimed() > 0;
        if (!is_over || is_at_work) && shown.make_due() {
            self.figures.note_due(&due.at);
        }
    }

    /// What is in a queue with a name, as far as its pool was asked.
    pub(super) fn named_figures(&self, at: &QueueRef, now: Timestamp) -> Option<QueueFigures> {
        if let Some(queue) = self.queues.get(at) {
            return Some(queue.shown.seen?.share(queue.engine.claimed()).figures(now));
        }
        let resting = self.figures.resting.get(self.figures.resting_named.get(at)?)?;
        Some(resting.seen.share(0).figures(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::names::{ProjectId, QueueName};

    const NOW: Timestamp = Timestamp::from_millis(60_000);

    fn queue(name: &str) -> QueueRef {
        QueueRef { project: ProjectId::new("").unwrap(), name: QueueName::new(name).unwrap() }
    }

    fn seen(messages: u64, oldest: u64) -> Seen {
        let totals = Totals { messages, ..Totals::default() };
        Seen { changes: 0, totals, oldest: Some(Timestamp::from_millis(oldest)) }
    }

    fn shown(figures: &mut SlotFigures, seen: Seen) -> Shown {
        let share = seen.share(0);
        figures.unnamed.add(share);
        Shown { seen: Some(seen), share: Some(share), ..Shown::default() }
    }

    fn sum(figures: &SlotFigures) -> Option<(u64, Option<u64>)> {
        figures.unnamed(NOW).map(|figures| (figures.ready, figures.oldest_age))
    }

    #[test]
    fn shares_of_queues_follow_them_to_their_end() {
        let (mut figures, id) = (SlotFigures::default(), |number| QueueId::from_bytes([number; 16]));
        assert_eq!(sum(&figures), None);
        let [first, second] = [seen(3, 10_000), seen(4, 20_000)].map(|seen| shown(&mut figures, seen));
        assert_eq!(sum(&figures), Some((7, Some(50))));
        figures.rest(&queue("a"), id(1), first);
        figures.rest(&queue("b"), id(2), second);
        assert_eq!(sum(&figures), Some((7, Some(50))), "they are closed, and there");
        figures.lessen(id(1), 2, 0);
        assert_eq!(sum(&figures), Some((5, Some(40))));
        figures.forget(&queue("a"), id(1));
        assert_eq!(sum(&figures), Some((4, Some(40))));
        let mut opened = figures.open(&queue("b"), id(2), false);
        assert_eq!(sum(&figures), Some((4, Some(40))));
        figures.forget_open(&mut opened);
        assert_eq!(sum(&figures), None);
    }

    #[test]
    fn queue_that_gets_a_name_leaves_the_others() {
        let (mut figures, id) = (SlotFigures::default(), QueueId::from_bytes([1; 16]));
        let unnamed = shown(&mut figures, seen(3, 0));
        figures.rest(&queue("a"), id, unnamed);
        let named = figures.open(&queue("a"), id, true);
        assert_eq!((sum(&figures), named.share), (None, None));
        figures.rest(&queue("a"), id, Shown { seen: Some(seen(2, 0)), ..named });
        assert_eq!(figures.resting_named.get(&queue("a")), Some(&id));
        figures.forget(&queue("a"), id);
        assert!(figures.resting_named.is_empty() && figures.resting.is_empty());
    }
}
