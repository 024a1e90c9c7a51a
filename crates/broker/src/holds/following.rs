//! The background task of holds of pools and projects: it keeps memory in step with the tree, and ends holds at their
//! time.

use tracing::info;

use angarium_core::error::Error;
use angarium_core::hold::HoldTarget;
use angarium_core::ids::Slot;

use crate::holds::Holds;
use crate::limits;
use crate::slot::shared_holds::readable;

/// The slot whose owner removes the records of holds that have ended by themselves.
const REMOVER: Slot = Slot(0);

impl Holds {
    /// Follows the holds until the service stops.
    pub(crate) async fn follow_holds(&self) {
        let (replica, holds) = (&self.0.replica, self.0.slots.shared_holds());
        let mut is_behind = false;
        loop {
            tokio::select! {
                biased;
                () = replica.stop.cancelled() => return,
                () = self.0.slots.holds_changed() => is_behind = true,
                () = holds.changed.notified() => self.serve_waiting(),
                () = tokio::time::sleep(limits::HOLD_TICK) => self.end_holds().await,
            }
            if is_behind {
                match holds.read(&replica.catalogue).await {
                    Ok(()) => is_behind = false,
                    Err(error) => {
                        replica.task_failed("read holds", "catalogue", &error);
                        if !replica.sleep_tick(limits::HOLD_TICK).await {
                            return;
                        }
                    }
                }
            }
        }
    }

    fn serve_waiting(&self) {
        self.0.slots.owned().for_each(|slot| slot.serve_all());
    }

    /// Serves the claims that wait for queues whose hold has ended by itself, and removes its record. Claims of these
    /// queues have been granted since that time.
    async fn end_holds(&self) {
        let ended = self.0.slots.shared_holds().ended(self.0.replica.clock.now());
        if ended.is_empty() {
            return;
        }
        self.serve_waiting();
        if self.0.slots.get(REMOVER).is_none() {
            return;
        }
        for target in ended {
            if let Err(error) = self.remove_ended(&target).await {
                self.0.replica.task_failed("end holds", &target, &error);
            }
        }
    }

    async fn remove_ended(&self, target: &HoldTarget) -> Result<(), Error> {
        let catalogue = &self.0.replica.catalogue;
        let Some(found) = catalogue.shared_hold(target).await? else { return Ok(()) };
        // A request may have replaced it meanwhile.
        let (version, now) = (found.version, self.0.replica.clock.now());
        // Of several replicas one removes it.
        if !readable(found).is_in_force(now) && catalogue.shared_hold_remove(target, version).await? {
            match target {
                HoldTarget::Pool(pool) => info!(%pool, "pool hold ended"),
                HoldTarget::Project(project) => info!(%project, "project hold ended"),
            }
        }
        Ok(())
    }
}
