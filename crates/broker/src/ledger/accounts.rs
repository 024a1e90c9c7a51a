//! How projects belong to accounts, and the quotas of these.

use std::sync::Arc;

use tokio::sync::watch;

use angarium_core::names::ProjectId;
use angarium_core::quota::QuotaTable;
use angarium_core::region::Accounts;

use crate::ledger::quota_ledger::Ledger;

impl Ledger {
    /// How projects belong to accounts.
    pub(crate) fn accounts(&self) -> Accounts {
        self.quotas.borrow().accounts()
    }

    /// The account that what a project holds counts for.
    pub(crate) fn account_of(&self, project: &ProjectId) -> ProjectId {
        self.accounts().of(project)
    }
}

/// The quotas as they are now.
pub type Quotas = watch::Receiver<Arc<QuotaTable>>;

/// Quotas that bound no caller.
pub(crate) fn unbounded() -> Quotas {
    watch::Sender::new(Arc::default()).subscribe()
}
