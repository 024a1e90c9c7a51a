//! Batches of many slots in one statement: those that gathered while others were under way. What it means for a batch
//! that it was not applied is not decided here.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit, oneshot};

use super::PostgresPool;
use super::errors::Failure;
use super::limits;
use crate::{Batch, StoreError};

/// Where batches gather.
pub(super) struct Committer {
    /// Held to add a batch or to take some.
    gathered: Mutex<GatheredBatches>,
    /// One for each statement that may be under way. Any process that gets one sends his own batch and takes others
    /// along.
    turns: Semaphore,
}

impl Default for Committer {
    fn default() -> Self {
        Self { gathered: Mutex::default(), turns: Semaphore::new(limits::SHARED) }
    }
}

#[derive(Default)]
struct GatheredBatches {
    /// In the order in which they came.
    waiting: VecDeque<PendingBatch>,
    /// How many ever came.
    came: u64,
}

/// A batch that waits for a statement.
struct PendingBatch {
    /// The how many-th it is.
    number: u64,
    batch: Batch,
    fences: Option<i64>,
    /// Closed when no process waits any more.
    reply: oneshot::Sender<StatementOutcome>,
}

/// What a shared statement did of a batch.
enum StatementOutcome {
    Applied,
    /// It is not, for certain. It may be to blame, or another one.
    NotApplied,
    Unknown(String),
}

impl Committer {
    /// Whether a batch may share a statement: a large one gains nothing by it.
    pub(super) fn takes(batch: &Batch) -> bool {
        Size::of(batch).fits()
    }

    /// Lets a batch wait. Returns its number, and where its outcome is told.
    fn add(&self, batch: Batch, fences: Option<i64>) -> (u64, oneshot::Receiver<StatementOutcome>) {
        let (reply, outcome) = oneshot::channel();
        let mut gathered = self.gathered.lock();
        gathered.came += 1;
        let number = gathered.came;
        gathered.waiting.push_back(PendingBatch { number, batch, fences, reply });
        (number, outcome)
    }

    /// A batch and the oldest others that go into one statement with it: each slot once, in order. None when another
    /// process took it along.
    fn take(&self, number: u64) -> Vec<PendingBatch> {
        let mut gathered = self.gathered.lock();
        let Some(place) = gathered.waiting.iter().position(|waiting| waiting.number == number) else {
            return Vec::new();
        };
        let own = gathered.waiting.remove(place).expect("it was found there");
        let mut size = Size::of(&own.batch);
        let mut taken = vec![own];
        for next in std::mem::take(&mut gathered.waiting) {
            let with_next = size.plus(Size::of(&next.batch));
            let is_other = taken.iter().all(|other| other.batch.slot != next.batch.slot);
            if next.reply.is_closed() {
                // Any process that gave up waiting may have sent it again.
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

/// How much a batch writes.
#[derive(Clone, Copy)]
struct Size {
    changes: usize,
    bytes: usize,
}

impl Size {
    fn of(batch: &Batch) -> Self {
        let (mut changes, mut bytes) = (0, 0);
        for queue in &batch.queues {
            changes += queue.appends.len() + queue.updates.len() + queue.removes.len();
            changes += queue.notes.len() + queue.note_removes.len();
            bytes += queue.appends.iter().map(|message| message.body.len()).sum::<usize>();
        }
        Self { changes, bytes }
    }

    fn plus(self, other: Self) -> Self {
        Self { changes: self.changes + other.changes, bytes: self.bytes + other.bytes }
    }

    /// Whether a shared statement may write so much.
    fn fits(self) -> bool {
        self.changes <= limits::SHARED_CHANGES && self.bytes <= limits::SHARED_BYTES
    }
}

/// What sharing came to.
pub(super) enum SharedResult<'a> {
    /// The outcome is known, or is known to be unknown.
    Answered(Result<(), StoreError>),
    /// There was no process to share with: the batch leaves alone, in this turn.
    Alone(SemaphorePermit<'a>),
    /// Nothing of it was applied, for certain, and whether it was to blame is to be found out.
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
                turn = self.committer.turns.acquire() => {
                    let turn = turn.expect("it is never closed");
                    let taken = self.committer.take(number);
                    match taken.len() {
                        0 => {
                            drop(turn);
                            break outcome.await;
                        }
                        1 => return SharedResult::Alone(turn),
                        _ => self.carry_out(taken).await,
                    }
                }
            }
        };
        match outcome {
            Ok(StatementOutcome::Applied) => SharedResult::Answered(Ok(())),
            Ok(StatementOutcome::NotApplied) => SharedResult::NotApplied,
            Ok(StatementOutcome::Unknown(why)) => SharedResult::Answered(Err(StoreError::Unknown(why))),
            // Any process that sent it was stopped while it was under way.
            Err(_) => SharedResult::Answered(Err(StoreError::Unknown("the statement was given up".into()))),
        }
    }

    /// Sends batches, and tells each what became of it.
    async fn carry_out(&self, taken: Vec<PendingBatch>) {
        let batches: Vec<_> = taken.iter().map(|waiting| (&waiting.batch, waiting.fences)).collect();
        let applied = match self.writes.way().await {
            Ok((way, stamp)) => self.send_all(&way, stamp, &batches).await,
            Err(error) => Err(Failure::Refused(error.to_string())),
        };
        for waiting in taken {
            let outcome = match &applied {
                Ok(applied) if applied.contains(&waiting.batch.slot) => StatementOutcome::Applied,
                Ok(_) | Err(Failure::Refused(_) | Failure::Full(_)) => StatementOutcome::NotApplied,
                Err(Failure::Lost(why)) => StatementOutcome::Unknown(why.clone()),
            };
            // No process may be waiting any more; the outcome is the same.
            let _ = waiting.reply.send(outcome);
        }
    }
}
