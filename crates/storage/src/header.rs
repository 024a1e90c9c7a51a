//! The codec of message headers. A driver that stores a header as bytes has a [`HeaderForm`]; one that stores it in
//! columns uses the functions for the parts.
//!
//! A header is its head, then its extras and the peer of its state, if it has them. The head is tag, state, three
//! times, ttl, attempts, bytes of the body, client id (1 + 1 + 3 * 8 + 4 + 4 + 4 + 16); the client id is zero when
//! there is none. The tag is the first tag of the form, plus 1 with extras, plus 2 for a life by queue: then the expiry
//! time is the base time and the ttl is 0. Plus 4 for fields that few messages have. The form gives the order of the
//! times.
//!
//! States are 0 ready, 1 scheduled, 2 prepared, 3 moving, 4 without a target, 5 done, 6 failed. A peer is: queue id or
//! zero, bytes of the project, project, bytes of the name, name (16 + 2 + any + 2 + any). A header with a group or with
//! an earlier claim has extras: first claim or zero, bytes of the group, group (8 + 1 + any). The fields of few
//! messages follow: their bytes, the fields of [`crate::extras`] (4 + any). Numbers are big-endian; times are
//! milliseconds, ttl seconds. Databases have these forms, so they never change.

use std::sync::Arc;

use bytes::{Buf, BufMut};
use uuid::Uuid;

use super::{StoreError, extras};
use angarium_core::group::GroupName;
use angarium_core::ids::{MessageId, QueueId};
use angarium_core::message::{Header, Life, Peer, State};
use angarium_core::names::{ProjectId, QueueName, QueueRef};
use angarium_core::outcome::Extras;
use angarium_core::time::Timestamp;

/// Bytes of the head of a header.
pub(super) const HEAD_BYTES: usize = 54;

/// Added to the tag of a header with extras, and of one that lives by queue.
const EXTRAS: u8 = 1;
const RETAINED: u8 = 2;
/// Added to the tag of a header with fields that few messages have.
const FIELDS: u8 = 4;

const NO_QUEUE: [u8; 16] = [0; 16];

/// The differences between the stored headers of the drivers.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeaderForm {
    /// The smallest tag.
    pub(super) first_tag: u8,
    pub(super) times: TimeOrder,
}

/// The order of the times in a head.
#[derive(Clone, Copy, Debug)]
pub(super) enum TimeOrder {
    /// Created, ready, expires.
    CreatedFirst,
    /// Ready, expires, created.
    CreatedLast,
}

impl HeaderForm {
    /// Appends a whole header.
    pub(super) fn put(self, value: &mut impl BufMut, header: &Header) {
        let has_extras = header.group.is_some() || header.first_claimed.is_some();
        let fields = header.extras.as_deref().map(extras::encode).filter(|fields| !fields.is_empty());
        let tag = if has_extras { EXTRAS } else { 0 } + if fields.is_some() { FIELDS } else { 0 };
        self.put_tagged(value, tag, header);
        if has_extras {
            put_extras(value, header);
        }
        if let Some(fields) = fields {
            value.put_u32(u32::try_from(fields.len()).expect("fields have bounds far below"));
            value.put_slice(&fields);
        }
        put_peer(value, &header.state);
    }

    /// Appends the head only, as in a header without extras.
    pub(super) fn put_head(self, value: &mut impl BufMut, header: &Header) {
        self.put_tagged(value, 0, header);
    }

    fn put_tagged(self, value: &mut impl BufMut, extras: u8, header: &Header) {
        let (retained, ttl, end) = match header.life {
            Life::Own { ttl, expires } => (0, ttl, expires),
            Life::Retained { since } => (RETAINED, 0, since),
        };
        value.put_u8(self.first_tag + retained + extras);
        value.put_u8(number(&header.state));
        let times = match self.times {
            TimeOrder::CreatedFirst => [header.created, header.ready, end],
            TimeOrder::CreatedLast => [header.ready, end, header.created],
        };
        for time in times {
            value.put_u64(time.as_millis());
        }
        value.put_u32(ttl);
        value.put_u32(header.attempts);
        value.put_u32(header.size);
        value.put_slice(header.client.unwrap_or_default().as_bytes());
    }

    /// Reads the header of a message from the front of `rest`.
    pub(super) fn take(self, id: MessageId, rest: &mut impl Buf) -> Result<Header, StoreError> {
        let no_header = || damaged("the header of a message");
        if rest.remaining() < HEAD_BYTES {
            return Err(no_header());
        }
        let kind =
            rest.get_u8().checked_sub(self.first_tag).filter(|kind| *kind <= FIELDS + RETAINED + EXTRAS);
        let kind = kind.ok_or_else(no_header)?;
        let state = rest.get_u8();
        let times = [rest.get_u64(), rest.get_u64(), rest.get_u64()].map(Timestamp::from_millis);
        let (created, ready, end) = match (self.times, times) {
            (TimeOrder::CreatedFirst, [created, ready, end]) => (created, ready, end),
            (TimeOrder::CreatedLast, [ready, end, created]) => (created, ready, end),
        };
        let (ttl, attempts, size) = (rest.get_u32(), rest.get_u32(), rest.get_u32());
        let client = Some(Uuid::from_u128(rest.get_u128())).filter(|client| !client.is_nil());
        let is_retained = kind & RETAINED != 0;
        let life = if is_retained { Life::Retained { since: end } } else { Life::Own { ttl, expires: end } };
        let (group, first_claimed) = if kind & EXTRAS != 0 { take_extras(rest)? } else { (None, None) };
        let extras = if kind & FIELDS != 0 { Some(Box::new(take_fields(rest)?)) } else { None };
        let state = take_state(state, rest)?;
        Ok(Header { id, created, ready, life, attempts, client, size, state, group, first_claimed, extras })
    }
}

/// Error for stored data that no driver writes.
pub(super) fn damaged(what: &str) -> StoreError {
    StoreError::Damaged(format!("{what} is damaged"))
}

pub(super) fn number(state: &State) -> u8 {
    match state {
        State::Ready => 0,
        State::Scheduled => 1,
        State::Prepared(_) => 2,
        State::Moving(_) => 3,
        State::NoTarget => 4,
        State::Done => 5,
        State::Failed => 6,
    }
}

/// Appends the peer of a state that has one.
pub(super) fn put_peer(value: &mut impl BufMut, state: &State) {
    let (State::Prepared(peer) | State::Moving(peer)) = state else { return };
    value.put_slice(peer.queue.as_ref().map_or(&NO_QUEUE[..], |queue| &queue.as_bytes()[..]));
    for text in [peer.at.project.as_str(), peer.at.name.as_str()] {
        value.put_u16(u16::try_from(text.len()).expect("names have at most a few hundred bytes"));
        value.put_slice(text.as_bytes());
    }
}

/// Whether a header has more than its head and its peer.
pub(super) fn has_extras(header: &Header) -> bool {
    header.group.is_some() || header.first_claimed.is_some() || has_fields(header)
}

/// Whether a header has fields that few messages have.
pub(super) fn has_fields(header: &Header) -> bool {
    header.extras.as_deref().is_some_and(|extras| !extras.is_empty())
}

fn take_fields(rest: &mut impl Buf) -> Result<Extras, StoreError> {
    let no_fields = || damaged("the extras of a message");
    let length = rest.try_get_u32().map_err(|_| no_fields())? as usize;
    if rest.remaining() < length {
        return Err(no_fields());
    }
    extras::decode(rest.copy_to_bytes(length))
}

/// Appends the extras of a header.
fn put_extras(value: &mut impl BufMut, header: &Header) {
    value.put_u64(header.first_claimed.unwrap_or_default().as_millis());
    let group = header.group.as_ref().map_or("", GroupName::as_str);
    value.put_u8(u8::try_from(group.len()).expect("groups have at most 128 characters"));
    value.put_slice(group.as_bytes());
}

/// Reads the group and the time of the first claim from the extras of a header.
fn take_extras(rest: &mut impl Buf) -> Result<(Option<GroupName>, Option<Timestamp>), StoreError> {
    let no_extras = || damaged("the group of a message");
    let first = rest.try_get_u64().map_err(|_| no_extras())?;
    let first_claimed = Some(Timestamp::from_millis(first)).filter(|_| first > 0);
    let length = usize::from(rest.try_get_u8().map_err(|_| no_extras())?);
    if rest.remaining() < length {
        return Err(no_extras());
    }
    let group = rest.copy_to_bytes(length);
    if group.is_empty() {
        return Ok((None, first_claimed));
    }
    Ok((Some(take_group(&group)?), first_claimed))
}

/// Reads the stored name of a group.
pub(super) fn take_group(text: &[u8]) -> Result<GroupName, StoreError> {
    let name = str::from_utf8(text).ok().and_then(|text| GroupName::new(text, "group").ok());
    name.ok_or_else(|| damaged("the group of a message"))
}

/// Returns the state of a number; if it has a peer, reads that from `rest`.
pub(super) fn take_state(number: u8, rest: &mut impl Buf) -> Result<State, StoreError> {
    Ok(match number {
        0 => State::Ready,
        1 => State::Scheduled,
        2 => State::Prepared(take_peer(rest)?),
        3 => State::Moving(take_peer(rest)?),
        4 => State::NoTarget,
        5 => State::Done,
        6 => State::Failed,
        _ => return Err(damaged("the state of a message")),
    })
}

fn take_peer(rest: &mut impl Buf) -> Result<Arc<Peer>, StoreError> {
    let no_peer = || damaged("the other queue of a move");
    let queue = rest.try_get_u128().map_err(|_| no_peer())?.to_be_bytes();
    let mut text = || {
        let length = usize::from(rest.try_get_u16().ok()?);
        let is_there = rest.remaining() >= length;
        is_there.then(|| String::from_utf8(rest.copy_to_bytes(length).into()).ok()).flatten()
    };
    let (project, name) = text().zip(text()).ok_or_else(no_peer)?;
    let project = ProjectId::new(&project).map_err(|_| no_peer())?;
    let name = QueueName::stored(&name).map_err(|_| no_peer())?;
    let queue = (queue != NO_QUEUE).then(|| QueueId::from_bytes(queue));
    Ok(Arc::new(Peer { at: QueueRef { project, name }, queue }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(state: State) -> Header {
        Header {
            id: MessageId::from_bytes([7; 16]),
            created: Timestamp::from_millis(1),
            ready: Timestamp::from_millis(2),
            life: Life::Own { ttl: 60, expires: Timestamp::from_millis(3) },
            attempts: 4,
            client: Some(Uuid::from_u128(9)),
            size: 5,
            state,
            group: None,
            first_claimed: None,
            extras: None,
        }
    }

    fn encoded(form: HeaderForm, header: &Header) -> String {
        let mut value = Vec::new();
        form.put(&mut value, header);
        assert_eq!(&form.take(header.id, &mut &value[..]).unwrap(), header);
        value.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn stored_bytes_of_both_forms_never_change() {
        let embedded = HeaderForm { first_tag: 2, times: TimeOrder::CreatedFirst };
        let redis = HeaderForm { first_tag: 1, times: TimeOrder::CreatedLast };
        let rest = "0000003c000000040000000500000000000000000000000000000009";
        let [one, two, three] = ["0000000000000001", "0000000000000002", "0000000000000003"];
        let plain = header(State::Scheduled);
        assert_eq!(encoded(embedded, &plain), format!("0201{one}{two}{three}{rest}"));
        assert_eq!(encoded(redis, &plain), format!("0101{two}{three}{one}{rest}"));

        let at = QueueRef { project: ProjectId::new("p").unwrap(), name: QueueName::new("dead").unwrap() };
        let header = Header {
            life: Life::Retained { since: Timestamp::from_millis(3) },
            group: Some(GroupName::new("g", "group").unwrap()),
            first_claimed: Some(Timestamp::from_millis(6)),
            ..header(State::Moving(Arc::new(Peer { at, queue: None })))
        };
        let rest = rest.replacen("3c", "00", 1);
        let tail = format!("00000000000000060167{}0001700004{}", "00".repeat(16), "64656164");
        assert_eq!(encoded(embedded, &header), format!("0503{one}{two}{three}{rest}{tail}"));
        assert_eq!(encoded(redis, &header), format!("0403{two}{three}{one}{rest}{tail}"));
    }

    #[test]
    fn fields_of_few_messages_have_a_tag() {
        let embedded = HeaderForm { first_tag: 2, times: TimeOrder::CreatedFirst };
        let keep = Some(angarium_core::outcome::Keep::stored(9));
        let extras = Some(Box::new(Extras { keep, ..Extras::default() }));
        let kept = Header { extras, ..header(State::Done) };
        let value = encoded(embedded, &kept);
        assert!(value.starts_with("0605") && value.ends_with("00000009010000000400000009"), "{value}");
        let grouped = Header { group: Some(GroupName::new("g", "group").unwrap()), ..kept };
        assert!(encoded(embedded, &grouped).starts_with("0705"));
    }

    #[test]
    fn header_with_unknown_tag_is_damaged() {
        let form = HeaderForm { first_tag: 2, times: TimeOrder::CreatedFirst };
        let mut value = Vec::new();
        form.put(&mut value, &header(State::Ready));
        for tag in [0, 1, 10, 255] {
            value[0] = tag;
            assert!(form.take(MessageId::ZERO, &mut &value[..]).is_err(), "{tag}");
        }
    }
}
