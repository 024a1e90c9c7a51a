//! Owns a pool as simple as can be: the documentation of `PoolStore` in a few maps. The history test holds the
//! drivers against it, and the model tests of the engine use it as their pool. It never fails and keeps no hint.

use std::collections::{BTreeMap, HashMap};

use angarium::domain::ids::{MessageId, QueueId, Slot};
use angarium::domain::message::Message;
use angarium::storage::{Batch, Direction, Epoch, Page, QueueChanges, Totals};

/// What became of a call, without the details of a `StoreError`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Done,
    Fenced(Epoch),
    Stale,
    WentBack,
}

/// The entries of one queue.
#[derive(Clone, Debug, Default)]
pub struct NaiveQueue {
    pub entries: BTreeMap<MessageId, Message>,
}

impl NaiveQueue {
    pub fn apply(&mut self, changes: &QueueChanges) {
        for message in &changes.appends {
            self.entries.insert(message.header.id, message.clone());
        }
        for header in &changes.updates {
            if let Some(entry) = self.entries.get_mut(&header.id) {
                entry.header = header.clone();
            }
        }
        for id in &changes.removes {
            self.entries.remove(id);
        }
    }

    pub fn scan(
        &self,
        direction: Direction,
        after: Option<MessageId>,
        messages: usize,
        bytes: usize,
    ) -> Page {
        let mut wanted: Vec<&Message> = self.entries.values().collect();
        if direction == Direction::Down {
            wanted.reverse();
        }
        wanted.retain(|message| match (after, direction) {
            (None, _) => true,
            (Some(after), Direction::Up) => message.header.id > after,
            (Some(after), Direction::Down) => message.header.id < after,
        });
        let mut page = Page { messages: Vec::new(), is_last: true };
        let mut read = 0;
        for message in wanted {
            if page.messages.len() == messages || read > bytes {
                page.is_last = false;
                break;
            }
            read += message.body.len();
            page.messages.push(message.clone());
        }
        page
    }

    pub fn get(&self, ids: &[MessageId]) -> Vec<Message> {
        ids.iter().filter_map(|id| self.entries.get(id)).cloned().collect()
    }

    pub fn totals(&self) -> Totals {
        let bytes = self.entries.values().map(|message| message.body.len() as u64).sum();
        Totals { messages: self.entries.len() as u64, bytes }
    }
}

#[derive(Clone, Copy)]
struct Record {
    epoch: Epoch,
    seq: u64,
    last_id: MessageId,
}

/// A pool: its queues, and who may write to its slots.
#[derive(Default)]
pub struct NaivePool {
    queues: HashMap<QueueId, NaiveQueue>,
    records: HashMap<Slot, Record>,
}

impl NaivePool {
    pub fn queue(&self, queue: QueueId) -> NaiveQueue {
        self.queues.get(&queue).cloned().unwrap_or_default()
    }

    pub fn fence(&mut self, slot: Slot, epoch: Epoch) -> Result<MessageId, Answer> {
        let record = self.records.entry(slot).or_insert(Record { epoch, seq: 0, last_id: MessageId::ZERO });
        if record.epoch > epoch {
            return Err(Answer::Fenced(record.epoch));
        }
        *record = Record { epoch, seq: 0, last_id: record.last_id };
        Ok(record.last_id)
    }

    pub fn commit(&mut self, batch: &Batch) -> Answer {
        let Some(record) = self.records.get_mut(&batch.slot) else { return Answer::WentBack };
        if record.epoch > batch.epoch {
            return Answer::Fenced(record.epoch);
        }
        if record.epoch < batch.epoch || batch.seq > record.seq + 1 {
            return Answer::WentBack;
        }
        if batch.seq <= record.seq {
            return if batch.seq == record.seq { Answer::Done } else { Answer::Stale };
        }
        record.seq = batch.seq;
        for changes in &batch.queues {
            let appended = changes.appends.iter().map(|message| message.header.id);
            record.last_id = appended.fold(record.last_id, MessageId::max);
            self.queues.entry(changes.queue).or_default().apply(changes);
        }
        Answer::Done
    }
}
