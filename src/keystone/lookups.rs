//! Look-ups under way: one for all requests that bring the same token, so many at once, and a part of them for each address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{Shared, WeakShared};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::{Key, Validation};
use angarium_core::limits;

/// A look-up. The requests that wait for it drive it: it ends with the last of them.
type Lookup = Pin<Box<dyn Future<Output = Validation> + Send>>;

/// The look-ups of the clients of one address.
pub(super) type Line = Arc<Semaphore>;

/// Look-ups under way, and the requests that wait for them.
pub(super) struct Lookups {
    /// Places at Keystone.
    places: Semaphore,
    /// Held for single looks.
    lines: Mutex<Lines>,
    /// By token, each with its number. Held for single looks; no look-up is dropped under the lock.
    under_way: Arc<Mutex<UnderWay>>,
}

#[derive(Default)]
struct Lines {
    /// Requests that wait, of all addresses.
    waiting: usize,
    /// Those of each address, and its look-ups. An address without waiting requests has no entry.
    of_address: HashMap<IpAddr, (usize, Line)>,
}

#[derive(Default)]
struct UnderWay {
    next: u64,
    lookups: HashMap<Key, (u64, WeakShared<Lookup>)>,
}

/// A request that waits, until it is dropped.
pub(super) struct WaitingRequest<'a> {
    lookups: &'a Lookups,
    address: IpAddr,
    line: Line,
}

/// Places of a look-up among those of its address and among all, in this order.
pub(super) struct LookupPermit<'a> {
    _place: Option<SemaphorePermit<'a>>,
    _mine: Option<SemaphorePermit<'a>>,
}

/// Takes a look-up out of the table when it has ended or has been given up.
struct Entry {
    under_way: Arc<Mutex<UnderWay>>,
    key: Key,
    number: u64,
}

impl Default for Lookups {
    fn default() -> Self {
        Self {
            places: Semaphore::new(limits::KEYSTONE_LOOKUPS),
            lines: Mutex::default(),
            under_way: Arc::default(),
        }
    }
}

impl Lookups {
    /// Has a request of a client at `address` wait; none if too many do.
    pub(super) fn wait(&self, address: IpAddr) -> Option<WaitingRequest<'_>> {
        let mut lines = self.lines.lock();
        if lines.waiting >= limits::KEYSTONE_WAITING {
            return None;
        }
        let new = || (0, Arc::new(Semaphore::new(limits::KEYSTONE_LOOKUPS / limits::KEYSTONE_PARTS)));
        let (count, line) = lines.of_address.entry(address).or_insert_with(new);
        if *count >= limits::KEYSTONE_WAITING / limits::KEYSTONE_PARTS {
            return None;
        }
        *count += 1;
        let line = Arc::clone(line);
        lines.waiting += 1;
        Some(WaitingRequest { lookups: self, address, line })
    }

    /// Requests that wait.
    pub(super) fn waiting(&self) -> usize {
        self.lines.lock().waiting
    }

    /// Waits until a look-up may be made. The places of an address are taken first, so that each address
    /// has few look-ups that wait for a place among all.
    pub(super) async fn turn<'a>(&'a self, line: &'a Line) -> LookupPermit<'a> {
        let mine = line.acquire().await.ok();
        LookupPermit { _place: self.places.acquire().await.ok(), _mine: mine }
    }
}

impl WaitingRequest<'_> {
    /// The look-ups of its address.
    pub(super) fn line(&self) -> Line {
        Arc::clone(&self.line)
    }

    /// Waits for the look-up of a token: the one that is under way, or else `lookup`.
    pub(super) async fn join(self, key: Key, lookup: Lookup) -> Validation {
        let shared = self.lookups.shared(key, lookup);
        shared.await
    }
}

impl Lookups {
    fn shared(&self, key: Key, lookup: Lookup) -> Shared<Lookup> {
        let mut under_way = self.under_way.lock();
        let found = under_way.lookups.get(&key).and_then(|(_, lookup)| lookup.upgrade());
        if let Some(found) = found {
            return found;
        }
        let number = under_way.next;
        under_way.next += 1;
        let entry = Entry { under_way: Arc::clone(&self.under_way), key, number };
        let lookup: Lookup = Box::pin(async move {
            let _entry = entry;
            lookup.await
        });
        let shared = lookup.shared();
        if let Some(weak) = shared.downgrade() {
            under_way.lookups.insert(key, (number, weak));
        }
        shared
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut under_way = self.under_way.lock();
        // Another look-up of the token may have begun meanwhile.
        if under_way.lookups.get(&self.key).is_some_and(|(number, _)| *number == self.number) {
            under_way.lookups.remove(&self.key);
        }
    }
}

impl Drop for WaitingRequest<'_> {
    fn drop(&mut self) {
        let mut lines = self.lookups.lines.lock();
        lines.waiting -= 1;
        if let Some((count, _)) = lines.of_address.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                lines.of_address.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use futures_util::future::join_all;

    use super::*;
    use crate::keystone::Refusal;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    /// Waits for a look-up that takes a second and counts itself.
    async fn look_up(
        lookups: &Lookups,
        number: u8,
        from: u8,
        counts: &Arc<[AtomicUsize; 2]>,
    ) -> Option<Validation> {
        let waiting = lookups.wait(address(from))?;
        let counts = Arc::clone(counts);
        let lookup = async move {
            let now = counts[0].fetch_add(1, Ordering::SeqCst) + 1;
            counts[1].fetch_max(now, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_secs(1)).await;
            counts[0].fetch_sub(1, Ordering::SeqCst);
            Err(Refusal::Unknown)
        };
        Some(waiting.join([number; 32], Box::pin(lookup)).await)
    }

    #[tokio::test(start_paused = true)]
    async fn requests_with_one_token_share_a_look_up() {
        let (lookups, counts) = (Lookups::default(), Arc::default());
        let all = join_all((0..100).map(|_| look_up(&lookups, 7, 1, &counts))).await;
        assert!(all.iter().all(|answer| *answer == Some(Err(Refusal::Unknown))));
        assert_eq!(counts[1].load(Ordering::SeqCst), 1);
        assert!(lookups.under_way.lock().lookups.is_empty() && lookups.waiting() == 0);
    }

    #[tokio::test(start_paused = true)]
    async fn look_up_survives_its_first_request() {
        let (lookups, counts) = (Lookups::default(), Arc::default());
        let first = tokio::time::timeout(Duration::from_millis(500), look_up(&lookups, 7, 1, &counts));
        let (first, second) = tokio::join!(first, look_up(&lookups, 7, 2, &counts));
        assert!(first.is_err() && second == Some(Err(Refusal::Unknown)));
        assert_eq!(counts[1].load(Ordering::SeqCst), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn look_up_ends_with_the_last_request() {
        let (lookups, counts) = (Lookups::default(), Arc::default());
        let given_up = tokio::time::timeout(Duration::from_millis(500), look_up(&lookups, 7, 1, &counts));
        assert!(given_up.await.is_err());
        assert!(lookups.under_way.lock().lookups.is_empty() && lookups.waiting() == 0);
        assert!(lookups.lines.lock().of_address.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn one_address_waits_with_a_part_of_the_requests() {
        let (lookups, counts) = (Lookups::default(), Arc::default());
        let most = limits::KEYSTONE_WAITING / limits::KEYSTONE_PARTS;
        let waiting: Vec<_> = (0..most).filter_map(|_| lookups.wait(address(1))).collect();
        assert_eq!(waiting.len(), most);
        assert_eq!(look_up(&lookups, 7, 1, &counts).await, None);
        assert_eq!(look_up(&lookups, 7, 2, &counts).await, Some(Err(Refusal::Unknown)));
        drop(waiting);
        assert!(lookups.lines.lock().of_address.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn one_address_has_a_part_of_the_places() {
        let lookups = Lookups::default();
        let (greedy, other) = (lookups.wait(address(1)).unwrap(), lookups.wait(address(2)).unwrap());
        let part = limits::KEYSTONE_LOOKUPS / limits::KEYSTONE_PARTS;
        let line = greedy.line();
        let turns = join_all((0..part).map(|_| lookups.turn(&line))).await;
        let wait = Duration::from_secs(1);
        assert!(tokio::time::timeout(wait, lookups.turn(&line)).await.is_err());
        assert!(tokio::time::timeout(wait, lookups.turn(&other.line())).await.is_ok());
        drop(turns);
        assert!(tokio::time::timeout(wait, lookups.turn(&line)).await.is_ok());
    }
}
