//! The copies of a post for the subscriptions of its queue.
//!
//! ```text
//! post ─▶ one batch: the message in its queue, a copy in the queue of each subscription ─▶ answer
//! ```
//!
//! The form of the copies is in [`crate::slot::copies`]. A message that arrives from another queue has its copies in the
//! batch that publishes it ([`crate::slot::arrivals`]).

use std::sync::Arc;

use angarium_core::error::{Error, InvalidPart};
use angarium_core::ids::{MessageId, SubscriptionId};
use angarium_core::limits as core_limits;
use angarium_core::maps::HashMap;
use angarium_core::message::Message;
use angarium_core::mutation::{Mutation, is_on};
use angarium_core::names::QueueRef;
use angarium_core::overflow::{CopyBounds, Overflow};
use angarium_core::quota::Amount;
use angarium_core::subscription::{FilterOption, Subscriber, Subscription};
use angarium_core::time::Timestamp;
use angarium_filter::{FilterPolicy, FilterScope, MessageView};

use crate::slot::backlog::{Backlog, Fate, LeftOutPost, amount_of};
use crate::slot::post::TopicCounts;
use crate::slot::queue_handle::QueueHandle;
use crate::slot::state::{OpenQueue, Slot, SlotState};
use crate::writer::change::Change;
use crate::writer::pending::WriteCopy;

/// A subscription in memory.
#[derive(Clone, Debug)]
pub(crate) struct KnownSubscription {
    pub(crate) subscription: Arc<Subscription>,
    /// Its queue.
    pub(crate) at: QueueRef,
    pub(crate) bounds: CopyBounds,
    /// None when it gets a copy of each message.
    pub(in crate::slot) filter: Option<Arc<FilterPolicy>>,
}

impl KnownSubscription {
    /// Reads the bounds and the filter of a subscription of a queue.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`], which names the wrong option, or the wrong part of the filter.
    pub(crate) fn new(source: &QueueRef, subscription: Subscription) -> Result<Self, Error> {
        let filter = subscription.options.filter()?.map(|FilterOption { policy, is_of_body }| {
            let scope = if is_of_body { FilterScope::Body } else { FilterScope::Attributes };
            FilterPolicy::parse("options.filter", &policy, scope)
        });
        let (at, bounds) = (source.of_subscription(subscription.id), subscription.options.bounds()?);
        let filter = filter.transpose()?.map(Arc::new);
        Ok(Self { subscription: Arc::new(subscription), at, bounds, filter })
    }

    /// Whether messages are copied for it at this time.
    pub(crate) fn gets_copies(&self, now: Timestamp) -> bool {
        self.subscription.is_live(now) && self.subscription.is_confirmed()
    }

    pub(crate) fn id(&self) -> SubscriptionId {
        self.subscription.id
    }

    /// Whether it gets a copy of a message.
    pub(crate) fn accepts(&self, message: &MessageView<'_>) -> bool {
        self.filter
            .as_ref()
            .is_none_or(|filter| is_on(Mutation::CopyIgnoringFilter) || filter.accepts(message))
    }
}

/// A subscription that a post is for.
#[derive(Clone, Debug)]
pub(crate) struct FannedSubscription {
    pub(crate) subscription: Arc<Subscription>,
    /// Its queue.
    pub(crate) at: QueueRef,
    /// Whether it accepts each message of the post. None when it accepts all.
    pub(in crate::slot) accepts: Option<Vec<bool>>,
    /// The messages that it accepts.
    pub(in crate::slot) amount: Amount,
    /// Whether the post leaves it out, because it is suspended or the copies do not fit.
    pub(in crate::slot) is_left_out: bool,
    /// Whether the message arrives from another queue: no client is there to be refused.
    pub(in crate::slot) is_arrival: bool,
    /// Whether the message arrives from the queue of the subscription itself. It has left room there, and would wait for
    /// ever if it were refused: the subscription may contain only messages like it.
    pub(in crate::slot) is_return: bool,
}

/// The subscriptions that a post is for, as they were when it began.
#[derive(Clone, Debug, Default)]
pub(crate) struct FanOut {
    /// The subscriptions of the queue, ended ones too.
    pub(in crate::slot) table: Arc<[KnownSubscription]>,
    /// The subscriptions that get a copy of some of the messages.
    pub(crate) fanned: Vec<FannedSubscription>,
    /// The copies together, without those for subscriptions that are left out.
    pub(crate) amount: Amount,
    /// Whether every replica knows bodies that several messages share.
    pub(crate) shares_bodies: bool,
    /// Bytes of the body of each message of the post.
    pub(in crate::slot) body_bytes: Vec<u64>,
    /// Whether the batch with the copies stores their messages too. False for a topic, which keeps none, and for a
    /// message that arrives, which was stored before.
    pub(in crate::slot) stores_messages: bool,
}

/// Messages that are about to be new in their queue.
pub(in crate::slot) struct NewInSource<'a> {
    /// Each has its index in the post.
    pub(in crate::slot) messages: &'a [(usize, &'a Message)],
    /// The position of one that arrives from another queue.
    pub(in crate::slot) arrived: Option<MessageId>,
}

/// The copies of a post, about to be submitted.
#[derive(Default)]
pub(in crate::slot) struct PostCopies {
    pub(in crate::slot) writes: Vec<WriteCopy>,
    /// The queues of subscriptions whose oldest copies must be removed then.
    pub(in crate::slot) beyond: Vec<QueueHandle>,
}

impl QueueHandle {
    /// Returns the subscriptions of the queue. None when it is closed.
    pub(crate) fn subscriptions(&self) -> Option<Arc<[KnownSubscription]>> {
        self.lock_queue(|queue| Arc::clone(&queue.subscriptions))
    }

    /// Returns the number of subscriptions that get copies. None when the queue is closed.
    pub(crate) fn live_subscriptions(&self, now: Timestamp) -> Option<usize> {
        let all = self.subscriptions()?;
        Some(all.iter().filter(|known| known.gets_copies(now)).count())
    }

    /// Enters the subscriptions of the queue, in place of those before.
    pub(crate) fn set_subscriptions(&self, subscriptions: Vec<KnownSubscription>) {
        let mut state = self.slot.lock();
        state.note_source(&self.at, &subscriptions);
        if let Some(queue) = state.queue_mut(&self.at, self.id) {
            queue.subscriptions = subscriptions.into();
        }
    }

    /// Takes a deleted subscription out of those of the queue. The caller holds the gate of the queue.
    pub(crate) fn forget_subscription(&self, id: SubscriptionId) {
        let Some(all) = self.subscriptions() else { return };
        self.set_subscriptions(all.iter().filter(|known| known.id() != id).cloned().collect());
    }

    /// Returns the queues of subscriptions that are to be opened, or whose fill is to begin, before a post. All count as
    /// used.
    pub(crate) fn unprepared(&self, fanned: &[FannedSubscription]) -> Vec<QueueRef> {
        let mut state = self.slot.lock();
        let mut is_unprepared = |at: &QueueRef| {
            let is_open = state.use_queue(at).is_some();
            !is_open || state.queues.get(at).is_some_and(|queue| !queue.takes_copies())
        };
        fanned.iter().map(|fanned| &fanned.at).filter(|at| is_unprepared(at)).cloned().collect()
    }

    /// Enters a subscription of the queue, in place of its former state.
    pub(crate) fn enter_subscription(&self, subscription: KnownSubscription) -> Result<(), Error> {
        let known = self.subscriptions().ok_or_else(|| self.closed().into_unknown())?;
        let mut all: Vec<KnownSubscription> = known.to_vec();
        all.retain(|known| known.id() != subscription.id());
        all.push(subscription);
        self.set_subscriptions(all);
        Ok(())
    }

    /// Checks whether the copies of an arriving message fit, beside those of other ones that are about to arrive: their
    /// amounts are in `taken`, and this message is added.
    ///
    /// # Errors
    ///
    /// [`Error::SubscriptionFull`].
    pub(crate) fn check_arrival(
        &self,
        fan_out: &FanOut,
        taken: &mut HashMap<SubscriptionId, Amount>,
    ) -> Result<(), Error> {
        let state = self.slot.lock();
        for fanned in &fan_out.fanned {
            let Some(backlog) = fanned.backlog(&state.queues) else { continue };
            let before = taken.get(&fanned.subscription.id).copied().unwrap_or_default();
            let fits = fanned.is_return || backlog.fate_after(before, fanned.amount) != Fate::Refused;
            if !fits && backlog.bounds.fit(fanned.amount) {
                return Err(fanned.full(backlog, fanned.amount));
            }
        }
        for fanned in &fan_out.fanned {
            let taken = taken.entry(fanned.subscription.id).or_default();
            *taken = taken.plus(fanned.amount);
        }
        Ok(())
    }

    /// Decides which subscriptions a post leaves out, once their queues are open.
    pub(crate) fn weigh(&self, fan_out: &mut FanOut) {
        let state = self.slot.lock();
        fan_out.amount = Amount::default();
        for fanned in &mut fan_out.fanned {
            fanned.is_left_out = fanned.fate(&state.queues) == Fate::LeftOut;
            if !fanned.is_left_out {
                fan_out.amount = fan_out.amount.plus(fanned.amount);
            }
        }
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
        let noted = self.fills.get(at).map(Vec::as_slice).unwrap_or_default();
        // An unconfirmed one is filled from its confirmation on.
        let is_filled = |known: &&KnownSubscription| {
            let subscription = &known.subscription;
            (subscription.is_from_oldest && subscription.is_confirmed()) || noted.contains(&known.id())
        };
        let fills = subscriptions.iter().filter(is_filled);
        let fills: Vec<SubscriptionId> = fills.map(KnownSubscription::id).collect();
        if fills.is_empty() {
            self.fills.remove(at);
        } else {
            self.fills.insert(at.clone(), fills);
        }
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

    /// Returns the webhooks that subscribe to a queue.
    pub(crate) fn webhooks_of(self: &Arc<Self>, at: &QueueRef) -> Vec<SubscriptionId> {
        self.lock().webhooks.get(at).cloned().unwrap_or_default()
    }

    /// Notes that a queue has no subscriptions, because there is no such queue.
    pub(crate) fn forget_source(self: &Arc<Self>, at: &QueueRef) {
        let mut state = self.lock();
        state.sources.remove(at);
        state.webhooks.remove(at);
        state.fills.remove(at);
    }
}

type Queues = HashMap<QueueRef, Box<OpenQueue>>;

impl FanOut {
    /// Checks that there are at most [`core_limits::FAN_OUT_COPIES`] with at most [`core_limits::FAN_OUT_BYTES`]. One
    /// message with a copy for each subscription is always within the first bound.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`].
    pub(crate) fn check_bounds(&self) -> Result<(), Error> {
        let Amount { messages, bytes } = self.amount;
        let (subscriptions, most) = (self.fanned.len(), core_limits::FAN_OUT_COPIES);
        let why = if bytes > core_limits::FAN_OUT_BYTES as u64 {
            let most = core_limits::FAN_OUT_BYTES;
            format!(
                "their copies for {subscriptions} subscriptions have {bytes} bytes, and at most {most} are taken"
            )
        } else if messages > most as u64 {
            format!(
                "they have {messages} copies for {subscriptions} subscriptions, and at most {most} are taken"
            )
        } else {
            return Ok(());
        };
        Err(Error::invalid(InvalidPart::Limit, "messages", format!("{why}: post fewer at once")))
    }

    /// Whether a post to this queue can get its copies. If not, the subscriptions have changed since the post looked at
    /// them, or one of their queues is not open, or not in the pool of the source, or its fill is to begin first; or one
    /// that the post has left out has room again, and the copies have no reservation.
    pub(in crate::slot) fn is_prepared(&self, source: &OpenQueue, queues: &Queues) -> bool {
        let is_there = |fanned: &FannedSubscription| {
            let open = queues.get(&fanned.at);
            open.is_some_and(|open| open.placement == source.placement && open.takes_copies())
                && (!fanned.is_left_out || fanned.fate(queues) == Fate::LeftOut)
        };
        // Most queues have none.
        let is_plain = source.subscriptions.is_empty() && self.table.is_empty();
        (is_plain || Arc::ptr_eq(&source.subscriptions, &self.table)) && self.fanned.iter().all(is_there)
    }

    /// Returns the numbers of messages of a post to a topic. Each message has its index in the post; without subscriptions
    /// that accept any, none is given.
    pub(in crate::slot) fn topic_counts(&self, messages: &[(usize, &Message)], posted: usize) -> TopicCounts {
        let is_routed = |index: &usize| self.fanned.iter().any(|fanned| fanned.accepts(*index));
        let routed = messages.iter().filter(|(index, _)| is_routed(index)).count();
        let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        TopicCounts { posted: number(posted), unrouted: number(posted.saturating_sub(routed)) }
    }

    /// Checks whether a subscription refuses the post, whose messages are given with their index in it.
    ///
    /// # Errors
    ///
    /// [`Error::SubscriptionFull`].
    pub(in crate::slot) fn check_refusal(
        &self,
        messages: &[(usize, &Message)],
        queues: &Queues,
    ) -> Result<(), Error> {
        for fanned in &self.fanned {
            let Some(backlog) = fanned.backlog(queues) else { continue };
            if backlog.bounds.overflow != Overflow::Refuse {
                continue;
            }
            let amount = amount_of(fanned.accepted(messages).map(|(_, message)| *message));
            if amount.messages > 0 && fanned.fate_of(amount, backlog) == Fate::Refused {
                return Err(fanned.full(backlog, amount));
            }
        }
        Ok(())
    }

    /// Makes the copies of messages for the queues of the subscriptions, all of which are open, and enters them in their
    /// backlogs. The caller submits them.
    pub(in crate::slot) fn copies(
        &self,
        source: &QueueHandle,
        new: &NewInSource<'_>,
        queues: &mut Queues,
        now: Timestamp,
        next_id: &mut dyn FnMut() -> MessageId,
    ) -> PostCopies {
        let mut post = PostCopies::default();
        let lender = self.shares_bodies.then_some(source.id);
        for fanned in &self.fanned {
            let Some(open) = queues.get_mut(&fanned.at) else { continue };
            let accepted: Vec<&Message> =
                fanned.accepted(new.messages).map(|(_, message)| *message).collect();
            if accepted.is_empty() {
                continue;
            }
            let is_left_out = open
                .backlog
                .as_ref()
                .is_some_and(|backlog| fanned.fate_of(fanned.amount, backlog) == Fate::LeftOut);
            let change = if is_left_out {
                let ids: Vec<MessageId> = accepted.iter().map(|message| message.header.id).collect();
                let left = LeftOutPost { ids: &ids, arrived: new.arrived, copies: fanned.amount };
                let note = open.backlog.as_mut().and_then(|backlog| backlog.submit_omission(&left, now));
                Change::fan_out(Vec::new(), note)
            } else {
                let terms = open.copy_terms(&source.at, &fanned.subscription, now);
                let copies: Vec<Message> =
                    accepted.iter().map(|message| terms.copy(message, next_id())).collect();
                let amount = amount_of(&copies);
                let note = open.backlog.as_mut().and_then(|backlog| backlog.submit_copies(amount));
                if open.backlog.as_ref().is_some_and(|backlog| backlog.must_drop()) {
                    post.beyond.push(QueueHandle::new(Arc::clone(&source.slot), fanned.at.clone(), open.id));
                }
                Change::fan_out(copies, note).lent_by(lender)
            };
            let at = fanned.at.clone();
            post.writes.push(WriteCopy { at, queue: open.id, change, _use: open.uses.token() });
        }
        post
    }
}

impl FannedSubscription {
    /// The messages of a post that it accepts, each with its index in the post.
    fn accepted<'a, 'b>(
        &'a self,
        messages: &'a [(usize, &'b Message)],
    ) -> impl Iterator<Item = &'a (usize, &'b Message)> {
        messages.iter().filter(|(index, _)| self.accepts(*index))
    }

    /// Whether it gets a copy of the message with this index in the post, unless it is left out.
    pub(in crate::slot) fn accepts(&self, index: usize) -> bool {
        self.accepts.as_ref().is_none_or(|accepts| accepts.get(index).is_some_and(|accepts| *accepts))
    }

    fn backlog<'a>(&self, queues: &'a Queues) -> Option<&'a Backlog> {
        queues.get(&self.at)?.backlog.as_deref()
    }

    /// Decides about the copies of the whole post.
    fn fate(&self, queues: &Queues) -> Fate {
        self.backlog(queues).map_or(Fate::Copied, |backlog| self.fate_of(self.amount, backlog))
    }

    fn fate_of(&self, copies: Amount, backlog: &Backlog) -> Fate {
        match backlog.fate(copies) {
            // It would wait for ever.
            Fate::Refused if self.is_arrival && !backlog.bounds.fit(copies) => Fate::LeftOut,
            Fate::Refused if self.is_return => Fate::Copied,
            fate => fate,
        }
    }

    fn full(&self, backlog: &Backlog, copies: Amount) -> Error {
        Error::SubscriptionFull {
            id: self.subscription.id,
            held: backlog.held(),
            most: backlog.bounds.most,
            may_fit: backlog.bounds.fit(copies),
        }
    }
}
