//! One sum of the closed queues of a slot beyond those with figures of their own ([`limits::SLOT_COUNTED`]). Its size
//! is bounded, however many queues there are.
//!
//! ```text
//! counted or closed, no room ──▶ in the sum ──opened, deleted, counted again──▶ out of it, with its contents then
//!                                  │    ▲
//!                                  └────┘ swept: the contents before are replaced by the contents after
//! ```
//!
//! No state of a single queue is kept. Each step that changes a closed queue, or after which it is not closed any more,
//! reads its contents, and nothing else changes a closed queue; so a queue leaves with the contents with which it
//! entered. A sweep knows a queue by its id alone: while the names of the slot are still being counted, it is uncertain
//! whether that queue is in the sum already. Such a change waits until the queue is found by its name, or until all
//! queues are counted: then the queue is in the sum.

use std::collections::BTreeSet;

use angarium_core::ids::QueueId;
use angarium_core::maps::{HashMap, HashSet};
use angarium_core::time::Timestamp;

use crate::limits;
use crate::slot::figure_sums::Contents;

/// A change of a closed queue's contents.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClosedChange {
    pub(crate) before: Contents,
    pub(crate) after: Contents,
}

/// The sum of the closed queues without figures of their own.
#[derive(Debug, Default)]
pub(crate) struct Remainder {
    /// Number of queues that are not empty.
    queues: u64,
    sum: Contents,
    oldest: OldestQueues,
    /// Changes of queues that may be in the sum, at most [`limits::COUNTING_CHANGES`].
    changes: HashMap<QueueId, ClosedChange>,
    /// Queues that a sweep is changing.
    sweeping: HashSet<QueueId>,
    /// Contents for the pages of metrics until the queues are counted again.
    before: Option<Contents>,
}

/// The error for a sum that contradicts a change: the queues must be counted again.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Contradiction;

impl Remainder {
    /// Whether no queue is in the sum.
    pub(crate) fn is_empty(&self) -> bool {
        self.queues == 0
    }

    pub(crate) fn add(&mut self, queue: QueueId, contents: Contents) {
        if contents.depth() == 0 {
            return;
        }
        self.queues += 1;
        self.sum.add(contents);
        if let Some(oldest) = contents.oldest {
            self.oldest.insert(oldest, queue);
        }
    }

    /// Removes a queue with its present contents.
    pub(crate) fn remove(&mut self, queue: QueueId, contents: Contents) -> Result<(), Contradiction> {
        if let Some(change) = self.changes.remove(&queue) {
            self.apply(queue, change)?;
        }
        self.subtract(queue, contents)
    }

    fn subtract(&mut self, queue: QueueId, contents: Contents) -> Result<(), Contradiction> {
        self.oldest.remove(queue);
        if contents.depth() == 0 {
            return Ok(());
        }
        let (Some(queues), Some(sum)) = (self.queues.checked_sub(1), self.sum.without(contents)) else {
            return Err(Contradiction);
        };
        (self.queues, self.sum) = (queues, sum);
        if queues == 0 {
            self.oldest = OldestQueues::default();
        }
        Ok(())
    }

    fn apply(
        &mut self,
        queue: QueueId,
        ClosedChange { before, after }: ClosedChange,
    ) -> Result<(), Contradiction> {
        // Both count claimed messages as ready: neither alone fits the sum.
        self.add(queue, after);
        self.subtract(queue, before)?;
        if let Some(oldest) = after.oldest {
            self.oldest.insert(oldest, queue);
        }
        Ok(())
    }

    /// Drops the changes of a queue that is not in the sum.
    pub(crate) fn forget_changes(&mut self, queue: QueueId) {
        self.changes.remove(&queue);
    }

    pub(crate) fn begin_sweep(&mut self, queue: QueueId) {
        self.sweeping.insert(queue);
    }

    pub(crate) fn end_sweep(&mut self, queue: QueueId) {
        self.sweeping.remove(&queue);
    }

    pub(crate) fn is_sweeping(&self, queue: QueueId) -> bool {
        self.sweeping.contains(&queue)
    }

    /// Records a change of a queue that may be in the sum.
    pub(crate) fn note_change(&mut self, queue: QueueId, change: ClosedChange) -> Result<(), Contradiction> {
        let before = self.changes.get(&queue).map_or(change.before, |earlier| earlier.before);
        self.changes.insert(queue, ClosedChange { before, after: change.after });
        if self.changes.len() > limits::COUNTING_CHANGES { Err(Contradiction) } else { Ok(()) }
    }

    /// Applies the recorded changes: all queues are counted, so the changed ones are in the sum.
    pub(crate) fn settle(&mut self) -> Result<(), Contradiction> {
        self.before = None;
        for (queue, change) in std::mem::take(&mut self.changes) {
            self.apply(queue, change)?;
        }
        if self.oldest.is_used_up() { Err(Contradiction) } else { Ok(()) }
    }

    /// Empties the sum, because the queues are counted again and enter one by one. Until then pages of metrics show the
    /// contents before.
    pub(crate) fn restart(&mut self) {
        let before = self.before.or(self.contents());
        let sweeping = std::mem::take(&mut self.sweeping);
        *self = Self { before, sweeping, ..Self::default() };
    }

    fn contents(&self) -> Option<Contents> {
        let has_oldest = self.sum.ready + self.sum.claimed > 0;
        let oldest = self.oldest.first().filter(|_| has_oldest);
        (self.queues > 0).then_some(Contents { oldest, ..self.sum })
    }

    /// Returns the contents for the pages of metrics; none when there is no queue.
    pub(crate) fn shown(&self) -> Option<Contents> {
        self.before.or(self.contents())
    }
}

/// When the oldest messages were posted, for the queues with the oldest ones: at most [`limits::OLDEST_QUEUES`].
#[derive(Debug, Default)]
struct OldestQueues {
    first: BTreeSet<(Timestamp, QueueId)>,
    /// Lower bound of the times of the other queues.
    others: Option<Timestamp>,
}

impl OldestQueues {
    fn insert(&mut self, oldest: Timestamp, queue: QueueId) {
        if self.others.is_some_and(|others| others <= oldest) {
            return;
        }
        self.first.insert((oldest, queue));
        if self.first.len() > limits::OLDEST_QUEUES
            && let Some((last, _)) = self.first.pop_last()
        {
            self.others = Some(last);
        }
    }

    fn remove(&mut self, queue: QueueId) {
        self.first.retain(|(_, of)| *of != queue);
    }

    /// The oldest time; a lower bound when all queues of `first` have left.
    fn first(&self) -> Option<Timestamp> {
        self.first.first().map(|(oldest, _)| *oldest).or(self.others)
    }

    /// Whether the oldest time is not known any more.
    fn is_used_up(&self) -> bool {
        self.first.is_empty() && self.others.is_some()
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;
    use crate::slot::closed_figures::{ClosedQueueFigures, OpenedContents, SlotFigures};
    use crate::slot::count_progress::Share;
    use crate::slot::figures::{FigureSet, PoolSample, QueueDisplay};
    use angarium_core::names::{ProjectId, QueueName, QueueRef};
    use angarium_engine::ClaimedCounts;
    use angarium_storage::Totals;

    const NOW: Timestamp = Timestamp::from_millis(1_000_000_000);
    const QUEUES: usize = 40;

    /// A queue as its pool has it.
    #[derive(Clone, Copy)]
    struct PoolQueue {
        id: QueueId,
        totals: Totals,
        oldest: Timestamp,
        is_open: bool,
    }

    impl PoolQueue {
        fn sample(&self) -> PoolSample {
            let oldest = (self.totals.ready() > 0).then_some(self.oldest);
            PoolSample { changes: 0, totals: self.totals, oldest }
        }

        fn contents(&self) -> Contents {
            self.sample().contents(ClaimedCounts::default())
        }
    }

    /// The figures of a slot with little room, and a naive model beside them.
    struct World {
        rng: StdRng,
        figures: SlotFigures,
        queues: Vec<Option<PoolQueue>>,
        /// Reads that have begun, with the contents that they found.
        reads: Vec<(usize, QueueId, Contents)>,
        ids: u64,
    }

    fn name(number: usize) -> QueueRef {
        let name = QueueName::new(&format!("q{number:02}")).unwrap();
        QueueRef { project: ProjectId::new("").unwrap(), name }
    }

    impl World {
        fn new(seed: u64) -> Self {
            let mut figures = SlotFigures::default();
            figures.progress.room = 6;
            let rng = StdRng::seed_from_u64(seed);
            let mut world = Self { rng, figures, queues: vec![None; QUEUES], reads: Vec::new(), ids: 0 };
            // Queues from before the slot was acquired.
            for number in 0..QUEUES / 2 {
                world.queues[number] = Some(world.stored());
            }
            world
        }

        fn stored(&mut self) -> PoolQueue {
            self.ids += 1;
            let mut bytes = [0; 16];
            bytes[8..].copy_from_slice(&self.ids.to_be_bytes());
            let mut stored = PoolQueue {
                id: QueueId::from_bytes(bytes),
                totals: Totals::default(),
                oldest: NOW,
                is_open: false,
            };
            self.change(&mut stored);
            stored
        }

        fn change(&mut self, stored: &mut PoolQueue) {
            let messages = self.rng.random_range(0..9);
            let scheduled = self.rng.random_range(0..=messages);
            stored.totals = Totals { messages, bytes: 10 * messages, scheduled, ..Totals::default() };
            stored.oldest = Timestamp::from_millis(self.rng.random_range(1..1_000_000) * 1_000);
        }

        fn step(&mut self) {
            let number = self.rng.random_range(0..QUEUES);
            match (self.rng.random_range(0..12), self.queues[number]) {
                (0, _) => self.read_names(),
                (1 | 2, _) => self.begin_reads(),
                (3 | 4, _) => self.end_read(),
                (5, Some(stored)) if !stored.is_open => self.sweep(number, stored),
                (6, Some(stored)) if !stored.is_open => self.figures.look_again(&name(number)),
                (7, Some(stored)) => self.delete(number, stored),
                (8, None) => {
                    self.figures.progress.created(&name(number));
                    let stored = self.stored();
                    self.open(number, stored);
                }
                (_, Some(stored)) if stored.is_open => self.close(number, stored),
                (_, Some(stored)) => self.open(number, stored),
                (_, None) => {}
            }
        }

        fn read_names(&mut self) {
            if self.figures.progress.wants_names() {
                let there = || (0..QUEUES).filter_map(|number| Some((number, self.queues[number]?)));
                let closed = there().filter(|(_, stored)| !stored.is_open).map(|(number, _)| name(number));
                let (queues, closed) = (there().count() as u64, closed.collect());
                self.figures.list_closed(queues, closed);
            }
        }

        fn begin_reads(&mut self) {
            for at in self.figures.progress.begin(None, 2) {
                let number = (0..QUEUES).find(|number| name(*number) == at).unwrap();
                let stored = self.queues[number].expect("a deleted queue does not wait");
                self.figures.progress.identify(&at, stored.id);
                self.reads.push((number, stored.id, stored.contents()));
            }
        }

        fn end_read(&mut self) {
            if self.reads.is_empty() {
                return;
            }
            let (number, id, contents) = self.reads.swap_remove(self.rng.random_range(0..self.reads.len()));
            match self.rng.random_range(0..4) {
                0 => self.figures.progress.put_back(&name(number)),
                _ => self.figures.finish_count(&name(number), id, contents, FigureSet::Shared),
            }
        }

        fn open(&mut self, number: usize, mut stored: PoolQueue) {
            let read = PoolSample { oldest: None, ..stored.sample() }.contents(ClaimedCounts::default());
            let opened = self.rng.random_range(0..20);
            let opened = if opened == 0 { OpenedContents::Unsure } else { OpenedContents::Read(read) };
            self.figures.open(&name(number), stored.id, FigureSet::Shared, opened);
            stored.is_open = true;
            // The queue is open for far longer than a read takes.
            self.reads.retain(|(read, ..)| *read != number);
            self.change(&mut stored);
            self.queues[number] = Some(stored);
            self.show(number, stored);
        }

        /// A page of metrics reads an open queue.
        fn show(&mut self, number: usize, stored: PoolQueue) {
            let (at, contents) = (name(number), stored.contents());
            self.figures
                .put(stored.id, ClosedQueueFigures { at, contents, set: FigureSet::Shared, is_open: true });
        }

        fn close(&mut self, number: usize, mut stored: PoolQueue) {
            let is_seen = self.rng.random_range(0..4) > 0;
            let seen = is_seen.then(|| stored.sample());
            let is_empty = stored.contents().depth() == 0;
            let shown = QueueDisplay { seen, ..QueueDisplay::default() };
            if is_empty {
                self.figures.rest_empty(&name(number), stored.id);
            } else {
                self.figures.rest(&name(number), stored.id, &shown);
            }
            stored.is_open = false;
            self.queues[number] = Some(stored);
        }

        fn delete(&mut self, number: usize, stored: PoolQueue) {
            let at = name(number);
            if stored.is_open {
                self.figures.forget_open(&at, stored.id);
            } else {
                let contents = OpenedContents::Read(stored.contents());
                self.figures.forget_closed(&at, stored.id, contents);
            }
            self.figures.progress.deleted(&at);
            self.queues[number] = None;
            // Its name may be another queue's, whose reads have begun after this one's ended.
            self.reads.retain(|(read, ..)| *read != number);
        }

        fn sweep(&mut self, number: usize, mut stored: PoolQueue) {
            let is_told = self.figures.begin_sweep(stored.id);
            let before = stored.contents();
            let gone = self.rng.random_range(0..=stored.totals.ready());
            stored.totals.messages -= gone;
            stored.totals.bytes -= 10 * gone;
            stored.oldest = stored.oldest.plus_seconds(1);
            self.queues[number] = Some(stored);
            self.figures.lessen(stored.id, Contents { ready: gone, ..Contents::default() });
            for _ in 0..self.rng.random_range(0..3) {
                self.end_read();
                self.begin_reads();
            }
            self.figures.changed_closed(stored.id);
            if is_told {
                let change = ClosedChange { before, after: stored.contents() };
                self.figures.end_sweep_with(stored.id, Some(change));
            } else {
                self.figures.end_sweep(stored.id);
            }
        }

        /// Counts all queues, and compares with the model.
        fn check(&mut self, moment: &str) {
            for _ in 0..10_000 {
                self.figures.settle();
                if self.figures.progress.is_settled() {
                    break;
                }
                self.read_names();
                self.begin_reads();
                self.end_read();
            }
            assert!(self.figures.progress.is_done(), "{moment}: {:?}", self.figures.progress);
            let there: Vec<PoolQueue> = self.queues.iter().flatten().copied().collect();
            let mut truth = Contents::default();
            there.iter().for_each(|stored| truth.add(stored.contents()));
            let shown = self.figures.unnamed(NOW).unwrap_or_default();
            assert_eq!(shown, truth.figures(NOW), "{moment}");
            let progress = &self.figures.progress;
            assert_eq!((progress.queues(), progress.counted()), (there.len() as u64, there.len() as u64));
            let closed = self.figures.known.values().filter(|known| !known.is_open).count();
            assert!(closed <= progress.room, "{closed} closed queues have figures of their own");
        }
    }

    #[test]
    fn sum_of_random_histories_is_the_naive_one() {
        for seed in 0..200 {
            let mut world = World::new(seed);
            for step in 0..400 {
                world.step();
                if step % 67 == 66 {
                    world.check(&format!("seed {seed}, step {step}"));
                }
            }
        }
    }

    #[test]
    fn oldest_message_is_found_again_when_the_known_ones_left() {
        let mut remainder = Remainder::default();
        let most = limits::OLDEST_QUEUES as u64;
        let queue = |number: u64| {
            let mut bytes = [0; 16];
            bytes[8..].copy_from_slice(&number.to_be_bytes());
            let oldest = Some(Timestamp::from_millis(1_000 * number));
            (QueueId::from_bytes(bytes), Contents { ready: 1, oldest, ..Contents::default() })
        };
        let oldest = |remainder: &Remainder| remainder.shown().and_then(|shown| shown.oldest);
        for number in (1..=most + 2).rev() {
            let (id, contents) = queue(number);
            remainder.add(id, contents);
        }
        for number in 1..=most {
            assert_eq!(oldest(&remainder), Some(Timestamp::from_millis(1_000 * number)));
            assert_eq!(remainder.settle(), Ok(()));
            let (id, contents) = queue(number);
            assert_eq!(remainder.remove(id, contents), Ok(()));
        }
        assert_eq!(oldest(&remainder), Some(Timestamp::from_millis(1_000 * (most + 1))), "no younger");
        assert_eq!(remainder.settle(), Err(Contradiction), "the rest are counted again");
        let (id, contents) = queue(most + 1);
        assert_eq!(remainder.remove(id, Contents { ready: 9, ..contents }), Err(Contradiction));
        remainder.restart();
        assert_eq!(remainder.shown().map(|shown| shown.ready), Some(2), "until they are counted");
        assert!(remainder.is_empty());
        remainder.add(id, contents);
        assert_eq!(remainder.settle(), Ok(()));
        assert_eq!(remainder.shown().map(|shown| shown.ready), Some(1));
    }

    #[test]
    fn deeper_queue_takes_the_place_of_a_shallow_one() {
        let mut figures = SlotFigures::default();
        figures.progress.room = 2;
        figures.list_closed(3, Vec::new());
        for (number, ready) in [(1, 5), (2, 3), (3, 9)] {
            let mut bytes = [0; 16];
            bytes[15] = number;
            let contents = Contents { ready, ..Contents::default() };
            figures.keep_closed(
                &name(number.into()),
                QueueId::from_bytes(bytes),
                contents,
                FigureSet::Shared,
            );
            figures.progress.recount(&name(1), Share::Apart);
        }
        let depths: Vec<u64> = figures.deepest().map(|(depth, ..)| depth).collect();
        assert_eq!(depths, [9, 5], "the shallowest has no name");
        assert_eq!(figures.unnamed(NOW).map(|all| all.ready), Some(17));
    }
}
