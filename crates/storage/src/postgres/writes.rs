//! Writes: fences, batches, drops, and the meaning of an answer without rows (P1).

use std::sync::LazyLock;

use async_trait::async_trait;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::PostgresPool;
use super::batch::Arrays;
use super::committer::{Committer, SharedResult};
use super::connection::Connection;
use super::errors::Failure;
use super::limits;
use super::link::LinkSession;
use super::stored::{self, bound, column, number, queue_key, unsigned};
use crate::{Batch, DropResult, Epoch, PoolWrites, Stamp, StoreError};
use angarium_core::durability::Durability;
use angarium_core::ids::{MessageId, QueueId, Slot};

/// Statement for batches that only post and delete.
const PLAIN: &str = include_str!("sql/commit.sql");
/// Statement for all batches.
static COMMIT: LazyLock<String> = LazyLock::new(|| {
    let sums = "
        UNION ALL
        SELECT queue, NULL, 0, 0::int8, scheduled, aside, kept, 0::int8, 0::int8 FROM updated
        UNION ALL
        SELECT lender, NULL, 0, 0::int8, 0, 0, 0, 0::int8, bytes FROM new_bodies";
    PLAIN.replace("-- and of the others", sums).replace("-- and the rest", include_str!("sql/rest.sql"))
});
const DROP: &str = include_str!("sql/drop.sql");
const FENCE: &str = "
    UPDATE records SET generation = $3::int8, transaction = $4::int8, seq = 0, fences = fences + 1
    WHERE slot = $1::int2 AND pool = $2::uuid AND (generation, transaction) <= ($3::int8, $4::int8)
    RETURNING last_id, fences";
const RECORD: &str = "
    SELECT generation, transaction, seq, fences FROM records WHERE slot = $1::int2 AND pool = $2::uuid";
/// Writes the record without a change: when this commit is durable, all earlier ones are durable too.
const AGAIN: &str = "
    UPDATE records SET seq = seq
    WHERE slot = $1::int2 AND pool = $2::uuid AND generation = $3::int8 AND transaction = $4::int8 AND seq = $5::int8
    RETURNING slot";
const USED: &str = "
    SELECT COALESCE(sum(bytes + messages * $1::int8), 0)::int8 AS used FROM queues";

/// State of this process's own writes to a slot.
#[derive(Clone, Copy, Default)]
pub(super) struct OwnWrites {
    /// Number of the slot's fences after this process's own. It distinguishes numberings of fences with the same epoch:
    /// a delayed batch of before a fence is never taken for one of the new numbering.
    fences: Option<i64>,
    /// A batch of which one attempt has an unknown outcome: that attempt may still be applied.
    doubt: Option<(Epoch, u64)>,
    /// Whether its last batch failed.
    is_refused: bool,
}

/// State of a batch by the record of its slot.
enum BatchPosition {
    Next,
    Done,
}

/// Parameters that identify the record of a slot.
struct Record {
    slot: i16,
    stamp: Stamp,
    generation: i64,
    transaction: i64,
}

impl Record {
    fn of(slot: Slot, epoch: Epoch, stamp: Stamp) -> Result<Self, StoreError> {
        let transaction = number(epoch.transaction)?;
        Ok(Self { slot: slot.0.into(), stamp, generation: epoch.generation.into(), transaction })
    }

    fn parameters(&self) -> [&(dyn ToSql + Sync); 4] {
        [&self.slot, &self.stamp.pool, &self.generation, &self.transaction]
    }
}

#[async_trait]
impl PoolWrites for PostgresPool {
    async fn fence(&self, slot: Slot, epoch: Epoch) -> Result<MessageId, StoreError> {
        let (session, stamp) = self.writes.session().await?;
        let record = Record::of(slot, epoch, stamp)?;
        let rows = session.connection.query(FENCE, &record.parameters()).await.map_err(Failure::of_write)?;
        if let Some(row) = rows.first() {
            let (last, fences) = (stored::message_id(row, "last_id")?, column(row, "fences")?);
            self.slots.lock().insert(slot, OwnWrites { fences: Some(fences), ..OwnWrites::default() });
            return Ok(last);
        }
        match self.record(&session, &record).await?.as_ref().map(stored::epoch).transpose()? {
            Some(Some(by)) if by > epoch => Err(StoreError::Fenced(by)),
            Some(_) => Err(StoreError::NotSent("another owner fenced the slot at the same time".into())),
            // Registration creates the record. Without it the storage has lost data.
            None => Err(StoreError::NotSent(format!("the storage has lost the record of slot {slot}"))),
        }
    }

    async fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        super::batch::check_bounds(batch)?;
        let own = self.own(batch.slot);
        let is_in_doubt = own.doubt == Some((batch.epoch, batch.seq));
        // After a failure the batch is sent alone: then the answer tells the reason, and the batch delays no other.
        let is_full = self.is_full() && batch.needs_room();
        let may_share = own.doubt.is_none() && !own.is_refused && !is_full;
        let result = if may_share && Committer::takes(batch) {
            match self.share(batch, own.fences).await {
                SharedResult::Answered(result) => result,
                SharedResult::Alone(_permit) => self.send(batch, own, is_in_doubt).await,
                SharedResult::NotApplied => self.send(batch, own, is_in_doubt).await,
            }
        } else {
            self.send(batch, own, is_in_doubt).await
        };
        let mut slots = self.slots.lock();
        let own = slots.entry(batch.slot).or_default();
        own.is_refused = result.is_err();
        match &result {
            Err(StoreError::Unknown(_)) => own.doubt = Some((batch.epoch, batch.seq)),
            Ok(()) | Err(StoreError::Fenced(_) | StoreError::Stale | StoreError::WentBack) => {
                own.doubt = None
            }
            // An earlier attempt is in doubt as before.
            Err(
                StoreError::Full
                | StoreError::NotSent(_)
                | StoreError::Damaged(_)
                | StoreError::Stamped(_)
                | StoreError::Unregistered,
            ) => {}
        }
        result
    }

    async fn drop_queue(
        &self,
        slot: Slot,
        epoch: Epoch,
        queue: QueueId,
        limit: usize,
    ) -> Result<DropResult, StoreError> {
        let (session, stamp) = self.writes.session().await?;
        let record = Record::of(slot, epoch, stamp)?;
        let (queue, limit) = (queue_key(queue), bound(limit.min(limits::PAGE)));
        let mut parameters: Vec<&(dyn ToSql + Sync)> = record.parameters().to_vec();
        parameters.extend([&queue as &(dyn ToSql + Sync), &limit]);
        let rows = session.connection.query(DROP, &parameters).await.map_err(Failure::of_write)?;
        if let Some(row) = rows.first() {
            return Ok(if column(row, "is_last")? { DropResult::Done } else { DropResult::More });
        }
        match self.record(&session, &record).await?.as_ref().map(stored::epoch).transpose()?.flatten() {
            Some(by) if by > epoch => Err(StoreError::Fenced(by)),
            Some(_) | None => Err(StoreError::WentBack),
        }
    }
}

impl PostgresPool {
    fn own(&self, slot: Slot) -> OwnWrites {
        self.slots.lock().get(&slot).copied().unwrap_or_default()
    }

    /// Whether the quota was used up at the last measurement.
    pub(super) fn is_full(&self) -> bool {
        self.address.quota.is_some_and(|quota| quota <= self.known.used())
    }

    /// Sends batches of different slots, in order of slots, as one statement. Returns the slots whose batches were
    /// applied.
    pub(super) async fn send_all(
        &self,
        session: &LinkSession,
        stamp: Stamp,
        batches: &[(&Batch, Option<i64>)],
    ) -> Result<Vec<Slot>, Failure> {
        let mut arrays = Arrays::default();
        for (batch, fences) in batches {
            arrays.add(batch, *fences).map_err(|error| Failure::Refused(error.to_string()))?;
        }
        // One batch that must be synced makes the whole statement synced.
        let is_relaxed = batches.iter().all(|(batch, _)| batch.durability == Durability::Relaxed);
        let commits = is_relaxed.then_some("off");
        let statement = if arrays.is_plain() { PLAIN } else { &COMMIT };
        let rows = session.connection.query(statement, &arrays.parameters(&stamp.pool, &commits)).await?;
        // The answer proves the commit, so an unreadable answer is an unknown outcome.
        rows.iter().map(|row| stored::slot(row).map_err(|error| Failure::Lost(error.to_string()))).collect()
    }

    async fn send(&self, batch: &Batch, own: OwnWrites, is_in_doubt: bool) -> Result<(), StoreError> {
        let (session, stamp) = self.writes.session().await?;
        let record = Record::of(batch.slot, batch.epoch, stamp)?;
        // An attempt in doubt may still be applied, so the batch cannot be refused any more: it may exceed the quota.
        if self.is_full() && batch.needs_room() && !is_in_doubt {
            return match self.position(&session, &record, batch, own).await? {
                BatchPosition::Next => Err(StoreError::Full),
                BatchPosition::Done => self.settle(&session, &record, batch).await,
            };
        }
        match self.send_all(&session, stamp, &[(batch, own.fences)]).await {
            Ok(applied) if !applied.is_empty() => Ok(()),
            Ok(_) => match self.position(&session, &record, batch, own).await? {
                BatchPosition::Done => self.settle(&session, &record, batch).await,
                // The record changed between the two statements; this call did not apply the batch.
                BatchPosition::Next => {
                    Err(StoreError::NotSent("the record of the slot was being changed".into()))
                }
            },
            Err(Failure::Full(_)) if batch.needs_room() && !is_in_doubt => Err(StoreError::Full),
            // Another attempt of this batch may still be applied, so its number may not be free.
            Err(Failure::Full(why) | Failure::Refused(why)) if is_in_doubt => Err(StoreError::Unknown(why)),
            Err(failure) => Err(failure.of_write()),
        }
    }

    async fn record(&self, session: &LinkSession, record: &Record) -> Result<Option<Row>, StoreError> {
        let parameters: [&(dyn ToSql + Sync); 2] = [&record.slot, &record.stamp.pool];
        let rows = session.connection.query(RECORD, &parameters).await.map_err(Failure::of_read)?;
        Ok(rows.into_iter().next())
    }

    /// Compares a batch with the record of its slot; the error is the reason why it is refused.
    async fn position(
        &self,
        session: &LinkSession,
        record: &Record,
        batch: &Batch,
        own: OwnWrites,
    ) -> Result<BatchPosition, StoreError> {
        // If this read fails, it is unknown whether an earlier attempt was applied.
        let found =
            self.record(session, record).await.map_err(|error| StoreError::Unknown(error.to_string()))?;
        let row = found.ok_or(StoreError::WentBack)?;
        let Some(epoch) = stored::epoch(&row)? else { return Err(StoreError::WentBack) };
        if epoch > batch.epoch {
            return Err(StoreError::Fenced(epoch));
        }
        let (seq, fences) = (unsigned(&row, "seq")?, column::<i64>(&row, "fences")?);
        let is_other = own.fences.is_some_and(|own| own != fences);
        if epoch < batch.epoch || is_other || batch.seq > seq.saturating_add(1) {
            return Err(StoreError::WentBack);
        }
        match batch.seq {
            next if next == seq.saturating_add(1) => Ok(BatchPosition::Next),
            last if last == seq => Ok(BatchPosition::Done),
            _ => Err(StoreError::Stale),
        }
    }

    /// Waits until an applied batch is as durable as it demands: the attempt that applied it may not have waited for
    /// that.
    async fn settle(&self, session: &LinkSession, record: &Record, batch: &Batch) -> Result<(), StoreError> {
        if batch.durability == Durability::Relaxed {
            return Ok(());
        }
        let seq = stored::seq(batch.seq);
        let mut parameters: Vec<&(dyn ToSql + Sync)> = record.parameters().to_vec();
        parameters.push(&seq);
        let unknown = |failure: Failure| StoreError::Unknown(failure.of_read().to_string());
        let rows = session.connection.query(AGAIN, &parameters).await.map_err(unknown)?;
        if rows.is_empty() {
            return Err(StoreError::Unknown("the record of the slot was being changed".into()));
        }
        Ok(())
    }

    /// Measures the bytes that the quota bounds. The cost is a walk over the queues, not over their messages.
    pub(super) async fn measure_used(&self, connection: &Connection) -> Result<(), StoreError> {
        let rows = connection.query(USED, &[&limits::ENTRY_BYTES]).await.map_err(Failure::of_read)?;
        let used = rows.first().map(|row| unsigned(row, "used")).transpose()?;
        self.known.set_used(used.unwrap_or(0));
        Ok(())
    }
}
