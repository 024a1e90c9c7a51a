//! Copying a queue from one pool to another while it is used (P6). How that begins and ends is in [`super::migration`].
//!
//! ```text
//! older pool:  ready ────────────────────────────────────────▶ gone
//! newer pool:           ready
//!              1. hidden, and read  2. appended, with a note   3. removed   4. shown
//! ```
//!
//! Each step begins when the one before is durable, and one batch is under way at a time. Between 2 and 3 a message is
//! in both pools, and no caller claims it. The owner that opens the queue after a crash there finds the note, and
//! removes from the older pool what is in both. Claimed messages stay until they are given back, and those on their way
//! to another queue until they are there. It begins with the newest messages, since consumers take the oldest.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;
use tracing::debug;

use super::Broker;
use super::changes::Change;
use super::duplicates;
use super::message_transfer::closed;
use super::messages::{WriteOutcome, settled};
use super::pool_table::NamedStore;
use super::slot::{OpenQueue, Slot};
use angarium_catalogue::{MigrationRecord, Placement, QueueRecord};
use angarium_core::error::Error;
use angarium_core::ids::{MessageId, QueueId};
use angarium_core::limits;
use angarium_core::message::{Header, Message};
use angarium_core::names::QueueRef;
use angarium_engine::must_copy;
use angarium_storage::{Direction, Note, Order, Position};

/// The kind of the note of messages that went over last. It is in pools and never changes.
const KIND: u8 = 2;
const KEY: &[u8] = b"copied";

/// Kind and key of that note. Its value is their ids, 16 bytes each.
pub(super) fn note_name() -> (u8, Bytes) {
    (KIND, Bytes::from_static(KEY))
}

/// The way of an open queue to another pool.
pub(super) struct Migration {
    pub(super) record: MigrationRecord,
    /// Held by who copies a batch, and by who ends this or looks at the queue while nothing is in both pools. Whether
    /// it has ended: then nothing is copied any more.
    pub(super) step: Mutex<bool>,
    /// Messages that went over since the queue was opened or the migration began.
    pub(super) copied: AtomicU64,
    /// Whether the last walk found nothing that can go over: all that is left is claimed, or on its way to another queue.
    pub(super) is_held: AtomicBool,
    /// Those who read the queue where it was before: they would miss what is copied.
    readers: TaskTracker,
}

impl Migration {
    pub(super) fn new(record: MigrationRecord, readers: TaskTracker) -> Arc<Self> {
        readers.close();
        Arc::new(Self {
            record,
            step: Mutex::new(false),
            copied: AtomicU64::new(0),
            is_held: AtomicBool::new(false),
            readers,
        })
    }
}

/// Waits until no message of a queue is in two pools, and keeps it so, for the counters. When that takes
/// long, since a pool does not answer, some may be counted twice.
pub(super) async fn still(migration: Option<&Migration>) -> Option<MutexGuard<'_, bool>> {
    timeout(limits::COPY_STILL, migration?.step.lock()).await.ok()
}

/// A queue that is copied, at its owner.
struct CopyPhase {
    slot: Arc<Slot>,
    at: QueueRef,
    id: QueueId,
    migration: Arc<Migration>,
}

/// Where a walk over the older pool is.
#[derive(Clone, Copy)]
struct CopyCursor {
    order: Order,
    after: Option<Position>,
}

impl CopyCursor {
    const FIRST: Self = Self { order: Order::Ready, after: None };

    /// The next part of the walk behind a page; none when it was the last one.
    fn next(self, end: Option<Position>) -> Option<Self> {
        match (end, self.order) {
            (Some(end), order) => Some(Self { order, after: Some(end) }),
            (None, Order::Ready) => Some(Self { order: Order::Aside, after: None }),
            (None, Order::Aside | Order::Schedule) => None,
        }
    }
}

impl Broker {
    /// Begins to copy a queue that is in two pools.
    pub(super) fn start_copy_phase(&self, slot: &Arc<Slot>, at: &QueueRef, queue: &OpenQueue) {
        let Some(migration) = &queue.migration else { return };
        let (slot, at, migration) = (Arc::clone(slot), at.clone(), Arc::clone(migration));
        let (broker, course) = (self.clone(), CopyPhase { slot, at, id: queue.id, migration });
        self.spawn_in(&Arc::clone(&course.slot), async move {
            tokio::select! {
                () = broker.run_copy_phase(&course) => {}
                // What is under way is told of by the slot writers, or found by the next opening of the queue.
                () = course.slot.closed.cancelled() => {}
                () = broker.0.stop.cancelled() => {}
            }
        });
    }

    async fn run_copy_phase(&self, course: &CopyPhase) {
        let (first, longest) = limits::COPY_PAUSES;
        let (mut pause, mut is_prepared) = (first, false);
        loop {
            let round = match is_prepared {
                true => self.copy_round(course).await,
                false => self.prepare_copy(course).await.map(|()| CopyTick::Prepared),
            };
            match round {
                Ok(CopyTick::Over) => return,
                Ok(CopyTick::Prepared) => is_prepared = true,
                Ok(CopyTick::Copied) => {
                    course.migration.is_held.store(false, Ordering::Relaxed);
                    pause = first;
                }
                Ok(CopyTick::Idle) => {
                    course.migration.is_held.store(true, Ordering::Relaxed);
                    let changed = Arc::clone(&course.slot.changed).notified_owned();
                    tokio::time::sleep(pause.min(limits::COPY_REST)).await;
                    // What is left is claimed: a claim that ends may free some of it.
                    let _ = timeout(pause.saturating_sub(limits::COPY_REST), changed).await;
                    pause = longest.min(pause * 2);
                }
                // The slot is recovered. Until the queue is opened there the note of what may be in both pools must
                // stay.
                Err(error) if !error.nothing_written() => return,
                Err(error) => {
                    self.task_failed("copy queue", format_args!("queue {}", course.at.name), &error);
                    tokio::time::sleep(pause).await;
                    pause = longest.min(pause * 2);
                }
            }
        }
    }

    /// Waits until no caller writes or reads as if the queue were in the older pool alone, and writes the ids of
    /// deduplication to the newer one.
    async fn prepare_copy(&self, course: &CopyPhase) -> Result<(), Error> {
        settled(self.change_course(course, Change::Leave(Vec::new()))?).await?;
        course.migration.readers.wait().await;
        let mut after = None;
        loop {
            let duplicates = {
                let mut state = course.slot.state.lock();
                let Some(queue) = state.queue_mut(&course.at, course.id) else { return Ok(()) };
                let duplicates = queue.engine.durable_dedup(after, limits::NOTES_PAGE);
                let Some((key, _, expires)) = duplicates.last() else { return Ok(()) };
                after = Some((*expires, *key));
                let notes = duplicates
                    .iter()
                    .map(|(key, id, expires)| duplicates::note(key, *id, *expires))
                    .collect();
                self.submit(&course.slot, &mut state, &course.at, Change::CopyNotes(notes))?
            };
            settled(duplicates).await?;
        }
    }

    /// Leaves once over what the older pool has, and ends the migration when that is nothing.
    async fn copy_round(&self, course: &CopyPhase) -> Result<CopyTick, Error> {
        let (mut round, mut walk) = (CopyTick::Idle, Some(CopyCursor::FIRST));
        while let Some(part) = walk {
            let Some((older, newer)) = self.stores_of(course)? else { return Ok(CopyTick::Over) };
            // Nothing is hidden in vain.
            newer.check_room().map_err(|error| newer.failed(error))?;
            let (id, most, bytes) = (course.id, batch(course.migration.record.rate), limits::MOVE_BYTES);
            let page = older.scan(id, part.order, Direction::Down, part.after, most, bytes).await;
            let page = page.map_err(|error| older.failed(error))?;
            let end = page.messages.last().map(|message| Position::id(message.header.id));
            let found = page.messages.into_iter().map(|message| message.header).collect();
            let Some(copied) = self.copy_some(course, &older, found).await? else {
                return Ok(CopyTick::Over);
            };
            if copied > 0 {
                round = CopyTick::Copied;
                course.migration.copied.fetch_add(copied, Ordering::Relaxed);
                debug!(queue = %course.at.name, copied, "messages copied to other pool");
            }
            if let Some(rate) = course.migration.record.rate {
                tokio::time::sleep(Duration::from_secs(copied) / rate).await;
            }
            walk = part.next(end.filter(|_| !page.is_last));
        }
        let Some((older, _)) = self.stores_of(course)? else { return Ok(CopyTick::Over) };
        // The rest in the older pool is removed with it.
        if older.holds_any(course.id).await? {
            return Ok(round);
        }
        self.finish_migration(&course.slot, &course.at, course.id, &course.migration).await?;
        Ok(CopyTick::Over)
    }

    /// The pool that the queue leaves and the one that it moves to; none when it is not open any more, or another
    /// migration has begun.
    fn stores_of(&self, course: &CopyPhase) -> Result<Option<(NamedStore, NamedStore)>, Error> {
        let mut state = course.slot.state.lock();
        let queue = state.queue_mut(&course.at, course.id);
        let is_this = |queue: &&mut OpenQueue| {
            queue.migration.as_ref().is_some_and(|known| Arc::ptr_eq(known, &course.migration))
        };
        let Some(placement) = queue.filter(is_this).map(|queue| queue.placement.clone()) else {
            return Ok(None);
        };
        let Placement { pool, older: Some(older) } = placement else { return Ok(None) };
        Ok(Some((self.pool(&older)?.store()?, self.pool(&pool)?.store()?)))
    }

    /// Copies those of these messages that no caller changes. Returns how many; none when the migration has ended.
    async fn copy_some(
        &self,
        course: &CopyPhase,
        older: &NamedStore,
        found: Vec<Header>,
    ) -> Result<Option<u64>, Error> {
        let over = course.migration.step.lock().await;
        if *over {
            return Ok(None);
        }
        let hidden = {
            let mut state = course.slot.state.lock();
            let Some(queue) = state.queue_mut(&course.at, course.id) else { return Ok(None) };
            queue.engine.begin_copy(found)
        };
        if hidden.is_empty() {
            return Ok(Some(0));
        }
        let copied = match older.get(course.id, &hidden).await {
            Ok(read) => self.carry_across(course, &hidden, read).await,
            Err(error) => Err(older.failed(error)),
        };
        // What is not known stays hidden: the slot is recovered.
        if copied.as_ref().map_or_else(Error::nothing_written, |_| true) {
            let mut state = course.slot.state.lock();
            if let Some(queue) = state.queue_mut(&course.at, course.id) {
                queue.engine.finish_copy(&hidden);
            }
            state.note_wake(&course.at);
            self.serve(&course.slot, &mut state, &course.at);
        }
        copied.map(Some)
    }

    /// Steps 2 and 3 for hidden messages, as they were read since.
    async fn carry_across(
        &self,
        course: &CopyPhase,
        hidden: &[MessageId],
        read: Vec<Message>,
    ) -> Result<u64, Error> {
        let (outcome, ids) = {
            let mut state = course.slot.state.lock();
            let queue = state.queue_mut(&course.at, course.id).ok_or_else(|| closed(&course.at))?;
            let mut go = read;
            go.retain(|message| must_copy(&message.header.state));
            let ids: HashSet<MessageId> = go.iter().map(|message| message.header.id).collect();
            let gone: Vec<MessageId> = hidden.iter().filter(|id| !ids.contains(id)).copied().collect();
            queue.engine.not_copied(&gone);
            // A removal that has begun was sent to both pools: it must not come after it.
            go.retain(|message| queue.engine.copy_read(&message.header));
            let ids: Vec<MessageId> = go.iter().map(|message| message.header.id).collect();
            if ids.is_empty() {
                return Ok(0);
            }
            let note = self.copied_note(&ids);
            (self.submit(&course.slot, &mut state, &course.at, Change::Copy(go, note))?, ids)
        };
        settled(outcome).await?;
        let copied = u64::try_from(ids.len()).unwrap_or_default();
        let mut pause = limits::COPY_PAUSES.0;
        loop {
            let left = self.change_course(course, Change::Leave(ids.clone())).map_err(Error::into_unknown)?;
            match settled(left).await {
                Ok(()) => return Ok(copied),
                // They are in both pools, and stay hidden until the older one can be reached.
                Err(error) if error.nothing_written() => {
                    self.task_failed(
                        "remove copied messages",
                        format_args!("queue {}", course.at.name),
                        &error,
                    );
                    tokio::time::sleep(pause).await;
                    pause = limits::COPY_PAUSES.1.min(pause * 2);
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn copied_note(&self, ids: &[MessageId]) -> Note {
        let (kind, key) = note_name();
        let value = ids.iter().flat_map(|id| *id.as_bytes()).collect();
        Note { kind, key, value, expires: self.0.clock.now().plus_seconds(limits::COPIED_NOTE_SECONDS) }
    }

    fn change_course(&self, course: &CopyPhase, change: Change) -> Result<WriteOutcome, Error> {
        let mut state = course.slot.state.lock();
        state.queue_mut(&course.at, course.id).ok_or_else(|| closed(&course.at))?;
        self.submit(&course.slot, &mut state, &course.at, change)
    }

    /// Opens the pools of a queue that is not open, and states where it is and whether it moves. The caller holds its
    /// gate and those of its pools.
    pub(super) async fn open_pools(
        &self,
        slot: &Arc<Slot>,
        record: &QueueRecord,
    ) -> Result<(Placement, Option<Arc<Migration>>), Error> {
        let placement = record.placement()?;
        for name in placement.pools() {
            let pool = self.pool_of_record(name).await?;
            self.open_writer(slot, name, &pool).await?;
        }
        self.settle_copied(slot, record.id, &placement).await?;
        let migration = placement.older.as_ref().map(|_| record.migration.unwrap_or_default());
        Ok((placement, migration.map(|record| Migration::new(record, TaskTracker::new()))))
    }

    /// Removes from the older pool what a crash has left in both, which are fenced.
    async fn settle_copied(&self, slot: &Arc<Slot>, id: QueueId, placement: &Placement) -> Result<(), Error> {
        let Some(older_name) = &placement.older else { return Ok(()) };
        let (older, newer) = (self.pool(older_name)?.store()?, self.pool(&placement.pool)?.store()?);
        let notes = newer.notes(id, KIND, None, 1).await.map_err(|error| newer.failed(error))?;
        let Some(note) = notes.first() else { return Ok(()) };
        let ids = note.value.chunks_exact(16).filter_map(|id| id.try_into().ok());
        let ids: Vec<MessageId> = ids.map(MessageId::from_bytes).collect();
        let left = older.get(id, &ids).await.map_err(|error| older.failed(error))?;
        let left: Vec<MessageId> = left.iter().map(|message| message.header.id).collect();
        let both = newer.get(id, &left).await.map_err(|error| newer.failed(error))?;
        let both: Vec<MessageId> = both.iter().map(|message| message.header.id).collect();
        if both.is_empty() {
            return Ok(());
        }
        let removal = {
            let mut state = slot.state.lock();
            self.submit_unopened(slot, &mut state, older_name, id, both)
        };
        match removal {
            Some(removal) => settled(removal).await,
            None => Err(older.failed(angarium_storage::StoreError::NotSent("it is not open".to_owned()))),
        }
    }
}

/// How many messages one step takes: of a slow copy no more than a quarter of a second's, since they are hidden together.
fn batch(rate: Option<u32>) -> usize {
    let quarter = |rate: u32| usize::try_from(rate / 4).unwrap_or(limits::MOVE_MESSAGES);
    rate.map_or(limits::MOVE_MESSAGES, |rate| quarter(rate).clamp(1, limits::MOVE_MESSAGES))
}

/// What one turn of a copier came to.
enum CopyTick {
    /// It can begin.
    Prepared,
    Copied,
    /// What is left cannot go over now.
    Idle,
    /// The queue is in one pool, or another caller sees to it.
    Over,
}
