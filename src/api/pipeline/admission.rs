//! Admission control: limits of requests and of long polls in progress, and the rate limit of each project. A request
//! beyond a limit is refused at once and never queued, so that its client can try another replica or repeat it later.

use std::collections::HashMap;
use std::net::IpAddr;

use axum::http::Extensions;
use axum::http::request::Parts;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::bodies::client_address;
use super::forward::peer::PeerOrigin;
use super::identity::{Identity, Sender};
use angarium_clock::Clock;
use angarium_core::error::Error;
use angarium_core::limits;
use angarium_core::names::ProjectId;
use angarium_core::network::customer;
use angarium_core::probe;
use angarium_core::rate::{Rate, RateUse};
use angarium_core::region::Accounts;
use angarium_core::source::ForwardedFor;

/// Paths that are served at any load: a supervisor that restarts a busy service makes the load worse, and its operator
/// needs the metrics.
const ALWAYS: [&str; 3] = [probe::LIVENESS, probe::READINESS[0], probe::METRICS];

/// Limits of concurrent requests, of the request rate and of memory.
#[derive(Clone, Copy, Debug)]
pub struct RequestLimits {
    /// Max requests in progress that do not wait for a message.
    pub requests: usize,
    /// Max requests in progress that may wait for a message.
    pub long_polls: usize,
    /// Max requests in progress, long polls included, of each address that a proxy names.
    pub per_address: usize,
    /// Max requests of a project per second; none: no limit.
    pub project_rate: Option<Rate>,
    /// Max bytes of request bodies in memory.
    pub body_bytes: usize,
}

/// Requests in progress, and the used rate of each project.
#[derive(Debug)]
pub struct AdmissionControl {
    limits: RequestLimits,
    requests: Semaphore,
    long_polls: Semaphore,
    /// Requests in progress of each address. The lock is held for one access to the map.
    counted: Mutex<HashMap<Counter, usize>>,
    /// Used rate of each project or account. The lock is held for one access to the map.
    used: Mutex<HashMap<ProjectId, RateUse>>,
    /// Maps a project to the account that its requests count for.
    accounts: Accounts,
    clock: Clock,
}

/// Key of a count of requests in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Counter {
    /// Requests of an address whose senders are not authenticated yet, by kind.
    Unproven(IpAddr, PlaceKind),
    /// Requests of an address that a proxy names; none: requests whose address cannot be read.
    Forwarded(Option<IpAddr>),
}

/// Kind of a request; each kind has its own limit of requests in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PlaceKind {
    /// A request that is answered as soon as its work is done.
    Request,
    /// A request that may wait for a message.
    LongPoll,
}

impl PlaceKind {
    /// Returns the kind of a REST request with this query: a long poll if `wait` is neither empty nor zero. The query
    /// is parsed as in the handler.
    pub fn of_query(query: &str) -> Self {
        let mut pairs = form_urlencoded::parse(query.as_bytes());
        let waits =
            pairs.any(|(name, seconds)| name == "wait" && !seconds.trim_start_matches('0').is_empty());
        if waits { Self::LongPoll } else { Self::Request }
    }
}

/// The place of a request among those in progress, until this is dropped.
#[derive(Debug)]
pub struct AdmissionPermit<'a> {
    place: SemaphorePermit<'a>,
    kind: PlaceKind,
    /// Set until the sender is authenticated.
    unproven: Option<CountedPlace<'a>>,
    /// Set when a proxy names the address of the client.
    _forwarded: Option<CountedPlace<'a>>,
}

impl AdmissionPermit<'_> {
    /// Whether the sender of the request is still to be authenticated.
    pub fn is_unproven(&self) -> bool {
        self.unproven.is_some()
    }
}

/// Whether admission control counts a request. It counts no probe, and no request that another replica forwards, which
/// that replica has admitted.
pub fn is_counted(head: &Parts) -> bool {
    head.extensions.get::<PeerOrigin>().is_none() && !ALWAYS.contains(&head.uri.path())
}

impl AdmissionControl {
    /// Creates admission control without requests in progress. Rates count for the accounts of `accounts`.
    pub fn new(limits: RequestLimits, accounts: Accounts, clock: Clock) -> Self {
        let places = |number: usize| Semaphore::new(number.min(Semaphore::MAX_PERMITS));
        let (requests, long_polls) = (places(limits.requests), places(limits.long_polls));
        let (counted, used) = (Mutex::default(), Mutex::default());
        Self { limits, requests, long_polls, counted, used, accounts, clock }
    }

    /// Admits a request if there is room for it. Its sender is authenticated, so its project is charged at once. With
    /// `is_signed` it has a signature that its handler checks; until then it counts as in [`Self::screen`], and never as
    /// a long poll.
    ///
    /// # Errors
    ///
    /// [`Error::Overloaded`] or [`Error::TooFast`].
    pub fn admit(
        &self,
        kind: PlaceKind,
        identity: &Identity,
        is_signed: bool,
        extensions: &Extensions,
    ) -> Result<AdmissionPermit<'_>, Error> {
        let kind = if is_signed { PlaceKind::Request } else { kind };
        let unproven = || self.unproven(kind, client_address(extensions));
        let unproven = is_signed.then(unproven).transpose()?;
        let forwarded = self.forwarded(extensions)?;
        let place = self.place(kind)?;
        // A client without a token cannot use up the rate of a project by naming it.
        if !identity.is_anonymous {
            self.spend(&identity.project)?;
        }
        Ok(AdmissionPermit { place, kind, unproven, _forwarded: forwarded })
    }

    /// Admits a request whose body is still to be read, if there is room for it. The project is not charged before
    /// [`Self::confirm`], because the stated `sender` may be false.
    ///
    /// # Errors
    ///
    /// [`Error::Overloaded`] or [`Error::TooFast`].
    pub fn screen(
        &self,
        kind: PlaceKind,
        sender: &Sender,
        extensions: &Extensions,
    ) -> Result<AdmissionPermit<'_>, Error> {
        self.check_rate(&sender.identity.project)?;
        let address = || client_address(extensions);
        let unproven = (!sender.proof.is_certain()).then(|| self.unproven(kind, address())).transpose()?;
        let forwarded = self.forwarded(extensions)?;
        Ok(AdmissionPermit { place: self.place(kind)?, kind, unproven, _forwarded: forwarded })
    }

    /// Charges a screened request to `project` after its sender was authenticated, and moves it to its kind, which the
    /// body has shown.
    ///
    /// # Errors
    ///
    /// [`Error::Overloaded`] or [`Error::TooFast`].
    pub fn confirm<'a>(
        &'a self,
        permit: AdmissionPermit<'a>,
        kind: PlaceKind,
        project: &ProjectId,
    ) -> Result<AdmissionPermit<'a>, Error> {
        self.spend(project)?;
        let place = if kind == permit.kind { permit.place } else { self.place(kind)? };
        Ok(AdmissionPermit { place, kind, unproven: None, ..permit })
    }

    /// Reserves a place for a request while it is in progress.
    fn place(&self, kind: PlaceKind) -> Result<SemaphorePermit<'_>, Error> {
        let places = match kind {
            PlaceKind::Request => &self.requests,
            PlaceKind::LongPoll => &self.long_polls,
        };
        places.try_acquire().map_err(|_| Error::Overloaded)
    }

    /// Counts a request from `address` whose sender is not authenticated yet, until the returned place is dropped. Such
    /// requests of one address take at most a quarter of the places, so a client that only names a key cannot take all
    /// places from clients that own one.
    ///
    /// # Errors
    ///
    /// [`Error::Overloaded`].
    fn unproven(&self, kind: PlaceKind, address: IpAddr) -> Result<CountedPlace<'_>, Error> {
        let places = match kind {
            PlaceKind::Request => self.limits.requests,
            PlaceKind::LongPoll => self.limits.long_polls,
        };
        self.count(Counter::Unproven(customer(address), kind), places / limits::UNPROVEN_PARTS)
    }

    /// Counts a request for the address that a trusted proxy names in `X-Forwarded-For`. Returns none without such a
    /// header: the connections of that address are bounded. All addresses that cannot be read count together.
    ///
    /// # Errors
    ///
    /// [`Error::Overloaded`].
    pub fn forwarded(&self, extensions: &Extensions) -> Result<Option<CountedPlace<'_>>, Error> {
        let Some(ForwardedFor(address)) = extensions.get().copied() else { return Ok(None) };
        self.count(Counter::Forwarded(address.map(customer)), self.limits.per_address).map(Some)
    }

    /// Counts one more request, up to `most`; one is always allowed.
    fn count(&self, counter: Counter, most: usize) -> Result<CountedPlace<'_>, Error> {
        let mut counted = self.counted.lock();
        let count = counted.entry(counter).or_default();
        if *count >= most.max(1) {
            return Err(Error::Overloaded);
        }
        *count += 1;
        Ok(CountedPlace { quota: self, counter })
    }

    /// Refuses a request if its project has used up its rate. Charges nothing, because the stated project may be false.
    fn check_rate(&self, project: &ProjectId) -> Result<(), Error> {
        let Some(rate) = self.limits.project_rate else { return Ok(()) };
        let before = self.used.lock().get(&self.accounts.of(project)).copied().unwrap_or_default();
        let after = rate.spend(before, self.clock.now());
        after.map(drop).ok_or(Error::TooFast { per_second: rate.per_second() })
    }

    /// Charges one request to the account of a project.
    fn spend(&self, project: &ProjectId) -> Result<(), Error> {
        let Some(rate) = self.limits.project_rate else { return Ok(()) };
        let project = &self.accounts.of(project);
        let now = self.clock.now();
        let mut used = self.used.lock();
        let before = used.get(project).copied().unwrap_or_default();
        let Some(after) = rate.spend(before, now) else {
            return Err(Error::TooFast { per_second: rate.per_second() });
        };
        if used.len() >= limits::RATED_PROJECTS && !used.contains_key(project) {
            used.retain(|_, used| !used.is_over(now));
        }
        // When so many projects are active within one second, the rate of a single one is not the cause of the load.
        if used.len() < limits::RATED_PROJECTS || used.contains_key(project) {
            used.insert(project.clone(), after);
        }
        Ok(())
    }
}

/// A request that counts for an address until this is dropped.
#[derive(Debug)]
pub struct CountedPlace<'a> {
    quota: &'a AdmissionControl,
    counter: Counter,
}

impl Drop for CountedPlace<'_> {
    fn drop(&mut self) {
        let mut counted = self.quota.counted.lock();
        if let Some(count) = counted.get_mut(&self.counter) {
            *count -= 1;
            if *count == 0 {
                counted.remove(&self.counter);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    fn quota(requests: usize, long_polls: usize, per_second: Option<u32>) -> (AdmissionControl, Clock) {
        let clock = Clock::manual(1_000);
        let project_rate = per_second.and_then(NonZeroU32::new).map(Rate::new);
        (
            AdmissionControl::new(
                RequestLimits { requests, long_polls, per_address: 2, project_rate, body_bytes: 0 },
                Accounts::Regions,
                clock.clone(),
            ),
            clock,
        )
    }

    fn project(name: &str) -> ProjectId {
        ProjectId::new(name).unwrap()
    }

    #[test]
    fn a_long_poll_names_a_time_to_wait() {
        for query in ["wait=1", "limit=2&wait=20", "wait=x", "w%61it=20", "wait=%32"] {
            assert_eq!(PlaceKind::of_query(query), PlaceKind::LongPoll, "{query}");
        }
        for query in ["", "wait=", "wait=0", "limit=2&wait=00", "await=1", "wait=%30"] {
            assert_eq!(PlaceKind::of_query(query), PlaceKind::Request, "{query}");
        }
    }

    #[test]
    fn requests_and_long_polls_have_places_of_their_own() {
        let (quota, _) = quota(1, 1, None);
        let request = quota.place(PlaceKind::Request).unwrap();
        assert!(matches!(quota.place(PlaceKind::Request), Err(Error::Overloaded)));
        let _poll = quota.place(PlaceKind::LongPoll).unwrap();
        assert!(matches!(quota.place(PlaceKind::LongPoll), Err(Error::Overloaded)));
        drop(request);
        assert!(quota.place(PlaceKind::Request).is_ok());
    }

    #[test]
    fn unproven_requests_of_one_address_take_a_quarter() {
        let (quota, _) = quota(8, 8, None);
        let from = |address: &str| quota.unproven(PlaceKind::Request, address.parse().unwrap());
        let first = from("2001:db8::1").unwrap();
        let second = from("2001:db8::2").unwrap();
        assert!(matches!(from("2001:db8::3"), Err(Error::Overloaded)), "one customer");
        assert!(from("2001:db8:0:1::1").is_ok());
        assert!(
            quota.unproven(PlaceKind::LongPoll, "2001:db8::1".parse().unwrap()).is_ok(),
            "long polls count apart"
        );
        drop(first);
        assert!(from("2001:db8::3").is_ok());
        drop(second);
        assert!(quota.counted.lock().is_empty());
    }

    #[test]
    fn forwarded_address_has_so_many_requests() {
        let (quota, _) = quota(8, 8, None);
        let from = |address: Option<&str>| {
            let mut extensions = Extensions::new();
            extensions.insert(ForwardedFor(address.map(|address| address.parse().unwrap())));
            quota.forwarded(&extensions)
        };
        let first = from(Some("203.0.113.1")).unwrap();
        let second = from(Some("203.0.113.1")).unwrap();
        assert!(matches!(from(Some("203.0.113.1")), Err(Error::Overloaded)));
        let other = from(Some("203.0.113.2")).unwrap();
        let unreadable = [from(None).unwrap(), from(None).unwrap()];
        assert!(matches!(from(None), Err(Error::Overloaded)));
        assert!(quota.forwarded(&Extensions::new()).unwrap().is_none(), "no proxy names an address");
        drop(first);
        let third = from(Some("203.0.113.1")).unwrap();
        drop((second, third, other, unreadable));
        assert!(quota.counted.lock().is_empty());
    }

    #[test]
    fn fast_project_stops_no_other() {
        let (quota, clock) = quota(1, 1, Some(2));
        assert!(quota.spend(&project("a")).is_ok());
        assert!(quota.spend(&project("a")).is_ok());
        assert!(matches!(quota.spend(&project("a")), Err(Error::TooFast { per_second: 2 })));
        assert!(matches!(quota.spend(&project("a@eu-west-1")), Err(Error::TooFast { .. })), "one account");
        assert!(quota.spend(&project("b")).is_ok());
        clock.advance(1_000);
        assert!(quota.spend(&project("a")).is_ok());
    }

    #[test]
    fn projects_at_rest_are_forgotten() {
        let (quota, clock) = quota(1, 1, Some(1));
        for number in 0..limits::RATED_PROJECTS {
            quota.spend(&project(&number.to_string())).unwrap();
        }
        quota.spend(&project("one more")).unwrap();
        assert_eq!(quota.used.lock().len(), limits::RATED_PROJECTS);
        clock.advance(2_000);
        quota.spend(&project("one more")).unwrap();
        assert_eq!(quota.used.lock().len(), 1);
    }
}
