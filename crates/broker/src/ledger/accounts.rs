//! The accounts of projects, and their quotas.

use std::sync::Arc;

use tokio::sync::watch;

use angarium_core::names::ProjectId;
use angarium_core::quota::QuotaTable;
use angarium_core::region::Accounts;

use crate::ledger::quota_ledger::Ledger;

impl Ledger {
    /// Returns the mapping of projects to accounts.
    pub(crate) fn accounts(&self) -> Accounts {
        self.quotas.borrow().accounts()
    }

    /// Returns the account to which the holdings of a project count.
    pub(crate) fn account_of(&self, project: &ProjectId) -> ProjectId {
        self.accounts().of(project)
    }
}

/// The current quotas; they may change.
pub type Quotas = watch::Receiver<Arc<QuotaTable>>;

/// Returns quotas without any bound.
pub(crate) fn unbounded() -> Quotas {
    watch::Sender::new(Arc::default()).subscribe()
}
