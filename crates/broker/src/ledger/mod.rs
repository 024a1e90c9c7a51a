//! The ledger: amounts that each account holds, and the room that is kept for changes under way.

pub(crate) mod accounts;
pub(crate) mod quota_ledger;
