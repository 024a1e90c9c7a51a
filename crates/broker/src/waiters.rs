//! Claims that wait: whatever becomes ready is handed to the first of them at once.
//!
//! A claim that waits holds a place in the line of its queue, in its client's own time: when the client leaves, the
//! place is free, and what had been handed to it moves to the next one, without having counted.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::Broker;
use super::read_failure::ReadFailure;
use super::slot::{Slot, SlotState};
use super::transfer_watch::{self, ArrivalReceiver};
use angarium_core::claim::ClaimLimit;
use angarium_core::error::{Error, Part};
use angarium_core::ids::{MessageId, QueueId};
use angarium_core::limits;
use angarium_core::message::Header;
use angarium_core::names::QueueRef;
use angarium_engine::LinePosition;

/// Messages chosen for a claim, and the queue they are of, with the token that keeps it from being deleted.
type DeliveredMessages = (QueueId, TaskTrackerToken, Vec<(Header, Option<Bytes>)>);

/// What a caller in a line is told: his messages, if there are some, and the arrivals that his claim is to wait for.
type WaitResult = (Option<DeliveredMessages>, Vec<ArrivalReceiver>);

type WaitAnswer = Result<WaitResult, Error>;

/// A caller in a line.
pub(super) struct Waiter {
    limit: ClaimLimit,
    max_wait: WaitTimeout,
    /// Of messages that were marked in transfer while it was looked for his.
    arrivals: Vec<ArrivalReceiver>,
    answer: oneshot::Sender<WaitAnswer>,
}

/// When a caller in a line wants to hear that there is nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitTimeout {
    /// As soon as it is known.
    None,
    /// Not before his time has ended.
    Long,
}

/// What a claim gets: messages, if there are some, and the arrivals of those that were marked in transfer instead.
pub(super) struct ClaimChoice<T> {
    pub(super) chosen: Option<T>,
    pub(super) arrivals: Vec<ArrivalReceiver>,
}

/// Messages chosen for a claim. Dropped before they are used they go to the next one who waits.
pub(super) struct ChosenMessages {
    broker: Broker,
    slot: Arc<Slot>,
    at: QueueRef,
    pub(super) queue: QueueId,
    /// Until the claim's record is there, or is not, the queue is not deleted.
    _use: TaskTrackerToken,
    pub(super) messages: Vec<(Header, Option<Bytes>)>,
}

impl ChosenMessages {
    pub(super) fn ids(&self) -> Vec<MessageId> {
        self.messages.iter().map(|(header, _)| header.id).collect()
    }

    /// They are the claim's now.
    pub(super) fn used(&mut self) -> Vec<(Header, Option<Bytes>)> {
        std::mem::take(&mut self.messages)
    }
}

impl Drop for ChosenMessages {
    fn drop(&mut self) {
        if self.messages.is_empty() {
            return;
        }
        let ids = self.ids();
        let mut state = self.slot.state.lock();
        if let Some(queue) = state.queue_mut(&self.at, self.queue) {
            queue.engine.put_back(&ids);
        }
        self.broker.serve(&self.slot, &mut state, &self.at);
    }
}

/// A place in a line, given up when it is dropped.
struct WaiterGuard<'a> {
    broker: &'a Broker,
    slot: &'a Arc<Slot>,
    at: &'a QueueRef,
    place: LinePosition,
    answer: oneshot::Receiver<WaitAnswer>,
}

impl Drop for WaiterGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.slot.state.lock();
        state.lines.leave(self.at, self.place);
        if let Ok(Ok((Some((queue, _use, messages)), _))) = self.answer.try_recv() {
            let ids: Vec<MessageId> = messages.iter().map(|(header, _)| header.id).collect();
            if let Some(queue) = state.queue_mut(self.at, queue) {
                queue.engine.put_back(&ids);
            }
            self.broker.serve(self.slot, &mut state, self.at);
        }
    }
}

/// What one look at a queue gave.
pub(super) enum ChoiceAttempt {
    Chosen(DeliveredMessages),
    /// There is nothing to claim.
    Nothing,
    /// There may be more, and it is on its way.
    Pending,
}

impl SlotState {
    /// Answers those of the line for whom it holds: with nothing, or the failure that there is.
    fn dismiss(
        &mut self,
        at: &QueueRef,
        holds: impl Fn(&Waiter) -> bool,
        failure: impl Fn() -> Result<(), Error>,
    ) {
        for waiter in self.lines.dismiss(at, holds) {
            // A waiter that has left needs no answer.
            let _ = waiter.answer.send(failure().map(|()| (None, waiter.arrivals)));
        }
    }
}

impl Broker {
    /// Hides messages for a claim. When there are none it waits: for those that must be read in the pool or are about to
    /// become ready, and for others as long as the claim will. None when there is nothing to claim.
    pub(super) async fn choose(
        &self,
        slot: &Arc<Slot>,
        at: &QueueRef,
        limit: ClaimLimit,
        wait: Duration,
    ) -> Result<ClaimChoice<ChosenMessages>, Error> {
        let wait = if self.0.waits.is_cancelled() { Duration::ZERO } else { wait };
        let mut waiting = {
            let mut state = slot.state.lock();
            // No caller overtakes those who wait already.
            let mut arrivals = Vec::new();
            if state.lines.len_of(at) == 0 {
                match self.look(slot, &mut state, at, limit, &mut arrivals)? {
                    ChoiceAttempt::Chosen(handed) => {
                        return Ok(ClaimChoice { chosen: Some(self.chosen(slot, at, handed)), arrivals });
                    }
                    ChoiceAttempt::Nothing if wait.is_zero() => {
                        return Ok(ClaimChoice { chosen: None, arrivals });
                    }
                    ChoiceAttempt::Nothing | ChoiceAttempt::Pending => {}
                }
            }
            let max_wait = if wait.is_zero() { WaitTimeout::None } else { WaitTimeout::Long };
            let waiting = self.join(slot, &mut state, at, (limit, max_wait), arrivals)?;
            self.serve(slot, &mut state, at);
            waiting
        };
        if !wait.is_zero() {
            let told = tokio::select! {
                biased;
                told = &mut waiting.answer => Some(told),
                () = tokio::time::sleep(wait) => None,
                () = self.0.waits.cancelled() => None,
                () = slot.closed.cancelled() => None,
            };
            if let Some(told) = told {
                return self.told(slot, at, told);
            }
            waiting.hurry();
        }
        self.hear(slot, at, &mut waiting, limits::CLAIM_DEADLINE).await
    }

    /// Waits for an answer that must come soon.
    async fn hear(
        &self,
        slot: &Arc<Slot>,
        at: &QueueRef,
        waiting: &mut WaiterGuard<'_>,
        max_wait: Duration,
    ) -> Result<ClaimChoice<ChosenMessages>, Error> {
        tokio::select! {
            biased;
            told = &mut waiting.answer => self.told(slot, at, told),
            () = tokio::time::sleep(max_wait) => {
                Err(Error::unavailable(Part::Storage, "waiting messages come too slowly"))
            }
            () = slot.closed.cancelled() => {
                Err(Error::unavailable(Part::Coordination, "the slot is being recovered"))
            }
            () = self.0.stop.cancelled() => Err(Error::Unavailable { part: Part::Server, cause: None }),
        }
    }

    fn told(
        &self,
        slot: &Arc<Slot>,
        at: &QueueRef,
        told: Result<WaitAnswer, oneshot::error::RecvError>,
    ) -> Result<ClaimChoice<ChosenMessages>, Error> {
        let gone = |_| Error::unavailable(Part::Server, "the queue was closed");
        let (handed, arrivals) = told.map_err(gone)??;
        Ok(ClaimChoice { chosen: handed.map(|handed| self.chosen(slot, at, handed)), arrivals })
    }

    fn chosen(
        &self,
        slot: &Arc<Slot>,
        at: &QueueRef,
        (queue, _use, messages): DeliveredMessages,
    ) -> ChosenMessages {
        ChosenMessages { broker: self.clone(), slot: Arc::clone(slot), at: at.clone(), queue, _use, messages }
    }

    fn join<'a>(
        &'a self,
        slot: &'a Arc<Slot>,
        state: &mut SlotState,
        at: &'a QueueRef,
        (limit, max_wait): (ClaimLimit, WaitTimeout),
        arrivals: Vec<ArrivalReceiver>,
    ) -> Result<WaiterGuard<'a>, Error> {
        if state.lines.len() >= limits::SLOT_WAITERS {
            return Err(Error::TooMany { what: "claims that wait in one slot", bound: limits::SLOT_WAITERS });
        }
        if state.lines.len_of(at) >= limits::QUEUE_WAITERS {
            return Err(Error::TooMany {
                what: "claims that wait for one queue",
                bound: limits::QUEUE_WAITERS,
            });
        }
        let (answer, told) = oneshot::channel();
        let place = state.lines.join(at, Waiter { limit, max_wait, arrivals, answer });
        Ok(WaiterGuard { broker: self, slot, at, place, answer: told })
    }

    /// Hands what is ready to those who wait for it, the first one first. Called whenever something may have become
    /// ready, or turned out not to be there.
    pub(super) fn serve(&self, slot: &Arc<Slot>, state: &mut SlotState, at: &QueueRef) {
        while let Some(first) = state.lines.first(at) {
            if first.answer.is_closed() {
                state.lines.take_first(at);
                continue;
            }
            let (limit, mut arrivals) = (first.limit, Vec::new());
            let look = self.look(slot, state, at, limit, &mut arrivals);
            if let Some(first) = state.lines.first_mut(at) {
                transfer_watch::add(arrivals, &mut first.arrivals);
            }
            match look {
                Ok(ChoiceAttempt::Chosen(handed)) => {
                    let Some(waiter) = state.lines.take_first(at) else { return };
                    let told = Ok((Some(handed), waiter.arrivals));
                    let Err(Ok((Some((queue, _use, messages)), _))) = waiter.answer.send(told) else {
                        continue;
                    };
                    let ids: Vec<MessageId> = messages.iter().map(|(header, _)| header.id).collect();
                    if let Some(queue) = state.queue_mut(at, queue) {
                        queue.engine.put_back(&ids);
                    }
                }
                Ok(ChoiceAttempt::Nothing) => {
                    return state.dismiss(at, |waiter| waiter.max_wait == WaitTimeout::None, || Ok(()));
                }
                Ok(ChoiceAttempt::Pending) => return,
                Err(error) => {
                    let failure = ReadFailure::of(&error);
                    return state.dismiss(at, |_| true, || Err(failure.error()));
                }
            }
        }
    }
}

impl WaiterGuard<'_> {
    /// From here on it wants to hear that there is nothing.
    fn hurry(&mut self) {
        let mut state = self.slot.state.lock();
        if let Some(waiter) = state.lines.get_mut(self.at, self.place) {
            waiter.max_wait = WaitTimeout::None;
            self.broker.serve(self.slot, &mut state, self.at);
        }
    }
}
