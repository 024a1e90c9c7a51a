//! What the history keeps of each message: its post, its deliveries, and all that may have removed, moved or hidden it.

use std::time::Duration;

use super::GRACE;
use super::places::family;
use super::requeues::Requeue;

/// A request without an answer has been carried out, or never will be, after this time: three minutes in the network,
/// and the time of a request at its replica.
pub const LATEST: Duration = Duration::from_secs(240);

/// Times of a request: when its client sent it, and when the client had the answer or gave up.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// When the request began.
    pub began: Duration,
    /// When the client had its answer, or gave up.
    pub ended: Duration,
}

impl Span {
    pub(super) fn open(began: Duration) -> Self {
        Self { began, ended: Duration::MAX }
    }
}

/// Whether a change was made, as its client knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certainty {
    /// It was made.
    Done,
    /// It was not made, and never will be.
    NotDone,
    /// It may have been made, or may be made later.
    Unknown,
}

/// How a message is posted.
#[derive(Clone, Debug, Default)]
pub struct PostTerms {
    /// The queue.
    pub queue: usize,
    /// Its group.
    pub group: Option<String>,
    /// Whether the messages of its group are delivered in order.
    pub is_fifo: bool,
    /// Seconds until it can be claimed.
    pub delay: u64,
    /// Seconds that it lives from then on, for a message whose life may end within the run.
    pub ttl: Option<u64>,
}

/// A message that a client holds.
#[derive(Clone, Debug)]
pub struct HeldMessage {
    /// The number that is its body.
    pub number: u64,
    /// Its id.
    pub id: String,
    /// How often it has been claimed, this claim included; none if the answer does not tell.
    pub attempts: Option<u64>,
}

/// A claim that a client holds.
#[derive(Clone, Debug)]
pub struct HeldClaim {
    /// Its id.
    pub id: String,
    /// Its messages.
    pub messages: Vec<HeldMessage>,
}

/// The history of one message.
#[derive(Clone, Debug)]
pub(super) struct MessageHistory {
    pub(super) terms: PostTerms,
    pub(super) post: Span,
    pub(super) posted: Certainty,
    /// Number of posts of the message, which have one deduplication id.
    pub(super) posts: u64,
    /// Number of those without an outcome.
    pub(super) open_posts: u64,
    /// Whether one of those had an unknown outcome.
    pub(super) is_post_in_doubt: bool,
    /// The entry of a settle that forwards it.
    pub(super) forwarded_by: Option<usize>,
    /// The id, once an answer has told it.
    pub(super) id: Option<String>,
    pub(super) deliveries: Vec<Delivery>,
    pub(super) deletes: Vec<Delete>,
    pub(super) arrivals: Vec<Arrival>,
    pub(super) delays: Vec<Delay>,
    pub(super) visibilities: Vec<Visibility>,
    pub(super) requeues: Vec<Requeue>,
}

/// One delivery of a message.
#[derive(Clone, Debug)]
pub(super) struct Delivery {
    pub(super) queue: usize,
    pub(super) claim: String,
    pub(super) span: Span,
    /// How often the message had been claimed, this claim included, if the answer told.
    pub(super) attempts: Option<u64>,
    /// The least time for which its holder may rely on the claim, from the begin of the request.
    pub(super) lease: Duration,
    /// The least lease by a renewal without an answer, which may still shorten the claim.
    pub(super) doubtful_lease: Duration,
    /// When its holder began to give it up, if it did.
    pub(super) released: Option<Duration>,
    /// Whether its holder has begun to settle it.
    pub(super) is_settled: bool,
    /// Whether a change of visibility may have taken the message out of the claim: what happens to the claim later does
    /// not concern it then.
    pub(super) may_be_split: bool,
    /// After this time the claim has certainly ended.
    pub(super) over: Duration,
    /// After this time the message does not live by the claim and its grace any more.
    pub(super) life: Duration,
}

impl Delivery {
    /// Notes a change of visibility: the claim may end with the new time.
    pub(super) fn change(&mut self, change: &Visibility) {
        self.may_be_split = true;
        self.extend(change.span.began, change.ttl);
        self.lease = self.lease.min(change.span.began.saturating_sub(self.span.began) + change.lease);
    }

    /// Notes that a request for `ttl` more seconds begins, which may be carried out late.
    pub(super) fn extend(&mut self, began: Duration, ttl: u64) {
        self.over = self.over.max(began + LATEST + longest(ttl));
        self.life = self.life.max(began + LATEST + longest(ttl + GRACE));
    }
}

/// The reason for which a message leaves a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Removal {
    /// It is deleted, or settled.
    Delete,
    /// All messages of the queue are removed.
    All,
    /// It moves to another queue.
    Move,
    /// A pop takes it, the one with this number.
    Pop(u64),
}

/// A request by which a message leaves a queue. If the message is in another queue, it does nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delete {
    pub(super) queue: usize,
    pub(super) span: Span,
    pub(super) certainty: Certainty,
    pub(super) why: Removal,
    /// Whether the message may be kept with its outcome, and be requeued.
    pub(super) may_keep: bool,
}

impl Delete {
    pub(super) fn begun(queue: usize, began: Duration, why: Removal) -> Self {
        Self { queue, span: Span::open(began), certainty: Certainty::Unknown, why, may_keep: false }
    }
}

/// A request that moves a message into a queue. It may arrive there some time later.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) queue: usize,
    pub(super) span: Span,
    pub(super) certainty: Certainty,
    /// Whether the message is new there for subscriptions: a dead letter that returns to its queue is not.
    pub(super) is_new: bool,
}

/// A time for which a message cannot be claimed in a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delay {
    pub(super) queue: usize,
    /// A delivery whose request begins from here on is one after the delay began.
    pub(super) since: Duration,
    /// The message certainly cannot be claimed before this time.
    pub(super) until: Duration,
    /// The delay has certainly ended after this time.
    pub(super) over: Duration,
}

/// A change of the visibility of a received message. It concerns the holder of that moment, also another one than the
/// client that made the request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Visibility {
    pub(super) span: Span,
    /// The least time for which the holder may rely on the claim after the begin of the change.
    pub(super) lease: Duration,
    /// The new time, in seconds.
    pub(super) ttl: u64,
}

impl MessageHistory {
    pub(super) fn begun(terms: PostTerms, began: Duration) -> Self {
        Self {
            terms,
            post: Span::open(began),
            posted: Certainty::Unknown,
            posts: 0,
            open_posts: 0,
            is_post_in_doubt: false,
            forwarded_by: None,
            id: None,
            deliveries: Vec::new(),
            deletes: Vec::new(),
            arrivals: Vec::new(),
            delays: Vec::new(),
            visibilities: Vec::new(),
            requeues: Vec::new(),
        }
    }

    /// Whether the message may be in a queue, or in the queue of its dead letters, at some time.
    pub(super) fn may_be_in(&self, queue: usize) -> bool {
        let queue = family(queue);
        let arrives =
            |arrival: &Arrival| arrival.certainty != Certainty::NotDone && family(arrival.queue) == queue;
        self.terms.queue == queue || self.arrivals.iter().any(arrives)
    }

    /// Whether the message may have returned from the dead letters.
    pub(super) fn may_return_from_dead(&self) -> bool {
        self.arrivals.iter().any(|arrival| !arrival.is_new)
    }

    /// Whether the message may arrive in a queue, from another one.
    pub(super) fn arrives(&self, queue: usize) -> bool {
        self.arrivals_at(queue).next().is_some()
    }

    /// The arrivals in a queue that may have happened.
    pub(super) fn arrivals_at(&self, queue: usize) -> impl Iterator<Item = &Arrival> {
        let arrives = move |arrival: &&Arrival| {
            arrival.is_new && arrival.certainty != Certainty::NotDone && arrival.queue == queue
        };
        self.arrivals.iter().filter(arrives)
    }

    /// Whether the message may have arrived at the queue of a delete after that delete, or have been kept and requeued.
    pub(super) fn may_have_returned(&self, delete: &Delete) -> bool {
        if self.may_be_requeued_after(delete) {
            return true;
        }
        let has_arrived_before = |arrival: &Arrival| {
            let is_arrived = |delivery: &Delivery| {
                delivery.queue == delete.queue
                    && delivery.span.began >= arrival.span.ended
                    && delivery.span.ended <= delete.span.began
            };
            arrival.certainty == Certainty::Done && self.deliveries.iter().any(is_arrived)
        };
        self.arrivals.iter().any(|arrival| {
            arrival.queue == delete.queue
                && arrival.certainty != Certainty::NotDone
                && !has_arrived_before(arrival)
        })
    }

    /// Whether a repeated post may have stored the message again: a purge forgets deduplication ids.
    pub(super) fn may_be_stored_again(&self) -> bool {
        let may_be_purged =
            |delete: &Delete| delete.why == Removal::All && delete.certainty != Certainty::NotDone;
        self.posts > 1 && self.deletes.iter().any(may_be_purged)
    }

    /// Whether its place among the messages of its group is certain: it was posted there, and stays there.
    pub(super) fn is_ordered(&self) -> bool {
        let is_there = self.arrivals.is_empty() && self.forwarded_by.is_none() && !self.may_be_requeued();
        self.terms.is_fifo && is_there && self.terms.ttl.is_none()
    }
}

/// The least real time in which so many seconds of tree time pass: tree time may run faster by a tenth, and another
/// replica may be ahead by a second.
pub(super) fn shortest(seconds: u64) -> Duration {
    Duration::from_millis(seconds * 850).saturating_sub(Duration::from_secs(3))
}

/// A real time in which so many seconds of tree time certainly pass: tree time may run slower by a tenth, and what ends
/// then may end a few seconds late.
pub(super) fn longest(seconds: u64) -> Duration {
    Duration::from_millis(seconds * 1_200) + Duration::from_secs(10)
}
