//! Messages in transfer as their target has them: prepared, with the lives, the groups and the envelopes that begin there.

use std::sync::Arc;

use bytes::Bytes;

use angarium_core::delay::Delay;
use angarium_core::envelope::Envelope;
use angarium_core::group::GroupName;
use angarium_core::ids::MessageId;
use angarium_core::message::{Header, Life, Message, MessageTtl, Peer};
use angarium_core::outcome::{Arrival, ArrivalLife, Event, EventKind};
use angarium_core::time::Timestamp;
use angarium_engine::prepared;

use crate::slot::post::MessageDefaults;
use crate::transfer::lost_targets::is_kept_in_transfer;

/// Whether a message in transfer has reached its max number of claims. A redriven message was never claimed: its
/// attempts begin again at 0.
fn is_dead_letter(header: &Header) -> bool {
    header.attempts > 0 && !is_kept_in_transfer(header)
}

/// The lives that begin for messages at a target.
pub(crate) struct TargetLives {
    /// The TTL of dead letters there, if they get one.
    pub(crate) ttl: Option<MessageTtl>,
    /// Whether the target keeps the order of groups.
    pub(crate) is_ordered: bool,
    pub(crate) now: Timestamp,
    /// For forwarded messages that have no values of their own.
    pub(crate) defaults: MessageDefaults,
    /// Whether new messages are marked, because every replica reads the mark.
    pub(crate) fans_out: bool,
}

impl TargetLives {
    /// Returns a message as the target has it, prepared.
    pub(crate) fn arriving(&self, Message { mut header, body }: Message, peer: &Arc<Peer>) -> Message {
        let arrival = header.extras.as_mut().and_then(|extras| {
            extras.arrived = None;
            extras.arrival.take()
        });
        header = available_on_arrival(header, self.now);
        let body = enveloped(&header, peer, body);
        let size = u32::try_from(body.len()).expect("bodies are within the bound of a request");
        let mut there = Header { size, ..prepared(&header, peer, self.of(&header), self.now) };
        if let Some(Arrival { delay, life, group }) = arrival {
            there.ready = delay.map_or(self.defaults.delay, Delay::Seconds).ready(self.now);
            there.group = group.or(there.group);
            let ttl = match life {
                ArrivalLife::Kept => None,
                ArrivalLife::OfTarget => Some(self.defaults.ttl),
                ArrivalLife::Seconds(ttl) => Some(ttl),
            };
            there.life = ttl.map_or(there.life, |ttl| Life::lasting(ttl, there.ready));
            if self.fans_out {
                there.extras_mut().arrival = Some(Arrival::default());
            }
        }
        // A message whose life has ended in transfer, or ends in the delay of its new queue, must not expire unseen.
        if let Life::Own { expires, .. } = there.life
            && expires <= there.ready
        {
            there.life = there.life.begun_again(there.ready);
        }
        if self.is_ordered {
            there.group.get_or_insert_with(GroupName::default);
        }
        there.extras = there.extras.filter(|extras| !extras.is_empty());
        Message { header: there, body }
    }

    /// Returns the life that begins for a message, if one does: for a dead letter that gets a TTL, and for a message
    /// that lives by the retention of a queue in order of groups (SQS). Other messages keep their lives.
    fn of(&self, header: &Header) -> Option<Life> {
        let ttl = self.ttl.filter(|_| is_dead_letter(header));
        let is_retained = self.is_ordered && header.life.retained_since().is_some();
        let retained = is_retained.then_some(Life::Retained { since: self.now });
        ttl.map(|ttl| Life::lasting(ttl.seconds(), self.now)).or(retained)
    }
}

/// Returns the header of a kept message as one that is available: without its outcome, and with the life that it had
/// before, which begins again. Others stay as they are.
fn available_on_arrival(mut header: Header, now: Timestamp) -> Header {
    let Some(life) = header.extras.as_mut().and_then(|extras| extras.life.take()) else { return header };
    let extras = header.extras_mut();
    let by = extras.by.take();
    (extras.result, extras.reason) = (None, None);
    extras.note(Event { at: now, what: EventKind::Moved, by, reason: None, seconds: 0 });
    header.restart_attempts();
    Header { created: now, life: life.begun_again(now), ..header }
}

/// The dead letters among these messages.
pub(crate) fn dead_letters<'a>(headers: impl Iterator<Item = &'a Header>) -> Vec<MessageId> {
    headers.filter(|header| is_dead_letter(header)).map(|header| header.id).collect()
}

/// Returns a body with its envelope for the target. That of a dead letter has its source, and its number of claims
/// there; that of another message has neither.
fn enveloped(header: &Header, peer: &Peer, body: Bytes) -> Bytes {
    let (envelope, body) = Envelope::split(body);
    let (source, attempts) = if is_dead_letter(header) {
        (Some(peer.at.name.clone()), envelope.attempts.saturating_add(header.attempts))
    } else {
        (None, 0)
    };
    Envelope { source, attempts, ..envelope }.before(body)
}
