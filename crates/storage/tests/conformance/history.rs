//! A random history of batches, fences, drops and reopenings, compared with the naive pool after each step.
//!
//! The seed is printed; `ANGARIUM_SEED` repeats it. `ANGARIUM_POOL_STEPS` makes it longer.

use std::sync::Arc;

use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use angarium_core::durability::Durability;
use angarium_core::group::GroupName;
use angarium_core::ids::{MessageId, QueueId, Slot};
use angarium_core::message::{Header, Life, Message, Retention, State};
use angarium_core::outcome::{Extras, Holder, Keep};
use angarium_core::small_bounds;
use angarium_core::time::Timestamp;
use angarium_storage::{
    Batch, Direction, DropResult, Due, Note, Order, Page, PoolStore, Position, QueueChanges, RetainedEntries,
    StoreError, Totals, limits,
};

use angarium_testbed::drivers::Storage;
use angarium_testbed::naive::{Answer, NaivePool};
use angarium_testbed::owner::{SLOT, all_extras, claimed_again, epoch, id, message, peer, queue, with_body};
use angarium_testbed::settings;

const SLOTS: [Slot; 2] = [SLOT, Slot(SLOT.0 + 1)];
const ORDERS: [(Order, Direction); 8] = [
    (Order::Ready, Direction::Up),
    (Order::Ready, Direction::Down),
    (Order::Aside, Direction::Up),
    (Order::Aside, Direction::Down),
    (Order::Schedule, Direction::Up),
    (Order::Schedule, Direction::Down),
    (Order::Kept, Direction::Up),
    (Order::Kept, Direction::Down),
];
/// Ranks of ids begin in the middle, so that later ids can be smaller.
const FIRST_RANK: u64 = 10_000;

pub async fn pool_matches_naive_pool_after_any_history(storage: &mut dyn Storage) {
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
            12..15 => history.drop_queue(&*store).await,
            _ => history.commit(&*store).await,
        }
        history.due(&*store, step).await;
        history.compare(&store, step).await;
    }
}

struct History {
    dice: SmallRng,
    naive: NaivePool,
    queues: Vec<QueueId>,
    /// For each slot: the last transaction that fenced it, and the number of its last batch.
    numbers: [(u64, u64); 2],
    /// Every id ever used, with its queue.
    used: Vec<(QueueId, MessageId)>,
    up: u64,
    down: u64,
    /// A body that several messages of the batch may share.
    shared: Bytes,
    /// The bodies that entries share.
    lent: Vec<LentBody>,
}

/// A body that several entries share.
struct LentBody {
    slot: Slot,
    bytes: u64,
    readers: Vec<(QueueId, MessageId)>,
}

impl History {
    fn new(seed: u64) -> Self {
        let queues = vec![queue(SLOTS[0], 1), queue(SLOTS[0], 2), queue(SLOTS[1], 3)];
        let (dice, naive) = (SmallRng::seed_from_u64(seed), NaivePool::default());
        Self {
            dice,
            naive,
            queues,
            numbers: [(0, 0); 2],
            used: Vec::new(),
            up: FIRST_RANK,
            down: FIRST_RANK,
            shared: Bytes::new(),
            lent: Vec::new(),
        }
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
        self.shared = Bytes::from(vec![b's'; self.dice.random_range(0..2_000)]);
        for queue in of_slot {
            if self.dice.random_ratio(2, 3) {
                queues.push(self.changes(queue));
            }
        }
        let batch =
            Batch { slot: SLOTS[slot], epoch: epoch(transaction), seq, durability: Durability::Sync, queues };
        let expected = self.naive.commit(&batch);
        let found = store.commit(&batch).await.map_or_else(answer, |()| Answer::Done);
        assert_eq!(found, expected, "{batch:?}");
        if expected == Answer::Done {
            if seq > last {
                self.note_lent(&batch);
            }
            self.numbers[slot].1 = seq;
        }
    }

    /// Enters the body that entries of an applied batch share, if several do and one of them is a copy.
    fn note_lent(&mut self, batch: &Batch) {
        let (mut readers, mut is_copied) = (Vec::new(), false);
        for QueueChanges { queue, changes, .. } in &batch.queues {
            let alike = changes.appends.iter().filter(|new| new.body.as_ptr() == self.shared.as_ptr());
            for append in alike {
                is_copied |= changes.lender.is_some();
                readers.push((*queue, append.header.id));
            }
        }
        readers.retain(|reader| is_held(&self.naive, reader));
        let is_long = self.shared.len() >= small_bounds::within(limits::SHARED_BODY_BYTES);
        if is_copied && is_long && readers.len() > 1 {
            self.lent.push(LentBody { slot: batch.slot, bytes: self.shared.len() as u64, readers });
        }
    }

    fn changes(&mut self, queue: QueueId) -> QueueChanges {
        let held = self.naive.queue(queue);
        let oldest = held.entries.values().find(|entry| entry.header.state == State::Ready);
        let oldest = oldest.map(|entry| entry.header.id);
        let mut changes = QueueChanges::of(queue, MessageId::ZERO);
        if self.dice.random_ratio(1, 2) {
            changes.low = oldest.unwrap_or(MessageId::ZERO);
        }
        changes.changes.lender = self.dice.random_bool(0.5).then(|| lender(queue.slot()));
        for _ in 0..self.dice.random_range(0..4) {
            let message = self.new_message();
            self.used.push((queue, message.header.id));
            changes.changes.appends.push(message);
        }
        for _ in 0..self.dice.random_range(0..3) {
            let entry = self.pick(queue, &changes.changes.appends);
            let appended = changes.changes.appends.iter().find(|message| message.header.id == entry);
            let known = held.entries.get(&entry).or(appended);
            let header = known.map(|known| known.header.clone());
            let header = header.unwrap_or_else(|| message(1, "").header);
            let header = claimed_again(&Header { id: entry, ..header });
            changes.changes.updates.push(self.in_some_state(header));
        }
        for _ in 0..self.dice.random_range(0..4) {
            let gone = self.pick(queue, &changes.changes.appends);
            changes.changes.removes.push(gone);
        }
        for _ in 0..self.dice.random_range(0..2) {
            changes.changes.notes.push(self.note());
            let Note { kind, key, .. } = self.note();
            changes.changes.note_removes.push((kind, key));
        }
        changes
    }

    fn note(&mut self) -> Note {
        let key = ["", "a", "ab", "b"][self.dice.random_range(0..4)].into();
        let value = format!("{}", self.dice.random_range(0..100)).into();
        let expires = Timestamp::from_millis(self.dice.random_range(0..1_000));
        Note { kind: self.dice.random_range(1..3), key, value, expires }
    }

    /// Returns the header mostly ready, otherwise scheduled some seconds later, kept, or in transfer.
    fn in_some_state(&mut self, header: Header) -> Header {
        let (state, delay) = match self.dice.random_range(0..13) {
            0..5 => (State::Ready, 0),
            5..8 => (State::Scheduled, self.dice.random_range(0..40)),
            8..11 => {
                let state = [State::Done, State::Failed][self.dice.random_range(0..2)].clone();
                (state, self.dice.random_range(0..40))
            }
            11 => ([State::Prepared(peer()), State::Moving(peer())][self.dice.random_range(0..2)].clone(), 0),
            _ => (State::NoTarget, 0),
        };
        let ready = header.created.plus_seconds(delay);
        let in_order = Timestamp::from_millis(header.id.millis());
        let since = [0, 0, 30, 4_000].map(|seconds| header.created.plus_seconds(seconds));
        let life = match self.dice.random_range(0..6) {
            // A kept entry has a life of its own.
            0 | 1 if state.is_kept() => Life::lasting(20, ready),
            0 => Life::Retained { since: in_order },
            1 => Life::Retained { since: since[self.dice.random_range(0..4)] },
            _ => Life::lasting([20, 60, 3_600][self.dice.random_range(0..3)], ready),
        };
        Header { ready, life, state, extras: self.extras(header.id), ..header }
    }

    /// Returns mostly no extras, otherwise some or all.
    fn extras(&mut self, id: MessageId) -> Option<Box<Extras>> {
        let forgotten = (id.as_bytes()[7] % 100).into();
        let extras = match self.dice.random_range(0..6) {
            0 => Extras { forgotten, ..all_extras() },
            1 => Extras { keep: Some(Keep::stored(9)), ..Extras::default() },
            2 => Extras { by: Holder::cut("worker"), history: all_extras().history, ..Extras::default() },
            _ => return None,
        };
        Some(Box::new(extras))
    }

    async fn drop_queue(&mut self, store: &dyn PoolStore) {
        let queue = self.queues[self.dice.random_range(0..3)];
        let slot = usize::from(queue.slot() != SLOTS[0]);
        let epoch = epoch(self.numbers[slot].0);
        let limit = self.dice.random_range(1..10);
        let is_fenced = self.naive.is_fenced(SLOTS[slot]);
        loop {
            match store.drop_queue(SLOTS[slot], epoch, queue, limit).await {
                Ok(DropResult::More) => {}
                Ok(DropResult::Done) => return self.naive.drop_queue(queue),
                Err(refused) => {
                    assert!(!is_fenced, "{refused}");
                    return;
                }
            }
        }
    }

    /// Checks the due entries at some time: exact by the schedule; by expiry no others, and late only by the allowed
    /// time.
    async fn due(&mut self, store: &dyn PoolStore, step: u64) {
        let slot = SLOTS[self.dice.random_range(0..2)];
        let seconds = [0, 10, 20, 60, 100, 4_000][self.dice.random_range(0..6)];
        let before = message(FIRST_RANK, "").header.created.plus_seconds(seconds);
        let limit = [usize::MAX, self.dice.random_range(0..5)][self.dice.random_range(0..2)];
        let expected = self.naive.due(slot, Due::Schedule, before);
        let found = store.due(slot, Due::Schedule, before, limit).await.unwrap();
        assert_eq!(found, expected[..limit.min(expected.len())], "schedule at step {step}");
        let expected = self.naive.due(slot, Due::Expiry, before);
        let found = store.due(slot, Due::Expiry, before, limit).await.unwrap();
        assert!(found.len() <= limit);
        for (place, one) in found.iter().enumerate() {
            assert!(
                expected.contains(one) && !found[..place].contains(one),
                "expiry at step {step}: {one:?}"
            );
        }
        if found.len() < limit {
            let late = |header: &Header| {
                let late = 8.max(header.ttl(Retention::LONGEST) / 32);
                header.expires(Retention::LONGEST).plus_seconds(late) > before
            };
            let missed = expected.iter().find(|one| !found.contains(one) && !late(&one.1));
            assert_eq!(missed, None, "expiry at step {step}");
        }
        self.retained(store, before, limit, step).await;
    }

    /// Checks the entries that live by queue, from some base time on: no others, and late only by the allowed time.
    async fn retained(&mut self, store: &dyn PoolStore, before: Timestamp, limit: usize, step: u64) {
        let (queue, limit) = (self.queues[self.dice.random_range(0..3)], limit.max(1));
        let expected = self.naive.retained(queue, before);
        let RetainedEntries { found, oldest, resume } =
            store.retained(queue, None, before, limit).await.unwrap();
        assert_eq!(resume, None, "few entries at step {step}");
        assert!(found.len() <= limit);
        for (place, one) in found.iter().enumerate() {
            assert!(
                expected.contains(one) && !found[..place].contains(one),
                "by queue at step {step}: {one:?}"
            );
        }
        let since = |header: &Header| header.life.retained_since().unwrap();
        if found.len() < limit {
            let late = |header: &&Header| since(header).plus_seconds(8) > before;
            let missed = expected.iter().find(|one| !found.contains(one) && !late(one));
            assert_eq!(missed, None, "by queue at step {step}");
        }
        let all = self.naive.retained(queue, Timestamp::from_millis(u64::MAX));
        let first = all.iter().map(since).min();
        assert!(
            first.is_none_or(|first| oldest.is_some_and(|oldest| oldest <= first)),
            "oldest at step {step}"
        );
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
        let Message { header, body } = if self.dice.random_ratio(1, 3) {
            with_body(rank, self.shared.clone())
        } else {
            message(rank, &"m".repeat(length))
        };
        let group = ["a", "b", "ab", ""][self.dice.random_range(0..4)];
        let group = GroupName::new(group, "group").ok();
        Message { header: Header { group, ..self.in_some_state(header) }, body }
    }

    /// An id that exists, existed, is of another queue, is appended by the batch, or never existed.
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

    /// Checks that each queue counts the shared bodies of its entries, and the lender of a slot each of these once.
    async fn compare_shared(&mut self, store: &Arc<dyn PoolStore>, step: u64) {
        for body in &mut self.lent {
            body.readers.retain(|reader| is_held(&self.naive, reader));
        }
        self.lent.retain(|body| !body.readers.is_empty());
        for slot in SLOTS {
            let lent = self.lent.iter().filter(|body| body.slot == slot).map(|body| body.bytes).sum();
            let expected = Totals { lent, ..Totals::default() };
            assert_eq!(store.totals(lender(slot)).await.unwrap(), expected, "lender at step {step}");
        }
        for queue in &self.queues {
            let of_queue = |body: &LentBody| body.readers.iter().filter(|(of, _)| of == queue).count() as u64;
            let shared: u64 = self.lent.iter().map(|body| body.bytes * of_queue(body)).sum();
            let expected = Totals { shared, ..self.naive.queue(*queue).totals() };
            assert_eq!(store.totals(*queue).await.unwrap(), expected, "totals at step {step}");
        }
    }

    async fn compare(&mut self, store: &Arc<dyn PoolStore>, step: u64) {
        self.compare_shared(store, step).await;
        for queue in self.queues.clone() {
            let expected = self.naive.queue(queue);
            let asked: Vec<MessageId> = self.used.iter().map(|(_, id)| *id).rev().take(50).collect();
            assert_eq!(store.get(queue, &asked).await.unwrap(), expected.get(&asked), "get at step {step}");
            for kind in [1, 2] {
                let after = self.dice.random_bool(0.5).then(|| self.note().key);
                let limit = self.dice.random_range(0..4);
                let found = store.notes(queue, kind, after.clone(), limit).await.unwrap();
                assert_eq!(found, expected.notes(kind, after.as_ref(), limit), "notes at step {step}");
            }
            for group in ["a", "b", "ab"].map(|group| GroupName::new(group, "group").unwrap()) {
                let after = self.dice.random_ratio(1, 3).then(|| self.pick(queue, &[]));
                let messages = [usize::MAX, self.dice.random_range(0..8)][self.dice.random_range(0..2)];
                let bytes = [usize::MAX, self.dice.random_range(0..8_000)][self.dice.random_range(0..2)];
                let wanted = expected.group(&group, after, messages, bytes);
                let page = store.group(queue, &group, after, messages, bytes).await.unwrap();
                assert_page(&page, &wanted, bytes, &format!("{group} after {after:?} at step {step}"));
                let (after, limit) =
                    (Some(group).filter(|_| self.dice.random_bool(0.5)), self.dice.random_range(0..4));
                let wanted = expected.groups(after.as_ref(), limit);
                let heads = store.groups(queue, after.clone(), limit).await.unwrap();
                assert_eq!(heads, wanted, "groups after {after:?} at step {step}");
            }
            for (order, direction) in ORDERS {
                let after = self.dice.random_ratio(1, 3).then(|| self.pick(queue, &[]));
                let messages = [usize::MAX, self.dice.random_range(0..8)][self.dice.random_range(0..2)];
                let bytes = [usize::MAX, self.dice.random_range(0..8_000)][self.dice.random_range(0..2)];
                let position = |id| {
                    let entry: Option<&Message> = expected.entries.get(&id);
                    entry.map_or(Position::id(id), |entry| Position::of(&entry.header))
                };
                let after = after.map(position);
                let wanted = expected.scan(order, direction, after, messages, bytes);
                let page = store.scan(queue, order, direction, after, messages, bytes).await.unwrap();
                let what = format!("{order:?} {direction:?} after {after:?} at step {step}");
                assert_page(&page, &wanted, bytes, &what);
            }
        }
    }
}

fn is_held(naive: &NaivePool, (queue, id): &(QueueId, MessageId)) -> bool {
    naive.queues().get(queue).is_some_and(|queue| queue.entries.contains_key(id))
}

/// The queue whose copies the appends of a slot are. It has no entries, and is never dropped.
fn lender(slot: Slot) -> QueueId {
    QueueId::from_bytes([slot.0; 16])
}

fn answer(error: StoreError) -> Answer {
    match error {
        StoreError::Fenced(by) => Answer::Fenced(by),
        StoreError::Stale => Answer::Stale,
        StoreError::WentBack => Answer::WentBack,
        error @ (StoreError::Stamped(_)
        | StoreError::Unregistered
        | StoreError::Full
        | StoreError::NotSent(_)
        | StoreError::Damaged(_)
        | StoreError::Unknown(_)) => {
            panic!("{error}")
        }
    }
}

/// Bytes that the extras of one entry here take in any driver, beside their texts.
const EXTRAS_FORM: usize = 300;

/// A page is the expected one, or ends before it, because the extras of its entries count too.
fn assert_page(page: &Page, wanted: &Page, bytes: usize, what: &str) {
    if page.messages == wanted.messages {
        return assert_eq!(page.is_last, wanted.is_last, "{what}");
    }
    assert!(!page.messages.is_empty() && wanted.messages.starts_with(&page.messages), "{what}: {page:?}");
    let extras = |header: &Header| header.extras.as_ref().map_or(0, |extras| extras.bytes() + EXTRAS_FORM);
    let read: usize = page.messages.iter().map(|message| message.body.len() + extras(&message.header)).sum();
    assert!(read > bytes && !page.is_last, "{what}: {read} of {bytes} bytes");
}
