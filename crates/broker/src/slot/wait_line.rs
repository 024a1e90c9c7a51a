//! Claims that wait: whatever becomes ready is handed to the first of them at once.
//!
//! A claim that waits holds a place in the line of its queue, in its client's own time: when the client leaves, the
//! place is free, and what had been handed to it moves to the next one, without having counted.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio_util::task::task_tracker::TaskTrackerToken;

use angarium_core::claim::ClaimLimit;
use angarium_core::error::{Error, Part};
use angarium_core::ids::{MessageId, QueueId};
use angarium_core::limits as core_limits;
use angarium_core::message::Header;
use angarium_core::names::QueueRef;
use angarium_engine::LinePosition;

use crate::limits;
use crate::slot::locked::LockedSlot;
use crate::slot::queue_handle::{QueueHandle, closed};
use crate::slot::state::{Slot, SlotState};
use crate::slot::transfer_watch;
use crate::slot::transfer_watch::ArrivalReceiver;
use crate::stores::read_failure::ReadFailure;

/// Messages chosen for a claim, and the queue they are of, with the token that keeps it from being deleted.
pub(crate) struct DeliveredMessages {
    pub(in crate::slot) queue: QueueId,
    pub(in crate::slot) _use: TaskTrackerToken,
    pub(in crate::slot) messages: Vec<(Header, Option<Bytes>)>,
}

/// What a caller in a line is told: his messages, if there are some, and the arrivals that his claim is to wait for.
type WaitResult = (Option<DeliveredMessages>, Vec<ArrivalReceiver>);

type WaitAnswer = Result<WaitResult, Error>;

/// A caller in a line.
pub(crate) struct Waiter {
    pub(crate) limit: ClaimLimit,
    pub(crate) max_wait: WaitTimeout,
    /// Of messages that were marked in transfer while it was looked for his.
    pub(crate) arrivals: Vec<ArrivalReceiver>,
    pub(crate) answer: oneshot::Sender<WaitAnswer>,
}

/// When a caller in a line wants to hear that there is nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitTimeout {
    /// As soon as it is known.
    None,
    /// Not before his time has ended.
    Long,
}

/// What a claim gets: messages, if there are some, and the arrivals of those that were marked in transfer instead.
pub(crate) struct ClaimChoice<T> {
    pub(crate) chosen: Option<T>,
    pub(crate) arrivals: Vec<ArrivalReceiver>,
}

/// Messages chosen for a claim. Dropped before they are used they go to the next one who waits.
pub(crate) struct ChosenMessages {
    pub(crate) queue: QueueHandle,
    /// Until the claim's record is there, or is not, the queue is not deleted.
    _use: TaskTrackerToken,
    pub(crate) messages: Vec<(Header, Option<Bytes>)>,
}

impl ChosenMessages {
    pub(crate) fn ids(&self) -> Vec<MessageId> {
        self.messages.iter().map(|(header, _)| header.id).collect()
    }

    /// They are the claim's now.
    pub(crate) fn used(&mut self) -> Vec<(Header, Option<Bytes>)> {
        std::mem::take(&mut self.messages)
    }
}

impl Drop for ChosenMessages {
    fn drop(&mut self) {
        if !self.messages.is_empty() {
            self.queue.put_back(&self.ids());
        }
    }
}

/// A position in a line, given up when it is dropped.
struct WaiterGuard<'a> {
    line: &'a WaitLine,
    position: LinePosition,
    answer: oneshot::Receiver<WaitAnswer>,
}

impl Drop for WaiterGuard<'_> {
    fn drop(&mut self) {
        let (slot, at) = (&self.line.slot, &self.line.at);
        let mut state = slot.lock();
        state.lines.leave(at, self.position);
        if let Ok(Ok((Some(DeliveredMessages { queue, messages, .. }), _))) = self.answer.try_recv() {
            state.put_back(at, queue, &messages);
            state.serve(at);
        }
    }
}

/// What one look at a queue gave.
pub(crate) enum ChoiceAttempt {
    Chosen(DeliveredMessages),
    /// There is nothing to claim.
    Nothing,
    /// There may be more, and it is on its way.
    Pending,
}

impl SlotState {
    /// Adds a claim to the line of a queue.
    fn join(&mut self, at: &QueueRef, waiter: Waiter) -> Result<LinePosition, Error> {
        if self.lines.len() >= core_limits::SLOT_WAITERS {
            return Err(Error::TooMany {
                what: "claims that wait in one slot",
                bound: core_limits::SLOT_WAITERS,
            });
        }
        if self.lines.len_of(at) >= core_limits::QUEUE_WAITERS {
            return Err(Error::TooMany {
                what: "claims that wait for one queue",
                bound: core_limits::QUEUE_WAITERS,
            });
        }
        Ok(self.lines.join(at, waiter))
    }

    /// Makes messages ready again that were chosen for a claim.
    fn put_back(&mut self, at: &QueueRef, queue: QueueId, messages: &[(Header, Option<Bytes>)]) {
        let ids: Vec<MessageId> = messages.iter().map(|(header, _)| header.id).collect();
        if let Some(queue) = self.queue_mut(at, queue) {
            queue.engine.put_back(&ids);
        }
    }

    /// Answers those of the line for whom it holds: with nothing, or the failure that there is.
    pub(crate) fn dismiss(
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

/// The line of the claims that wait for a queue, whether it exists or not.
pub(crate) struct WaitLine {
    slot: Arc<Slot>,
    at: QueueRef,
}

impl Slot {
    pub(crate) fn line(self: &Arc<Self>, at: &QueueRef) -> WaitLine {
        WaitLine { slot: Arc::clone(self), at: at.clone() }
    }
}

impl LockedSlot<'_> {
    /// Hands what is ready to those who wait for it, the first one first. Called whenever something may have become
    /// ready, or turned out not to be there.
    pub(crate) fn serve(&mut self, at: &QueueRef) {
        while let Some(first) = self.state.lines.first(at) {
            if first.answer.is_closed() {
                self.state.lines.take_first(at);
                continue;
            }
            let (limit, mut arrivals) = (first.limit, Vec::new());
            let look = self.look(at, limit, &mut arrivals);
            if let Some(first) = self.state.lines.first_mut(at) {
                transfer_watch::add(arrivals, &mut first.arrivals);
            }
            match look {
                Ok(ChoiceAttempt::Chosen(handed)) => {
                    let Some(waiter) = self.state.lines.take_first(at) else { return };
                    let told = Ok((Some(handed), waiter.arrivals));
                    let Err(Ok((Some(DeliveredMessages { queue, messages, .. }), _))) =
                        waiter.answer.send(told)
                    else {
                        continue;
                    };
                    self.state.put_back(at, queue, &messages);
                }
                Ok(ChoiceAttempt::Nothing) => {
                    return self.state.dismiss(at, |waiter| waiter.max_wait == WaitTimeout::None, || Ok(()));
                }
                Ok(ChoiceAttempt::Pending) => return,
                Err(error) => {
                    let failure = ReadFailure::of(&error);
                    return self.state.dismiss(at, |_| true, || Err(failure.error()));
                }
            }
        }
    }
}

impl WaitLine {
    /// Hides messages for a claim. When there are none it waits: for those that must be read in the pool or are about to
    /// become ready, and for others as long as the claim will. None when there is nothing to claim.
    pub(crate) async fn choose(
        &self,
        limit: ClaimLimit,
        wait: Duration,
    ) -> Result<ClaimChoice<ChosenMessages>, Error> {
        let waits = &self.slot.around.replica.waits;
        let wait = if waits.is_cancelled() { Duration::ZERO } else { wait };
        let mut waiting = match self.look_or_join(limit, wait)? {
            FirstLook::Chosen(choice) => return Ok(choice),
            FirstLook::Waiting(waiting) => waiting,
        };
        if !wait.is_zero() {
            let told = tokio::select! {
                biased;
                told = &mut waiting.answer => Some(told),
                () = tokio::time::sleep(wait) => None,
                () = waits.cancelled() => None,
                () = self.slot.closed.cancelled() => None,
            };
            if let Some(told) = told {
                return self.choice(told);
            }
            waiting.hurry();
        }
        self.await_soon(&mut waiting).await
    }

    /// Looks once, and joins the line when there is nothing yet.
    fn look_or_join(&self, limit: ClaimLimit, wait: Duration) -> Result<FirstLook<'_>, Error> {
        let mut state = self.slot.lock();
        let mut arrivals = Vec::new();
        // No caller overtakes those who wait already.
        if state.lines.len_of(&self.at) == 0 {
            match state.look(&self.at, limit, &mut arrivals)? {
                ChoiceAttempt::Chosen(delivered) => {
                    let chosen = Some(self.chosen(delivered));
                    return Ok(FirstLook::Chosen(ClaimChoice { chosen, arrivals }));
                }
                ChoiceAttempt::Nothing if wait.is_zero() => {
                    return Ok(FirstLook::Chosen(ClaimChoice { chosen: None, arrivals }));
                }
                ChoiceAttempt::Nothing | ChoiceAttempt::Pending => {}
            }
        }
        let max_wait = if wait.is_zero() { WaitTimeout::None } else { WaitTimeout::Long };
        let (answer, told) = oneshot::channel();
        let position = state.join(&self.at, Waiter { limit, max_wait, arrivals, answer })?;
        let waiting = WaiterGuard { line: self, position, answer: told };
        state.serve(&self.at);
        drop(state);
        Ok(FirstLook::Waiting(waiting))
    }

    /// Waits for an answer that must come soon.
    async fn await_soon(&self, waiting: &mut WaiterGuard<'_>) -> Result<ClaimChoice<ChosenMessages>, Error> {
        tokio::select! {
            biased;
            told = &mut waiting.answer => self.choice(told),
            () = tokio::time::sleep(limits::CLAIM_DEADLINE) => {
                Err(Error::unavailable(Part::Storage, "waiting messages come too slowly"))
            }
            () = self.slot.closed.cancelled() => {
                Err(Error::unavailable(Part::Coordination, "the slot is being recovered"))
            }
            () = self.slot.around.replica.stop.cancelled() => {
                Err(Error::Unavailable { part: Part::Server, cause: None })
            }
        }
    }

    fn choice(
        &self,
        told: Result<WaitAnswer, oneshot::error::RecvError>,
    ) -> Result<ClaimChoice<ChosenMessages>, Error> {
        let (delivered, arrivals) = told.map_err(|_| closed(&self.at))??;
        Ok(ClaimChoice { chosen: delivered.map(|delivered| self.chosen(delivered)), arrivals })
    }

    fn chosen(&self, DeliveredMessages { queue, _use, messages }: DeliveredMessages) -> ChosenMessages {
        let queue = QueueHandle::new(Arc::clone(&self.slot), self.at.clone(), queue);
        ChosenMessages { queue, _use, messages }
    }
}

/// What the first look of a claim came to.
enum FirstLook<'a> {
    Chosen(ClaimChoice<ChosenMessages>),
    Waiting(WaiterGuard<'a>),
}

impl WaiterGuard<'_> {
    /// From here on it wants to hear that there is nothing.
    fn hurry(&mut self) {
        let mut state = self.line.slot.lock();
        if let Some(waiter) = state.lines.get_mut(&self.line.at, self.position) {
            waiter.max_wait = WaitTimeout::None;
            state.serve(&self.line.at);
        }
    }
}
