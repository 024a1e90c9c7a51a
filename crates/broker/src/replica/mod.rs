//! This replica as every part of the broker needs it.

pub(crate) mod alarm;
pub(crate) mod pool_outages;
pub(crate) mod running;
pub(crate) mod task_failures;
pub(crate) mod tasks;

use std::sync::{Arc, OnceLock};

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use angarium_catalogue::{Catalogue, Owner};
use angarium_clock::Clock;
use angarium_cluster::peer_client::PeerClient;
use angarium_core::limits::Limits;
use angarium_metrics::Meter;

use crate::replica::alarm::Alarms;
use crate::replica::pool_outages::PoolStates;
use crate::replica::task_failures::TaskFailures;

/// This replica: its tree, clock and bounds, what it counts, and its tasks.
pub(crate) struct LocalReplica {
    pub(crate) catalogue: Catalogue,
    pub(crate) clock: Clock,
    /// What clients may ask for.
    pub(crate) limits: Limits,
    pub(crate) meter: Meter,
    /// As what this process takes slots.
    pub(crate) owner: Owner,
    /// The greater part of every epoch.
    pub(crate) generation: u32,
    pub(crate) alarms: Alarms,
    pub(crate) failures: TaskFailures,
    pub(crate) outages: Arc<PoolStates>,
    /// The way to the other replicas; a service that is alone has none.
    pub(crate) peer_client: OnceLock<PeerClient>,
    /// Every task of the broker, so that a shutdown can wait for the changes that have begun.
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
    /// Ends the claims that wait for messages.
    pub(crate) waits: CancellationToken,
}
