//! The Redis driver: entries in a Redis or Valkey server, in the master that Sentinels name, or in a cluster.
//!
//! A batch is one call of a script, which checks the record of its slot before it writes. Where the servers are, what an
//! acknowledgement means there and when a pool is refused is in `docs/pools/redis.md`; the layout in `stored.rs`.

mod address;
mod batch;
mod connection;
mod due;
mod errors;
pub mod limits;
mod link;
mod reads;
mod retained;
mod scripts;
mod server;
mod stored;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use redis::{Cmd, Value};

pub use address::{Address, AddressError};

use super::{
    Batch, Direction, DropResult, Due, Epoch, GroupHead, Health, Note, Order, Page, PoolStore, Position,
    RetainedEntries, RetainedPlace, Stamp, StoreError, Totals, Usage,
};
use address::WriteConcern;
use angarium_core::durability::Durability;
use angarium_core::group::GroupName;
use angarium_core::ids::{MessageId, QueueId, Slot};
use angarium_core::message::{Header, Message};
use angarium_core::time::Timestamp;
use due::DueCursor;
use link::{Link, ServerState};
use reads::{PageRequest, bytes, list};
use stored::{Numbering, Record};

/// A pool in Redis. It connects when it is first used, and again whenever that is needed.
pub struct RedisPool {
    address: Arc<Address>,
    known: Arc<ServerState>,
    reads: Link,
    /// Several where batches wait for replicas: those behind them on a connection wait too.
    writes: Vec<Link>,
    /// Of each slot, where the last look for expired entries ended. Held for a read or a write of one element.
    turns: Mutex<HashMap<Slot, DueCursor>>,
    /// The numbering that the last fence of each slot began. Held for a read or a write of one element.
    numberings: Mutex<HashMap<Slot, Numbering>>,
}

/// What a script that writes states.
enum ScriptReply {
    Done(Option<Bytes>),
    More,
}

impl RedisPool {
    /// The pool at `address`. Nothing is connected yet.
    pub fn new(address: Address) -> Self {
        let (address, known) = (Arc::new(address), Arc::new(ServerState::default()));
        let link = || Link::new(Arc::clone(&address), Arc::clone(&known));
        let many = if address.waits.any() { limits::WAITING } else { 1 };
        let (reads, writes) = (link(), (0..many).map(|_| link()).collect());
        Self { address, known, reads, writes, turns: Mutex::default(), numberings: Mutex::default() }
    }

    /// The numbering of a slot that this process has fenced.
    fn own(&self, slot: Slot) -> Option<Numbering> {
        self.numberings.lock().get(&slot).copied()
    }

    /// The link for writes of a slot, always the same one.
    fn write_link(&self, slot: Slot) -> &Link {
        &self.writes[usize::from(slot.0) % self.writes.len()]
    }

    /// What a batch must wait for. A relaxed one waits for no process.
    fn waits(&self, durability: Durability) -> WriteConcern {
        match durability {
            Durability::Relaxed => WriteConcern::default(),
            Durability::Sync => self.address.waits,
        }
    }

    /// Whether the batch is the last one that was applied, for one that was refused because the memory is full: it may
    /// have been applied before that.
    async fn is_applied(&self, batch: &Batch) -> Result<bool, StoreError> {
        let doubt = |error: StoreError| StoreError::Unknown(error.to_string());
        let way = self.reads.way().await.map_err(doubt)?;
        let mut ask = redis::cmd("GET");
        ask.arg(way.keys.record(batch.slot));
        match self.reads.ask_one(way, &ask).await.map_err(doubt)? {
            Value::Nil => Err(StoreError::WentBack),
            record => {
                let record = bytes(record)?;
                next(stored::decode_record(&String::from_utf8_lossy(&record))?, self.own(batch.slot), batch)
            }
        }
    }

    /// Waits for what an applied batch must wait for: the try that applied it may not have come to that.
    async fn wait_again(&self, batch: &Batch) -> Result<(), StoreError> {
        let waits = self.waits(batch.durability);
        if !waits.any() {
            return Ok(());
        }
        let link = self.write_link(batch.slot);
        let way = link.way().await.map_err(|error| StoreError::Unknown(error.to_string()))?;
        let (script, call) = batch::repeat(batch, self.own(batch.slot), &way.keys);
        link.write(way, script, call, waits).await.and_then(read_reply).map(|_| ())
    }

    /// Makes the records of all slots, and then the stamp if there is none. Returns the one that is there then.
    async fn make(&self, stamp: Stamp) -> Result<Stamp, StoreError> {
        let mut open = self.reads.open().await?;
        let keys = stored::Keys::new(&self.address.prefix, stamp);
        let unknown = |error: redis::RedisError| errors::write_failed(&error, errors::SendMode::Repeatedly);
        let record = |slot| {
            let mut set = redis::cmd("SET");
            set.arg(keys.record(slot)).arg(stored::first_record()).arg("NX");
            set
        };
        let records: Vec<_> = Slot::all().map(record).collect();
        link::make_all(&mut open.connection, &records, self.address.waits).await.map_err(unknown)?;
        let mut set = redis::cmd("SET");
        set.arg(stored::stamp_key(&self.address.prefix)).arg(stored::encode_stamp(stamp)).arg("NX");
        let made = link::make_all(&mut open.connection, &[set], self.address.waits).await;
        // The stamp that is there now is read again, with the next connection: another process's may have come first.
        self.reads.forget(&open);
        made.map_err(unknown)?;
        self.reads.open().await?.stamp.ok_or(StoreError::WentBack)
    }
}

/// Whether a batch was applied, is the next one, or why it is refused, by the record of its slot.
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

#[async_trait]
impl PoolStore for RedisPool {
    async fn stamp(&self) -> Result<Option<Stamp>, StoreError> {
        Ok(self.reads.open().await?.stamp)
    }

    async fn put_stamp(&self, stamp: Stamp) -> Result<Stamp, StoreError> {
        match self.reads.open().await?.stamp {
            Some(found) => Ok(found),
            None => self.make(stamp).await,
        }
    }

    async fn fence(&self, slot: Slot, epoch: Epoch) -> Result<MessageId, StoreError> {
        let link = self.write_link(slot);
        let way = link.way().await?;
        let mut call: Cmd = scripts::FENCE.call(&[way.keys.record(slot)]);
        let numbering = Numbering::fresh();
        call.arg(stored::encode_epoch(epoch)).arg(numbering.encode());
        match link.write(way, &scripts::FENCE, call, self.address.waits).await.and_then(read_reply) {
            Ok(ScriptReply::Done(Some(last))) => {
                self.numberings.lock().insert(slot, numbering);
                stored::decode_hex_id(&String::from_utf8_lossy(&last))
            }
            Ok(ScriptReply::Done(None) | ScriptReply::More) => {
                Err(StoreError::Unknown("the fence has no answer".into()))
            }
            // Registration made the record. Without it the storage is not what it was.
            Err(StoreError::WentBack) => {
                Err(StoreError::NotSent(format!("the storage has lost the record of slot {slot}")))
            }
            Err(error) => Err(error),
        }
    }

    async fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        batch::check_bounds(batch)?;
        let link = self.write_link(batch.slot);
        let way = link.way().await?;
        let (script, call) = batch::call(batch, self.own(batch.slot), &way.keys);
        match link.write(way, script, call, self.waits(batch.durability)).await {
            Ok(answer) => read_reply(answer).map(|_| ()),
            Err(StoreError::Full) if self.is_applied(batch).await? => self.wait_again(batch).await,
            Err(error) => Err(error),
        }
    }

    async fn scan(
        &self,
        queue: QueueId,
        order: Order,
        direction: Direction,
        after: Option<Position>,
        messages: usize,
        bytes: usize,
    ) -> Result<Page, StoreError> {
        self.page(PageRequest { queue, order, direction, messages, bytes }, after).await
    }

    async fn group(
        &self,
        queue: QueueId,
        group: &GroupName,
        after: Option<MessageId>,
        messages: usize,
        bytes: usize,
    ) -> Result<Page, StoreError> {
        self.group_page(queue, group, (after, messages, bytes)).await
    }

    async fn groups(
        &self,
        queue: QueueId,
        after: Option<GroupName>,
        limit: usize,
    ) -> Result<Vec<GroupHead>, StoreError> {
        self.group_heads(queue, after, limit).await
    }

    async fn due(
        &self,
        slot: Slot,
        due: Due,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<(QueueId, Header)>, StoreError> {
        match due {
            _ if limit == 0 => Ok(Vec::new()),
            Due::Schedule => self.scheduled(slot, before, limit).await,
            Due::Expiry => self.expired(slot, before, limit).await,
        }
    }

    async fn retained(
        &self,
        queue: QueueId,
        from: Option<RetainedPlace>,
        before: Timestamp,
        limit: usize,
    ) -> Result<RetainedEntries, StoreError> {
        self.read_retained(queue, from, before, limit).await
    }

    async fn get(&self, queue: QueueId, ids: &[MessageId]) -> Result<Vec<Message>, StoreError> {
        self.entries(queue, ids).await
    }

    async fn totals(&self, queue: QueueId) -> Result<Totals, StoreError> {
        self.totals_of(queue).await
    }

    async fn notes(
        &self,
        queue: QueueId,
        kind: u8,
        after: Option<Bytes>,
        limit: usize,
    ) -> Result<Vec<Note>, StoreError> {
        self.notes_of(queue, kind, after, limit).await
    }

    async fn drop_queue(
        &self,
        slot: Slot,
        epoch: Epoch,
        queue: QueueId,
        limit: usize,
    ) -> Result<DropResult, StoreError> {
        let link = self.write_link(slot);
        let way = link.way().await?;
        let names: Vec<_> = way.keys.slot_keys(slot).into_iter().chain(way.keys.queue_keys(queue)).collect();
        let mut call = scripts::DROP.call(&names);
        call.arg(stored::encode_epoch(epoch)).arg(&queue.as_bytes()[..]).arg(limit.min(limits::PAGE));
        match read_reply(link.write(way, &scripts::DROP, call, self.address.waits).await?)? {
            ScriptReply::Done(_) => Ok(DropResult::Done),
            ScriptReply::More => Ok(DropResult::More),
        }
    }

    fn reach(&self) -> Durability {
        self.known.class()
    }

    async fn health(&self) -> Result<Health, StoreError> {
        let way = self.reads.way().await?;
        let mut ask = redis::cmd("GET");
        ask.arg(way.keys.record(Slot(0)));
        let asked = Instant::now();
        self.reads.ask_one(way, &ask).await?;
        let took = asked.elapsed();
        let memory = self.known.memory();
        Ok(Health {
            took,
            class: self.reach(),
            free: memory.map(|(used, most)| most.saturating_sub(used)),
            total: memory.map(|(_, most)| most),
        })
    }

    async fn usage(&self) -> Result<Usage, StoreError> {
        self.usage_of_all().await
    }

    fn check_open(&self) -> Result<(), StoreError> {
        self.reads.check()?;
        self.writes.iter().try_for_each(Link::check)
    }
}
