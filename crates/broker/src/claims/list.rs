//! Pages of the claims of a queue. They change nothing and read only memory, which has all claims of an open queue.

use angarium_core::error::Error;
use angarium_core::ids::ClaimId;
use angarium_core::names::QueueRef;
use angarium_core::page::PageLimit;
use angarium_engine::VisibleClaim;

use crate::claims::Claims;
use crate::slot::slot_queue::SlotQueue;

/// Which claims a listing returns.
#[derive(Clone, Copy, Debug)]
pub struct ClaimFilter {
    /// Only claims behind this one, which may have ended.
    pub after: Option<ClaimId>,
    /// Maximum of claims on the page.
    pub limit: PageLimit,
}

/// A claim in a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedClaim {
    /// Id of the claim.
    pub id: ClaimId,
    /// Seconds that the claim lasts from its creation or last renewal.
    pub ttl: u32,
    /// Seconds since its creation or last renewal.
    pub age: u64,
    /// Number of its messages that are not deleted yet.
    pub messages: usize,
}

/// A page of claims.
#[derive(Clone, Debug, Default)]
pub struct ClaimPage {
    /// The claims, in order of their ids.
    pub claims: Vec<ListedClaim>,
    /// The claim behind which the next page begins; none when this page is empty.
    pub next: Option<ClaimId>,
}

impl Claims {
    /// Returns a page of the claims of a queue; an empty one when there is no such queue.
    pub async fn claims_list(&self, at: &QueueRef, filter: ClaimFilter) -> Result<ClaimPage, Error> {
        let queue = self.0.slots.queue(at).await?;
        let page = self.claim_page(&queue, filter).await;
        self.0.slots.confirm(queue.slot(), page)
    }

    async fn claim_page(&self, queue: &SlotQueue, filter: ClaimFilter) -> Result<ClaimPage, Error> {
        let Some(queue) = self.0.open_queues.open(queue).await? else { return Ok(ClaimPage::default()) };
        let (now, time) = (self.0.replica.clock.now(), self.0.slots.claim_time());
        let found = queue.decide(|engine| engine.visible_claims(filter.after, filter.limit.get(), time));
        let found = found.ok_or_else(|| queue.closed())?;
        let next = found.last().map(|claim| claim.id);
        let listed = |VisibleClaim { id, terms, expires, messages }: VisibleClaim| {
            let age = now.seconds_since(expires.minus_seconds(terms.ttl()));
            ListedClaim { id, ttl: terms.ttl(), age, messages }
        };
        Ok(ClaimPage { claims: found.into_iter().map(listed).collect(), next })
    }
}
