//! Whether each pool can be reached, as this replica last found it. Changes are logged, with the length of the outage.

use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::{debug, error, info};

use angarium_core::maps::HashMap;
use angarium_core::names::PoolName;
use angarium_core::time::millis;

/// The pools that cannot be reached.
#[derive(Default)]
pub(crate) struct PoolStates(Mutex<HashMap<PoolName, Outage>>);

struct Outage {
    since: Instant,
    reason: String,
}

impl PoolStates {
    /// Records why a pool cannot be reached; none when it can.
    pub(crate) fn note(&self, pool: &PoolName, reason: Option<&str>) {
        let mut away = self.0.lock();
        match (away.get_mut(pool), reason) {
            (None, None) => {}
            (None, Some(reason)) => {
                error!(%pool, reason, "pool unreachable");
                away.insert(pool.clone(), Outage { since: Instant::now(), reason: reason.to_owned() });
            }
            (Some(known), Some(reason)) => {
                if known.reason != reason {
                    debug!(%pool, reason, "pool still unreachable");
                    reason.clone_into(&mut known.reason);
                }
            }
            (Some(known), None) => {
                info!(%pool, away_ms = millis(known.since.elapsed()), "pool reachable again");
                away.remove(pool);
            }
        }
    }

    /// Whether the pool was last found unreachable.
    pub(crate) fn is_away(&self, pool: &PoolName) -> bool {
        self.0.lock().contains_key(pool)
    }

    /// Forgets a deleted pool.
    pub(crate) fn forget(&self, pool: &PoolName) {
        self.0.lock().remove(pool);
    }
}
