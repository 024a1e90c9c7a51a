//! Which subscriptions of a queue get copies of new messages.
//!
//! A filter may have to look at each value of a long body, and a queue may have a thousand filters. So the search pauses
//! for other tasks, and ends with its request.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;

use angarium_catalogue::Schema;
use angarium_core::envelope::Envelope;
use angarium_core::message::{Message, State};
use angarium_core::quota::Amount;
use angarium_core::subscription::filtered_body;
use angarium_core::time::Timestamp;
use angarium_filter::MessageView;
use angarium_storage::is_shareable;

use crate::limits;
use crate::replica::LocalReplica;
use crate::slot::commit::count;
use crate::slot::queue_handle::QueueHandle;
use crate::slot::subscriptions::{FanOut, FannedSubscription};

/// Lets other tasks run after each [`limits::FILTER_WORK`] of work.
pub(crate) struct WorkPauses {
    busy_since: Instant,
}

impl WorkPauses {
    pub(crate) fn begin() -> Self {
        Self { busy_since: Instant::now() }
    }

    /// Pauses if it is time.
    pub(crate) async fn pause(&mut self) {
        if self.busy_since.elapsed() >= limits::FILTER_WORK {
            tokio::task::yield_now().await;
            self.busy_since = Instant::now();
        }
    }
}

impl QueueHandle {
    /// Returns the subscriptions that accept messages with these bodies. None when the queue is closed.
    pub(crate) async fn fan_out(&self, bodies: &[Bytes], now: Timestamp) -> Option<FanOut> {
        let table = self.subscriptions()?;
        if table.is_empty() {
            return Some(FanOut { table, ..FanOut::default() });
        }
        let has_filters = table.iter().any(|known| known.filter.is_some());
        let split: Vec<(Envelope, Bytes)> = bodies
            .iter()
            .filter(|_| has_filters)
            .map(|body| Envelope::split(body.clone()))
            .map(|(envelope, body)| (envelope, filtered_body(body)))
            .collect();
        let views: Vec<MessageView<'_>> =
            split.iter().map(|(envelope, body)| MessageView::new(&envelope.attributes, body)).collect();
        let (whole, mut pauses) = (amount_of_bodies(bodies), WorkPauses::begin());
        let mut fanned = Vec::with_capacity(table.len());
        for known in table.iter().filter(|known| known.gets_copies(now)) {
            let (mut accepts, mut amount) = (None, whole);
            if known.filter.is_some() {
                let mut each = Vec::with_capacity(views.len());
                for view in &views {
                    each.push(known.accepts(view));
                    pauses.pause().await;
                }
                let accepted = bodies.iter().zip(&each).filter(|(_, accepts)| **accepts);
                amount = amount_of_bodies(accepted.map(|(body, _)| body));
                accepts = Some(each);
            }
            if amount != Amount::default() {
                fanned.push(FannedSubscription {
                    subscription: Arc::clone(&known.subscription),
                    at: known.at.clone(),
                    accepts,
                    amount,
                    is_left_out: false,
                    is_arrival: false,
                    is_return: false,
                });
            }
        }
        let body_bytes = bodies.iter().map(|body| count(body)).collect();
        let stores_messages = !self.at.name.is_topic();
        Some(FanOut { table, fanned, body_bytes, stores_messages, ..FanOut::default() })
    }

    /// As `fan_out`, for one prepared message, which arrives from another queue.
    pub(crate) async fn fan_out_arrival(&self, message: &Message, now: Timestamp) -> Option<FanOut> {
        let mut fan_out = self.fan_out(std::slice::from_ref(&message.body), now).await?;
        fan_out.stores_messages = false;
        for fanned in &mut fan_out.fanned {
            fanned.is_arrival = true;
            fanned.is_return =
                matches!(&message.header.state, State::Prepared(source) if source.at == fanned.at);
        }
        Some(fan_out)
    }
}

impl FanOut {
    /// Lets the copies share the bodies of their messages, if every replica knows that form.
    pub(crate) fn share_bodies(&mut self, replica: &Arc<LocalReplica>) {
        self.shares_bodies = !self.fanned.is_empty() && replica.may_store_now(Schema::SHARED_BODIES);
    }

    /// Returns the room that the copies need in the quota, beside that of the messages which the batch stores. A body
    /// that they share needs none if such a message has it, and else that of one copy.
    ///
    /// A pool that shares no bodies stores more, and no later message is taken once the ledger has its totals. So a
    /// project exceeds its quota by the copies of the posts in flight at most.
    pub(crate) fn room(&self) -> Amount {
        let mut room = self.amount;
        if !self.shares_bodies {
            return room;
        }
        let long = self.body_bytes.iter().enumerate().filter(|(_, bytes)| is_shareable(**bytes));
        for (index, bytes) in long {
            let gets_copy = |fanned: &&FannedSubscription| !fanned.is_left_out && fanned.accepts(index);
            let copies = self.fanned.iter().filter(gets_copy).count() as u64;
            let stored = if self.stores_messages { 0 } else { copies.min(1) };
            room.bytes = room.bytes.saturating_sub(bytes.saturating_mul(copies - stored));
        }
        room
    }
}

fn amount_of_bodies<'a>(bodies: impl IntoIterator<Item = &'a Bytes>) -> Amount {
    bodies
        .into_iter()
        .fold(Amount::default(), |sum, body| sum.plus(Amount { messages: 1, bytes: count(body) }))
}
