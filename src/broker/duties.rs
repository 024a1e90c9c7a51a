//! Work that nobody asks for: ending claims whose time is over, and clearing away the records of claims whose messages
//! were all deleted. Others have files of their own, as [`super::sweeps`], [`super::schedule`] and [`super::quotas`].

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use tracing::warn;

use super::Broker;
use super::assignment::Following;
use super::deadlines::Deadline;
use super::ends::{Cause, Claimed};
use super::slot::Slot;
use crate::domain::ids::ClaimId;
use crate::domain::limits;
use crate::domain::time::Timestamp;
use crate::engine::Ending;
use crate::error::Error;

impl Broker {
    pub(super) fn start_duties(&self, following: Following) {
        let broker = self.clone();
        self.0.tasks.spawn(async move { broker.expire_claims().await });
        let broker = self.clone();
        self.0.tasks.spawn(async move { broker.clear_spent_claims().await });
        let broker = self.clone();
        self.0.tasks.spawn(async move { broker.sweep_messages().await });
        let broker = self.clone();
        self.0.tasks.spawn(async move { broker.wake_scheduled().await });
        let broker = self.clone();
        self.0.tasks.spawn(async move { broker.watch_slots().await });
        let broker = self.clone();
        self.0.tasks.spawn(async move { broker.follow_cluster(following).await });
        let broker = self.clone();
        self.0.tasks.spawn(async move { broker.watch_session().await });
        let broker = self.clone();
        self.0.tasks.spawn(async move { broker.keep_time().await });
        let broker = self.clone();
        self.0.tasks.spawn(async move { broker.clean_dropped().await });
        let broker = self.clone();
        self.0.tasks.spawn(async move { broker.watch_pools().await });
        let broker = self.clone();
        self.0.tasks.spawn(async move { broker.recount().await });
        let broker = self.clone();
        self.0.tasks.spawn(async move { broker.recount_pools().await });
        let broker = self.clone();
        self.0.tasks.spawn(async move { broker.follow_pools().await });
        let broker = self.clone();
        self.0.tasks.spawn(async move { broker.resume_moves().await });
        let broker = self.clone();
        self.0.tasks.spawn(async move { broker.bound_windows().await });
        let broker = self.clone();
        self.0.tasks.spawn(async move { broker.rest_queues().await });
        let broker = self.clone();
        self.0.tasks.spawn(async move { broker.drain_pools().await });
        let broker = self.clone();
        self.0.tasks.spawn(async move { broker.watch_reach().await });
    }

    /// Sleeps for a turn. False when the service stops.
    pub(super) async fn next_turn(&self, tick: Duration) -> bool {
        tokio::select! {
            () = self.0.stop.cancelled() => false,
            () = tokio::time::sleep(tick) => true,
        }
    }

    async fn expire_claims(&self) {
        let alarm = &self.0.alarms.claims;
        // While no claim can be renewed their time stands still, and nothing is due soon.
        let time = || {
            let now = self.0.clock.now();
            let time = self.claim_time();
            if time < now { Timestamp::default() } else { time }
        };
        while self.next_deadline(alarm, time, limits::EXPIRY_TICK).await {
            let now = self.claim_time();
            alarm.forget();
            for slot in self.0.cells.owned() {
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

    /// Ends all claims of a slot that were due at `now`. A slot that cannot end them holds up no other.
    async fn expire_slot(&self, slot: &Arc<Slot>, now: Timestamp) {
        loop {
            let Due { claims, unopened } = due_claims(slot, now);
            if claims.is_empty() && unopened.is_empty() {
                break;
            }
            for deadline in unopened {
                self.open_for_end(slot, deadline, now).await;
            }
            if let Err(error) = self.end_claims(slot, claims, Ending::COUNTED, Cause::Lapsed).await {
                warn!(slot = %slot.owned.slot, %error, "claims could not be ended");
            }
        }
        slot.state.lock().finish_expiry();
    }

    /// Opens the queue of a claim whose time is over, so that it can be ended. A claim of a queue that does not exist any
    /// more is cleared away.
    async fn open_for_end(&self, slot: &Arc<Slot>, deadline: Deadline, now: Timestamp) {
        let opened = self.open(slot, &deadline.queue).await;
        let mut state = slot.state.lock();
        match opened {
            Ok(_) => state.spend_orphan(deadline.claim),
            Err(error) => {
                warn!(queue = %deadline.queue.name, %error, "a claim that is over cannot be ended yet");
                let at = now.max(self.0.clock.now()).plus_seconds(limits::RETRY_SECONDS);
                state.await_end(Deadline { at, ..deadline });
            }
        }
    }

    async fn clear_spent_claims(&self) {
        let mut goes_on = true;
        while goes_on {
            goes_on = self.next_turn(limits::CLAIM_SHRINK_TICK).await;
            for slot in self.0.cells.owned() {
                if let Err(error) = self.clear_spent(&slot).await {
                    warn!(slot = %slot.owned.slot, %error, "records of claims could not be cleared away");
                }
            }
        }
    }

    async fn clear_spent(&self, slot: &Arc<Slot>) -> Result<(), Error> {
        let spent: Vec<ClaimId> = std::mem::take(&mut slot.state.lock().spent);
        if spent.is_empty() {
            return Ok(());
        }
        let outcome = self.0.catalogue.claims_delete(&slot.owned, &spent).await;
        let mut state = slot.state.lock();
        match outcome {
            Ok(()) => state.live_claims = state.live_claims.saturating_sub(spent.len()),
            // A record that is gone already does no harm at the next turn.
            Err(_) => state.spent.extend(spent),
        }
        outcome
    }
}

/// Claims whose time is over.
#[derive(Default)]
struct Due {
    claims: Vec<Claimed>,
    /// Those of queues that nobody has opened.
    unopened: Vec<Deadline>,
}

/// Claims whose deadline has passed, at most one turn's worth.
fn due_claims(slot: &Slot, now: Timestamp) -> Due {
    let mut due = Due::default();
    let mut state = slot.state.lock();
    while due.claims.len() + due.unopened.len() < limits::EXPIRY_TURN {
        match state.deadlines.peek() {
            Some(Reverse(first)) if first.at <= now => {}
            _ => break,
        }
        let Some(Reverse(deadline)) = state.deadlines.pop() else { break };
        match state.queues.get(&deadline.queue) {
            Some(queue) if queue.engine.is_due(deadline.claim, now) => {
                due.claims.push((deadline.queue, deadline.claim));
            }
            // One whose time was not over when its queue was opened has another deadline.
            Some(_) => {}
            None => due.unopened.push(deadline),
        }
    }
    due
}
