//! Group commit to the pools: one lane per slot and pool, with one batch under way at a time.
//!
//! All that gathers while a batch is under way goes into the next one; an idle lane sends at once. Batches are
//! numbered, so one whose outcome is unknown is repeated under its number until it is known (P1). If it stays
//! unknown the lane is closed and its slot is taken anew, which finds out what was written.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tracing::{error, warn};
use uuid::Uuid;

use super::slot::{Slot, SlotState};
use super::{Broker, storage_failed};
use crate::domain::durability::Durability;
use crate::domain::ids::{MessageId, QueueId};
use crate::domain::limits;
use crate::domain::message::{Header, Message};
use crate::domain::names::{PoolName, QueueRef};
use crate::error::{Error, Part};
use crate::storage::{Batch, PoolStore, QueueChanges, StoreError};

/// How often a batch is tried, and how long the first pause between two tries is; each is twice the one before.
const TRIES: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// The way of one slot to one pool.
pub(super) struct Lane {
    /// The pool that it leads to, whatever name that has.
    pool: Uuid,
    store: Arc<dyn PoolStore>,
    /// The number of the last batch that was applied.
    seq: u64,
    /// Posts in it are bounded by messages and bytes; removals and returns by what the engine hides.
    waiting: VecDeque<Work>,
    messages_waiting: usize,
    bytes_waiting: usize,
    is_running: bool,
    is_closed: bool,
}

/// A change of one queue's entries.
#[derive(Clone, Debug)]
pub(super) enum Change {
    /// New messages.
    Post(Vec<Message>),
    /// Messages whose claim ended, with their headers as they now are.
    Return(Vec<Header>),
    /// Messages that go.
    Remove(Vec<MessageId>),
}

impl Change {
    fn len(&self) -> usize {
        match self {
            Self::Post(messages) => messages.len(),
            Self::Return(headers) => headers.len(),
            Self::Remove(ids) => ids.len(),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Post(messages) => messages.iter().map(|message| message.body.len()).sum(),
            Self::Return(_) | Self::Remove(_) => 0,
        }
    }
}

/// A change on its way to the pool, and who waits for its outcome.
pub(super) struct Work {
    at: QueueRef,
    queue: QueueId,
    change: Change,
    reply: oneshot::Sender<Result<(), Error>>,
    /// Until it is settled the queue is not deleted.
    _use: TaskTrackerToken,
}

impl Work {
    /// Tells who waits that it was never sent.
    pub(super) fn refuse(self) {
        // Nobody may be waiting any more.
        let _ = self.reply.send(Err(Error::unavailable(Part::Storage, "the slot is taken anew")));
    }
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Done,
    NotDone,
    /// Not done for want of room; without its posts it may be sent under the same number.
    Full,
    Unknown,
}

impl Lane {
    pub(super) fn new(pool: Uuid, store: Arc<dyn PoolStore>) -> Self {
        Self {
            pool,
            store,
            seq: 0,
            waiting: VecDeque::new(),
            messages_waiting: 0,
            bytes_waiting: 0,
            is_running: false,
            is_closed: false,
        }
    }

    /// Whether it leads to this pool.
    pub(super) fn leads_to(&self, pool: Uuid) -> bool {
        self.pool == pool
    }

    /// Goes on over another handle of the same storage.
    pub(super) fn reach_over(&mut self, store: Arc<dyn PoolStore>) {
        self.store = store;
    }

    pub(super) fn store(&self) -> Arc<dyn PoolStore> {
        Arc::clone(&self.store)
    }

    /// Whether new messages are accepted. Removals and returns always are: they free what is held.
    pub(super) fn check_open(&self) -> Result<(), Error> {
        if self.is_closed {
            return Err(Error::unavailable(Part::Storage, "an earlier batch had no known outcome"));
        }
        if self.messages_waiting >= limits::LANE_MESSAGES || self.bytes_waiting >= limits::LANE_BYTES {
            return Err(Error::unavailable(Part::Storage, "too many messages wait for the pool"));
        }
        self.store.check_open().map_err(storage_failed)
    }

    /// Accepts nothing any more, and gives back what was not sent.
    pub(super) fn close(&mut self) -> Vec<Work> {
        self.is_closed = true;
        (self.messages_waiting, self.bytes_waiting) = (0, 0);
        self.waiting.drain(..).collect()
    }

    fn next_works(&mut self) -> Vec<Work> {
        let (mut works, mut messages, mut bytes) = (Vec::new(), 0, 0);
        while let Some(work) = self.waiting.front() {
            messages += work.change.len();
            bytes += work.change.bytes();
            let is_full = messages > limits::BATCH_MESSAGES || bytes > limits::BATCH_BYTES;
            if is_full && !works.is_empty() {
                break;
            }
            self.messages_waiting -= work.change.len();
            self.bytes_waiting -= work.change.bytes();
            works.extend(self.waiting.pop_front());
        }
        works
    }
}

impl SlotState {
    /// The lane's next batch; none when nothing waits, and then the lane stands still.
    fn next_batch(&mut self, slot: &Slot, pool: &PoolName) -> Option<(Batch, Vec<Work>)> {
        let lane = self.lanes.get_mut(pool)?;
        let works = lane.next_works();
        if works.is_empty() {
            lane.is_running = false;
            return None;
        }
        let batch = self.batch(slot, pool, &works)?;
        Some((batch, works))
    }

    /// The lane's next batch, of these works.
    fn batch(&self, slot: &Slot, pool: &PoolName, works: &[Work]) -> Option<Batch> {
        let seq = self.lanes.get(pool)?.seq + 1;
        let mut places: HashMap<QueueId, usize> = HashMap::new();
        let mut queues: Vec<QueueChanges> = Vec::new();
        for work in works {
            let place = *places.entry(work.queue).or_insert_with(|| {
                let low = self.queues.get(&work.at).map_or(MessageId::ZERO, |queue| queue.engine.low());
                queues.push(QueueChanges::of(work.queue, low));
                queues.len() - 1
            });
            match &work.change {
                Change::Post(messages) => queues[place].appends.extend_from_slice(messages),
                Change::Return(headers) => queues[place].updates.extend_from_slice(headers),
                Change::Remove(ids) => queues[place].removes.extend_from_slice(ids),
            }
        }
        let durability = Durability::Sync;
        Some(Batch { slot: slot.owned.slot, epoch: slot.epoch, seq, durability, queues })
    }

    /// Shows a batch's outcome to the engines, then to those who wait.
    fn settle(&mut self, pool: &PoolName, works: Vec<Work>, outcome: Outcome) {
        if let Some(lane) = self.lanes.get_mut(pool) {
            lane.seq += u64::from(outcome == Outcome::Done);
            lane.is_closed |= outcome == Outcome::Unknown;
        }
        for Work { at, queue, change, reply, _use } in works {
            if let Some(open) = self.queue_mut(&at, queue) {
                match (change, outcome) {
                    (Change::Post(messages), Outcome::Done) => open.engine.posted(messages),
                    (Change::Remove(ids), Outcome::Done) => {
                        let over = open.engine.removed(&ids);
                        self.spend(over);
                    }
                    (Change::Remove(ids), Outcome::NotDone | Outcome::Full) => {
                        open.engine.remove_failed(&ids)
                    }
                    // Whoever returns messages goes on when he has the outcome. What is unknown stays hidden.
                    (Change::Post(_) | Change::Return(_), _) | (Change::Remove(_), Outcome::Unknown) => {}
                }
            }
            // Nobody may be waiting any more; the outcome is the same.
            let _ = reply.send(match outcome {
                Outcome::Done => Ok(()),
                Outcome::NotDone => Err(Error::unavailable(Part::Storage, "the batch was not written")),
                Outcome::Full => Err(Error::Full),
                Outcome::Unknown => Err(Error::unknown(Part::Storage, "the batch has no known outcome")),
            });
        }
    }
}

impl Broker {
    /// Puts a change on its way to the pool of its queue, which must be open in `state`. The receiver hears
    /// when the outcome is known and the engine has been told.
    pub(super) fn submit(
        &self,
        slot: &Arc<Slot>,
        state: &mut SlotState,
        at: &QueueRef,
        change: Change,
    ) -> Result<oneshot::Receiver<Result<(), Error>>, Error> {
        let gone = || Error::unavailable(Part::Server, "the queue is not open");
        let open = state.queues.get(at).ok_or_else(gone)?;
        let lane = state.lanes.get_mut(&open.pool).ok_or_else(gone)?;
        if slot.closed.is_cancelled() {
            return Err(Error::unavailable(Part::Storage, "the slot is taken anew"));
        }
        let (reply, outcome) = oneshot::channel();
        lane.messages_waiting += change.len();
        lane.bytes_waiting += change.bytes();
        let work = Work { at: at.clone(), queue: open.id, change, reply, _use: open.uses.token() };
        lane.waiting.push_back(work);
        if !std::mem::replace(&mut lane.is_running, true) {
            let (broker, slot, pool) = (self.clone(), Arc::clone(slot), open.pool.clone());
            self.0.tasks.spawn(async move { broker.run_lane(&slot, &pool).await });
        }
        Ok(outcome)
    }

    /// Sends batches until nothing waits.
    async fn run_lane(&self, slot: &Slot, pool: &PoolName) {
        loop {
            let (next, store, is_closed) = {
                let mut state = slot.state.lock();
                let next = state.next_batch(slot, pool);
                let Some(lane) = state.lanes.get(pool) else { return };
                (next, lane.store(), lane.is_closed)
            };
            let Some((batch, works)) = next else { return };
            let outcome = if is_closed { Outcome::NotDone } else { send(&*store, &batch, pool).await };
            if outcome == Outcome::Unknown {
                // Before anybody hears of it: what they ask next must not be answered from this memory.
                slot.lose("a batch has no known outcome");
            }
            if outcome == Outcome::Full {
                self.send_without_posts(slot, pool, works, &*store).await;
            } else {
                slot.state.lock().settle(pool, works, outcome);
            }
        }
    }

    /// Refuses the posts of a batch for which there was no room, and sends the rest: it may make room.
    async fn send_without_posts(
        &self,
        slot: &Slot,
        pool: &PoolName,
        works: Vec<Work>,
        store: &dyn PoolStore,
    ) {
        let is_post = |work: &Work| matches!(work.change, Change::Post(_));
        let (posts, rest): (Vec<Work>, Vec<Work>) = works.into_iter().partition(is_post);
        let batch = {
            let mut state = slot.state.lock();
            state.settle(pool, posts, Outcome::Full);
            state.batch(slot, pool, &rest)
        };
        let Some(batch) = batch.filter(|_| !rest.is_empty()) else { return };
        let outcome = send(store, &batch, pool).await;
        if outcome == Outcome::Unknown {
            slot.lose("a batch has no known outcome");
        }
        slot.state.lock().settle(pool, rest, outcome);
    }
}

/// Sends a batch until its outcome is known, or the tries are used up.
async fn send(store: &dyn PoolStore, batch: &Batch, pool: &PoolName) -> Outcome {
    let mut may_be_done = false;
    let mut pause = FIRST_PAUSE;
    for attempt in 1..=TRIES {
        let failure = match store.commit(batch).await {
            Ok(()) => return Outcome::Done,
            Err(failure) => failure,
        };
        may_be_done |= !failure.nothing_written();
        match failure {
            StoreError::Stamped(_) | StoreError::Fenced(_) | StoreError::Stale | StoreError::WentBack => {
                error!(%pool, slot = %batch.slot, error = %failure, "a pool refused a batch");
                return Outcome::Unknown;
            }
            // Unless an earlier try may have been applied: then the next one tells.
            StoreError::Full if !may_be_done => return Outcome::Full,
            StoreError::Full | StoreError::NotSent(_) | StoreError::Unknown(_) => {
                warn!(%pool, slot = %batch.slot, attempt, error = %failure, "a batch failed");
            }
        }
        if attempt < TRIES {
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
    }
    if may_be_done { Outcome::Unknown } else { Outcome::NotDone }
}
