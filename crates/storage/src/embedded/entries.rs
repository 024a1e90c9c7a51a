//! Headers and entries in their stored form, described in `stored.rs`.

use bytes::{BufMut, Bytes, BytesMut};

use crate::StoreError;
use crate::header::{HEAD_BYTES, HeaderForm, TimeOrder};
use angarium_core::ids::MessageId;
use angarium_core::message::{Header, Message};

const HEADER_FORM: HeaderForm = HeaderForm { first_tag: 2, times: TimeOrder::CreatedFirst };

pub(super) fn encode_entry(header: &Header, body: &[u8]) -> Bytes {
    let mut value = BytesMut::with_capacity(HEAD_BYTES + body.len());
    HEADER_FORM.put(&mut value, header);
    value.put_slice(body);
    value.freeze()
}

pub(super) fn decode_entry(id: MessageId, value: &Bytes) -> Result<Message, StoreError> {
    let mut rest = value.clone();
    let header = HEADER_FORM.take(id, &mut rest)?;
    Ok(Message { header, body: rest })
}

pub(super) fn encode_header(header: &Header) -> Bytes {
    encode_entry(header, &[])
}

pub(super) fn decode_header(id: MessageId, value: &Bytes) -> Result<Header, StoreError> {
    HEADER_FORM.take(id, &mut value.clone())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use angarium_core::group::GroupName;
    use angarium_core::ids::QueueId;
    use angarium_core::message::{Life, Peer, State};
    use angarium_core::names::{ProjectId, QueueName, QueueRef};
    use angarium_core::time::Timestamp;
    use uuid::Uuid;

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
            extras: None,
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
            State::NoTarget,
            State::Done,
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
