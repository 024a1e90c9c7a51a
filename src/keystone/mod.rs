//! Keystone, OpenStack's identity service: the project and the role of a token's holder. The rules are those of
//! keystonemiddleware's `auth_token`.
//!
//! A token is looked up with the service's own token (`login`), by one request for all concurrent callers with that
//! token (`lookups`), and the answer is cached for a while (`memory`). A token that cannot be looked up is never
//! accepted. [`limits`] bounds the look-ups and the cache.

pub mod limits;
mod login;
mod lookups;
mod memory;
mod outage;
mod transport;
mod wire;

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::warn;

use angarium_clock::Clock;
use angarium_core::access::{Role, TokenHash};
use angarium_core::names::ProjectId;
use angarium_core::role_names::RoleNames;
use angarium_core::time::Timestamp;
use angarium_metrics::KeystoneFigures;
use login::Login;
pub use login::{Credentials, Secret};
use lookups::Lookups;
use memory::Memory;
use outage::{Outage, RepeatedEvent};
use transport::{Transport, Unusable};
use wire::Subject;

/// The reason for a failed look-up that Keystone answers with 401 also for a new token of the service.
const NEW_REFUSED: &str = "it answers 401 to a look-up with a new token of the service: it refuses the service's user, or that of the \
                           looked-up token";

/// The SHA-256 of a token, its key in the cache.
type Key = [u8; 32];

/// The address and the credentials of Keystone, and the interpretation of its answers.
#[derive(Debug)]
pub struct KeystoneOptions {
    /// The URL of Keystone, without the version and without a slash at the end.
    pub url: String,
    /// The credentials of the service.
    pub credentials: Credentials,
    /// The secret of the credentials, which may change while the service runs.
    pub secret: watch::Receiver<Arc<Secret>>,
    /// File with the certificates to trust instead of those of the system (PEM).
    pub ca: Option<PathBuf>,
    /// The roles of Keystone for each role of this service.
    pub roles: RoleNames,
    /// How long a validation is cached.
    pub cache_time: Duration,
    /// Max time of a look-up.
    pub timeout: Duration,
}

/// The holder of a valid token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenHolder {
    /// The project of the token; none if the token is for a domain, for the whole cloud, or unscoped.
    pub project: Option<ProjectId>,
    /// The highest of its roles; none when this service knows none of them.
    pub role: Option<Role>,
    /// The name of its user, at most [`limits::KEYSTONE_NAME_BYTES`] of it. It is for people, and proves nothing.
    pub name: Option<Arc<str>>,
    /// The expiry of the token, by the wall clock.
    expires: Timestamp,
}

/// The reason for refusing a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It does not have the form of a token; Keystone was not asked.
    Malformed,
    /// Keystone does not know it, or no longer.
    Unknown,
    Expired,
    /// Too many requests wait for look-ups, or this one has waited too long for a place: Keystone was not asked.
    Busy,
    /// Keystone could not be asked, or gave no usable answer.
    Unavailable,
    /// Keystone does not permit the service to look it up.
    NotAllowed,
}

/// The result of a validation.
type Validation = Result<TokenHolder, Refusal>;

/// Validates tokens. Clones share the cache.
#[derive(Clone)]
pub struct Keystone(Arc<Validator>);

struct Validator {
    transport: Arc<Transport>,
    login: Login,
    lookups: Lookups,
    /// Held for single accesses.
    memory: Mutex<Memory>,
    outage: Outage,
    /// Requests without a look-up in time.
    congestion: RepeatedEvent,
    /// Look-ups that the service's user may not make.
    forbidden: RepeatedEvent,
    roles: RoleNames,
    cache_time: Duration,
    timeout: Duration,
    clock: Clock,
    tally: Tally,
}

/// Counts of validations.
#[derive(Default)]
struct Tally {
    valid: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    not_allowed: AtomicU64,
    remembered_valid: AtomicU64,
    remembered_refused: AtomicU64,
}

impl fmt::Debug for Keystone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keystone")
    }
}

impl Keystone {
    /// Creates a validator with these options. Keystone gets no request before a client sends a token.
    ///
    /// # Errors
    ///
    /// A text, when the certificates or the address cannot be used.
    pub fn new(options: KeystoneOptions, clock: Clock) -> Result<Self, String> {
        let KeystoneOptions { url, credentials, secret, ca, roles, cache_time, timeout } = options;
        let transport = Arc::new(Transport::new(&url, ca.as_deref())?);
        Ok(Self(Arc::new(Validator {
            login: Login::new(credentials, secret, Arc::clone(&transport), timeout),
            transport,
            lookups: Lookups::default(),
            memory: Mutex::default(),
            outage: Outage::default(),
            congestion: RepeatedEvent::new(limits::KEYSTONE_LOG),
            forbidden: RepeatedEvent::new(limits::KEYSTONE_FORBIDDEN_LOG),
            roles,
            cache_time,
            timeout,
            clock,
            tally: Tally::default(),
        })))
    }

    /// Returns the holder of a cached token; none when Keystone must be asked.
    ///
    /// # Errors
    ///
    /// The cached refusal of a token; [`Refusal::Malformed`] when Keystone cannot be asked about it.
    pub fn remembered(&self, token: &str) -> Result<Option<TokenHolder>, Refusal> {
        let is_well_formed = !token.is_empty()
            && token.len() <= limits::KEYSTONE_TOKEN_BYTES
            && token.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_well_formed {
            return Err(Refusal::Malformed);
        }
        self.0.remembered(&TokenHash::of(token).to_bytes()).transpose()
    }

    /// Looks up the holder of a token for a client at `address`. Waits at most for the timeout of a look-up; a look-up
    /// that was sent continues without the request.
    pub async fn look_up(&self, token: &str, address: IpAddr) -> Result<TokenHolder, Refusal> {
        let (validator, key) = (Arc::clone(&self.0), TokenHash::of(token).to_bytes());
        let token = token.to_owned();
        let lookup = async move { validator.look_up_within(&key, &token).await };
        let answer = match self.0.lookups.wait(address) {
            // Boxed, because otherwise every request would reserve room for the state of a look-up.
            Some(waiting) => Box::pin(waiting.join(key, lookup, self.0.timeout)).await,
            None => Err(Refusal::Busy),
        };
        if answer == Err(Refusal::Busy)
            && let Some(left_out) = self.0.congestion.note()
        {
            warn!(waiting = self.0.lookups.waiting(), left_out, "keystone look-ups congested");
        }
        answer
    }

    /// Returns the figures of look-ups and the cache since the start.
    pub fn figures(&self) -> KeystoneFigures {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let tally = &self.0.tally;
        KeystoneFigures {
            valid: count(&tally.valid),
            refused: count(&tally.refused),
            failed: count(&tally.failed),
            not_allowed: count(&tally.not_allowed),
            remembered_valid: count(&tally.remembered_valid),
            remembered_refused: count(&tally.remembered_refused),
            known: self.0.memory.lock().len(),
            waiting: self.0.lookups.waiting(),
        }
    }
}

impl Validator {
    /// Returns the cached answer for a token. A token that was valid and has expired since is refused.
    fn remembered(&self, key: &Key) -> Option<Validation> {
        let answer = self.memory.lock().get(key, Instant::now())?;
        let answer = answer.and_then(|holder| self.unexpired(holder));
        let counter = match answer {
            Ok(_) => &self.tally.remembered_valid,
            Err(_) => &self.tally.remembered_refused,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        Some(answer)
    }

    fn unexpired(&self, holder: TokenHolder) -> Validation {
        if holder.expires > self.clock.wall() { Ok(holder) } else { Err(Refusal::Expired) }
    }

    /// Looks a token up within the timeout, and caches the answer.
    async fn look_up_within(&self, key: &Key, token: &str) -> Validation {
        let found = tokio::time::timeout(self.timeout, self.look_up(token)).await;
        let silent = || Unusable::Away(format!("there was no answer in {}", humane(self.timeout)));
        let found = found.unwrap_or_else(|_| Err(silent()));
        let answer = match found {
            Ok(found) => {
                self.outage.end();
                found.map_or(Err(Refusal::Unknown), |holder| self.unexpired(holder))
            }
            Err(Unusable::Away(why)) => {
                self.outage.note(&why);
                Err(Refusal::Unavailable)
            }
            // Keystone has answered, but the validity of the token is unknown.
            Err(Unusable::Forbidden) => {
                if let Some(left_out) = self.forbidden.note() {
                    warn!(left_out, "keystone user may not validate tokens");
                }
                Err(Refusal::NotAllowed)
            }
            Err(Unusable::Refused(why)) => {
                self.outage.note_refusal(why);
                Err(Refusal::NotAllowed)
            }
        };
        let counter = match answer {
            Ok(_) => &self.tally.valid,
            Err(Refusal::Unavailable) => &self.tally.failed,
            Err(Refusal::NotAllowed) => &self.tally.not_allowed,
            Err(_) => &self.tally.refused,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        self.remember(*key, &answer);
        answer
    }

    fn remember(&self, key: Key, answer: &Validation) {
        let time = match answer {
            Ok(holder) => {
                let left = holder.expires.as_millis().saturating_sub(self.clock.wall().as_millis());
                self.cache_time.min(Duration::from_millis(left))
            }
            Err(Refusal::Unknown | Refusal::Expired) => self.cache_time.min(limits::KEYSTONE_REFUSED),
            Err(Refusal::Malformed | Refusal::Busy | Refusal::Unavailable | Refusal::NotAllowed) => return,
        };
        if !time.is_zero() {
            let now = Instant::now();
            self.memory.lock().put(key, answer.clone(), now + time);
        }
    }

    /// Looks up a token's holder at Keystone; none when Keystone does not know the token (404). When Keystone refuses
    /// the service's own token (401), which happens when Keystone changes its keys early, another one is fetched once.
    /// If Keystone refuses that too, it refuses the service or the looked-up token, which is no outage. A user that may
    /// not validate the token (403) is no outage either, and a new token of that user would change nothing.
    async fn look_up(&self, token: &str) -> Result<Option<TokenHolder>, Unusable> {
        let mut is_renewed = false;
        loop {
            let own = self.login.token(&self.clock).await?;
            match self.transport.subject(token, own.header()).await? {
                Subject::Known(found) => return found.holder(&self.roles).map(Some).map_err(Unusable::Away),
                Subject::Unknown => return Ok(None),
                Subject::NotAllowed if is_renewed => {
                    self.login.note_new_refused();
                    return Err(Unusable::Refused(NEW_REFUSED));
                }
                Subject::NotAllowed => {
                    if !self.login.discard(&own) {
                        return Err(Unusable::Refused(NEW_REFUSED));
                    }
                    is_renewed = true;
                }
            }
        }
    }
}

/// Formats a duration for people.
fn humane(time: Duration) -> String {
    format!("{} s", time.as_secs_f64())
}
