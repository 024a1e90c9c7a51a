//! The embedded driver: entries in the journal, in the process that owns its directory.
//!
//! A batch is one piece of the committer's work. The same piece checks and advances the record of the slot, so a
//! replaced owner in this process cannot write after its successor.

mod audit;
mod batch;
mod bodies;
mod buckets;
mod drop;
mod due;
mod entries;
pub mod limits;
mod recount;
mod retained;
mod scan;
mod stored;

use std::collections::HashMap;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::shared::SharedBodies;
use super::{
    Batch, Direction, DropResult, Due, Epoch, GroupHead, Health, Note, Order, Page, PoolDeadlines, PoolReads,
    PoolStore, PoolWrites, Position, Recount, RetainedEntries, RetainedPlace, Shortage, Stamp, StoreError,
    StoredDamage, Totals, Usage,
};
use angarium_core::durability::Durability;
use angarium_core::group::GroupName;
use angarium_core::ids::{MessageId, QueueId, Slot};
use angarium_core::message::{Header, Message};
use angarium_core::mutation::{Mutation, is_on};
use angarium_core::time::Timestamp;
use angarium_journal::{Journal, JournalError, Room, Space, Txn, View};
pub use audit::{Audit, AuditedQueue, audit};
use batch::EncodedChanges;
use bodies::{GoneReaders, LentChanges, NewBodies};
use drop::{DropProgress, KeyRange};
use due::{BucketUpdate, DueCursor};
use scan::Bounds;
use stored::{QueueTotals, Record};

/// A pool in a journal.
pub struct EmbeddedPool {
    journal: Journal,
    /// For each slot, where the last look-up of expired entries ended. Held for a read or a write of one element.
    cursors: Mutex<HashMap<Slot, DueCursor>>,
    /// For each slot, the progress of the drop of a queue. Held for a read or a write of one element.
    drops: Mutex<HashMap<Slot, DropProgress>>,
    /// Progress of the recount after a crash; none while a step runs. Held for a read or a write of one element.
    counted: Mutex<Option<recount::Progress>>,
}

impl EmbeddedPool {
    /// Returns the pool in `journal`.
    pub fn new(journal: Journal) -> Self {
        let counted = Mutex::new(Some(recount::Progress::default()));
        Self { journal, cursors: Mutex::default(), drops: Mutex::default(), counted }
    }

    /// Runs a read of one view.
    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&View) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.journal.read(move |journal| read(&journal.view().map_err(failed)?)).await.map_err(failed)?
    }

    /// Removes or narrows buckets after a look-up. If that fails, the next look-up finds the same buckets empty again.
    async fn clear(&self, updates: Vec<BucketUpdate>) {
        if !updates.is_empty() {
            drop(self.journal.commit_as(Durability::Relaxed, move |txn| due::clear(txn, updates)).await);
        }
    }
}

#[async_trait]
impl PoolStore for EmbeddedPool {
    async fn stamp(&self) -> Result<Option<Stamp>, StoreError> {
        let value = self.journal.get(Space::Stamps, stored::STAMP_KEY).map_err(failed)?;
        value.map(|value| stored::decode_stamp(&value)).transpose()
    }

    async fn put_stamp(&self, stamp: Stamp) -> Result<Stamp, StoreError> {
        let work = move |txn: &mut Txn<'_>| {
            if let Some(value) = txn.get(Space::Stamps, stored::STAMP_KEY).map_err(failed)? {
                return stored::decode_stamp(&value);
            }
            let key = Bytes::from_static(stored::STAMP_KEY);
            txn.put(Space::Stamps, key, stored::encode_stamp(stamp));
            Ok(stamp)
        };
        self.journal.commit(work).await.map_err(failed)?
    }

    async fn recount(&self) -> Result<Recount, StoreError> {
        if self.journal.is_checked() {
            return Ok(Recount::Done);
        }
        if let Err(closed) = self.journal.check_open() {
            // The scans of an unfinished count would keep the old files open, and the journal waits for them before it
            // opens again.
            *self.counted.lock() = None;
            return Err(failed(closed));
        }
        // A step that was dropped is lost, so the count begins again.
        let mut progress = self.counted.lock().take().unwrap_or_default();
        if progress.is_end() {
            *self.counted.lock() = Some(progress);
            return Ok(Recount::Done);
        }
        let step = self.journal.read(move |journal| {
            let found = recount::step(journal, &mut progress);
            (progress, found)
        });
        let (progress, found) = step.await.map_err(failed)?;
        if progress.is_complete() {
            self.journal.note_checked();
        }
        *self.counted.lock() = Some(progress);
        let found = found?;
        if let Some(correction) = found {
            let correct = move |txn: &mut Txn<'_>| recount::correct(txn, &correction);
            self.journal.commit_as(Durability::Relaxed, correct).await.map_err(failed)??;
        }
        Ok(Recount::More(found.into_iter().collect()))
    }

    fn reach(&self) -> Durability {
        Durability::Sync
    }

    async fn health(&self) -> Result<Health, StoreError> {
        let asked = Instant::now();
        self.read(|view| view.get(Space::Stamps, stored::STAMP_KEY).map_err(failed)).await?;
        let space = self.journal.disk_space();
        Ok(Health {
            took: asked.elapsed(),
            class: self.reach(),
            free: space.map(|space| space.free),
            total: space.map(|space| space.total),
        })
    }

    fn check_open(&self) -> Result<(), StoreError> {
        self.journal.check_open().map_err(failed)
    }

    fn damage(&self) -> Option<StoredDamage> {
        self.journal.damage().map(|met| StoredDamage { reads: met.reads, text: met.text })
    }

    fn shortage(&self) -> Option<Shortage> {
        let (free, reserve) = (self.journal.disk_space()?.free, self.journal.reserve());
        (free < reserve).then_some(Shortage { free, reserve })
    }

    fn check_room(&self) -> Result<(), StoreError> {
        self.check_open()?;
        if self.journal.room() == Room::Reserved { Err(StoreError::Full) } else { Ok(()) }
    }
}

#[async_trait]
impl PoolWrites for EmbeddedPool {
    async fn fence(&self, slot: Slot, epoch: Epoch) -> Result<MessageId, StoreError> {
        // The journal runs work in the order of the calls, so no earlier fence or batch can arrive after this one: the
        // number alone distinguishes batches of two fences with the same epoch.
        let work = move |txn: &mut Txn<'_>| {
            let last_id = match record(txn, slot)? {
                Some(stored) if stored.epoch > epoch => return Err(StoreError::Fenced(stored.epoch)),
                Some(stored) => stored.last_id,
                None => MessageId::ZERO,
            };
            let record = Record { epoch, seq: 0, last_id };
            txn.put(Space::Records, stored::record_key(slot), record.encode());
            Ok(last_id)
        };
        self.journal.commit(work).await.map_err(failed)?
    }

    async fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        let (slot, epoch, seq) = (batch.slot, batch.epoch, batch.seq);
        batch.queues.iter().try_for_each(batch::check_bounds)?;
        let needs_room = batch.needs_room();
        let shared = SharedBodies::of(batch);
        let encoded = batch.queues.iter().map(|queue| EncodedChanges::new(queue, &shared));
        let (queues, bodies): (Vec<EncodedChanges>, _) = (encoded.collect(), NewBodies::of(&shared));
        let work = move |txn: &mut Txn<'_>| {
            let Some(mut record) = next(record(txn, slot)?, epoch, seq)? else { return Ok(()) };
            if needs_room && txn.room() == Room::Reserved {
                return Err(StoreError::Full);
            }
            let mut known = queues.iter().map(|queue| queue.look_up(txn)).collect::<Result<Vec<_>, _>>()?;
            let mut gone = GoneReaders::default();
            known.iter().for_each(|known| EncodedChanges::note_gone(known, &mut gone));
            let left = gone.look_up(txn)?;
            let mut lent = LentChanges::of(Some(&bodies), &left);
            queues.iter().zip(&mut known).for_each(|(queue, known)| queue.lend(known, &mut lent));
            let lenders = lent.look_up(txn)?;
            bodies.write(txn);
            left.write(txn);
            bodies::write_lenders(txn, lenders);
            record.seq = seq;
            for (queue, known) in queues.into_iter().zip(known) {
                record.last_id = record.last_id.max(queue.last_id);
                queue.write(txn, known);
            }
            txn.put(Space::Records, stored::record_key(slot), record.encode());
            Ok(())
        };
        let durability =
            if is_on(Mutation::AnswerBeforeSync) { Durability::Relaxed } else { batch.durability };
        self.journal.commit_as(durability, work).await.map_err(failed)?
    }

    async fn drop_queue(
        &self,
        slot: Slot,
        epoch: Epoch,
        queue: QueueId,
        limit: usize,
    ) -> Result<DropResult, StoreError> {
        let reached = self.drops.lock().remove(&slot);
        let part = self.read(move |view| KeyRange::read(view, queue, limit, reached)).await?;
        let reached = part.reached.clone();
        let dropped =
            self.journal.commit(move |txn| part.remove(txn, slot, epoch)).await.map_err(failed)??;
        // Without a removal the next part begins at the head.
        let Some(dropped) = dropped else { return Ok(DropResult::More) };
        if let (DropResult::More, Some(reached)) = (dropped, reached) {
            self.drops.lock().insert(slot, reached);
        }
        Ok(dropped)
    }
}

#[async_trait]
impl PoolReads for EmbeddedPool {
    async fn scan(
        &self,
        queue: QueueId,
        order: Order,
        direction: Direction,
        after: Option<Position>,
        messages: usize,
        bytes: usize,
    ) -> Result<Page, StoreError> {
        let bounds = Bounds { messages, bytes };
        self.read(move |view| scan::page(view, queue, order, direction, after, bounds)).await
    }

    async fn group(
        &self,
        queue: QueueId,
        group: &GroupName,
        after: Option<MessageId>,
        messages: usize,
        bytes: usize,
    ) -> Result<Page, StoreError> {
        let (bounds, group) = (Bounds { messages, bytes }, group.clone());
        self.read(move |view| scan::group(view, queue, &group, after, bounds)).await
    }

    async fn groups(
        &self,
        queue: QueueId,
        after: Option<GroupName>,
        limit: usize,
    ) -> Result<Vec<GroupHead>, StoreError> {
        self.read(move |view| scan::groups(view, queue, after, limit)).await
    }

    async fn get(&self, queue: QueueId, ids: &[MessageId]) -> Result<Vec<Message>, StoreError> {
        let ids = ids.to_vec();
        self.read(move |view| scan::get(view, queue, &ids)).await
    }

    async fn holds_any(&self, queue: QueueId) -> Result<bool, StoreError> {
        self.read(move |view| scan::holds_any(view, queue)).await
    }

    async fn totals(&self, queue: QueueId) -> Result<Totals, StoreError> {
        let value = self.journal.get(Space::Totals, queue.as_bytes()).map_err(failed)?;
        Ok(QueueTotals::decode(value.as_ref())?.totals)
    }

    async fn notes(
        &self,
        queue: QueueId,
        kind: u8,
        after: Option<Bytes>,
        limit: usize,
    ) -> Result<Vec<Note>, StoreError> {
        self.read(move |view| scan::notes(view, queue, kind, after.as_ref(), limit)).await
    }

    async fn usage(&self) -> Result<Usage, StoreError> {
        self.read(scan::usage).await
    }
}

#[async_trait]
impl PoolDeadlines for EmbeddedPool {
    async fn due(
        &self,
        slot: Slot,
        due: Due,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<(QueueId, Header)>, StoreError> {
        if limit == 0 {
            return Ok(Vec::new());
        }
        let cursor = self.cursors.lock().get(&slot).cloned();
        let result = self.read(move |view| match due {
            Due::Schedule => due::schedule(view, slot, before, limit),
            Due::Expiry => due::expiry(view, slot, before, limit, cursor.as_ref()),
        });
        let result = result.await?;
        if due == Due::Expiry {
            let mut cursors = self.cursors.lock();
            match result.cursor {
                Some(cursor) => cursors.insert(slot, cursor),
                None => cursors.remove(&slot),
            };
        }
        self.clear(result.updates).await;
        Ok(result.found)
    }

    async fn retained(
        &self,
        queue: QueueId,
        from: Option<RetainedPlace>,
        before: Timestamp,
        limit: usize,
    ) -> Result<RetainedEntries, StoreError> {
        let find = move |view: &View| retained::find(view, queue, from, before, limit);
        let (retained, updates) = self.read(find).await?;
        self.clear(updates).await;
        Ok(retained)
    }
}

fn failed(error: JournalError) -> StoreError {
    match error {
        JournalError::Busy | JournalError::Closed(_) | JournalError::Read(_) => {
            StoreError::NotSent(error.to_string())
        }
        JournalError::Damaged(_) => StoreError::Damaged(error.to_string()),
        JournalError::Unknown(_) => StoreError::Unknown(error.to_string()),
    }
}

fn record(txn: &Txn<'_>, slot: Slot) -> Result<Option<Record>, StoreError> {
    let value = txn.get(Space::Records, &stored::record_key(slot)).map_err(failed)?;
    value.map(|value| Record::decode(&value)).transpose()
}

/// Compares a batch with the record of its slot. Returns the record if the batch is the next one, none if it was
/// applied already; the error is the reason why it is refused.
fn next(record: Option<Record>, epoch: Epoch, seq: u64) -> Result<Option<Record>, StoreError> {
    let Some(record) = record else { return Err(StoreError::WentBack) };
    if record.epoch > epoch {
        return Err(StoreError::Fenced(record.epoch));
    }
    if record.epoch < epoch || seq > record.seq + 1 {
        return Err(StoreError::WentBack);
    }
    match seq {
        seq if seq == record.seq + 1 => Ok(Some(record)),
        seq if seq == record.seq => Ok(None),
        _ => Err(StoreError::Stale),
    }
}
