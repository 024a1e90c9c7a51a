//! The copies of a post for the subscriptions of its queue.
//!
//! ```text
//! post ─▶ one batch: the message in its queue, a copy in the queue of each subscription ─▶ answer
//! ```
//!
//! The copy for consumers is as the message is. The copy for another queue is in transfer to it from the first moment: the
//! mover of the subscription's queue sends it there.

use std::sync::Arc;

use bytes::Bytes;

use angarium_core::envelope::Envelope;
use angarium_core::error::{Error, InvalidPart};
use angarium_core::ids::{MessageId, SubscriptionId};
use angarium_core::maps::HashMap;
use angarium_core::message::{Header, Message, NewMessage, Peer, State};
use angarium_core::names::{QueueName, QueueRef};
use angarium_core::outcome::{Arrival, Extras};
use angarium_core::quota::Amount;
use angarium_core::subscription::{FilterOption, Subscriber, Subscription, filtered_body};
use angarium_core::time::Timestamp;
use angarium_filter::{FilterPolicy, FilterScope, MessageView};

use crate::limits;
use crate::slot::commit::count;
use crate::slot::queue_handle::QueueHandle;
use crate::slot::state::{OpenQueue, Slot, SlotState};
use crate::writer::change::Change;
use crate::writer::pending::WriteCopy;

/// A subscription in memory.
#[derive(Clone, Debug)]
pub(crate) struct KnownSubscription {
    pub(crate) subscription: Subscription,
    /// None when it gets a copy of each message.
    filter: Option<FilterPolicy>,
}

impl KnownSubscription {
    /// Reads the filter of a subscription.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`], which names the wrong part of the filter.
    pub(crate) fn new(subscription: Subscription) -> Result<Self, Error> {
        let filter = subscription.options.filter()?.map(|FilterOption { policy, is_of_body }| {
            let scope = if is_of_body { FilterScope::Body } else { FilterScope::Attributes };
            FilterPolicy::parse("options.filter", &policy, scope)
        });
        Ok(Self { subscription, filter: filter.transpose()? })
    }

    pub(crate) fn id(&self) -> SubscriptionId {
        self.subscription.id
    }
}

/// A subscription that a post is for.
#[derive(Clone, Debug)]
pub(crate) struct FannedSubscription {
    pub(crate) subscription: Subscription,
    /// Whether it accepts each message of the post.
    accepts: Vec<bool>,
}

/// The subscriptions that a post is for, as they were when it began.
#[derive(Clone, Debug, Default)]
pub(crate) struct FanOut {
    /// The subscriptions of the queue, ended ones too.
    table: Arc<[KnownSubscription]>,
    /// The subscriptions that get a copy of some of the messages.
    pub(crate) fanned: Vec<FannedSubscription>,
    /// The copies together.
    pub(crate) amount: Amount,
}

impl QueueHandle {
    /// Returns the subscriptions of the queue. None when it is closed.
    pub(crate) fn subscriptions(&self) -> Option<Arc<[KnownSubscription]>> {
        self.lock_queue(|queue| Arc::clone(&queue.subscriptions))
    }

    /// Enters the subscriptions of the queue, in place of those before.
    pub(crate) fn set_subscriptions(&self, subscriptions: Vec<KnownSubscription>) {
        let mut state = self.slot.lock();
        state.note_source(&self.at, &subscriptions);
        if let Some(queue) = state.queue_mut(&self.at, self.id) {
            queue.subscriptions = subscriptions.into();
        }
    }

    /// Returns the subscriptions that accept messages of a post. None when the queue is closed.
    pub(crate) fn fan_out(&self, messages: &[NewMessage], now: Timestamp) -> Option<FanOut> {
        let table = self.subscriptions()?;
        if table.is_empty() {
            return Some(FanOut { table, ..FanOut::default() });
        }
        let split: Vec<(Envelope, Bytes)> = messages
            .iter()
            .map(|message| Envelope::split(message.body.clone()))
            .map(|(envelope, body)| (envelope, filtered_body(body)))
            .collect();
        let views: Vec<MessageView<'_>> =
            split.iter().map(|(envelope, body)| MessageView::new(&envelope.attributes, body)).collect();
        let (mut fanned, mut amount) = (Vec::new(), Amount::default());
        for known in table.iter().filter(|known| known.subscription.is_live(now)) {
            let accepts: Vec<bool> = views
                .iter()
                .map(|view| known.filter.as_ref().is_none_or(|filter| filter.accepts(view)))
                .collect();
            for (message, _) in messages.iter().zip(&accepts).filter(|(_, accepts)| **accepts) {
                amount = amount.plus(Amount::of(std::slice::from_ref(message)));
            }
            if accepts.contains(&true) {
                fanned.push(FannedSubscription { subscription: known.subscription.clone(), accepts });
            }
        }
        Some(FanOut { table, fanned, amount })
    }
}

impl SlotState {
    /// Notes which queues have subscriptions, by the names of all queues of the slot.
    pub(in crate::slot) fn note_sources(&mut self, names: &[QueueRef]) {
        for source in names.iter().filter_map(QueueRef::source) {
            self.sources.entry(source).or_default();
        }
    }

    /// Notes when the next subscription of a queue ends.
    pub(in crate::slot) fn note_source(&mut self, at: &QueueRef, subscriptions: &[KnownSubscription]) {
        match subscriptions.iter().map(|known| known.subscription.expires()).min() {
            Some(next) => drop(self.sources.insert(at.clone(), Some(next))),
            None => drop(self.sources.remove(at)),
        }
        let is_webhook =
            |known: &&KnownSubscription| matches!(known.subscription.subscriber, Subscriber::Webhook(_));
        let webhooks: Vec<SubscriptionId> =
            subscriptions.iter().filter(is_webhook).map(KnownSubscription::id).collect();
        if webhooks.is_empty() {
            self.webhooks.remove(at);
        } else {
            self.webhooks.insert(at.clone(), webhooks);
        }
    }
}

impl Slot {
    /// Returns the queues with subscriptions of which some have ended by `now`, or whose subscriptions are not known.
    pub(crate) fn sources_due(self: &Arc<Self>, now: Timestamp) -> Vec<QueueRef> {
        let state = self.lock();
        let is_due = |(_, next): &(&QueueRef, &Option<Timestamp>)| next.is_none_or(|next| next <= now);
        state.sources.iter().filter(is_due).map(|(at, _)| at.clone()).collect()
    }

    /// Returns the webhooks with the queues that they subscribe to.
    pub(crate) fn webhooks(self: &Arc<Self>) -> Vec<(QueueRef, SubscriptionId)> {
        let state = self.lock();
        let of = |(at, ids): (&QueueRef, &Vec<SubscriptionId>)| -> Vec<_> {
            ids.iter().map(|id| (at.clone(), *id)).collect()
        };
        state.webhooks.iter().flat_map(of).collect()
    }

    /// Notes that a queue has no subscriptions, because there is no such queue.
    pub(crate) fn forget_source(self: &Arc<Self>, at: &QueueRef) {
        let mut state = self.lock();
        state.sources.remove(at);
        state.webhooks.remove(at);
    }
}

type Queues = HashMap<QueueRef, Box<OpenQueue>>;

impl FanOut {
    /// Checks that the copies have at most [`limits::FAN_OUT_BYTES`].
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`].
    pub(crate) fn check_bounds(&self) -> Result<(), Error> {
        let bytes = self.amount.bytes;
        if bytes > limits::FAN_OUT_BYTES as u64 {
            let why = format!(
                "their copies for {} subscriptions have {bytes} bytes, and at most {} are taken: post fewer at once",
                self.fanned.len(),
                limits::FAN_OUT_BYTES
            );
            return Err(Error::invalid(InvalidPart::Limit, "messages", why));
        }
        Ok(())
    }

    /// Whether a post to this queue can get its copies. If not, the subscriptions have changed since the post looked at
    /// them, or one of their queues is not open, or not in the pool of the source.
    pub(in crate::slot) fn is_prepared(&self, at: &QueueRef, source: &OpenQueue, queues: &Queues) -> bool {
        let is_there = |fanned: &FannedSubscription| {
            let open = queues.get(&at.of_subscription(fanned.subscription.id));
            open.is_some_and(|open| open.placement == source.placement)
        };
        // Most queues have none.
        let is_plain = source.subscriptions.is_empty() && self.table.is_empty();
        (is_plain || Arc::ptr_eq(&source.subscriptions, &self.table)) && self.fanned.iter().all(is_there)
    }

    /// Makes the copies of messages for the queues of the subscriptions, all of which are open. Each message has its
    /// index in the post.
    pub(in crate::slot) fn copies(
        &self,
        at: &QueueRef,
        messages: &[(usize, &Message)],
        queues: &Queues,
        now: Timestamp,
        next_id: &mut dyn FnMut() -> MessageId,
    ) -> Vec<WriteCopy> {
        let of = |FannedSubscription { subscription, accepts }: &FannedSubscription| {
            let there = at.of_subscription(subscription.id);
            let open = queues.get(&there)?;
            let accepted =
                messages.iter().filter(|(index, _)| accepts.get(*index).is_some_and(|accepts| *accepts));
            let copies =
                accepted.map(|(_, message)| copy(message, next_id(), at, &subscription.subscriber, now));
            let copies: Vec<Message> = copies.collect();
            let is_some = !copies.is_empty();
            let change = Change::fan_out(copies);
            is_some.then(|| WriteCopy { at: there, queue: open.id, change, _use: open.uses.token() })
        };
        self.fanned.iter().filter_map(of).collect()
    }
}

impl OpenQueue {
    /// Tells the engine that copies are durable. Returns whether some are in transfer.
    pub(in crate::slot) fn take_copies(&mut self, copies: Vec<Message>) -> bool {
        self.counters.sent.inc_by(count(&copies));
        self.pace.count_posted(count(&copies));
        let (leaving, own): (Vec<Message>, Vec<Message>) =
            copies.into_iter().partition(|message| message.header.state.is_in_transfer());
        let leaving: Vec<_> = leaving.iter().map(|message| message.header.id).collect();
        if !leaving.is_empty() {
            self.engine.expect_in_transfer(&leaving);
        }
        if !own.is_empty() {
            self.engine.posted(own);
        }
        !leaving.is_empty()
    }
}

/// The copy of a message for a subscriber. It has an id of its own: two copies, or a copy and its message, may meet in
/// one queue later, where a transfer tells messages apart by their ids alone.
fn copy(
    Message { header, body }: &Message,
    id: MessageId,
    at: &QueueRef,
    to: &Subscriber,
    now: Timestamp,
) -> Message {
    let header = match to {
        Subscriber::Pull(_) | Subscriber::Webhook(_) => header.clone(),
        Subscriber::Queue(target) => sent_on(header, at, target, now),
    };
    Message { header: Header { id, ..header }, body: body.clone() }
}

/// The header of a copy in transfer to another queue of the project.
fn sent_on(header: &Header, at: &QueueRef, target: &QueueName, now: Timestamp) -> Header {
    let peer = Peer { at: QueueRef { project: at.project.clone(), name: target.clone() }, queue: None };
    let delay = header.ready.as_millis().saturating_sub(now.as_millis()).div_ceil(1_000);
    let delay = (delay > 0).then(|| u32::try_from(delay).unwrap_or(u32::MAX));
    let arrival = Some(Arrival { delay, group: header.group.clone(), ..Arrival::default() });
    let tags = header.extras.as_ref().map(|extras| extras.tags.clone()).unwrap_or_default();
    Header {
        ready: now,
        state: State::Moving(Arc::new(peer)),
        // Its group blocks none of this queue.
        group: None,
        extras: Some(Box::new(Extras { tags, arrival, ..Extras::default() })),
        ..header.clone()
    }
}
