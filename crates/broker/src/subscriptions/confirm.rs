//! Confirming subscriptions: a webhook that needs a confirmation gets messages from then on.

use tracing::info;

use angarium_catalogue::Schema;
use angarium_core::access::Role;
use angarium_core::confirmation::{
    Confirmation, ConfirmationKey, ConfirmationKind, ConfirmationRule, ConfirmationUrl, UrlSignature,
};
use angarium_core::error::{Error, InvalidPart};
use angarium_core::ids::SubscriptionId;
use angarium_core::names::QueueRef;
use angarium_core::subscription::{Subscriber, Subscription};
use angarium_core::time::Timestamp;

use crate::open_queues::subscriptions::AmendResult;
use crate::slot::queue_handle::QueueHandle;
use crate::slot::slot_queue::SlotQueue;
use crate::subscriptions::Subscriptions;
use crate::subscriptions::lookup::no_subscription;

/// The sender of a confirmation.
#[derive(Clone, Debug)]
pub enum ConfirmationSender {
    /// A member of the project, or an administrator.
    Caller(Role),
    /// A client with the headers that the service sent to the subscriber, unless they are forged.
    Signed(UrlSignature),
}

impl ConfirmationSender {
    /// Returns the error of a look-up as this sender may see it. Without a proof a sender does not learn which queues and
    /// topics there are.
    fn shown(&self, error: Error, id: SubscriptionId) -> Error {
        match (self, error) {
            (Self::Signed(_), Error::NotFound { .. }) => no_subscription(id),
            (Self::Signed(_), Error::Unavailable { part, .. }) => Error::Unavailable { part, cause: None },
            (_, error) => error,
        }
    }
}

/// A confirmation, or its withdrawal.
struct ConfirmationAct<'a> {
    url: ConfirmationUrl<'a>,
    is_confirmed: bool,
    sender: &'a ConfirmationSender,
    rule: Option<ConfirmationRule>,
    /// For a webhook without one.
    key: ConfirmationKey,
}

impl Subscriptions {
    /// Confirms a subscription, or withdraws that: each post that begins after this returns is copied for it, or not.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] when there is none, and for headers that prove nothing; [`Error::NotAuthorized`] for a member where
    /// the subscriber itself must confirm; [`Error::Invalid`] for a subscriber that is always confirmed.
    pub(crate) async fn confirm(
        &self,
        at: &QueueRef,
        id: SubscriptionId,
        is_confirmed: bool,
        sender: ConfirmationSender,
    ) -> Result<(), Error> {
        let (subscriptions, at) = (self.clone(), at.clone());
        let confirm = async move { subscriptions.confirm_here(&at, id, is_confirmed, &sender).await };
        self.0.replica.carry_out(confirm).await
    }

    async fn confirm_here(
        &self,
        at: &QueueRef,
        id: SubscriptionId,
        is_confirmed: bool,
        sender: &ConfirmationSender,
    ) -> Result<(), Error> {
        let act = ConfirmationAct {
            url: ConfirmationUrl { at, id },
            is_confirmed,
            sender,
            rule: self.0.webhooks.confirmation().rule,
            key: self.random_key(),
        };
        let found = self.get(at, id).await.map_err(|error| act.sender.shown(error, id))?;
        let mut found = found.subscription;
        let is_change = act.apply(&mut found, self.0.replica.clock.now())?;
        if !is_change {
            return Ok(());
        }
        self.0.replica.catalogue.schema_reach(Schema::CONFIRMATIONS).await?;
        let queue = self.0.slots.queue(at).await?;
        let gate = queue.hold_gate().await;
        let amend = |subscription: &mut Subscription, now: Timestamp| act.apply(subscription, now);
        let amended = self.0.open_queues.amend_subscription(&queue, id, &amend).await;
        drop(gate);
        match self.0.slots.confirm_refusal(queue.slot(), amended)? {
            AmendResult::Missing => return Err(no_subscription(id)),
            AmendResult::Unchanged => return Ok(()),
            AmendResult::Changed => {}
        }
        self.0.webhooks.wake(id);
        let (project, name) = (&at.project, &at.name);
        if is_confirmed {
            info!(%project, queue = %name, subscription = %id, "subscription confirmed");
            self.begin_fill(&queue, id).await;
        } else {
            info!(%project, queue = %name, subscription = %id, "subscription unconfirmed");
        }
        Ok(())
    }

    /// Returns the confirmation of a new webhook; none for a subscriber that needs none.
    pub(in crate::subscriptions) fn new_confirmation(&self, subscriber: &Subscriber) -> Option<Confirmation> {
        let needs_one = matches!(subscriber, Subscriber::Webhook(_));
        let rule = self.0.webhooks.confirmation().rule.filter(|_| needs_one);
        rule.map(|_| Confirmation::asking(self.random_key()))
    }

    /// Returns the confirmation of a webhook that has moved: what another address has confirmed does not count, and the
    /// headers that were sent there are void.
    pub(in crate::subscriptions) fn confirmation_at_new_address(
        &self,
        moved: &Subscription,
    ) -> Option<Confirmation> {
        let withdrawn = || (!moved.is_confirmed()).then(|| Confirmation::withdrawn(self.random_key()));
        let confirmation = self.new_confirmation(&moved.subscriber).or_else(withdrawn)?;
        Some(moved.confirmation.iter().fold(confirmation, |new, former| new.behind(former)))
    }

    /// Asks a subscriber again that has yet to confirm its subscription of the queue, whose gate the caller holds. Returns
    /// that subscription; none for a new subscriber, and for one that gets messages.
    pub(in crate::subscriptions) async fn ask_again(
        &self,
        queue: &SlotQueue,
        source: &QueueHandle,
        subscriber: &Subscriber,
    ) -> Result<Option<SubscriptionId>, Error> {
        let now = self.0.replica.clock.now();
        let all = source.subscriptions().ok_or_else(|| source.closed())?;
        let is_it = |found: &Subscription| {
            found.is_live(now) && found.subscriber == *subscriber && !found.is_confirmed()
        };
        let Some(id) = all.iter().find(|known| is_it(&known.subscription)).map(|known| known.id()) else {
            return Ok(None);
        };
        let ask = |subscription: &mut Subscription, _: Timestamp| {
            let confirmation = subscription.confirmation.as_mut().filter(|all| !all.is_confirmed());
            let is_change = confirmation.is_some();
            confirmation.into_iter().for_each(|all| all.ask(ConfirmationKind::Subscribe));
            Ok(is_change)
        };
        let asked = self.0.open_queues.amend_subscription(queue, id, &ask).await?;
        self.0.webhooks.wake(id);
        Ok((asked == AmendResult::Changed).then_some(id))
    }

    fn random_key(&self) -> ConfirmationKey {
        ConfirmationKey::random(&mut self.0.replica.random.clone())
    }
}

impl ConfirmationAct<'_> {
    /// Checks the sender and applies the act. Returns whether it has changed anything.
    fn apply(&self, subscription: &mut Subscription, now: Timestamp) -> Result<bool, Error> {
        self.check(subscription, now)?;
        if !matches!(subscription.subscriber, Subscriber::Webhook(_)) {
            let why = "only a webhook may be without a confirmation: delete the subscription to end it";
            let wrong = || Error::invalid(InvalidPart::Limit, "confirmed", why);
            return if self.is_confirmed { Ok(false) } else { Err(wrong()) };
        }
        Ok(match (&mut subscription.confirmation, self.is_confirmed) {
            (None, true) => false,
            (Some(confirmation), true) => confirmation.confirm(),
            (Some(confirmation), false) => confirmation.withdraw(self.rule.is_some()),
            (none, false) => {
                let mut confirmation = Confirmation::withdrawn(self.key.clone());
                if self.rule.is_some() {
                    confirmation.ask(ConfirmationKind::Unsubscribe);
                }
                *none = Some(confirmation);
                true
            }
        })
    }

    fn check(&self, subscription: &Subscription, now: Timestamp) -> Result<(), Error> {
        match self.sender {
            ConfirmationSender::Signed(signature) => {
                let confirmation = subscription.confirmation.as_ref();
                let is_proven = confirmation.is_some_and(|all| all.is_proven(&self.url, signature, now));
                if is_proven { Ok(()) } else { Err(no_subscription(self.url.id)) }
            }
            ConfirmationSender::Caller(role) => {
                let is_needed = self.is_confirmed && !subscription.is_confirmed();
                if is_needed && self.rule == Some(ConfirmationRule::Subscriber) && *role < Role::Admin {
                    return Err(Error::NotAuthorized(Role::Admin.as_str()));
                }
                Ok(())
            }
        }
    }
}
