//! Filling the ready cache of a queue, and choosing messages from it.

use std::sync::Arc;

use bytes::Bytes;
use tracing::error;

use angarium_core::claim::ClaimLimit;
use angarium_core::error::{Error, Part};
use angarium_core::ids::{MessageId, QueueId};
use angarium_core::limits;
use angarium_core::mutation::{Mutation, is_on};
use angarium_core::names::QueueRef;
use angarium_engine::{ClaimSelection, Refill};
use angarium_storage::{Direction, Order, Page, Position};

use crate::slot::locked::LockedSlot;
use crate::slot::queue_handle::QueueHandle;
use crate::slot::state::{OpenQueue, Slot};
use crate::slot::transfer_watch::ArrivalReceiver;
use crate::slot::wait_line::{ChoiceAttempt, ChosenMessages, DeliveredMessages};
use crate::stores::queue_store::{PageBound, QueueStore};
use crate::stores::read_failure::ReadFailure;
use crate::writer::change::Change;

impl LockedSlot<'_> {
    /// Chooses messages from the ready cache, and hides them. Messages on the way that no claim may have are removed or
    /// marked in transfer, and a page is read when the ready cache runs low. For messages that are marked in transfer
    /// to a queue of a slot that no other replica serves, a receiver of their arrival is added to `arrivals`.
    pub(crate) fn look(
        &mut self,
        at: &QueueRef,
        limit: ClaimLimit,
        arrivals: &mut Vec<ArrivalReceiver>,
    ) -> Result<ChoiceAttempt, Error> {
        if self.slot.closed.is_cancelled() {
            return Err(Error::unavailable(Part::Coordination, "the slot is being recovered"));
        }
        if self.state.live_claims >= limits::SLOT_CLAIMS {
            return Err(Error::TooMany { what: "live claims in one slot", bound: limits::SLOT_CLAIMS });
        }
        loop {
            let now = self.slot.around.replica.clock.now();
            if self.bars_claims(at, now) && !is_on(Mutation::GrantHeld) {
                return Ok(ChoiceAttempt::Nothing);
            }
            let Some(queue) = self.state.queues.get_mut(at) else { return Ok(ChoiceAttempt::Nothing) };
            queue.is_claimed_from = true;
            let taken = queue.engine.take(limit.get(), now);
            let target = (!taken.dead.is_empty()).then(|| queue.dead_letter_target(at)).flatten();
            let (id, in_use) = (queue.id, queue.uses.token());
            self.slot.start_refill(at, queue);
            self.slot.start_wake(at, queue, now);
            if taken.is_empty() {
                let is_pending =
                    queue.engine.has_more() || queue.engine.is_waking(now) || queue.engine.waits_for_copies();
                return match (is_pending, std::mem::take(&mut queue.pool_failed)) {
                    (false, _) => Ok(ChoiceAttempt::Nothing),
                    (true, Some(failure)) => Err(failure.error()),
                    (true, None) => Ok(ChoiceAttempt::Pending),
                };
            }
            if queue.shown.make_due() {
                self.state.figures.note_due(at);
            }
            let ClaimSelection { messages, expired, dead, withheld } = taken;
            if !expired.is_empty() {
                // No caller waits for the outcome: an expired message stays hidden until it is removed.
                drop(self.submit(at, Change::remove(expired)));
            }
            if !withheld.is_empty() {
                // Likewise: a message of a held group stays hidden until it is aside.
                drop(self.submit(at, Change::requeue(withheld)));
            }
            if let Some(target) = target {
                let watched =
                    self.state.queues.get_mut(at).filter(|_| !self.slot.around.foreign.has(target.slot()));
                let ids = dead.iter().map(|header| header.id).collect();
                arrivals.extend(watched.and_then(|queue| queue.transfers.watch(ids)));
                self.mark_in_transfer(at, dead, target);
            }
            if !messages.is_empty() {
                return Ok(ChoiceAttempt::Chosen(DeliveredMessages { queue: id, _use: in_use, messages }));
            }
        }
    }
}

impl Slot {
    /// Begins to read the next page when the ready cache runs low.
    pub(crate) fn start_refill(self: &Arc<Self>, at: &QueueRef, queue: &mut OpenQueue) {
        if queue.engine.is_ordered() {
            return self.start_group_reads(at, queue);
        }
        if let Some(refill) = queue.engine.begin_refill() {
            let handle = QueueHandle::new(Arc::clone(self), at.clone(), queue.id);
            let store = self.store_of(queue);
            self.spawn(async move {
                let page = read_page(store, handle.id, refill).await;
                handle.finish_refill(refill, page);
            });
        }
        if let Some(refill) = queue.engine.begin_lookahead() {
            let handle = QueueHandle::new(Arc::clone(self), at.clone(), queue.id);
            let store = self.store_of(queue);
            self.spawn(async move {
                let page = read_page(store, handle.id, refill).await;
                handle.finish_lookahead(refill, page);
            });
        }
    }
}

impl QueueHandle {
    /// Ends a look-ahead. No caller waits for its messages: there are others to claim.
    pub(crate) fn finish_lookahead(&self, refill: Refill, page: Result<Page, Error>) {
        let mut state = self.slot.lock();
        let Some(queue) = state.queue_mut(&self.at, self.id) else { return };
        match page {
            Ok(page) => queue.engine.finish_lookahead(refill, page.messages, page.is_last),
            Err(cause) => {
                queue.engine.lookahead_failed();
                self.slot.around.replica.task_failed(
                    "look for quiet groups",
                    format_args!("queue {}", self.at.name),
                    &cause,
                );
            }
        }
    }

    pub(crate) fn finish_refill(&self, refill: Refill, page: Result<Page, Error>) {
        let mut state = self.slot.lock();
        let Some(queue) = state.queue_mut(&self.at, self.id) else { return };
        let failure = match page {
            Ok(page) => {
                queue.pool_failed = None;
                queue.engine.finish_refill(refill, page.messages, page.is_last);
                None
            }
            Err(cause) => {
                queue.pool_failed = Some(ReadFailure::of(&cause));
                queue.engine.refill_failed();
                Some(cause)
            }
        };
        if !is_on(Mutation::LoseWakeAfterRefill) {
            state.serve(&self.at);
        }
        drop(state);
        if let Some(cause) = failure {
            self.slot.around.replica.task_failed(
                "read waiting messages",
                format_args!("queue {}", self.at.name),
                &cause,
            );
        }
    }

    /// Returns the bodies of chosen messages, from memory or from the pool.
    pub(crate) async fn bodies(&self, chosen: &ChosenMessages) -> Result<Vec<(MessageId, Bytes)>, Error> {
        let mut bodies = Vec::with_capacity(chosen.messages.len());
        let mut absent = Vec::new();
        for (header, body) in &chosen.messages {
            match body {
                Some(body) => bodies.push((header.id, body.clone())),
                None => absent.push(header.id),
            }
        }
        for _ in 0..BODY_READS {
            if absent.is_empty() {
                return Ok(bodies);
            }
            let store = self.store()?;
            let found = store.get(self.id, &absent).await?;
            absent.retain(|id| found.iter().all(|message| message.header.id != *id));
            bodies.extend(found.into_iter().map(|message| (message.header.id, message.body)));
        }
        if absent.is_empty() { Ok(bodies) } else { Err(self.forget_missing(&absent)) }
    }

    /// Forgets messages that memory has and the pool has not, so that the next claim does not choose them, and marks
    /// the slot as lost: more of its memory may be wrong, and recovery reads all of it again under a new epoch.
    pub(crate) fn forget_missing(&self, missing: &[MessageId]) -> Error {
        if let Some(forgotten) = self.decide(|engine| engine.forget_missing(missing)) {
            self.slot.around.replica.meter.note_missing(forgotten);
        }
        error!(
            queue = %self.at.name, slot = self.slot.owned.slot.0, messages = missing.len(), first = %missing[0],
            "messages missing in pool",
        );
        self.slot.lose("memory had messages that the pool has not");
        Error::unavailable(Part::Storage, "the pool has lost the body of a message")
    }
}

/// Number of reads after which a body that the pool does not return counts as missing.
const BODY_READS: usize = 2;

/// Reads a page of the ready messages of a queue.
async fn read_page(store: Result<QueueStore, Error>, id: QueueId, refill: Refill) -> Result<Page, Error> {
    let after = Some(refill.after).filter(|after| *after > MessageId::ZERO).map(Position::id);
    let most = PageBound { messages: limits::REFILL_MESSAGES, bytes: limits::READY_CACHE_BYTES };
    store?.scan(id, Order::Ready, Direction::Up, after, most).await
}
