//! Claims: create, release, and the end of those whose time is over.

use std::sync::Arc;

use bytes::Bytes;
use tracing::error;

use super::Broker;
use super::lanes::Change;
use super::messages::{MessageView, settled};
use super::slot::{Deadline, Slot};
use crate::catalogue::{ClaimRecord, ClaimedMessage};
use crate::domain::claim::{ClaimLimit, ClaimTerms};
use crate::domain::ids::{ClaimId, MessageId, QueueId};
use crate::domain::limits;
use crate::domain::message::Header;
use crate::domain::names::QueueRef;
use crate::domain::time::Timestamp;
use crate::engine::{Counts, Ended, Refill, Taken};
use crate::error::{Error, Part};

/// A claim as its holder sees it.
#[derive(Clone, Debug)]
pub struct ClaimView {
    /// Its id.
    pub id: ClaimId,
    /// Its messages, oldest first.
    pub messages: Vec<MessageView>,
}

/// Pages that one claim waits for before it says that there is nothing: each may hold only messages that were
/// removed or claimed while it was read.
const REFILLS: usize = 8;

/// Messages chosen for a claim, with the queue they are in.
struct Chosen {
    queue: QueueId,
    messages: Vec<(Header, Option<Bytes>)>,
}

impl Chosen {
    fn ids(&self) -> Vec<MessageId> {
        self.messages.iter().map(|(header, _)| header.id).collect()
    }
}

impl Broker {
    /// Claims the oldest ready messages. The claim is durable when this returns it; none when there is nothing
    /// to claim.
    pub async fn claim_create(
        &self,
        at: &QueueRef,
        terms: ClaimTerms,
        limit: ClaimLimit,
    ) -> Result<Option<ClaimView>, Error> {
        let slot = Arc::clone(self.slot(at));
        if !self.open(&slot, at).await? {
            return Ok(None);
        }
        let (broker, at) = (self.clone(), at.clone());
        let (unheard_broker, unheard_at) = (self.clone(), at.clone());
        let claim = async move {
            let Some(chosen) = broker.choose(&slot, &at, limit).await? else { return Ok(None) };
            broker.grant(&slot, &at, terms, chosen).await.map(Some)
        };
        // A client that left before the answer never had the messages (P7).
        let unheard = |claim: Option<ClaimView>| async move {
            let Some(claim) = claim else { return };
            let slot = Arc::clone(unheard_broker.slot(&unheard_at));
            if let Err(error) =
                unheard_broker.end_claims(&slot, vec![(unheard_at, claim.id)], Counts::No).await
            {
                error!(%error, "a claim without a holder lives on until it expires");
            }
        };
        self.carry_out(claim, unheard).await
    }

    /// Releases a claim: its messages are ready again when this returns. One that is over is no error.
    pub async fn claim_release(&self, at: &QueueRef, id: ClaimId) -> Result<(), Error> {
        let slot = Arc::clone(self.slot(at));
        if !self.open(&slot, at).await? {
            return Ok(());
        }
        let (broker, at) = (self.clone(), at.clone());
        let release = async move { broker.end_claims(&slot, vec![(at, id)], Counts::Yes).await };
        self.carry_out(release, |()| async {}).await
    }

    /// Hides messages for a claim, reading on in the pool when the window has none.
    async fn choose(
        &self,
        slot: &Arc<Slot>,
        at: &QueueRef,
        limit: ClaimLimit,
    ) -> Result<Option<Chosen>, Error> {
        for attempt in 0..=REFILLS {
            let wait = {
                let mut state = slot.state.lock();
                if state.live_claims >= limits::SLOT_CLAIMS {
                    return Err(Error::TooMany {
                        what: "live claims in one slot",
                        bound: limits::SLOT_CLAIMS,
                    });
                }
                let Some(queue) = state.queues.get_mut(at) else { return Ok(None) };
                let Taken { messages, expired } = queue.engine.take(limit.get(), self.0.clock.now());
                let (id, has_more, pool_failed) = (queue.id, queue.engine.has_more(), queue.pool_failed);
                let refilled = Arc::clone(&queue.refilled);
                self.start_refill(slot, at, queue);
                let met_expired = !expired.is_empty();
                if met_expired {
                    // Nobody waits: an expired message is hidden until it is gone.
                    drop(self.submit(slot, &mut state, at, Change::Remove(expired))?);
                }
                if !messages.is_empty() {
                    return Ok(Some(Chosen { queue: id, messages }));
                }
                if met_expired {
                    // The window may hold live ones behind them, and then no page is on its way.
                    continue;
                }
                if !has_more {
                    return Ok(None);
                }
                if pool_failed && attempt > 0 {
                    return Err(Error::unavailable(Part::Storage, "waiting messages could not be read"));
                }
                let mut wait = Box::pin(refilled.notified_owned());
                wait.as_mut().enable();
                wait
            };
            wait.await;
        }
        Ok(None)
    }

    fn start_refill(&self, slot: &Arc<Slot>, at: &QueueRef, queue: &mut super::slot::OpenQueue) {
        let Some(refill) = queue.engine.begin_refill() else { return };
        let (broker, slot, at, id) = (self.clone(), Arc::clone(slot), at.clone(), queue.id);
        self.0.tasks.spawn(async move { broker.refill(&slot, &at, id, refill).await });
    }

    async fn refill(&self, slot: &Slot, at: &QueueRef, id: QueueId, refill: Refill) {
        let store = {
            let state = slot.state.lock();
            let pool = state.queues.get(at).and_then(|queue| self.0.pools.get(&queue.pool));
            let Some(pool) = pool else { return };
            Arc::clone(&pool.store)
        };
        let direction = crate::storage::Direction::Up;
        let after = Some(refill.after).filter(|after| *after > MessageId::ZERO);
        let page = store.scan(id, direction, after, limits::REFILL_MESSAGES, limits::WINDOW_BYTES).await;
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

    /// Makes a claim on chosen messages durable. When that certainly failed they are ready again.
    async fn grant(
        &self,
        slot: &Slot,
        at: &QueueRef,
        terms: ClaimTerms,
        mut chosen: Chosen,
    ) -> Result<ClaimView, Error> {
        let put_back = |error: Error| {
            if error.nothing_written()
                && let Some(queue) = slot.state.lock().queue_mut(at, chosen.queue)
            {
                queue.engine.put_back(&chosen.ids());
            }
            error
        };
        let bodies = self.bodies(slot, at, &chosen).await.map_err(put_back)?;
        let id = ClaimId::new(&mut rand::rng());
        let now = self.0.clock.now();
        let expires = now.plus_seconds(terms.ttl());
        let record = record_of(&chosen, terms, now, expires);
        let is_new_bucket = slot.state.lock().buckets >> id.bucket() & 1 == 0;
        self.0.catalogue.claim_create(&slot.owned, id, &record, is_new_bucket).await.map_err(put_back)?;
        let mut state = slot.state.lock();
        state.buckets |= 1 << id.bucket();
        state.live_claims += 1;
        state.deadlines.push(std::cmp::Reverse(Deadline { at: expires, claim: id, queue: at.clone() }));
        let ids = chosen.ids();
        let gone = || Error::unknown(Part::Server, "the queue was closed");
        let queue = state.queue_mut(at, chosen.queue).ok_or_else(gone)?;
        let headers = queue.engine.grant(id, terms, expires, &ids);
        chosen.messages.clear();
        let view = |(header, body): (Header, Bytes)| MessageView {
            id: header.id,
            ttl: header.ttl,
            age: now.seconds_since(header.created),
            body,
            claim: Some(id),
        };
        Ok(ClaimView { id, messages: headers.into_iter().zip(bodies).map(view).collect() })
    }

    /// The bodies of chosen messages, from memory or from the pool.
    async fn bodies(&self, slot: &Slot, at: &QueueRef, chosen: &Chosen) -> Result<Vec<Bytes>, Error> {
        let absent: Vec<MessageId> =
            chosen.messages.iter().filter(|(_, body)| body.is_none()).map(|(header, _)| header.id).collect();
        let mut read = Vec::new();
        if !absent.is_empty() {
            let gone = || Error::unavailable(Part::Server, "the queue was closed");
            let pool = slot.state.lock().queues.get(at).map(|queue| queue.pool.clone()).ok_or_else(gone)?;
            let found = self.pool(&pool)?.store.get(chosen.queue, &absent).await;
            read = found.map_err(|error| Error::unavailable(Part::Storage, error))?;
        }
        let body = |(header, body): &(Header, Option<Bytes>)| {
            let stored =
                || read.iter().find(|message| message.header.id == header.id).map(|m| m.body.clone());
            let missing = || Error::unavailable(Part::Storage, format!("message {} has no body", header.id));
            body.clone().or_else(stored).ok_or_else(missing)
        };
        chosen.messages.iter().map(body).collect()
    }

    /// Ends claims: first the headers of their messages become durable, then the records go, then the messages
    /// are ready (P7). Claims that are over, or being ended by somebody else, are passed over.
    pub(super) async fn end_claims(
        &self,
        slot: &Arc<Slot>,
        claims: Vec<(QueueRef, ClaimId)>,
        counts: Counts,
    ) -> Result<(), Error> {
        let mut begun = Vec::new();
        {
            let mut state = slot.state.lock();
            for (at, id) in claims {
                let Some(queue) = state.queues.get_mut(&at) else { continue };
                let Some(Ended { headers }) = queue.engine.begin_end(id, counts) else { continue };
                let returned = match headers.is_empty() {
                    true => None,
                    false => Some(self.submit(slot, &mut state, &at, Change::Return(headers))?),
                };
                begun.push((at, id, returned));
            }
        }
        let mut durable = Vec::new();
        let mut failure = None;
        for (at, id, returned) in begun {
            match returned {
                Some(outcome) => match settled(outcome).await {
                    Ok(()) => durable.push((at, id)),
                    Err(error) => {
                        self.end_failed(slot, &[(at, id)], &error);
                        failure = Some(error);
                    }
                },
                None => durable.push((at, id)),
            }
        }
        let ids: Vec<ClaimId> = durable.iter().map(|(_, id)| *id).collect();
        if let Err(error) = self.0.catalogue.claims_delete(&slot.owned, &ids).await {
            self.end_failed(slot, &durable, &error);
            return Err(error);
        }
        let mut state = slot.state.lock();
        state.live_claims = state.live_claims.saturating_sub(ids.len());
        for (at, id) in durable {
            if let Some(queue) = state.queues.get_mut(&at) {
                queue.engine.ended(id);
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// A claim that could not be ended is tried again at its deadline, if it is certain that it still is one.
    fn end_failed(&self, slot: &Slot, claims: &[(QueueRef, ClaimId)], error: &Error) {
        if !error.nothing_written() {
            return;
        }
        let at = self.0.clock.now().plus_seconds(1);
        let mut state = slot.state.lock();
        for (queue, claim) in claims {
            if let Some(open) = state.queues.get_mut(queue) {
                open.engine.end_failed(*claim);
            }
            state.deadlines.push(std::cmp::Reverse(Deadline { at, claim: *claim, queue: queue.clone() }));
        }
    }
}

fn record_of(chosen: &Chosen, terms: ClaimTerms, created: Timestamp, expires: Timestamp) -> ClaimRecord {
    let claimed = |(header, _): &(Header, Option<Bytes>)| ClaimedMessage {
        id: header.id,
        attempt: header.attempts + 1,
    };
    ClaimRecord {
        queue: chosen.queue,
        messages: chosen.messages.iter().map(claimed).collect(),
        ttl: terms.ttl(),
        grace: terms.grace(),
        created: created.as_millis(),
        expires: expires.as_millis(),
    }
}
