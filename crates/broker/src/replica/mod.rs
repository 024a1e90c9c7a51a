//! This replica as every component of the broker needs it.

pub(crate) mod alarm;
pub(crate) mod forms;
pub(crate) mod pool_outages;
pub(crate) mod receipt_keys;
pub(crate) mod running;
pub(crate) mod successor;
pub(crate) mod task_failures;
pub(crate) mod tasks;

use std::sync::{Arc, OnceLock};

use tokio_util::sync::CancellationToken;

use angarium_catalogue::{Catalogue, Owner};
use angarium_clock::Clock;
use angarium_cluster::peer_client::PeerClient;
use angarium_cluster::random::Random;
use angarium_cluster::tasks::Tasks;
use angarium_core::limits::Limits;
use angarium_metrics::Meter;

use crate::replica::alarm::Alarms;
use crate::replica::forms::TriedForms;
use crate::replica::pool_outages::PoolStates;
use crate::replica::receipt_keys::ReceiptKeys;
use crate::replica::successor::SuccessorProcess;
use crate::replica::task_failures::TaskFailures;

/// This replica: its tree, clock, random values, bounds, meter and tasks.
pub(crate) struct LocalReplica {
    pub(crate) catalogue: Catalogue,
    pub(crate) clock: Clock,
    pub(crate) random: Random,
    /// The limits of requests.
    pub(crate) limits: Limits,
    pub(crate) meter: Meter,
    /// The identity with which this process owns slots.
    pub(crate) owner: Owner,
    /// The more significant part of every epoch.
    pub(crate) generation: u32,
    pub(crate) alarms: Alarms,
    pub(crate) failures: TaskFailures,
    pub(crate) outages: Arc<PoolStates>,
    pub(crate) receipt_keys: ReceiptKeys,
    pub(crate) forms: TriedForms,
    /// The client for the other replicas; a single replica has none.
    pub(crate) peer_client: OnceLock<PeerClient>,
    /// Every task of the broker, so that a shutdown can wait for changes in progress.
    pub(crate) tasks: Tasks,
    pub(crate) stop: CancellationToken,
    /// A later process with the identity of this one, once it is known.
    pub(crate) successor: OnceLock<SuccessorProcess>,
    /// Cancelled once there is a successor.
    pub(crate) succeeded: CancellationToken,
    /// Ends the claims that wait for messages.
    pub(crate) waits: CancellationToken,
}
