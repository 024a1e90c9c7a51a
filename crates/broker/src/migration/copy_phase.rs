//! The copy phase of a migration: copying a queue from one pool to another while clients use it (P6). Its begin and end
//! are in [`crate::migration::begin`].
//!
//! ```text
//! older pool:  ready ────────────────────────────────────────▶ gone
//! newer pool:           ready
//!              1. hidden, and read  2. appended, with a note   3. removed   4. shown
//! ```
//!
//! Each step begins when the one before is durable, and one batch is in progress at a time. Between 2 and 3 a message
//! is in both pools, and no caller claims it. After a crash there, the owner that opens the queue finds the note, and
//! removes from the older pool the messages that are in both. Claimed messages stay until they are released, and
//! messages in transfer to another queue until they have arrived. A queue and its subscriptions are copied one page at a
//! time. The newest messages are copied first, since consumers take the oldest. Kept messages, which are done or have
//! failed, are copied last.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::timeout;
use tracing::debug;

use angarium_catalogue::Placement;
use angarium_core::error::Error;
use angarium_core::ids::MessageId;
use angarium_core::message::{Header, Message};
use angarium_core::mutation::{Mutation, is_on};
use angarium_storage::{Direction, Order, Position};

use crate::limits;
use crate::migration::Migrations;
use crate::slot::migration::{BegunCopy, Migration};
use crate::slot::queue_family::QueueFamily;
use crate::slot::queue_handle::QueueHandle;
use crate::stores::table::NamedStore;
use crate::writer::change::Change;
use crate::writer::notes::SETTLE_KIND;
use crate::writer::pending::settled;

/// A queue under migration, at its owner.
pub(crate) struct CopyPhase {
    pub(crate) queue: QueueHandle,
    pub(crate) migration: Arc<Migration>,
}

/// The storages of the two pools of the queue.
struct CopyStores {
    /// Storage of the pool that the queue leaves.
    older: NamedStore,
    /// Storage of the pool that the queue moves to.
    newer: NamedStore,
}

/// Position of a walk over the older pool.
#[derive(Clone, Copy)]
struct CopyCursor {
    order: Order,
    after: Option<Position>,
}

impl CopyCursor {
    const FIRST: Self = Self { order: Order::Ready, after: None };

    /// Returns the position of a message in the order of the walk.
    fn position(self, header: &Header) -> Position {
        match self.order {
            Order::Ready | Order::Aside => Position::id(header.id),
            Order::Kept | Order::Schedule => Position::of(header),
        }
    }

    /// Returns the position behind a page; none when the walk is complete.
    pub(crate) fn next(self, end: Option<Position>) -> Option<Self> {
        match (end, self.order) {
            (Some(end), order) => Some(Self { order, after: Some(end) }),
            (None, Order::Ready) => Some(Self { order: Order::Aside, after: None }),
            (None, Order::Aside) => Some(Self { order: Order::Kept, after: None }),
            (None, Order::Kept | Order::Schedule) => None,
        }
    }
}

impl Migrations {
    pub(crate) async fn run_copy_phase(&self, phase: &CopyPhase) {
        let (first, longest) = limits::COPY_PAUSES;
        let (mut pause, mut is_prepared) = (first, false);
        loop {
            let round = if is_prepared {
                self.copy_round(phase).await
            } else {
                self.prepare_copy(phase).await.map(|()| CopyTick::Prepared)
            };
            match round {
                Ok(CopyTick::Over) => return,
                Ok(CopyTick::Prepared) => is_prepared = true,
                Ok(CopyTick::Copied) => {
                    phase.migration.is_held.store(false, Ordering::Relaxed);
                    pause = first;
                }
                Ok(CopyTick::Idle) => {
                    let is_held = QueueFamily::of(&phase.queue).is_none_or(|family| family.copies_are_held());
                    phase.migration.is_held.store(is_held, Ordering::Relaxed);
                    let changed = Arc::clone(&phase.queue.slot().changed).notified_owned();
                    tokio::time::sleep(pause.min(limits::COPY_REST)).await;
                    // The messages that are left are claimed: the end of a claim may free some of them.
                    let _ = timeout(pause.saturating_sub(limits::COPY_REST), changed).await;
                    pause = longest.min(pause * 2);
                }
                // The slot is recovered. The note of messages that may be in both pools must stay until the queue is
                // opened there.
                Err(error) if !error.nothing_written() => return,
                Err(error) => {
                    self.0.replica.task_failed(
                        "copy queue",
                        format_args!("queue {}", phase.queue.at().name),
                        &error,
                    );
                    tokio::time::sleep(pause).await;
                    pause = longest.min(pause * 2);
                }
            }
        }
    }

    /// Waits until no caller writes or reads as if the queue were in the older pool alone, then writes the
    /// deduplication ids to the newer pool.
    async fn prepare_copy(&self, phase: &CopyPhase) -> Result<(), Error> {
        if !is_on(Mutation::LeavePoolInDoubt) {
            settled(phase.queue.submit(Change::remove_copied(Vec::new()))?).await?;
        }
        phase.migration.readers.wait().await;
        let mut after = None;
        loop {
            let Some(copy) = phase.queue.copy_dedup(after)? else { return Ok(()) };
            after = Some(copy.last);
            settled(copy.outcome).await?;
        }
    }

    /// Walks once over the messages in the older pool, and ends the migration when there are none.
    async fn copy_round(&self, phase: &CopyPhase) -> Result<CopyTick, Error> {
        let (mut round, mut walk) = (CopyTick::Idle, Some(CopyCursor::FIRST));
        while let Some(part) = walk {
            let Some(CopyStores { older, newer }) = self.stores_of(phase)? else {
                return Ok(CopyTick::Over);
            };
            if phase.queue.transfers_are_held() {
                return Ok(CopyTick::Idle);
            }
            let _copying = phase.queue.hold_copying().await;
            // No message is hidden while the newer pool cannot take it.
            newer.check_room().map_err(|error| newer.failed(error))?;
            let (id, most, bytes) =
                (phase.queue.id(), batch(phase.migration.record.rate), limits::MOVE_BYTES);
            let page = older.scan(id, part.order, Direction::Down, part.after, most, bytes).await;
            let page = page.map_err(|error| older.failed(error))?;
            let end = page.messages.last().map(|message| part.position(&message.header));
            let found = page.messages.into_iter().map(|message| message.header).collect();
            let Some(copied) = self.copy_some(phase, &older, found).await? else {
                return Ok(CopyTick::Over);
            };
            if copied > 0 {
                round = CopyTick::Copied;
                phase.migration.copied.fetch_add(copied, Ordering::Relaxed);
                debug!(queue = %phase.queue.at().name, copied, "messages copied to other pool");
            }
            if let Some(rate) = phase.migration.record.rate {
                tokio::time::sleep(Duration::from_secs(copied) / rate).await;
            }
            walk = part.next(end.filter(|_| !page.is_last));
        }
        let Some(CopyStores { older, .. }) = self.stores_of(phase)? else { return Ok(CopyTick::Over) };
        self.leave_older(phase, &older, round).await
    }

    /// Ends the copying of a queue once the older pool has no message of it. The queue of a subscription waits for its source
    /// then, and that ends the migration of all.
    async fn leave_older(
        &self,
        phase: &CopyPhase,
        older: &NamedStore,
        round: CopyTick,
    ) -> Result<CopyTick, Error> {
        let queue = &phase.queue;
        let source = queue.at().source();
        // A message of the source in the older pool may still bring copies there.
        if source.as_ref().is_some_and(|source| !queue.slot().has_left(source)) {
            return Ok(round);
        }
        if !phase.migration.has_left() {
            // Other data in the older pool is removed when the migration ends.
            if !is_on(Mutation::LeavePoolEarly) && older.holds_any(queue.id()).await? {
                return Ok(round);
            }
            self.copy_settle_notes(phase, older).await?;
            if source.is_some() {
                let Some(copied) = queue.copy_backlog_notes()? else { return Ok(CopyTick::Idle) };
                settled(copied).await?;
            }
            queue.note_left(&phase.migration);
        }
        if source.is_some() {
            return Ok(CopyTick::Idle);
        }
        if !self.open_copies(queue).await? {
            self.0.open_queues.reload_subscriptions(queue).await?;
        }
        let is_over = self.finish_migration(queue, &phase.migration).await?;
        Ok(if is_over { CopyTick::Over } else { CopyTick::Idle })
    }

    /// Copies the notes of settles that have not expired, so that a repeat of a settle has the same outcome after the
    /// migration. The older pool has no message, so it gets no more of these notes.
    async fn copy_settle_notes(&self, phase: &CopyPhase, older: &NamedStore) -> Result<(), Error> {
        let mut after = None;
        loop {
            let page = older.notes(phase.queue.id(), SETTLE_KIND, after, limits::notes_page()).await;
            let mut notes = page.map_err(|error| older.failed(error))?;
            after = notes.last().map(|last| last.key.clone()).filter(|_| notes.len() >= limits::notes_page());
            let now = self.0.replica.clock.now();
            notes.retain(|note| now < note.expires);
            if !notes.is_empty() {
                settled(phase.queue.submit(Change::copy_notes(notes.clone()))?).await?;
                // They may have expired and have been removed before they were written here.
                phase.queue.settle_notes_copied(&notes);
            }
            if after.is_none() {
                return Ok(());
            }
        }
    }

    /// Returns the storages of the two pools; none when the queue is not open any more, or another migration has begun.
    fn stores_of(&self, phase: &CopyPhase) -> Result<Option<CopyStores>, Error> {
        let Some(placement) = phase.queue.placement_in(&phase.migration) else { return Ok(None) };
        let Placement { pool, older: Some(older) } = placement else { return Ok(None) };
        let (older, newer) = (self.0.stores.pool(&older)?.store()?, self.0.stores.pool(&pool)?.store()?);
        Ok(Some(CopyStores { older, newer }))
    }

    /// Copies those of these messages that no caller is changing. Returns their number; none when the migration has
    /// ended.
    async fn copy_some(
        &self,
        phase: &CopyPhase,
        older: &NamedStore,
        found: Vec<Header>,
    ) -> Result<Option<u64>, Error> {
        let ended = phase.migration.step.lock().await;
        if *ended {
            return Ok(None);
        }
        let _leaving = phase.queue.begin_leaving().await?;
        let Some(hidden) = phase.queue.decide(|engine| engine.begin_copy(found)) else { return Ok(None) };
        if hidden.is_empty() {
            return Ok(Some(0));
        }
        let copied = match older.get(phase.queue.id(), &hidden).await {
            Ok(read) => self.carry_across(phase, &hidden, read).await,
            Err(error) => Err(older.failed(error)),
        };
        // After an unknown outcome the messages stay hidden: the slot is recovered.
        if copied.as_ref().map_or_else(Error::nothing_written, |_| true) {
            phase.queue.show_copied(&hidden);
        }
        copied.map(Some)
    }

    /// Runs steps 2 and 3 for hidden messages; `read` has the ones that still exist.
    async fn carry_across(
        &self,
        phase: &CopyPhase,
        hidden: &[MessageId],
        read: Vec<Message>,
    ) -> Result<u64, Error> {
        let note_expires = self.0.replica.clock.now().plus_seconds(limits::COPIED_NOTE_SECONDS);
        let Some(begun) = phase.queue.begin_copy(hidden, read, note_expires)? else { return Ok(0) };
        let BegunCopy { outcome, ids } = begun;
        settled(outcome).await?;
        let copied = u64::try_from(ids.len()).unwrap_or_default();
        let mut pause = limits::COPY_PAUSES.0;
        loop {
            let left = phase.queue.submit(Change::remove_copied(ids.clone())).map_err(Error::into_unknown)?;
            match settled(left).await {
                Ok(()) => return Ok(copied),
                // The messages are in both pools, and stay hidden until the older pool can be reached.
                Err(error) if error.nothing_written() => {
                    self.0.replica.task_failed(
                        "remove copied messages",
                        format_args!("queue {}", phase.queue.at().name),
                        &error,
                    );
                    tokio::time::sleep(pause).await;
                    pause = limits::COPY_PAUSES.1.min(pause * 2);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Number of messages that one step copies. In a slow migration it is a quarter of a second's, since they are hidden
/// together.
pub(crate) fn batch(rate: Option<u32>) -> usize {
    let quarter = |rate: u32| usize::try_from(rate / 4).unwrap_or(limits::move_messages());
    rate.map_or(limits::move_messages(), |rate| quarter(rate).clamp(1, limits::move_messages()))
}

/// The outcome of one round of the copy phase.
enum CopyTick {
    /// Copying can begin.
    Prepared,
    Copied,
    /// No remaining message can be copied now.
    Idle,
    /// The queue is in one pool, or another task is responsible for it.
    Over,
}
