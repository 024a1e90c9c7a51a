//! Transfers and migrations that an earlier owner has begun (P5, P6): those of queues that no caller opens, of redrive
//! tasks, and into a deleted queue. Likewise suspended subscriptions that have not caught up with their sources.
//!
//! After the recovery of a slot each of its queues is checked once, with three reads of its pool, and one more for a
//! subscription. A queue with entries in transfer, under migration, or that is behind is opened, and its mover, copy phase
//! or fill continues. This happens in the background, a few queues at a time.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use angarium_catalogue::QueueRecord;
use angarium_core::error::{Error, Part};
use angarium_core::ids::Slot as SlotNumber;
use angarium_core::maps::{HashMap, HashSet};
use angarium_core::names::PoolName;
use angarium_storage::Epoch;

use crate::limits;
use crate::redrive::Redrive;
use crate::slot::slot_queue::SlotQueue;
use crate::slot::state::Slot;

/// A pool that did not answer a search.
#[derive(Clone)]
struct SilentPool {
    name: PoolName,
    /// Whether its last health check was good nevertheless.
    was_up: bool,
}

/// State of a slot whose queues could not all be checked.
struct SkippedQueues {
    epoch: Epoch,
    /// The pools that did not answer.
    silent: Vec<SilentPool>,
    /// When the slot is checked again though none of those pools has recovered, and the pause before that.
    at: Instant,
    pause: Duration,
}

impl Redrive {
    /// Checks the queues of each slot once after the recovery of the slot. A slot with queues in a pool that did not
    /// answer is checked again when that pool answers; until then no record is read for it.
    pub(crate) async fn resume_transfers(&self) {
        let mut missed: HashMap<SlotNumber, SkippedQueues> = HashMap::default();
        while self.0.replica.sleep_tick(limits::UNFINISHED_TICK).await {
            // A pool that did not answer is asked once per round, not once per slot.
            let mut down = HashSet::default();
            for slot in self.0.slots.owned() {
                let number = slot.owned.slot;
                let before = missed.remove(&number).filter(|missed| missed.epoch == slot.epoch);
                if slot.is_searched() {
                    continue;
                }
                if let Some(before) = before.as_ref().filter(|before| !self.may_find_more(before)) {
                    let SkippedQueues { epoch, ref silent, at, pause } = *before;
                    missed.insert(number, SkippedQueues { epoch, silent: silent.clone(), at, pause });
                    continue;
                }
                let mut silent = HashSet::default();
                if let Err(error) = self.search(&slot, &mut silent, &mut down).await {
                    self.0.replica.task_failed(
                        "find unfinished moves",
                        format_args!("slot {}", number.0),
                        &error,
                    );
                    let pause = before.map_or(limits::UNFINISHED_PAUSES.0, |before| before.pause * 2);
                    let pause = pause.min(limits::UNFINISHED_PAUSES.1);
                    let silent = silent
                        .into_iter()
                        .map(|name| SilentPool { was_up: self.is_pool_up(&name), name })
                        .collect();
                    let again =
                        SkippedQueues { epoch: slot.epoch, silent, at: Instant::now() + pause, pause };
                    missed.insert(number, again);
                }
            }
        }
    }

    /// Whether a new check may reach a pool that did not answer.
    fn may_find_more(&self, missed: &SkippedQueues) -> bool {
        let mut up = missed.silent.iter().filter(|pool| self.is_pool_up(&pool.name)).peekable();
        let is_any_up = up.peek().is_some() || missed.silent.is_empty();
        up.any(|pool| !pool.was_up) || (is_any_up && missed.at <= Instant::now())
    }

    fn is_pool_up(&self, name: &PoolName) -> bool {
        self.0.stores.get(name).is_none_or(|pool| pool.is_up())
    }

    /// Opens the queues of a slot that have entries in transfer, are under migration or are behind, and continues their
    /// tasks. A pool that cannot be asked, or that is in `down`, delays only its own queues, and is put into `silent`.
    pub(crate) async fn search(
        &self,
        slot: &Arc<Slot>,
        silent: &mut HashSet<PoolName>,
        down: &mut HashSet<PoolName>,
    ) -> Result<(), Error> {
        let (redrive, of_tasks) = (self.clone(), Arc::clone(slot));
        let tasks = self.0.replica.tasks.spawn(async move { redrive.resume_tasks(&of_tasks).await });
        let mut outcome = Ok(());
        for project in self.0.replica.catalogue.slot_projects(slot.owned.slot).await? {
            let queues = self.0.replica.catalogue.project_queues(slot.owned.slot, &project).await?;
            for some in queues.chunks(limits::UNFINISHED_QUEUES) {
                let records = self.0.replica.catalogue.queue_records(some).await?;
                for (at, record) in some.iter().zip(records) {
                    let Some(record) = record else { continue };
                    let placement = record.placement()?;
                    if placement.pools().any(|pool| silent.contains(pool)) {
                        continue;
                    }
                    if let Err(error) = self.open_in_time(&slot.queue(at), record, down).await {
                        // The damage concerns this queue only, and another attempt would find it again.
                        if error.is_damaged() {
                            continue;
                        }
                        if let Error::Unavailable { part: Part::Pool(pool), .. } = &error {
                            silent.insert(pool.clone());
                        } else {
                            silent.extend(placement.pools().cloned());
                        }
                        outcome = Err(error);
                    }
                }
                if !self.0.replica.sleep_tick(limits::UNFINISHED_STEP).await || slot.closed.is_cancelled() {
                    return Ok(());
                }
            }
        }
        // The tasks may wait for a pool that is down already.
        let max_wait = if down.is_empty() { limits::UNFINISHED_WAIT } else { limits::UNFINISHED_STEP };
        let resumed = timeout(max_wait, tasks).await;
        let waits = || Error::unavailable(Part::Storage, "tasks that move messages wait for their pools");
        resumed.map_or_else(|_| Err(waits()), |resumed| resumed.unwrap_or_else(|_| Err(no_outcome())))?;
        outcome.inspect(|()| slot.note_searched())
    }

    /// As `open_if_unfinished`, in a task of its own. If it takes longer than [`limits::UNFINISHED_WAIT`] it continues,
    /// and its pools are put into `down`. Pools in `down` are not asked.
    async fn open_in_time(
        &self,
        queue: &SlotQueue,
        record: QueueRecord,
        down: &mut HashSet<PoolName>,
    ) -> Result<(), Error> {
        let placement = record.placement()?;
        if let Some(pool) = placement.pools().find(|pool| down.contains(*pool)) {
            return Err(no_answer(pool));
        }
        let (redrive, queue) = (self.clone(), queue.clone());
        let opening = async move { redrive.open_if_unfinished(&queue, &record).await };
        let Ok(opened) = timeout(limits::UNFINISHED_WAIT, self.0.replica.tasks.spawn(opening)).await else {
            down.extend(placement.pools().cloned());
            return Err(no_answer(&placement.pool));
        };
        let opened = opened.unwrap_or_else(|_| Err(no_outcome()));
        if let Err(Error::Unavailable { part: Part::Pool(pool), .. }) = &opened {
            down.insert(pool.clone());
        }
        opened
    }

    async fn open_if_unfinished(&self, queue: &SlotQueue, record: &QueueRecord) -> Result<(), Error> {
        // A migration continues, and finishes an interrupted copy. So does the catch-up of a subscription.
        if record.placement()?.older.is_some()
            || !self.0.transfers.stores_in_transfer(queue, record).await?.is_empty()
            || self.0.open_queues.is_behind(queue.at(), record).await?
        {
            return self.0.open_queues.open_if_there(queue).await.map(|_| ());
        }
        self.0.open_queues.note_closed(&queue.with_id(record.id)).await
    }
}

fn no_answer(pool: &PoolName) -> Error {
    Error::unavailable(Part::Pool(pool.clone()), "it does not answer")
}

fn no_outcome() -> Error {
    Error::unknown(Part::Server, "a task ended without an answer")
}
