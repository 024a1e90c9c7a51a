//! Waiting claims: messages that become ready are delivered to the first of them at once.
//!
//! A waiting claim holds a position in the line of its queue while its client waits. When the client leaves, the
//! position is freed, and messages that were already delivered to it are put back for the next claim; they do not count
//! as claimed.

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

/// Messages chosen for a claim, with their queue and the token that keeps it from being deleted.
pub(crate) struct DeliveredMessages {
    pub(in crate::slot) queue: QueueId,
    pub(in crate::slot) _use: TaskTrackerToken,
    pub(in crate::slot) messages: Vec<(Header, Option<Bytes>)>,
}

/// The answer to a waiter: messages, if there are some, and the arrivals for which its claim must wait.
type WaitResult = (Option<DeliveredMessages>, Vec<ArrivalReceiver>);

type WaitAnswer = Result<WaitResult, Error>;

/// A claim that waits in a line.
pub(crate) struct Waiter {
    pub(crate) limit: ClaimLimit,
    pub(crate) max_wait: WaitTimeout,
    /// Arrivals of messages that were marked in transfer during the search for this claim.
    pub(crate) arrivals: Vec<ArrivalReceiver>,
    pub(crate) answer: oneshot::Sender<WaitAnswer>,
}

/// When a waiter must be answered that there is no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitTimeout {
    /// As soon as that is known.
    None,
    /// Not before its wait has timed out.
    Long,
}

/// The result for a claim: messages, if there are some, and the arrivals of messages that were marked in transfer
/// instead.
pub(crate) struct ClaimChoice<T> {
    pub(crate) chosen: Option<T>,
    pub(crate) arrivals: Vec<ArrivalReceiver>,
}

/// Messages chosen for a claim. When this is dropped before they are used, the next waiter gets them.
pub(crate) struct ChosenMessages {
    pub(crate) queue: QueueHandle,
    /// Keeps the queue from being deleted until it is known whether the claim's record exists.
    _use: TaskTrackerToken,
    pub(crate) messages: Vec<(Header, Option<Bytes>)>,
}

impl ChosenMessages {
    pub(crate) fn ids(&self) -> Vec<MessageId> {
        self.messages.iter().map(|(header, _)| header.id).collect()
    }

    /// Takes the messages: the claim has them now.
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

/// A position in a line. It is freed when this is dropped.
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

/// The result of one search of a queue.
pub(crate) enum ChoiceAttempt {
    Chosen(DeliveredMessages),
    /// There is nothing to claim.
    Nothing,
    /// Messages may follow: the pool is being read, or they are about to become ready.
    Pending,
}

impl SlotState {
    /// Adds a claim to the line of a queue. The first one always has a place, so that waiting webhooks, of which each is
    /// the only one of its line, take none from consumers of other queues of the slot.
    fn join(&mut self, at: &QueueRef, waiter: Waiter) -> Result<LinePosition, Error> {
        if self.lines.len_of(at) > 0 && self.lines.behind() >= core_limits::SLOT_WAITERS {
            return Err(Error::TooMany {
                what: "claims that wait behind others in one slot",
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

    /// Answers the waiters of a line for which `holds` is true: with no messages, or with the failure.
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
    /// Delivers ready messages to the waiters, in order. Must be called whenever messages may have become ready, or
    /// turned out not to exist.
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
    /// Chooses messages for a claim, and hides them. When there are none it waits: for messages that must be read in
    /// the pool or are about to become ready, and for others up to `wait`. Returns none when there is nothing to claim.
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

    /// Searches once, and joins the line when there is nothing yet.
    fn look_or_join(&self, limit: ClaimLimit, wait: Duration) -> Result<FirstLook<'_>, Error> {
        let mut state = self.slot.lock();
        let mut arrivals = Vec::new();
        // A new claim must not overtake the waiters.
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

    /// Waits for an answer, at most [`limits::CLAIM_DEADLINE`].
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

/// The result of the first search for a claim.
enum FirstLook<'a> {
    Chosen(ClaimChoice<ChosenMessages>),
    Waiting(WaiterGuard<'a>),
}

impl WaiterGuard<'_> {
    /// Has the waiter answered as soon as there is nothing to claim.
    fn hurry(&mut self) {
        let mut state = self.line.slot.lock();
        if let Some(waiter) = state.lines.get_mut(&self.line.at, self.position) {
            waiter.max_wait = WaitTimeout::None;
            state.serve(&self.line.at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replica::alarm::Alarms;
    use angarium_core::names::{ProjectId, QueueName};

    /// Puts so many claims into the line of a queue.
    fn join(state: &mut SlotState, queue: usize, claims: usize) -> Result<(), Error> {
        let name = QueueName::new(&format!("q{queue}")).unwrap();
        let at = QueueRef { project: ProjectId::new("").unwrap(), name };
        (0..claims).try_for_each(|_| {
            let (limit, answer) = (ClaimLimit::of(1), oneshot::channel().0);
            let waiter = Waiter { limit, max_wait: WaitTimeout::Long, arrivals: Vec::new(), answer };
            state.join(&at, waiter).map(drop)
        })
    }

    #[test]
    fn waiting_webhooks_take_no_places_of_consumers() {
        let mut state = SlotState::empty(&Alarms::default());
        // Each webhook is the only waiter of its line.
        for queue in 0..=core_limits::SLOT_WAITERS {
            join(&mut state, queue, 1).unwrap();
        }
        join(&mut state, core_limits::SLOT_WAITERS + 1, 3).unwrap();
    }

    #[test]
    fn full_slot_has_places_for_first_waiters_alone() {
        let mut state = SlotState::empty(&Alarms::default());
        let (mut queue, mut left) = (0, core_limits::SLOT_WAITERS);
        while left > 0 {
            let behind = left.min(core_limits::QUEUE_WAITERS - 1);
            queue += 1;
            left -= behind;
            join(&mut state, queue, behind + 1).unwrap();
        }
        let refused = join(&mut state, queue, 1).unwrap_err();
        assert!(matches!(refused, Error::TooMany { bound: core_limits::SLOT_WAITERS, .. }), "{refused}");
        join(&mut state, 0, 1).unwrap();
        assert!(join(&mut state, 0, 1).is_err());
    }
}
