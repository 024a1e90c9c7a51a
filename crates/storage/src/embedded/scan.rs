//! Reads: pages in each order, entries by id, notes. Each read sees one state of the store.

use bytes::Bytes;

use super::entries::{self, StoredBody, StoredEntry};
use super::stored::{self, QueueTotals};
use super::{bodies, failed};
use crate::{Direction, GroupHead, Note, Order, Page, Position, StoreError, Usage};
use angarium_core::group::GroupName;
use angarium_core::ids::{MessageId, QueueId};
use angarium_core::message::{Header, Message};
use angarium_core::time::Timestamp;
use angarium_journal::{ReadPair, Space, View};

/// Bounds of a page.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    pub(super) messages: usize,
    pub(super) bytes: usize,
}

pub(super) fn totals(view: &View, queue: QueueId) -> Result<QueueTotals, StoreError> {
    let value = view.get(Space::Totals, queue.as_bytes()).map_err(failed)?;
    QueueTotals::decode(value.as_ref())
}

/// Returns whether a queue has an entry in any state.
pub(super) fn holds_any(view: &View, queue: QueueId) -> Result<bool, StoreError> {
    // No ready entry is before this position, and the removed ones there are slow to pass.
    let low = totals(view, queue)?.low;
    for (space, first) in
        [(Space::Entries, low), (Space::Aside, MessageId::ZERO), (Space::Kept, MessageId::ZERO)]
    {
        let first = stored::entry_key(queue, first);
        if view.scan(space, queue.as_bytes(), &first).next().transpose().map_err(failed)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Sums the totals of all queues.
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

/// The current header of an entry: the changed one in headers if there is one, otherwise the one in its value.
pub(super) fn header(view: &View, queue: QueueId, stored: &StoredEntry) -> Result<Header, StoreError> {
    let id = stored.header.id;
    match view.get(Space::Headers, &stored::entry_key(queue, id)).map_err(failed)? {
        Some(changed) => entries::decode_header(id, &changed),
        None => Ok(stored.header.clone()),
    }
}

/// The entry of a key and value in entries, aside or kept, with its current header.
pub(super) fn entry(view: &View, queue: QueueId, pair: ReadPair) -> Result<StoredEntry, StoreError> {
    let (key, value) = pair.map_err(failed)?;
    let mut stored = entries::decode_entry(stored::entry_id(&key)?, &value)?;
    stored.header = header(view, queue, &stored)?;
    Ok(stored)
}

/// The message of an entry, with its body. None if that is lost: the message is, as one whose entry is lost.
fn message(view: &View, stored: StoredEntry) -> Result<Option<Message>, StoreError> {
    let body = match stored.body {
        StoredBody::Own(body) => Some(body),
        StoredBody::Shared(place) => bodies::read(view, place)?,
    };
    Ok(body.map(|body| Message { header: stored.header, body }))
}

/// The entry of a key in the schedule.
pub(super) fn scheduled(view: &View, queue: QueueId, pair: ReadPair) -> Result<StoredEntry, StoreError> {
    let (key, _) = pair.map_err(failed)?;
    let missing = || stored::damaged("the schedule of a queue");
    in_place(view, Space::Aside, queue, stored::place(&key)?.id)?.ok_or_else(missing)
}

/// The entry of a key in settled.
pub(super) fn settled(view: &View, queue: QueueId, pair: ReadPair) -> Result<StoredEntry, StoreError> {
    let (key, _) = pair.map_err(failed)?;
    let missing = || stored::damaged("the kept messages of a queue");
    in_place(view, Space::Kept, queue, stored::place(&key)?.id)?.ok_or_else(missing)
}

fn in_place(
    view: &View,
    space: Space,
    queue: QueueId,
    id: MessageId,
) -> Result<Option<StoredEntry>, StoreError> {
    let key = stored::entry_key(queue, id);
    let value = view.get(space, &key).map_err(failed)?;
    value.map(|value| entry(view, queue, Ok((key, value)))).transpose()
}

/// The entry of an id in any state.
fn find(view: &View, queue: QueueId, id: MessageId) -> Result<Option<StoredEntry>, StoreError> {
    for space in [Space::Entries, Space::Aside, Space::Kept] {
        if let Some(stored) = in_place(view, space, queue, id)? {
            return Ok(Some(stored));
        }
    }
    Ok(None)
}

pub(super) fn get(view: &View, queue: QueueId, ids: &[MessageId]) -> Result<Vec<Message>, StoreError> {
    let mut found = Vec::with_capacity(ids.len());
    for id in ids {
        if let Some(stored) = find(view, queue, *id)? {
            found.extend(message(view, stored)?);
        }
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
        Order::Aside | Order::Schedule | Order::Kept => MessageId::ZERO,
    };
    let key = |position: Position| match order {
        Order::Ready | Order::Aside => stored::entry_key(queue, position.id),
        Order::Schedule | Order::Kept => stored::place_key(queue, position),
    };
    let (space, end) = match order {
        Order::Ready => (Space::Entries, Timestamp::default()),
        Order::Aside => (Space::Aside, Timestamp::default()),
        Order::Schedule => (Space::Schedule, Timestamp::from_millis(u64::MAX)),
        Order::Kept => (Space::Settled, Timestamp::from_millis(u64::MAX)),
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
    let stored = |pair| match order {
        Order::Ready | Order::Aside => entry(view, queue, pair),
        Order::Schedule => scheduled(view, queue, pair),
        Order::Kept => settled(view, queue, pair),
    };
    let read = |pair| stored(pair).and_then(|stored| message(view, stored)).transpose();
    match direction {
        Direction::Up => fill(range.filter(beyond).filter_map(read), bounds),
        Direction::Down => fill(range.rev().filter(beyond).filter_map(read), bounds),
    }
}

/// The message of a key in groups. None if its body is lost.
fn grouped(view: &View, queue: QueueId, pair: ReadPair) -> Result<Option<Message>, StoreError> {
    let (key, _) = pair.map_err(failed)?;
    let (_, id) = stored::group_place(&key)?;
    let missing = || stored::damaged("a group of a queue");
    message(view, find(view, queue, id)?.ok_or_else(missing)?)
}

pub(super) fn group(
    view: &View,
    queue: QueueId,
    group: &GroupName,
    after: Option<MessageId>,
    bounds: Bounds,
) -> Result<Page, StoreError> {
    let Some(first) =
        after.map_or(Some(MessageId::ZERO), |after| Some(after.next()).filter(|id| *id > after))
    else {
        return Ok(Page { messages: Vec::new(), is_last: true });
    };
    let (first, last) =
        (stored::group_key(queue, group, first), stored::group_key(queue, group, MessageId::MAX));
    let pairs = view.range(Space::Groups, &first, &last);
    fill(pairs.filter_map(|pair| grouped(view, queue, pair).transpose()), bounds)
}

pub(super) fn groups(
    view: &View,
    queue: QueueId,
    after: Option<GroupName>,
    limit: usize,
) -> Result<Vec<GroupHead>, StoreError> {
    let mut heads: Vec<GroupHead> = Vec::new();
    let behind = |group: &GroupName| stored::group_key(queue, group, MessageId::MAX);
    let mut from = after.map_or_else(|| Bytes::copy_from_slice(queue.as_bytes()), |after| behind(&after));
    'groups: while heads.len() < limit {
        let mut head: Option<(GroupName, Message)> = None;
        // One seek for each group: if groups have one entry each, the same iteration finds the next group.
        for pair in view.scan(Space::Groups, queue.as_bytes(), &from) {
            let (key, value) = pair.map_err(failed)?;
            let (group, _) = stored::group_place(&key)?;
            match &head {
                Some((known, _)) if *known == group => {
                    from = behind(&group);
                    heads.extend(head.map(|(_, message)| GroupHead { message, is_only: false }));
                    continue 'groups;
                }
                _ if key == from => continue,
                _ => {}
            }
            heads.extend(head.take().map(|(_, message)| GroupHead { message, is_only: true }));
            if heads.len() >= limit {
                break 'groups;
            }
            head = grouped(view, queue, Ok((key, value)))?.map(|message| (group, message));
        }
        heads.extend(head.map(|(_, message)| GroupHead { message, is_only: true }));
        break;
    }
    Ok(heads)
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
        read += message.body.len() + message.header.extras_bytes();
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
