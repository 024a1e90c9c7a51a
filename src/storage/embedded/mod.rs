//! The embedded driver: entries in the journal, in the process that owns its directory.
//!
//! A batch is one piece of the committer's work. Its record is checked and moved on in the same piece, so an
//! engine of this process that was replaced cannot write after its successor.

mod stored;

use async_trait::async_trait;
use bytes::Bytes;

use super::{Batch, Direction, Epoch, Page, PoolStore, QueueChanges, Stamp, StoreError, Totals};
use crate::domain::ids::{MessageId, QueueId, Slot};
use crate::domain::message::Message;
use crate::journal::{Journal, JournalError, Space, Txn};
use stored::{QueueTotals, Record};

/// A pool in a journal.
pub struct EmbeddedPool {
    journal: Journal,
}

impl EmbeddedPool {
    /// The pool in `journal`.
    pub fn new(journal: Journal) -> Self {
        Self { journal }
    }

    /// Runs a read that may wait for the disk away from the threads that serve requests.
    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Journal) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let journal = self.journal.clone();
        let task = tokio::task::spawn_blocking(move || read(&journal));
        task.await.map_err(|error| StoreError::NotSent(error.to_string()))?
    }
}

#[async_trait]
impl PoolStore for EmbeddedPool {
    async fn stamp(&self) -> Result<Option<Stamp>, StoreError> {
        let value = self.journal.get(Space::Stamps, stored::STAMP_KEY).map_err(failed)?;
        value.map(|value| stored::decode_stamp(&value)).transpose()
    }

    async fn register(&self, stamp: Stamp) -> Result<(), StoreError> {
        let work = move |txn: &mut Txn<'_>| match txn.get(Space::Stamps, stored::STAMP_KEY).map_err(failed)? {
            Some(value) => match stored::decode_stamp(&value)? {
                found if found == stamp => Ok(()),
                found => Err(StoreError::Stamped(found)),
            },
            None => {
                let key = Bytes::from_static(stored::STAMP_KEY);
                txn.put(Space::Stamps, key, stored::encode_stamp(stamp));
                Ok(())
            }
        };
        self.journal.commit(work).await.map_err(failed)?
    }

    async fn fence(&self, slot: Slot, epoch: Epoch) -> Result<MessageId, StoreError> {
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
        let queues: Vec<Encoded> = batch.queues.iter().map(Encoded::new).collect();
        let work = move |txn: &mut Txn<'_>| {
            let Some(mut record) = due(record(txn, slot)?, epoch, seq)? else { return Ok(()) };
            let known = queues.iter().map(|queue| queue.look_up(txn)).collect::<Result<Vec<_>, _>>()?;
            // From here on nothing can fail, so no batch is ever half in a group.
            for (queue, known) in queues.into_iter().zip(known) {
                record.last_id = record.last_id.max(queue.last_id);
                queue.write(txn, known);
            }
            record.seq = seq;
            txn.put(Space::Records, stored::record_key(slot), record.encode());
            Ok(())
        };
        self.journal.commit(work).await.map_err(failed)?
    }

    async fn scan(
        &self,
        queue: QueueId,
        direction: Direction,
        after: Option<MessageId>,
        messages: usize,
        bytes: usize,
    ) -> Result<Page, StoreError> {
        self.read(move |journal| match direction {
            Direction::Up => {
                let from = match after {
                    Some(after) => after,
                    None => totals(journal, queue)?.low,
                };
                let pairs = journal.scan(Space::Entries, queue.as_bytes(), &stored::entry_key(queue, from));
                page(journal, queue, pairs, |id| after.is_none_or(|after| id > after), messages, bytes)
            }
            Direction::Down => {
                let last = after.map_or(MessageId::MAX, MessageId::before);
                let first = totals(journal, queue)?.low.min(last);
                let (first, last) = (stored::entry_key(queue, first), stored::entry_key(queue, last));
                let pairs = journal.scan_back(Space::Entries, &first, &last);
                page(journal, queue, pairs, |id| after.is_none_or(|after| id < after), messages, bytes)
            }
        })
        .await
    }

    async fn get(&self, queue: QueueId, ids: &[MessageId]) -> Result<Vec<Message>, StoreError> {
        let ids = ids.to_vec();
        self.read(move |journal| {
            let mut found = Vec::with_capacity(ids.len());
            for id in ids {
                let key = stored::entry_key(queue, id);
                if let Some(value) = journal.get(Space::Entries, &key).map_err(failed)? {
                    found.push(entry(journal, queue, id, &value)?);
                }
            }
            Ok(found)
        })
        .await
    }

    async fn totals(&self, queue: QueueId) -> Result<Totals, StoreError> {
        Ok(totals(&self.journal, queue)?.totals)
    }

    fn check_open(&self) -> Result<(), StoreError> {
        self.journal.check_open().map_err(failed)
    }
}

fn failed(error: JournalError) -> StoreError {
    match error {
        JournalError::Busy | JournalError::Closed(_) | JournalError::Read(_) => {
            StoreError::NotSent(error.to_string())
        }
        JournalError::Unknown(_) => StoreError::Unknown(error.to_string()),
    }
}

fn record(txn: &Txn<'_>, slot: Slot) -> Result<Option<Record>, StoreError> {
    let value = txn.get(Space::Records, &stored::record_key(slot)).map_err(failed)?;
    value.map(|value| Record::decode(&value)).transpose()
}

/// Whether the batch is the next one: its record then, none when it was applied before, or why it is refused.
fn due(record: Option<Record>, epoch: Epoch, seq: u64) -> Result<Option<Record>, StoreError> {
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

fn totals(journal: &Journal, queue: QueueId) -> Result<QueueTotals, StoreError> {
    let value = journal.get(Space::Totals, queue.as_bytes()).map_err(failed)?;
    QueueTotals::decode(value.as_ref())
}

fn entry(journal: &Journal, queue: QueueId, id: MessageId, value: &Bytes) -> Result<Message, StoreError> {
    let mut message = stored::decode_entry(id, value)?;
    let key = stored::entry_key(queue, id);
    if let Some(changed) = journal.get(Space::Headers, &key).map_err(failed)? {
        message.header = stored::decode_header(id, &changed)?;
    }
    Ok(message)
}

fn page(
    journal: &Journal,
    queue: QueueId,
    pairs: impl Iterator<Item = crate::journal::ReadPair>,
    wanted: impl Fn(MessageId) -> bool,
    messages: usize,
    bytes: usize,
) -> Result<Page, StoreError> {
    let mut page = Page { messages: Vec::new(), is_last: true };
    let mut read = 0;
    for pair in pairs {
        let (key, value) = pair.map_err(failed)?;
        let id = stored::entry_id(&key)?;
        if !wanted(id) {
            continue;
        }
        if page.messages.len() == messages || read > bytes {
            page.is_last = false;
            break;
        }
        let message = entry(journal, queue, id, &value)?;
        read += message.body.len();
        page.messages.push(message);
    }
    Ok(page)
}

/// The changes of one queue, ready to be written.
struct Encoded {
    queue: QueueId,
    low: MessageId,
    /// Id, body bytes, value.
    appends: Vec<(MessageId, u32, Bytes)>,
    updates: Vec<(MessageId, Bytes)>,
    /// In order, each once.
    removes: Vec<MessageId>,
    /// The greatest id among the appends, also of those that the batch removes again.
    last_id: MessageId,
}

/// What the committed state says of the keys of a batch.
struct Known {
    totals: QueueTotals,
    /// Of each remove: its value's length, and whether its header was ever updated.
    removes: Vec<Option<(u32, bool)>>,
    updates: Vec<bool>,
}

impl Encoded {
    fn new(changes: &QueueChanges) -> Self {
        let mut removes = changes.removes.clone();
        removes.sort_unstable();
        removes.dedup();
        let append = |m: &Message| (m.header.id, m.header.size, stored::encode_entry(m));
        let stays = |id: &MessageId| removes.binary_search(id).is_err();
        let appends = changes.appends.iter().filter(|message| stays(&message.header.id));
        let updates = changes.updates.iter().filter(|header| stays(&header.id));
        Self {
            queue: changes.queue,
            low: changes.low,
            appends: appends.map(append).collect(),
            updates: updates.map(|header| (header.id, stored::encode_header(header))).collect(),
            last_id: changes.appends.iter().map(|m| m.header.id).max().unwrap_or(MessageId::ZERO),
            removes,
        }
    }

    fn look_up(&self, txn: &Txn<'_>) -> Result<Known, StoreError> {
        let totals = txn.get(Space::Totals, self.queue.as_bytes()).map_err(failed)?;
        let size = |space, id| txn.size_of(space, &stored::entry_key(self.queue, id)).map_err(failed);
        let remove = |&id: &MessageId| match size(Space::Entries, id)? {
            Some(bytes) => Ok(Some((bytes, size(Space::Headers, id)?.is_some()))),
            None => Ok(None),
        };
        Ok(Known {
            totals: QueueTotals::decode(totals.as_ref())?,
            removes: self.removes.iter().map(remove).collect::<Result<_, StoreError>>()?,
            updates: self
                .updates
                .iter()
                .map(|(id, _)| Ok(size(Space::Entries, *id)?.is_some() || self.is_new(*id)))
                .collect::<Result<_, StoreError>>()?,
        })
    }

    /// Whether the entry comes with this batch, so that the store does not have it yet.
    fn is_new(&self, id: MessageId) -> bool {
        self.appends.iter().any(|(append, ..)| *append == id)
    }

    fn write(self, txn: &mut Txn<'_>, known: Known) {
        let mut totals = known.totals;
        totals.low = totals.low.max(self.low);
        for (id, bytes, value) in self.appends {
            totals.low = totals.low.min(id);
            totals.totals.messages += 1;
            totals.totals.bytes += u64::from(bytes);
            txn.put(Space::Entries, stored::entry_key(self.queue, id), value);
        }
        for ((id, value), exists) in self.updates.into_iter().zip(known.updates) {
            if exists {
                txn.put(Space::Headers, stored::entry_key(self.queue, id), value);
            }
        }
        for (id, found) in self.removes.into_iter().zip(known.removes) {
            let Some((length, has_header)) = found else { continue };
            totals.totals.messages = totals.totals.messages.saturating_sub(1);
            totals.totals.bytes = totals.totals.bytes.saturating_sub(stored::body_bytes(length));
            let key = stored::entry_key(self.queue, id);
            if has_header {
                txn.remove(Space::Headers, key.clone());
            }
            txn.remove(Space::Entries, key);
        }
        txn.put(Space::Totals, Bytes::copy_from_slice(self.queue.as_bytes()), totals.encode());
    }
}
