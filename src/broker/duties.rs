//! Work that nobody asks for: ending claims whose time is over, removing messages whose life is over, and clearing
//! away the records of claims whose messages were all deleted.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use tracing::warn;

use super::Broker;
use super::ends::Claimed;
use super::lanes::Change;
use super::slot::Slot;
use crate::domain::ids::{ClaimId, Slot as SlotNumber};
use crate::domain::limits;
use crate::domain::time::Timestamp;
use crate::engine::Counts;
use crate::error::Error;

impl Broker {
    pub(super) fn start_duties(&self) {
        let broker = self.clone();
        self.0.tasks.spawn(async move { broker.expire_claims().await });
        let broker = self.clone();
        self.0.tasks.spawn(async move { broker.clear_spent_claims().await });
        let broker = self.clone();
        self.0.tasks.spawn(async move { broker.sweep_messages().await });
        let broker = self.clone();
        self.0.tasks.spawn(async move { broker.watch_slots().await });
        let broker = self.clone();
        self.0.tasks.spawn(async move { broker.watch_session().await });
        let broker = self.clone();
        self.0.tasks.spawn(async move { broker.keep_time().await });
        let broker = self.clone();
        self.0.tasks.spawn(async move { broker.clean_dropped().await });
        let broker = self.clone();
        self.0.tasks.spawn(async move { broker.watch_pools().await });
    }

    /// Sleeps for a turn. False when the service stops.
    pub(super) async fn next_turn(&self, tick: Duration) -> bool {
        tokio::select! {
            () = self.0.stop.cancelled() => false,
            () = tokio::time::sleep(tick) => true,
        }
    }

    async fn expire_claims(&self) {
        while self.next_turn(limits::EXPIRY_TICK).await {
            let now = self.0.clock.now();
            if !self.may_expire(now) {
                continue;
            }
            for slot in self.0.cells.owned() {
                if !slot.state.lock().begin_expiry(now) {
                    continue;
                }
                let broker = self.clone();
                self.0.tasks.spawn(async move { broker.expire_slot(&slot, now).await });
            }
        }
    }

    /// Ends all claims of a slot that were due at `now`. A slot that cannot end them holds up no other.
    async fn expire_slot(&self, slot: &Arc<Slot>, now: Timestamp) {
        loop {
            let due = due_claims(slot, now);
            if due.is_empty() {
                break;
            }
            if let Err(error) = self.end_claims(slot, due, Counts::Yes).await {
                warn!(slot = %slot.owned.slot, %error, "claims could not be ended");
            }
        }
        slot.state.lock().is_expiring = false;
    }

    /// Removes messages whose life is over from the heads of the open queues, one slot after the other, so that
    /// each slot has its turn within [`limits::SWEEP_ROUND`].
    async fn sweep_messages(&self) {
        let tick = limits::SWEEP_ROUND / u32::try_from(limits::SLOTS).expect("there are 256 slots");
        loop {
            for number in SlotNumber::all() {
                if !self.next_turn(tick).await {
                    return;
                }
                if let Some(slot) = self.0.cells.get(number) {
                    self.sweep_slot(&slot);
                }
            }
        }
    }

    fn sweep_slot(&self, slot: &Arc<Slot>) {
        let now = self.0.clock.now();
        let mut state = slot.state.lock();
        let mut swept = Vec::new();
        for (at, queue) in &mut state.queues {
            let expired = queue.engine.take_expired(limits::SWEEP_MESSAGES, now);
            if !expired.is_empty() {
                self.start_refill(slot, at, queue);
                swept.push((at.clone(), expired));
            }
        }
        for (at, expired) in swept {
            // Nobody waits for this: an expired message is hidden until it is gone.
            drop(self.submit(slot, &mut state, &at, Change::Remove(expired)));
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

/// Claims whose deadline has passed, at most one turn's worth.
fn due_claims(slot: &Slot, now: Timestamp) -> Vec<Claimed> {
    let mut due = Vec::new();
    let mut state = slot.state.lock();
    while due.len() < limits::EXPIRY_TURN {
        match state.deadlines.peek() {
            Some(Reverse(first)) if first.at <= now => {}
            _ => break,
        }
        let Some(Reverse(deadline)) = state.deadlines.pop() else { break };
        let queue = state.queues.get(&deadline.queue);
        if queue.is_some_and(|queue| queue.engine.is_due(deadline.claim, now)) {
            due.push((deadline.queue, deadline.claim));
        }
    }
    due
}
