//! What stored headers have in common, whatever the driver: the numbers of the states, and the other queue of a move.
//!
//! States are 0 ready, 1 scheduled, 2 prepared, 3 moving, 4 failed. A peer is: queue id or zero, bytes of the project,
//! project, bytes of the name, name (16 + 2 + any + 2 + any). Where a header has a group or was claimed before, its extras
//! are: first claimed or zero, bytes of the group, group (8 + 1 + any). These forms are in databases and never change.

use std::sync::Arc;

use bytes::{Buf, BufMut};

use super::StoreError;
use angarium_core::group::GroupName;
use angarium_core::ids::QueueId;
use angarium_core::message::{Header, Life, Peer, State};
use angarium_core::names::{ProjectId, QueueName, QueueRef};
use angarium_core::time::Timestamp;

const NO_QUEUE: [u8; 16] = [0; 16];

/// What is stored of something is not what a driver writes.
pub(super) fn damaged(what: &str) -> StoreError {
    StoreError::Damaged(format!("{what} is damaged"))
}

/// The number of a state.
pub(super) fn number(state: &State) -> u8 {
    match state {
        State::Ready => 0,
        State::Scheduled => 1,
        State::Prepared(_) => 2,
        State::Moving(_) => 3,
        State::Failed => 4,
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

/// The two numbers of a life, seconds and milliseconds: its ttl and when it ends; or none and the base time.
pub(super) fn life_numbers(life: Life) -> (u32, u64) {
    match life {
        Life::Own { ttl, expires } => (ttl, expires.as_millis()),
        Life::Retained { since } => (0, since.as_millis()),
    }
}

/// The life of two such numbers.
pub(super) fn life_of(is_retained: bool, ttl: u32, ends: u64) -> Life {
    let ends = Timestamp::from_millis(ends);
    if is_retained { Life::Retained { since: ends } } else { Life::Own { ttl, expires: ends } }
}

/// Whether a header has extras.
pub(super) fn has_extras(header: &Header) -> bool {
    header.group.is_some() || header.first_claimed.is_some()
}

/// Appends the extras of a header.
pub(super) fn put_extras(value: &mut impl BufMut, header: &Header) {
    value.put_u64(header.first_claimed.unwrap_or_default().as_millis());
    let group = header.group.as_ref().map_or("", GroupName::as_str);
    value.put_u8(u8::try_from(group.len()).expect("groups have at most 128 characters"));
    value.put_slice(group.as_bytes());
}

/// The group and the time of the first claim of a header with extras.
pub(super) fn take_extras(rest: &mut impl Buf) -> Result<(Option<GroupName>, Option<Timestamp>), StoreError> {
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

/// The name of a group as it is stored.
pub(super) fn take_group(text: &[u8]) -> Result<GroupName, StoreError> {
    let name = str::from_utf8(text).ok().and_then(|text| GroupName::new(text, "group").ok());
    name.ok_or_else(|| damaged("the group of a message"))
}

/// The state of a number; its peer, if it has one, is taken from `rest`.
pub(super) fn take_state(number: u8, rest: &mut impl Buf) -> Result<State, StoreError> {
    Ok(match number {
        0 => State::Ready,
        1 => State::Scheduled,
        2 => State::Prepared(take_peer(rest)?),
        3 => State::Moving(take_peer(rest)?),
        4 => State::Failed,
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
    let name = QueueName::new(&name).map_err(|_| no_peer())?;
    let queue = (queue != NO_QUEUE).then(|| QueueId::from_bytes(queue));
    Ok(Arc::new(Peer { at: QueueRef { project, name }, queue }))
}
