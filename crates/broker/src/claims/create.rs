//! Creation of claims. Their end is in [`crate::claims::release`].

use bytes::Bytes;
use tokio::time::Instant;
use tracing::debug;

use angarium_catalogue::{AttemptRecord, ClaimRecord, ClaimedMessage};
use angarium_cluster::peer_client::{UNHELD, UndeliveredClaim};
use angarium_core::claim::{ClaimLimit, ClaimTerms, ClaimWait, Claimer};
use angarium_core::error::Error;
use angarium_core::ids::{ClaimId, MessageId};
use angarium_core::message::Header;
use angarium_core::mutation::{Mutation, is_on};
use angarium_core::names::QueueRef;
use angarium_core::outcome::Holder;
use angarium_core::receipt::Attempt;
use angarium_core::time::Timestamp;
use angarium_engine::Release;

use crate::claims::Claims;
use crate::limits;
use crate::messages::view::{MessageView, ViewedAt};
use crate::slot::claims::{GrantedClaim, NewClaim};
use crate::slot::release::{ClaimKey, ReleaseCause};
use crate::slot::transfer_watch;
use crate::slot::wait_line::{ChosenMessages, ClaimChoice};

/// A claim as its holder sees it.
#[derive(Clone, Debug)]
pub struct ClaimView {
    /// Id of the claim.
    pub id: ClaimId,
    /// The messages, oldest first.
    pub messages: Vec<MessageView>,
    /// When the claim was made, or last given new terms.
    pub received: Timestamp,
}

/// A claim in delivery to its holder. If it is dropped before [`DeliveryGuard::done`], the holder never got the claim:
/// the claim is released at once and does not count as an attempt (P7).
pub struct DeliveryGuard {
    pub(crate) claims: Claims,
    pub(crate) at: QueueRef,
    /// None once the claim is delivered.
    pub(crate) claim: Option<ClaimId>,
    /// Address of the replica that granted the claim; none if this one did.
    pub(crate) from: Option<String>,
}

impl DeliveryGuard {
    /// Marks the claim as delivered: the answer is being sent, so the holder may have the claim from here on.
    pub fn done(&mut self) {
        self.claim = None;
    }

    /// Returns the claim in delivery and its queue; none once it is delivered.
    pub fn claim(&self) -> Option<(&QueueRef, ClaimId)> {
        self.claim.map(|claim| (&self.at, claim))
    }
}

impl Drop for DeliveryGuard {
    fn drop(&mut self) {
        let Some(claim) = self.claim.take().filter(|_| !is_on(Mutation::KeepLostDelivery)) else { return };
        let (claims, at, from) = (self.claims.clone(), self.at.clone(), self.from.take());
        self.claims.0.replica.tasks.spawn(async move {
            let ended = match from {
                None => claims.claim_unheld(at, claim).await,
                Some(from) => claims.report_undelivered(&from, &at, claim).await,
            };
            if let Err(error) = ended {
                debug!(error = %error.detail(), "unheld claim not released");
            }
        });
    }
}

impl Claims {
    /// Claims the oldest ready messages. The claim is durable when this returns it. Returns none when there is nothing
    /// to claim.
    pub async fn claim_create(
        &self,
        at: &QueueRef,
        terms: ClaimTerms,
        limit: ClaimLimit,
    ) -> Result<Option<(ClaimView, DeliveryGuard)>, Error> {
        self.claim_wait(at, terms, limit, ClaimWait::default(), Claimer::default()).await
    }

    /// As `claim_create`. When there is nothing to claim it waits for messages, also for a queue that does not exist
    /// yet. The waiters of one queue are served in order.
    pub async fn claim_wait(
        &self,
        at: &QueueRef,
        terms: ClaimTerms,
        limit: ClaimLimit,
        wait: ClaimWait,
        claimer: Claimer,
    ) -> Result<Option<(ClaimView, DeliveryGuard)>, Error> {
        let claimed = self.try_claim(at, terms, limit, wait, claimer).await;
        if let Err(error) = &claimed
            && let Ok(queue) = self.0.slots.queue(at).await
        {
            queue.note_claim_refusal(error, self.0.replica.clock.now());
        }
        claimed
    }

    async fn try_claim(
        &self,
        at: &QueueRef,
        terms: ClaimTerms,
        limit: ClaimLimit,
        wait: ClaimWait,
        claimer: Claimer,
    ) -> Result<Option<(ClaimView, DeliveryGuard)>, Error> {
        let start = Instant::now();
        let ClaimChoice { chosen, arrivals } = self.choose_or_wait(at, limit, wait).await?;
        if wait != ClaimWait::default() {
            self.0.replica.meter.note_claim_wait(start.elapsed().as_secs_f64());
        }
        let granted = match chosen {
            Some(chosen) => {
                let (claims, at) = (self.clone(), at.clone());
                let claim = async move {
                    let _guard = chosen.queue.slot().lost_on_panic();
                    let view = claims.grant(terms, claimer, chosen).await?;
                    let delivery_guard = DeliveryGuard { claims, at, claim: Some(view.id), from: None };
                    Ok((view, delivery_guard))
                };
                Some(self.0.replica.carry_out(claim).await?)
            }
            None => None,
        };
        transfer_watch::wait(arrivals, limits::ARRIVAL_WAIT).await;
        Ok(granted)
    }

    /// Chooses messages for a claim. If the slot is recovered meanwhile, it waits for the recovery and continues the
    /// wait there.
    async fn choose_or_wait(
        &self,
        at: &QueueRef,
        limit: ClaimLimit,
        wait: ClaimWait,
    ) -> Result<ClaimChoice<ChosenMessages>, Error> {
        let start = Instant::now();
        loop {
            let queue = self.0.slots.queue(at).await?;
            let slot = queue.slot();
            let choice = match self.0.open_queues.open(&queue).await {
                Ok(_) => {
                    let left = wait.duration().saturating_sub(start.elapsed());
                    slot.line(at).choose(limit, left).await
                }
                Err(error) => Err(error),
            };
            match choice {
                Ok(choice @ ClaimChoice { chosen: Some(_), .. }) => return Ok(choice),
                // Without a connection to the tree a replica cannot report "nothing to claim": the slot may have
                // another owner by now (P8).
                Ok(ClaimChoice { chosen: None, arrivals }) => {
                    return self.0.slots.check_ours(slot).map(|()| ClaimChoice { chosen: None, arrivals });
                }
                Err(_)
                    if slot.check_served().is_err()
                        && start.elapsed() < wait.duration()
                        && !is_on(Mutation::EndWaitAtRecovery) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the guard of a claim that another replica granted and that this one delivers to the holder.
    pub fn handover_from(&self, address: String, at: QueueRef, claim: ClaimId) -> DeliveryGuard {
        DeliveryGuard { claims: self.clone(), at, claim: Some(claim), from: Some(address) }
    }

    /// Tells the replica that granted a claim that the holder never got it.
    async fn report_undelivered(&self, address: &str, at: &QueueRef, claim: ClaimId) -> Result<(), Error> {
        let unheld = UndeliveredClaim { queue: at.into(), claim };
        self.0.slots.peer_client()?.ask(address, UNHELD, &unheld).await
    }

    /// Ends a claim that its holder never got, without counting an attempt. It is no error when the claim has ended.
    /// Only the answer to the receive that made a claim has a guard. So a claim that has had new terms since stays: the
    /// answer to a repeated receive has perhaps delivered it.
    pub async fn claim_unheld(&self, at: QueueRef, claim: ClaimId) -> Result<(), Error> {
        let queue = self.0.slots.queue(&at).await?;
        // The slot may have been recovered since the claim was made.
        self.0.open_queues.open(&queue).await?;
        let claims = vec![ClaimKey { queue: at, claim }];
        self.release_claims(queue.slot(), claims, Release::UNCOUNTED, ReleaseCause::NeverHeld).await?;
        Ok(())
    }

    /// Makes a claim on chosen messages durable. If that certainly failed, the messages are ready again.
    async fn grant(
        &self,
        terms: ClaimTerms,
        Claimer { client, attempt, by }: Claimer,
        mut chosen: ChosenMessages,
    ) -> Result<ClaimView, Error> {
        let id = ClaimId::new(&mut self.0.replica.random.clone());
        let now = self.0.replica.clock.now();
        let messages = chosen.messages.len();
        let attempt = attempt.map(|id| Attempt { id, received: now, messages });
        let claim = NewClaim { id, terms, client, attempt, by, expires: now.plus_seconds(terms.ttl()) };
        let bodies = match self.record(&claim, &chosen, now).await {
            Ok(bodies) => bodies,
            // The chosen messages go to the next waiter.
            Err(error) if error.nothing_written() || is_on(Mutation::PutBackClaimInDoubt) => {
                return Err(error);
            }
            Err(error) => {
                chosen.queue.grant_in_doubt(id, terms, &chosen.ids(), self.0.replica.clock.now());
                chosen.used();
                return Err(error);
            }
        };
        let ids = chosen.ids();
        chosen.used();
        let granted = chosen.queue.grant(claim, &ids).ok_or_else(|| chosen.queue.closed().into_unknown())?;
        let GrantedClaim { headers, retention } = granted;
        let at = ViewedAt { now, retention };
        let view = |header: Header| {
            let (_, body) = bodies.iter().find(|(message, _)| *message == header.id)?;
            Some(MessageView::claimed(&header, id, body.clone(), at))
        };
        Ok(ClaimView { id, messages: headers.into_iter().filter_map(view).collect(), received: now })
    }

    /// Reads the missing bodies, then writes the record of the claim.
    async fn record(
        &self,
        claim: &NewClaim,
        chosen: &ChosenMessages,
        created: Timestamp,
    ) -> Result<Vec<(MessageId, Bytes)>, Error> {
        let queue = &chosen.queue;
        let bodies = queue.bodies(chosen).await?;
        let claimed =
            |(header, _): &(Header, _)| ClaimedMessage { id: header.id, attempt: header.grant() + 1 };
        let record = ClaimRecord {
            at: queue.at().clone(),
            queue: queue.id(),
            messages: chosen.messages.iter().map(claimed).collect(),
            ttl: claim.terms.ttl(),
            grace: claim.terms.grace(),
            created: created.as_millis(),
            expires: claim.expires.as_millis(),
            client: claim.client,
            attempt: claim.attempt.as_ref().map(AttemptRecord::from),
            by: claim.by.as_ref().map(Holder::to_string),
        };
        let (slot, id) = (queue.slot(), claim.id);
        let is_new_bucket = slot.is_new_bucket(id);
        match self.0.replica.catalogue.claim_create(&slot.owned, id, &record, is_new_bucket).await {
            Err(Error::Unknown { .. }) if is_on(Mutation::GrantClaimInDoubt) => Ok(bodies),
            recorded => recorded.map(|()| bodies),
        }
    }
}
