//! Looking at a claim, and giving it new terms.

use std::sync::Arc;

use super::Broker;
use super::claims::ClaimView;
use super::deadlines::Deadline;
use super::messages::MessageView;
use super::slot::Slot;
use angarium_catalogue::{AttemptRecord, ClaimRecord, ClaimedMessage};
use angarium_core::claim::ClaimTerms;
use angarium_core::error::{Error, Part, Resource};
use angarium_core::ids::{ClaimId, ClientId, MessageId, QueueId};
use angarium_core::limits;
use angarium_core::names::QueueRef;
use angarium_core::receipt::Attempt;
use angarium_engine::Renewal;

/// A claim as its holder looks at it later.
#[derive(Clone, Debug)]
pub struct ClaimStatus {
    /// The claim, with those of its messages that are not deleted yet.
    pub view: ClaimView,
    /// Seconds it lasts from its creation or last renewal.
    pub ttl: u32,
    /// Seconds since then.
    pub age: u64,
}

impl Broker {
    /// A live claim.
    pub async fn claim_get(&self, at: &QueueRef, id: ClaimId) -> Result<ClaimStatus, Error> {
        let slot = self.slot(at).await?;
        let status = self.claim_status(&slot, at, id).await;
        self.confirm(&slot, status)
    }

    async fn claim_status(&self, slot: &Arc<Slot>, at: &QueueRef, id: ClaimId) -> Result<ClaimStatus, Error> {
        if !self.open(slot, at).await? {
            return Err(no_claim(id));
        }
        let now = self.0.clock.now();
        let (queue, store, held, retention) = {
            let state = slot.state.lock();
            let queue = state.queues.get(at).ok_or_else(|| no_claim(id))?;
            let held = queue.engine.held(id, self.claim_time()).ok_or_else(|| no_claim(id))?;
            (queue.id, self.store_of(queue)?, held, queue.engine.retention())
        };
        let ids: Vec<MessageId> = held.headers.iter().map(|header| header.id).collect();
        let found = store.get(queue, &ids).await?;
        let view = |message: angarium_core::message::Message| {
            let header = held.headers.iter().find(|header| header.id == message.header.id)?;
            Some(MessageView::claimed(header, id, message.body, (now, retention)))
        };
        let messages = found.into_iter().filter_map(view).collect();
        let received = held.expires.minus_seconds(held.terms.ttl());
        let (view, ttl) = (ClaimView { id, messages, received }, held.terms.ttl());
        Ok(ClaimStatus { view, ttl, age: now.seconds_since(received) })
    }

    /// Gives a live claim new terms from now on. They are durable when this returns.
    pub async fn claim_renew(&self, at: &QueueRef, id: ClaimId, terms: ClaimTerms) -> Result<(), Error> {
        self.claim_renew_as(at, id, terms, None).await
    }

    /// As [`Broker::claim_renew`], of the claim of a receive that may be repeated again if it is given; otherwise it
    /// cannot be any more.
    pub(super) async fn claim_renew_as(
        &self,
        at: &QueueRef,
        id: ClaimId,
        terms: ClaimTerms,
        attempt: Option<Attempt>,
    ) -> Result<(), Error> {
        let slot = self.slot(at).await?;
        if !self.open(&slot, at).await? {
            return self.check_ours(&slot).and(Err(no_claim(id)));
        }
        let (broker, at) = (self.clone(), at.clone());
        let renew = async move {
            let _guard = slot.lost_on_panic();
            let outcome = broker.renew(&slot, &at, id, terms, attempt).await;
            slot.changed.notify_waiters();
            broker.confirm_refusal(&slot, outcome)
        };
        self.carry_out(renew).await
    }

    async fn renew(
        &self,
        slot: &Slot,
        at: &QueueRef,
        id: ClaimId,
        terms: ClaimTerms,
        attempt: Option<Attempt>,
    ) -> Result<(), Error> {
        let (queue, messages, client) = self.begin_renew(slot, at, id).await?;
        let now = self.0.clock.now();
        let expires = now.plus_seconds(terms.ttl());
        let record = ClaimRecord {
            at: at.clone(),
            queue,
            messages: messages.into_iter().map(|(id, attempt)| ClaimedMessage { id, attempt }).collect(),
            ttl: terms.ttl(),
            grace: terms.grace(),
            created: now.as_millis(),
            expires: expires.as_millis(),
            client,
            attempt: attempt.as_ref().map(AttemptRecord::from),
        };
        let outcome = self.0.catalogue.claim_update(&slot.owned, id, &record).await;
        let mut state = slot.state.lock();
        let Some(open) = state.queue_mut(at, queue) else { return Err(no_claim(id)) };
        // Its deadline may have passed unheeded while it was being renewed.
        let again = self.0.clock.now().plus_seconds(limits::RETRY_SECONDS);
        let soon = Deadline { at: again, claim: id, queue: at.clone() };
        match outcome {
            Ok(true) => {
                open.engine.renewed(id, terms, expires);
                open.engine.note_attempt(id, attempt);
                state.note_deadline(Deadline { at: expires, claim: id, queue: at.clone() });
                Ok(())
            }
            Ok(false) => {
                open.engine.renew_failed(id);
                state.note_deadline(soon);
                Err(no_claim(id))
            }
            Err(error) if error.nothing_written() => {
                open.engine.renew_failed(id);
                state.note_deadline(soon);
                Err(error)
            }
            Err(error) => {
                // The record may say either. Here the claim lasts as long as the new terms allow: to end it
                // early would be to break a promise that may have been recorded.
                open.engine.renewed(id, terms, expires);
                open.engine.note_attempt(id, attempt);
                state.note_deadline(Deadline { at: expires, claim: id, queue: at.clone() });
                Err(error)
            }
        }
    }

    /// Begins a renewal as soon as no other caller changes the claim.
    async fn begin_renew(
        &self,
        slot: &Slot,
        at: &QueueRef,
        id: ClaimId,
    ) -> Result<(QueueId, Vec<(MessageId, u32)>, Option<ClientId>), Error> {
        loop {
            let changed = {
                let mut state = slot.state.lock();
                let queue = state.queues.get_mut(at).ok_or_else(|| no_claim(id))?;
                match queue.engine.begin_renew(id, self.claim_time()) {
                    Renewal::Begun(messages) => {
                        return Ok((queue.id, messages, queue.engine.client_of(id)));
                    }
                    Renewal::Ended => return Err(no_claim(id)),
                    Renewal::Busy => Arc::clone(&slot.changed).notified_owned(),
                }
            };
            if tokio::time::timeout(limits::CLAIM_DEADLINE, changed).await.is_err() {
                return Err(Error::unavailable(
                    Part::Coordination,
                    "a change of the claim has no outcome yet",
                ));
            }
        }
    }
}

fn no_claim(id: ClaimId) -> Error {
    Error::NotFound { resource: Resource::Claim, name: id.to_string() }
}
