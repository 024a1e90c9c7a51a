//! Claims: create and release. How claims end stands in [`super::ends`].

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::futures::OwnedNotified;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tracing::error;

use super::lanes::Change;
use super::messages::MessageView;
use super::slot::{Deadline, OpenQueue, Slot};
use super::{Broker, storage_failed};
use crate::catalogue::{ClaimRecord, ClaimedMessage};
use crate::domain::claim::{ClaimLimit, ClaimTerms};
use crate::domain::ids::{ClaimId, MessageId, QueueId};
use crate::domain::limits;
use crate::domain::message::Header;
use crate::domain::names::QueueRef;
use crate::domain::time::Timestamp;
use crate::engine::{Counts, Refill, Taken};
use crate::error::{Error, Part};
use crate::storage::{Direction, Order, Position};

/// A claim as its holder sees it.
#[derive(Clone, Debug)]
pub struct ClaimView {
    /// Its id.
    pub id: ClaimId,
    /// Its messages, oldest first.
    pub messages: Vec<MessageView>,
}

/// A claim on its way to its holder. Dropped before [`Handover::done`], the holder never had it: it is released
/// at once and does not count as an attempt (P7).
pub struct Handover {
    broker: Broker,
    at: QueueRef,
    /// None once it is handed over.
    claim: Option<ClaimId>,
}

impl Handover {
    /// The answer is on its way: from here on the holder may have the claim.
    pub fn done(&mut self) {
        self.claim = None;
    }
}

impl Drop for Handover {
    fn drop(&mut self) {
        let Some(claim) = self.claim.take() else { return };
        let (broker, at) = (self.broker.clone(), self.at.clone());
        self.broker.0.tasks.spawn(async move {
            if let Err(error) = broker.end_unheld(at, claim).await {
                error!(%error, "a claim without a holder lives on until it expires");
            }
        });
    }
}

/// Messages chosen for a claim, with the queue they are in.
pub(super) struct Chosen {
    pub(super) queue: QueueId,
    /// Until the claim's record is there, or is not, the queue is not deleted.
    pub(super) _use: TaskTrackerToken,
    pub(super) messages: Vec<(Header, Option<Bytes>)>,
}

impl Chosen {
    pub(super) fn ids(&self) -> Vec<MessageId> {
        self.messages.iter().map(|(header, _)| header.id).collect()
    }
}

/// What one look at the window gave.
enum Look {
    Chosen(Chosen),
    Nothing,
    /// Messages were found whose life was over: look again.
    Again,
    /// The pool has more, and a page of it is on its way.
    Wait(OwnedNotified),
}

impl Broker {
    /// Claims the oldest ready messages. The claim is durable when this returns it; none when there is nothing
    /// to claim.
    pub async fn claim_create(
        &self,
        at: &QueueRef,
        terms: ClaimTerms,
        limit: ClaimLimit,
    ) -> Result<Option<(ClaimView, Handover)>, Error> {
        let slot = self.slot(at).await?;
        if !self.open(&slot, at).await? {
            return self.check_ours(&slot).map(|()| None);
        }
        let (broker, at) = (self.clone(), at.clone());
        let claim = async move {
            let Some(chosen) = broker.choose(&slot, &at, limit).await? else {
                // Cut off from the tree, nobody can say that there is nothing: it may be another's by now (P8).
                return broker.check_ours(&slot).map(|()| None);
            };
            let view = broker.grant(&slot, &at, terms, chosen).await?;
            let handover = Handover { broker, at, claim: Some(view.id) };
            Ok(Some((view, handover)))
        };
        self.carry_out(claim).await
    }

    /// Hides messages for a claim, reading on in the pool while the window has none.
    pub(super) async fn choose(
        &self,
        slot: &Arc<Slot>,
        at: &QueueRef,
        limit: ClaimLimit,
    ) -> Result<Option<Chosen>, Error> {
        let search = async {
            loop {
                match self.look(slot, at, limit)? {
                    Look::Chosen(chosen) => return Ok(Some(chosen)),
                    Look::Nothing => return Ok(None),
                    Look::Again => tokio::task::yield_now().await,
                    Look::Wait(refilled) => refilled.await,
                }
            }
        };
        tokio::select! {
            found = tokio::time::timeout(limits::CLAIM_DEADLINE, search) => {
                found.unwrap_or_else(|_| Err(Error::unavailable(Part::Storage, "waiting messages come too slowly")))
            }
            () = self.0.stop.cancelled() => Err(Error::Unavailable { part: Part::Server, cause: None }),
            () = slot.closed.cancelled() => Err(Error::unavailable(Part::Coordination, "the slot is taken anew")),
        }
    }

    /// Ends a claim that its holder never got, uncounted.
    async fn end_unheld(&self, at: QueueRef, claim: ClaimId) -> Result<(), Error> {
        let slot = self.slot(&at).await?;
        // The slot may have been taken anew since the claim was made.
        self.open(&slot, &at).await?;
        self.end_claims(&slot, vec![(at, claim)], Counts::No).await
    }

    fn look(&self, slot: &Arc<Slot>, at: &QueueRef, limit: ClaimLimit) -> Result<Look, Error> {
        let mut state = slot.state.lock();
        if state.live_claims >= limits::SLOT_CLAIMS {
            return Err(Error::TooMany { what: "live claims in one slot", bound: limits::SLOT_CLAIMS });
        }
        let Some(queue) = state.queues.get_mut(at) else { return Ok(Look::Nothing) };
        let Taken { messages, expired } = queue.engine.take(limit.get(), self.0.clock.now());
        let (id, token) = (queue.id, queue.uses.token());
        self.start_refill(slot, at, queue);
        if messages.is_empty() && expired.is_empty() {
            return match (queue.engine.has_more(), std::mem::take(&mut queue.pool_failed)) {
                (false, _) => Ok(Look::Nothing),
                (true, true) => Err(Error::unavailable(Part::Storage, "waiting messages could not be read")),
                (true, false) => {
                    let refilled = Arc::clone(&queue.refilled).notified_owned();
                    Ok(Look::Wait(refilled))
                }
            };
        }
        if !expired.is_empty() {
            // Nobody waits for this: an expired message is hidden until it is gone.
            drop(self.submit(slot, &mut state, at, Change::Remove(expired)));
        }
        if messages.is_empty() {
            return Ok(Look::Again);
        }
        Ok(Look::Chosen(Chosen { queue: id, messages, _use: token }))
    }

    /// Begins to read the next page when the window runs low.
    pub(super) fn start_refill(&self, slot: &Arc<Slot>, at: &QueueRef, queue: &mut OpenQueue) {
        let Some(refill) = queue.engine.begin_refill() else { return };
        let (broker, slot, at, id) = (self.clone(), Arc::clone(slot), at.clone(), queue.id);
        let pool = queue.pool.clone();
        self.0.tasks.spawn(async move {
            let page = match broker.pool(&pool).and_then(|pool| pool.store()) {
                Ok(store) => {
                    let after = Some(refill.after).filter(|after| *after > MessageId::ZERO);
                    let after = after.map(Position::id);
                    let (messages, bytes) = (limits::REFILL_MESSAGES, limits::WINDOW_BYTES);
                    let page = store.scan(id, Order::Ready, Direction::Up, after, messages, bytes).await;
                    page.map_err(storage_failed)
                }
                Err(error) => Err(error),
            };
            finish_refill(&slot, &at, id, refill, page);
        });
    }

    /// Makes a claim on chosen messages durable. When that certainly failed they are ready again.
    async fn grant(
        &self,
        slot: &Slot,
        at: &QueueRef,
        terms: ClaimTerms,
        chosen: Chosen,
    ) -> Result<ClaimView, Error> {
        let id = ClaimId::new(&mut rand::rng());
        let now = self.0.clock.now();
        let expires = now.plus_seconds(terms.ttl());
        let bodies = match self.record(slot, at, id, terms, &chosen, (now, expires)).await {
            Ok(bodies) => bodies,
            Err(error) if error.nothing_written() => {
                if let Some(queue) = slot.state.lock().queue_mut(at, chosen.queue) {
                    queue.engine.put_back(&chosen.ids());
                }
                return Err(error);
            }
            Err(error) => {
                self.end_in_doubt(slot, at, id, terms, &chosen);
                return Err(error);
            }
        };
        let mut state = slot.state.lock();
        state.buckets |= 1 << id.bucket();
        state.live_claims += 1;
        state.await_end(Deadline { at: expires, claim: id, queue: at.clone() });
        let gone = || Error::unknown(Part::Server, "the queue was closed");
        let queue = state.queue_mut(at, chosen.queue).ok_or_else(gone)?;
        let headers = queue.engine.grant(id, terms, expires, &chosen.ids());
        let view = |header: Header| {
            let (_, body) = bodies.iter().find(|(message, _)| *message == header.id)?;
            let age = now.seconds_since(header.created);
            Some(MessageView { id: header.id, ttl: header.ttl, age, body: body.clone(), claim: Some(id) })
        };
        Ok(ClaimView { id, messages: headers.into_iter().filter_map(view).collect() })
    }

    /// Nobody knows whether a claim is recorded. It is taken for a claim whose time is over: ending it removes the
    /// record, if there is one, before the messages are ready.
    fn end_in_doubt(&self, slot: &Slot, at: &QueueRef, id: ClaimId, terms: ClaimTerms, chosen: &Chosen) {
        let mut state = slot.state.lock();
        let Some(queue) = state.queue_mut(at, chosen.queue) else { return };
        let now = self.0.clock.now();
        queue.engine.grant(id, terms, now, &chosen.ids());
        state.live_claims += 1;
        state.await_end(Deadline { at: now, claim: id, queue: at.clone() });
    }

    /// Reads what bodies are missing, then writes the claim's record.
    async fn record(
        &self,
        slot: &Slot,
        at: &QueueRef,
        id: ClaimId,
        terms: ClaimTerms,
        chosen: &Chosen,
        (created, expires): (Timestamp, Timestamp),
    ) -> Result<Vec<(MessageId, Bytes)>, Error> {
        let bodies = self.bodies(slot, at, chosen).await?;
        let claimed =
            |(header, _): &(Header, _)| ClaimedMessage { id: header.id, attempt: header.attempts + 1 };
        let record = ClaimRecord {
            queue: chosen.queue,
            messages: chosen.messages.iter().map(claimed).collect(),
            ttl: terms.ttl(),
            grace: terms.grace(),
            created: created.as_millis(),
            expires: expires.as_millis(),
        };
        let is_new_bucket = slot.state.lock().buckets >> id.bucket() & 1 == 0;
        self.0.catalogue.claim_create(&slot.owned, id, &record, is_new_bucket).await?;
        Ok(bodies)
    }

    /// The bodies of chosen messages, from memory or from the pool.
    pub(super) async fn bodies(
        &self,
        slot: &Slot,
        at: &QueueRef,
        chosen: &Chosen,
    ) -> Result<Vec<(MessageId, Bytes)>, Error> {
        let mut bodies = Vec::with_capacity(chosen.messages.len());
        let mut absent = Vec::new();
        for (header, body) in &chosen.messages {
            match body {
                Some(body) => bodies.push((header.id, body.clone())),
                None => absent.push(header.id),
            }
        }
        if !absent.is_empty() {
            let gone = || Error::unavailable(Part::Server, "the queue was closed");
            let pool = slot.state.lock().queues.get(at).map(|queue| queue.pool.clone()).ok_or_else(gone)?;
            let found =
                self.pool(&pool)?.store()?.get(chosen.queue, &absent).await.map_err(storage_failed)?;
            bodies.extend(found.into_iter().map(|message| (message.header.id, message.body)));
        }
        if bodies.len() < chosen.messages.len() {
            return Err(Error::unavailable(Part::Storage, "the pool has lost the body of a message"));
        }
        Ok(bodies)
    }
}

fn finish_refill(
    slot: &Slot,
    at: &QueueRef,
    id: QueueId,
    refill: Refill,
    page: Result<crate::storage::Page, Error>,
) {
    let mut state = slot.state.lock();
    let Some(queue) = state.queue_mut(at, id) else { return };
    match page {
        Ok(page) => {
            queue.pool_failed = false;
            queue.engine.finish_refill(refill, page.messages, page.is_last);
        }
        Err(cause) => {
            error!(%cause, queue = %at.name, "waiting messages could not be read");
            queue.pool_failed = true;
            queue.engine.refill_failed();
        }
    }
    queue.refilled.notify_waiters();
}
