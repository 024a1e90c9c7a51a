//! Ending claims whose time has ended, by the pools that their queues lie in: those of a pool that hangs wait for it,
//! and hold up no others.

use crate::claims::Claims;
use crate::slot::expiry::DueClaims;
use crate::slot::expiry::DuePlacement;
use std::collections::HashMap;
use std::sync::Arc;

use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use crate::limits;
use crate::slot::claim_book::retry_at;
use crate::slot::deadlines::Deadline;
use crate::slot::release::ReleaseCause;
use crate::slot::state::Slot;
use angarium_catalogue::Placement;
use angarium_core::error::Error;
use angarium_core::names::QueueRef;
use angarium_core::time::Timestamp;
use angarium_engine::Release;

/// By placement. Queues that have no record any more lie nowhere.
type DuePlacements = HashMap<Option<Placement>, DuePlacement>;

impl Claims {
    pub(crate) async fn expire_claims(&self) {
        let alarm = &self.0.replica.alarms.claims;
        // While no claim can be renewed their time is stopped, and nothing is due soon.
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
                    let (claims, on) = (self.clone(), Arc::clone(&slot));
                    slot.spawn(async move { claims.expire_slot(&on, now).await });
                }
            }
        }
    }

    /// Ends all claims of a slot that were due at `now`, but for those of placements where earlier ones are still being ended:
    /// they are due again in a second. A slot that cannot end its claims holds up no other.
    async fn expire_slot(&self, slot: &Arc<Slot>, now: Timestamp) {
        while !self.0.replica.stop.is_cancelled() && !slot.closed.is_cancelled() {
            let again = self.retry_at(now);
            let Some(due) = slot.take_due_claims(now, again) else { break };
            let ended = TaskTracker::new();
            for (placement, part) in self.parts(slot, due, now).await {
                if !slot.begin_expiry_at(&placement, &part, again) {
                    continue;
                }
                let (claims, on, token) = (self.clone(), Arc::clone(slot), ended.token());
                slot.spawn(async move {
                    claims.expire_placement(&on, part, now).await;
                    on.end_expiry_at(&placement);
                    drop(token);
                });
            }
            ended.close();
            // What takes longer continues beside what is due next.
            let _ = timeout(limits::EXPIRY_WAIT, ended.wait()).await;
        }
        slot.finish_expiry();
    }

    /// When claims that cannot be ended now are due again.
    pub(crate) fn retry_at(&self, now: Timestamp) -> Timestamp {
        retry_at(now.max(self.0.replica.clock.now()))
    }

    /// Due claims by placement. That of a queue that is not open is read from its record.
    pub(crate) async fn parts(&self, slot: &Arc<Slot>, due: DueClaims, now: Timestamp) -> DuePlacements {
        let part = |claims| DuePlacement { claims, unopened: Vec::new() };
        let mut parts: DuePlacements =
            due.claims.into_iter().map(|(at, claims)| (at, part(claims))).collect();
        match self.placements(&due.unopened).await {
            Ok(placements) => {
                for deadline in due.unopened {
                    let placement = placements.get(&deadline.queue).cloned().flatten();
                    parts.entry(placement).or_default().unopened.push(deadline);
                }
            }
            Err(error) => {
                self.0.replica.task_failed(
                    "expire claims",
                    format_args!("slot {}", slot.owned.slot.0),
                    &error,
                );
                slot.await_again(due.unopened.into_iter(), self.retry_at(now));
            }
        }
        parts
    }

    async fn placements(
        &self,
        deadlines: &[Deadline],
    ) -> Result<HashMap<QueueRef, Option<Placement>>, Error> {
        let mut queues: Vec<QueueRef> = deadlines.iter().map(|deadline| deadline.queue.clone()).collect();
        queues.sort_unstable();
        queues.dedup();
        if queues.is_empty() {
            return Ok(HashMap::new());
        }
        let records = self.0.replica.catalogue.queue_records(&queues).await?;
        let placement =
            |record: Option<_>| record.map(|record: angarium_catalogue::QueueRecord| record.placement());
        // One that cannot be read is complained of when its queue is opened.
        let placements = records.into_iter().map(|record| placement(record).and_then(Result::ok));
        Ok(queues.into_iter().zip(placements).collect())
    }

    /// Ends the claims of one placement. Its queues are opened one after the other: opening holds the gates of their pools.
    async fn expire_placement(&self, slot: &Arc<Slot>, part: DuePlacement, now: Timestamp) {
        if !part.claims.is_empty()
            && let Err(error) =
                self.release_claims(slot, part.claims, Release::COUNTED, ReleaseCause::Lapsed).await
        {
            self.0.replica.task_failed("expire claims", format_args!("slot {}", slot.owned.slot.0), &error);
        }
        for deadline in part.unopened {
            self.open_for_release(slot, deadline, now).await;
        }
    }

    /// Opens the queue of a claim whose time has ended, so that it can be ended. A claim of a queue that does not exist
    /// any more is cleared away.
    async fn open_for_release(&self, slot: &Arc<Slot>, deadline: Deadline, now: Timestamp) {
        match self.0.open_queues.open(&slot.queue(&deadline.queue)).await {
            Ok(_) => slot.spend_orphan(deadline.claim),
            Err(error) => {
                self.0.replica.task_failed(
                    "expire claims",
                    format_args!("queue {}", deadline.queue.name),
                    &error,
                );
                slot.await_again([deadline].into_iter(), self.retry_at(now));
            }
        }
    }
}
