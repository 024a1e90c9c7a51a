//! Writes that wait for a pool, and the slot writer that has them.

use std::collections::VecDeque;

use tokio::sync::oneshot;
use tokio_util::task::task_tracker::TaskTrackerToken;
use uuid::Uuid;

use angarium_core::durability::Durability;
use angarium_core::error::{Error, Part};
use angarium_core::ids::QueueId;
use angarium_core::names::{PoolName, QueueRef};
use angarium_core::quota::Amount;
use angarium_metrics::CommitMeter;
use angarium_storage::KnownEntry;

use crate::limits;
use crate::stores::open_pool::NamedStore;
use crate::writer::change::Change;
use crate::writer::send::Outcome;

pub(crate) type WriteOutcome = oneshot::Receiver<Result<(), Error>>;

/// Waits until a change on its way to the pool is settled.
pub(crate) async fn settled(outcome: WriteOutcome) -> Result<(), Error> {
    outcome
        .await
        .unwrap_or_else(|_| Err(Error::unknown(Part::Server, "a slot writer ended without an answer")))
}

/// The way of one slot to one pool.
pub(crate) struct SlotWriter {
    /// The pool that it leads to, whatever name that has.
    pub(crate) pool: Uuid,
    pub(crate) store: NamedStore,
    /// The number of the last batch that was applied.
    pub(crate) seq: u64,
    /// Posts in it are bounded by messages and bytes; removals and returns by what the engine hides.
    pub(crate) waiting: VecDeque<Write>,
    pub(crate) messages_waiting: usize,
    pub(crate) bytes_waiting: usize,
    pub(crate) is_running: bool,
    pub(crate) is_closed: bool,
    pub(crate) meter: CommitMeter,
}

/// A change on its way to the pool, and who waits for its outcome.
pub(crate) struct Write {
    /// The queue by its name; absent when it is not open.
    pub(crate) at: Option<QueueRef>,
    pub(crate) queue: QueueId,
    pub(crate) change: Change,
    /// What is known of the entries that it removes, where the queue is in this pool alone.
    pub(crate) leaving: Vec<KnownEntry>,
    pub(crate) durability: Durability,
    /// Room that is kept for its messages until it is settled.
    pub(crate) reserved: Amount,
    pub(crate) reply: oneshot::Sender<Result<(), Error>>,
    /// Until it is settled the queue is not deleted. Of one that is not open, the slot's gate sees to that.
    pub(crate) _use: Option<TaskTrackerToken>,
    pub(crate) leg: Leg,
}

/// Which part of a change a write is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Leg {
    /// All of it.
    Only,
    /// When it is done the same moves to this pool.
    First(PoolName),
    /// The other pool has it already.
    Second,
}

impl Write {
    /// Tells who waits that it was never sent.
    pub(crate) fn refuse(self) {
        let why = "the slot is being recovered";
        let error = match self.leg {
            Leg::Only | Leg::First(_) => Error::unavailable(Part::Storage, why),
            Leg::Second => Error::unknown(Part::Storage, why),
        };
        // No replica may be waiting any more.
        let _ = self.reply.send(Err(error));
    }
}

impl Write {
    /// What became of the whole change, of which the batch is a part.
    pub(crate) fn outcome(&self, batch: Outcome) -> Outcome {
        match (&self.leg, batch) {
            (Leg::Second, Outcome::NotDone | Outcome::Full | Outcome::Damaged) => Outcome::Unknown,
            (Leg::Only | Leg::First(_) | Leg::Second, outcome) => outcome,
        }
    }
}

impl SlotWriter {
    pub(crate) fn new(pool: Uuid, store: NamedStore, meter: CommitMeter) -> Self {
        Self {
            pool,
            store,
            seq: 0,
            waiting: VecDeque::new(),
            messages_waiting: 0,
            bytes_waiting: 0,
            is_running: false,
            is_closed: false,
            meter,
        }
    }

    /// Whether it leads to this pool.
    pub(crate) fn leads_to(&self, pool: Uuid) -> bool {
        self.pool == pool
    }

    /// Continues over another handle of the same storage.
    pub(crate) fn switch_store(&mut self, store: NamedStore) {
        self.store = store;
    }

    pub(crate) fn store(&self) -> NamedStore {
        self.store.clone()
    }

    /// The most durable class of writes that its pool can reach.
    pub(crate) fn reach(&self) -> Durability {
        self.store.reach()
    }

    /// Whether new messages are accepted. Removals and returns always are: they free what is held.
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        if self.is_closed {
            return Err(Error::unavailable(self.store.part(), "an earlier batch had no known outcome"));
        }
        if self.messages_waiting >= limits::WRITER_MESSAGES || self.bytes_waiting >= limits::WRITER_BYTES {
            return Err(Error::unavailable(self.store.part(), "too many messages wait for the pool"));
        }
        self.store.check_open().map_err(|error| self.store.failed(error))
    }

    /// Accepts nothing any more, and gives back what was not sent.
    pub(crate) fn close(&mut self) -> Vec<Write> {
        self.is_closed = true;
        (self.messages_waiting, self.bytes_waiting) = (0, 0);
        self.waiting.drain(..).collect()
    }

    pub(crate) fn push(&mut self, write: Write) {
        self.messages_waiting += write.change.len();
        self.bytes_waiting += write.change.bytes();
        self.waiting.push_back(write);
    }

    pub(crate) fn next_writes(&mut self) -> Vec<Write> {
        let (mut writes, mut messages, mut bytes) = (Vec::new(), 0, 0);
        while let Some(write) = self.waiting.front() {
            messages += write.change.len();
            bytes += write.change.bytes();
            let is_full = messages > limits::BATCH_MESSAGES || bytes > limits::BATCH_BYTES;
            if is_full && !writes.is_empty() {
                break;
            }
            self.messages_waiting -= write.change.len();
            self.bytes_waiting -= write.change.bytes();
            writes.extend(self.waiting.pop_front());
        }
        writes
    }
}
