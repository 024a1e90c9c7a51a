//! The pace at which the messages of a subscription are delivered: those of a webhook, and those on their way to another
//! queue.
//!
//! The deliveries of a second are spread over it: after some that began together the next ones wait as long as these take
//! at the rate. Nothing is saved up. The pace is in memory alone: the next owner of the slot begins with a delivery at once.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use angarium_core::names::QueueRef;
use angarium_core::subscription::{Subscriber, Subscription};

use crate::limits;
use crate::slot::queue_handle::QueueHandle;
use crate::slot::state::Slot;

/// The pace of a subscription.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DeliveryPace {
    /// Deliveries in a second; none without a bound.
    rate: Option<NonZeroU32>,
    /// Whether they are transfers to another queue, and no requests to a webhook.
    is_of_transfers: bool,
    /// When the next one may begin.
    next: Option<Instant>,
}

/// The deliveries that may begin now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PaceRoom {
    Unbounded,
    AtMost(usize),
    /// None for this time.
    After(Duration),
}

impl DeliveryPace {
    /// The pace of the deliveries of a subscription. Consumers of `pull:` have their own.
    pub(crate) fn of(subscription: &Subscription) -> Self {
        let (is_delivered, is_of_transfers) = match &subscription.subscriber {
            Subscriber::Pull(_) => (false, false),
            Subscriber::Webhook(_) => (true, false),
            Subscriber::Queue(_) => (true, true),
        };
        // Options that were stored before the key had a meaning may have any value.
        let rate = subscription.options.rate().unwrap_or_default().filter(|_| is_delivered);
        Self { rate, is_of_transfers, next: None }
    }

    /// Takes over a changed rate. A wait that has begun is at the former one.
    fn follow(&mut self, changed: Self) {
        self.rate = changed.rate;
    }

    /// Returns how many deliveries may begin: together at most those of the time `together`, or one.
    fn room(&self, together: Duration, now: Instant) -> PaceRoom {
        let Some(rate) = self.rate else { return PaceRoom::Unbounded };
        if let Some(next) = self.next.filter(|next| now < *next) {
            return PaceRoom::After(next.duration_since(now));
        }
        let most = together.as_millis() * u128::from(rate.get()) / 1_000;
        PaceRoom::AtMost(usize::try_from(most).unwrap_or(usize::MAX).max(1))
    }

    /// Counts deliveries that begin.
    fn began(&mut self, deliveries: usize, now: Instant) {
        let Some(rate) = self.rate else { return };
        let deliveries = u32::try_from(deliveries).unwrap_or(u32::MAX);
        self.next = Some(now + Duration::from_secs(1).saturating_mul(deliveries) / rate.get());
    }
}

impl QueueHandle {
    /// Returns how many requests to the webhook of a subscription may begin. A closed queue has no bound: the caller finds
    /// out that it is closed.
    pub(crate) fn request_room(&self) -> PaceRoom {
        let room = |pace: DeliveryPace| pace.room(limits::REQUESTS_TOGETHER, Instant::now());
        self.lock_queue(|queue| room(queue.delivery_pace)).unwrap_or(PaceRoom::Unbounded)
    }

    /// Returns how many messages may leave the queue of a subscription for another queue.
    pub(crate) fn transfer_room(&self) -> PaceRoom {
        let paced = self.lock_queue(|queue| queue.delivery_pace).filter(|pace| pace.is_of_transfers);
        let room = |pace: DeliveryPace| pace.room(limits::TRANSFERS_TOGETHER, Instant::now());
        paced.map_or(PaceRoom::Unbounded, room)
    }

    /// Counts deliveries that begin.
    pub(crate) fn deliveries_began(&self, deliveries: usize) {
        if deliveries > 0 {
            self.lock_queue(|queue| queue.delivery_pace.began(deliveries, Instant::now()));
        }
    }
}

impl Slot {
    /// Applies the changed rate of a subscription to its queue, if that is open.
    pub(crate) fn set_delivery_pace(self: &Arc<Self>, at: &QueueRef, changed: &Subscription) {
        if let Some(queue) = self.lock().queues.get_mut(at) {
            queue.delivery_pace.follow(DeliveryPace::of(changed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENTH: Duration = Duration::from_millis(100);

    fn pace(rate: u32) -> DeliveryPace {
        DeliveryPace { rate: NonZeroU32::new(rate), ..DeliveryPace::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn deliveries_of_a_second_are_spread_over_it() {
        for (rate, together) in [(1, 1), (10, 1), (25, 2), (100, 10)] {
            let (mut pace, begin, mut begun) = (pace(rate), Instant::now(), 0);
            while begin.elapsed() < Duration::from_secs(3) {
                match pace.room(TENTH, Instant::now()) {
                    PaceRoom::AtMost(most) => {
                        assert_eq!(most, together);
                        pace.began(most, Instant::now());
                        begun += most;
                    }
                    PaceRoom::After(wait) => tokio::time::sleep(wait).await,
                    PaceRoom::Unbounded => unreachable!("it has a rate"),
                }
            }
            let most = 3 * rate as usize;
            assert!((most..=most + together).contains(&begun), "{begun} at {rate}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn idle_time_is_not_saved_up() {
        let mut pace = pace(2);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(pace.room(TENTH, Instant::now()), PaceRoom::AtMost(1));
        pace.began(1, Instant::now());
        assert_eq!(pace.room(TENTH, Instant::now()), PaceRoom::After(Duration::from_millis(500)));
        pace.follow(DeliveryPace::default());
        assert_eq!(pace.room(TENTH, Instant::now()), PaceRoom::Unbounded);
    }
}
