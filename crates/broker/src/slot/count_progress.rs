//! Progress of counting a slot's queues: which queues wait for it, and which are being read.
//!
//! ```text
//! names of the slot ──a part at a time──▶ waiting ──begin──▶ being read ──▶ counted
//! created, closed unread ────────────────▶   ▲                    │ changed meanwhile, or its pool's line is full
//!                                            └────────────────────┘
//! ```
//!
//! The names are read in their order, as far as there is room for waiting queues; queues with later names are not
//! counted yet. A queue that is opened or deleted leaves: pages of metrics read open queues themselves. A damaged queue
//! leaves too; the figures leave it out.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Bound;
use std::sync::Arc;

use angarium_core::ids::QueueId;
use angarium_core::maps::{HashMap, HashSet};
use angarium_core::names::QueueRef;
use angarium_core::time::Timestamp;

use crate::limits;
use crate::slot::figure_sums::Contents;
use crate::slot::figures::FigureSet;
use crate::slot::state::Slot;

/// Whether a queue that waits to be counted is already in the sum of the queues without figures of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    Apart,
    InSum,
}

/// How far the names of a slot were read.
#[derive(Debug, Default)]
enum Frontier {
    #[default]
    Start,
    Behind(QueueRef),
    End,
}

impl Frontier {
    fn is_before(&self, at: &QueueRef) -> bool {
        match self {
            Self::Start => true,
            Self::Behind(last) => at > last,
            Self::End => false,
        }
    }
}

/// The progress of one slot.
#[derive(Debug)]
pub(crate) struct CountProgress {
    /// Number of queues of the slot, once their names were read.
    pub(crate) queues: u64,
    pub(crate) is_listed: bool,
    frontier: Frontier,
    /// Number of closed queues beyond the frontier, which are not counted.
    beyond: u64,
    pub(crate) waiting: BTreeMap<QueueRef, Share>,
    pub(crate) reading: HashMap<QueueRef, Reading>,
    /// Queues that cannot be read because they are damaged.
    pub(crate) left_out: LeftOut,
    /// Max waiting queues, and max closed queues with figures of their own: [`limits::SLOT_COUNTED`].
    pub(crate) room: usize,
}

impl Default for CountProgress {
    fn default() -> Self {
        Self {
            queues: 0,
            is_listed: false,
            frontier: Frontier::default(),
            beyond: 0,
            waiting: BTreeMap::new(),
            reading: HashMap::default(),
            left_out: LeftOut::default(),
            room: limits::SLOT_COUNTED,
        }
    }
}

/// Damaged queues, by hashes of their names: about 16 bytes for each. Two queues with the same hash count as one; the
/// error is negligible.
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

    fn contains(&self, at: &QueueRef) -> bool {
        !self.0.is_empty() && self.0.contains(&Self::hash(at))
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
#[derive(Debug)]
pub(crate) struct Reading {
    /// None until the record of the queue was read.
    pub(crate) id: Option<QueueId>,
    /// Whether the queue was changed since the read began.
    pub(crate) is_stale: bool,
    share: Share,
}

impl Slot {
    /// Runs a step of counting this slot's queues, under the lock.
    pub(crate) fn counting<T>(self: &Arc<Self>, step: impl FnOnce(&mut CountProgress) -> T) -> T {
        step(&mut self.lock().figures.progress)
    }

    /// Has a closed queue counted again because one of its delayed messages is due; [`crate::counting::background`]
    /// opens it.
    pub(crate) fn look_again(self: &Arc<Self>, at: &QueueRef) {
        self.lock().figures.look_again(at);
    }

    /// Enters the names of all queues of the slot. Closed queues without known figures must be counted.
    pub(crate) fn list_queues(self: &Arc<Self>, names: Vec<QueueRef>) {
        self.lock().list_queues(names);
    }

    /// Enters the contents of a closed queue, as its pool reported them. `next_look` is when its scheduled messages, if
    /// any, are to be examined.
    pub(crate) fn finish_count(
        self: &Arc<Self>,
        at: &QueueRef,
        id: QueueId,
        contents: Contents,
        next_look: Option<Timestamp>,
    ) {
        let mut state = self.lock();
        let set = FigureSet::of(&self.around.replica.meter, at);
        state.figures.finish_count(at, id, contents, set);
        if let Some(next) = next_look {
            state.note_closed_wake(at, next);
        }
    }
}

impl CountProgress {
    /// Number of queues of the slot, as far as their names were read.
    pub(crate) fn queues(&self) -> u64 {
        self.queues
    }

    /// Number of queues of the slot whose messages are in the figures.
    pub(crate) fn counted(&self) -> u64 {
        let open = (self.waiting.len() + self.reading.len()) as u64;
        self.queues.saturating_sub(open).saturating_sub(self.left_out.len()).saturating_sub(self.beyond)
    }

    /// Whether every queue of the slot is counted.
    pub(crate) fn is_done(&self) -> bool {
        self.is_settled() && self.left_out.len() == 0
    }

    /// Whether every readable queue of the slot is counted.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_listed
            && matches!(self.frontier, Frontier::End)
            && self.waiting.is_empty()
            && self.reading.is_empty()
    }

    /// Whether queues wait to be counted.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether the names of the queues must be read: all of them, or those beyond the frontier once there is room for
    /// them.
    pub(crate) fn wants_names(&self) -> bool {
        let has_room = 2 * (self.waiting.len() + self.reading.len()) < self.room;
        !self.is_listed || (has_room && !matches!(self.frontier, Frontier::End))
    }

    /// Has the names read again: it is uncertain which queues exist, or what they contain.
    pub(crate) fn relist(&mut self) {
        self.is_listed = false;
    }

    /// Whether the next read of the names starts from the first name.
    pub(crate) fn begins_again(&self) -> bool {
        !self.is_listed
    }

    /// Enters the number of queues of the slot. Those of `unknown` are to be counted.
    pub(crate) fn list(&mut self, queues: u64, mut unknown: Vec<QueueRef>) {
        let mut from = std::mem::take(&mut self.frontier);
        if self.begins_again() {
            (self.is_listed, self.left_out, from) = (true, LeftOut::default(), Frontier::Start);
            self.waiting.values_mut().for_each(|share| *share = Share::Apart);
            self.reading.values_mut().for_each(|reading| reading.share = Share::Apart);
        }
        unknown.retain(|at| from.is_before(at) && !self.is_pending(at));
        unknown.sort_unstable();
        let room = self.room.saturating_sub(self.waiting.len() + self.reading.len());
        let beyond = unknown.split_off(room.min(unknown.len()));
        self.frontier = match unknown.last() {
            _ if beyond.is_empty() => Frontier::End,
            Some(last) => Frontier::Behind(last.clone()),
            None => from,
        };
        (self.queues, self.beyond) = (queues, beyond.len() as u64);
        self.waiting.extend(unknown.into_iter().map(|at| (at, Share::Apart)));
    }

    /// Whether a queue waits or is being read.
    pub(crate) fn is_pending(&self, at: &QueueRef) -> bool {
        self.waiting.contains_key(at) || self.reading.contains_key(at)
    }

    /// Whether a name is beyond the frontier, so not read yet.
    pub(crate) fn is_beyond(&self, at: &QueueRef) -> bool {
        self.frontier.is_before(at)
    }

    /// Whether a closed queue without figures of its own is in the sum of such queues.
    pub(crate) fn is_in_sum(&self, at: &QueueRef) -> bool {
        let pending = self.waiting.get(at).copied().or(self.reading.get(at).map(|reading| reading.share));
        match pending {
            Some(share) => share == Share::InSum,
            None => !self.is_beyond(at) && !self.left_out.contains(at),
        }
    }

    /// Enters a queue that was created and is about to be opened.
    pub(crate) fn created(&mut self, at: &QueueRef) {
        self.queues += 1;
        self.wait(at);
    }

    /// Has a closed queue counted that is in no figure.
    pub(crate) fn wait(&mut self, at: &QueueRef) {
        self.left_out.remove(at);
        if !self.is_pending(at) && self.is_beyond(at) {
            self.beyond += 1;
        } else if self.waiting.len() < self.room || self.is_pending(at) {
            self.recount(at, Share::Apart);
        } else {
            self.relist();
        }
    }

    /// Notes that the record of a queue was removed.
    pub(crate) fn deleted(&mut self, at: &QueueRef) {
        self.queues = self.queues.saturating_sub(1);
        self.forget(at);
    }

    /// Forgets a queue that is opened, or closed for its deletion.
    pub(crate) fn forget(&mut self, at: &QueueRef) {
        self.waiting.remove(at);
        self.reading.remove(at);
        self.left_out.remove(at);
    }

    /// Like [`Self::forget`], for a queue that has no figures of its own.
    pub(crate) fn forget_uncounted(&mut self, at: &QueueRef) {
        if !self.is_pending(at) && self.is_beyond(at) {
            self.beyond = self.beyond.saturating_sub(1);
        }
        self.forget(at);
    }

    /// Has a closed queue counted again.
    pub(crate) fn recount(&mut self, at: &QueueRef, share: Share) {
        match self.reading.get_mut(at) {
            Some(reading) => reading.is_stale = true,
            None => {
                self.left_out.remove(at);
                self.waiting.entry(at.clone()).or_insert(share);
            }
        }
    }

    /// Leaves out a queue because its stored data is damaged.
    pub(crate) fn give_up(&mut self, at: &QueueRef) {
        let Some(reading) = self.reading.remove(at) else { return };
        self.left_out.insert(at);
        if reading.share == Share::InSum {
            self.relist();
        }
    }

    /// Whether a queue must still be read: no caller has opened or deleted it.
    pub(crate) fn is_reading(&self, at: &QueueRef) -> bool {
        self.reading.contains_key(at)
    }

    /// Notes that a closed queue was changed in its pool: a read of it that is in progress may be stale.
    pub(crate) fn note_changed(&mut self, queue: QueueId) {
        let of_queue = self.reading.values_mut().filter(|reading| reading.id.is_none_or(|id| id == queue));
        of_queue.for_each(|reading| reading.is_stale = true);
    }

    /// Begins to read at most `most` queues with names after `after`, in order of their names.
    pub(crate) fn begin(&mut self, after: Option<&QueueRef>, most: usize) -> Vec<QueueRef> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let behind = self.waiting.range::<QueueRef, _>((from, Bound::Unbounded));
        let begun: Vec<QueueRef> = behind.take(most).map(|(at, _)| at.clone()).collect();
        for at in &begun {
            if let Some(share) = self.waiting.remove(at) {
                self.reading.insert(at.clone(), Reading { id: None, is_stale: false, share });
            }
        }
        begun
    }

    /// Enters the id of a queue that is being read, from its record. Returns false when the queue must not be read any
    /// more.
    pub(crate) fn identify(&mut self, at: &QueueRef, id: QueueId) -> bool {
        self.reading.get_mut(at).map(|reading| reading.id = Some(id)).is_some()
    }

    /// Ends the read of a queue. Returns none when the queue was opened or deleted, or when it was changed meanwhile:
    /// then it waits again.
    pub(crate) fn finish(&mut self, at: &QueueRef) -> Option<Share> {
        let reading = self.reading.remove(at)?;
        if reading.is_stale {
            self.waiting.insert(at.clone(), reading.share);
            return None;
        }
        Some(reading.share)
    }

    /// Has a queue wait again because it could not be read.
    pub(crate) fn put_back(&mut self, at: &QueueRef) {
        if let Some(reading) = self.reading.remove(at) {
            self.waiting.insert(at.clone(), reading.share);
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
        progress.list(names.len() as u64, names.iter().map(|name| queue(name)).collect());
        progress
    }

    #[test]
    fn queue_changed_during_its_read_is_read_again() {
        let (mut progress, id) = (listed(&["a", "b"]), QueueId::from_bytes([1; 16]));
        assert_eq!((progress.queues(), progress.counted()), (2, 0));
        assert_eq!(progress.begin(None, 1), [queue("a")]);
        assert!(progress.identify(&queue("a"), id));
        progress.note_changed(QueueId::from_bytes([2; 16]));
        assert_eq!(progress.finish(&queue("a")), Some(Share::Apart));
        assert_eq!(progress.counted(), 1);
        assert_eq!(progress.begin(Some(&queue("a")), 10), [queue("b")]);
        progress.note_changed(id);
        assert_eq!(progress.finish(&queue("b")), None, "its id was not known yet");
        assert!(progress.has_waiting() && !progress.is_done());
        progress.begin(None, 10);
        progress.recount(&queue("b"), Share::Apart);
        assert_eq!(progress.finish(&queue("b")), None);
        progress.begin(None, 10);
        assert_eq!(progress.finish(&queue("b")), Some(Share::Apart));
        assert!(progress.is_done());
    }

    #[test]
    fn opened_and_deleted_queues_are_not_counted_by_reads() {
        let mut progress = listed(&["a", "b"]);
        progress.begin(None, 2);
        progress.forget(&queue("a"));
        progress.deleted(&queue("b"));
        for name in ["a", "b"] {
            assert_eq!(progress.finish(&queue(name)), None);
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
        assert_eq!(progress.finish(&queue("b")), Some(Share::Apart));
        assert_eq!((progress.counted(), progress.has_waiting(), progress.is_done()), (1, false, false));
    }

    #[test]
    fn names_beyond_the_room_are_read_later() {
        let mut progress = CountProgress { room: 2, ..CountProgress::default() };
        let names = || ["e", "b", "d", "a", "c"].map(queue).to_vec();
        assert!(progress.wants_names() && !progress.is_done());
        progress.list(5, names());
        assert_eq!((progress.counted(), progress.wants_names()), (0, false));
        assert!(progress.is_beyond(&queue("c")) && !progress.is_in_sum(&queue("a")));
        assert_eq!(progress.begin(None, 10), [queue("a"), queue("b")]);
        progress.finish(&queue("a"));
        assert!(!progress.wants_names(), "half of the room is in use");
        progress.finish(&queue("b"));
        assert_eq!((progress.counted(), progress.wants_names(), progress.is_settled()), (2, true, false));
        assert!(progress.is_in_sum(&queue("a")) && !progress.is_in_sum(&queue("c")));
        progress.wait(&queue("e"));
        progress.forget_uncounted(&queue("e"));
        assert!(!progress.has_waiting(), "its name is beyond");
        progress.list(5, names());
        assert_eq!(progress.begin(None, 10), [queue("c"), queue("d")]);
        progress.recount(&queue("a"), Share::InSum);
        ["c", "d"].iter().for_each(|name| assert_eq!(progress.finish(&queue(name)), Some(Share::Apart)));
        assert_eq!(progress.begin(None, 10), [queue("a")]);
        progress.put_back(&queue("a"));
        progress.begin(None, 10);
        assert_eq!(progress.finish(&queue("a")), Some(Share::InSum));
        progress.list(5, names());
        progress.begin(None, 10);
        progress.finish(&queue("e"));
        assert!(progress.is_done() && progress.counted() == 5);
        progress.relist();
        assert!(progress.wants_names() && !progress.is_settled());
    }

    #[test]
    fn left_out_queues_are_those_of_the_present() {
        let mut progress = listed(&["a", "b", "c"]);
        progress.begin(None, 3);
        ["a", "b", "c"].iter().for_each(|name| progress.give_up(&queue(name)));
        assert_eq!((progress.queues(), progress.counted()), (3, 0), "each counts once");
        progress.deleted(&queue("a"));
        assert_eq!((progress.queues(), progress.counted()), (2, 0));
        progress.forget(&queue("b"));
        assert_eq!((progress.queues(), progress.counted()), (2, 1), "it is open");
        progress.recount(&queue("c"), Share::Apart);
        assert_eq!(progress.begin(None, 3), [queue("c")]);
        assert_eq!(progress.finish(&queue("c")), Some(Share::Apart));
        assert_eq!((progress.counted(), progress.is_done()), (2, true));
    }
}
