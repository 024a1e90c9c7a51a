//! Holds of pools and projects, in memory as the tree has them. All slots of a replica share them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::RwLock;
use tokio::sync::Notify;
use tracing::error;

use angarium_catalogue::{Catalogue, Placement, SharedHold};
use angarium_core::error::Error;
use angarium_core::hold::{AppliedHold, Hold, HoldEffects, HoldReason, HoldTarget};
use angarium_core::maps::HashMap;
use angarium_core::names::{PoolName, QueueRef};
use angarium_core::time::Timestamp;

/// The reason of a hold whose record cannot be read.
const UNREADABLE: &str = "the record of the hold cannot be read";

/// The holds of pools and projects. A slot is served only after they were read under its fence, see
/// [`crate::slots::recovery`].
#[derive(Default)]
pub(crate) struct SharedHolds {
    /// Whether there is one. While there is none, a request costs one look at this.
    is_any: AtomicBool,
    /// The lock is held for single looks and exchanges, never across an await.
    holds: RwLock<HashMap<HoldTarget, Hold>>,
    /// Number of reads of the records that were started.
    started: AtomicU64,
    /// Number of the last successful read. Locked during a read, so that waiting callers share the next one.
    finished: tokio::sync::Mutex<u64>,
    /// Read by each step that takes messages out of a pool, for its length; written by the confirmation of a hold of
    /// transfers, which waits for the steps that began without it.
    pub(crate) transfers: tokio::sync::RwLock<()>,
    /// Wakes the task that serves the claims of queues which are not held any more.
    pub(crate) changed: Notify,
}

impl SharedHolds {
    /// Reads the records. They include every change that this session has seen before the call.
    pub(crate) async fn read(&self, catalogue: &Catalogue) -> Result<(), Error> {
        let before = self.started.load(Ordering::Acquire);
        let mut finished = self.finished.lock().await;
        if *finished > before {
            return Ok(());
        }
        let number = self.started.fetch_add(1, Ordering::AcqRel) + 1;
        let found = catalogue.shared_holds().await?;
        self.enter(found.into_iter().map(|found| (found.target.clone(), readable(found))).collect());
        *finished = number;
        Ok(())
    }

    fn enter(&self, found: HashMap<HoldTarget, Hold>) {
        let mut holds = self.holds.write();
        if *holds == found {
            return;
        }
        for (target, hold) in &found {
            if hold.reason.as_str() == UNREADABLE && holds.get(target) != Some(hold) {
                error!(%target, "hold unreadable");
            }
        }
        self.is_any.store(!found.is_empty(), Ordering::Release);
        *holds = found;
        self.changed.notify_one();
    }

    /// Whether no pool and no project is held.
    pub(in crate::slot) fn is_empty(&self) -> bool {
        !self.is_any.load(Ordering::Acquire)
    }

    /// Whether a claim gets no message of a queue, which is in these pools if it is open.
    pub(in crate::slot) fn bars_claims(
        &self,
        at: &QueueRef,
        placement: Option<&Placement>,
        now: Timestamp,
    ) -> bool {
        let holds = self.holds.read();
        let bars = |hold: &Hold| hold.is_in_force(now) && hold.effects.bars_claims();
        targets(at, placement).any(|target| holds.get(&target).is_some_and(bars))
    }

    /// Whether no message leaves the pools of a queue.
    pub(crate) fn bars_transfers(&self, placement: &Placement, now: Timestamp) -> bool {
        if self.is_empty() {
            return false;
        }
        let holds = self.holds.read();
        let bars = |hold: &Hold| hold.is_in_force(now) && hold.effects.bars_transfers();
        placement.pools().any(|pool| holds.get(&HoldTarget::Pool(pool.clone())).is_some_and(bars))
    }

    /// Returns the holds in force for a queue, those of its pools first.
    pub(in crate::slot) fn of_queue<'a>(
        &'a self,
        at: &'a QueueRef,
        placement: Option<&'a Placement>,
        now: Timestamp,
    ) -> impl Iterator<Item = AppliedHold> + 'a {
        targets(at, placement).filter_map(move |target| {
            let hold = self.holds.read().get(&target).filter(|hold| hold.is_in_force(now)).cloned()?;
            Some(AppliedHold { target: Some(target), hold })
        })
    }

    /// Whether a pool is held, so that it is no place for more queues.
    pub(crate) fn has_pool(&self, pool: &PoolName, now: Timestamp) -> bool {
        !self.is_empty()
            && self
                .holds
                .read()
                .get(&HoldTarget::Pool(pool.clone()))
                .is_some_and(|hold| hold.is_in_force(now) && hold.effects.stops_clients())
    }

    /// Returns the holds in force of pools and projects, each with the time when it was made.
    pub(crate) fn times(&self, now: Timestamp) -> Vec<(HoldTarget, Timestamp)> {
        let holds = self.holds.read();
        let in_force = holds.iter().filter(|(_, hold)| hold.is_in_force(now));
        in_force.map(|(target, hold)| (target.clone(), hold.since)).collect()
    }

    /// Returns the hold in force of a pool or of a project.
    pub(crate) fn hold(&self, target: &HoldTarget, now: Timestamp) -> Option<Hold> {
        self.holds.read().get(target).filter(|hold| hold.is_in_force(now)).cloned()
    }

    /// Returns the first `most` holds in force behind `after`, in the order of their targets.
    pub(crate) fn list(&self, after: Option<&HoldTarget>, most: usize, now: Timestamp) -> Vec<AppliedHold> {
        let holds = self.holds.read();
        let is_meant = |target: &HoldTarget| after.is_none_or(|after| target > after);
        let mut found: Vec<(&HoldTarget, &Hold)> =
            holds.iter().filter(|(target, hold)| is_meant(target) && hold.is_in_force(now)).collect();
        found.sort_unstable_by_key(|(target, _)| *target);
        let applied = |(target, hold): (&HoldTarget, &Hold)| AppliedHold {
            target: Some(target.clone()),
            hold: hold.clone(),
        };
        found.into_iter().take(most).map(applied).collect()
    }

    /// Returns the resources whose holds have ended by themselves.
    pub(crate) fn ended(&self, now: Timestamp) -> Vec<HoldTarget> {
        let holds = self.holds.read();
        holds.iter().filter(|(_, hold)| !hold.is_in_force(now)).map(|(target, _)| target.clone()).collect()
    }
}

/// Returns the resources whose holds are in force for a queue.
fn targets<'a>(at: &'a QueueRef, placement: Option<&'a Placement>) -> impl Iterator<Item = HoldTarget> + 'a {
    let pools = placement.into_iter().flat_map(Placement::pools).cloned().map(HoldTarget::Pool);
    pools.chain(std::iter::once_with(|| HoldTarget::Project(at.project.clone())))
}

/// Returns a hold as it was read. One that cannot be read has all effects: its record names a resource
/// that is to be held, and no effect that could be left out.
pub(crate) fn readable(found: SharedHold) -> Hold {
    let SharedHold { hold, time, .. } = found;
    hold.unwrap_or_else(|_| Hold {
        effects: HoldEffects::ALL,
        reason: HoldReason::stored(UNREADABLE.to_owned()),
        by: None,
        since: time,
        until: None,
    })
}
