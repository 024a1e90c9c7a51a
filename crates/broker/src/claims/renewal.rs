//! Reading and renewing a claim.

use std::time::Duration;

use tracing::{info, warn};

use angarium_catalogue::{AttemptRecord, ClaimRecord, ClaimedMessage};
use angarium_core::claim::ClaimTerms;
use angarium_core::error::{Error, Resource};
use angarium_core::ids::{ClaimId, MessageId};
use angarium_core::mutation::{Mutation, is_on};
use angarium_core::names::QueueRef;
use angarium_core::outcome::Holder;
use angarium_core::receipt::Attempt;

use crate::claims::Claims;
use crate::claims::change_wait::ChangeWait;
use crate::claims::create::ClaimView;
use crate::limits;
use crate::messages::view::{MessageView, ViewedAt};
use crate::slot::claims::{BegunRenewal, ClaimStep, NewClaim, retry_at};
use crate::slot::queue_handle::{EngineReading, QueueHandle};
use crate::slot::slot_queue::SlotQueue;

/// A claim as its holder reads it later.
#[derive(Clone, Debug)]
pub struct ClaimStatus {
    /// The claim, with its messages that are not deleted yet.
    pub view: ClaimView,
    /// Seconds that the claim lasts from its creation or last renewal.
    pub ttl: u32,
    /// Seconds since its creation or last renewal.
    pub age: u64,
}

impl Claims {
    /// Returns a claim that has not expired, until its release is durable.
    pub async fn claim_get(&self, at: &QueueRef, id: ClaimId) -> Result<ClaimStatus, Error> {
        let queue = self.0.slots.queue(at).await?;
        let status = self.claim_status(&queue, id).await;
        self.0.slots.confirm(queue.slot(), status)
    }

    async fn claim_status(&self, queue: &SlotQueue, id: ClaimId) -> Result<ClaimStatus, Error> {
        let Some(queue) = self.0.open_queues.open(queue).await? else { return Err(no_claim(id)) };
        let now = self.0.replica.clock.now();
        let time = self.0.slots.claim_time();
        let held = queue.read_some(|engine| Some((engine.shown_claim(id, time)?, engine.retention())))?;
        let Some(EngineReading { store, shown: (held, retention) }) = held else {
            return Err(no_claim(id));
        };
        let at = ViewedAt { now, retention };
        let ids: Vec<MessageId> = held.headers.iter().map(|header| header.id).collect();
        let found = store.get(queue.id(), &ids).await?;
        let view = |message: angarium_core::message::Message| {
            let header = held.headers.iter().find(|header| header.id == message.header.id)?;
            Some(MessageView::claimed(header, id, message.body, at))
        };
        let messages = found.into_iter().filter_map(view).collect();
        let received = held.expires.minus_seconds(held.terms.ttl());
        let (view, ttl) = (ClaimView { id, messages, received }, held.terms.ttl());
        Ok(ClaimStatus { view, ttl, age: now.seconds_since(received) })
    }

    /// Returns the ids of the messages that a live claim holds.
    pub(crate) async fn claim_held(&self, at: &QueueRef, id: ClaimId) -> Result<Vec<MessageId>, Error> {
        let queue = self.0.slots.queue(at).await?;
        let held = self.0.open_queues.open(&queue).await.and_then(|open| {
            let (open, time) = (open.ok_or_else(|| no_claim(id))?, self.0.slots.claim_time());
            let held = open.decide(|engine| engine.held_ids(id, time)).ok_or_else(|| open.closed())?;
            held.ok_or_else(|| no_claim(id))
        });
        self.0.slots.confirm(queue.slot(), held)
    }

    /// Gives a live claim new terms from now on. They are durable when this returns.
    pub async fn claim_renew(&self, at: &QueueRef, id: ClaimId, terms: ClaimTerms) -> Result<(), Error> {
        self.claim_renew_as(at, id, terms, None).await
    }

    /// As `claim_renew`. With `attempt`, the receive of the claim stays repeatable under that attempt; without it the
    /// receive cannot be repeated any more.
    pub(crate) async fn claim_renew_as(
        &self,
        at: &QueueRef,
        id: ClaimId,
        terms: ClaimTerms,
        attempt: Option<Attempt>,
    ) -> Result<(), Error> {
        let queue = self.0.slots.queue(at).await?;
        let Some(queue) = self.0.open_queues.open(&queue).await? else {
            return self.0.slots.check_ours(queue.slot()).and(Err(no_claim(id)));
        };
        let claims = self.clone();
        let renew = async move {
            let slot = queue.slot();
            let _guard = slot.lost_on_panic();
            let outcome = claims.renew(&queue, id, terms, attempt).await;
            slot.changed.notify_waiters();
            claims.0.slots.confirm_refusal(slot, outcome)
        };
        self.0.replica.carry_out(renew).await
    }

    async fn renew(
        &self,
        queue: &QueueHandle,
        id: ClaimId,
        terms: ClaimTerms,
        attempt: Option<Attempt>,
    ) -> Result<(), Error> {
        let BegunRenewal { messages, client, by } = self.begin_renew(queue, id).await?;
        let now = self.0.replica.clock.now();
        let expires = now.plus_seconds(terms.ttl());
        // A later owner knows by this that the receive was repeated, also within one millisecond.
        let first = attempt.as_ref().map_or(0, |attempt| attempt.received.as_millis().saturating_add(1));
        let record = ClaimRecord {
            at: queue.at().clone(),
            queue: queue.id(),
            messages: messages.into_iter().map(|(id, attempt)| ClaimedMessage { id, attempt }).collect(),
            ttl: terms.ttl(),
            grace: terms.grace(),
            created: now.as_millis().max(first),
            expires: expires.as_millis(),
            client,
            attempt: attempt.as_ref().map(AttemptRecord::from),
            by: by.as_ref().map(Holder::to_string),
        };
        let outcome = if is_on(Mutation::RenewInMemoryOnly) {
            Ok(true)
        } else {
            self.0.replica.catalogue.claim_update(&queue.slot().owned, id, &record).await
        };
        let renewed = NewClaim { id, terms, client, attempt, by, expires };
        let again = retry_at(self.0.replica.clock.now());
        let (result, is_open) = match outcome {
            Ok(true) => (Ok(()), queue.renewed(renewed)),
            Ok(false) => (Err(no_claim(id)), queue.renew_failed(id, again)),
            Err(error) if error.nothing_written() => (Err(error), queue.renew_failed(id, again)),
            Err(error) => {
                let (claims, own) = (self.clone(), queue.clone());
                let resolve = async move { claims.resolve_renewal(&own, renewed, record).await };
                queue.slot().clone().spawn(resolve);
                return Err(error);
            }
        };
        result.and_then(|()| is_open.ok_or_else(|| queue.closed().into_unknown()))
    }

    /// Repeats a renewal with an unknown outcome until the outcome is known, the slot is recovered or served elsewhere, or
    /// the service stops. Meanwhile the record may have either terms: readers see the old ones, and the claim does not end.
    async fn resolve_renewal(&self, queue: &QueueHandle, renewed: NewClaim, record: ClaimRecord) {
        let (slot, id) = (queue.slot(), renewed.id);
        warn!(slot = slot.owned.slot.0, claim = %id, "claim renewal in doubt");
        let pause = Duration::from_secs(limits::RETRY_SECONDS.into());
        while self.0.replica.sleep_tick(pause).await && slot.check_served().is_ok() {
            // Commits reach the tree in order, so an answer settles the first attempt too.
            match self.0.replica.catalogue.claim_update(&slot.owned, id, &record).await {
                Ok(true) => queue.renewed(renewed),
                Err(Error::Unavailable { .. } | Error::Unknown { .. }) => continue,
                Ok(false) | Err(_) => queue.renew_failed(id, retry_at(self.0.replica.clock.now())),
            };
            slot.changed.notify_waiters();
            info!(slot = slot.owned.slot.0, claim = %id, "claim renewal resolved");
            return;
        }
    }

    /// Begins a renewal as soon as no other caller is changing the claim.
    async fn begin_renew(&self, queue: &QueueHandle, id: ClaimId) -> Result<BegunRenewal, Error> {
        let wait = ChangeWait::begin();
        loop {
            let changed = match queue.begin_renew(id, self.0.slots.claim_time())? {
                ClaimStep::Begun(begun) => return Ok(begun),
                ClaimStep::Ended => return Err(no_claim(id)),
                ClaimStep::Busy(changed) => changed,
            };
            wait.next(changed).await?;
        }
    }
}

pub(crate) fn no_claim(id: ClaimId) -> Error {
    Error::NotFound { resource: Resource::Claim, name: id.to_string() }
}
