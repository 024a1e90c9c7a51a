//! Quotas of accounts: counting holdings, reserving room, and admission of requests that read much.

pub(crate) mod admission;
pub(crate) mod counting;
pub(crate) mod observed;
pub(crate) mod regional_projects;

use std::sync::Arc;

use angarium_core::error::Error;
use angarium_core::names::ProjectId;

use crate::ledger::quota_ledger::Ledger;
use crate::pools::Pools;
use crate::quotas::admission::{Admission, AdmissionPermit};
use crate::quotas::regional_projects::RegionalProjects;
use crate::replica::LocalReplica;
use crate::slots::Slots;
use crate::stores::table::PoolTable;

#[derive(Clone)]
pub(crate) struct QuotaCounts(pub(crate) Arc<QuotaCountsParts>);

pub(crate) struct QuotaCountsParts {
    pub(crate) replica: Arc<LocalReplica>,
    pub(crate) stores: Arc<PoolTable>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) slots: Slots,
    pub(crate) pools: Pools,
    pub(crate) regional_projects: RegionalProjects,
    pub(crate) listing_turns: Admission,
    pub(crate) peek_turns: Admission,
    pub(crate) webhook_turns: Admission,
}

impl QuotaCounts {
    pub(crate) fn new(parts: QuotaCountsParts) -> Self {
        Self(Arc::new(parts))
    }

    /// Waits until a listing of `project` may run; it counts for the project's account. The listing may run until the
    /// permit is dropped.
    ///
    /// # Errors
    ///
    /// [`Error::TooMany`] at once, when too many wait already.
    pub(crate) async fn admit_listing(&self, project: &ProjectId) -> Result<AdmissionPermit, Error> {
        self.0.listing_turns.take(project, self.0.ledger.accounts()).await
    }

    /// As [`admit_listing`](Self::admit_listing), for a peek or the dry run of a task.
    pub(crate) async fn admit_peek(&self, project: &ProjectId) -> Result<AdmissionPermit, Error> {
        self.0.peek_turns.take(project, self.0.ledger.accounts()).await
    }

    /// Returns the account of a project.
    pub(crate) fn account_of(&self, project: &ProjectId) -> ProjectId {
        self.0.ledger.account_of(project)
    }

    /// As [`admit_listing`](Self::admit_listing), for a request to a webhook.
    pub(crate) async fn admit_webhook(&self, project: &ProjectId) -> Result<AdmissionPermit, Error> {
        self.0.webhook_turns.take(project, self.0.ledger.accounts()).await
    }
}
