//! Subscriptions of queues.

use std::sync::Arc;

use angarium_core::error::Error;
use angarium_core::ids::SubscriptionId;
use angarium_core::names::QueueRef;
use angarium_core::page::PageLimit;
use angarium_core::subscription::SubscriptionChange;

use crate::broker::Broker;
use crate::subscriptions::confirm::ConfirmationSender;
use crate::subscriptions::create::{CreatedSubscription, NewSubscription};
use crate::subscriptions::lookup::SubscriptionView;
use crate::webhooks::WebhookStatus;
use crate::webhooks::sender::WebhookSender;

impl Broker {
    /// Sends to webhooks by this sender from now on. Without one no webhook can subscribe. Another call has no effect.
    pub fn webhooks_send_by(&self, sender: Arc<dyn WebhookSender>) {
        self.0.webhooks.send_by(sender)
    }

    /// Returns the state of a webhook whose last attempt failed; none of one that works or is not served here.
    pub fn webhook_status(&self, id: SubscriptionId) -> Option<WebhookStatus> {
        self.0.webhooks.status(id)
    }

    /// Creates a subscription, and its queue when there is none. Each post that begins after this returns is copied for
    /// it.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`] when the subscriber has a subscription of the queue, and while the queue is being migrated or
    /// its pool is drained; [`Error::Invalid`] for a queue that is its own subscriber; [`Error::TooMany`] when the queue has
    /// as many subscriptions as it may.
    pub async fn subscription_create(
        &self,
        at: &QueueRef,
        new: NewSubscription,
    ) -> Result<CreatedSubscription, Error> {
        self.0.subscriptions.create(at, new).await
    }

    /// Returns at most `limit` subscriptions of a queue behind the id `after`, in the order of their ids. A queue that does
    /// not exist has none.
    pub async fn subscriptions_list(
        &self,
        at: &QueueRef,
        after: Option<SubscriptionId>,
        limit: PageLimit,
    ) -> Result<Vec<SubscriptionView>, Error> {
        self.0.subscriptions.list(at, after, limit).await
    }

    /// Returns a subscription; not found when there is none.
    pub async fn subscription_get(
        &self,
        at: &QueueRef,
        id: SubscriptionId,
    ) -> Result<SubscriptionView, Error> {
        self.0.subscriptions.get(at, id).await
    }

    /// Changes a subscription; not found when there is none.
    pub async fn subscription_change(
        &self,
        at: &QueueRef,
        id: SubscriptionId,
        change: SubscriptionChange,
    ) -> Result<(), Error> {
        self.0.subscriptions.change(at, id, change).await
    }

    /// Confirms a subscription, or withdraws that: each post that begins after this returns is copied for it, or not. Not
    /// found when there is none, and for a signature that proves nothing.
    pub async fn subscription_confirm(
        &self,
        at: &QueueRef,
        id: SubscriptionId,
        is_confirmed: bool,
        sender: ConfirmationSender,
    ) -> Result<(), Error> {
        self.0.subscriptions.confirm(at, id, is_confirmed, sender).await
    }

    /// Deletes a subscription with the copies in its queue, once the messages that its consumers have forwarded or moved
    /// have left; unavailable, with nothing changed, when they cannot leave. It is no error when there is none.
    pub async fn subscription_delete(&self, at: &QueueRef, id: SubscriptionId) -> Result<(), Error> {
        self.0.subscriptions.delete(at, id).await
    }

    /// Deletes all subscriptions of a queue.
    pub async fn subscriptions_delete(&self, at: &QueueRef) -> Result<(), Error> {
        self.0.subscriptions.delete_all(at).await
    }
}
