//! How a pool lies in the journal. These forms are on disk and never change; new ones get new tags.
//!
//! | space | key | value | life |
//! |---|---|---|---|
//! | stamps | `pool` | installation, pool (16 + 16) | for ever |
//! | records | slot (1) | generation, transaction, seq, last id (4 + 8 + 8 + 16) | for ever |
//! | totals | queue id (16) | messages, bytes, low id (8 + 8 + 16) | of the queue |
//! | entries | queue id, message id (16 + 16) | header, body | of the message |
//! | headers | queue id, message id (16 + 16) | header | from the first change to the end of the message |
//!
//! A header is tag 1, created, expires, ttl, attempts, body bytes, client id (1 + 8 + 8 + 4 + 4 + 4 + 16); the
//! client id is zero when there is none. Numbers are big endian; times are milliseconds, ttl seconds.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use uuid::Uuid;

use crate::domain::ids::{MessageId, QueueId, Slot};
use crate::domain::message::{Header, Message};
use crate::domain::time::Timestamp;
use crate::storage::{Epoch, Stamp, StoreError, Totals};

pub(super) const STAMP_KEY: &[u8] = b"pool";

const HEADER_TAG: u8 = 1;
const HEADER_BYTES: usize = 45;

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
    /// No entry has an id below it.
    pub(super) low: MessageId,
}

impl QueueTotals {
    pub(super) fn encode(&self) -> Bytes {
        let mut value = BytesMut::with_capacity(32);
        value.put_u64(self.totals.messages);
        value.put_u64(self.totals.bytes);
        value.put_slice(self.low.as_bytes());
        value.freeze()
    }

    /// A queue without a value is empty.
    pub(super) fn decode(value: Option<&Bytes>) -> Result<Self, StoreError> {
        let Some(value) = value else { return Ok(Self { totals: Totals::default(), low: MessageId::ZERO }) };
        let mut rest = &value[..];
        if rest.len() != 32 {
            return Err(damaged("the totals of a queue"));
        }
        let totals = Totals { messages: rest.get_u64(), bytes: rest.get_u64() };
        Ok(Self { totals, low: take_id(&mut rest) })
    }
}

pub(super) fn record_key(slot: Slot) -> Bytes {
    Bytes::copy_from_slice(&[slot.0])
}

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

pub(super) fn encode_entry(message: &Message) -> Bytes {
    let mut value = BytesMut::with_capacity(HEADER_BYTES + message.body.len());
    put_header(&mut value, &message.header);
    value.put_slice(&message.body);
    value.freeze()
}

pub(super) fn decode_entry(id: MessageId, value: &Bytes) -> Result<Message, StoreError> {
    let header = decode_header(id, value)?;
    Ok(Message { header, body: value.slice(HEADER_BYTES..) })
}

/// Bytes of the body in an entry's value of this length.
pub(super) fn body_bytes(length: u32) -> u64 {
    u64::from(length).saturating_sub(HEADER_BYTES as u64)
}

pub(super) fn encode_header(header: &Header) -> Bytes {
    let mut value = BytesMut::with_capacity(HEADER_BYTES);
    put_header(&mut value, header);
    value.freeze()
}

fn put_header(value: &mut BytesMut, header: &Header) {
    value.put_u8(HEADER_TAG);
    value.put_u64(header.created.as_millis());
    value.put_u64(header.expires.as_millis());
    value.put_u32(header.ttl);
    value.put_u32(header.attempts);
    value.put_u32(header.size);
    value.put_slice(header.client.unwrap_or_default().as_bytes());
}

pub(super) fn decode_header(id: MessageId, value: &[u8]) -> Result<Header, StoreError> {
    let mut rest = value;
    if rest.len() < HEADER_BYTES || rest.get_u8() != HEADER_TAG {
        return Err(damaged("the header of a message"));
    }
    Ok(Header {
        id,
        created: Timestamp::from_millis(rest.get_u64()),
        expires: Timestamp::from_millis(rest.get_u64()),
        ttl: rest.get_u32(),
        attempts: rest.get_u32(),
        size: rest.get_u32(),
        client: Some(Uuid::from_u128(rest.get_u128())).filter(|client| !client.is_nil()),
    })
}

fn take_id(rest: &mut &[u8]) -> MessageId {
    MessageId::from_bytes(rest.get_u128().to_be_bytes())
}

fn damaged(what: &str) -> StoreError {
    StoreError::NotSent(format!("{what} is damaged"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_survives_its_stored_form() {
        let id = MessageId::from_bytes([7; 16]);
        let header = Header {
            id,
            created: Timestamp::from_millis(1),
            ttl: 60,
            expires: Timestamp::from_millis(60_001),
            attempts: 3,
            client: Some(Uuid::from_u128(9)),
            size: 2,
        };
        let message = Message { header, body: Bytes::from_static(b"{}") };
        let value = encode_entry(&message);
        assert_eq!(decode_entry(id, &value).unwrap(), message);
        assert_eq!(body_bytes(u32::try_from(value.len()).unwrap()), 2);
        assert!(decode_entry(id, &value.slice(..20)).is_err());
    }
}
