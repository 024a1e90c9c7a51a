//! Admission of requests that read much: a listing with a filter may read all names of a project, a peek thousands of
//! messages, and many at once would starve other requests. Those of one account run a few at a time. The bound is per
//! account because a client chooses the region, and with it the project.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use angarium_core::error::Error;
use angarium_core::limits;
use angarium_core::maps::HashMap;
use angarium_core::names::ProjectId;
use angarium_core::region::Accounts;

use crate::limits as own_limits;

/// The bounds of one kind of request, for each account.
#[derive(Debug)]
pub(crate) struct AdmissionBounds {
    /// Max requests that run.
    pub(crate) at_once: usize,
    /// Max requests that run or wait.
    pub(crate) in_line: usize,
    /// The requests, as a refusal names them.
    pub(crate) name: &'static str,
}

impl AdmissionBounds {
    /// Listings of queues that may read all names of a project.
    pub(crate) const LISTINGS: Self = Self {
        at_once: limits::LISTINGS_AT_ONCE,
        in_line: limits::LISTINGS_IN_LINE,
        name: "listings of queues with filters, of one account at once",
    };
    /// Peeks at messages and dry runs of tasks.
    pub(crate) const PEEKS: Self = Self {
        at_once: limits::PEEKS_AT_ONCE,
        in_line: limits::PEEKS_IN_LINE,
        name: "peeks and dry runs, of one account at once",
    };
    /// Requests to webhooks. Each webhook waits for one.
    pub(crate) const WEBHOOKS: Self = Self {
        at_once: own_limits::WEBHOOK_ACCOUNT_REQUESTS,
        in_line: usize::MAX,
        name: "requests to webhooks, of one account at once",
    };
}

/// The requests of one kind that run and wait, by account.
#[derive(Clone, Debug)]
pub(crate) struct Admission {
    bounds: &'static AdmissionBounds,
    lines: Arc<Mutex<HashMap<ProjectId, AccountLine>>>,
}

/// The requests of one account.
#[derive(Debug)]
struct AccountLine {
    /// Fair: in order of arrival.
    permits: Arc<Semaphore>,
    /// Number of requests that run or wait.
    length: usize,
}

/// A request that runs or waits. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct AdmissionPermit {
    turns: Admission,
    account: ProjectId,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Admission {
    pub(crate) fn new(bounds: &'static AdmissionBounds) -> Self {
        Self { bounds, lines: Arc::default() }
    }

    /// Waits until a request of `project` may run; it counts for the project's account. It may run until the permit is
    /// dropped.
    ///
    /// # Errors
    ///
    /// [`Error::TooMany`] at once, when too many wait already.
    pub(crate) async fn take(
        &self,
        project: &ProjectId,
        accounts: Accounts,
    ) -> Result<AdmissionPermit, Error> {
        let account = accounts.of(project);
        let permits = {
            let mut lines = self.lines.lock();
            let line = lines.entry(account.clone()).or_insert_with(|| AccountLine {
                permits: Arc::new(Semaphore::new(self.bounds.at_once)),
                length: 0,
            });
            if line.length >= self.bounds.in_line {
                return Err(Error::TooMany { what: self.bounds.name, bound: self.bounds.in_line });
            }
            line.length += 1;
            Arc::clone(&line.permits)
        };
        // From here on the drop of the permit removes the request, also if the wait is canceled.
        let mut turn = AdmissionPermit { turns: self.clone(), account, _permit: None };
        turn._permit = permits.acquire_owned().await.ok();
        Ok(turn)
    }
}

impl Drop for AdmissionPermit {
    fn drop(&mut self) {
        let mut lines = self.turns.lines.lock();
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
        let turns = Admission::new(&AdmissionBounds::LISTINGS);
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
        let turns = Admission::new(&AdmissionBounds::LISTINGS);
        let a = project("a");
        let mut waiting: Vec<_> =
            (0..limits::LISTINGS_IN_LINE).map(|_| Box::pin(turns.take(&a, Accounts::Regions))).collect();
        let taken: Vec<_> = waiting.iter_mut().map(|turn| turn.as_mut().now_or_never()).collect();
        assert_eq!(taken.iter().flatten().count(), limits::LISTINGS_AT_ONCE);
        let refused = turns.take(&a, Accounts::Regions).now_or_never().unwrap().unwrap_err();
        assert_eq!(refused.code(), "too_many");
        drop((taken, waiting));
        assert!(turns.lines.lock().is_empty());
    }
}
