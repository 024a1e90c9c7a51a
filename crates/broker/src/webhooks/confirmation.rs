//! The requests to webhooks whether they want the messages.
//!
//! A request is due by the record of its subscription until the subscriber has answered it with success, has refused it, or
//! has failed [`limits::CONFIRMATION_ATTEMPTS`] times: so it is sent at least once, also when the service ends before.

use std::time::Duration;

use rand::Rng as _;
use tracing::{info, warn};

use angarium_core::backoff::Backoff;
use angarium_core::confirmation::{Confirmation, ConfirmationText, ConfirmationUrl, DueConfirmation};
use angarium_core::error::Error;
use angarium_core::subscription::Subscription;
use angarium_core::time::Timestamp;

use crate::limits;
use crate::webhooks::Webhooks;
use crate::webhooks::deliverer::{Deliverer, WebhookTerms};
use crate::webhooks::sender::{WebhookFailure, WebhookFailureKind, WebhookId, WebhookMessage};

/// The attempts of a request.
#[derive(Clone, Copy, Debug)]
pub(in crate::webhooks) struct ConfirmationAttempts {
    request: DueConfirmation,
    attempts: u32,
    /// When the next one may begin.
    next: Timestamp,
    /// Until when the subscriber wants no request at all, also none with another number.
    unwanted_until: Timestamp,
}

impl Deliverer {
    /// Asks an unconfirmed webhook, if that is due, and waits otherwise.
    pub(in crate::webhooks) async fn ask(&self, terms: &WebhookTerms) -> Result<(), Error> {
        let confirmation = terms.subscription.confirmation.as_ref();
        let Some((confirmation, request)) = confirmation.and_then(|all| Some((all, all.due()?))) else {
            tokio::select! {
                biased;
                () = self.changed() => {}
                () = self.sleep(limits::WEBHOOKS_TICK) => {}
            }
            return Ok(());
        };
        let now = self.webhooks.0.replica.clock.now();
        if let Some(next) = self.next_attempt(request).filter(|next| now < *next) {
            self.sleep(Duration::from_millis(next.as_millis() - now.as_millis())).await;
            return Ok(());
        }
        let permit = self.webhooks.0.permits.take(&self.source.project).await?;
        let sent = self.send_request(terms, confirmation, request).await;
        drop(permit);
        let failure = sent.err();
        // The subscriber's answer may repeat the signature, and members of the project read the reason.
        let reason = failure.as_ref().and_then(WebhookFailure::without_answer);
        self.note(&terms.subscription, failure.as_ref().map(|failure| failure.kind), reason.as_ref(), None);
        if !self.may_ask_again(&terms.subscription, request, failure.as_ref()) {
            self.end_request(&terms.subscription, request, failure.as_ref()).await?;
        }
        Ok(())
    }

    /// Returns the attempts since the address is this one; of this request or of one before.
    fn attempts(&self) -> Option<ConfirmationAttempts> {
        self.webhooks.0.served.lock().get(&self.id)?.confirmation
    }

    /// Returns when the next attempt of a request may begin.
    fn next_attempt(&self, request: DueConfirmation) -> Option<Timestamp> {
        let attempts = self.attempts()?;
        Some(if attempts.request == request { attempts.next } else { attempts.unwanted_until })
    }

    async fn send_request(
        &self,
        terms: &WebhookTerms,
        confirmation: &Confirmation,
        request: DueConfirmation,
    ) -> Result<(), WebhookFailure> {
        let service = self.webhooks.confirmation().service;
        let text = ConfirmationText {
            url: ConfirmationUrl { at: &self.source, id: self.id },
            service: service.as_deref(),
            expires: terms.subscription.expires().min(Timestamp::NEVER),
            kind: request.kind,
        };
        let Some(body) = text.content(confirmation, &terms.options) else {
            let reason = "the request has no JSON form".to_owned();
            let (kind, answer) = (WebhookFailureKind::Refused, String::new());
            return Err(WebhookFailure { kind, reason, answer, retry_after: None });
        };
        let message = WebhookMessage {
            account: self.webhooks.0.permits.account_of(&self.source.project),
            id: WebhookId::Confirmation(self.id, request.number),
            sent: self.webhooks.0.replica.clock.now(),
            content_type: "application/json",
            body,
        };
        self.sender.send(&terms.target, message).await
    }

    /// Counts an attempt, and sets the time of the next one. Returns false when there is to be none.
    fn may_ask_again(
        &self,
        subscription: &Subscription,
        request: DueConfirmation,
        failure: Option<&WebhookFailure>,
    ) -> bool {
        let before = self.attempts().filter(|attempts| attempts.request == request);
        let attempts = before.map_or(0, |attempts| attempts.attempts).saturating_add(1);
        let replica = &self.webhooks.0.replica;
        let pause = Backoff::WEBHOOK.seconds(attempts, replica.random.clone().random());
        let wanted = failure.and_then(|failure| failure.retry_after).unwrap_or_default();
        let wanted = u32::try_from(wanted.min(limits::WEBHOOK_RETRY_AFTER).as_secs()).unwrap_or(u32::MAX);
        let now = replica.clock.now();
        let (next, unwanted_until) = (now.plus_seconds(pause.max(wanted)), now.plus_seconds(wanted));
        // Also behind the last one, whose end may not be stored at once.
        if let Some(webhook) = self.webhooks.0.served.lock().get_mut(&self.id)
            // An address that the webhook has left meanwhile has no wishes for the new one.
            && webhook.subscriber.as_ref() == Some(&subscription.subscriber)
        {
            webhook.confirmation = Some(ConfirmationAttempts { request, attempts, next, unwanted_until });
        }
        let may_pass = failure.is_some_and(|failure| failure.kind != WebhookFailureKind::Refused);
        may_pass && attempts < limits::CONFIRMATION_ATTEMPTS
    }

    /// Stores that a request is not to be sent again.
    async fn end_request(
        &self,
        subscription: &Subscription,
        request: DueConfirmation,
        failure: Option<&WebhookFailure>,
    ) -> Result<(), Error> {
        let Webhooks(parts) = &self.webhooks;
        let queue = parts.slots.queue(&self.source).await?;
        let gate = queue.hold_gate().await;
        let edit = |subscription: &mut Subscription, _: Timestamp| {
            Ok(subscription.confirmation.as_mut().is_some_and(|confirmation| confirmation.asked(request)))
        };
        let amended = parts.open_queues.amend_subscription(&queue, self.id, &edit).await;
        drop(gate);
        parts.slots.confirm_refusal(queue.slot(), amended)?;
        let (project, queue, id) = (&self.source.project, &self.source.name, self.id);
        let subscriber = subscription.subscriber.logged();
        match failure {
            None => info!(%project, %queue, subscription = %id, %subscriber, "confirmation requested"),
            Some(failure) => {
                let kind = failure.kind.label();
                warn!(%project, %queue, subscription = %id, %subscriber, kind, "confirmation request failed");
            }
        }
        Ok(())
    }
}
