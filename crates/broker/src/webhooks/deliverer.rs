//! The deliveries of one webhook.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use rand::Rng as _;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use angarium_core::claim::{ClaimLimit, ClaimTerms, ClaimWait, Claimer};
use angarium_core::delay::Delay;
use angarium_core::error::Error;
use angarium_core::ids::{ClaimId, SubscriptionId};
use angarium_core::names::QueueRef;
use angarium_core::notification::Notification;
use angarium_core::outcome::{Holder, Reason};
use angarium_core::settle::{Retry, SettleEntry, Verdict};
use angarium_core::subscription::Subscription;
use angarium_core::time::Timestamp;
use angarium_core::webhook::WebhookOptions;

use crate::claims::create::ClaimView;
use crate::limits;
use crate::messages::view::MessageView;
use crate::slot::delivery_pace::PaceRoom;
use crate::slot::queue_handle::QueueHandle;
use crate::webhooks::breaker::SubscriberPause;
use crate::webhooks::permits::RequestPermit;
use crate::webhooks::sender::{
    WebhookFailure, WebhookFailureKind, WebhookId, WebhookMessage, WebhookSender, WebhookTarget,
};
use crate::webhooks::{ServedWebhook, WebhookOutage, Webhooks, target};

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Claims and sends the messages of one webhook.
pub(in crate::webhooks) struct Deliverer {
    pub(in crate::webhooks) webhooks: Webhooks,
    pub(in crate::webhooks) sender: Arc<dyn WebhookSender>,
    pub(in crate::webhooks) source: QueueRef,
    pub(in crate::webhooks) id: SubscriptionId,
}

impl Drop for Deliverer {
    fn drop(&mut self) {
        self.webhooks.0.served.lock().remove(&self.id);
    }
}

/// A webhook as it is at one moment.
pub(in crate::webhooks) struct WebhookTerms {
    pub(in crate::webhooks) subscription: Arc<Subscription>,
    pub(in crate::webhooks) options: WebhookOptions,
    pub(in crate::webhooks) target: WebhookTarget,
    is_ordered: bool,
    queue: QueueHandle,
}

/// Messages of one claim that are sent one after the other.
struct Chain {
    claim: ClaimId,
    claimed: Instant,
    messages: Vec<MessageView>,
    _permit: RequestPermit,
}

impl Deliverer {
    /// Begins the deliveries of a webhook; none if they run already.
    pub(in crate::webhooks) fn begin(
        webhooks: &Webhooks,
        sender: &Arc<dyn WebhookSender>,
        source: QueueRef,
        id: SubscriptionId,
    ) -> Option<Self> {
        let mut served = webhooks.0.served.lock();
        if served.contains_key(&id) {
            return None;
        }
        served.insert(id, ServedWebhook::default());
        Some(Self { webhooks: webhooks.clone(), sender: Arc::clone(sender), source, id })
    }

    /// Delivers until the subscription has ended, its slot is served elsewhere, or the service stops. Then no more is
    /// claimed, and it ends with the last request.
    pub(in crate::webhooks) async fn run(self) {
        let mut sending: FuturesUnordered<Boxed<'_, u32>> = FuturesUnordered::new();
        let mut claiming: Option<Boxed<'_, Option<Vec<Chain>>>> = None;
        let (mut in_flight, mut is_ended) = (0_u32, false);
        loop {
            if claiming.is_none() && !is_ended && in_flight < self.room() {
                claiming = Some(Box::pin(self.next_chains(in_flight)));
            }
            if claiming.is_none() && sending.is_empty() {
                return;
            }
            let next = async {
                match claiming.as_mut() {
                    Some(claiming) => claiming.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                Some(sent) = sending.next(), if !sending.is_empty() => in_flight -= sent,
                chains = next => {
                    claiming = None;
                    is_ended = chains.is_none();
                    for chain in chains.into_iter().flatten() {
                        in_flight += chain.count();
                        sending.push(Box::pin(self.send_chain(chain)));
                    }
                }
            }
        }
    }

    /// Messages that may be in delivery now.
    fn room(&self) -> u32 {
        let served = self.webhooks.0.served.lock();
        served.get(&self.id).map_or(0, |webhook| webhook.breaker.room(webhook.max_in_flight.max(1)))
    }

    /// Claims the next messages, beside `in_flight` others. None is the end: nothing more is to be claimed here.
    async fn next_chains(&self, in_flight: u32) -> Option<Vec<Chain>> {
        let replica = &self.webhooks.0.replica;
        if !self.pause().await {
            return None;
        }
        match self.try_claim(in_flight).await {
            Ok(chains) => chains,
            // Its slot is served elsewhere, or is being recovered: the next look at the slots begins again.
            Err(error) if self.webhooks.0.slots.queue(&self.source).await.is_err() => {
                debug!(error = %error.detail(), "deliveries of a webhook end here");
                None
            }
            Err(error) => {
                let subject = format!("subscription {} of queue {}", self.id, self.source.name);
                replica.task_failed("deliver to webhooks", subject, &error);
                replica.sleep_tick(limits::WEBHOOKS_TICK).await.then(Vec::new)
            }
        }
    }

    /// Waits until the breaker lets a request pass. Returns false when the service stops.
    async fn pause(&self) -> bool {
        let replica = &self.webhooks.0.replica;
        loop {
            if replica.waits.is_cancelled() {
                return false;
            }
            let Some(until) = self.paused_until() else { return true };
            let now = replica.clock.now();
            // A request that was under way may succeed meanwhile, and end the pause.
            let rest = Duration::from_millis(until.as_millis().saturating_sub(now.as_millis()));
            self.sleep(rest).await;
        }
    }

    /// Waits for a time, at most until the next look at the webhooks or the end of the service.
    pub(in crate::webhooks) async fn sleep(&self, wait: Duration) {
        tokio::select! {
            biased;
            () = self.webhooks.0.replica.waits.cancelled() => {}
            () = tokio::time::sleep(wait.min(limits::WEBHOOKS_TICK)) => {}
        }
    }

    /// Waits until the subscription has changed.
    pub(in crate::webhooks) async fn changed(&self) {
        let changed = self.webhooks.0.served.lock().get(&self.id).map(|webhook| Arc::clone(&webhook.changed));
        match changed {
            Some(changed) => changed.notified().await,
            None => std::future::pending().await,
        }
    }

    /// Returns the time before which no request may be sent; none when there is no pause.
    fn paused_until(&self) -> Option<Timestamp> {
        let now = self.webhooks.0.replica.clock.now();
        let served = self.webhooks.0.served.lock();
        served.get(&self.id).and_then(|webhook| webhook.breaker.open_until(now))
    }

    /// Reads the subscription, and claims messages of its queue. None when it has ended.
    async fn try_claim(&self, in_flight: u32) -> Result<Option<Vec<Chain>>, Error> {
        let Some(terms) = self.terms().await? else { return Ok(None) };
        if let Some(webhook) = self.webhooks.0.served.lock().get_mut(&self.id) {
            webhook.be_about(&terms.subscription.subscriber);
        }
        if !terms.subscription.is_confirmed() {
            self.ask(&terms).await?;
            return Ok(Some(Vec::new()));
        }
        let at = self.source.of_subscription(self.id);
        let paced = match terms.queue.request_room() {
            PaceRoom::Unbounded => u32::MAX,
            PaceRoom::AtMost(most) => u32::try_from(most).unwrap_or(u32::MAX),
            // It keeps no permit from the others meanwhile.
            PaceRoom::After(wait) => {
                self.sleep(wait).await;
                return Ok(Some(Vec::new()));
            }
        };
        let room = {
            let mut served = self.webhooks.0.served.lock();
            let Some(webhook) = served.get_mut(&self.id) else { return Ok(None) };
            webhook.max_in_flight = terms.options.max_in_flight;
            webhook.breaker.room(webhook.max_in_flight).saturating_sub(in_flight).min(paced).max(1)
        };
        let (all, project) = (&self.webhooks.0.permits, &self.source.project);
        let mut permits = vec![all.take(project).await?];
        permits.extend((1..room).map_while(|_| all.try_take(project)));
        let found = self.claim(&at, permits.len(), ClaimWait::default()).await?;
        if let Some((view, claimed)) = found {
            terms.queue.deliveries_began(view.messages.len());
            return Ok(Some(chains(terms.is_ordered, view, claimed, permits)));
        }
        // A webhook that waits for messages keeps no permit from the others.
        drop(permits);
        let waiting = async {
            tokio::select! {
                biased;
                () = self.changed() => Ok(None),
                found = self.claim(&at, 1, limits::WEBHOOK_WAIT) => found,
            }
        };
        let Some((view, claimed)) = waiting.await? else { return Ok(Some(Vec::new())) };
        let permits = vec![all.take(project).await?];
        terms.queue.deliveries_began(view.messages.len());
        Ok(Some(chains(terms.is_ordered, view, claimed, permits)))
    }

    async fn terms(&self) -> Result<Option<WebhookTerms>, Error> {
        let Webhooks(parts) = &self.webhooks;
        let queue = parts.slots.queue(&self.source).await?;
        let Some(source) = parts.open_queues.open_if_there(&queue).await? else { return Ok(None) };
        let all = source.subscriptions().ok_or_else(|| source.closed())?;
        let now = parts.replica.clock.now();
        let found = all.iter().find(|known| known.id() == self.id && known.subscription.is_live(now));
        let Some(subscription) = found.map(|known| Arc::clone(&known.subscription)) else { return Ok(None) };
        let Some(target) = target(&subscription)? else { return Ok(None) };
        let options = subscription.options.webhook()?;
        let own = parts.slots.queue(&self.source.of_subscription(self.id)).await?;
        let Some(own) = parts.open_queues.open_if_there(&own).await? else { return Ok(None) };
        let is_ordered = own.decide(|engine| engine.is_ordered()).ok_or_else(|| own.closed())?;
        Ok(Some(WebhookTerms { subscription, options, target, is_ordered, queue: own }))
    }

    async fn claim(
        &self,
        at: &QueueRef,
        limit: usize,
        wait: ClaimWait,
    ) -> Result<Option<(ClaimView, Instant)>, Error> {
        let terms = ClaimTerms::stored(limits::WEBHOOK_CLAIM_TTL, limits::WEBHOOK_CLAIM_GRACE);
        let claimer = Claimer { by: Some(Holder::stored("webhook")), ..Claimer::default() };
        let limit = ClaimLimit::of(limit);
        let claimed = self.webhooks.0.claims.claim_wait(at, terms, limit, wait, claimer).await?;
        Ok(claimed.map(|(view, mut guard)| {
            guard.done();
            (view, Instant::now())
        }))
    }

    /// Sends the messages of a chain, and settles each. Behind a failed one the others wait for their next claim. Returns
    /// how many there were.
    async fn send_chain(&self, chain: Chain) -> u32 {
        let messages = chain.count();
        let Chain { claim, claimed, messages: views, _permit } = chain;
        let mut is_broken = false;
        for view in views {
            // A request that begins late would end behind the claim, or hold up the end of the service.
            let is_stopping = self.webhooks.0.replica.waits.is_cancelled();
            let is_late = is_stopping || claimed.elapsed() > limits::WEBHOOK_CLAIM_USE;
            // The pause may have begun while the claim waited.
            let is_late = is_late || self.paused_until().is_some();
            // The messages before may have taken long: the subscription can have changed, or ended.
            let terms = if is_broken || is_late { None } else { self.terms().await.ok().flatten() };
            let verdict = match terms.filter(|terms| terms.subscription.is_confirmed()) {
                Some(terms) => self.send(&terms, &view).await,
                None => Verdict::Defer { delay: Delay::Seconds(0) },
            };
            is_broken |= !matches!(verdict, Verdict::Done { .. });
            self.settle(claim, &view, verdict).await;
        }
        messages
    }

    /// Sends one message. Returns its settle.
    async fn send(&self, terms: &WebhookTerms, view: &MessageView) -> Verdict {
        let now = self.webhooks.0.replica.clock.now();
        let notification = Notification {
            queue: &self.source.name,
            subscription: self.id,
            message: view.id,
            ttl: view.ttl,
            group: view.group.as_ref(),
            tags: view.extras.as_ref().map(|extras| extras.tags.as_slice()).unwrap_or_default(),
            body: &view.body,
        };
        let sent = match notification.content(&terms.options) {
            Some((content_type, body)) => {
                let account = self.webhooks.0.permits.account_of(&self.source.project);
                let message = WebhookMessage {
                    account,
                    id: WebhookId::Message(view.id),
                    sent: now,
                    content_type,
                    body,
                };
                self.sender.send(&terms.target, message).await
            }
            None => Err(WebhookFailure {
                kind: WebhookFailureKind::Refused,
                reason: "the body of the message is no JSON text".to_owned(),
                answer: String::new(),
                retry_after: None,
            }),
        };
        let reason = sent.as_ref().err().and_then(WebhookFailure::with_answer);
        let now = self.webhooks.0.replica.clock.now();
        let wanted = sent.as_ref().err().and_then(|failure| failure.retry_after);
        let wanted = wanted.map(|wanted| SubscriberPause::of(wanted, view.expires, now));
        self.note(
            &terms.subscription,
            sent.as_ref().err().map(|failure| failure.kind),
            reason.as_ref(),
            wanted,
        );
        let Err(failure) = sent else { return Verdict::Done { result: None } };
        let chance = self.webhooks.0.replica.random.clone().random();
        let retry = match failure.kind {
            WebhookFailureKind::Refused => Retry::Never,
            _ => terms.options.retry(view.attempts, chance),
        };
        let retry = match (retry, wanted) {
            (Retry::After(seconds), Some(wanted)) => {
                Retry::After(seconds.max(u32::try_from(wanted.length.as_secs()).unwrap_or(u32::MAX)))
            }
            (retry, _) => retry,
        };
        Verdict::Fail { reason, retry }
    }

    /// Counts an attempt, which succeeded if it has no failure. The reason of a failure may have text of the subscriber.
    pub(in crate::webhooks) fn note(
        &self,
        subscription: &Subscription,
        failure: Option<WebhookFailureKind>,
        reason: Option<&Reason>,
        wanted: Option<SubscriberPause>,
    ) {
        let replica = &self.webhooks.0.replica;
        let own = self.source.of_subscription(self.id);
        replica.meter.note_webhook(&own, failure.map_or("delivered", WebhookFailureKind::label));
        let mut served = self.webhooks.0.served.lock();
        let Some(webhook) = served.get_mut(&self.id) else { return };
        // The state of an address that the webhook has left concerns it no more.
        if webhook.subscriber.as_ref().is_some_and(|present| *present != subscription.subscriber) {
            return;
        }
        let was_broken = webhook.breaker.is_broken();
        match failure {
            // A subscriber that refuses one message works.
            None | Some(WebhookFailureKind::Refused) => webhook.breaker.succeeded(),
            Some(_) => webhook.breaker.failed(wanted, replica.clock.now()),
        }
        let since = webhook.failing.take().map_or_else(|| replica.clock.now(), |failing| failing.since);
        webhook.failing = reason.cloned().map(|reason| WebhookOutage { since, reason });
        let (project, queue, id) = (&self.source.project, &self.source.name, self.id);
        match (was_broken, webhook.breaker.is_broken()) {
            (false, true) => {
                let reason = reason.map(Reason::as_str);
                let subscriber = subscription.subscriber.logged();
                warn!(%project, %queue, subscription = %id, %subscriber, reason, "webhook paused");
            }
            (true, false) => info!(%project, %queue, subscription = %id, "webhook resumed"),
            _ => {}
        }
    }

    async fn settle(&self, claim: ClaimId, view: &MessageView, verdict: Verdict) {
        let at = self.source.of_subscription(self.id);
        let entry = SettleEntry { id: view.id, verdict, forwards: Vec::new(), meta: None };
        let settled = self.webhooks.0.claims.messages_settle(&at, claim, vec![entry]).await;
        let settled = settled.and_then(|results| results.into_iter().collect::<Result<Vec<_>, _>>());
        if let Err(error) = settled {
            // The message returns with the end of its claim, and is sent again.
            debug!(error = %error.detail(), "result of a webhook not stored");
        }
    }
}

impl Chain {
    fn count(&self) -> u32 {
        u32::try_from(self.messages.len()).unwrap_or(u32::MAX)
    }
}

/// Divides the messages of a claim: in an ordered queue those of a group are one chain.
fn chains(is_ordered: bool, view: ClaimView, claimed: Instant, permits: Vec<RequestPermit>) -> Vec<Chain> {
    let mut divided: Vec<Vec<MessageView>> = Vec::new();
    for message in view.messages {
        let is_of_group = |chain: &&mut Vec<MessageView>| {
            is_ordered && chain.last().is_some_and(|last| last.group == message.group)
        };
        match divided.iter_mut().find(is_of_group) {
            Some(chain) => chain.push(message),
            None => divided.push(vec![message]),
        }
    }
    let chain = |(messages, permit)| Chain { claim: view.id, claimed, messages, _permit: permit };
    divided.into_iter().zip(permits).map(chain).collect()
}
