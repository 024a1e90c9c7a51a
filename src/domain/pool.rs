//! A pool: a registered piece of storage, and what an operator says of it.

use serde::{Deserialize, Serialize};

/// What the catalogue holds of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// Where its storage is: `embedded:PATH`.
    pub uri: String,
    /// Its share of new queues; a pool of weight 0 takes none.
    pub weight: u32,
    /// Whether it takes part in placement.
    pub state: PoolState,
}

/// Whether new queues may be placed in a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PoolState {
    /// It takes new queues according to its weight.
    Active,
    /// It takes none, whatever its weight.
    Draining,
}
