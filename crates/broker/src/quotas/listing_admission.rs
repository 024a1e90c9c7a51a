//! Admission of listings that read many names: a listing with a filter may read all names of a project, and many at
//! once would starve other requests. The listings of one account run a few at a time. The bound is per account because
//! a client chooses the region, and with it the project.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use angarium_core::error::Error;
use angarium_core::limits;
use angarium_core::maps::HashMap;
use angarium_core::names::ProjectId;
use angarium_core::region::Accounts;

/// The listings that run and wait, by account.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListingAdmission(Arc<Mutex<HashMap<ProjectId, AccountListings>>>);

/// The listings of one account.
#[derive(Debug)]
struct AccountListings {
    /// Fair: in order of arrival.
    permits: Arc<Semaphore>,
    /// Number of listings that run or wait.
    length: usize,
}

/// A listing that runs or waits. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct ListingPermit {
    turns: ListingAdmission,
    account: ProjectId,
    _permit: Option<OwnedSemaphorePermit>,
}

impl ListingAdmission {
    /// Waits until a listing of `project` may run; it counts for the project's account. The listing may run until the
    /// permit is dropped.
    ///
    /// # Errors
    ///
    /// [`Error::TooMany`] at once, when too many wait already.
    pub(crate) async fn take(&self, project: &ProjectId, accounts: Accounts) -> Result<ListingPermit, Error> {
        let account = accounts.of(project);
        let permits = {
            let mut lines = self.0.lock();
            let line = lines.entry(account.clone()).or_insert_with(|| AccountListings {
                permits: Arc::new(Semaphore::new(limits::LISTINGS_AT_ONCE)),
                length: 0,
            });
            if line.length >= limits::LISTINGS_IN_LINE {
                let what = "listings of queues with filters, of one account at once";
                return Err(Error::TooMany { what, bound: limits::LISTINGS_IN_LINE });
            }
            line.length += 1;
            Arc::clone(&line.permits)
        };
        // From here on the drop of the permit removes the listing, also if the wait is canceled.
        let mut turn = ListingPermit { turns: self.clone(), account, _permit: None };
        turn._permit = permits.acquire_owned().await.ok();
        Ok(turn)
    }
}

impl Drop for ListingPermit {
    fn drop(&mut self) {
        let mut lines = self.turns.0.lock();
        let Some(line) = lines.get_mut(&self.account) else { return };
        line.length -= 1;
        if line.length == 0 {
            lines.remove(&self.account);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn project(name: &str) -> ProjectId {
        ProjectId::new(name).unwrap()
    }

    #[test]
    fn listings_of_one_account_hold_up_no_other() {
        let turns = ListingAdmission::default();
        let take = |name: &str| turns.take(&project(name), Accounts::Regions).now_or_never();
        let mut taken: Vec<_> = (0..limits::LISTINGS_AT_ONCE).map(|_| take("a").unwrap().unwrap()).collect();
        assert!(take("a").is_none(), "it has to wait");
        assert!(take("a@eu-west-1").is_none(), "the account has to wait");
        assert!(take("b").unwrap().is_ok());
        taken.pop();
        assert!(take("a").unwrap().is_ok());
    }

    #[test]
    fn listing_beyond_line_is_refused_and_line_is_forgotten() {
        let turns = ListingAdmission::default();
        let a = project("a");
        let mut waiting: Vec<_> =
            (0..limits::LISTINGS_IN_LINE).map(|_| Box::pin(turns.take(&a, Accounts::Regions))).collect();
        let taken: Vec<_> = waiting.iter_mut().map(|turn| turn.as_mut().now_or_never()).collect();
        assert_eq!(taken.iter().flatten().count(), limits::LISTINGS_AT_ONCE);
        let refused = turns.take(&a, Accounts::Regions).now_or_never().unwrap().unwrap_err();
        assert_eq!(refused.code(), "too_many");
        drop((taken, waiting));
        assert!(turns.0.lock().is_empty());
    }
}
