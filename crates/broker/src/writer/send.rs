//! Sending of one batch to its pool until the outcome is known. The effect on callers is decided elsewhere.

use std::time::Duration;

use tracing::debug;

use angarium_core::mutation::{Mutation, is_on};
use angarium_core::names::PoolName;
use angarium_storage::{Batch, PoolStore, StoreError};

use crate::replica::task_failures::TaskFailures;

/// Max attempts for a batch, and the first pause between two attempts; each pause is twice the previous one.
const TRIES: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// Outcome of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    NotDone,
    /// Not done because the pool is full; without its posts the batch may be sent under the same number.
    Full,
    /// Not done because stored data of one of its queues is damaged. The rest may be sent under the same number.
    Damaged,
    Unknown,
}

/// Sends a batch until its outcome is known, or until the attempts are used up.
pub(crate) async fn send(
    store: &dyn PoolStore,
    batch: &Batch,
    pool: &PoolName,
    failures: &TaskFailures,
) -> Outcome {
    let mut may_be_done = false;
    let mut pause = FIRST_PAUSE;
    for attempt in 1..=TRIES {
        let renumbered = is_on(Mutation::RenumberRepeat)
            .then(|| Batch { seq: batch.seq + u64::from(attempt - 1), ..batch.clone() });
        let failure = match store.commit(renumbered.as_ref().unwrap_or(batch)).await {
            Ok(()) => return Outcome::Done,
            Err(failure) => failure,
        };
        may_be_done |= !failure.nothing_written();
        match failure {
            StoreError::Unknown(_) if is_on(Mutation::FailBatchInDoubt) => return Outcome::NotDone,
            StoreError::Unknown(_) if is_on(Mutation::AcknowledgeBatchInDoubt) => return Outcome::Done,
            StoreError::WentBack if is_on(Mutation::IgnoreWentBack) => return Outcome::NotDone,
            StoreError::Fenced(_) if is_on(Mutation::FailBatchAfterFence) => return Outcome::NotDone,
            StoreError::Stamped(_) | StoreError::Fenced(_) | StoreError::Stale | StoreError::WentBack => {
                failures.note("write batches", format_args!("slot {} pool {pool}", batch.slot.0), &failure);
                return Outcome::Unknown;
            }
            // If an earlier attempt may have been applied, the next one finds out.
            StoreError::Full if !may_be_done || is_on(Mutation::RefuseDoubtAsFull) => return Outcome::Full,
            StoreError::Damaged(_) if !may_be_done => return Outcome::Damaged,
            StoreError::Full
            | StoreError::Damaged(_)
            | StoreError::Unregistered
            | StoreError::NotSent(_)
            | StoreError::Unknown(_) => {
                debug!(%pool, slot = batch.slot.0, attempt, error = %failure, "batch failed");
            }
        }
        if attempt < TRIES {
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
    }
    if may_be_done { Outcome::Unknown } else { Outcome::NotDone }
}
