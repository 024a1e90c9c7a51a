//! Permits of requests to webhooks. A replica sends a bounded number at the same time, and each account has a share: an
//! account whose webhooks do not answer holds up no other.

use std::sync::Arc;

use futures_util::FutureExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use angarium_core::error::{Error, Part};
use angarium_core::names::ProjectId;

use crate::limits;
use crate::quotas::QuotaCounts;
use crate::quotas::admission::AdmissionPermit;

pub(in crate::webhooks) struct RequestPermits {
    quotas: QuotaCounts,
    replica: Arc<Semaphore>,
}

/// A request that is being sent. It ends when this is dropped.
pub(in crate::webhooks) struct RequestPermit {
    _account: AdmissionPermit,
    _replica: OwnedSemaphorePermit,
}

impl RequestPermits {
    pub(in crate::webhooks) fn new(quotas: &QuotaCounts) -> Self {
        Self { quotas: quotas.clone(), replica: Arc::new(Semaphore::new(limits::WEBHOOK_REQUESTS)) }
    }

    /// Returns the account whose share the requests for `project` have.
    pub(in crate::webhooks) fn account_of(&self, project: &ProjectId) -> ProjectId {
        self.quotas.account_of(project)
    }

    /// Waits until a request for `project` may be sent.
    ///
    /// # Errors
    ///
    /// [`Error::TooMany`] at once, when more webhooks of the account wait than there are.
    pub(in crate::webhooks) async fn take(&self, project: &ProjectId) -> Result<RequestPermit, Error> {
        let account = self.quotas.admit_webhook(project).await?;
        let replica = Arc::clone(&self.replica).acquire_owned().await;
        let replica = replica.map_err(|_| Error::unavailable(Part::Server, "no more requests are sent"))?;
        Ok(RequestPermit { _account: account, _replica: replica })
    }

    /// Returns a permit if a request for `project` may be sent at once.
    pub(in crate::webhooks) fn try_take(&self, project: &ProjectId) -> Option<RequestPermit> {
        self.take(project).now_or_never()?.ok()
    }
}
