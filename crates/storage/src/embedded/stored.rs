//! The layout of a pool in the journal. These forms are on disk, so they never change; new forms get new tags.
//!
//! | space | key | value | life |
//! |---|---|---|---|
//! | stamps | `pool` | installation, pool (16 + 16) | for ever |
//! | records | slot (1) | generation, transaction, seq, last id (4 + 8 + 8 + 16) | for ever |
//! | totals | queue id (16) | messages, bytes, scheduled, aside, low id, kept, shared, lent (8 + 8 + 8 + 8 + 16 + 8 + 8 + 8) | of the queue |
//! | entries | queue id, message id (16 + 16) | header, body | of the message, while it is ready |
//! | aside | queue id, message id (16 + 16) | header, body | of the message, while it is neither ready nor kept |
//! | kept | queue id, message id (16 + 16) | header, body | of the message, while it is done or failed |
//! | headers | queue id, message id (16 + 16) | header | from the first change to the next change of space or the end |
//! | schedule | queue id, ready, message id (16 + 8 + 16) | nothing | of the message, while it is scheduled |
//! | settled | queue id, ready, message id (16 + 8 + 16) | nothing | of the message, while it is kept |
//! | buckets | slot, kind, end, queue id, ttl (1 + 1 + 8 + 16 + 4) | first place, last place, touches (16 + 16 + 4 or
//! 24 + 24 + 4) | until a look-up of the due bucket finds it empty |
//! | groups | queue id, group, 0, message id (16 + any + 1 + 16) | nothing | of the message, if it has a group, unless kept |
//! | bodies | body id (16) | body | while an entry has it |
//! | readers | body id (16) | number of entries, lender, bytes (8 + 16 + 4) | of the body |
//! | notes | queue id, kind, key (16 + 1 + any) | expires, value (8 + any) | until the owner removes it |
//!
//! A ready message has one key, because a second one would halve the rate of posts; one with a group has two. When an
//! entry becomes ready or kept, or stops being so, it moves between entries, aside and kept with its body. A header in
//! headers replaces the one before the body. The ready time of a kept message is when it was settled.
//!
//! Totals end with the low id while no message is kept, as in versions that know no kept messages, and with the kept ones
//! while no entry shares its body and the queue is no lender.
//!
//! A body that several entries of one batch have is stored once, under an id of its own (`crate::shared`). Instead of it
//! their values have this id and the bytes of the body (16 + 4), and 8 more in their tags. A header in headers has the tag
//! of one without that.
//!
//! Buckets tell where to find due entries, each for many messages at once: kind 0 for entries that become ready, kind 1
//! for entries that expire, kind 2 for kept entries that expire, each within a span of time that ends before `end`.
//! See `buckets.rs`. A place is an id (16), in kind 2 ready and id (8 + 16). For entries that live by queue, end and
//! ttl are those of [`crate::retained`].
//!
//! Headers have the form of `crate::header`, with the tags 2 to 9 and the times in the order created, ready, expires.
//! Numbers are big-endian; times are milliseconds, ttl seconds.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use uuid::Uuid;

pub(super) use crate::header::damaged;
use crate::shared::BodyId;
use crate::{Epoch, Note, Position, Stamp, StoreError, Totals, header};
use angarium_core::group::GroupName;
use angarium_core::ids::{MessageId, QueueId, Slot};
use angarium_core::message::{Header, State};
use angarium_core::time::Timestamp;
use angarium_journal::Space;

pub(super) const STAMP_KEY: &[u8] = b"pool";

/// Bytes of totals without kept messages.
const TOTALS_BYTES: usize = 48;

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
        let mut value = BytesMut::with_capacity(TOTALS_BYTES + 24);
        value.put_u64(self.totals.messages);
        value.put_u64(self.totals.bytes);
        value.put_u64(self.totals.scheduled);
        value.put_u64(self.totals.in_transfer);
        value.put_slice(self.low.as_bytes());
        let Totals { kept, shared, lent, .. } = self.totals;
        if kept > 0 || shared > 0 || lent > 0 {
            value.put_u64(kept);
        }
        if shared > 0 || lent > 0 {
            value.put_u64(shared);
            value.put_u64(lent);
        }
        value.freeze()
    }

    /// Reads totals; a queue without a value is empty.
    pub(super) fn decode(value: Option<&Bytes>) -> Result<Self, StoreError> {
        let Some(value) = value else {
            return Ok(Self { totals: Totals::default(), low: MessageId::ZERO });
        };
        let mut rest = &value[..];
        let (has_kept, has_shared) = match rest.len().checked_sub(TOTALS_BYTES) {
            Some(0) => (false, false),
            Some(8) => (true, false),
            Some(24) => (true, true),
            _ => return Err(damaged("the totals of a queue")),
        };
        let (messages, bytes, scheduled, in_transfer) =
            (rest.get_u64(), rest.get_u64(), rest.get_u64(), rest.get_u64());
        let low = take_id(&mut rest);
        let kept = if has_kept { rest.get_u64() } else { 0 };
        let (shared, lent) = if has_shared { (rest.get_u64(), rest.get_u64()) } else { (0, 0) };
        Ok(Self { totals: Totals { messages, bytes, scheduled, in_transfer, kept, shared, lent }, low })
    }
}

pub(super) fn record_key(slot: Slot) -> Bytes {
    Bytes::copy_from_slice(&[slot.0])
}

/// The space of an entry in this state.
pub(super) fn space(state: &State) -> Space {
    match state {
        State::Ready => Space::Entries,
        State::Scheduled | State::Prepared(_) | State::Moving(_) | State::NoTarget => Space::Aside,
        State::Done | State::Failed => Space::Kept,
    }
}

/// The key of an entry in an order by time, if its state has one.
pub(super) fn ordered_key(queue: QueueId, header: &Header) -> Option<(Space, Bytes)> {
    let space = match header.state {
        State::Ready | State::Prepared(_) | State::Moving(_) | State::NoTarget => return None,
        State::Scheduled => Space::Schedule,
        State::Done | State::Failed => Space::Settled,
    };
    Some((space, place_key(queue, Position::of(header))))
}

/// The key of an entry in entries, aside, kept and headers.
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

/// The key of an entry in schedule and settled.
pub(super) fn place_key(queue: QueueId, place: Position) -> Bytes {
    let mut key = BytesMut::with_capacity(40);
    key.put_slice(queue.as_bytes());
    put_place(&mut key, place);
    key.freeze()
}

/// Reads the position in a key in schedule and settled.
pub(super) fn place(key: &[u8]) -> Result<Position, StoreError> {
    let mut rest =
        key.get(16..).filter(|rest| rest.len() == 24).ok_or_else(|| damaged("an order by time"))?;
    Ok(take_place(&mut rest))
}

pub(super) fn put_place(value: &mut BytesMut, place: Position) {
    value.put_u64(place.ready.as_millis());
    value.put_slice(place.id.as_bytes());
}

pub(super) fn take_place(rest: &mut &[u8]) -> Position {
    Position { ready: Timestamp::from_millis(rest.get_u64()), id: take_id(rest) }
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

/// The key of a body in bodies and readers.
pub(super) fn body_key(id: BodyId) -> Bytes {
    Bytes::copy_from_slice(&id)
}

/// The readers of a shared body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BodyReaders {
    /// Number of the entries that have it.
    pub(super) count: u64,
    /// The queue in whose totals it counts.
    pub(super) lender: QueueId,
    /// Bytes of the body.
    pub(super) bytes: u32,
}

impl BodyReaders {
    pub(super) fn encode(self) -> Bytes {
        let mut value = BytesMut::with_capacity(28);
        value.put_u64(self.count);
        value.put_slice(self.lender.as_bytes());
        value.put_u32(self.bytes);
        value.freeze()
    }

    pub(super) fn decode(mut value: &[u8]) -> Result<Self, StoreError> {
        if value.len() != 28 {
            return Err(damaged("the number of messages with a body"));
        }
        let count = value.get_u64();
        let lender = QueueId::from_bytes(value.get_u128().to_be_bytes());
        Ok(Self { count, lender, bytes: value.get_u32() })
    }
}

pub(super) fn take_id(rest: &mut &[u8]) -> MessageId {
    MessageId::from_bytes(rest.get_u128().to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(kept: u64, shared: u64, lent: u64) -> Bytes {
        let totals = Totals { messages: 1, bytes: 2, scheduled: 3, in_transfer: 4, kept, shared, lent };
        QueueTotals { totals, low: MessageId::from_bytes([9; 16]) }.encode()
    }

    #[test]
    fn totals_without_kept_or_shared_messages_have_the_earlier_form() {
        let earlier = [&[1, 2, 3, 4_u64].map(u64::to_be_bytes).concat()[..], &[9; 16]].concat();
        let with = |more: &[u64]| {
            [&earlier[..], &more.iter().flat_map(|number| number.to_be_bytes()).collect::<Vec<_>>()].concat()
        };
        assert_eq!(encoded(0, 0, 0), earlier);
        assert_eq!(encoded(5, 0, 0), with(&[5]));
        assert_eq!(encoded(0, 6, 0), with(&[0, 6, 0]));
        assert_eq!(encoded(0, 0, 7), with(&[0, 0, 7]));
    }

    #[test]
    fn totals_of_all_forms_are_read() {
        for (kept, shared, lent) in
            [(0, 0, 0), (1, 0, 0), (u64::MAX, 0, 0), (0, 1, 0), (0, 0, 3), (2, u64::MAX, 4)]
        {
            let read = QueueTotals::decode(Some(&encoded(kept, shared, lent))).unwrap();
            let Totals { in_transfer, .. } = read.totals;
            assert_eq!(
                (read.totals.kept, in_transfer, read.totals.shared, read.totals.lent),
                (kept, 4, shared, lent)
            );
            assert_eq!(read.low, MessageId::from_bytes([9; 16]));
        }
        for length in [0, 40, 47, 49, 55, 57, 64, 71] {
            assert!(QueueTotals::decode(Some(&encoded(7, 7, 7).slice(..length))).is_err(), "{length}");
        }
    }

    #[test]
    fn readers_of_a_body_survive_their_stored_form() {
        let readers = BodyReaders { count: 3, lender: QueueId::from_bytes([8; 16]), bytes: 700 };
        let value = readers.encode();
        assert_eq!(BodyReaders::decode(&value).unwrap(), readers);
        for length in 0..value.len() {
            assert!(BodyReaders::decode(&value[..length]).is_err(), "{length}");
        }
    }
}
