//! Claims: creation, renewal, split, release, listing, expiry; receipts (SQS).

pub(crate) mod attempts;
mod change_wait;
pub(crate) mod create;
pub(crate) mod expiry;
pub(crate) mod list;
pub(crate) mod receipts;
pub(crate) mod release;
pub(crate) mod renewal;
pub(crate) mod settle;
mod settle_targets;
pub(crate) mod spent;
pub(crate) mod split;

use std::sync::Arc;

use crate::open_queues::OpenQueues;
use crate::quotas::QuotaCounts;
use crate::replica::LocalReplica;
use crate::slots::Slots;

#[derive(Clone)]
pub(crate) struct Claims(pub(crate) Arc<ClaimsParts>);

pub(crate) struct ClaimsParts {
    pub(crate) replica: Arc<LocalReplica>,
    pub(crate) slots: Slots,
    pub(crate) open_queues: OpenQueues,
    pub(crate) quotas: QuotaCounts,
}

impl Claims {
    pub(crate) fn new(parts: ClaimsParts) -> Self {
        Self(Arc::new(parts))
    }
}
