//! Transfers of messages between queues (P5): dead letters, redrives, and transfers that an earlier owner has begun.

pub(crate) mod arriving;
pub(crate) mod by_target;
pub(crate) mod lost_targets;
pub(crate) mod made_targets;
pub(crate) mod mover;
pub(crate) mod order;
pub(crate) mod paced;
pub(crate) mod peers;
pub(crate) mod publication;
pub(crate) mod remote;
pub(crate) mod sources;
pub(crate) mod without_target;

use std::sync::Arc;

use crate::open_queues::OpenQueues;
use crate::pools::Pools;
use crate::quotas::QuotaCounts;
use crate::replica::LocalReplica;
use crate::slots::Slots;
use crate::stores::table::PoolTable;
use crate::transfer::remote::TargetEpochs;

#[derive(Clone)]
pub(crate) struct MessageTransfers(pub(crate) Arc<MessageTransfersParts>);

pub(crate) struct MessageTransfersParts {
    pub(crate) replica: Arc<LocalReplica>,
    pub(crate) stores: Arc<PoolTable>,
    pub(crate) slots: Slots,
    pub(crate) pools: Pools,
    pub(crate) quotas: QuotaCounts,
    pub(crate) open_queues: OpenQueues,
    pub(crate) target_epochs: TargetEpochs,
}

impl MessageTransfers {
    pub(crate) fn new(parts: MessageTransfersParts) -> Self {
        Self(Arc::new(parts))
    }
}
