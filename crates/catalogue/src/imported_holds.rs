//! Holds that an import and a restore make: the pools of a restored installation are copies of other moments than its
//! tree.

use std::collections::BTreeMap;

use super::holds::HoldRecord;
use super::{Catalogue, Schema, System, failed, layout, to_json};
use angarium_coordination::Op;
use angarium_core::error::Error;
use angarium_core::hold::{Hold, HoldEffects, HoldReason, HoldTarget};
use angarium_core::names::PoolName;
use angarium_core::time::Timestamp;

/// Transfers between the queues of an imported or restored tree, and migrations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportedTransfers {
    /// They continue.
    Continued,
    /// They wait until the holds of the pools are released: the pools were restored from copies of other moments. The holds
    /// are made at this time.
    Held(Timestamp),
}

impl ImportedTransfers {
    /// Raises the form of records, if a hold needs it.
    pub(super) fn raise(self, system: &mut System) {
        if self != Self::Continued {
            system.schema = system.schema.max(Schema::TRANSFER_HOLDS.0);
        }
    }
}

/// Why the transfers of pools are held after an import.
const HELD_REASON: &str = "restored: release each pool when all of them are restored and compared";

/// The directories of holds.
const DIRECTORIES: [&str; 3] = [layout::HOLDS, layout::POOL_HOLDS, layout::PROJECT_HOLDS];

/// Returns a hold of the transfers of a pool that is made at `since`. A hold before that clients meet stays one, and both
/// last until the pool is released.
fn with_transfers(before: Option<Hold>, since: Timestamp) -> Hold {
    match before.filter(|hold| hold.effects.stops_clients()) {
        Some(hold) => Hold { effects: hold.effects.and_transfers(), until: None, ..hold },
        None => restored(HoldEffects::TRANSFERS, since),
    }
}

fn restored(effects: HoldEffects, since: Timestamp) -> Hold {
    Hold { effects, reason: HoldReason::stored(HELD_REASON.to_owned()), by: None, since, until: None }
}

/// Returns the name of the pool of a node directly below a directory.
fn pool_below(directory: &str, path: &str) -> Option<PoolName> {
    let element = path.strip_prefix(directory)?.strip_prefix('/')?;
    layout::unescape(element).and_then(|name| PoolName::new(&name).ok())
}

/// Holds of the transfers of all pools, in place of the holds of pools in the file.
pub(super) struct TransferHolds {
    /// When they are made; none when transfers continue.
    since: Option<Timestamp>,
    pools: Vec<PoolName>,
    /// The holds of pools in the file.
    before: BTreeMap<PoolName, Hold>,
}

impl TransferHolds {
    pub(super) fn new(transfers: ImportedTransfers, system: &mut System) -> Self {
        transfers.raise(system);
        let since = match transfers {
            ImportedTransfers::Continued => None,
            ImportedTransfers::Held(since) => Some(since),
        };
        Self { since, pools: Vec::new(), before: BTreeMap::new() }
    }

    /// Returns the operations that create the directories of holds, before the nodes of the file.
    pub(super) fn directories(&self) -> Vec<Op> {
        let create = |path: &str| Op::create(path, "{}");
        self.since.iter().flat_map(|_| DIRECTORIES.map(create)).collect()
    }

    /// Notes a node of the file. Returns whether it is imported as it is.
    pub(super) fn keeps(&mut self, path: &str, data: &str) -> bool {
        let Some(since) = self.since else { return true };
        self.pools.extend(pool_below(layout::POOLS, path));
        if let Some(pool) = pool_below(layout::POOL_HOLDS, path) {
            let hold = serde_json::from_str(data).map(HoldRecord::into_hold);
            self.before.insert(pool, hold.unwrap_or_else(|_| restored(HoldEffects::ALL, since)));
        }
        let is_hold = path.strip_prefix(layout::POOL_HOLDS).is_some_and(|rest| rest.starts_with('/'));
        !is_hold && !DIRECTORIES.contains(&path)
    }

    /// Returns the operations that create the holds.
    pub(super) fn ops(mut self) -> Vec<Op> {
        let Some(since) = self.since else { return Vec::new() };
        let create = |pool: PoolName| {
            let hold = with_transfers(self.before.remove(&pool), since);
            Op::create(layout::shared_hold(&HoldTarget::Pool(pool)), to_json(&HoldRecord::from(&hold)))
        };
        self.pools.into_iter().map(create).collect()
    }
}

impl Catalogue {
    /// Holds the transfers of all pools of a restored tree that no service uses yet, if these holds are wanted.
    pub(super) async fn hold_restored(&self, transfers: ImportedTransfers) -> Result<(), Error> {
        let ImportedTransfers::Held(since) = transfers else { return Ok(()) };
        for element in self.tree.children(layout::POOLS).await.map_err(failed)? {
            let pool = layout::unescape(&element).and_then(|name| PoolName::new(&name).ok());
            // No request can name another element.
            let Some(target) = pool.map(HoldTarget::Pool) else { continue };
            let before = self.shared_hold(&target).await?;
            let before = before.map(|found| found.hold.unwrap_or_else(|_| restored(HoldEffects::ALL, since)));
            self.shared_hold_write(&target, &with_transfers(before, since), None).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(effects: HoldEffects) -> Hold {
        let reason = HoldReason::new("bad deploy").unwrap();
        let (since, until) = (Timestamp::from_millis(1), Some(Timestamp::from_millis(2)));
        Hold { effects, reason, by: Some("ops".to_owned()), since, until }
    }

    #[test]
    fn restored_hold_keeps_effects_on_clients() {
        let now = Timestamp::from_millis(7);
        let plain = with_transfers(None, now);
        assert_eq!((plain.effects, plain.since, plain.until), (HoldEffects::TRANSFERS, now, None));
        assert_eq!(with_transfers(Some(hold(HoldEffects::TRANSFERS)), now), plain);
        let kept = with_transfers(Some(hold(HoldEffects::CLAIMS)), now);
        assert!(kept.effects.bars_claims() && kept.effects.bars_transfers() && kept.until.is_none());
        assert_eq!((kept.reason.as_str(), kept.by.as_deref()), ("bad deploy", Some("ops")));
    }
}
