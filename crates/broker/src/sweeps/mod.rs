//! Periodic work in the slots of this replica: messages expire or become ready, idle queues are closed, ready caches
//! keep their bound.

pub(crate) mod due_messages;
pub(crate) mod expired;
pub(crate) mod idle_queues;
pub(crate) mod ready_caches;
pub(crate) mod retained;
pub(crate) mod settle_notes;

use std::sync::Arc;

use crate::open_queues::OpenQueues;
use crate::replica::LocalReplica;
use crate::slot::dedup::DedupUsage;
use crate::slots::Slots;
use crate::stores::table::PoolTable;

#[derive(Clone)]
pub(crate) struct Sweeps(pub(crate) Arc<SweepsParts>);

pub(crate) struct SweepsParts {
    pub(crate) replica: Arc<LocalReplica>,
    pub(crate) stores: Arc<PoolTable>,
    pub(crate) slots: Slots,
    pub(crate) open_queues: OpenQueues,
    /// Number of deduplication ids that all open queues remember.
    pub(crate) dedup: Arc<DedupUsage>,
}

impl Sweeps {
    pub(crate) fn new(parts: SweepsParts) -> Self {
        Self(Arc::new(parts))
    }
}
