//! Headers and entries in their stored form, described in `stored.rs`.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::bodies::BodyPlace;
use super::stored;
use crate::StoreError;
use crate::header::{HEAD_BYTES, HeaderForm, TimeOrder};
use angarium_core::ids::MessageId;
use angarium_core::message::Header;

const HEADER_FORM: HeaderForm = HeaderForm { first_tag: 2, times: TimeOrder::CreatedFirst };
/// Added to the tag of an entry whose body is stored beside it.
const SHARED: u8 = 8;
/// Bytes of the place of such a body.
const PLACE_BYTES: usize = 16 + 4;

/// An entry as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoredEntry {
    pub(super) header: Header,
    pub(super) body: StoredBody,
}

/// The body of an entry, or where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StoredBody {
    Own(Bytes),
    Shared(BodyPlace),
}

impl StoredBody {
    /// Bytes of the body.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Own(body) => body.len() as u64,
            Self::Shared(place) => place.bytes.into(),
        }
    }

    /// Where a body is that other entries have too.
    pub(super) fn shared(&self) -> Option<BodyPlace> {
        match self {
            Self::Own(_) => None,
            Self::Shared(place) => Some(*place),
        }
    }
}

pub(super) fn encode_entry(header: &Header, body: &StoredBody) -> Bytes {
    let place = match body {
        StoredBody::Own(body) => return encode_own(header, body),
        StoredBody::Shared(place) => place,
    };
    let mut value = BytesMut::with_capacity(HEAD_BYTES + PLACE_BYTES);
    HEADER_FORM.put(&mut value, header);
    value[0] += SHARED;
    value.put_slice(&place.id);
    value.put_u32(place.bytes);
    value.freeze()
}

/// The form of an entry with a body of its own.
pub(super) fn encode_own(header: &Header, body: &[u8]) -> Bytes {
    let mut value = BytesMut::with_capacity(HEAD_BYTES + body.len());
    HEADER_FORM.put(&mut value, header);
    value.put_slice(body);
    value.freeze()
}

pub(super) fn decode_entry(id: MessageId, value: &Bytes) -> Result<StoredEntry, StoreError> {
    let mut rest = value.clone();
    let shared_tag = rest.first().and_then(|tag| tag.checked_sub(SHARED));
    let Some(tag) = shared_tag.filter(|tag| *tag >= HEADER_FORM.first_tag) else {
        let header = HEADER_FORM.take(id, &mut rest)?;
        return Ok(StoredEntry { header, body: StoredBody::Own(rest) });
    };
    rest.advance(1);
    let head = [tag];
    let mut rest = (&head[..]).chain(rest);
    let header = HEADER_FORM.take(id, &mut rest)?;
    if rest.remaining() != PLACE_BYTES {
        return Err(stored::damaged("the place of a body"));
    }
    let place = BodyPlace { id: rest.get_u128().to_be_bytes(), bytes: rest.get_u32() };
    Ok(StoredEntry { header, body: StoredBody::Shared(place) })
}

pub(super) fn encode_header(header: &Header) -> Bytes {
    encode_own(header, &[])
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

    fn entry(state: State) -> StoredEntry {
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
        StoredEntry { header, body: StoredBody::Own(Bytes::from_static(b"{}")) }
    }

    fn shared() -> StoredBody {
        StoredBody::Shared(BodyPlace { id: [5; 16], bytes: 700 })
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
            let plain = entry(state);
            let life = Life::Retained { since: Timestamp::from_millis(3) };
            let retained = StoredEntry { header: Header { life, ..plain.header.clone() }, ..plain.clone() };
            for entry in [plain.clone(), retained] {
                for body in [entry.body, shared()] {
                    let entry = StoredEntry { header: entry.header.clone(), body };
                    let value = encode_entry(&entry.header, &entry.body);
                    assert_eq!(decode_entry(entry.header.id, &value).unwrap(), entry);
                }
            }
            let alone = encode_header(&plain.header);
            assert_eq!(decode_header(plain.header.id, &alone).unwrap(), plain.header);
        }
    }

    #[test]
    fn group_and_first_claim_survive_at_no_cost_when_absent() {
        let plain = entry(State::Moving(peer(None)));
        let group = Some(GroupName::new("a:b", "group").unwrap());
        for (group, first_claimed) in [
            (group.clone(), None),
            (group, Some(Timestamp::from_millis(9))),
            (None, Some(plain.header.created)),
        ] {
            let header = Header { group, first_claimed, ..plain.header.clone() };
            for body in [&plain.body, &shared()] {
                let value = encode_entry(&header, body);
                assert_eq!(decode_entry(header.id, &value).unwrap().header, header);
            }
        }
        let value = encode_entry(&entry(State::Ready).header, &plain.body);
        assert_eq!(value.len(), HEAD_BYTES + 2);
    }

    #[test]
    fn stored_place_of_a_shared_body_never_changes() {
        let value = encode_entry(&entry(State::Ready).header, &shared());
        assert_eq!((value[0], value.len()), (10, HEAD_BYTES + 20));
        assert_eq!(value[HEAD_BYTES..], [&[5; 16][..], &700_u32.to_be_bytes()].concat());
        for length in 0..value.len() {
            assert!(decode_entry(MessageId::ZERO, &value.slice(..length)).is_err(), "{length}");
        }
    }

    #[test]
    fn truncated_header_is_damaged() {
        let mut entry = entry(State::Moving(peer(None)));
        entry.header.group = Some(GroupName::new("g", "group").unwrap());
        let value = encode_header(&entry.header);
        for length in 0..value.len() {
            assert!(decode_header(entry.header.id, &value.slice(..length)).is_err(), "{length}");
        }
    }
}
