//! Work that no caller requests: every background task, and the follow-ups that slots note for the components above.

pub(crate) mod follow_ups;
pub(crate) mod list;
pub(crate) mod tree_time;

use std::sync::Arc;

use crate::balance::Balance;
use crate::claims::Claims;
use crate::counting::Counts;
use crate::health::Health;
use crate::holds::Holds;
use crate::messages::Messages;
use crate::migration::Migrations;
use crate::pools::Pools;
use crate::queues::Queues;
use crate::quotas::QuotaCounts;
use crate::redrive::Redrive;
use crate::replica::LocalReplica;
use crate::reports::Reports;
use crate::slots::Slots;
use crate::subscriptions::Subscriptions;
use crate::sweeps::Sweeps;
use crate::transfer::MessageTransfers;
use crate::webhooks::Webhooks;

/// Runs the background tasks of the components.
#[derive(Clone)]
pub(crate) struct Background(pub(crate) Arc<BackgroundParts>);

pub(crate) struct BackgroundParts {
    pub(crate) replica: Arc<LocalReplica>,
    pub(crate) slots: Slots,
    pub(crate) pools: Pools,
    pub(crate) quotas: QuotaCounts,
    pub(crate) holds: Holds,
    pub(crate) counting: Counts,
    pub(crate) claims: Claims,
    pub(crate) queues: Queues,
    pub(crate) webhooks: Webhooks,
    pub(crate) subscriptions: Subscriptions,
    pub(crate) redrive: Redrive,
    pub(crate) balance: Balance,
    pub(crate) sweeps: Sweeps,
    pub(crate) health: Health,
    pub(crate) reports: Reports,
    pub(crate) messages: Messages,
    pub(crate) transfers: MessageTransfers,
    pub(crate) migrations: Migrations,
}

impl Background {
    pub(crate) fn new(parts: BackgroundParts) -> Self {
        Self(Arc::new(parts))
    }
}
