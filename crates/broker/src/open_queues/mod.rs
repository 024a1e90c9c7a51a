//! The queues of served slots: opening, creating, and reading closed ones.

pub(crate) mod closed;
pub(crate) mod copies;
pub(crate) mod create;
pub(crate) mod dedup_notes;
pub(crate) mod ignored;
pub(crate) mod lookup;
pub(crate) mod namesake;
pub(crate) mod open;
pub(crate) mod pools_of_queue;
pub(crate) mod subscriptions;

use std::sync::Arc;

use crate::ledger::quota_ledger::Ledger;
use crate::open_queues::ignored::IgnoredAttributes;
use crate::pools::Pools;
use crate::quotas::QuotaCounts;
use crate::replica::LocalReplica;
use crate::slots::Slots;
use crate::stores::table::PoolTable;

/// Opens and creates queues at the slots of this replica (P4).
#[derive(Clone)]
pub(crate) struct OpenQueues(pub(in crate::open_queues) Arc<OpenQueuesParts>);

pub(crate) struct OpenQueuesParts {
    pub(crate) replica: Arc<LocalReplica>,
    pub(crate) stores: Arc<PoolTable>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) slots: Slots,
    pub(crate) pools: Pools,
    pub(crate) quotas: QuotaCounts,
    pub(crate) ignored: IgnoredAttributes,
}

impl OpenQueues {
    pub(crate) fn new(parts: OpenQueuesParts) -> Self {
        Self(Arc::new(parts))
    }
}
