//! Publication of messages that have arrived in their target, with copies for its subscriptions.
//!
//! A subscription that refuses them, and a quota without room, delay them: they stay at their source, which tries
//! again. So do long ones from a subscription, where they may have shared their bodies, while their project holds twice
//! the bytes of its quota. One that found no room after it had left its source stays prepared in the target, whose
//! mover tries again.

use angarium_core::error::{Error, Part};
use angarium_core::group::GroupName;
use angarium_core::ids::MessageId;
use angarium_core::maps::{HashMap, HashSet};
use angarium_core::message::{Header, Message, Peer, State};
use angarium_core::quota::Amount;
use angarium_storage::is_shareable;

use crate::ledger::quota_ledger::Reservation;
use crate::slot::arrivals::{ArrivalStart, BegunArrival, is_new};
use crate::slot::queue_handle::QueueHandle;
use crate::slot::subscriptions::FanOut;
use crate::slot::transfers::Side;
use crate::transfer::MessageTransfers;
use crate::transfer::order::is_awaited;
use crate::writer::pending::settled;

/// Attempts to begin a publication while the subscriptions of its queue change, or their queues are closed.
const FAN_OUT_TRIES: usize = 8;

/// Arriving messages with room for their copies.
pub(crate) struct AdmittedArrivals {
    pub(crate) messages: Vec<Message>,
    /// Why the others must wait.
    pub(crate) refusal: Option<Error>,
}

impl MessageTransfers {
    /// Makes prepared entries ready, and new messages with their copies. The caller holds the transfers into the queue.
    /// A message without room delays no other, in a queue with order none of another group.
    pub(crate) async fn publish(&self, target: &Side, headers: Vec<Header>) -> Result<(), Error> {
        let queue = &target.queue;
        let new = queue.publish_plain(headers).await?;
        if new.is_empty() {
            return Ok(());
        }
        let ids: Vec<MessageId> = new.iter().map(|header| header.id).collect();
        let mut messages = target.store.get(queue.id(), &ids).await?;
        messages.retain(|message| matches!(message.header.state, State::Prepared(_)));
        messages.sort_by_key(|message| message.header.id);
        let (is_ordered, now) = (queue.is_ordered(), self.0.replica.clock.now());
        let (mut begun, mut result) = (Vec::new(), Ok(()));
        let mut waiting: HashSet<GroupName> = HashSet::default();
        for message in messages {
            let header = &message.header;
            if header.group.as_ref().is_some_and(|group| waiting.contains(group)) {
                continue;
            }
            match self.begin_arrival(queue, &message).await {
                // The next one of its group must not be before it.
                Ok(Some(arrival)) if is_ordered => finish(arrival).await?,
                Ok(Some(arrival)) => begun.push(arrival),
                Ok(None) => {}
                Err(error) if is_ordered && !is_of_message(&error) => return Err(error),
                Err(error) => {
                    result = result.and(Err(error));
                    waiting.extend(header.group.clone().filter(|_| is_ordered && is_awaited(header, now)));
                }
            }
        }
        for arrival in begun {
            let ended = finish(arrival).await;
            result = result.and(ended);
        }
        result
    }

    /// Begins to publish a message, once the queues of the subscriptions are open and there is room for the copies. None
    /// when another caller is changing it.
    async fn begin_arrival(
        &self,
        queue: &QueueHandle,
        message: &Message,
    ) -> Result<Option<BegunArrival>, Error> {
        let (mut fan_out, mut reserved, mut room) =
            (FanOut::default(), Amount::default(), Reservation::none());
        let pool = queue.pool_of(message.header.id).await?;
        for _ in 0..FAN_OUT_TRIES {
            match queue.begin_arrival(message, &pool, room, &fan_out)? {
                ArrivalStart::Begun(begun) => return Ok(Some(begun)),
                ArrivalStart::Skipped => return Ok(None),
                ArrivalStart::Unprepared { room: held } => room = held,
            }
            fan_out = self.fan_out(queue, message).await?;
            let more = fan_out.room().minus(reserved);
            if more != Amount::default() {
                room = room.with(self.0.quotas.reserve(&queue.at().project, more).await?);
                reserved = reserved.plus(more);
            }
        }
        Err(Error::unavailable(Part::Server, "the subscriptions of the queue changed each time"))
    }

    /// Returns the subscriptions that get copies of an arriving message, with their queues open.
    async fn fan_out(&self, queue: &QueueHandle, message: &Message) -> Result<FanOut, Error> {
        let now = self.0.replica.clock.now();
        let mut fan_out = queue.fan_out_arrival(message, now).await.ok_or_else(|| queue.closed())?;
        fan_out.share_bodies(&self.0.replica);
        self.0.open_queues.open_subscriptions(queue, &fan_out.fanned).await?;
        queue.weigh(&mut fan_out);
        fan_out.check_bounds()?;
        Ok(fan_out)
    }

    /// Chooses the arriving messages that have room at present, with their copies: the others stay at their source. In
    /// a queue with order it chooses none behind one that must wait.
    pub(crate) async fn admit_arrivals(
        &self,
        queue: &QueueHandle,
        source: &Peer,
        mut arriving: Vec<Message>,
    ) -> AdmittedArrivals {
        let (is_ordered, mut refusal) = (queue.is_ordered(), None);
        let is_long = |message: &Message| is_shareable(message.body.len() as u64);
        if source.at.name.subscription().is_some()
            && let Some(first) = arriving.iter().position(is_long)
            && let Err(error) = self.0.quotas.check_excess(&queue.at().project).await
        {
            refusal = Some(error);
            if is_ordered {
                arriving.truncate(first);
            } else {
                arriving.retain(|message| !is_long(message));
            }
        }
        if !queue.has_subscriptions() || !arriving.iter().any(|message| is_new(&message.header)) {
            return AdmittedArrivals { messages: arriving, refusal };
        }
        let (mut messages, mut taken) = (Vec::new(), HashMap::default());
        let mut copies = Amount::default();
        for message in arriving {
            if !is_new(&message.header) {
                messages.push(message);
                continue;
            }
            let room = match self.fan_out(queue, &message).await {
                Ok(fan_out) => queue.check_arrival(&fan_out, &mut taken).map(|()| fan_out.room()),
                Err(error) => Err(error),
            };
            let room = match room {
                Ok(amount) => self.check_quota(queue, copies.plus(amount)).await.map(|()| amount),
                Err(error) => Err(error),
            };
            match room {
                Ok(amount) => {
                    copies = copies.plus(amount);
                    messages.push(message);
                }
                Err(error) => {
                    refusal.get_or_insert(error);
                    if is_ordered {
                        break;
                    }
                }
            }
        }
        AdmittedArrivals { messages, refusal }
    }

    /// Checks whether the quota has room for copies.
    async fn check_quota(&self, queue: &QueueHandle, copies: Amount) -> Result<(), Error> {
        if copies == Amount::default() {
            return Ok(());
        }
        self.0.quotas.reserve(&queue.at().project, copies).await.map(drop)
    }
}

/// Whether a publication failed because of its message and not because of a part that the others need too.
fn is_of_message(error: &Error) -> bool {
    matches!(error, Error::SubscriptionFull { .. } | Error::OverQuota { .. } | Error::Invalid { .. })
}

/// Waits until a publication is durable. Then the oldest copies beyond the bounds of subscriptions are removed.
async fn finish(BegunArrival { outcome, beyond }: BegunArrival) -> Result<(), Error> {
    settled(outcome).await?;
    beyond.into_iter().for_each(QueueHandle::drop_oldest_later);
    Ok(())
}
