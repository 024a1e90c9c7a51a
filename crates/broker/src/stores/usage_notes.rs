//! The pools that have queues, as far as this replica knows. Only these count when slots move to the replica that
//! reaches the most pools: an empty pool that cannot be reached harms no caller.
//!
//! ```text
//!          a queue served here is in it, or will be
//! unknown ──────────────────────────────────────▶ used ──▶ reported in the registry
//!    ▲                                              │ some replica does not reach it: looked up in the tree, once
//!    └──────────── no record names it ──────────────┘
//! ```
//!
//! A pool stays noted when the slot of its queues moves to another replica: until that replica has read the queues
//! itself no other caller would know of the pool, and the slot would move back.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;

use angarium_core::names::PoolName;

use crate::limits;

/// The notes. The lock is held for one access.
#[derive(Debug, Default)]
pub(crate) struct PoolUse(Mutex<PoolUseState>);

#[derive(Debug, Default)]
struct PoolUseState {
    /// How often each pool was noted.
    used: BTreeMap<PoolName, u64>,
    /// Pools that some replica does not reach.
    missed: BTreeSet<PoolName>,
    /// Pools among them that were looked up in the tree since they are missed.
    looked_for: BTreeSet<PoolName>,
    is_looking: bool,
}

/// A pool that is being looked up in the tree.
#[derive(Debug)]
pub(crate) struct PoolSearch {
    pub(crate) pool: PoolName,
    /// How often it had been noted before the look-up.
    pub(crate) noted: u64,
}

impl PoolUse {
    /// Notes that a queue is in a pool, or is about to be.
    pub(crate) fn note(&self, pool: &PoolName) {
        let mut state = self.0.lock();
        match state.used.get_mut(pool) {
            Some(noted) => *noted += 1,
            None => drop(state.used.insert(pool.clone(), 1)),
        }
    }

    /// Records the pools that some replica does not reach.
    pub(crate) fn note_missed<'p>(&self, pools: impl Iterator<Item = &'p String>) {
        let mut state = self.0.lock();
        let state = &mut *state;
        state.missed = pools.filter_map(|name| PoolName::new(name).ok()).collect();
        state.looked_for.retain(|pool| state.missed.contains(pool));
    }

    /// Returns the used pools, in order; none when they are too many to report.
    pub(crate) fn used(&self) -> Option<Vec<String>> {
        let state = self.0.lock();
        (state.used.len() <= limits::UNREACHED).then(|| state.used.keys().map(ToString::to_string).collect())
    }

    /// Begins the look-up of the next pool; none while another one is being looked up, or when all were.
    pub(crate) fn begin_look(&self) -> Option<PoolSearch> {
        let mut state = self.0.lock();
        let state = &mut *state;
        let is_due = |pool: &&PoolName| state.missed.contains(*pool) && !state.looked_for.contains(*pool);
        let (pool, noted) = state.used.iter().find(|(pool, _)| is_due(pool)).filter(|_| !state.is_looking)?;
        let look = PoolSearch { pool: pool.clone(), noted: *noted };
        state.is_looking = true;
        Some(look)
    }

    /// Ends a look-up with whether a record names the pool; none when it failed and must be repeated.
    pub(crate) fn end_look(&self, PoolSearch { pool, noted }: PoolSearch, is_used: Option<bool>) {
        let mut state = self.0.lock();
        state.is_looking = false;
        // A queue that was noted meanwhile may have been placed after the read.
        if is_used == Some(false) && state.used.get(&pool) == Some(&noted) {
            state.used.remove(&pool);
        }
        if is_used.is_some() && state.missed.contains(&pool) {
            state.looked_for.insert(pool);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(name: &str) -> PoolName {
        PoolName::new(name).unwrap()
    }

    fn missed(pools: &PoolUse, names: &[&str]) {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        pools.note_missed(names.iter());
    }

    #[test]
    fn missed_pool_without_queues_is_forgotten() {
        let pools = PoolUse::default();
        ["a", "b"].iter().for_each(|name| pools.note(&pool(name)));
        assert!(pools.begin_look().is_none(), "all are reached");
        missed(&pools, &["b", "never used"]);
        let look = pools.begin_look().unwrap();
        assert_eq!(look.pool, pool("b"));
        assert!(pools.begin_look().is_none(), "one at a time");
        pools.end_look(look, Some(false));
        assert_eq!(pools.used(), Some(vec!["a".to_owned()]));
        assert!(pools.begin_look().is_none());
    }

    #[test]
    fn missed_pool_is_looked_for_once_each_time() {
        let pools = PoolUse::default();
        pools.note(&pool("a"));
        missed(&pools, &["a"]);
        let failed = pools.begin_look().unwrap();
        pools.end_look(failed, None);
        let again = pools.begin_look().unwrap();
        pools.end_look(again, Some(true));
        missed(&pools, &["a"]);
        assert!(pools.begin_look().is_none());
        missed(&pools, &[]);
        missed(&pools, &["a"]);
        assert!(pools.begin_look().is_some());
        assert_eq!(pools.used().unwrap().len(), 1);
    }

    #[test]
    fn queue_created_during_the_look_keeps_its_pool() {
        let pools = PoolUse::default();
        pools.note(&pool("a"));
        missed(&pools, &["a"]);
        let look = pools.begin_look().unwrap();
        pools.note(&pool("a"));
        pools.end_look(look, Some(false));
        assert_eq!(pools.used(), Some(vec!["a".to_owned()]));
    }

    #[test]
    fn too_many_pools_are_not_reported() {
        let pools = PoolUse::default();
        (0..=limits::UNREACHED).for_each(|number| pools.note(&pool(&number.to_string())));
        assert_eq!(pools.used(), None);
    }
}
