//! Delivery of messages to webhooks. The owner of a slot claims the messages of each webhook's queue like a consumer, sends
//! each, and settles it by the answer.
//!
//! ```text
//! queue of the subscription ─▶ claim ─▶ send ─▶ done · failed, with a pause by its policy · failed for good
//! ```
//!
//! A message is sent at least once: a crash between the answer of the subscriber and the settle repeats it after the end of
//! the claim. A subscriber that fails holds up its own queue alone.

mod breaker;
mod confirmation;
pub(crate) mod deliverer;
mod permits;
pub(crate) mod sender;

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::sync::Notify;

use angarium_core::error::{Error, InvalidPart};
use angarium_core::ids::SubscriptionId;
use angarium_core::maps::HashMap;
use angarium_core::outcome::Reason;
use angarium_core::subscription::{Subscriber, Subscription};
use angarium_core::time::Timestamp;

use crate::claims::Claims;
use crate::limits;
use crate::open_queues::OpenQueues;
use crate::quotas::QuotaCounts;
use crate::replica::LocalReplica;
use crate::slot::slot_queue::SlotQueue;
use crate::slots::Slots;
use crate::webhooks::breaker::Breaker;
use crate::webhooks::confirmation::ConfirmationAttempts;
use crate::webhooks::deliverer::Deliverer;
use crate::webhooks::permits::RequestPermits;
use crate::webhooks::sender::{ConfirmationTerms, WebhookSender, WebhookTarget};

#[derive(Clone)]
pub(crate) struct Webhooks(Arc<WebhooksParts>);

struct WebhooksParts {
    replica: Arc<LocalReplica>,
    slots: Slots,
    open_queues: OpenQueues,
    claims: Claims,
    /// None in a process that does not send.
    sender: OnceLock<Arc<dyn WebhookSender>>,
    /// The webhooks that are served here.
    served: Mutex<HashMap<SubscriptionId, ServedWebhook>>,
    permits: RequestPermits,
}

/// The state of a webhook in memory.
#[derive(Clone, Debug, Default)]
struct ServedWebhook {
    /// The subscriber that the rest is about; none before its subscription is read here.
    subscriber: Option<Subscriber>,
    breaker: Breaker,
    /// Messages that may be in delivery at the same time; zero until its options are read.
    max_in_flight: u32,
    /// The failed attempts since the last success; none after a success.
    failing: Option<WebhookOutage>,
    /// The attempts to ask it for its confirmation.
    confirmation: Option<ConfirmationAttempts>,
    /// Wakes its deliveries when the subscription has changed.
    changed: Arc<Notify>,
}

/// A webhook whose last attempt failed.
#[derive(Clone, Debug)]
struct WebhookOutage {
    /// When the first attempt since the last success failed.
    since: Timestamp,
    /// Why the last attempt failed.
    reason: Reason,
}

/// The state of a webhook for an explanation.
#[derive(Clone, Debug)]
pub struct WebhookStatus {
    /// Failures of the subscriber since the last success. Zero when it has refused messages alone.
    pub failures: u32,
    /// When the first attempt since the last success failed.
    pub since: Timestamp,
    /// Why the last attempt failed.
    pub reason: Reason,
    /// Before this time nothing is sent.
    pub paused_until: Option<Timestamp>,
}

impl Webhooks {
    pub(crate) fn new(
        replica: &Arc<LocalReplica>,
        slots: &Slots,
        open_queues: &OpenQueues,
        quotas: &QuotaCounts,
        claims: &Claims,
    ) -> Self {
        Self(Arc::new(WebhooksParts {
            replica: Arc::clone(replica),
            slots: slots.clone(),
            open_queues: open_queues.clone(),
            claims: claims.clone(),
            sender: OnceLock::new(),
            served: Mutex::default(),
            permits: RequestPermits::new(quotas),
        }))
    }

    /// Sends by this sender from now on. Another call has no effect.
    pub(crate) fn send_by(&self, sender: Arc<dyn WebhookSender>) {
        let _ = self.0.sender.set(sender);
    }

    /// Checks what a subscription has for a webhook, before it is stored.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`], also for secrets of a subscriber that is no webhook.
    pub(crate) fn check(&self, subscription: &Subscription) -> Result<(), Error> {
        let Some(target) = target(subscription)? else {
            let why = "only the requests to a webhook are signed";
            let is_signed = !subscription.secrets.is_empty();
            return if is_signed { Err(Error::invalid(InvalidPart::Limit, "secrets", why)) } else { Ok(()) };
        };
        let why = "this service sends to no webhooks";
        let sender = self.0.sender.get();
        sender.ok_or_else(|| Error::invalid(InvalidPart::Limit, "subscriber", why))?.check(&target)
    }

    /// Forgets the failures of a webhook's former address, and has its deliveries look at its subscription again.
    pub(crate) fn follow(&self, id: SubscriptionId, subscriber: &Subscriber) {
        if let Some(webhook) = self.0.served.lock().get_mut(&id) {
            webhook.be_about(subscriber);
        }
        self.wake(id);
    }

    /// Has the deliveries of a webhook look at its subscription again.
    pub(crate) fn wake(&self, id: SubscriptionId) {
        if let Some(webhook) = self.0.served.lock().get(&id) {
            webhook.changed.notify_one();
        }
    }

    /// The confirmation of new webhooks.
    pub(crate) fn confirmation(&self) -> ConfirmationTerms {
        self.0.sender.get().map(|sender| sender.confirmation()).unwrap_or_default()
    }

    /// Starts the deliveries of the webhooks that are served here, until the service stops.
    pub(crate) async fn deliver(&self) {
        while self.0.replica.sleep_tick(limits::WEBHOOKS_TICK).await {
            let Some(sender) = self.0.sender.get() else { continue };
            for slot in self.0.slots.owned() {
                for (source, id) in slot.webhooks() {
                    if let Some(deliverer) = Deliverer::begin(self, sender, source, id) {
                        self.0.replica.tasks.spawn(deliverer.run());
                    }
                }
            }
        }
    }

    /// Returns the state of a webhook that fails; none of one that works or is not served here.
    pub(crate) fn status(&self, id: SubscriptionId) -> Option<WebhookStatus> {
        let now = self.0.replica.clock.now();
        let served = self.0.served.lock();
        let webhook = served.get(&id)?;
        let WebhookOutage { since, reason } = webhook.failing.clone()?;
        Some(WebhookStatus {
            failures: webhook.breaker.failures(),
            since,
            reason,
            paused_until: webhook.breaker.open_until(now),
        })
    }

    /// Returns the failing webhooks among the subscriptions of a queue; of the queue of a subscription, that one.
    pub(crate) fn failing(&self, queue: &SlotQueue) -> Vec<(SubscriptionId, WebhookStatus)> {
        let ids = match queue.at().name.subscription() {
            Some(id) => vec![id],
            None => queue.slot().webhooks_of(queue.at()),
        };
        ids.into_iter().filter_map(|id| Some((id, self.status(id)?))).collect()
    }
}

impl ServedWebhook {
    /// Begins with no failures when this is another subscriber than before.
    fn be_about(&mut self, subscriber: &Subscriber) {
        if self.subscriber.as_ref().is_some_and(|former| former != subscriber) {
            (self.breaker, self.failing, self.confirmation) = (Breaker::default(), None, None);
        }
        self.subscriber = Some(subscriber.clone());
    }
}

/// Returns the target of a webhook; none of other subscribers.
fn target(subscription: &Subscription) -> Result<Option<WebhookTarget>, Error> {
    let Subscriber::Webhook(url) = &subscription.subscriber else { return Ok(None) };
    let headers = subscription.options.webhook()?.headers;
    Ok(Some(WebhookTarget { url: url.clone(), headers, secrets: subscription.secrets.clone() }))
}
