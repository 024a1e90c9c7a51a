//! The ledger: amounts that each account holds, and amounts reserved for changes in progress.

pub(crate) mod accounts;
pub(crate) mod quota_ledger;
