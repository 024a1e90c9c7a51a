//! Ending claims whose time has ended, by the pools that their queues lie in: those of a pool that hangs wait for it,
//! and hold up no others.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::Broker;
use super::deadlines::Deadline;
use super::release::{ClaimKey, ReleaseCause};
use super::slot::{Slot, SlotState};
use angarium_catalogue::Placement;
use angarium_core::error::Error;
use angarium_core::limits;
use angarium_core::names::QueueRef;
use angarium_core::time::Timestamp;
use angarium_engine::Release;

/// Claims whose time has ended, at most one turn's worth.
#[derive(Default)]
struct DueClaims {
    /// Those of open queues, by where these lie.
    claims: HashMap<Option<Placement>, Vec<ClaimKey>>,
    /// Those of queues that no caller has opened.
    unopened: Vec<Deadline>,
}

/// The claims of one placement that are due together.
#[derive(Default)]
struct DuePlacement {
    claims: Vec<ClaimKey>,
    unopened: Vec<Deadline>,
}

/// By placement. Queues that have no record any more lie nowhere.
type DuePlacements = HashMap<Option<Placement>, DuePlacement>;

impl Broker {
    pub(super) async fn expire_claims(&self) {
        let alarm = &self.0.alarms.claims;
        // While no claim can be renewed their time is stopped, and nothing is due soon.
        let time = || {
            let now = self.0.clock.now();
            let time = self.claim_time();
            if time < now { Timestamp::default() } else { time }
        };
        while self.next_deadline(alarm, time, limits::EXPIRY_TICK).await {
            let now = self.claim_time();
            alarm.forget();
            for slot in self.0.slot_table.owned() {
                let begins = {
                    let mut state = slot.state.lock();
                    let begins = state.begin_expiry(now);
                    state.set_expiry_alarm();
                    begins
                };
                if !begins {
                    continue;
                }
                let broker = self.clone();
                self.spawn_in(&Arc::clone(&slot), async move { broker.expire_slot(&slot, now).await });
            }
        }
    }

    /// Ends all claims of a slot that were due at `now`, but for those of placements where earlier ones are still being ended:
    /// they are due again in a second. A slot that cannot end its claims holds up no other.
    async fn expire_slot(&self, slot: &Arc<Slot>, now: Timestamp) {
        while !self.0.stop.is_cancelled() && !slot.closed.is_cancelled() {
            let again = self.retry_at(now);
            let Some(due) = slot.state.lock().take_due_claims(now, again) else { break };
            let ended = TaskTracker::new();
            for (placement, part) in self.parts(slot, due, now).await {
                if !slot.state.lock().begin_part(&placement, &part, again) {
                    continue;
                }
                let (broker, on, token) = (self.clone(), Arc::clone(slot), ended.token());
                self.spawn_in(slot, async move {
                    broker.expire_placement(&on, part, now).await;
                    on.state.lock().expiring.remove(&placement);
                    drop(token);
                });
            }
            ended.close();
            // What takes longer continues beside what is due next.
            let _ = timeout(limits::EXPIRY_WAIT, ended.wait()).await;
        }
        slot.state.lock().finish_expiry();
    }

    /// When claims that cannot be ended now are due again.
    fn retry_at(&self, now: Timestamp) -> Timestamp {
        now.max(self.0.clock.now()).plus_seconds(limits::RETRY_SECONDS)
    }

    /// Due claims by placement. That of a queue that is not open is read from its record.
    async fn parts(&self, slot: &Slot, due: DueClaims, now: Timestamp) -> DuePlacements {
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
                self.task_failed("expire claims", format_args!("slot {}", slot.owned.slot.0), &error);
                let mut state = slot.state.lock();
                state.await_again(due.unopened.into_iter(), self.retry_at(now));
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
        let records = self.0.catalogue.queue_records(&queues).await?;
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
            self.task_failed("expire claims", format_args!("slot {}", slot.owned.slot.0), &error);
        }
        for deadline in part.unopened {
            self.open_for_release(slot, deadline, now).await;
        }
    }

    /// Opens the queue of a claim whose time has ended, so that it can be ended. A claim of a queue that does not exist
    /// any more is cleared away.
    async fn open_for_release(&self, slot: &Arc<Slot>, deadline: Deadline, now: Timestamp) {
        let opened = self.open(slot, &deadline.queue).await;
        let mut state = slot.state.lock();
        match opened {
            Ok(_) => state.spend_orphan(deadline.claim),
            Err(error) => {
                self.task_failed("expire claims", format_args!("queue {}", deadline.queue.name), &error);
                state.await_again([deadline].into_iter(), self.retry_at(now));
            }
        }
    }
}

impl SlotState {
    /// Takes claims whose deadline has passed. Those of placements where claims are being ended are due again later. None when
    /// there is none any more.
    fn take_due_claims(&mut self, now: Timestamp, again: Timestamp) -> Option<DueClaims> {
        let (mut due, mut busy, mut looked) = (DueClaims::default(), Vec::new(), 0);
        while looked < limits::EXPIRY_TURN
            && self.deadlines.peek().is_some_and(|Reverse(first)| first.at <= now)
        {
            let Some(Reverse(deadline)) = self.deadlines.pop() else { break };
            looked += 1;
            match self.queues.get(&deadline.queue) {
                Some(queue) if queue.engine.is_due(deadline.claim, now) => {
                    let placement = Some(queue.placement.clone());
                    if self.expiring.contains(&placement) {
                        busy.push(deadline);
                    } else {
                        due.claims.entry(placement).or_default().push((deadline.queue, deadline.claim));
                    }
                }
                // One whose time was not over when its queue was opened has another deadline.
                Some(_) => {}
                None => due.unopened.push(deadline),
            }
        }
        self.await_again(busy.into_iter(), again);
        (looked > 0).then_some(due)
    }

    /// Begins to end the claims of a placement. False when earlier ones are still being ended: then these are due again later.
    fn begin_part(&mut self, placement: &Option<Placement>, part: &DuePlacement, again: Timestamp) -> bool {
        let begins = self.expiring.insert(placement.clone());
        if !begins {
            let claims = part.claims.iter().cloned();
            let open = claims.map(|(queue, claim)| Deadline { at: again, claim, queue });
            self.await_again(open.chain(part.unopened.iter().cloned()), again);
        }
        begins
    }

    fn await_again(&mut self, deadlines: impl Iterator<Item = Deadline>, at: Timestamp) {
        deadlines.for_each(|deadline| self.note_deadline(Deadline { at, ..deadline }));
    }
}
