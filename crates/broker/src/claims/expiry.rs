//! Expiry of claims, by the pool of their queue: claims in a hanging pool wait for that pool and delay no other claims.

use std::sync::Arc;

use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use angarium_catalogue::Placement;
use angarium_core::error::Error;
use angarium_core::maps::HashMap;
use angarium_core::names::QueueRef;
use angarium_core::time::Timestamp;
use angarium_engine::Release;

use crate::claims::Claims;
use crate::limits;
use crate::slot::claims::retry_at;
use crate::slot::deadlines::Deadline;
use crate::slot::expiry::{DueClaims, DuePlacement};
use crate::slot::release::ReleaseCause;
use crate::slot::state::Slot;

/// Due claims by placement. The key is none for queues that have no record any more.
type DuePlacements = HashMap<Option<Placement>, DuePlacement>;

impl Claims {
    pub(crate) async fn expire_claims(&self) {
        let alarm = &self.0.replica.alarms.claims;
        // While no claim can be renewed the time of claims is stopped, and nothing is due soon.
        let time = || {
            let now = self.0.replica.clock.now();
            let time = self.0.slots.claim_time();
            if time < now { Timestamp::default() } else { time }
        };
        while self.0.replica.next_deadline(alarm, time, limits::EXPIRY_TICK).await {
            let now = self.0.slots.claim_time();
            alarm.forget();
            for slot in self.0.slots.owned() {
                if slot.begin_expiry(now) {
                    let expiry = SlotExpiry { claims: self.clone(), slot: Arc::clone(&slot), now };
                    slot.spawn(async move { expiry.run().await });
                }
            }
        }
    }

    async fn placements(
        &self,
        deadlines: &[Deadline],
    ) -> Result<HashMap<QueueRef, Option<Placement>>, Error> {
        let mut queues: Vec<QueueRef> = deadlines.iter().map(|deadline| deadline.queue.clone()).collect();
        queues.sort_unstable();
        queues.dedup();
        if queues.is_empty() {
            return Ok(HashMap::default());
        }
        let records = self.0.replica.catalogue.queue_records(&queues).await?;
        let placement =
            |record: Option<_>| record.map(|record: angarium_catalogue::QueueRecord| record.placement());
        // The opening of the queue reports a record that cannot be read.
        let placements = records.into_iter().map(|record| placement(record).and_then(Result::ok));
        Ok(queues.into_iter().zip(placements).collect())
    }
}

/// The expiry of the claims of a slot that were due at `now`.
#[derive(Clone)]
struct SlotExpiry {
    claims: Claims,
    slot: Arc<Slot>,
    now: Timestamp,
}

impl SlotExpiry {
    /// Ends the due claims, except in placements where earlier claims are still being ended: those claims are due again
    /// in a second. A slot that cannot end its claims delays no other slot.
    async fn run(&self) {
        let slot = &self.slot;
        while !self.claims.0.replica.stop.is_cancelled() && !slot.closed.is_cancelled() {
            let again = self.retry_at();
            let Some(due) = slot.take_due_claims(self.now, again) else { break };
            let ended = TaskTracker::new();
            for (placement, part) in self.by_placement(due).await {
                if !slot.begin_expiry_at(&placement, &part, again) {
                    continue;
                }
                let (expiry, token) = (self.clone(), ended.token());
                slot.spawn(async move {
                    expiry.expire_placement(part).await;
                    expiry.slot.end_expiry_at(&placement);
                    drop(token);
                });
            }
            ended.close();
            // Slower placements continue beside the claims that are due next.
            let _ = timeout(limits::EXPIRY_WAIT, ended.wait()).await;
        }
        slot.finish_expiry();
    }

    /// Returns when claims that cannot be ended now are due again.
    fn retry_at(&self) -> Timestamp {
        retry_at(self.now.max(self.claims.0.replica.clock.now()))
    }

    /// Sorts due claims by placement. The placement of a queue that is not open is read from its record.
    async fn by_placement(&self, due: DueClaims) -> DuePlacements {
        let part = |claims| DuePlacement { claims, unopened: Vec::new() };
        let mut parts: DuePlacements =
            due.claims.into_iter().map(|(at, claims)| (at, part(claims))).collect();
        match self.claims.placements(&due.unopened).await {
            Ok(placements) => {
                for deadline in due.unopened {
                    let placement = placements.get(&deadline.queue).cloned().flatten();
                    parts.entry(placement).or_default().unopened.push(deadline);
                }
            }
            Err(error) => {
                self.report_failure(&error);
                self.slot.await_again(due.unopened.into_iter(), self.retry_at());
            }
        }
        parts
    }

    /// Ends the claims of one placement. Its queues are opened one after the other, because opening a queue holds the
    /// gates of its pools.
    async fn expire_placement(&self, part: DuePlacement) {
        if !part.claims.is_empty()
            && let Err(error) = self
                .claims
                .release_claims(&self.slot, part.claims, Release::COUNTED, ReleaseCause::Lapsed)
                .await
        {
            self.report_failure(&error);
        }
        for deadline in part.unopened {
            self.open_for_release(deadline).await;
        }
    }

    fn report_failure(&self, error: &Error) {
        let slot = self.slot.owned.slot.0;
        self.claims.0.replica.task_failed("expire claims", format_args!("slot {slot}"), error);
    }

    /// Opens the queue of an expired claim, so that the claim can be ended. A claim of a queue that no longer exists is
    /// cleared away.
    async fn open_for_release(&self, deadline: Deadline) {
        let (parts, slot) = (&self.claims.0, &self.slot);
        match parts.open_queues.open_if_there(&slot.queue(&deadline.queue)).await {
            Ok(_) => slot.spend_orphan(deadline.claim),
            Err(error) => {
                parts.replica.task_failed(
                    "expire claims",
                    format_args!("queue {}", deadline.queue.name),
                    &error,
                );
                slot.await_again([deadline].into_iter(), self.retry_at());
            }
        }
    }
}
