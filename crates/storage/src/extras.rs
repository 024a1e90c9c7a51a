//! The stored form of the extras of a header: fields that few messages have, each with a number and a length, so that a
//! later program adds fields without a new form.
//!
//! A field is: number, bytes of the value, value (1 + 4 + any). Numbers are: 1 keep, 2 tags, 3 values of holders,
//! 4 forgotten claims, 5 holder, 6 result, 7 reason, 8 arrival, 9 life before it was kept, 10 history, 11 hold
//! that has put it aside, 12 hops, 13 id of its arrival. Unknown numbers are skipped. Numbers in values are big-endian; a text in a list has its length before it (2). Databases have these forms,
//! so they never change.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use uuid::Uuid;

use crate::StoreError;
use crate::header::{damaged, take_group};
use angarium_core::hold::HoldId;
use angarium_core::ids::MessageId;
use angarium_core::message::Life;
use angarium_core::outcome::{
    Arrival, ArrivalLife, Event, EventKind, Extras, Holder, Keep, Meta, Outcome, Reason, Tags,
};
use angarium_core::time::Timestamp;

const KEEP: u8 = 1;
const TAGS: u8 = 2;
const META: u8 = 3;
const FORGOTTEN: u8 = 4;
const HOLDER: u8 = 5;
const RESULT: u8 = 6;
const REASON: u8 = 7;
const ARRIVAL: u8 = 8;
const LIFE: u8 = 9;
const HISTORY: u8 = 10;
const HELD: u8 = 11;
const HOPS: u8 = 12;
const ARRIVED: u8 = 13;

/// Flags of the fields that an arrival has.
const HAS_DELAY: u8 = 1;
const HAS_TTL: u8 = 2;
const HAS_GROUP: u8 = 4;
const HAS_LIFE_OF_TARGET: u8 = 8;

/// Returns the stored form of extras.
pub(super) fn encode(extras: &Extras) -> Bytes {
    let Extras { keep, tags, meta, forgotten, by, result, reason, life, .. } = extras;
    let Extras { arrival, history, held, hops, arrived, .. } = extras;
    let mut value = BytesMut::new();
    if let Some(keep) = keep {
        put(&mut value, KEEP, &keep.seconds().to_be_bytes());
    }
    if !tags.is_empty() {
        let mut texts = BytesMut::new();
        tags.as_slice().iter().for_each(|tag| put_text(&mut texts, tag));
        put(&mut value, TAGS, &texts);
    }
    if let Some(meta) = meta {
        put(&mut value, META, meta.as_bytes());
    }
    if *forgotten > 0 {
        put(&mut value, FORGOTTEN, &forgotten.to_be_bytes());
    }
    if let Some(by) = by {
        put(&mut value, HOLDER, by.as_str().as_bytes());
    }
    if let Some(result) = result {
        put(&mut value, RESULT, result.as_bytes());
    }
    if let Some(reason) = reason {
        put(&mut value, REASON, reason.as_str().as_bytes());
    }
    if let Some(arrival) = arrival {
        put(&mut value, ARRIVAL, &encode_arrival(arrival));
    }
    if let Some(life) = life {
        put(&mut value, LIFE, &encode_life(*life));
    }
    if !history.is_empty() {
        let mut events = BytesMut::new();
        history.iter().for_each(|event| put_event(&mut events, event));
        put(&mut value, HISTORY, &events);
    }
    if let Some(held) = held {
        put(&mut value, HELD, held.0.as_bytes());
    }
    if *hops > 0 {
        put(&mut value, HOPS, &hops.to_be_bytes());
    }
    if let Some(arrived) = arrived {
        put(&mut value, ARRIVED, arrived.as_bytes());
    }
    value.freeze()
}

/// Reads extras; all of `value` belongs to them.
pub(super) fn decode(mut value: Bytes) -> Result<Extras, StoreError> {
    let mut extras = Extras::default();
    while value.has_remaining() {
        if value.remaining() < 5 {
            return Err(bad());
        }
        let (number, length) = (value.get_u8(), value.get_u32() as usize);
        let field = take(&mut value, length)?;
        match number {
            KEEP => extras.keep = Some(Keep::stored(whole(&field)?)),
            TAGS => extras.tags = Tags::stored(take_texts(field)?),
            META => extras.meta = Some(Meta::stored(field)),
            FORGOTTEN => extras.forgotten = whole(&field)?,
            HOLDER => extras.by = Some(Holder::stored(text(&field)?)),
            RESULT => extras.result = Some(Outcome::stored(field)),
            REASON => extras.reason = Some(Reason::stored(text(&field)?)),
            ARRIVAL => extras.arrival = Some(decode_arrival(field)?),
            LIFE => extras.life = Some(decode_life(field)?),
            HISTORY => extras.history = take_events(field)?,
            HELD => extras.held = Some(HoldId(Uuid::from_slice(&field).map_err(|_| bad())?)),
            HOPS => extras.hops = whole(&field)?,
            ARRIVED => {
                let id: [u8; 16] = field.as_ref().try_into().map_err(|_| bad())?;
                extras.arrived = Some(MessageId::from_bytes(id));
            }
            _ => {}
        }
    }
    Ok(extras)
}

fn put(value: &mut BytesMut, number: u8, field: &[u8]) {
    value.put_u8(number);
    value.put_u32(u32::try_from(field.len()).expect("fields have bounds far below"));
    value.put_slice(field);
}

fn put_text(value: &mut BytesMut, text: &str) {
    value.put_u16(u16::try_from(text.len()).expect("texts have at most a few thousand bytes"));
    value.put_slice(text.as_bytes());
}

fn encode_arrival(Arrival { delay, life, group }: &Arrival) -> Bytes {
    let mut value = BytesMut::new();
    let flag = |has: bool, flag: u8| if has { flag } else { 0 };
    let (of_life, ttl) = match life {
        ArrivalLife::Kept => (0, None),
        ArrivalLife::OfTarget => (HAS_LIFE_OF_TARGET, None),
        ArrivalLife::Seconds(ttl) => (HAS_TTL, Some(ttl)),
    };
    value.put_u8(flag(delay.is_some(), HAS_DELAY) | of_life | flag(group.is_some(), HAS_GROUP));
    delay.iter().chain(ttl).for_each(|seconds| value.put_u32(*seconds));
    if let Some(group) = group {
        value.put_slice(group.as_str().as_bytes());
    }
    value.freeze()
}

fn decode_arrival(mut value: Bytes) -> Result<Arrival, StoreError> {
    let flags = value.try_get_u8().map_err(|_| bad())?;
    let mut seconds = |flag: u8| {
        let has = flags & flag != 0;
        has.then(|| value.try_get_u32().map_err(|_| bad())).transpose()
    };
    let (delay, ttl) = (seconds(HAS_DELAY)?, seconds(HAS_TTL)?);
    let life = match ttl {
        Some(ttl) => ArrivalLife::Seconds(ttl),
        None if flags & HAS_LIFE_OF_TARGET != 0 => ArrivalLife::OfTarget,
        None => ArrivalLife::Kept,
    };
    let group = (flags & HAS_GROUP != 0).then(|| take_group(&value)).transpose()?;
    Ok(Arrival { delay, life, group })
}

fn encode_life(life: Life) -> Bytes {
    let mut value = BytesMut::with_capacity(13);
    match life {
        Life::Own { ttl, expires } => {
            value.put_u8(0);
            value.put_u32(ttl);
            value.put_u64(expires.as_millis());
        }
        Life::Retained { since } => {
            value.put_u8(1);
            value.put_u64(since.as_millis());
        }
    }
    value.freeze()
}

fn decode_life(mut value: Bytes) -> Result<Life, StoreError> {
    let kind = value.try_get_u8().map_err(|_| bad())?;
    match (kind, value.remaining()) {
        (0, 12) => Ok(Life::Own { ttl: value.get_u32(), expires: Timestamp::from_millis(value.get_u64()) }),
        (1, 8) => Ok(Life::Retained { since: Timestamp::from_millis(value.get_u64()) }),
        _ => Err(bad()),
    }
}

fn put_event(value: &mut BytesMut, Event { at, what, by, reason, seconds }: &Event) {
    value.put_u8(match what {
        EventKind::Expired => 0,
        EventKind::Released => 1,
        EventKind::Failed => 2,
        EventKind::Deferred => 3,
        EventKind::Moved => 4,
        EventKind::Requeued => 5,
    });
    value.put_u64(at.as_millis());
    value.put_u32(*seconds);
    put_text(value, by.as_ref().map_or("", Holder::as_str));
    put_text(value, reason.as_ref().map_or("", Reason::as_str));
}

fn take_events(mut value: Bytes) -> Result<Vec<Event>, StoreError> {
    let mut events = Vec::new();
    while value.has_remaining() {
        if value.remaining() < 13 {
            return Err(bad());
        }
        let what = match value.get_u8() {
            0 => EventKind::Expired,
            1 => EventKind::Released,
            2 => EventKind::Failed,
            3 => EventKind::Deferred,
            4 => EventKind::Moved,
            5 => EventKind::Requeued,
            _ => return Err(bad()),
        };
        let (at, seconds) = (Timestamp::from_millis(value.get_u64()), value.get_u32());
        let (by, reason) = (take_text(&mut value)?, take_text(&mut value)?);
        let by = (!by.is_empty()).then(|| Holder::stored(&by));
        let reason = (!reason.is_empty()).then(|| Reason::stored(&reason));
        events.push(Event { at, what, by, reason, seconds });
    }
    Ok(events)
}

fn take_texts(mut value: Bytes) -> Result<Vec<String>, StoreError> {
    let mut texts = Vec::new();
    while value.has_remaining() {
        texts.push(take_text(&mut value)?);
    }
    Ok(texts)
}

fn take_text(value: &mut Bytes) -> Result<String, StoreError> {
    let length = value.try_get_u16().map_err(|_| bad())?.into();
    Ok(text(&take(value, length)?)?.to_owned())
}

fn take(value: &mut Bytes, length: usize) -> Result<Bytes, StoreError> {
    if value.remaining() < length { Err(bad()) } else { Ok(value.split_to(length)) }
}

fn text(value: &[u8]) -> Result<&str, StoreError> {
    str::from_utf8(value).map_err(|_| bad())
}

fn whole(value: &[u8]) -> Result<u32, StoreError> {
    value.try_into().map(u32::from_be_bytes).map_err(|_| bad())
}

fn bad() -> StoreError {
    damaged("the extras of a message")
}

#[cfg(test)]
mod tests {
    use super::*;
    use angarium_core::group::GroupName;

    fn all() -> Extras {
        let event = |what, by: &str, reason: &str| Event {
            at: Timestamp::from_millis(7),
            what,
            by: Holder::cut(by),
            reason: Reason::cut(reason),
            seconds: 3,
        };
        Extras {
            keep: Some(Keep::stored(60)),
            tags: Tags::stored(vec!["a".to_owned(), "ä b".to_owned()]),
            meta: Some(Meta::stored(Bytes::from_static(b"{}"))),
            forgotten: 9,
            by: Holder::cut("worker 1"),
            result: Some(Outcome::stored(Bytes::from_static(b"[1]"))),
            reason: Reason::cut("no space"),
            life: Some(Life::Own { ttl: 5, expires: Timestamp::from_millis(6) }),
            arrival: Some(Arrival {
                delay: Some(0),
                life: ArrivalLife::Seconds(60),
                group: Some(GroupName::new("g", "group").unwrap()),
            }),
            history: vec![event(EventKind::Failed, "w", "r"), event(EventKind::Requeued, "", "")],
            held: Some(HoldId(Uuid::from_u128(1))),
            hops: 2,
            arrived: Some(MessageId::from_bytes([7; 16])),
        }
    }

    #[test]
    fn extras_survive_their_stored_form() {
        let retained = Life::Retained { since: Timestamp::from_millis(1) };
        for extras in [
            Extras::default(),
            all(),
            Extras { life: Some(retained), ..Extras::default() },
            Extras { arrival: Some(Arrival::default()), ..Extras::default() },
            Extras {
                arrival: Some(Arrival { life: ArrivalLife::OfTarget, ..Arrival::default() }),
                ..Extras::default()
            },
        ] {
            assert_eq!(decode(encode(&extras)).unwrap(), extras);
        }
        assert!(encode(&Extras::default()).is_empty());
    }

    #[test]
    fn stored_bytes_of_extras_never_change() {
        let hex: String = encode(&all()).iter().map(|byte| format!("{byte:02x}")).collect();
        let expected = "010000000400000\
            03c020000000900016100\
            04c3a42062";
        assert!(hex.starts_with(&expected.replace(' ', "")), "{hex}");
        let ends = "0b0000001000000000000000000000000000000001\
            0c0000000400000002\
            0d0000001007070707070707070707070707070707";
        assert!(hex.ends_with(&ends.replace(' ', "")), "{hex}");
    }

    #[test]
    fn unknown_field_is_skipped() {
        let mut value = BytesMut::new();
        put(&mut value, 200, b"later");
        value.extend_from_slice(&encode(&all()));
        assert_eq!(decode(value.freeze()).unwrap(), all());
    }

    #[test]
    fn truncated_extras_are_damaged() {
        let value = encode(&all());
        let whole = (0..value.len()).filter(|length| decode(value.slice(..*length)).is_ok());
        // Cut between two fields, the rest is whole.
        assert_eq!(whole.count(), 13);
    }
}
