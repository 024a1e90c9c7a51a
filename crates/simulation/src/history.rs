//! What clients did and learnt, message by message, and the promises that each answer must keep.

use std::collections::BTreeMap;
use std::time::Duration;

/// The number of the queue of dead letters of a queue is that of the queue plus this.
pub const DEAD_LETTERS: usize = 1_000;

/// Times of a request: when its client sent it, and when the client had the answer or gave up.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// When the request began.
    pub began: Duration,
    /// When the client had its answer, or gave up.
    pub ended: Duration,
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

/// The history of one message.
#[derive(Clone, Debug)]
struct MessageHistory {
    queue: usize,
    group: Option<String>,
    post: Span,
    posted: Certainty,
    /// The id of the first delivery.
    id: Option<String>,
    deliveries: Vec<Delivery>,
    deletes: Vec<Delete>,
}

/// One delivery of a message.
#[derive(Clone, Debug)]
struct Delivery {
    claim: String,
    span: Span,
    /// The least time for which its holder may rely on the claim, from the begin of the request.
    lease: Duration,
    /// The least lease by a renewal without an answer, which may still shorten the claim.
    doubtful_lease: Duration,
    /// When its holder began to give it up, if it did.
    released: Option<Duration>,
}

/// A message that a client holds.
#[derive(Clone, Debug)]
pub struct HeldMessage {
    /// The number that is its body.
    pub number: u64,
    /// Its id.
    pub id: String,
}

/// A claim that a client holds.
#[derive(Clone, Debug)]
pub struct HeldClaim {
    /// Its id.
    pub id: String,
    /// Its messages.
    pub messages: Vec<HeldMessage>,
}

/// A request that deletes a message in a queue. If the message has moved on to the dead letters, it does nothing.
#[derive(Clone, Copy, Debug)]
struct Delete {
    queue: usize,
    span: Span,
    certainty: Certainty,
}

impl Delete {
    fn begun(queue: usize, began: Duration) -> Self {
        Self { queue, span: Span { began, ended: Duration::MAX }, certainty: Certainty::Unknown }
    }
}

impl Delivery {
    fn new(claim: &str, span: Span, lease: Duration) -> Self {
        Self { claim: claim.to_owned(), span, lease, doubtful_lease: Duration::MAX, released: None }
    }
}

/// The histories of all messages of a run.
#[derive(Debug, Default)]
pub struct History {
    messages: BTreeMap<u64, MessageHistory>,
    violations: Vec<String>,
    operations: u64,
    /// Whether messages leave their queue by themselves, so that a later one of their group may come next.
    has_dead_letters: bool,
    /// Whether pools may lose what they have answered, so that messages may be lost or return.
    is_relaxed: bool,
    /// Requests that remove all messages of a queue.
    removals: Vec<(usize, Span)>,
}

/// Numbers of a history.
#[derive(Clone, Copy, Debug, Default)]
pub struct HistoryCounts {
    /// Requests with an answer, of any kind.
    pub operations: u64,
    /// Messages whose post succeeded.
    pub posted: u64,
    /// Deliveries of messages.
    pub delivered: u64,
    /// Messages whose delete succeeded.
    pub deleted: u64,
}

impl HistoryCounts {
    /// Adds the numbers of another history.
    pub fn merge(&mut self, other: Self) {
        self.operations += other.operations;
        self.posted += other.posted;
        self.delivered += other.delivered;
        self.deleted += other.deleted;
    }
}

impl History {
    /// Creates a history without messages. With dead letters the order within groups is not checked; in relaxed queues
    /// neither that nor what a pool may lose by a fail-over.
    pub fn new(has_dead_letters: bool, is_relaxed: bool) -> Self {
        Self { has_dead_letters, is_relaxed, ..Self::default() }
    }

    /// Counts a request.
    pub fn count_operation(&mut self) {
        self.operations += 1;
    }

    /// Notes a broken promise.
    pub fn violation(&mut self, text: String) {
        self.violations.push(text);
    }

    /// Takes the broken promises.
    pub fn take_violations(&mut self) -> Vec<String> {
        std::mem::take(&mut self.violations)
    }

    /// Notes that the post of a message begins, or is repeated with its deduplication id.
    pub fn begin_post(&mut self, number: u64, queue: usize, group: Option<String>, began: Duration) {
        if self.messages.contains_key(&number) {
            return;
        }
        let post = Span { began, ended: Duration::MAX };
        let removals = self.removals.iter().filter(|(of, span)| *of == queue && began <= span.ended);
        let deletes = removals
            .map(|(queue, span)| Delete { queue: *queue, span: *span, certainty: Certainty::Unknown })
            .collect();
        let history = MessageHistory {
            queue,
            group,
            post,
            posted: Certainty::Unknown,
            id: None,
            deliveries: Vec::new(),
            deletes,
        };
        self.messages.insert(number, history);
    }

    /// Notes the outcome of a post.
    pub fn end_post(&mut self, number: u64, ended: Duration, posted: Certainty) {
        let Some(message) = self.messages.get_mut(&number) else { return };
        // A repeated post that is refused does not undo an earlier attempt without an answer.
        let is_first = message.post.ended == Duration::MAX;
        message.post.ended = ended;
        if is_first || posted == Certainty::Done {
            message.posted = posted;
        }
        if message.posted == Certainty::NotDone && !message.deliveries.is_empty() {
            self.violation(format!("message {number} was delivered, and its post was refused"));
        }
    }

    /// Notes the messages of a claim, in the order of the answer. `lease` is the least time that the claim lives.
    pub fn deliver(&mut self, queue: usize, claim: &HeldClaim, span: Span, lease: Duration) {
        let numbers: Vec<u64> = claim.messages.iter().map(|message| message.number).collect();
        for (place, HeldMessage { number, id }) in claim.messages.iter().enumerate() {
            self.check_id(*number, id);
            let claim = claim.id.as_str();
            self.check_delivery(queue, claim, *number, span);
            if !self.has_dead_letters && !self.is_relaxed {
                self.check_order(queue, *number, &numbers[..place], span);
            }
            if let Some(message) = self.messages.get_mut(number) {
                message.deliveries.push(Delivery::new(claim, span, lease));
            }
        }
    }

    /// A message with a deduplication id is stored once.
    fn check_id(&mut self, number: u64, id: &str) {
        let Some(message) = self.messages.get_mut(&number) else { return };
        let first = message.id.get_or_insert_with(|| id.to_owned());
        if first != id {
            let text = format!("message {number} is stored twice, as {first} and {id}");
            self.violation(text);
        }
    }

    fn check_delivery(&mut self, queue: usize, claim: &str, number: u64, span: Span) {
        let Some(message) = self.messages.get(&number) else {
            self.violation(format!("message {number} was delivered, and no client posted it"));
            return;
        };
        let mut broken = Vec::new();
        // The queue of dead letters of a queue has its messages.
        if message.queue != queue % DEAD_LETTERS {
            broken.push(format!("message {number} of queue {} was delivered by {queue}", message.queue));
        }
        if message.posted == Certainty::NotDone {
            broken.push(format!("message {number} was delivered, and its post was refused"));
        }
        let is_deleted = |delete: &Delete| {
            delete.queue == queue && delete.certainty == Certainty::Done && delete.span.ended <= span.began
        };
        if message.deletes.iter().any(is_deleted) && !self.is_relaxed {
            broken.push(format!("message {number} was delivered by claim {claim} after its delete"));
        }
        let is_held = |other: &&Delivery| {
            let ends = other
                .released
                .unwrap_or(other.span.began.saturating_add(other.lease.min(other.doubtful_lease)));
            other.claim != claim && other.span.ended <= span.began && span.ended < ends
        };
        // A delete that a pool has lost ended the claim, and the message returns.
        let may_return = self.is_relaxed && !message.deletes.is_empty();
        if let Some(other) = message.deliveries.iter().find(is_held).filter(|_| !may_return) {
            broken.push(format!("message {number} is under two claims, {} and {claim}", other.claim));
        }
        if message.deliveries.iter().any(|other| other.claim == claim) {
            broken.push(format!("message {number} was delivered twice by claim {claim}"));
        }
        self.violations.extend(broken);
    }

    /// Within a group of a FIFO queue no message is delivered before an earlier one that is certainly there.
    fn check_order(&mut self, queue: usize, number: u64, before: &[u64], span: Span) {
        let Some(message) = self.messages.get(&number) else { return };
        let Some(group) = &message.group else { return };
        let overtakes = |(other, earlier): &(&u64, &MessageHistory)| {
            let is_there = earlier.posted == Certainty::Done
                && earlier.post.ended <= message.post.began
                && earlier
                    .deletes
                    .iter()
                    .all(|delete| delete.certainty == Certainty::NotDone || delete.span.began >= span.ended);
            // Numbers are given in the order in which posts begin.
            **other < number
                && earlier.queue == queue
                && earlier.group.as_ref() == Some(group)
                && is_there
                && !before.contains(other)
        };
        let overtaken = self.messages.iter().find(overtakes).map(|(other, _)| *other);
        if let Some(other) = overtaken {
            self.violation(format!("message {number} overtook {other} of its group"));
        }
    }

    /// Notes that the holder of a claim begins to give it up.
    pub fn release(&mut self, claim: &str, began: Duration) {
        self.change_deliveries(claim, |delivery| {
            delivery.released.get_or_insert(began);
        });
    }

    /// Notes that the renewal of a claim begins: from here on the claim may end with the new time.
    pub fn begin_renewal(&mut self, claim: &str, began: Duration, lease: Duration) {
        self.change_deliveries(claim, |delivery| {
            delivery.lease = delivery.lease.min(began.saturating_sub(delivery.span.began) + lease);
        });
    }

    /// Notes that a renewal that began at `began` has no answer.
    pub fn doubt_renewal(&mut self, claim: &str, began: Duration, lease: Duration) {
        self.change_deliveries(claim, |delivery| {
            let end = began.saturating_sub(delivery.span.began) + lease;
            delivery.doubtful_lease = delivery.doubtful_lease.min(end);
        });
    }

    /// Notes that a claim was renewed by a request that began at `began`.
    pub fn renew(&mut self, claim: &str, began: Duration, lease: Duration) {
        self.change_deliveries(claim, |delivery| {
            delivery.lease = began.saturating_sub(delivery.span.began) + lease;
        });
    }

    fn change_deliveries(&mut self, claim: &str, change: impl Fn(&mut Delivery)) {
        let deliveries = self.messages.values_mut().flat_map(|message| &mut message.deliveries);
        deliveries.filter(|delivery| delivery.claim == claim).for_each(change);
    }

    /// Notes that a delete of a message begins. Returns its number among the deletes of the message.
    pub fn begin_delete(&mut self, queue: usize, number: u64, began: Duration) -> usize {
        let Some(message) = self.messages.get_mut(&number) else { return 0 };
        message.deletes.push(Delete::begun(queue, began));
        message.deletes.len() - 1
    }

    /// Notes that a request which removes all messages of a queue begins: each one that is there, or is posted before
    /// the end of the request, may be removed.
    pub fn begin_removal_of_all(&mut self, queue: usize, began: Duration) {
        self.removals.push((queue, Span { began, ended: Duration::MAX }));
        let removed = self.messages.values_mut().filter(|message| message.queue == queue);
        for message in removed {
            message.deletes.push(Delete::begun(queue, began));
        }
    }

    /// Notes the outcome of that request. Once it is done, every message that was there before it is gone.
    pub fn end_removal_of_all(
        &mut self,
        queue: usize,
        began: Duration,
        ended: Duration,
        certainty: Certainty,
    ) {
        if certainty == Certainty::Unknown {
            // It may be carried out at any time.
            return;
        }
        let is_that = |(of, span): &&mut (usize, Span)| *of == queue && span.began == began;
        if let Some((_, span)) = self.removals.iter_mut().find(is_that) {
            span.ended = ended;
        }
        for message in self.messages.values_mut().filter(|message| message.queue == queue) {
            let was_there = message.posted == Certainty::Done && message.post.ended <= began;
            let of_removal = message.deletes.iter_mut().find(|delete| delete.span.began == began);
            if let Some(delete) = of_removal
                && (was_there || certainty == Certainty::NotDone)
            {
                delete.span.ended = ended;
                delete.certainty = certainty;
            }
        }
    }

    /// Notes the outcome of a delete.
    pub fn end_delete(&mut self, number: u64, delete: usize, ended: Duration, certainty: Certainty) {
        let delete = self.messages.get_mut(&number).and_then(|message| message.deletes.get_mut(delete));
        if let Some(delete) = delete {
            delete.span.ended = ended;
            delete.certainty = certainty;
        }
    }

    /// Checks, once nothing is left to claim, that every message that should be there was delivered after `since`, or
    /// may have been deleted.
    pub fn check_all_delivered(&mut self, since: Duration) {
        if self.is_relaxed {
            return;
        }
        let is_lost = |message: &MessageHistory| {
            let is_deleted = message.deletes.iter().any(|delete| delete.certainty != Certainty::NotDone);
            let is_delivered = message.deliveries.iter().any(|delivery| delivery.span.began >= since);
            message.posted == Certainty::Done && !is_deleted && !is_delivered
        };
        let lost: Vec<u64> =
            self.messages.iter().filter(|(_, message)| is_lost(message)).map(|(number, _)| *number).collect();
        for number in lost {
            self.violation(format!("message {number} is lost"));
        }
    }

    /// Returns the numbers of the history.
    pub fn counts(&self) -> HistoryCounts {
        let messages = self.messages.values();
        HistoryCounts {
            operations: self.operations,
            posted: count(messages.clone().filter(|message| message.posted == Certainty::Done)),
            delivered: messages.clone().map(|message| count(message.deliveries.iter())).sum(),
            deleted: count(
                messages.filter(|message| {
                    message.deletes.iter().any(|delete| delete.certainty == Certainty::Done)
                }),
            ),
        }
    }
}

#[cfg(test)]
mod tests;

fn count<T>(items: impl Iterator<Item = T>) -> u64 {
    u64::try_from(items.count()).unwrap_or(u64::MAX)
}
