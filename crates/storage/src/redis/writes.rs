//! Writes: fences, batches and drops, each one call of a script, and the meaning of the answers (P1).

use async_trait::async_trait;
use bytes::Bytes;
use redis::{Cmd, Value};

use super::address::WriteConcern;
use super::link::Link;
use super::reads::{bytes, list};
use super::stored::{self, Numbering, Record};
use super::{RedisPool, batch, limits, scripts};
use crate::{Batch, DropResult, Epoch, PoolWrites, StoreError};
use angarium_core::durability::Durability;
use angarium_core::ids::{MessageId, QueueId, Slot};

/// The answer of a script that writes.
enum ScriptReply {
    Done(Option<Bytes>),
    More,
}

#[async_trait]
impl PoolWrites for RedisPool {
    async fn fence(&self, slot: Slot, epoch: Epoch) -> Result<MessageId, StoreError> {
        let link = self.write_link(slot);
        let session = link.session().await?;
        let mut call: Cmd = scripts::FENCE.call(&[session.keys.record(slot)]);
        let numbering = Numbering::fresh();
        call.arg(stored::encode_epoch(epoch)).arg(numbering.encode());
        match link.write(session, &scripts::FENCE, call, self.address.waits).await.and_then(read_reply) {
            Ok(ScriptReply::Done(Some(last))) => {
                self.numberings.lock().insert(slot, numbering);
                stored::decode_hex_id(&String::from_utf8_lossy(&last))
            }
            Ok(ScriptReply::Done(None) | ScriptReply::More) => {
                Err(StoreError::Unknown("the fence has no answer".into()))
            }
            // Registration creates the record. Without it the storage has lost data.
            Err(StoreError::WentBack) => {
                Err(StoreError::NotSent(format!("the storage has lost the record of slot {slot}")))
            }
            Err(error) => Err(error),
        }
    }

    async fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        batch::check_bounds(batch)?;
        let link = self.write_link(batch.slot);
        let session = link.session().await?;
        let (script, call) = batch::call(batch, self.own(batch.slot), &session.keys);
        match link.write(session, script, call, self.waits(batch.durability)).await {
            Ok(answer) => read_reply(answer).map(|_| ()),
            Err(StoreError::Full) if self.is_applied(batch).await? => self.wait_again(batch).await,
            Err(error) => Err(error),
        }
    }

    async fn drop_queue(
        &self,
        slot: Slot,
        epoch: Epoch,
        queue: QueueId,
        limit: usize,
    ) -> Result<DropResult, StoreError> {
        let link = self.write_link(slot);
        let session = link.session().await?;
        let names: Vec<_> =
            session.keys.slot_keys(slot).into_iter().chain(session.keys.queue_keys(queue)).collect();
        let mut call = scripts::DROP.call(&names);
        call.arg(stored::encode_epoch(epoch)).arg(&queue.as_bytes()[..]).arg(limit.min(limits::PAGE));
        match read_reply(link.write(session, &scripts::DROP, call, self.address.waits).await?)? {
            ScriptReply::Done(_) => Ok(DropResult::Done),
            ScriptReply::More => Ok(DropResult::More),
        }
    }
}

impl RedisPool {
    /// The numbering of a slot that this process began with its fence.
    fn own(&self, slot: Slot) -> Option<Numbering> {
        self.numberings.lock().get(&slot).copied()
    }

    /// The link for writes of a slot, always the same one.
    pub(super) fn write_link(&self, slot: Slot) -> &Link {
        &self.writes[usize::from(slot.0) % self.writes.len()]
    }

    /// The copies for which a batch must wait. A relaxed one waits for none.
    fn waits(&self, durability: Durability) -> WriteConcern {
        match durability {
            Durability::Relaxed => WriteConcern::default(),
            Durability::Sync => self.address.waits,
        }
    }

    /// Whether a batch that was refused because the memory is full is the last applied one: an earlier attempt may have
    /// applied it.
    async fn is_applied(&self, batch: &Batch) -> Result<bool, StoreError> {
        let doubt = |error: StoreError| StoreError::Unknown(error.to_string());
        let session = self.reads.session().await.map_err(doubt)?;
        let mut command = redis::cmd("GET");
        command.arg(session.keys.record(batch.slot));
        match self.reads.query(session, &command).await.map_err(doubt)? {
            Value::Nil => Err(StoreError::WentBack),
            record => {
                let record = bytes(record)?;
                next(stored::decode_record(&String::from_utf8_lossy(&record))?, self.own(batch.slot), batch)
            }
        }
    }

    /// Waits for the copies of an applied batch, because the attempt that applied it may not have waited.
    async fn wait_again(&self, batch: &Batch) -> Result<(), StoreError> {
        let waits = self.waits(batch.durability);
        if !waits.any() {
            return Ok(());
        }
        let link = self.write_link(batch.slot);
        let session = link.session().await.map_err(|error| StoreError::Unknown(error.to_string()))?;
        let (script, call) = batch::repeat(batch, self.own(batch.slot), &session.keys);
        link.write(session, script, call, waits).await.and_then(read_reply).map(|_| ())
    }
}

/// Compares a batch with the record of its slot. Returns whether it was applied already; the error is the reason why it
/// is refused.
fn next(record: Record, own: Option<Numbering>, batch: &Batch) -> Result<bool, StoreError> {
    let Record { epoch, numbering, seq } = record;
    if epoch > batch.epoch {
        return Err(StoreError::Fenced(epoch));
    }
    let is_other = own.is_some_and(|own| own != numbering);
    if epoch < batch.epoch || is_other || batch.seq > seq.saturating_add(1) {
        return Err(StoreError::WentBack);
    }
    if batch.seq < seq { Err(StoreError::Stale) } else { Ok(batch.seq == seq) }
}

/// Reads the answer of a script that writes.
fn read_reply(answer: Value) -> Result<ScriptReply, StoreError> {
    let unknown = |error: StoreError| StoreError::Unknown(error.to_string());
    let mut answer = list(answer).map_err(unknown)?.into_iter();
    let word = answer.next().map(bytes).transpose().map_err(unknown)?.unwrap_or_default();
    let more = answer.next().map(bytes).transpose().map_err(unknown)?;
    match &word[..] {
        b"done" => Ok(ScriptReply::Done(more)),
        b"more" => Ok(ScriptReply::More),
        b"stale" => Err(StoreError::Stale),
        b"went back" => Err(StoreError::WentBack),
        b"fenced" => {
            let epoch = more.unwrap_or_default();
            Err(StoreError::Fenced(stored::decode_epoch(&String::from_utf8_lossy(&epoch))?))
        }
        _ => Err(StoreError::Unknown("a script gave an answer that it does not have".into())),
    }
}
