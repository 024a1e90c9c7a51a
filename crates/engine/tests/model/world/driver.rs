//! A real pool beside the naive one: both get the same batches, and must have the same entries.

use std::cell::Cell;
use std::rc::Rc;

use angarium_clock::Clock;
use angarium_core::durability::Durability;
use angarium_journal::Journal;
use angarium_storage::embedded::EmbeddedPool;
use angarium_storage::{Batch, Epoch, Order, PoolReads, PoolWrites};
use rand::RngCore as _;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use super::*;

/// Sizes of bodies that a pool writes fast.
const SMALL: [usize; 3] = [2, 70, 400];
const EPOCH: Epoch = Epoch { generation: 1, transaction: 1 };

/// The embedded pool, one for all histories of a test. Each history has its own queue in it.
#[derive(Clone)]
pub struct Driver(Rc<Pool>);

struct Pool {
    runtime: Runtime,
    store: EmbeddedPool,
    /// The number of the last batch.
    seq: Cell<u64>,
    /// Seed of the next queue id.
    queues: Cell<u64>,
    _data: TempDir,
}

impl Driver {
    pub fn open() -> Self {
        let data = tempfile::tempdir().expect("a directory for the test");
        let runtime = Builder::new_current_thread().build().expect("a runtime");
        let journal =
            Journal::open(&data.path().join("journal"), &Clock::manual(0)).expect("the journal opens");
        let store = EmbeddedPool::new(journal);
        runtime.block_on(store.fence(Slot(0), EPOCH)).expect("the slot is fenced");
        Self(Rc::new(Pool {
            runtime,
            store,
            seq: Cell::new(0),
            queues: Cell::new(rand::rng().next_u64()),
            _data: data,
        }))
    }

    pub(super) fn apply(&self, changes: &QueueChanges, expected: &NaiveQueue) {
        let Pool { runtime, store, seq, .. } = &*self.0;
        seq.set(seq.get() + 1);
        let queues = vec![changes.clone()];
        let durability = Durability::Relaxed;
        let batch = Batch { slot: Slot(0), epoch: EPOCH, seq: seq.get(), durability, queues };
        runtime.block_on(store.commit(&batch)).expect("the batch is applied");
        let most = usize::MAX;
        for order in [Order::Ready, Order::Aside, Order::Schedule, Order::Kept] {
            let page = runtime.block_on(store.scan(changes.queue, order, Direction::Up, None, most, most));
            let expected = expected.scan(order, Direction::Up, None, most, most);
            assert_eq!(page.expect("it is read").messages, expected.messages, "what the pool has, {order:?}");
        }
        let notes = runtime.block_on(store.notes(changes.queue, dedup::KIND, None, most));
        assert_eq!(
            notes.expect("they are read"),
            expected.notes(dedup::KIND, None, most),
            "notes of the pool"
        );
        let totals = runtime.block_on(store.totals(changes.queue));
        assert_eq!(totals.expect("they are read"), expected.totals(), "totals of the pool");
    }
}

impl World {
    /// A world whose queue is also in a real pool.
    pub fn over(driver: &Driver) -> Self {
        let queues = &driver.0.queues;
        queues.set(queues.get().wrapping_add(1));
        let queue = QueueId::new(Slot(0), &mut SmallRng::seed_from_u64(queues.get()));
        Self { driver: Some(driver.clone()), queue, ..Self::new() }
    }

    /// A body of this size class.
    pub(super) fn body(&self, size: u8) -> Bytes {
        let sizes = if self.driver.is_some() { SMALL } else { SIZES };
        Bytes::from_static(&BODY[..sizes[usize::from(size)]])
    }
}
