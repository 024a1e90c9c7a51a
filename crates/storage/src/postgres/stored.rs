//! The layout of a pool in PostgreSQL. Migrations create the tables, one file for each version, and a released file
//! never changes.
//!
//! All tables are in one schema, `angarium` unless the URI names another.
//!
//! | table | key | holds | life |
//! |---|---|---|---|
//! | `stamp` | one row | version of the tables, installation, pool | for ever |
//! | `records` | slot | pool, epoch, number of the last batch, number of fences, greatest id | for ever; made at registration |
//! | `queues` | queue id | messages, bytes, scheduled, aside, kept, shared, lent, low id | of the queue |
//! | `entries` | queue id, whether it is not ready, message id | header, body or id of a shared body | of the message |
//! | `bodies` | id | number of its entries, lender, body | while an entry has it |
//! | `notes` | queue id, kind, key | value, expires | until the owner removes it |
//!
//! An entry that lives by queue has ttl 0, which no other entry has, and its place of [`crate::retained`] in `expires`:
//! so the index of expiry also has its order by queue and base time.
//!
//! States, peers and extras have the form of all drivers (`crate::header`, `crate::extras`). Each entry is in the primary
//! key, and in the index of expiry unless it is prepared or moving. Others have the entries of some states only:
//!
//! | index | order | holds |
//! |---|---|---|
//! | `entries_schedule`, `entries_due` | ready time, id; of a queue and of a slot | scheduled entries |
//! | `entries_aside` | id | scheduled, prepared, moving ones, and those without a target |
//! | `entries_kept` | ready time (when settled), id | done and failed ones |
//! | `entries_groups` | group, id | those with a group that are not kept |
//!
//! So a ready entry is in two indexes, and in three with a group. In `queues`, `aside` counts the entries of
//! `entries_aside` that are not scheduled, and `kept` those of `entries_kept`. Times are milliseconds, ttl is seconds.
//! Bodies are never compressed, and those of more than 2 kB are stored out of line, so that a new header does not rewrite
//! them.
//!
//! A body that several entries of one batch have is stored once, in `bodies` under an id of its own. These
//! entries have that id in `shared`, and null in `body`; their `size` is the number of its bytes, and totals and pages
//! count it for each of them. All entries of a body are in one slot, and a statement that removes any has locked the
//! record of the slot before: so no two statements count its readers at the same time.
//!
//! In `queues`, `shared` has the bytes, among `bytes`, of the shared bodies of the queue's entries, and `lent` those of
//! the bodies that have the queue as their lender, each once. The first such body makes the row of a lender without
//! entries. The drop of a lender removes its row, and the removal of the last entry of a body does not make the row
//! again.

use bytes::Bytes;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::header::{self, damaged};
use crate::{Epoch, Note, StoreError, extras, retained};
use angarium_core::ids::{MessageId, QueueId, Slot};
use angarium_core::message::{Header, Life, Message, State};
use angarium_core::time::Timestamp;

pub(super) fn queue_key(queue: QueueId) -> Uuid {
    Uuid::from_bytes(*queue.as_bytes())
}

pub(super) fn id_key(id: MessageId) -> Uuid {
    Uuid::from_bytes(*id.as_bytes())
}

/// The stored form of an instant. Later instants than the store can represent become its last one.
pub(super) fn millis(time: Timestamp) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

fn time(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis.try_into().unwrap_or(0))
}

/// The columns ttl and expires of a life.
pub(super) fn life_columns(queue: QueueId, life: Life) -> (i32, i64) {
    match life {
        Life::Own { ttl, expires } => (ttl.cast_signed(), millis(expires)),
        Life::Retained { since } => (0, retained::place(queue, since).cast_signed()),
    }
}

fn life(ttl: u32, expires: i64) -> Life {
    match u64::try_from(expires) {
        Ok(place) if ttl == 0 && retained::is_place(place) => {
            Life::Retained { since: retained::since(place) }
        }
        _ => Life::Own { ttl, expires: time(expires) },
    }
}

/// The stored form of a number that only grows, and never reaches the bound in practice.
pub(super) fn number(number: u64) -> Result<i64, StoreError> {
    i64::try_from(number)
        .map_err(|_| StoreError::NotSent(format!("{number} is beyond what the store counts")))
}

/// The stored form of the number of a batch. No number reaches the bound in practice; one beyond it becomes the bound,
/// and is refused because it is not the next.
pub(super) fn seq(seq: u64) -> i64 {
    i64::try_from(seq).unwrap_or(i64::MAX)
}

/// A LIMIT.
pub(super) fn bound(many: usize) -> i64 {
    i64::try_from(many).unwrap_or(i64::MAX)
}

pub(super) fn state_number(state: &State) -> i16 {
    header::number(state).into()
}

pub(super) fn encode_peer(state: &State) -> Option<Vec<u8>> {
    let mut value = Vec::new();
    header::put_peer(&mut value, state);
    (!value.is_empty()).then_some(value)
}

/// The column extras of a header; none when it has no field of them.
pub(super) fn encode_extras(header: &Header) -> Option<Vec<u8>> {
    let value = extras::encode(header.extras.as_deref()?);
    (!value.is_empty()).then(|| value.into())
}

/// A column of a row.
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

pub(super) fn slot(row: &Row) -> Result<Slot, StoreError> {
    column::<i16>(row, "slot")?.try_into().map(Slot).map_err(|_| damaged("the slot of a record"))
}

/// The header of a row that has all its columns.
pub(super) fn header(row: &Row) -> Result<Header, StoreError> {
    let number = column::<i16>(row, "state")?.try_into().map_err(|_| damaged("the state of a message"))?;
    let mut peer = column::<Option<&[u8]>>(row, "peer")?.unwrap_or_default();
    let state = header::take_state(number, &mut peer)?;
    Ok(Header {
        id: message_id(row, "id")?,
        created: time(column(row, "created")?),
        ready: time(column(row, "ready")?),
        life: life(column::<i32>(row, "ttl")?.cast_unsigned(), column(row, "expires")?),
        attempts: column::<i32>(row, "attempts")?.cast_unsigned(),
        client: column(row, "client")?,
        size: column::<i32>(row, "size")?.cast_unsigned(),
        state,
        group: column::<Option<&str>>(row, "grouped")?
            .map(|group| header::take_group(group.as_bytes()))
            .transpose()?,
        first_claimed: column::<Option<i64>>(row, "first_claimed")?.map(time),
        extras: column::<Option<&[u8]>>(row, "extras")?
            .map(|extras| extras::decode(Bytes::copy_from_slice(extras)).map(Box::new))
            .transpose()?,
    })
}

pub(super) fn message(row: &Row) -> Result<Message, StoreError> {
    let body: Option<&[u8]> = column(row, "body")?;
    let body = body.ok_or_else(|| damaged("the body that messages share"))?;
    Ok(Message { header: header(row)?, body: Bytes::copy_from_slice(body) })
}

pub(super) fn note(row: &Row, kind: u8) -> Result<Note, StoreError> {
    let bytes = |name| column(row, name).map(Bytes::copy_from_slice);
    Ok(Note { kind, key: bytes("key")?, value: bytes("value")?, expires: time(column(row, "expires")?) })
}

/// The epoch of a slot's record; none when the slot was never fenced.
pub(super) fn epoch(row: &Row) -> Result<Option<Epoch>, StoreError> {
    let Ok(generation) = u32::try_from(column::<i64>(row, "generation")?) else { return Ok(None) };
    Ok(Some(Epoch { generation, transaction: unsigned(row, "transaction")? }))
}

pub(super) fn unsigned(row: &Row, name: &str) -> Result<u64, StoreError> {
    column::<i64>(row, name)?.try_into().map_err(|_| damaged(&format!("the column {name}")))
}
