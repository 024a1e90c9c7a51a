//! Recovery of a slot of which the memory may no longer be right: after a batch with an unknown outcome, after a pool
//! returned to an older state, after another replica took the slot.
//!
//! The old object of the slot is closed first: no operation begins in it, and as soon as the slot is acquired again,
//! the tree (by its fence) and the pools (by the epoch) refuse its operations in progress. Then the acknowledged state
//! is read again. The recovery of one slot does not stop the others.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::{debug, info, warn};

use angarium_catalogue::OwnedSlot;
use angarium_core::error::Error;
use angarium_core::ids::Slot as SlotNumber;
use angarium_core::limits as core_limits;
use angarium_core::mutation::{Mutation, is_on};
use angarium_core::names::{PoolName, QueueRef};
use angarium_core::time::millis;
use angarium_storage::Epoch;

use crate::limits;
use crate::slot::life::RecoveryPace;
use crate::slot::slot_queue::SlotQueue;
use crate::slot::state::{Slot, SlotRecords, SlotTerms};
use crate::slots::Slots;
use crate::slots::reservation::SlotReservation;

/// The first and the longest pause; each is twice the previous one.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

pub(crate) fn next(pause: Duration) -> Duration {
    (pause * 2).clamp(PAUSE.0, PAUSE.1)
}

impl Slots {
    /// Returns the slot of a queue, as served now. Waits for a slot that is being recovered.
    pub(crate) async fn slot(&self, queue: &QueueRef) -> Result<Arc<Slot>, Error> {
        self.served(queue.slot()).await
    }

    /// Like `slot`, but returns the queue of this name at its slot.
    pub(crate) async fn queue(&self, at: &QueueRef) -> Result<SlotQueue, Error> {
        Ok(self.slot(at).await?.queue(at))
    }

    /// Like `slot`, for every slot that no other replica serves.
    pub(crate) async fn own_slots(&self) -> Result<Vec<Arc<Slot>>, Error> {
        let mut slots = Vec::with_capacity(core_limits::SLOTS);
        for number in SlotNumber::all() {
            match self.served(number).await {
                Ok(slot) => slots.push(slot),
                Err(Error::Moved(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(slots)
    }

    /// Like `slot`, by the number of the slot.
    pub(crate) async fn served(&self, number: SlotNumber) -> Result<Arc<Slot>, Error> {
        if let Some(slot) = self.0.table.get(number) {
            match slot.lost() {
                None => return Ok(slot),
                Some(why) => self.begin_recovery(&slot, why),
            }
        }
        self.0.table.wait(number).await
    }

    /// Checks that an answer without a write is true: it is from the memory of a slot that this replica owned all the
    /// time (P8). Must be called just before the answer.
    pub(crate) fn check_ours(&self, slot: &Slot) -> Result<(), Error> {
        slot.check_served()?;
        self.check_member()?;
        self.0.replica.catalogue.check_lease()
    }

    /// Returns an answer without a write, if it is true.
    pub(crate) fn confirm<T>(&self, slot: &Slot, answer: Result<T, Error>) -> Result<T, Error> {
        self.check_ours(slot).and(answer)
    }

    /// Like `confirm`, for an answer from several slots.
    pub(crate) fn confirm_all<T>(&self, slots: &[Arc<Slot>], answer: Result<T, Error>) -> Result<T, Error> {
        slots.iter().try_for_each(|slot| slot.check_served())?;
        self.check_member()?;
        self.0.replica.catalogue.check_lease()?;
        answer
    }

    /// Returns the outcome of a change. A refusal because of the state in memory wrote nothing, so it is checked.
    pub(crate) fn confirm_refusal<T>(&self, slot: &Slot, outcome: Result<T, Error>) -> Result<T, Error> {
        match outcome {
            Err(error) if error.nothing_written() => self.check_ours(slot).and(Err(error)),
            outcome => outcome,
        }
    }

    /// Recovers lost slots that receive no request.
    pub(crate) async fn watch_slots(&self) {
        while self.0.replica.sleep_tick(limits::SLOT_TICK).await {
            for slot in self.0.table.owned() {
                if let Some(why) = slot.lost() {
                    self.begin_recovery(&slot, why);
                }
            }
        }
    }

    /// Closes a slot and begins to recover it, once.
    pub(crate) fn begin_recovery(&self, slot: &Arc<Slot>, why: &'static str) {
        let Some(away) = self.take_reserved(slot, why) else { return };
        slot.close();
        let pause = slot.taken.pause();
        let (number, pause_ms) = (slot.owned.slot.0, millis(pause));
        // Repeated losses within a short time are no warnings each; the meter counts every loss.
        if pause.is_zero() {
            warn!(slot = number, reason = why, "slot lost");
        } else {
            debug!(slot = number, reason = why, pause_ms, "slot lost again");
        }
        self.0.replica.meter.note_lost_slot();
        let (slots, owned, pools) = (self.clone(), slot.owned.clone(), slot.pools());
        self.0.replica.tasks.spawn(async move { slots.recover_slot(away, &owned, &pools, pause).await });
    }

    /// Tries to recover a slot until that succeeds, until others that reach more should serve it, or until the service
    /// stops.
    async fn recover_slot(
        &self,
        away: SlotReservation,
        owned: &OwnedSlot,
        pools: &[PoolName],
        first: Duration,
    ) {
        let (mut pause, number, began) = (first, owned.slot, Instant::now());
        loop {
            if !pause.is_zero() && !self.0.replica.sleep_tick(pause).await {
                return;
            }
            pause = next(pause);
            // The slot would be lost again and again because of the pools that this replica does not reach.
            if self.should_yield_slots() {
                match self
                    .0
                    .replica
                    .catalogue
                    .slots_give_up(std::slice::from_ref(owned), &self.0.replica.owner)
                    .await
                {
                    Ok(()) => {
                        info!(slot = number.0, "slot given up");
                        return self.0.ledger.left(number);
                    }
                    Err(error) => {
                        self.0.replica.task_failed("give up slots", format_args!("slot {}", number.0), &error)
                    }
                }
                continue;
            }
            let session = self.session();
            match self.take(number, RecoveryPace::now(pause)).await {
                Ok(Some(slot)) => {
                    slot.fence_pools(pools).await;
                    let (took_ms, transaction) = (millis(began.elapsed()), slot.epoch.transaction);
                    if first.is_zero() {
                        info!(slot = number.0, transaction, took_ms, "slot recovered");
                    } else {
                        debug!(slot = number.0, transaction, took_ms, "slot recovered again");
                    }
                    away.enter(slot, session);
                    self.0.ledger.taken(number);
                    // Another replica may be its right owner by now.
                    self.0.assignment.wake.notify_one();
                    return;
                }
                Ok(None) => {
                    info!(slot = number.0, "slot served by other replica");
                    return self.0.ledger.left(number);
                }
                Err(error) => {
                    self.0.replica.task_failed("take slots", format_args!("slot {}", number.0), &error);
                }
            }
        }
    }

    /// Takes a slot. Returns none when another replica has it.
    pub(crate) async fn take(
        &self,
        number: SlotNumber,
        taken: RecoveryPace,
    ) -> Result<Option<Arc<Slot>>, Error> {
        let owned = self.0.replica.catalogue.slots_take(&[number], &self.0.replica.owner).await?.pop();
        let Some(owned) = owned else { return Ok(None) };
        self.load(owned, taken).await.map(Some)
    }

    /// Returns an acquired slot with its claims and holds. Holds of pools and projects, and the format in force, are read
    /// after the commit that acquired it: an owner that takes a slot later than such a hold knows it, and it understands
    /// what earlier owners have written.
    pub(crate) async fn load(&self, owned: OwnedSlot, taken: RecoveryPace) -> Result<Arc<Slot>, Error> {
        let epoch = Epoch { generation: self.0.replica.generation, transaction: owned.transaction };
        let catalogue = &self.0.replica.catalogue;
        let (claims, holds, group_holds, (), ()) = tokio::try_join!(
            catalogue.claims(&owned),
            catalogue.holds(&owned),
            catalogue.group_holds(&owned),
            self.read_shared_holds(),
            catalogue.read_schema()
        )?;
        let found = SlotRecords { claims, holds, group_holds };
        let no_expiry_before = self.0.replica.clock.now().plus_seconds(limits::EXPIRY_HOLD_SECONDS);
        let terms = SlotTerms { taken, no_expiry_before };
        Ok(Arc::new(Slot::new(owned, epoch, found, terms, self.0.around.clone())))
    }

    async fn read_shared_holds(&self) -> Result<(), Error> {
        if is_on(Mutation::ForgetSharedHolds) {
            return Ok(());
        }
        self.0.around.holds.read(&self.0.replica.catalogue).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slot::life::CALM;

    #[tokio::test(start_paused = true)]
    async fn recovery_pauses_grow_and_reset_when_calm() {
        let mut pause = Duration::ZERO;
        for expected in [100, 200, 400, 800] {
            pause = next(pause);
            assert_eq!(pause, Duration::from_millis(expected));
        }
        assert_eq!(next(Duration::from_secs(9)), PAUSE.1);
        let taken = RecoveryPace::now(pause);
        assert_eq!(taken.pause(), pause);
        tokio::time::advance(CALM + Duration::from_millis(1)).await;
        assert_eq!(taken.pause(), Duration::ZERO);
    }
}
