//! Warnings about the health of the replica, for probes and operators.

use std::collections::BTreeSet;

use angarium_core::error::Error;

use crate::health::Health;

impl Health {
    /// As `check_ready`. Returns warnings for the operator of a replica that is ready.
    pub fn readiness(&self) -> Result<Vec<String>, Error> {
        self.check_ready()?;
        let doubt = self.0.replica.clock.doubt().map(|step| {
            format!(
                "the clock differs by {} s from the last write and is not believed; if it is right, restart with \
                 --accept-clock",
                step.as_secs()
            )
        });
        let behind = self.0.replica.clock.behind().map(|behind| {
            format!(
                "the time of this service is {} s behind since it was restored from a backup, so that restored messages \
                 keep the life that they had left; restart with --accept-clock when they may expire",
                behind.as_secs()
            )
        });
        let gap = self.0.replica.clock.gap().map(|gap| {
            format!(
                "the clock of the coordination servers made a step and is {} s from tree time, which follows it by 1 s in \
                 10 s",
                gap / 1_000
            )
        });
        let own = doubt.into_iter().chain(behind).chain(gap).chain(self.session_warning());
        let files = self.0.replica.meter.refused_settings_files().into_iter().map(|setting| {
            format!(
                "the changed file of {setting} cannot be used and its old content still holds: see the log"
            )
        });
        let own = own.chain(files);
        let catalogue = &self.0.replica.catalogue;
        let own = own.chain(catalogue.tree_warning()).chain(catalogue.sealing_warning());
        Ok(own.chain(self.damage_warnings()).chain(self.0.stores.warnings()).collect())
    }

    /// Returns the damage of stored data that calls have found, each text once: several parts may share one store.
    fn damage_warnings(&self) -> BTreeSet<String> {
        let tree = self.0.replica.catalogue.damage().map(|(_, text)| text);
        let pools = self.0.stores.all();
        let pools = pools.iter().filter_map(|pool| Some(pool.store().ok()?.damage()?.text));
        tree.into_iter().chain(pools).collect()
    }
}
