//! The layout of a pool in the journal. These forms are on disk, so they never change; new forms get new tags.
//!
//! | space | key | value | life |
//! |---|---|---|---|
//! | stamps | `pool` | installation, pool (16 + 16) | for ever |
//! | records | slot (1) | generation, transaction, seq, last id (4 + 8 + 8 + 16) | for ever |
//! | totals | queue id (16) | messages, bytes, scheduled, aside, low id (8 + 8 + 8 + 8 + 16) | of the queue |
//! | entries | queue id, message id (16 + 16) | header, body | of the message, while it is ready |
//! | aside | queue id, message id (16 + 16) | header, body | of the message, while it is in another state |
//! | headers | queue id, message id (16 + 16) | header | from the first change to the next change of space or the end |
//! | schedule | queue id, ready, message id (16 + 8 + 16) | nothing | of the message, while it is scheduled |
//! | buckets | slot, kind, end, queue id, ttl (1 + 1 + 8 + 16 + 4) | least id, greatest id, touches (16 + 16 + 4) |
//! until a look-up of the due bucket finds it empty |
//! | groups | queue id, group, 0, message id (16 + any + 1 + 16) | nothing | of the message, if it has a group |
//! | notes | queue id, kind, key (16 + 1 + any) | expires, value (8 + any) | until the owner removes it |
//!
//! A ready message has one key, because a second one would halve the rate of posts; one with a group has two. When an
//! entry becomes ready or stops being ready, it moves between entries and aside with its body. A header in headers
//! replaces the one before the body.
//!
//! Buckets tell where to find due entries, each for many messages at once: kind 0 for entries that become ready, kind 1
//! for entries that expire, each within a span of time that ends before `end`. See `buckets.rs`. For entries that live
//! by queue, end and ttl are those of [`crate::retained`].
//!
//! Headers have the form of `crate::header`, with the tags 2 to 5 and the times in the order created, ready, expires.
//! Numbers are big-endian; times are milliseconds, ttl seconds.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use uuid::Uuid;

pub(super) use crate::header::damaged;
use crate::{Epoch, Note, Stamp, StoreError, Totals, header};
use angarium_core::group::GroupName;
use angarium_core::ids::{MessageId, QueueId, Slot};
use angarium_core::time::Timestamp;

pub(super) const STAMP_KEY: &[u8] = b"pool";

pub(super) fn encode_stamp(stamp: Stamp) -> Bytes {
    let mut value = BytesMut::with_capacity(32);
    value.put_slice(stamp.system.as_bytes());
    value.put_slice(stamp.pool.as_bytes());
    value.freeze()
}

pub(super) fn decode_stamp(mut value: &[u8]) -> Result<Stamp, StoreError> {
    if value.len() != 32 {
        return Err(damaged("the stamp of the pool"));
    }
    Ok(Stamp { system: Uuid::from_u128(value.get_u128()), pool: Uuid::from_u128(value.get_u128()) })
}

pub(super) struct Record {
    pub(super) epoch: Epoch,
    pub(super) seq: u64,
    pub(super) last_id: MessageId,
}

impl Record {
    pub(super) fn encode(&self) -> Bytes {
        let mut value = BytesMut::with_capacity(36);
        value.put_u32(self.epoch.generation);
        value.put_u64(self.epoch.transaction);
        value.put_u64(self.seq);
        value.put_slice(self.last_id.as_bytes());
        value.freeze()
    }

    pub(super) fn decode(mut value: &[u8]) -> Result<Self, StoreError> {
        if value.len() != 36 {
            return Err(damaged("the record of a slot"));
        }
        let epoch = Epoch { generation: value.get_u32(), transaction: value.get_u64() };
        Ok(Self { epoch, seq: value.get_u64(), last_id: take_id(&mut value) })
    }
}

#[derive(Clone, Copy)]
pub(super) struct QueueTotals {
    pub(super) totals: Totals,
    /// Lower bound of the ids of the ready entries.
    pub(super) low: MessageId,
}

impl QueueTotals {
    pub(super) fn encode(&self) -> Bytes {
        let mut value = BytesMut::with_capacity(48);
        value.put_u64(self.totals.messages);
        value.put_u64(self.totals.bytes);
        value.put_u64(self.totals.scheduled);
        value.put_u64(self.totals.in_transfer);
        value.put_slice(self.low.as_bytes());
        value.freeze()
    }

    /// Reads totals; a queue without a value is empty.
    pub(super) fn decode(value: Option<&Bytes>) -> Result<Self, StoreError> {
        let Some(value) = value else { return Ok(Self { totals: Totals::default(), low: MessageId::ZERO }) };
        let mut rest = &value[..];
        if rest.len() != 48 {
            return Err(damaged("the totals of a queue"));
        }
        let totals = Totals {
            messages: rest.get_u64(),
            bytes: rest.get_u64(),
            scheduled: rest.get_u64(),
            in_transfer: rest.get_u64(),
        };
        Ok(Self { totals, low: take_id(&mut rest) })
    }
}

pub(super) fn record_key(slot: Slot) -> Bytes {
    Bytes::copy_from_slice(&[slot.0])
}

/// The key of an entry in entries, aside and headers.
pub(super) fn entry_key(queue: QueueId, id: MessageId) -> Bytes {
    let mut key = [0; 32];
    key[..16].copy_from_slice(queue.as_bytes());
    key[16..].copy_from_slice(id.as_bytes());
    Bytes::copy_from_slice(&key)
}

pub(super) fn entry_id(key: &[u8]) -> Result<MessageId, StoreError> {
    let id = key.get(16..).and_then(|id| id.try_into().ok());
    id.map(MessageId::from_bytes).ok_or_else(|| damaged("the key of an entry"))
}

pub(super) fn schedule_key(queue: QueueId, ready: Timestamp, id: MessageId) -> Bytes {
    let mut key = BytesMut::with_capacity(40);
    key.put_slice(queue.as_bytes());
    key.put_u64(ready.as_millis());
    key.put_slice(id.as_bytes());
    key.freeze()
}

/// Reads a key in the schedule: the ready time and the id of the entry.
pub(super) fn schedule_place(key: &[u8]) -> Result<(Timestamp, MessageId), StoreError> {
    let mut rest = key.get(16..).filter(|rest| rest.len() == 24).ok_or_else(|| damaged("the schedule"))?;
    Ok((Timestamp::from_millis(rest.get_u64()), take_id(&mut rest)))
}

/// The key of an entry in groups.
pub(super) fn group_key(queue: QueueId, group: &GroupName, id: MessageId) -> Bytes {
    let mut key = BytesMut::with_capacity(33 + group.as_str().len());
    key.put_slice(queue.as_bytes());
    key.put_slice(group.as_str().as_bytes());
    key.put_u8(0);
    key.put_slice(id.as_bytes());
    key.freeze()
}

/// Reads a key in groups: the group and the id of the entry.
pub(super) fn group_place(key: &[u8]) -> Result<(GroupName, MessageId), StoreError> {
    let rest = key.get(16..).filter(|rest| rest.len() > 17);
    let (group, mut id) =
        rest.map(|rest| rest.split_at(rest.len() - 16)).ok_or_else(|| damaged("a group"))?;
    Ok((header::take_group(&group[..group.len() - 1])?, take_id(&mut id)))
}

/// The prefix of all notes of a queue and kind.
pub(super) fn note_prefix(queue: QueueId, kind: u8) -> Bytes {
    note_key(queue, kind, &[])
}

pub(super) fn note_key(queue: QueueId, kind: u8, name: &[u8]) -> Bytes {
    let mut key = BytesMut::with_capacity(17 + name.len());
    key.put_slice(queue.as_bytes());
    key.put_u8(kind);
    key.put_slice(name);
    key.freeze()
}

pub(super) fn encode_note(note: &Note) -> Bytes {
    let mut value = BytesMut::with_capacity(8 + note.value.len());
    value.put_u64(note.expires.as_millis());
    value.put_slice(&note.value);
    value.freeze()
}

pub(super) fn decode_note(key: &Bytes, value: &Bytes) -> Result<Note, StoreError> {
    let (Some(&kind), true) = (key.get(16), value.len() >= 8) else { return Err(damaged("a note")) };
    let expires = Timestamp::from_millis((&value[..8]).get_u64());
    Ok(Note { kind, key: key.slice(17..), value: value.slice(8..), expires })
}

pub(super) fn take_id(rest: &mut &[u8]) -> MessageId {
    MessageId::from_bytes(rest.get_u128().to_be_bytes())
}
