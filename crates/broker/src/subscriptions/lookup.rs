//! Looking subscriptions up.

use tokio::time::timeout;

use angarium_core::error::{Error, Resource};
use angarium_core::ids::SubscriptionId;
use angarium_core::names::QueueRef;
use angarium_core::overflow::CopyBounds;
use angarium_core::page::PageLimit;
use angarium_core::subscription::Subscription;
use angarium_core::time::Timestamp;

use crate::limits;
use crate::slot::backlog::BacklogView;
use crate::slot::slot_queue::SlotQueue;
use crate::slot::subscriptions::KnownSubscription;
use crate::subscriptions::Subscriptions;

/// A subscription as it is now.
#[derive(Clone, Debug)]
pub struct SubscriptionView {
    /// The subscription.
    pub subscription: Subscription,
    /// Seconds since its life began.
    pub age: u64,
    /// The bounds of its copies.
    pub bounds: CopyBounds,
    /// What became of messages because of them. None when its queue cannot be read now.
    pub backlog: Option<BacklogView>,
}

impl SubscriptionView {
    fn new(known: &KnownSubscription, now: Timestamp) -> Self {
        let KnownSubscription { subscription, bounds, .. } = known;
        let age = now.as_millis().saturating_sub(subscription.renewed.as_millis()) / 1_000;
        Self { subscription: Subscription::clone(subscription), age, bounds: *bounds, backlog: None }
    }
}

impl Subscriptions {
    /// Returns at most `limit` subscriptions of a queue behind the id `after`, in the order of their ids. A queue that does
    /// not exist has none.
    pub(crate) async fn list(
        &self,
        at: &QueueRef,
        after: Option<SubscriptionId>,
        limit: PageLimit,
    ) -> Result<Vec<SubscriptionView>, Error> {
        let queue = self.0.slots.queue(at).await?;
        let is_behind = |subscription: &Subscription| after.is_none_or(|after| subscription.id > after);
        let mut found = self.live(&queue, is_behind).await.map(|mut all| {
            all.sort_unstable_by_key(|view| view.subscription.id);
            all.truncate(limit.get());
            all
        });
        for view in found.iter_mut().flatten() {
            self.look_at(&queue, view).await;
        }
        self.0.slots.confirm(queue.slot(), found)
    }

    /// Returns a subscription.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`].
    pub(crate) async fn get(&self, at: &QueueRef, id: SubscriptionId) -> Result<SubscriptionView, Error> {
        let queue = self.0.slots.queue(at).await?;
        let found = self.live(&queue, |subscription| subscription.id == id).await;
        let mut found = found.and_then(|mut found| found.pop().ok_or_else(|| no_subscription(id)));
        if let Ok(view) = &mut found {
            self.look_at(&queue, view).await;
        }
        self.0.slots.confirm(queue.slot(), found)
    }

    /// The subscriptions of a queue that are `wanted` and whose life has not ended.
    async fn live(
        &self,
        queue: &SlotQueue,
        wanted: impl Fn(&Subscription) -> bool,
    ) -> Result<Vec<SubscriptionView>, Error> {
        let Some(open) = self.0.open_queues.open(queue).await? else { return Ok(Vec::new()) };
        let now = self.0.replica.clock.now();
        let all = open.subscriptions().ok_or_else(|| open.closed())?;
        let live = all.iter().filter(|known| known.subscription.is_live(now) && wanted(&known.subscription));
        Ok(live.map(|known| SubscriptionView::new(known, now)).collect())
    }

    /// Adds the state of the queue of a subscription, if it can be opened.
    async fn look_at(&self, source: &SlotQueue, view: &mut SubscriptionView) {
        let own = source.slot().queue(&source.at().of_subscription(view.subscription.id));
        let opened = timeout(limits::HEALTH_DEADLINE, self.0.open_queues.open(&own)).await;
        view.backlog = opened.ok().and_then(Result::ok).flatten().and_then(|own| own.backlog());
    }
}

pub(in crate::subscriptions) fn no_subscription(id: SubscriptionId) -> Error {
    Error::NotFound { resource: Resource::Subscription, name: id.to_string() }
}
