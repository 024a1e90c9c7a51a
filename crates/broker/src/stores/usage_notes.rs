//! The pools in which queues lie, as far as this replica knows: only these count when slots go to the replica that
//! reaches the most pools. An empty pool that cannot be reached is no caller's loss.
//!
//! ```text
//!          a queue of ours is in it, or is to
//! unknown ──────────────────────────────────────▶ used ──▶ told in the registry
//!    ▲                                              │ some replica does not reach it: looked for in the tree, once
//!    └──────────── no record names it ──────────────┘
//! ```
//!
//! A pool stays noted when the slot of its queues moves to another replica: until that one has looked at the queues
//! itself no other caller would know of it, and the slot would come back.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;

use angarium_core::names::PoolName;

use crate::limits;

/// What is known. The lock is held for single looks.
#[derive(Debug, Default)]
pub(crate) struct PoolUse(Mutex<PoolUseState>);

#[derive(Debug, Default)]
struct PoolUseState {
    /// How often each was noted.
    used: BTreeMap<PoolName, u64>,
    /// Those that some replica does not reach.
    missed: BTreeSet<PoolName>,
    /// Those of them that were looked for in the tree since they are missed.
    looked_for: BTreeSet<PoolName>,
    is_looking: bool,
}

/// A pool that is being looked for in the tree.
#[derive(Debug)]
pub(crate) struct PoolSearch {
    pub(crate) pool: PoolName,
    /// How often it had been noted before.
    pub(crate) noted: u64,
}

impl PoolUse {
    /// A queue is in a pool, or is about to.
    pub(crate) fn note(&self, pool: &PoolName) {
        let mut state = self.0.lock();
        match state.used.get_mut(pool) {
            Some(noted) => *noted += 1,
            None => drop(state.used.insert(pool.clone(), 1)),
        }
    }

    /// Keeps which pools some replica does not reach.
    pub(crate) fn note_missed<'p>(&self, pools: impl Iterator<Item = &'p String>) {
        let mut state = self.0.lock();
        let state = &mut *state;
        state.missed = pools.filter_map(|name| PoolName::new(name).ok()).collect();
        state.looked_for.retain(|pool| state.missed.contains(pool));
    }

    /// Those that are used, in order; none when they are too many to be told.
    pub(crate) fn used(&self) -> Option<Vec<String>> {
        let state = self.0.lock();
        (state.used.len() <= limits::UNREACHED).then(|| state.used.keys().map(ToString::to_string).collect())
    }

    /// The next pool to be looked for; none while another one is, or when all were.
    pub(crate) fn begin_look(&self) -> Option<PoolSearch> {
        let mut state = self.0.lock();
        let state = &mut *state;
        let is_due = |pool: &&PoolName| state.missed.contains(*pool) && !state.looked_for.contains(*pool);
        let (pool, noted) = state.used.iter().find(|(pool, _)| is_due(pool)).filter(|_| !state.is_looking)?;
        let look = PoolSearch { pool: pool.clone(), noted: *noted };
        state.is_looking = true;
        Some(look)
    }

    /// Keeps whether a record names the pool; none when that could not be found out, and is to be tried again.
    pub(crate) fn end_look(&self, PoolSearch { pool, noted }: PoolSearch, is_used: Option<bool>) {
        let mut state = self.0.lock();
        state.is_looking = false;
        // One that was noted meanwhile may have come after the look.
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
