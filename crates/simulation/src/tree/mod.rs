//! The simulated coordination tree: three servers, their sessions, and the handle of each process.
//!
//! ```text
//! process ── TreeHandle ──▶ connected server (reads, watches)
//!                │               ▲ applies the log, soon or seconds later
//!                └──▶ leader (commits, syncs, heartbeats) ── log of transactions
//! ```
//!
//! The leader evaluates each commit against its own nodes and appends a transaction to the log. Each server applies the
//! log in its own time. A handle behaves as the one of ZooKeeper: a keeper holds the session and its lease, and a
//! committer has one request in flight. Nothing here reads a clock or a random source other than those of the world.

mod committer;
mod ensemble;
mod handle;
mod keeper;
mod leader;
mod link;
mod nodes;
mod pieces;
#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::faults::Fault;
use crate::world::RequestFaults;

pub use ensemble::Ensemble;
pub use handle::{ProcessSpawn, TreeHandle};

/// A session without a heartbeat for this time ends.
pub const SESSION_TIMEOUT: Duration = Duration::from_secs(10);

/// An operation fails without an answer after this time.
pub const DEADLINE: Duration = Duration::from_secs(6);

/// Number of servers.
pub const SERVERS: usize = 3;

/// The faults of requests to the leader.
const FAULTS: RequestFaults = RequestFaults {
    refused: Fault::TreeRefused,
    lost: Fault::TreeLost,
    unanswered: Fault::TreeUnanswered,
    slow: Fault::TreeSlow,
    hung: Fault::TreeHung,
};
