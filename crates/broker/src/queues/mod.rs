//! Queues as clients see them: look up, list, change, delete.

pub(crate) mod delete;
pub(crate) mod describe;
pub(crate) mod flavor;
pub(crate) mod group_holds;
pub(crate) mod holds;
pub(crate) mod list;
pub(crate) mod patch;
pub(crate) mod recent_acts;

use std::sync::Arc;

use crate::counting::Counts;
use crate::ledger::quota_ledger::Ledger;
use crate::migration::Migrations;
use crate::open_queues::OpenQueues;
use crate::pools::Pools;
use crate::quotas::QuotaCounts;
use crate::replica::LocalReplica;
use crate::slots::Slots;
use crate::transfer::MessageTransfers;

#[derive(Clone)]
pub(crate) struct Queues(pub(crate) Arc<QueuesParts>);

pub(crate) struct QueuesParts {
    pub(crate) replica: Arc<LocalReplica>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) slots: Slots,
    pub(crate) pools: Pools,
    pub(crate) quotas: QuotaCounts,
    pub(crate) open_queues: OpenQueues,
    pub(crate) transfers: MessageTransfers,
    pub(crate) migrations: Migrations,
    pub(crate) counting: Counts,
}

impl Queues {
    pub(crate) fn new(parts: QueuesParts) -> Self {
        Self(Arc::new(parts))
    }
}
