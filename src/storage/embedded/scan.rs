//! Reads: pages in each order, entries by id, notes. Each read is of one moment.

use bytes::Bytes;

use super::stored::{self, QueueTotals};
use super::{entries, failed};
use crate::domain::ids::{MessageId, QueueId};
use crate::domain::message::{Header, Message};
use crate::domain::time::Timestamp;
use crate::journal::{ReadPair, Space, View};
use crate::storage::{Direction, Note, Order, Page, Position, StoreError, Usage};

/// What a page may hold.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    pub(super) messages: usize,
    pub(super) bytes: usize,
}

pub(super) fn totals(view: &View, queue: QueueId) -> Result<QueueTotals, StoreError> {
    let value = view.get(Space::Totals, queue.as_bytes()).map_err(failed)?;
    QueueTotals::decode(value.as_ref())
}

/// The sum of the totals of all queues.
pub(super) fn usage(view: &View) -> Result<Usage, StoreError> {
    let mut usage = Usage::default();
    for pair in view.scan(Space::Totals, &[], &[]) {
        let (_, value) = pair.map_err(failed)?;
        let QueueTotals { totals, .. } = QueueTotals::decode(Some(&value))?;
        usage.queues += u64::from(totals.messages > 0);
        usage.messages += totals.messages;
        usage.bytes += totals.bytes;
    }
    Ok(usage)
}

/// The header of an entry whose value is known: the one in it, or the one that stands for it.
pub(super) fn header(view: &View, queue: QueueId, message: &Message) -> Result<Header, StoreError> {
    let id = message.header.id;
    match view.get(Space::Headers, &stored::entry_key(queue, id)).map_err(failed)? {
        Some(changed) => entries::decode_header(id, &changed),
        None => Ok(message.header.clone()),
    }
}

/// An entry of a key and value in entries or aside.
pub(super) fn entry(view: &View, queue: QueueId, pair: ReadPair) -> Result<Message, StoreError> {
    let (key, value) = pair.map_err(failed)?;
    let mut message = entries::decode_entry(stored::entry_id(&key)?, &value)?;
    message.header = header(view, queue, &message)?;
    Ok(message)
}

/// The entry of a key in the schedule.
pub(super) fn scheduled(view: &View, queue: QueueId, pair: ReadPair) -> Result<Message, StoreError> {
    let (key, _) = pair.map_err(failed)?;
    let (_, id) = stored::schedule_place(&key)?;
    let missing = || stored::damaged("the schedule of a queue");
    in_place(view, Space::Aside, queue, id)?.ok_or_else(missing)
}

fn in_place(view: &View, space: Space, queue: QueueId, id: MessageId) -> Result<Option<Message>, StoreError> {
    let key = stored::entry_key(queue, id);
    let value = view.get(space, &key).map_err(failed)?;
    value.map(|value| entry(view, queue, Ok((key, value)))).transpose()
}

pub(super) fn get(view: &View, queue: QueueId, ids: &[MessageId]) -> Result<Vec<Message>, StoreError> {
    let mut found = Vec::with_capacity(ids.len());
    for id in ids {
        let message = match in_place(view, Space::Entries, queue, *id)? {
            Some(message) => Some(message),
            None => in_place(view, Space::Aside, queue, *id)?,
        };
        found.extend(message);
    }
    Ok(found)
}

pub(super) fn page(
    view: &View,
    queue: QueueId,
    order: Order,
    direction: Direction,
    after: Option<Position>,
    bounds: Bounds,
) -> Result<Page, StoreError> {
    let low = match order {
        Order::Ready => totals(view, queue)?.low,
        Order::Aside | Order::Schedule => MessageId::ZERO,
    };
    let key = |position: Position| match order {
        Order::Ready | Order::Aside => stored::entry_key(queue, position.id),
        Order::Schedule => stored::schedule_key(queue, position.ready, position.id),
    };
    let (space, end) = match order {
        Order::Ready => (Space::Entries, Timestamp::default()),
        Order::Aside => (Space::Aside, Timestamp::default()),
        Order::Schedule => (Space::Schedule, Timestamp::from_millis(u64::MAX)),
    };
    let (mut first, mut last) = (key(Position::id(low)), key(Position { ready: end, id: MessageId::MAX }));
    let after = after.map(key);
    match (&after, direction) {
        (Some(after), Direction::Up) => first = first.max(after.clone()),
        (Some(after), Direction::Down) => last = last.min(after.clone()),
        (None, _) => {}
    }
    if first > last {
        return Ok(Page { messages: Vec::new(), is_last: true });
    }
    let beyond = move |pair: &ReadPair| pair.as_ref().map_or(true, |(key, _)| Some(key) != after.as_ref());
    let range = view.range(space, &first, &last);
    let message = |pair| match order {
        Order::Ready | Order::Aside => entry(view, queue, pair),
        Order::Schedule => scheduled(view, queue, pair),
    };
    match direction {
        Direction::Up => fill(range.filter(beyond).map(message), bounds),
        Direction::Down => fill(range.rev().filter(beyond).map(message), bounds),
    }
}

fn fill(
    messages: impl Iterator<Item = Result<Message, StoreError>>,
    bounds: Bounds,
) -> Result<Page, StoreError> {
    let mut page = Page { messages: Vec::new(), is_last: true };
    let mut read = 0;
    for message in messages {
        if page.messages.len() == bounds.messages || read > bounds.bytes {
            page.is_last = false;
            break;
        }
        let message = message?;
        read += message.body.len();
        page.messages.push(message);
    }
    Ok(page)
}

pub(super) fn notes(
    view: &View,
    queue: QueueId,
    kind: u8,
    after: Option<&Bytes>,
    limit: usize,
) -> Result<Vec<Note>, StoreError> {
    let prefix = stored::note_prefix(queue, kind);
    let from = after.map_or_else(|| prefix.clone(), |after| stored::note_key(queue, kind, after));
    let is_beyond =
        |pair: &ReadPair| after.is_none() || pair.as_ref().map_or(true, |(key, _)| key[..] != from[..]);
    let note = |pair: ReadPair| {
        let (key, value) = pair.map_err(failed)?;
        stored::decode_note(&key, &value)
    };
    view.scan(Space::Notes, &prefix, &from).filter(is_beyond).map(note).take(limit).collect()
}
