//! The simplest possible pool: the documentation of `PoolStore` as a few maps. The history test compares the drivers
//! with it, and the model tests of the engine use it as their pool. It never fails, and stores no hints.

use std::collections::BTreeMap;

use bytes::Bytes;

use angarium_core::group::GroupName;
use angarium_core::ids::{MessageId, QueueId, Slot};
use angarium_core::message::{Header, Message, Retention, State};
use angarium_core::time::Timestamp;
use angarium_storage::{
    Batch, Changes, Direction, DropResult, Due, Epoch, GroupHead, Note, Order, Page, Position, QueueChanges,
    RemoveHint, Totals,
};

/// Result of a call, without the details of a `StoreError`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Done,
    Fenced(Epoch),
    Stale,
    WentBack,
}

/// The entries and notes of one queue.
#[derive(Clone, Debug, Default)]
pub struct NaiveQueue {
    pub entries: BTreeMap<MessageId, Message>,
    pub notes: BTreeMap<(u8, Bytes), Note>,
}

impl NaiveQueue {
    /// Whether the entry of a hint is stored as the hint states.
    pub fn is_right(&self, hint: &RemoveHint) -> bool {
        self.entries.get(&hint.id).is_some_and(|Message { header, body }| {
            header.state == State::Ready && header.group == hint.group && body.len() as u64 == hint.bytes
        })
    }

    pub fn apply(&mut self, changes: &Changes) {
        // A pool does not look up a hinted entry: the hint must be right.
        for hint in &changes.remove_hints {
            assert!(self.is_right(hint), "the pool has it otherwise: {hint:?}");
        }
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
        for gone in &changes.note_removes {
            self.notes.remove(gone);
        }
        for note in &changes.notes {
            self.notes.insert((note.kind, note.key.clone()), note.clone());
        }
    }

    pub fn scan(
        &self,
        order: Order,
        direction: Direction,
        after: Option<Position>,
        messages: usize,
        bytes: usize,
    ) -> Page {
        let place = |header: &Header| match order {
            Order::Ready | Order::Aside => Position::id(header.id),
            Order::Schedule | Order::Kept => Position::of(header),
        };
        let after = after.map(|after| match order {
            Order::Ready | Order::Aside => Position::id(after.id),
            Order::Schedule | Order::Kept => after,
        });
        let mut wanted: Vec<&Message> = self.entries.values().collect();
        wanted.retain(|message| match (order, &message.header.state) {
            (Order::Ready, state) => *state == State::Ready,
            (Order::Aside, state) => *state != State::Ready && !state.is_kept(),
            (Order::Schedule, state) => *state == State::Scheduled,
            (Order::Kept, state) => state.is_kept(),
        });
        wanted.sort_by_key(|message| place(&message.header));
        if direction == Direction::Down {
            wanted.reverse();
        }
        wanted.retain(|message| match (after, direction) {
            (None, _) => true,
            (Some(after), Direction::Up) => place(&message.header) > after,
            (Some(after), Direction::Down) => place(&message.header) < after,
        });
        page(wanted.into_iter(), messages, bytes)
    }

    pub fn group(&self, group: &GroupName, after: Option<MessageId>, messages: usize, bytes: usize) -> Page {
        let of_group = self.grouped().filter(|(of, _)| *of == group).map(|(_, message)| message);
        let wanted = of_group.filter(|message| after.is_none_or(|after| message.header.id > after));
        page(wanted, messages, bytes)
    }

    pub fn groups(&self, after: Option<&GroupName>, limit: usize) -> Vec<GroupHead> {
        let mut heads: BTreeMap<&GroupName, GroupHead> = BTreeMap::new();
        for (group, message) in self.grouped() {
            let head = || GroupHead { message: message.clone(), is_only: true };
            heads.entry(group).and_modify(|head| head.is_only = false).or_insert_with(head);
        }
        let behind = heads.into_iter().filter(|(group, _)| after.is_none_or(|after| *group > after));
        behind.map(|(_, head)| head).take(limit).collect()
    }

    /// The entries of groups: kept entries are in none.
    fn grouped(&self) -> impl Iterator<Item = (&GroupName, &Message)> {
        let others = self.entries.values().filter(|message| !message.header.state.is_kept());
        others.filter_map(|message| Some((message.header.group.as_ref()?, message)))
    }

    pub fn get(&self, ids: &[MessageId]) -> Vec<Message> {
        ids.iter().filter_map(|id| self.entries.get(id)).cloned().collect()
    }

    pub fn totals(&self) -> Totals {
        let bytes = self.entries.values().map(|message| message.body.len() as u64).sum();
        let count = |is: fn(&State) -> bool| {
            self.entries.values().filter(|message| is(&message.header.state)).count() as u64
        };
        Totals {
            messages: self.entries.len() as u64,
            bytes,
            scheduled: count(|state| *state == State::Scheduled),
            in_transfer: count(|state| {
                matches!(state, State::Prepared(_) | State::Moving(_) | State::NoTarget)
            }),
            kept: count(State::is_kept),
            // It stores each body with its entry.
            shared: 0,
            lent: 0,
        }
    }

    pub fn notes(&self, kind: u8, after: Option<&Bytes>, limit: usize) -> Vec<Note> {
        let of_kind = self.notes.values().filter(|note| note.kind == kind);
        of_kind.filter(|note| after.is_none_or(|after| note.key > *after)).take(limit).cloned().collect()
    }
}

fn page<'a>(wanted: impl Iterator<Item = &'a Message>, messages: usize, bytes: usize) -> Page {
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

#[derive(Clone, Copy, Debug)]
struct Record {
    epoch: Epoch,
    seq: u64,
    last_id: MessageId,
}

/// A pool: its queues, and the records of its slots.
#[derive(Clone, Debug, Default)]
pub struct NaivePool {
    queues: BTreeMap<QueueId, NaiveQueue>,
    records: BTreeMap<Slot, Record>,
}

impl NaivePool {
    pub fn queue(&self, queue: QueueId) -> NaiveQueue {
        self.queues.get(&queue).cloned().unwrap_or_default()
    }

    /// The queues that a batch ever changed, except the dropped ones.
    pub fn queues(&self) -> &BTreeMap<QueueId, NaiveQueue> {
        &self.queues
    }

    pub fn fence(&mut self, slot: Slot, epoch: Epoch) -> Result<MessageId, Answer> {
        let record = self.records.entry(slot).or_insert(Record { epoch, seq: 0, last_id: MessageId::ZERO });
        if record.epoch > epoch {
            return Err(Answer::Fenced(record.epoch));
        }
        *record = Record { epoch, seq: 0, last_id: record.last_id };
        Ok(record.last_id)
    }

    /// The entries of a queue that live by queue, with a base time of `before` or earlier.
    pub fn retained(&self, queue: QueueId, before: Timestamp) -> Vec<Header> {
        let shows = |header: &&Header| !matches!(header.state, State::Prepared(_) | State::Moving(_));
        let entries = self.queues.get(&queue).into_iter().flat_map(|held| held.entries.values());
        let headers = entries.map(|message| &message.header).filter(shows);
        let is_over = |header: &&Header| header.life.retained_since().is_some_and(|since| since <= before);
        headers.filter(is_over).cloned().collect()
    }

    /// All due entries, the earliest first.
    pub fn due(&self, slot: Slot, kind: Due, before: Timestamp) -> Vec<(QueueId, Header)> {
        let time = |header: &Header| match kind {
            Due::Schedule => header.ready,
            Due::Expiry => header.expires(Retention::LONGEST),
        };
        let shows = |state: &State| match kind {
            Due::Schedule => *state == State::Scheduled,
            Due::Expiry => !matches!(state, State::Prepared(_) | State::Moving(_)),
        };
        let of_slot = self.queues.iter().filter(|(queue, _)| queue.slot() == slot);
        let headers = of_slot
            .flat_map(|(queue, held)| held.entries.values().map(|message| (*queue, message.header.clone())));
        let mut due: Vec<_> =
            headers.filter(|(_, header)| shows(&header.state) && time(header) <= before).collect();
        due.retain(|(_, header)| kind == Due::Schedule || header.life.retained_since().is_none());
        due.sort_by_key(|(queue, header)| (time(header), *queue, header.id));
        due
    }

    /// Whether the slot was ever fenced.
    pub fn is_fenced(&self, slot: Slot) -> bool {
        self.records.contains_key(&slot)
    }

    /// The epoch that may write to a slot.
    pub fn epoch(&self, slot: Slot) -> Option<Epoch> {
        Some(self.records.get(&slot)?.epoch)
    }

    pub fn drop_queue(&mut self, queue: QueueId) {
        self.queues.remove(&queue);
    }

    /// Removes at most `limit` entries of a queue, and with the last one its notes.
    pub fn drop_entries(&mut self, queue: QueueId, limit: usize) -> DropResult {
        if let Some(held) = self.queues.get_mut(&queue) {
            for _ in 0..limit {
                held.entries.pop_first();
            }
            if !held.entries.is_empty() {
                return DropResult::More;
            }
        }
        self.drop_queue(queue);
        DropResult::Done
    }

    /// The answer to a batch that changes nothing; none for the next batch of its slot.
    pub fn answer_without_change(&self, batch: &Batch) -> Option<Answer> {
        let Some(record) = self.records.get(&batch.slot) else { return Some(Answer::WentBack) };
        if record.epoch > batch.epoch {
            return Some(Answer::Fenced(record.epoch));
        }
        if record.epoch < batch.epoch || batch.seq > record.seq + 1 {
            return Some(Answer::WentBack);
        }
        if batch.seq <= record.seq {
            return Some(if batch.seq == record.seq { Answer::Done } else { Answer::Stale });
        }
        None
    }

    pub fn commit(&mut self, batch: &Batch) -> Answer {
        if let Some(answer) = self.answer_without_change(batch) {
            return answer;
        }
        let Some(record) = self.records.get_mut(&batch.slot) else { return Answer::WentBack };
        record.seq = batch.seq;
        for QueueChanges { queue, changes, .. } in &batch.queues {
            let appended = changes.appends.iter().map(|message| message.header.id);
            record.last_id = appended.fold(record.last_id, MessageId::max);
            self.queues.entry(*queue).or_default().apply(changes);
        }
        Answer::Done
    }
}
