//! Redrive: tasks that move messages back or on, requeue or delete them, and transfers that an earlier owner has begun.

pub(crate) mod batch;
pub(crate) mod dry_run;
pub(crate) mod selected;
pub(crate) mod tasks;
pub(crate) mod unfinished;

use std::sync::Arc;

use crate::open_queues::OpenQueues;
use crate::queues::Queues;
use crate::quotas::QuotaCounts;
use crate::replica::LocalReplica;
use crate::slots::Slots;
use crate::stores::table::PoolTable;
use crate::transfer::MessageTransfers;

#[derive(Clone)]
pub(crate) struct Redrive(pub(crate) Arc<RedriveParts>);

pub(crate) struct RedriveParts {
    pub(crate) replica: Arc<LocalReplica>,
    pub(crate) stores: Arc<PoolTable>,
    pub(crate) slots: Slots,
    pub(crate) open_queues: OpenQueues,
    pub(crate) transfers: MessageTransfers,
    pub(crate) queues: Queues,
    pub(crate) quotas: QuotaCounts,
}

impl Redrive {
    pub(crate) fn new(parts: RedriveParts) -> Self {
        Self(Arc::new(parts))
    }
}
