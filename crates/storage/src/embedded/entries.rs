//! Headers and entries in their stored form, described in `stored.rs`.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use uuid::Uuid;

use crate::StoreError;
use crate::states::{self, damaged};
use angarium_core::ids::MessageId;
use angarium_core::message::{Header, Life, Message};
use angarium_core::time::Timestamp;

/// The tag of a header without extras, and of one with them; then of one that is by queue.
const PLAIN: u8 = 2;
const WITH_EXTRAS: u8 = 3;
const RETAINED: u8 = 4;
const RETAINED_WITH_EXTRAS: u8 = 5;
/// Bytes of a header without extras and peer.
const HEAD_BYTES: usize = 54;

pub(super) fn encode_entry(header: &Header, body: &[u8]) -> Bytes {
    let mut value = BytesMut::with_capacity(HEAD_BYTES + body.len());
    put_header(&mut value, header);
    value.put_slice(body);
    value.freeze()
}

pub(super) fn decode_entry(id: MessageId, value: &Bytes) -> Result<Message, StoreError> {
    let mut rest = value.clone();
    let header = take_header(id, &mut rest)?;
    Ok(Message { header, body: rest })
}

pub(super) fn encode_header(header: &Header) -> Bytes {
    encode_entry(header, &[])
}

pub(super) fn decode_header(id: MessageId, value: &Bytes) -> Result<Header, StoreError> {
    take_header(id, &mut value.clone())
}

fn put_header(value: &mut BytesMut, header: &Header) {
    let has_extras = states::has_extras(header);
    value.put_u8(match (header.life, has_extras) {
        (Life::Own { .. }, false) => PLAIN,
        (Life::Own { .. }, true) => WITH_EXTRAS,
        (Life::Retained { .. }, false) => RETAINED,
        (Life::Retained { .. }, true) => RETAINED_WITH_EXTRAS,
    });
    let (ttl, ends) = states::life_numbers(header.life);
    value.put_u8(states::number(&header.state));
    value.put_u64(header.created.as_millis());
    value.put_u64(header.ready.as_millis());
    value.put_u64(ends);
    value.put_u32(ttl);
    value.put_u32(header.attempts);
    value.put_u32(header.size);
    value.put_slice(header.client.unwrap_or_default().as_bytes());
    if has_extras {
        states::put_extras(value, header);
    }
    states::put_peer(value, &header.state);
}

fn take_header(id: MessageId, rest: &mut Bytes) -> Result<Header, StoreError> {
    let tag = rest.first().copied().filter(|tag| (PLAIN..=RETAINED_WITH_EXTRAS).contains(tag));
    let Some(tag) = tag.filter(|_| rest.len() >= HEAD_BYTES) else {
        return Err(damaged("the header of a message"));
    };
    rest.advance(1);
    let state = rest.get_u8();
    let (created, ready, expires) = (rest.get_u64(), rest.get_u64(), rest.get_u64());
    let (ttl, attempts, size) = (rest.get_u32(), rest.get_u32(), rest.get_u32());
    let client = Some(Uuid::from_u128(rest.get_u128())).filter(|client| !client.is_nil());
    let has_extras = matches!(tag, WITH_EXTRAS | RETAINED_WITH_EXTRAS);
    let (group, first_claimed) = if has_extras { states::take_extras(rest)? } else { (None, None) };
    Ok(Header {
        id,
        created: Timestamp::from_millis(created),
        ready: Timestamp::from_millis(ready),
        life: states::life_of(matches!(tag, RETAINED | RETAINED_WITH_EXTRAS), ttl, expires),
        attempts,
        client,
        size,
        state: states::take_state(state, rest)?,
        group,
        first_claimed,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use angarium_core::group::GroupName;
    use angarium_core::ids::QueueId;
    use angarium_core::message::{Peer, State};
    use angarium_core::names::{ProjectId, QueueName, QueueRef};

    fn peer(queue: Option<QueueId>) -> Arc<Peer> {
        let (project, name) = (ProjectId::new("p/q r").unwrap(), QueueName::new("dead").unwrap());
        Arc::new(Peer { at: QueueRef { project, name }, queue })
    }

    fn message(state: State) -> Message {
        let header = Header {
            id: MessageId::from_bytes([7; 16]),
            created: Timestamp::from_millis(1),
            ready: Timestamp::from_millis(5),
            life: Life::Own { ttl: 60, expires: Timestamp::from_millis(60_005) },
            attempts: 3,
            client: Some(Uuid::from_u128(9)),
            size: 2,
            state,
            group: None,
            first_claimed: None,
        };
        Message { header, body: Bytes::from_static(b"{}") }
    }

    #[test]
    fn an_entry_survives_its_stored_form_in_every_state() {
        let queue = QueueId::from_bytes([3; 16]);
        for state in [
            State::Ready,
            State::Scheduled,
            State::Prepared(peer(Some(queue))),
            State::Moving(peer(None)),
            State::Failed,
        ] {
            let message = message(state);
            let value = encode_entry(&message.header, &message.body);
            assert_eq!(decode_entry(message.header.id, &value).unwrap(), message);
            let life = Life::Retained { since: Timestamp::from_millis(3) };
            let retained = Message { header: Header { life, ..message.header.clone() }, ..message.clone() };
            let value = encode_entry(&retained.header, &retained.body);
            assert_eq!(decode_entry(retained.header.id, &value).unwrap(), retained);
            let alone = encode_header(&message.header);
            assert_eq!(decode_header(message.header.id, &alone).unwrap(), message.header);
        }
    }

    #[test]
    fn group_and_first_claim_survive_at_no_cost_when_absent() {
        let plain = message(State::Moving(peer(None)));
        let group = Some(GroupName::new("a:b", "group").unwrap());
        for (group, first_claimed) in [
            (group.clone(), None),
            (group, Some(Timestamp::from_millis(9))),
            (None, Some(plain.header.created)),
        ] {
            let header = Header { group, first_claimed, ..plain.header.clone() };
            let value = encode_entry(&header, &plain.body);
            assert_eq!(decode_entry(header.id, &value).unwrap().header, header);
        }
        let value = encode_entry(&message(State::Ready).header, &plain.body);
        assert_eq!(value.len(), HEAD_BYTES + plain.body.len());
    }

    #[test]
    fn truncated_header_is_damaged() {
        let mut message = message(State::Moving(peer(None)));
        message.header.group = Some(GroupName::new("g", "group").unwrap());
        let value = encode_header(&message.header);
        for length in 0..value.len() {
            assert!(decode_header(message.header.id, &value.slice(..length)).is_err(), "{length}");
        }
    }
}
