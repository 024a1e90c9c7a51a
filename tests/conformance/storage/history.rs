//! A random history of batches, fences and reopenings, held against the naive pool after each step.
//!
//! The seed is printed; `ANGARIUM_SEED` repeats it. `ANGARIUM_POOL_STEPS` makes it longer.

use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use angarium::domain::ids::{MessageId, QueueId, Slot};
use angarium::domain::message::Message;
use angarium::storage::{Batch, Direction, PoolStore, QueueChanges, StoreError};

use super::drivers::Storage;
use super::naive::{Answer, NaivePool};
use super::owner::{SLOT, claimed_again, epoch, id, message, queue};
use crate::support::settings;

const SLOTS: [Slot; 2] = [SLOT, Slot(SLOT.0 + 1)];
/// Ranks of ids begin in the middle, so that smaller ones can come later.
const FIRST_RANK: u64 = 10_000;

pub async fn pool_is_what_the_naive_pool_is_after_any_history(storage: &mut dyn Storage) {
    let seed = settings::seed("pool history");
    let steps = settings::number("ANGARIUM_POOL_STEPS", 250);
    let mut history = History::new(seed);
    let mut store = storage.open().await;
    for step in 0..steps {
        match history.dice.random_range(0..100) {
            0..8 => history.fence(&*store).await,
            8..12 => {
                drop(store);
                store = storage.open().await;
            }
            _ => history.commit(&*store).await,
        }
        history.compare(&store, step).await;
    }
}

struct History {
    dice: SmallRng,
    naive: NaivePool,
    queues: Vec<QueueId>,
    /// Of each slot: the last transaction that fenced it, and the number of its last batch.
    numbers: [(u64, u64); 2],
    /// Every id ever used, with its queue.
    used: Vec<(QueueId, MessageId)>,
    up: u64,
    down: u64,
}

impl History {
    fn new(seed: u64) -> Self {
        let queues = vec![queue(SLOTS[0], 1), queue(SLOTS[0], 2), queue(SLOTS[1], 3)];
        let (dice, naive) = (SmallRng::seed_from_u64(seed), NaivePool::default());
        Self { dice, naive, queues, numbers: [(0, 0); 2], used: Vec::new(), up: FIRST_RANK, down: FIRST_RANK }
    }

    async fn fence(&mut self, store: &dyn PoolStore) {
        let slot = self.dice.random_range(0..2);
        let transaction = (self.numbers[slot].0 + self.dice.random_range(0..3)).saturating_sub(1);
        let expected = self.naive.fence(SLOTS[slot], epoch(transaction));
        let found = store.fence(SLOTS[slot], epoch(transaction)).await;
        assert_eq!(found.map_err(answer), expected);
        if expected.is_ok() {
            self.numbers[slot] = (transaction, 0);
        }
    }

    async fn commit(&mut self, store: &dyn PoolStore) {
        let slot = self.dice.random_range(0..2);
        let (transaction, last) = self.numbers[slot];
        let (transaction, seq) = match self.dice.random_range(0..20) {
            0 => (transaction, last),
            1 => (transaction, last.saturating_sub(1)),
            2 => (transaction, last + 2),
            3 => (transaction + 1, last + 1),
            4 => (transaction.saturating_sub(1), last + 1),
            _ => (transaction, last + 1),
        };
        let of_slot: Vec<_> =
            self.queues.iter().copied().filter(|queue| queue.slot() == SLOTS[slot]).collect();
        let mut queues = Vec::new();
        for queue in of_slot {
            if self.dice.random_ratio(2, 3) {
                queues.push(self.changes(queue));
            }
        }
        let batch = Batch { slot: SLOTS[slot], epoch: epoch(transaction), seq, queues };
        let expected = self.naive.commit(&batch);
        let found = store.commit(&batch).await.map_or_else(answer, |()| Answer::Done);
        assert_eq!(found, expected, "{batch:?}");
        if expected == Answer::Done {
            self.numbers[slot].1 = seq;
        }
    }

    fn changes(&mut self, queue: QueueId) -> QueueChanges {
        let held = self.naive.queue(queue);
        let oldest = held.entries.keys().next().copied();
        let mut changes = QueueChanges::of(queue, MessageId::ZERO);
        if self.dice.random_ratio(1, 2) {
            changes.low = oldest.unwrap_or(MessageId::ZERO);
        }
        for _ in 0..self.dice.random_range(0..4) {
            let message = self.new_message();
            self.used.push((queue, message.header.id));
            changes.appends.push(message);
        }
        for _ in 0..self.dice.random_range(0..3) {
            let entry = self.pick(queue, &changes.appends);
            let header = held.entries.get(&entry).map(|held| &held.header).cloned();
            let header = header.unwrap_or_else(|| message(1, "").header);
            changes.updates.push(claimed_again(&angarium::domain::message::Header { id: entry, ..header }));
        }
        for _ in 0..self.dice.random_range(0..4) {
            let gone = self.pick(queue, &changes.appends);
            changes.removes.push(gone);
        }
        changes
    }

    fn new_message(&mut self) -> Message {
        let length = [0, 1, 2, 100, 5_000][self.dice.random_range(0..5)];
        let rank = if self.dice.random_ratio(1, 5) {
            self.down -= 1;
            self.down
        } else {
            self.up += 1;
            self.up
        };
        message(rank, &"m".repeat(length))
    }

    /// An id that is there, was there, is of another queue, comes with the batch, or never was.
    fn pick(&mut self, queue: QueueId, appends: &[Message]) -> MessageId {
        let held = self.naive.queue(queue);
        let from: Vec<MessageId> = match self.dice.random_range(0..10) {
            0..6 => held.entries.keys().copied().collect(),
            6 | 7 => self.used.iter().map(|(_, id)| *id).collect(),
            8 => appends.iter().map(|message| message.header.id).collect(),
            _ => Vec::new(),
        };
        if from.is_empty() { id(1) } else { from[self.dice.random_range(0..from.len())] }
    }

    async fn compare(&mut self, store: &Arc<dyn PoolStore>, step: u64) {
        for queue in self.queues.clone() {
            let expected = self.naive.queue(queue);
            assert_eq!(store.totals(queue).await.unwrap(), expected.totals(), "totals at step {step}");
            let asked: Vec<MessageId> = self.used.iter().map(|(_, id)| *id).rev().take(50).collect();
            assert_eq!(store.get(queue, &asked).await.unwrap(), expected.get(&asked), "get at step {step}");
            for direction in [Direction::Up, Direction::Down] {
                let after = self.dice.random_ratio(1, 3).then(|| self.pick(queue, &[]));
                let messages = [usize::MAX, self.dice.random_range(0..8)][self.dice.random_range(0..2)];
                let bytes = [usize::MAX, self.dice.random_range(0..8_000)][self.dice.random_range(0..2)];
                let wanted = expected.scan(direction, after, messages, bytes);
                let page = store.scan(queue, direction, after, messages, bytes).await.unwrap();
                assert_eq!(page.messages, wanted.messages, "{direction:?} after {after:?} at step {step}");
                assert_eq!(page.is_last, wanted.is_last, "{direction:?} after {after:?} at step {step}");
            }
        }
    }
}

fn answer(error: StoreError) -> Answer {
    match error {
        StoreError::Fenced(by) => Answer::Fenced(by),
        StoreError::Stale => Answer::Stale,
        StoreError::WentBack => Answer::WentBack,
        error @ (StoreError::Stamped(_) | StoreError::NotSent(_) | StoreError::Unknown(_)) => {
            panic!("{error}")
        }
    }
}
