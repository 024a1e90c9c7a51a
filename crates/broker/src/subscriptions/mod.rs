//! Subscriptions of queues: create, confirm, look up, change, delete; and the end of those whose life has ended.
//!
//! A subscription is a queue in the slot and the pools of its source, which the posts to the source fill
//! ([`crate::slot::subscriptions`]). Its record is beside that of the source. A change holds the gate of the source, so
//! that memory has what the tree has.

pub(crate) mod change;
pub(crate) mod confirm;
pub(crate) mod create;
pub(crate) mod end;
pub(crate) mod fill;
pub(crate) mod lookup;

use std::sync::Arc;

use crate::ledger::quota_ledger::Ledger;
use crate::open_queues::OpenQueues;
use crate::pools::Pools;
use crate::queues::Queues;
use crate::quotas::QuotaCounts;
use crate::replica::LocalReplica;
use crate::slots::Slots;
use crate::webhooks::Webhooks;

#[derive(Clone)]
pub(crate) struct Subscriptions(pub(in crate::subscriptions) Arc<SubscriptionsParts>);

pub(crate) struct SubscriptionsParts {
    pub(crate) replica: Arc<LocalReplica>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) slots: Slots,
    pub(crate) pools: Pools,
    pub(crate) quotas: QuotaCounts,
    pub(crate) open_queues: OpenQueues,
    pub(crate) queues: Queues,
    pub(crate) webhooks: Webhooks,
}

impl Subscriptions {
    pub(crate) fn new(parts: SubscriptionsParts) -> Self {
        Self(Arc::new(parts))
    }
}
