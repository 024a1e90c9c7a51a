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
    /// Returns a page of the live claims of a queue; an empty one when there is no such queue.
    pub async fn claims_list(&self, at: &QueueRef, filter: ClaimFilter) -> Result<ClaimPage, Error> {
        self.0.claims.claims_list(at, filter).await
    }

    /// Claims the oldest ready messages. The claim is durable when this returns it. Returns none when there is nothing
    /// to claim.
    pub async fn claim_create(
        &self,
        at: &QueueRef,
        terms: ClaimTerms,
        limit: ClaimLimit,
    ) -> Result<Option<(ClaimView, DeliveryGuard)>, Error> {
        self.0.claims.claim_create(at, terms, limit).await
    }

    /// As [`Broker::claim_create`]. When there is nothing to claim it waits for messages, also for a queue that does
    /// not exist yet. The waiters of one queue are served in order.
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

    /// Receives messages of a queue that exists. Returns none when there are no messages after the wait.
    pub async fn receive(&self, at: &QueueRef, asked: Receive) -> Result<Option<ReceiveResult>, Error> {
        self.0.claims.receive(at, asked).await
    }

    /// Whether a queue may have a policy. False only when memory shows that it has none.
    pub fn may_have_policy(&self, at: &QueueRef) -> bool {
        self.0.claims.may_have_policy(at)
    }

    /// Deletes messages by their handles, each with its own outcome. Messages with a successful outcome are gone from
    /// the pool when this returns.
    pub async fn receipts_delete(
        &self,
        at: &QueueRef,
        handles: &[&str],
    ) -> Result<Vec<Result<(), Arc<Error>>>, Error> {
        self.0.claims.receipts_delete(at, handles).await
    }

    /// Hides messages from now on, each by its handle and for its own time. Zero seconds make a message visible. In a
    /// FIFO queue a receipt is valid for its own receive only, in other queues for any receive that holds the message.
    /// A receipt of a message that is under no claim changes nothing (SQS answers success). Successful changes are
    /// durable when this returns.
    pub async fn receipts_change(
        &self,
        at: &QueueRef,
        asked: &[(&str, Visibility)],
    ) -> Result<Vec<Result<VisibilityResult, Arc<Error>>>, Error> {
        self.0.claims.receipts_change(at, asked).await
    }

    /// Releases a claim. Its messages are ready again when this returns. It is no error when the claim has ended.
    pub async fn claim_release(&self, at: &QueueRef, id: ClaimId) -> Result<(), Error> {
        self.0.claims.claim_release(at, id).await
    }

    /// As [`Broker::claim_release`], but the messages become ready only after a delay, if one is given.
    pub async fn release_later(&self, at: &QueueRef, id: ClaimId, delay: Option<Delay>) -> Result<(), Error> {
        self.0.claims.release_later(at, id, delay).await
    }

    /// Returns a live claim.
    pub async fn claim_get(&self, at: &QueueRef, id: ClaimId) -> Result<ClaimStatus, Error> {
        self.0.claims.claim_get(at, id).await
    }

    /// Gives a live claim new terms from now on. They are durable when this returns.
    pub async fn claim_renew(&self, at: &QueueRef, id: ClaimId, terms: ClaimTerms) -> Result<(), Error> {
        self.0.claims.claim_renew(at, id, terms).await
    }

    /// Gives a message of a claim a time of its own. Returns the claim that holds the message then. With a time of zero
    /// the message can be claimed again at once.
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
