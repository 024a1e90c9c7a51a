//! How a pool lies in PostgreSQL. Migrations make the tables, one file a version, and no file changes once it was used.
//!
//! All tables are in one schema, `angarium` unless the URI says otherwise.
//!
//! | table | key | holds | life |
//! |---|---|---|---|
//! | `stamp` | one row | version of the tables, installation, pool | for ever |
//! | `records` | slot | pool, epoch, number of the last batch, how often it was fenced, greatest id | for ever; made at registration |
//! | `queues` | queue id | messages, bytes, scheduled, aside, low id | of the queue |
//! | `entries` | queue id, whether it is not ready, message id | header, body | of the message |
//! | `notes` | queue id, kind, key | value, expires | as its owner says |
//!
//! States are 0 ready, 1 scheduled, 2 failed, 3 prepared, 4 moving. A ready entry is in the index of expiry beside its key;
//! one that is scheduled in two more; those of a move in none. Times are milliseconds, ttl is seconds. A peer is queue id or
//! zero, bytes of the project, project, name (16 + 2 + any + any). Bodies are never compressed, and those of more than 2 kB
//! lie apart, so that a new header does not write them again.

use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::domain::ids::{MessageId, QueueId};
use crate::domain::message::{Header, Message, Peer, State};
use crate::domain::names::{ProjectId, QueueName, QueueRef};
use crate::domain::time::Timestamp;
use crate::storage::{Epoch, Note, StoreError};

const NO_QUEUE: [u8; 16] = [0; 16];

pub(super) fn queue_key(queue: QueueId) -> Uuid {
    Uuid::from_bytes(*queue.as_bytes())
}

pub(super) fn id_key(id: MessageId) -> Uuid {
    Uuid::from_bytes(*id.as_bytes())
}

/// An instant as it is stored. Those beyond the end of time, as far as the store knows it, are its end.
pub(super) fn millis(time: Timestamp) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

fn time(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis.try_into().unwrap_or(0))
}

/// A number that only grows and never comes near the bound.
pub(super) fn number(number: u64) -> Result<i64, StoreError> {
    i64::try_from(number)
        .map_err(|_| StoreError::NotSent(format!("{number} is beyond what the store counts")))
}

/// The number of a batch. None comes near the bound; one beyond it is taken for the bound, and is not the next.
pub(super) fn seq(seq: u64) -> i64 {
    i64::try_from(seq).unwrap_or(i64::MAX)
}

/// A bound on how many there may be.
pub(super) fn bound(many: usize) -> i64 {
    i64::try_from(many).unwrap_or(i64::MAX)
}

pub(super) fn state_number(state: &State) -> i16 {
    match state {
        State::Ready => 0,
        State::Scheduled => 1,
        State::Failed => 2,
        State::Prepared(_) => 3,
        State::Moving(_) => 4,
    }
}

pub(super) fn encode_peer(state: &State) -> Option<Vec<u8>> {
    let (State::Prepared(peer) | State::Moving(peer)) = state else { return None };
    let (project, name) = (peer.at.project.as_str(), peer.at.name.as_str());
    let mut value = Vec::with_capacity(18 + project.len() + name.len());
    value.put_slice(peer.queue.as_ref().map_or(&NO_QUEUE[..], |queue| &queue.as_bytes()[..]));
    value.put_u16(u16::try_from(project.len()).expect("names have at most a few hundred bytes"));
    value.put_slice(project.as_bytes());
    value.put_slice(name.as_bytes());
    Some(value)
}

fn decode_peer(value: Option<&[u8]>) -> Result<Arc<Peer>, StoreError> {
    let wrong = || damaged("the other queue of a move");
    let mut rest = value.filter(|value| value.len() >= 18).ok_or_else(wrong)?;
    let queue = rest.get_u128().to_be_bytes();
    let length = usize::from(rest.get_u16());
    let (project, name) = rest.split_at_checked(length).ok_or_else(wrong)?;
    let text = |bytes| str::from_utf8(bytes).map_err(|_| wrong());
    let project = ProjectId::new(text(project)?).map_err(|_| wrong())?;
    let name = QueueName::new(text(name)?).map_err(|_| wrong())?;
    let queue = (queue != NO_QUEUE).then(|| QueueId::from_bytes(queue));
    Ok(Arc::new(Peer { at: QueueRef { project, name }, queue }))
}

/// A column of an answer.
pub(super) fn column<'a, T: tokio_postgres::types::FromSql<'a>>(
    row: &'a Row,
    name: &str,
) -> Result<T, StoreError> {
    row.try_get(name).map_err(|_| damaged(&format!("the column {name}")))
}

pub(super) fn message_id(row: &Row, name: &str) -> Result<MessageId, StoreError> {
    Ok(MessageId::from_bytes(*column::<Uuid>(row, name)?.as_bytes()))
}

pub(super) fn queue_id(row: &Row) -> Result<QueueId, StoreError> {
    Ok(QueueId::from_bytes(*column::<Uuid>(row, "queue")?.as_bytes()))
}

/// The header of a row with all columns of a header.
pub(super) fn header(row: &Row) -> Result<Header, StoreError> {
    let peer = || decode_peer(column(row, "peer")?);
    let state = match column::<i16>(row, "state")? {
        0 => State::Ready,
        1 => State::Scheduled,
        2 => State::Failed,
        3 => State::Prepared(peer()?),
        4 => State::Moving(peer()?),
        _ => return Err(damaged("the state of a message")),
    };
    Ok(Header {
        id: message_id(row, "id")?,
        created: time(column(row, "created")?),
        ready: time(column(row, "ready")?),
        ttl: column::<i32>(row, "ttl")?.cast_unsigned(),
        expires: time(column(row, "expires")?),
        attempts: column::<i32>(row, "attempts")?.cast_unsigned(),
        client: column(row, "client")?,
        size: column::<i32>(row, "size")?.cast_unsigned(),
        state,
    })
}

pub(super) fn message(row: &Row) -> Result<Message, StoreError> {
    Ok(Message { header: header(row)?, body: Bytes::copy_from_slice(column(row, "body")?) })
}

pub(super) fn note(row: &Row, kind: u8) -> Result<Note, StoreError> {
    let bytes = |name| column(row, name).map(Bytes::copy_from_slice);
    Ok(Note { kind, key: bytes("key")?, value: bytes("value")?, expires: time(column(row, "expires")?) })
}

/// Who may write to a slot; none when nobody ever fenced it.
pub(super) fn epoch(row: &Row) -> Result<Option<Epoch>, StoreError> {
    let Ok(generation) = u32::try_from(column::<i64>(row, "generation")?) else { return Ok(None) };
    Ok(Some(Epoch { generation, transaction: unsigned(row, "transaction")? }))
}

pub(super) fn unsigned(row: &Row, name: &str) -> Result<u64, StoreError> {
    column::<i64>(row, name)?.try_into().map_err(|_| damaged(&format!("the column {name}")))
}

pub(super) fn damaged(what: &str) -> StoreError {
    StoreError::NotSent(format!("{what} is damaged"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peer_survives_its_stored_form_and_cut_off_before_its_name_it_is_damaged() {
        let (project, name) = (ProjectId::new("p/q r").unwrap(), QueueName::new("dead").unwrap());
        for queue in [None, Some(QueueId::from_bytes([3; 16]))] {
            let at = QueueRef { project: project.clone(), name: name.clone() };
            let peer = Arc::new(Peer { at, queue });
            let value = encode_peer(&State::Moving(Arc::clone(&peer))).unwrap();
            assert_eq!(decode_peer(Some(&value)).unwrap(), peer);
            for length in 0..value.len() - "dead".len() {
                assert!(decode_peer(Some(&value[..length])).is_err(), "{length}");
            }
        }
        assert!(decode_peer(None).is_err());
        assert_eq!(encode_peer(&State::Failed), None);
    }
}
