//! The copies of messages in the queues of subscriptions.
//!
//! The copy for consumers is as the message is. The copy for another queue is in transfer to it from the first moment: the
//! mover of the subscription's queue sends it there. Each such copy is a hop. One beyond [`core_limits::HOPS`] is a dead
//! letter: so a circle of queues ends, and nothing is lost by that.

use std::sync::Arc;

use angarium_core::ids::{MessageId, SubscriptionId};
use angarium_core::limits as core_limits;
use angarium_core::message::{Header, Life, Message, Peer, Retention, State};
use angarium_core::names::{QueueName, QueueRef};
use angarium_core::outcome::{Arrival, Event, EventKind, Extras, Reason};
use angarium_core::subscription::{Subscriber, Subscription};
use angarium_core::time::Timestamp;

use crate::slot::commit::count;
use crate::slot::gaps::position;
use crate::slot::queue_handle::QueueHandle;
use crate::slot::removal_watch::waits;
use crate::slot::state::OpenQueue;

/// The terms of the copies for a subscription.
pub(crate) struct CopyTerms {
    source: QueueRef,
    subscription: Arc<Subscription>,
    /// The queue that gets its messages that fail for good.
    dead_letter_queue: Option<QueueName>,
    retention: Retention,
    now: Timestamp,
}

impl OpenQueue {
    /// Returns the terms of copies to this queue of a subscription.
    pub(in crate::slot) fn copy_terms(
        &self,
        source: &QueueRef,
        to: &Arc<Subscription>,
        now: Timestamp,
    ) -> CopyTerms {
        CopyTerms {
            source: source.clone(),
            subscription: Arc::clone(to),
            dead_letter_queue: self.attributes.dead_letter_queue.clone(),
            retention: self.engine.retention(),
            now,
        }
    }

    /// Tells the engine that copies are durable. Returns whether some are in transfer.
    pub(in crate::slot) fn take_copies(&mut self, copies: Vec<Message>) -> bool {
        self.counters.sent.inc_by(count(&copies));
        self.pace.count_posted(count(&copies));
        let (leaving, own): (Vec<Message>, Vec<Message>) =
            copies.into_iter().partition(|message| message.header.state.is_in_transfer());
        let (failed, own): (Vec<Message>, Vec<Message>) =
            own.into_iter().partition(|message| message.header.state == State::Failed);
        let leaving: Vec<_> = leaving.iter().map(|message| message.header.id).collect();
        if !leaving.is_empty() {
            self.engine.expect_in_transfer(&leaving);
        }
        if !failed.is_empty() {
            self.counters.settled.failed.inc_by(count(&failed));
            self.engine.expect_kept();
        }
        if !own.is_empty() {
            self.engine.posted(own);
        }
        !leaving.is_empty()
    }
}

impl QueueHandle {
    /// Returns the terms of copies to this queue of a subscription. None when it is closed.
    pub(crate) fn copy_terms(
        &self,
        source: &QueueRef,
        to: &Arc<Subscription>,
        now: Timestamp,
    ) -> Option<CopyTerms> {
        self.lock_queue(|queue| queue.copy_terms(source, to, now))
    }
}

/// A message of the source as a post would have it. Its past in other queues, and what a consumer of the source did with
/// it, is none of the copies'.
pub(in crate::slot) fn as_posted(header: &Header) -> Header {
    let extras = header.extras.as_ref().map(|extras| Extras {
        keep: extras.keep,
        tags: extras.tags.clone(),
        hops: extras.hops,
        ..Extras::default()
    });
    let extras = extras.filter(|extras| !extras.is_empty()).map(Box::new);
    Header { attempts: 0, first_claimed: None, extras, ..header.clone() }
}

impl CopyTerms {
    /// The copy of a message that waits in the source, for a subscriber. None of a message that is leaving the source, or
    /// has an outcome. It is ready, unless it was posted with a delay that has not ended.
    pub(crate) fn waiting_copy(&self, message: &Message, id: SubscriptionId) -> Option<Message> {
        let Message { header, body } = message;
        if !waits(header) {
            return None;
        }
        let is_unclaimed = header.grant() == 0 && header.held().is_none();
        let is_delayed = header.state == State::Scheduled && is_unclaimed;
        let (state, ready) = if is_delayed {
            (State::Scheduled, header.ready)
        } else {
            (State::Ready, header.created.min(self.now))
        };
        let posted = Header { ready, state, ..as_posted(header) };
        // A message may arrive more than once under its id.
        let place = Some(position(header)).filter(|place| *place > MessageId::ZERO).unwrap_or(header.id);
        Some(self.copy(&Message { header: posted, body: body.clone() }, place.of_copy(id)))
    }

    /// The copy of a message. It has an id of its own: two copies, or a copy and its message, may meet in one queue later,
    /// where a transfer tells messages apart by their ids alone.
    pub(in crate::slot) fn copy(&self, Message { header, body }: &Message, id: MessageId) -> Message {
        let header = match &self.subscription.subscriber {
            Subscriber::Pull(_) | Subscriber::Webhook(_) => header.clone(),
            Subscriber::Queue(_) if hops(header) >= core_limits::HOPS => self.stopped(header),
            Subscriber::Queue(target) => self.sent_on(header, target),
        };
        Message { header: Header { id, ..header }, body: body.clone() }
    }

    /// The state of a message in transfer to a queue of the project.
    fn moving(&self, target: &QueueName) -> State {
        let at = QueueRef { project: self.source.project.clone(), name: target.clone() };
        State::Moving(Arc::new(Peer { at, queue: None }))
    }

    /// The header of a copy in transfer to another queue of the project.
    fn sent_on(&self, header: &Header, target: &QueueName) -> Header {
        let delay = header.ready.as_millis().saturating_sub(self.now.as_millis()).div_ceil(1_000);
        let delay = (delay > 0).then(|| u32::try_from(delay).unwrap_or(u32::MAX));
        let arrival = Some(Arrival { delay, group: header.group.clone(), ..Arrival::default() });
        let tags = header.extras.as_ref().map(|extras| extras.tags.clone()).unwrap_or_default();
        Header {
            ready: self.now,
            state: self.moving(target),
            // Its group blocks none of this queue.
            group: None,
            extras: Some(Box::new(Extras { tags, arrival, hops: hops(header) + 1, ..Extras::default() })),
            ..header.clone()
        }
    }

    /// The header of a copy that too many queues have sent on: a dead letter. Without a queue for these it is kept as failed
    /// for the rest of its life.
    fn stopped(&self, header: &Header) -> Header {
        let why = format!("{} queues have sent it on, one after the other: they form a circle", hops(header));
        let reason = Reason::cut(&why);
        let tags = header.extras.as_ref().map(|extras| extras.tags.clone()).unwrap_or_default();
        let mut extras = Extras { tags, reason: reason.clone(), ..Extras::default() };
        extras.note(Event { at: self.now, what: EventKind::Failed, by: None, reason, seconds: 0 });
        // The hop that it does not get is its attempt, as of each dead letter.
        let mut failed = Header { ready: self.now, attempts: 1, ..header.clone() };
        if let Some(target) = &self.dead_letter_queue {
            failed.state = self.moving(target);
        } else {
            let rest = header.expires(self.retention).seconds_since(self.now);
            let rest = u32::try_from(rest).unwrap_or(u32::MAX).max(1);
            failed.state = State::Failed;
            extras.life = Some(std::mem::replace(&mut failed.life, Life::lasting(rest, self.now)));
        }
        Header { extras: Some(Box::new(extras)), ..failed }
    }
}

/// Number of `queue:` subscriptions that have sent a message on, one after the other.
fn hops(header: &Header) -> u32 {
    header.extras.as_ref().map_or(0, |extras| extras.hops)
}
