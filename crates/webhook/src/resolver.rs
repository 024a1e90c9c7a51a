//! The seam of names.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, ToSocketAddrs as _};
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::limits::{ACCOUNT_LOOKUPS, LOOKUPS};

/// Resolves names of subscribers.
#[async_trait]
pub trait Resolver: Send + Sync {
    /// Returns all addresses of a name, for a subscription of `account`. It is called once for each connection, never for
    /// an address.
    async fn resolve(&self, name: &str, account: &str) -> io::Result<Vec<IpAddr>>;
}

/// The resolver of the system. At most [`LOOKUPS`] look-ups run at once, and [`ACCOUNT_LOOKUPS`] of one account; others
/// wait within their deadline.
#[derive(Debug, Default)]
pub struct SystemResolver {
    permits: LookupPermits,
}

#[async_trait]
impl Resolver for SystemResolver {
    async fn resolve(&self, name: &str, account: &str) -> io::Result<Vec<IpAddr>> {
        let permit = self.permits.take(account).await?;
        let name = name.to_owned();
        let lookup = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let addresses = (name.as_str(), 0).to_socket_addrs()?;
            Ok(addresses.map(|address| address.ip()).collect())
        });
        lookup.await.map_err(io::Error::other)?
    }
}

/// Permits of look-ups. An account whose names are not answered holds up no other.
#[derive(Debug)]
struct LookupPermits {
    all: Arc<Semaphore>,
    /// The permits of each account with look-ups that run or wait, and of some without.
    accounts: Mutex<BTreeMap<String, Weak<Semaphore>>>,
}

/// A look-up that runs. The system cannot be interrupted, so it is held until the system answers, also if its delivery
/// has ended.
#[derive(Debug)]
struct LookupPermit {
    _account: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

impl Default for LookupPermits {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(LOOKUPS)), accounts: Mutex::default() }
    }
}

impl LookupPermits {
    /// Waits until a look-up of an account may run. Look-ups that wait for others of their account wait in no other's way.
    async fn take(&self, account: &str) -> io::Result<LookupPermit> {
        let own = self.of_account(account).acquire_owned().await.map_err(io::Error::other)?;
        let all = Arc::clone(&self.all).acquire_owned().await.map_err(io::Error::other)?;
        Ok(LookupPermit { _account: own, _all: all })
    }

    fn of_account(&self, account: &str) -> Arc<Semaphore> {
        let mut accounts = self.accounts.lock();
        if let Some(known) = accounts.get(account).and_then(Weak::upgrade) {
            return known;
        }
        accounts.retain(|_, known| known.strong_count() > 0);
        let made = Arc::new(Semaphore::new(ACCOUNT_LOOKUPS));
        accounts.insert(account.to_owned(), Arc::downgrade(&made));
        made
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn lookups_of_one_account_hold_up_no_other() {
        let permits = LookupPermits::default();
        let take = async |account: &str| timeout(Duration::from_secs(1), permits.take(account)).await.ok();
        let mut held = Vec::new();
        for _ in 0..ACCOUNT_LOOKUPS {
            held.push(take("slow").await.unwrap().unwrap());
        }
        assert!(take("slow").await.is_none(), "it has its share");
        let other = take("other").await.unwrap().unwrap();
        held.pop();
        held.push(take("slow").await.unwrap().unwrap());
        drop((held, other));
        drop(take("third").await);
        assert_eq!(permits.accounts.lock().len(), 1, "accounts without look-ups are forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn lookups_of_all_accounts_are_bounded() {
        let permits = LookupPermits::default();
        let take = async |account: String| timeout(Duration::from_secs(1), permits.take(&account)).await.ok();
        let mut held = Vec::new();
        for number in 0..LOOKUPS {
            held.push(take(number.to_string()).await.unwrap().unwrap());
        }
        assert!(take("one more".to_owned()).await.is_none());
        held.pop();
        assert!(take("one more".to_owned()).await.is_some());
    }
}
