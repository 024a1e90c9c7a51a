//! Joins batches of many slots into one statement: batches that arrived while other statements ran. The caller decides
//! what it means that a batch was not applied.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit, oneshot};

use super::PostgresPool;
use super::errors::Failure;
use super::limits;
use crate::{Batch, StoreError};

/// The batches that wait for a statement.
pub(super) struct Committer {
    /// Held to add a batch or to take some.
    gathered: Mutex<GatheredBatches>,
    /// One permit for each concurrent statement. A task that gets one sends its own batch, and takes others along.
    permits: Semaphore,
}

impl Default for Committer {
    fn default() -> Self {
        Self { gathered: Mutex::default(), permits: Semaphore::new(limits::SHARED) }
    }
}

#[derive(Default)]
struct GatheredBatches {
    /// In the order of their arrival.
    waiting: VecDeque<PendingBatch>,
    /// Number of all batches so far.
    total: u64,
}

/// A batch that waits for a statement.
struct PendingBatch {
    /// The number of the batch, in order of arrival.
    number: u64,
    batch: Batch,
    fences: Option<i64>,
    /// Closed when the task that sent it does not wait any more.
    reply: oneshot::Sender<StatementOutcome>,
}

/// Outcome of a shared statement for one batch.
enum StatementOutcome {
    Applied,
    /// It was certainly not applied. This batch or another one is the reason.
    NotApplied,
    Unknown(String),
}

impl Committer {
    /// Whether a batch may share a statement: a large one gains nothing by it.
    pub(super) fn takes(batch: &Batch) -> bool {
        Size::of(batch).fits()
    }

    /// Adds a waiting batch. Returns its number, and the receiver of its outcome.
    fn add(&self, batch: Batch, fences: Option<i64>) -> (u64, oneshot::Receiver<StatementOutcome>) {
        let (reply, outcome) = oneshot::channel();
        let mut gathered = self.gathered.lock();
        gathered.total += 1;
        let number = gathered.total;
        gathered.waiting.push_back(PendingBatch { number, batch, fences, reply });
        (number, outcome)
    }

    /// Takes a batch and the oldest others that fit into one statement with it: one for each slot, in order of slots.
    /// Empty when another task has taken the batch.
    fn take(&self, number: u64) -> Vec<PendingBatch> {
        let mut gathered = self.gathered.lock();
        let Some(index) = gathered.waiting.iter().position(|waiting| waiting.number == number) else {
            return Vec::new();
        };
        let own = gathered.waiting.remove(index).expect("it was found there");
        let mut size = Size::of(&own.batch);
        let mut taken = vec![own];
        for next in std::mem::take(&mut gathered.waiting) {
            let with_next = size.plus(Size::of(&next.batch));
            let is_other = taken.iter().all(|other| other.batch.slot != next.batch.slot);
            if next.reply.is_closed() {
                // The task that stopped waiting may have sent the batch again.
                continue;
            } else if is_other && with_next.fits() {
                size = with_next;
                taken.push(next);
            } else {
                gathered.waiting.push_back(next);
            }
        }
        taken.sort_unstable_by_key(|waiting| waiting.batch.slot);
        taken
    }
}

/// Amount that a batch writes.
#[derive(Clone, Copy)]
struct Size {
    changes: usize,
    bytes: usize,
}

impl Size {
    fn of(batch: &Batch) -> Self {
        let (mut changes, mut bytes) = (0, 0);
        for queue in batch.queues.iter().map(|queue| &queue.changes) {
            changes += queue.appends.len() + queue.updates.len() + queue.removes.len();
            changes += queue.notes.len() + queue.note_removes.len();
            bytes += queue.bytes_in_all();
        }
        Self { changes, bytes }
    }

    fn plus(self, other: Self) -> Self {
        Self { changes: self.changes + other.changes, bytes: self.bytes + other.bytes }
    }

    /// Whether a shared statement may write this much.
    fn fits(self) -> bool {
        self.changes <= limits::SHARED_CHANGES && self.bytes <= limits::SHARED_BYTES
    }
}

/// Result of the attempt to share a statement.
pub(super) enum SharedResult<'a> {
    /// The statement has ended, and the outcome of the batch is known or in doubt.
    Answered(Result<(), StoreError>),
    /// No other batch waits: the caller sends the batch alone, with this permit.
    Alone(SemaphorePermit<'a>),
    /// The batch was certainly not applied, and the caller must find out whether it is the reason.
    NotApplied,
}

impl PostgresPool {
    /// Applies a batch together with others.
    pub(super) async fn share(&self, batch: &Batch, fences: Option<i64>) -> SharedResult<'_> {
        let (number, mut outcome) = self.committer.add(batch.clone(), fences);
        let outcome = loop {
            tokio::select! {
                biased;
                outcome = &mut outcome => break outcome,
                permit = self.committer.permits.acquire() => {
                    let permit = permit.expect("it is never closed");
                    let taken = self.committer.take(number);
                    match taken.len() {
                        0 => {
                            drop(permit);
                            break outcome.await;
                        }
                        1 => return SharedResult::Alone(permit),
                        _ => self.carry_out(taken).await,
                    }
                }
            }
        };
        match outcome {
            Ok(StatementOutcome::Applied) => SharedResult::Answered(Ok(())),
            Ok(StatementOutcome::NotApplied) => SharedResult::NotApplied,
            Ok(StatementOutcome::Unknown(why)) => SharedResult::Answered(Err(StoreError::Unknown(why))),
            // The task that sent it was stopped meanwhile.
            Err(_) => SharedResult::Answered(Err(StoreError::Unknown("the statement was given up".into()))),
        }
    }

    /// Sends batches, and reports the outcome of each.
    async fn carry_out(&self, taken: Vec<PendingBatch>) {
        let batches: Vec<_> = taken.iter().map(|waiting| (&waiting.batch, waiting.fences)).collect();
        let applied = match self.writes.session().await {
            Ok((session, stamp)) => self.send_all(&session, stamp, &batches).await,
            Err(error) => Err(Failure::Refused(error.to_string())),
        };
        for waiting in taken {
            let outcome = match &applied {
                Ok(applied) if applied.contains(&waiting.batch.slot) => StatementOutcome::Applied,
                Ok(_) | Err(Failure::Refused(_) | Failure::Full(_)) => StatementOutcome::NotApplied,
                Err(Failure::Lost(why)) => StatementOutcome::Unknown(why.clone()),
            };
            // The receiver may be gone; the outcome is the same.
            let _ = waiting.reply.send(outcome);
        }
    }
}
