//! Pending writes of a slot to a pool, and the slot writer that holds them.

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

use crate::limits;
use crate::stores::open_pool::NamedStore;
use crate::writer::change::Change;
use crate::writer::purpose::Purpose;
use crate::writer::send::Outcome;

pub(crate) type WriteOutcome = oneshot::Receiver<Result<(), Error>>;

/// Waits until a submitted change is settled.
pub(crate) async fn settled(outcome: WriteOutcome) -> Result<(), Error> {
    outcome
        .await
        .unwrap_or_else(|_| Err(Error::unknown(Part::Server, "a slot writer ended without an answer")))
}

/// The writer of one slot to one pool.
pub(crate) struct SlotWriter {
    /// Id of the pool, which stays when the pool gets another name.
    pub(crate) pool: Uuid,
    pub(crate) store: NamedStore,
    /// Number of the last batch that was applied.
    pub(crate) seq: u64,
    /// Bounded for posts by messages and bytes; for removals and releases by the messages that the engine hides.
    pub(crate) waiting: VecDeque<Write>,
    pub(crate) messages_waiting: usize,
    pub(crate) bytes_waiting: usize,
    pub(crate) is_running: bool,
    pub(crate) is_closed: bool,
    pub(crate) meter: CommitMeter,
}

/// A pending write: a change for the pool, and the waiter for its outcome.
pub(crate) struct Write {
    /// The name of the queue; none when the queue is not open.
    pub(crate) at: Option<QueueRef>,
    pub(crate) queue: QueueId,
    pub(crate) change: Change,
    pub(crate) durability: Durability,
    /// Amount that the ledger reserves for the messages until the write is settled.
    pub(crate) reserved: Amount,
    pub(crate) reply: oneshot::Sender<Result<(), Error>>,
    /// Keeps the queue from being deleted until the write is settled. None for a queue that is not open: then the gate
    /// of the pool does.
    pub(crate) _use: Option<TaskTrackerToken>,
    pub(crate) leg: Leg,
    /// Changes of the queues of subscriptions, which are in the same batch.
    pub(crate) copies: Vec<WriteCopy>,
}

/// The part of a write for the queue of a subscription.
pub(crate) struct WriteCopy {
    pub(crate) at: QueueRef,
    pub(crate) queue: QueueId,
    pub(crate) change: Change,
    /// Keeps the queue from being deleted until the write is settled.
    pub(crate) _use: TaskTrackerToken,
}

/// The part of a change that a pending write is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Leg {
    /// The whole change.
    Only,
    /// The part for the first of two pools: once it is done, the write is sent to this second one.
    First(PoolName),
    /// The part for the second of two pools: the first has the change.
    Second,
}

impl Write {
    /// Tells the waiter that the write was not sent.
    pub(crate) fn refuse(self) {
        let why = "the slot is being recovered";
        let error = match self.leg {
            Leg::Only | Leg::First(_) => Error::unavailable(Part::Storage, why),
            Leg::Second => Error::unknown(Part::Storage, why),
        };
        // The waiter may have left.
        let _ = self.reply.send(Err(error));
    }

    /// Number of changes that count for the bound of waiting messages. Removals of expired notes keep no post waiting.
    fn messages(&self) -> usize {
        let is_clean_up = matches!(self.change.purpose(), Purpose::ForgetDedup | Purpose::ForgetSettles);
        if is_clean_up { 0 } else { self.len() }
    }

    /// The changes of each queue.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (Option<&QueueRef>, QueueId, &Change)> {
        let copies = self.copies.iter().map(|copy| (Some(&copy.at), copy.queue, &copy.change));
        std::iter::once((self.at.as_ref(), self.queue, &self.change)).chain(copies)
    }

    /// Whether it brings messages or results: a pool without room refuses it.
    pub(crate) fn needs_room(&self) -> bool {
        self.parts().any(|(_, _, change)| change.needs_room())
    }

    /// Number of changes.
    pub(crate) fn len(&self) -> usize {
        self.parts().map(|(_, _, change)| change.changes().len()).sum()
    }

    /// Bytes of the changes.
    fn bytes(&self) -> usize {
        self.parts().map(|(_, _, change)| change.changes().bytes_in_all()).sum()
    }

    /// Returns the outcome of the whole change, of which the batch has a part.
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

    /// Whether the writer is for this pool.
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

    /// The most durable class of writes that the pool can reach.
    pub(crate) fn reach(&self) -> Durability {
        self.store.reach()
    }

    /// Checks whether new messages are accepted. Removals and releases always are, since they make room.
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        if self.is_closed {
            return Err(Error::unavailable(self.store.part(), "an earlier batch had no known outcome"));
        }
        if self.messages_waiting >= limits::WRITER_MESSAGES || self.bytes_waiting >= limits::WRITER_BYTES {
            return Err(Error::unavailable(self.store.part(), "too many messages wait for the pool"));
        }
        self.store.check_open().map_err(|error| self.store.failed(error))
    }

    /// Closes the writer. Returns the writes that were not sent.
    pub(crate) fn close(&mut self) -> Vec<Write> {
        self.is_closed = true;
        (self.messages_waiting, self.bytes_waiting) = (0, 0);
        self.waiting.drain(..).collect()
    }

    pub(crate) fn push(&mut self, write: Write) {
        self.messages_waiting += write.messages();
        self.bytes_waiting += write.bytes();
        self.waiting.push_back(write);
    }

    /// Takes the writes of the next batch, within its bounds. A single write may exceed them.
    pub(crate) fn next_writes(&mut self) -> Vec<Write> {
        let (mut writes, mut messages, mut bytes) = (Vec::new(), 0, 0);
        while let Some(write) = self.waiting.front() {
            messages += write.len();
            bytes += write.bytes();
            let is_full = messages > limits::BATCH_MESSAGES || bytes > limits::BATCH_BYTES;
            if is_full && !writes.is_empty() {
                break;
            }
            self.messages_waiting -= write.messages();
            self.bytes_waiting -= write.bytes();
            writes.extend(self.waiting.pop_front());
        }
        writes
    }
}
