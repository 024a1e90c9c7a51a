//! Look-ups in progress, each in its own task: one for all requests with the same token, and a bounded number at a
//! time.
//!
//! ```text
//! request ──▶ look-up: queued ──place──▶ sent ──▶ finished: every request that waits has the answer
//!                        │ no request waits any more
//!                        └──▶ given up
//! ```
//!
//! A look-up that was sent keeps its place until Keystone has answered or the look-up has timed out, whether a request
//! waits for it or not, because Keystone works on it until then. The number of places and waiting requests of an
//! address depends on the number that others leave free ([`may_take`]); a place that becomes free is given to the
//! address with the fewest.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout_at};

use super::limits;
use super::{Key, Refusal, Validation};

/// A look-up that has its place.
type Lookup = Pin<Box<dyn Future<Output = Validation> + Send>>;

/// Look-ups in progress, and the requests that wait for them.
#[derive(Default)]
pub(super) struct Lookups {
    /// Held for single accesses. The lock of `under_way` is never acquired while this one is held.
    shares: Arc<Mutex<Shares>>,
    /// Look-ups by token. Held for single accesses.
    under_way: Arc<Mutex<UnderWay>>,
}

/// The places and waiting requests of all addresses.
#[derive(Default)]
struct Shares {
    /// Number of waiting requests.
    requests: usize,
    /// Number of used places at Keystone.
    places: usize,
    /// Shares by address. An address without requests, places and queued look-ups has no entry.
    of_address: HashMap<IpAddr, Share>,
    /// The number of the next queued look-up.
    next: u64,
}

/// The places and waiting requests of one address.
#[derive(Default)]
struct Share {
    requests: usize,
    places: usize,
    /// Look-ups without a place, with their numbers, the oldest first.
    queue: VecDeque<(u64, oneshot::Sender<LookupPlace>)>,
}

/// Whether an address that has `own` of the `taken` ones may take one more of `bound`. It may take as many as all
/// others leave free of three quarters; of the last quarter only its first one. So one address gets at most three
/// eighths, and there is one for another address, whatever the demand of a few others.
fn may_take(own: usize, taken: usize, bound: usize) -> bool {
    let shared = bound - bound / limits::KEYSTONE_RESERVE_PARTS;
    taken < bound && (own == 0 || own < shared.saturating_sub(taken))
}

/// The progress of a look-up.
#[derive(Clone, Debug)]
enum LookupState {
    /// It waits for a place.
    Queued,
    /// It was sent to Keystone.
    Sent,
    Finished(Validation),
}

#[derive(Default)]
struct UnderWay {
    next: u64,
    /// Look-ups with their numbers.
    lookups: HashMap<Key, (u64, Arc<watch::Sender<LookupState>>)>,
}

/// A waiting request, until this is dropped.
pub(super) struct WaitingRequest<'a> {
    lookups: &'a Lookups,
    address: IpAddr,
}

/// A place at Keystone, until this is dropped.
struct LookupPlace {
    /// None after the place was returned.
    shares: Option<Arc<Mutex<Shares>>>,
    address: IpAddr,
}

/// A look-up in the queue of its address.
struct QueueEntry {
    shares: Arc<Mutex<Shares>>,
    address: IpAddr,
    number: u64,
    place: oneshot::Receiver<LookupPlace>,
}

/// Removes a look-up from the table when it has ended or was given up.
struct TableEntry {
    under_way: Arc<Mutex<UnderWay>>,
    key: Key,
    number: u64,
}

impl Lookups {
    /// Registers a waiting request of a client at `address`; none if too many wait.
    pub(super) fn wait(&self, address: IpAddr) -> Option<WaitingRequest<'_>> {
        let mut shares = self.shares.lock();
        let own = shares.of_address.get(&address).map_or(0, |share| share.requests);
        if !may_take(own, shares.requests, limits::KEYSTONE_WAITING) {
            return None;
        }
        shares.requests += 1;
        shares.of_address.entry(address).or_default().requests += 1;
        Some(WaitingRequest { lookups: self, address })
    }

    /// Returns the number of waiting requests.
    pub(super) fn waiting(&self) -> usize {
        self.shares.lock().requests
    }

    /// Returns the state of the look-up of a token: of the one in progress, or else of `lookup`, which begins for a
    /// client at `address`.
    fn follow(&self, key: Key, address: IpAddr, lookup: Lookup) -> watch::Receiver<LookupState> {
        let mut under_way = self.under_way.lock();
        if let Some((_, state)) = under_way.lookups.get(&key) {
            return state.subscribe();
        }
        let number = under_way.next;
        under_way.next += 1;
        let (state, follower) = watch::channel(LookupState::Queued);
        let state = Arc::new(state);
        under_way.lookups.insert(key, (number, Arc::clone(&state)));
        drop(under_way);
        let entry = TableEntry { under_way: Arc::clone(&self.under_way), key, number };
        begin(run(state, entry, QueueEntry::new(&self.shares, address), lookup));
        follower
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "it ends with the timeout of its look-up, and nothing of the service waits for it"
)]
fn begin(lookup: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(lookup);
}

/// Runs a look-up once it has a place, if a request still waits for it then.
async fn run(
    state: Arc<watch::Sender<LookupState>>,
    entry: TableEntry,
    mut queued: QueueEntry,
    lookup: Lookup,
) {
    let place = loop {
        tokio::select! {
            biased;
            () = state.closed() => {
                if entry.remove_unfollowed(&state) {
                    return;
                }
            }
            Ok(place) = &mut queued.place => break place,
        }
    };
    drop(queued);
    state.send_replace(LookupState::Sent);
    let answer = lookup.await;
    drop(place);
    // The answer is cached already, so a request that arrives now finds it there.
    drop(entry);
    state.send_replace(LookupState::Finished(answer));
}

impl WaitingRequest<'_> {
    /// Waits for the look-up of a token: for the one in progress, or else for `lookup`. A look-up must be sent within
    /// half of `wait`, so that Keystone gets no look-up for a request that is about to give up.
    pub(super) async fn join(
        self,
        key: Key,
        lookup: impl Future<Output = Validation> + Send + 'static,
        wait: Duration,
    ) -> Validation {
        let began = Instant::now();
        let mut state = self.lookups.follow(key, self.address, Box::pin(lookup));
        let is_sent = |state: &LookupState| !matches!(state, LookupState::Queued);
        if timeout_at(began + wait / 2, state.wait_for(is_sent)).await.is_err() {
            return Err(Refusal::Busy);
        }
        let is_finished = |state: &LookupState| matches!(state, LookupState::Finished(_));
        // Without an answer, the look-up is late or its task has panicked.
        drop(timeout_at(began + wait, state.wait_for(is_finished)).await);
        match &*state.borrow() {
            LookupState::Finished(answer) => answer.clone(),
            LookupState::Queued | LookupState::Sent => Err(Refusal::Unavailable),
        }
    }
}

impl Shares {
    /// Takes the next look-up that may have a place out of its queue, and counts the place for its address.
    fn take_next(&mut self) -> Option<(IpAddr, oneshot::Sender<LookupPlace>)> {
        let taken = self.places;
        let may = |share: &Share| may_take(share.places, taken, limits::KEYSTONE_LOOKUPS);
        let queued = self.of_address.iter_mut().filter(|(_, share)| may(share));
        let queued = queued.filter_map(|(address, share)| {
            let oldest = share.queue.front()?.0;
            Some(((share.places, oldest), *address, share))
        });
        let (_, address, share) = queued.min_by_key(|(order, ..)| *order)?;
        let (_, sender) = share.queue.pop_front()?;
        share.places += 1;
        self.places += 1;
        Some((address, sender))
    }

    /// Changes the share of an address that has one.
    fn change(&mut self, address: IpAddr, change: impl FnOnce(&mut Share)) {
        let Some(share) = self.of_address.get_mut(&address) else { return };
        change(share);
        if share.requests == 0 && share.places == 0 && share.queue.is_empty() {
            self.of_address.remove(&address);
        }
    }
}

/// Gives free places to queued look-ups.
fn grant_places(shares: &Arc<Mutex<Shares>>) {
    loop {
        let next = shares.lock().take_next();
        let Some((address, sender)) = next else { return };
        let place = LookupPlace { shares: Some(Arc::clone(shares)), address };
        if let Err(mut unused) = sender.send(place) {
            unused.give_back();
        }
    }
}

impl QueueEntry {
    fn new(shares: &Arc<Mutex<Shares>>, address: IpAddr) -> Self {
        let (sender, place) = oneshot::channel();
        let mut all = shares.lock();
        let number = all.next;
        all.next += 1;
        all.of_address.entry(address).or_default().queue.push_back((number, sender));
        drop(all);
        grant_places(shares);
        Self { shares: Arc::clone(shares), address, number, place }
    }
}

impl Drop for QueueEntry {
    fn drop(&mut self) {
        let number = self.number;
        let remove = |share: &mut Share| share.queue.retain(|(queued, _)| *queued != number);
        self.shares.lock().change(self.address, remove);
    }
}

impl LookupPlace {
    fn give_back(&mut self) -> Option<Arc<Mutex<Shares>>> {
        let shares = self.shares.take()?;
        let mut all = shares.lock();
        all.places -= 1;
        all.change(self.address, |share| share.places -= 1);
        drop(all);
        Some(shares)
    }
}

impl Drop for LookupPlace {
    fn drop(&mut self) {
        if let Some(shares) = self.give_back() {
            grant_places(&shares);
        }
    }
}

impl TableEntry {
    /// Removes a look-up without waiting requests. Returns false if a request waits: requests join under the same lock.
    fn remove_unfollowed(&self, state: &watch::Sender<LookupState>) -> bool {
        let mut under_way = self.under_way.lock();
        let is_unfollowed = state.receiver_count() == 0;
        if is_unfollowed {
            self.remove(&mut under_way);
        }
        is_unfollowed
    }

    fn remove(&self, under_way: &mut UnderWay) {
        // Another look-up of the token may have begun meanwhile.
        if under_way.lookups.get(&self.key).is_some_and(|(number, _)| *number == self.number) {
            under_way.lookups.remove(&self.key);
        }
    }
}

impl Drop for TableEntry {
    fn drop(&mut self) {
        self.remove(&mut self.under_way.lock());
    }
}

impl Drop for WaitingRequest<'_> {
    fn drop(&mut self) {
        let mut shares = self.lookups.shares.lock();
        shares.requests -= 1;
        shares.change(self.address, |share| share.requests -= 1);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;

    use super::*;

    /// The places that one address gets while no other has any.
    const PLACES: usize = 12;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    /// Look-ups of one second each, and the number of those sent: current, max at once, and total.
    #[derive(Default)]
    struct Scene {
        lookups: Lookups,
        counts: Arc<[AtomicUsize; 3]>,
    }

    impl Scene {
        /// Waits for a look-up, at most for `wait`.
        async fn look_up_within(&self, number: u8, from: u8, wait: Duration) -> Option<Validation> {
            let waiting = self.lookups.wait(address(from))?;
            let counts = Arc::clone(&self.counts);
            let lookup = async move {
                let now = counts[0].fetch_add(1, Ordering::SeqCst) + 1;
                counts[1].fetch_max(now, Ordering::SeqCst);
                counts[2].fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_secs(1)).await;
                counts[0].fetch_sub(1, Ordering::SeqCst);
                Err(Refusal::Unknown)
            };
            Some(waiting.join([number; 32], lookup, wait).await)
        }

        async fn look_up(&self, number: u8, from: u8) -> Option<Validation> {
            self.look_up_within(number, from, Duration::from_secs(60)).await
        }

        fn counts(&self) -> [usize; 3] {
            [0, 1, 2].map(|count| self.counts[count].load(Ordering::SeqCst))
        }

        fn is_empty(&self) -> bool {
            let shares = self.lookups.shares.lock();
            let is_empty = shares.of_address.is_empty() && (shares.requests, shares.places) == (0, 0);
            is_empty && self.lookups.under_way.lock().lookups.is_empty()
        }
    }

    const UNKNOWN: Option<Validation> = Some(Err(Refusal::Unknown));
    const MOMENT: Duration = Duration::from_millis(100);

    #[tokio::test(start_paused = true)]
    async fn requests_with_one_token_share_a_look_up() {
        let scene = Scene::default();
        let all = join_all((0..100).map(|_| scene.look_up(7, 1))).await;
        assert!(all.iter().all(|answer| *answer == UNKNOWN));
        assert_eq!(scene.counts(), [0, 1, 1]);
        assert!(scene.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn look_up_survives_its_first_request() {
        let scene = Scene::default();
        let first = tokio::time::timeout(MOMENT, scene.look_up(7, 1));
        let (first, second) = tokio::join!(first, scene.look_up(7, 2));
        assert!(first.is_err() && second == UNKNOWN);
        assert_eq!(scene.counts(), [0, 1, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn sent_look_up_has_its_place_without_requests() {
        let scene = Scene::default();
        for round in 0..4 {
            let leaving = (0..30).map(|number| scene.look_up(round * 30 + number, 1));
            let left = tokio::time::timeout(MOMENT, join_all(leaving)).await;
            assert!(left.is_err());
        }
        assert_eq!(scene.counts(), [PLACES; 3], "no client that leaves makes room for another look-up");
        assert_eq!(scene.lookups.waiting(), 0);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(scene.counts(), [0, PLACES, PLACES], "queued look-ups end with their last request");
        assert!(scene.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn late_queue_is_busy_and_late_keystone_unavailable() {
        let scene = Scene::default();
        let wait = Duration::from_millis(500);
        let requests = (0..30).map(|number| scene.look_up_within(number, 1, wait));
        let answers = join_all(requests).await;
        let count = |refusal| answers.iter().filter(|answer| **answer == Some(Err(refusal))).count();
        assert_eq!((count(Refusal::Unavailable), count(Refusal::Busy)), (PLACES, 30 - PLACES));
    }

    #[tokio::test(start_paused = true)]
    async fn further_address_may_always_wait() {
        let scene = Scene::default();
        let mut waiting: Vec<_> = std::iter::from_fn(|| scene.lookups.wait(address(0))).collect();
        assert_eq!(waiting.len(), limits::KEYSTONE_WAITING * 3 / 8);
        for greedy in 1..=255 {
            waiting.extend(std::iter::from_fn(|| scene.lookups.wait(address(greedy))));
            assert!(scene.lookups.wait(IpAddr::from([198, 51, 100, 1])).is_some(), "{greedy} others");
        }
        drop(waiting);
        assert!(scene.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn further_address_has_a_place_beside_greedy_ones() {
        let scene = Scene::default();
        let greedy = (0..80).map(|number| scene.look_up(number, number % 5));
        let other = async {
            tokio::time::sleep(MOMENT).await;
            scene.look_up_within(200, 100, Duration::from_millis(1_100)).await
        };
        let (_, other) = tokio::join!(join_all(greedy), other);
        assert_eq!(other, UNKNOWN);
        assert!(scene.counts()[1] <= limits::KEYSTONE_LOOKUPS && scene.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn free_place_is_for_the_address_with_fewest() {
        let scene = Scene::default();
        // All places are taken, and every address has more look-ups in its queue.
        let greedy = (0..60).map(|number| scene.look_up(number, 0));
        let first = greedy.chain((0..40).map(|number| scene.look_up(100 + number, 1 + number % 20)));
        let late = async {
            tokio::time::sleep(MOMENT).await;
            assert_eq!(scene.counts()[0], limits::KEYSTONE_LOOKUPS);
            scene.look_up_within(200, 100, Duration::from_secs(2)).await
        };
        let (_, late) = tokio::join!(join_all(first), late);
        assert_eq!(late, UNKNOWN, "it has one of the places that become free first");
    }
}
