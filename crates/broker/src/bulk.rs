//! Many messages at once: delete them by their ids, pop the oldest, purge all.

use std::sync::Arc;
use std::time::Duration;

use super::Broker;
use super::changes::Change;
use super::messages::{MessageView, WriteOutcome, settled};
use super::slot::Slot;
use super::waiters::ChosenMessages;
use angarium_core::claim::{ClaimLimit, Holdings};
use angarium_core::error::{Error, Part};
use angarium_core::ids::{MessageId, QueueId};
use angarium_core::limits;
use angarium_core::message::{Header, State};
use angarium_core::names::QueueRef;
use angarium_core::page::PopCount;
use angarium_engine::Removal;
use angarium_storage::{Direction, Order, Page, Position};

/// How long a purge waits before it asks again for messages that are just being claimed or given back, and how often.
const PURGE_PAUSE: Duration = Duration::from_millis(20);
const PURGE_PASSES: usize = 500;

/// What a pass of a purge left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PassRemainder {
    Nothing,
    /// Messages that are just being claimed or given back.
    Changing,
}

impl Broker {
    /// Deletes messages for a caller who holds claims: all of them, or none when one is under another live claim.
    /// They are gone from the pool when this returns; those that were not there are no error.
    pub async fn messages_delete(
        &self,
        at: &QueueRef,
        mut ids: Vec<MessageId>,
        held: Holdings<'_>,
    ) -> Result<(), Error> {
        let slot = self.slot(at).await?;
        ids.sort_unstable();
        ids.dedup();
        let removal = self.delete_all_or_none(&slot, at, ids, held).await;
        match self.confirm_refusal(&slot, removal)? {
            Some(outcome) => settled(outcome).await,
            None => self.check_ours(&slot),
        }
    }

    /// Deletes messages, each for itself: one that is under a claim of another caller stays. Those that went well are
    /// gone from the pool when this returns.
    pub async fn messages_delete_each(
        &self,
        at: &QueueRef,
        ids: &[MessageId],
        held: Holdings<'_>,
    ) -> Result<Vec<Result<(), Error>>, Error> {
        let slot = self.slot(at).await?;
        let mut begun = Vec::with_capacity(ids.len());
        for id in ids {
            let removal = self.delete_all_or_none(&slot, at, vec![*id], held).await;
            begun.push(self.confirm_refusal(&slot, removal));
        }
        let mut done = Vec::with_capacity(begun.len());
        for removal in begun {
            done.push(match removal {
                Ok(Some(outcome)) => settled(outcome).await,
                Ok(None) => self.check_ours(&slot),
                Err(error) => Err(error),
            });
        }
        Ok(done)
    }

    /// None when there is no such queue, or no id.
    async fn delete_all_or_none(
        &self,
        slot: &Arc<Slot>,
        at: &QueueRef,
        ids: Vec<MessageId>,
        held: Holdings<'_>,
    ) -> Result<Option<WriteOutcome>, Error> {
        if ids.is_empty() || !self.open(slot, at).await? {
            return Ok(None);
        }
        let mut asked = None;
        loop {
            let (queue, store) = {
                let now = self.claim_time();
                let mut state = slot.state.lock();
                let Some(queue) = state.queues.get_mut(at) else { return Ok(None) };
                asked = match queue.engine.begin_remove_all(&ids, held, asked, now)? {
                    Removal::Begun => {
                        return self.submit(slot, &mut state, at, Change::Remove(ids)).map(Some);
                    }
                    Removal::AskPool(asked) => Some(asked),
                };
                (queue.id, self.store_of(queue)?)
            };
            let found = store.get(queue, &ids).await?;
            if found.iter().any(|message| is_moving(&message.header.state)) {
                return Err(Error::unavailable(Part::Storage, "a message is on its way to another queue"));
            }
        }
    }

    /// Takes the oldest ready messages out of the queue. They are gone from the pool when this returns them, so they
    /// are lost when the answer is.
    pub async fn messages_pop(&self, at: &QueueRef, count: PopCount) -> Result<Vec<MessageView>, Error> {
        let slot = self.slot(at).await?;
        if !self.open(&slot, at).await? {
            return self.check_ours(&slot).map(|()| Vec::new());
        }
        let (broker, at) = (self.clone(), at.clone());
        let pop = async move {
            match broker.choose(&slot, &at, ClaimLimit::from(count), Duration::ZERO).await?.chosen {
                Some(chosen) => broker.pop_chosen(&slot, &at, chosen).await,
                // Cut off from the tree, no caller can say that there is nothing (P8).
                None => broker.check_ours(&slot).map(|()| Vec::new()),
            }
        };
        self.carry_out(pop).await
    }

    async fn pop_chosen(
        &self,
        slot: &Arc<Slot>,
        at: &QueueRef,
        mut chosen: ChosenMessages,
    ) -> Result<Vec<MessageView>, Error> {
        let ids = chosen.ids();
        let bodies = self.bodies(slot, at, &chosen).await?;
        let queue = chosen.queue;
        let messages = chosen.used();
        let (outcome, counters, retention) = {
            let mut state = slot.state.lock();
            let gone = || Error::unavailable(Part::Server, "the queue was closed");
            let queue = state.queue_mut(at, queue).ok_or_else(gone)?;
            queue.engine.begin_remove_taken(&ids);
            let counters = Arc::clone(&queue.counters);
            let retention = queue.engine.retention();
            (self.submit(slot, &mut state, at, Change::Remove(ids))?, counters, retention)
        };
        settled(outcome).await?;
        counters.claimed.inc_by(u64::try_from(messages.len()).unwrap_or_default());
        let now = self.0.clock.now();
        let view = |(header, _): &(Header, _)| {
            let (_, body) = bodies.iter().find(|(id, _)| *id == header.id)?;
            Some(MessageView::free(header, body.clone(), (now, retention)))
        };
        Ok(messages.iter().filter_map(view).collect())
    }

    /// Removes every message that was posted before, claimed or not. Zaqar spares the claimed ones, whatever it
    /// states. Nothing happens when there is no such queue.
    pub async fn queue_purge(&self, at: &QueueRef) -> Result<(), Error> {
        let slot = self.slot(at).await?;
        if !self.open(&slot, at).await? {
            return self.check_ours(&slot);
        }
        let (broker, at) = (self.clone(), at.clone());
        let purge = async move {
            let _guard = slot.lost_on_panic();
            let mut purging = {
                let mut state = slot.state.lock();
                let last = state.ids.last();
                let Some(queue) = state.queues.get_mut(&at) else { return Ok(()) };
                queue.engine.begin_purging(last);
                PurgeRun { slot: &slot, at: &at, id: queue.id, last, is_written: false }
            };
            let outcome = broker.run_purge(&mut purging).await;
            let PurgeRun { id, is_written, .. } = purging;
            if let Some(queue) = slot.state.lock().queue_mut(&at, id) {
                queue.engine.end_purging();
            }
            outcome.map_err(|error| if is_written { error.into_unknown() } else { error })
        };
        self.carry_out(purge).await
    }

    async fn run_purge(&self, purging: &mut PurgeRun<'_>) -> Result<(), Error> {
        let PurgeRun { slot, at, id, last, .. } = *purging;
        purging.is_written |= self.forget_dedup_ids(slot, at, id).await?;
        for _ in 0..PURGE_PASSES {
            let pass = {
                let mut state = slot.state.lock();
                let Some(queue) = state.queue_mut(at, id) else { return self.check_ours(slot) };
                queue.engine.begin_purge_pass(last)
            };
            let ready = self.purge_order(purging, Order::Ready).await?;
            let in_transfer = self.purge_order(purging, Order::Aside).await?;
            let is_whole = {
                let mut state = slot.state.lock();
                state.queue_mut(at, id).is_none_or(|queue| queue.engine.is_purge_whole(pass))
            };
            if is_whole && (ready, in_transfer) == (PassRemainder::Nothing, PassRemainder::Nothing) {
                return self.check_ours(slot);
            }
            tokio::time::sleep(PURGE_PAUSE).await;
        }
        Err(Error::unknown(Part::Coordination, "claims of the queue are neither made nor ended"))
    }

    /// Leaves through an order of the queue once. What moves between queues is left to its move.
    async fn purge_order(&self, purging: &mut PurgeRun<'_>, order: Order) -> Result<PassRemainder, Error> {
        let PurgeRun { slot, at, id, last, .. } = *purging;
        let (mut after, mut left) = (None, PassRemainder::Nothing);
        loop {
            let store = {
                let state = slot.state.lock();
                let Some(queue) = state.queues.get(at).filter(|queue| queue.id == id) else {
                    return Ok(PassRemainder::Nothing);
                };
                self.store_of(queue)?
            };
            let most = (limits::PURGE_STEP, limits::BATCH_BYTES);
            let Page { messages, .. } = store.scan(id, order, Direction::Up, after, most).await?;
            let Some(end) = messages.last().map(|message| message.header.id) else { return Ok(left) };
            let headers = messages.iter().map(|message| &message.header);
            let is_purged = |header: &&Header| header.id <= last && !is_moving(&header.state);
            let ids: Vec<MessageId> = headers.filter(is_purged).map(|header| header.id).collect();
            let outcome = {
                let mut state = slot.state.lock();
                let Some(queue) = state.queue_mut(at, id) else { return Ok(PassRemainder::Nothing) };
                let begun = queue.engine.begin_purge(&ids);
                if begun.len() < ids.len() {
                    left = PassRemainder::Changing;
                }
                self.submit(slot, &mut state, at, Change::Remove(begun))?
            };
            settled(outcome).await?;
            purging.is_written |= !ids.is_empty();
            if end >= last {
                return Ok(left);
            }
            after = Some(Position::id(end));
        }
    }
}

/// A purge of a queue.
struct PurgeRun<'a> {
    slot: &'a Arc<Slot>,
    at: &'a QueueRef,
    id: QueueId,
    /// The newest message that leaves.
    last: MessageId,
    /// Whether something is gone by now.
    is_written: bool,
}

fn is_moving(state: &State) -> bool {
    match state {
        State::Ready | State::Scheduled | State::Failed => false,
        State::Prepared(_) | State::Moving(_) => true,
    }
}
