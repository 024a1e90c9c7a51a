//! How far the counting of a slot's queues is: which queues wait for it, and which are being read.
//!
//! ```text
//! listed, created, closed unread ──▶ waiting ──begin──▶ being read ──▶ counted
//!                                       ▲                    │ changed meanwhile, or no room in the line of its pool
//!                                       └────────────────────┘
//! ```
//!
//! A queue that is opened or deleted leaves: pages of metrics look at open ones themselves. So does a queue that is left
//! out of the figures, for want of room or for damage.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Bound;
use std::sync::Arc;

use angarium_core::ids::QueueId;
use angarium_core::names::QueueRef;
use angarium_core::time::Timestamp;

use crate::slot::figure_sums::Contents;
use crate::slot::figures::FigureSet;
use crate::slot::state::Slot;

/// The progress of one slot.
#[derive(Debug, Default)]
pub(crate) struct CountProgress {
    /// Queues that the slot has, once their names were read.
    pub(crate) queues: u64,
    pub(crate) is_listed: bool,
    pub(crate) waiting: BTreeSet<QueueRef>,
    pub(crate) reading: HashMap<QueueRef, Reading>,
    /// Queues for which there is no room, and such as cannot be read for damage.
    pub(crate) left_out: LeftOut,
}

/// Closed queues that are in no other list, by hashes of their names: about 16 bytes for each queue of the slot at most, which a
/// listing holds whole for a moment. Two queues with one hash count as one, which no figure shows.
#[derive(Debug, Default)]
pub(crate) struct LeftOut(HashSet<u64>);

impl LeftOut {
    pub(crate) fn insert(&mut self, at: &QueueRef) {
        self.0.insert(Self::hash(at));
    }

    pub(crate) fn remove(&mut self, at: &QueueRef) {
        if !self.0.is_empty() {
            self.0.remove(&Self::hash(at));
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.0.len() as u64
    }

    pub(crate) fn hash(at: &QueueRef) -> u64 {
        let mut hasher = DefaultHasher::new();
        at.hash(&mut hasher);
        hasher.finish()
    }
}

/// A queue that is being read.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    /// Absent until its record was read.
    pub(crate) id: Option<QueueId>,
    /// Whether it was changed since the read began.
    pub(crate) is_stale: bool,
}

/// What became of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finished {
    /// The read shows the queue as it is.
    True,
    /// The queue was changed meanwhile, and waits again.
    Stale,
    /// The queue was opened or deleted meanwhile.
    Gone,
}

impl Slot {
    /// A step of the counting of this slot's queues.
    pub(crate) fn counting<T>(self: &Arc<Self>, step: impl FnOnce(&mut CountProgress) -> T) -> T {
        step(&mut self.lock().figures.progress)
    }

    /// These are all queues of the slot. Those that are not open and not known are to be counted.
    pub(crate) fn list_queues(self: &Arc<Self>, names: Vec<QueueRef>) {
        self.lock().list_queues(names);
    }

    /// A pool was asked for what a closed queue holds. Its scheduled messages, if it has any, are looked at at `next_look`.
    pub(crate) fn finish_count(
        self: &Arc<Self>,
        at: &QueueRef,
        id: QueueId,
        contents: Contents,
        next_look: Option<Timestamp>,
    ) {
        let mut state = self.lock();
        let set = FigureSet::of(&self.around.replica.meter, at);
        state.finish_count(at, id, contents, set);
        if let Some(next) = next_look {
            state.note_closed_wake(at, next);
        }
    }
}

impl CountProgress {
    /// Queues of the slot, as far as their names were read.
    pub(crate) fn queues(&self) -> u64 {
        self.queues
    }

    /// Those of them whose messages are in the figures.
    pub(crate) fn counted(&self) -> u64 {
        let open = (self.waiting.len() + self.reading.len()) as u64;
        self.queues.saturating_sub(open).saturating_sub(self.left_out.len())
    }

    /// Whether every queue of the slot is counted.
    pub(crate) fn is_done(&self) -> bool {
        self.is_listed && self.waiting.is_empty() && self.reading.is_empty() && self.left_out.len() == 0
    }

    /// Whether queues wait to be counted.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether the names of the queues are to be read.
    pub(crate) fn wants_names(&self) -> bool {
        !self.is_listed
    }

    /// The names are to be read again: it is not certain which queues there are, or what they hold.
    pub(crate) fn relist(&mut self) {
        self.is_listed = false;
    }

    /// The slot has so many queues. Those of `unknown` are to be counted, as far as there is room.
    pub(crate) fn list(&mut self, queues: u64, unknown: impl Iterator<Item = QueueRef>, room: usize) {
        (self.queues, self.is_listed, self.left_out) = (queues, true, LeftOut::default());
        for at in unknown {
            if self.reading.contains_key(&at) || self.waiting.contains(&at) {
                continue;
            }
            if self.waiting.len() < room {
                self.waiting.insert(at);
            } else {
                self.left_out.insert(&at);
            }
        }
    }

    /// A queue was created, and is about to be opened.
    pub(crate) fn created(&mut self, at: &QueueRef) {
        self.queues += 1;
        self.wait(at);
    }

    pub(crate) fn wait(&mut self, at: &QueueRef) {
        self.left_out.remove(at);
        self.waiting.insert(at.clone());
    }

    /// The record of a queue is gone.
    pub(crate) fn deleted(&mut self, at: &QueueRef) {
        self.queues = self.queues.saturating_sub(1);
        self.forget(at);
    }

    /// A queue is opened, or closed for good.
    pub(crate) fn forget(&mut self, at: &QueueRef) {
        self.waiting.remove(at);
        self.reading.remove(at);
        self.left_out.remove(at);
    }

    /// A closed queue is to be counted, or counted again.
    pub(crate) fn recount(&mut self, at: &QueueRef) {
        match self.reading.get_mut(at) {
            Some(reading) => reading.is_stale = true,
            None => self.wait(at),
        }
    }

    /// There is no room for the figures of a queue.
    pub(crate) fn leave_out(&mut self, at: &QueueRef) {
        self.left_out.insert(at);
    }

    /// What is stored of a queue is damaged.
    pub(crate) fn give_up(&mut self, at: &QueueRef) {
        if self.reading.remove(at).is_some() {
            self.left_out.insert(at);
        }
    }

    /// Whether a queue is still to be read: no caller has opened or deleted it.
    pub(crate) fn is_reading(&self, at: &QueueRef) -> bool {
        self.reading.contains_key(at)
    }

    /// A closed queue was changed in its pool: what is being read of it may be from before.
    pub(crate) fn note_changed(&mut self, queue: QueueId) {
        let of_queue = self.reading.values_mut().filter(|reading| reading.id.is_none_or(|id| id == queue));
        of_queue.for_each(|reading| reading.is_stale = true);
    }

    /// Begins to read queues behind `after`, at most `most`, in order of their names.
    pub(crate) fn begin(&mut self, after: Option<&QueueRef>, most: usize) -> Vec<QueueRef> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let begun: Vec<QueueRef> =
            self.waiting.range::<QueueRef, _>((from, Bound::Unbounded)).take(most).cloned().collect();
        for at in &begun {
            self.waiting.remove(at);
            self.reading.insert(at.clone(), Reading::default());
        }
        begun
    }

    /// The record of a queue that is being read has this id. False when the queue is not to be read any more.
    pub(crate) fn identify(&mut self, at: &QueueRef, id: QueueId) -> bool {
        self.reading.get_mut(at).map(|reading| reading.id = Some(id)).is_some()
    }

    /// A read has shown what the queue holds.
    pub(crate) fn finish(&mut self, at: &QueueRef) -> Finished {
        match self.reading.remove(at) {
            Some(Reading { is_stale: false, .. }) => Finished::True,
            Some(Reading { is_stale: true, .. }) => {
                self.waiting.insert(at.clone());
                Finished::Stale
            }
            None => Finished::Gone,
        }
    }

    /// A queue could not be read, and waits again.
    pub(crate) fn put_back(&mut self, at: &QueueRef) {
        if self.reading.remove(at).is_some() {
            self.waiting.insert(at.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use angarium_core::names::{ProjectId, QueueName};

    fn queue(name: &str) -> QueueRef {
        QueueRef { project: ProjectId::new("").unwrap(), name: QueueName::new(name).unwrap() }
    }

    fn listed(names: &[&str]) -> CountProgress {
        let mut progress = CountProgress::default();
        progress.list(names.len() as u64, names.iter().map(|name| queue(name)), 10);
        progress
    }

    #[test]
    fn queue_changed_during_its_read_is_read_again() {
        let (mut progress, id) = (listed(&["a", "b"]), QueueId::from_bytes([1; 16]));
        assert_eq!((progress.queues(), progress.counted()), (2, 0));
        assert_eq!(progress.begin(None, 1), [queue("a")]);
        assert!(progress.identify(&queue("a"), id));
        progress.note_changed(QueueId::from_bytes([2; 16]));
        assert_eq!(progress.finish(&queue("a")), Finished::True);
        assert_eq!(progress.counted(), 1);
        assert_eq!(progress.begin(Some(&queue("a")), 10), [queue("b")]);
        progress.note_changed(id);
        assert_eq!(progress.finish(&queue("b")), Finished::Stale, "its id was not known yet");
        assert!(progress.has_waiting() && !progress.is_done());
        progress.begin(None, 10);
        progress.recount(&queue("b"));
        assert_eq!(progress.finish(&queue("b")), Finished::Stale);
        progress.begin(None, 10);
        assert_eq!(progress.finish(&queue("b")), Finished::True);
        assert!(progress.is_done());
    }

    #[test]
    fn opened_and_deleted_queues_are_not_counted_by_reads() {
        let mut progress = listed(&["a", "b"]);
        progress.begin(None, 2);
        progress.forget(&queue("a"));
        progress.deleted(&queue("b"));
        for name in ["a", "b"] {
            assert_eq!(progress.finish(&queue(name)), Finished::Gone);
            progress.put_back(&queue(name));
        }
        assert_eq!((progress.queues(), progress.counted(), progress.is_done()), (1, 1, true));
        progress.created(&queue("c"));
        assert_eq!((progress.queues(), progress.counted()), (2, 1));
        progress.forget(&queue("c"));
        assert!(progress.is_done(), "it is open");
    }

    #[test]
    fn damaged_queue_is_not_read_again() {
        let mut progress = listed(&["a", "b"]);
        progress.begin(None, 2);
        progress.give_up(&queue("a"));
        assert!(!progress.is_reading(&queue("a")) && progress.is_reading(&queue("b")));
        assert_eq!(progress.finish(&queue("b")), Finished::True);
        assert_eq!((progress.counted(), progress.has_waiting(), progress.is_done()), (1, false, false));
    }

    #[test]
    fn queues_without_room_are_left_out_and_told() {
        let mut progress = CountProgress::default();
        assert!(progress.wants_names() && !progress.is_done());
        progress.list(3, ["a", "b", "c"].into_iter().map(queue), 2);
        assert_eq!(progress.begin(None, 10).len(), 2);
        for name in ["a", "b"] {
            progress.finish(&queue(name));
        }
        assert_eq!((progress.counted(), progress.is_done()), (2, false));
        progress.relist();
        assert!(progress.wants_names());
    }

    #[test]
    fn left_out_queues_are_those_of_the_present() {
        let mut progress = listed(&["a", "b", "c"]);
        progress.begin(None, 3);
        ["a", "b", "c"].iter().for_each(|name| progress.give_up(&queue(name)));
        progress.leave_out(&queue("a"));
        assert_eq!((progress.queues(), progress.counted()), (3, 0), "each counts once");
        progress.deleted(&queue("a"));
        assert_eq!((progress.queues(), progress.counted()), (2, 0));
        progress.forget(&queue("b"));
        assert_eq!((progress.queues(), progress.counted()), (2, 1), "it is open");
        progress.recount(&queue("c"));
        assert_eq!(progress.begin(None, 3), [queue("c")]);
        assert_eq!(progress.finish(&queue("c")), Finished::True);
        assert_eq!((progress.counted(), progress.is_done()), (2, true));
    }
}
