//! Claims and receipts: take, extend, release.

use std::sync::Arc;

use angarium_core::claim::{ClaimLimit, ClaimTerms, ClaimWait, Claimer, Visibility};
use angarium_core::delay::Delay;
use angarium_core::error::Error;
use angarium_core::ids::{ClaimId, MessageId};
use angarium_core::names::QueueRef;

use crate::broker::Broker;
use crate::claims::create::{ClaimView, DeliveryGuard};
use crate::claims::list::{ClaimFilter, ClaimPage};
use crate::claims::receipts::{Receive, ReceiveResult, VisibilityResult};
use crate::claims::renewal::ClaimStatus;

impl Broker {
    /// A page of the live claims of a queue; an empty one when there is no such queue.
    pub async fn claims_list(&self, at: &QueueRef, filter: ClaimFilter) -> Result<ClaimPage, Error> {
        self.0.claims.claims_list(at, filter).await
    }

    /// Claims the oldest ready messages. The claim is durable when this returns it; none when there is nothing
    /// to claim.
    pub async fn claim_create(
        &self,
        at: &QueueRef,
        terms: ClaimTerms,
        limit: ClaimLimit,
    ) -> Result<Option<(ClaimView, DeliveryGuard)>, Error> {
        self.0.claims.claim_create(at, terms, limit).await
    }

    /// As [`Broker::claim_create`]. When there is nothing to claim it waits for it, also for a queue that does not exist
    /// yet; those who wait for one queue are served in order.
    pub async fn claim_wait(
        &self,
        at: &QueueRef,
        terms: ClaimTerms,
        limit: ClaimLimit,
        wait: ClaimWait,
        claimer: Claimer,
    ) -> Result<Option<(ClaimView, DeliveryGuard)>, Error> {
        self.0.claims.claim_wait(at, terms, limit, wait, claimer).await
    }

    /// Receives messages of a queue that exists; none when there are none, after the wait.
    pub async fn receive(&self, at: &QueueRef, asked: Receive) -> Result<Option<ReceiveResult>, Error> {
        self.0.claims.receive(at, asked).await
    }

    /// Whether a queue has a policy, unless memory knows that it has none.
    pub fn may_have_policy(&self, at: &QueueRef) -> bool {
        self.0.claims.may_have_policy(at)
    }

    /// Deletes messages by their handles, each for itself: those that went well are gone from the pool when this returns.
    pub async fn receipts_delete(
        &self,
        at: &QueueRef,
        handles: &[&str],
    ) -> Result<Vec<Result<(), Arc<Error>>>, Error> {
        self.0.claims.receipts_delete(at, handles).await
    }

    /// Hides messages for so long from now on, each by its handle; zero seconds make one visible. In order of groups a
    /// receipt is good for its own receive, elsewhere for whichever holds the message. One of a message that no caller
    /// holds changes nothing (SQS answers success there). What went well is durable when this returns.
    pub async fn receipts_change(
        &self,
        at: &QueueRef,
        asked: &[(&str, Visibility)],
    ) -> Result<Vec<Result<VisibilityResult, Arc<Error>>>, Error> {
        self.0.claims.receipts_change(at, asked).await
    }

    /// Releases a claim: its messages are ready again when this returns. One that has ended is no error.
    pub async fn claim_release(&self, at: &QueueRef, id: ClaimId) -> Result<(), Error> {
        self.0.claims.claim_release(at, id).await
    }

    /// As [`Broker::claim_release`], but that the messages are ready only after a delay, if there is one.
    pub async fn release_later(&self, at: &QueueRef, id: ClaimId, delay: Option<Delay>) -> Result<(), Error> {
        self.0.claims.release_later(at, id, delay).await
    }

    /// A live claim.
    pub async fn claim_get(&self, at: &QueueRef, id: ClaimId) -> Result<ClaimStatus, Error> {
        self.0.claims.claim_get(at, id).await
    }

    /// Gives a live claim new terms from now on. They are durable when this returns.
    pub async fn claim_renew(&self, at: &QueueRef, id: ClaimId, terms: ClaimTerms) -> Result<(), Error> {
        self.0.claims.claim_renew(at, id, terms).await
    }

    /// Gives a message of a claim a time of its own: the claim that it is under then. Without any time it can be claimed again
    /// at once.
    pub async fn message_hide(
        &self,
        at: &QueueRef,
        claim: ClaimId,
        message: MessageId,
        terms: ClaimTerms,
    ) -> Result<ClaimId, Error> {
        self.0.claims.message_hide(at, claim, message, terms).await
    }
}
