//! Reads: pages in each order, entries by id, notes, totals. Each call of a script is atomic; a long page takes several
//! calls, so that no call blocks the server for long.

use async_trait::async_trait;
use bytes::Bytes;
use redis::{Cmd, Value};

use super::RedisPool;
use super::errors::strange;
use super::limits;
use super::scripts::{GET, GROUPS, NOTES, SCAN, TOTALS};
use super::stored::{self, HEAD_BYTES, damaged};
use crate::{Direction, GroupHead, Note, Order, Page, PoolReads, Position, StoreError, Totals, Usage};
use angarium_core::group::GroupName;
use angarium_core::ids::{MessageId, QueueId, Slot};
use angarium_core::message::Message;

/// The parameters of a scan.
pub(super) struct PageRequest {
    pub(super) queue: QueueId,
    pub(super) order: Order,
    pub(super) direction: Direction,
    pub(super) messages: usize,
    pub(super) bytes: usize,
}

/// The elements of a list.
pub(super) fn list(value: Value) -> Result<Vec<Value>, StoreError> {
    match value {
        Value::Array(values) => Ok(values),
        other => Err(unexpected(&other)),
    }
}

pub(super) fn bytes(value: Value) -> Result<Bytes, StoreError> {
    match value {
        Value::BulkString(bytes) => Ok(bytes.into()),
        Value::SimpleString(text) => Ok(text.into()),
        other => Err(unexpected(&other)),
    }
}

/// Names and values of a hash.
fn pairs(value: Value) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
    let flat = match value {
        Value::Map(pairs) => {
            return pairs.into_iter().map(|(name, value)| Ok((bytes(name)?, bytes(value)?))).collect();
        }
        other => list(other)?,
    };
    let mut flat = flat.into_iter();
    let mut pairs = Vec::with_capacity(flat.len() / 2);
    while let (Some(name), Some(value)) = (flat.next(), flat.next()) {
        pairs.push((bytes(name)?, bytes(value)?));
    }
    Ok(pairs)
}

fn number(value: &Value) -> Result<u64, StoreError> {
    match value {
        Value::Int(number) => Ok(u64::try_from(*number).unwrap_or(0)),
        other => Err(unexpected(other)),
    }
}

fn unexpected(value: &Value) -> StoreError {
    StoreError::NotSent(strange(value).to_string())
}

/// An entry from its value; `header`, if not empty, replaces the header in the value.
fn message(id: MessageId, value: &Bytes, header: &Bytes) -> Result<Message, StoreError> {
    if value.len() < HEAD_BYTES {
        return Err(damaged("a message"));
    }
    let header = stored::decode_header(id, if header.is_empty() { value } else { header })?;
    Ok(Message { header, body: value.slice(HEAD_BYTES..) })
}

/// Adds the entries of an answer to a page, and sets whether it is the last page.
fn add_entries(answer: Value, page: &mut Page) -> Result<(), StoreError> {
    let mut answer = list(answer)?.into_iter();
    page.is_last = answer.next().as_ref().map(number).transpose()? == Some(1);
    while let (Some(id), Some(value), Some(header)) = (answer.next(), answer.next(), answer.next()) {
        let id = stored::decode_id(&bytes(id)?)?;
        page.messages.push(message(id, &bytes(value)?, &bytes(header)?)?);
    }
    Ok(())
}

impl PageRequest {
    /// The Redis command, and the bounds of the range after `after`.
    fn range(&self, after: Option<Position>) -> (&'static str, Vec<u8>, Vec<u8>) {
        let member = |position: Position| match self.order {
            Order::Ready | Order::Aside => position.id.as_bytes().to_vec(),
            Order::Schedule | Order::Kept => stored::timed_member(position),
        };
        let (command, first, last) = match self.direction {
            Direction::Up => ("ZRANGEBYLEX", b"-", b"+"),
            Direction::Down => ("ZREVRANGEBYLEX", b"+", b"-"),
        };
        let first = after.map_or_else(|| first.to_vec(), |after| [b"(", &member(after)[..]].concat());
        (command, first, last.to_vec())
    }
}

impl RedisPool {
    /// Adds the entries of one call to a page. Returns whether there may be more.
    async fn part(
        &self,
        request: &PageRequest,
        after: Option<Position>,
        messages: usize,
        bytes_left: usize,
        page: &mut Page,
    ) -> Result<bool, StoreError> {
        let session = self.reads.session().await?;
        let (order, skip) = match request.order {
            Order::Ready => ("ready", 1),
            Order::Aside => ("aside", 1),
            Order::Schedule => ("scheduled", 9),
            Order::Kept => ("kept", 9),
        };
        let (command, first, last) = request.range(after);
        let mut call = SCAN.call(&session.keys.order_keys(request.queue, order));
        call.arg(command).arg(first).arg(last);
        call.arg(messages).arg(bytes_left.min(limits::PAGE_BYTES)).arg(skip).arg(limits::PAGE_BYTES);
        add_entries(self.reads.read(session, &SCAN, &call).await?, page)?;
        Ok(!page.is_last)
    }
}

#[async_trait]
impl PoolReads for RedisPool {
    async fn scan(
        &self,
        queue: QueueId,
        order: Order,
        direction: Direction,
        after: Option<Position>,
        messages: usize,
        bytes: usize,
    ) -> Result<Page, StoreError> {
        let request = PageRequest { queue, order, direction, messages, bytes };
        let mut page = Page { messages: Vec::new(), is_last: false };
        let (mut read, mut after) = (0, after);
        loop {
            let messages = (request.messages - page.messages.len()).min(limits::PAGE);
            let is_part = self.part(&request, after, messages, request.bytes - read, &mut page).await?;
            let last = page.messages.last();
            read = page.bytes();
            if page.is_last || !is_part || page.messages.len() >= request.messages || read > request.bytes {
                return Ok(page);
            }
            after = last.map(|message| Position::of(&message.header));
        }
    }

    async fn group(
        &self,
        queue: QueueId,
        group: &GroupName,
        after: Option<MessageId>,
        messages: usize,
        bytes: usize,
    ) -> Result<Page, StoreError> {
        let mut after = after;
        let mut page = Page { messages: Vec::new(), is_last: false };
        let prefix = stored::group_prefix(group);
        let last = [b"(", group.as_str().as_bytes(), &[1]].concat();
        loop {
            let many = (messages - page.messages.len()).min(limits::PAGE);
            let read = page.bytes();
            let bound = match after {
                Some(after) => [b"(", &prefix[..], after.as_bytes()].concat(),
                None => [b"[", &prefix[..]].concat(),
            };
            let session = self.reads.session().await?;
            let mut call = SCAN.call(&session.keys.order_keys(queue, "groups"));
            call.arg("ZRANGEBYLEX").arg(bound).arg(&last[..]);
            call.arg(many).arg((bytes - read).min(limits::PAGE_BYTES)).arg(prefix.len() + 1);
            call.arg(limits::PAGE_BYTES);
            let answer = self.reads.read(session, &SCAN, &call).await?;
            add_entries(answer, &mut page)?;
            if page.is_last || page.messages.len() >= messages || page.bytes() > bytes {
                return Ok(page);
            }
            after = page.messages.last().map(|message| message.header.id);
        }
    }

    async fn groups(
        &self,
        queue: QueueId,
        after: Option<GroupName>,
        limit: usize,
    ) -> Result<Vec<GroupHead>, StoreError> {
        let mut after = after;
        let mut heads: Vec<GroupHead> = Vec::new();
        while heads.len() < limit {
            let many = (limit - heads.len()).min(limits::GET);
            let bound =
                after.map_or_else(|| b"-".to_vec(), |after| [b"[", after.as_str().as_bytes(), &[1]].concat());
            let session = self.reads.session().await?;
            let mut call = GROUPS.call(&session.keys.order_keys(queue, "groups"));
            call.arg(bound).arg(many);
            let mut answer = list(self.reads.read(session, &GROUPS, &call).await?)?.into_iter();
            let known = heads.len();
            while let (Some(id), Some(value), Some(header), Some(is_only)) =
                (answer.next(), answer.next(), answer.next(), answer.next())
            {
                let message = message(stored::decode_id(&bytes(id)?)?, &bytes(value)?, &bytes(header)?)?;
                heads.push(GroupHead { message, is_only: number(&is_only)? == 1 });
            }
            if heads.len() < known + many {
                break;
            }
            after = heads.last().and_then(|head| head.message.header.group.clone());
        }
        Ok(heads)
    }

    async fn get(&self, queue: QueueId, ids: &[MessageId]) -> Result<Vec<Message>, StoreError> {
        let mut found = Vec::with_capacity(ids.len());
        for ids in ids.chunks(limits::GET) {
            let session = self.reads.session().await?;
            let mut call = GET.call(&session.keys.entry_keys(queue));
            ids.iter().for_each(|id| {
                call.arg(&id.as_bytes()[..]);
            });
            let mut answer = list(self.reads.read(session, &GET, &call).await?)?.into_iter();
            for id in ids {
                let (Some(value), Some(header)) = (answer.next(), answer.next()) else {
                    return Err(damaged("an answer"));
                };
                let (value, header) = (bytes(value)?, bytes(header)?);
                if !value.is_empty() {
                    found.push(message(*id, &value, &header)?);
                }
            }
        }
        Ok(found)
    }

    async fn holds_any(&self, queue: QueueId) -> Result<bool, StoreError> {
        let session = self.reads.session().await?;
        let mut command = redis::cmd("EXISTS");
        command.arg(session.keys.of_queue(queue, "entries"));
        Ok(number(&self.reads.query(session, &command).await?)? > 0)
    }

    async fn totals(&self, queue: QueueId) -> Result<Totals, StoreError> {
        let session = self.reads.session().await?;
        let mut call = TOTALS.call(&session.keys.totals_keys(queue));
        call.arg(&queue.as_bytes()[..]);
        let answer = list(self.reads.read(session, &TOTALS, &call).await?)?;
        let numbers = answer.iter().map(number).collect::<Result<Vec<_>, _>>()?;
        let &[messages, bytes, scheduled, aside, kept, shared, lent] = &numbers[..] else {
            return Err(damaged("an answer"));
        };
        let in_transfer = aside.saturating_sub(scheduled);
        Ok(Totals { messages, bytes, scheduled, in_transfer, kept, shared, lent })
    }

    async fn notes(
        &self,
        queue: QueueId,
        kind: u8,
        after: Option<Bytes>,
        limit: usize,
    ) -> Result<Vec<Note>, StoreError> {
        let mut found: Vec<Note> = Vec::new();
        let mut after = after;
        while found.len() < limit {
            let many = (limit - found.len()).min(limits::PAGE);
            let session = self.reads.session().await?;
            let call = notes_call(
                &["notes", "names"].map(|what| session.keys.of_queue(queue, what)),
                kind,
                after,
                many,
            );
            let mut answer = list(self.reads.read(session, &NOTES, &call).await?)?.into_iter();
            let known = found.len();
            while let (Some(name), Some(value)) = (answer.next(), answer.next()) {
                found.push(stored::decode_note(bytes(name)?, bytes(value)?)?);
            }
            if found.len() < known + many {
                break;
            }
            after = found.last().map(|note| note.key.clone());
        }
        Ok(found)
    }

    async fn usage(&self) -> Result<Usage, StoreError> {
        let mut usage = Usage::default();
        for slot in Slot::all() {
            let session = self.reads.session().await?;
            let mut command = redis::cmd("HGETALL");
            command.arg(session.keys.of_slot(slot, "bytes"));
            let (mut counts, answer) = (Vec::new(), self.reads.query(session, &command).await?);
            let session = self.reads.session().await?;
            for (queue, size) in pairs(answer)? {
                let queue = queue[..].try_into().map_err(|_| damaged("the id of a queue"))?;
                let mut count = redis::cmd("HLEN");
                count.arg(session.keys.of_queue(QueueId::from_bytes(queue), "entries"));
                counts.push(count);
                let size = str::from_utf8(&size).ok().and_then(|size| size.parse::<u64>().ok());
                usage.bytes += size.ok_or_else(|| damaged("the bytes of a queue"))?;
            }
            usage.queues += counts.len() as u64;
            for some in counts.chunks(limits::PAGE) {
                let session = self.reads.session().await?;
                for count in self.reads.query_each(session, some).await? {
                    usage.messages += number(&count)?;
                }
            }
        }
        Ok(usage)
    }
}

fn notes_call(names: &[String; 2], kind: u8, after: Option<Bytes>, limit: usize) -> Cmd {
    let first = match &after {
        Some(after) => [b"(", &stored::note_name(kind, after)[..]].concat(),
        None => vec![b'[', kind],
    };
    let last = kind.checked_add(1).map_or_else(|| b"+".to_vec(), |next| vec![b'(', next]);
    let mut call = NOTES.call(names);
    call.arg(first).arg(last).arg(limit);
    call
}
