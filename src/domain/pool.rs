//! A pool: a registered piece of storage, and what an operator says of it.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// What the catalogue holds of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// This incarnation of the pool: the name may be given again, the id never.
    pub id: Uuid,
    /// Where its storage is: `embedded:PATH`.
    pub uri: String,
    /// Its share of new queues; a pool of weight 0 takes none.
    pub weight: u32,
    /// Whether it takes part in placement.
    pub state: PoolState,
}

impl Pool {
    /// A pool that takes new queues.
    pub fn new(id: Uuid, uri: &str, weight: u32) -> Self {
        Self { id, uri: uri.to_owned(), weight, state: PoolState::Active }
    }

    /// Whether its storage is on the disk of one replica, where no other can reach it.
    pub fn is_local(&self) -> bool {
        self.uri.starts_with("embedded:")
    }
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
