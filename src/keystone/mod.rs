//! Keystone, OpenStack's identity service: whose a token is, and what its holder may do. The rules are those of
//! keystonemiddleware's `auth_token`.
//!
//! A token is looked up with the service's own token (`login`), by one request for all callers that bring the token at the same
//! time (`lookups`), and the answer is remembered for a while (`memory`). A token that cannot be looked up is never taken for valid.
//! How much is asked and remembered has bounds: [`limits`].

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

/// Why a look-up fails whose answer is 401 with a new token of the service too.
const NEW_REFUSED: &str = "it answers 401 to a look-up with a new token of the service: it refuses the service's user, or that of the \
                           looked-up token";

/// The SHA-256 of a token, by which it is remembered.
type Key = [u8; 32];

/// How Keystone is reached, and what its answers mean.
#[derive(Debug)]
pub struct KeystoneOptions {
    /// Where it is, without the version and a slash at the end.
    pub url: String,
    /// As whom the service asks.
    pub credentials: Credentials,
    /// Their secret, which may change while the service runs.
    pub secret: watch::Receiver<Arc<Secret>>,
    /// File of the certificates that are trusted in place of those of the system (PEM).
    pub ca: Option<PathBuf>,
    /// What its roles mean here.
    pub roles: RoleNames,
    /// How long a validation is remembered.
    pub cache_time: Duration,
    /// How long a look-up may take.
    pub timeout: Duration,
}

/// The holder of a valid token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenHolder {
    /// The project of the token; none when the token is for no project: for a domain, for the whole cloud, or for nothing.
    pub project: Option<ProjectId>,
    /// The greatest of its roles; none when no role of it counts here.
    pub role: Option<Role>,
    /// When it expires, by the wall clock.
    expires: Timestamp,
}

/// Why a token is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It has not the form of a token; Keystone was not asked.
    Malformed,
    /// Keystone does not know it, or does not any more.
    Unknown,
    Expired,
    /// Too many requests wait for look-ups, or this one has waited too long for its turn: Keystone was not asked.
    Busy,
    /// Keystone could not be asked, or has given no answer that can be used.
    Unavailable,
    /// Keystone does not let the service look it up.
    NotAllowed,
}

/// The outcome of a validation.
type Validation = Result<TokenHolder, Refusal>;

/// Validates tokens. Clones share all that is remembered.
#[derive(Clone)]
pub struct Keystone(Arc<Validator>);

struct Validator {
    transport: Arc<Transport>,
    login: Login,
    lookups: Lookups,
    /// Held for single looks.
    memory: Mutex<Memory>,
    outage: Outage,
    /// Requests for which there was no look-up in time.
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
    /// Validates tokens as the options say. Keystone is not asked before a request brings a token.
    ///
    /// # Errors
    ///
    /// In words, when the certificates or the address cannot be used.
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

    /// The holder of a token that is remembered; none when Keystone is to be asked.
    ///
    /// # Errors
    ///
    /// The remembered refusal of a token; [`Refusal::Malformed`] when Keystone cannot be asked about it.
    pub fn remembered(&self, token: &str) -> Result<Option<TokenHolder>, Refusal> {
        let is_well_formed = !token.is_empty()
            && token.len() <= limits::KEYSTONE_TOKEN_BYTES
            && token.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_well_formed {
            return Err(Refusal::Malformed);
        }
        self.0.remembered(&TokenHash::of(token).to_bytes()).transpose()
    }

    /// Asks Keystone for the holder of a token that a client at `address` has brought. Waits no longer than a look-up may take; a
    /// look-up that was sent continues without the request.
    pub async fn look_up(&self, token: &str, address: IpAddr) -> Result<TokenHolder, Refusal> {
        let (validator, key) = (Arc::clone(&self.0), TokenHash::of(token).to_bytes());
        let token = token.to_owned();
        let lookup = async move { validator.look_up_within(&key, &token).await };
        let answer = match self.0.lookups.wait(address) {
            // Apart, as every request would carry the room that a look-up needs.
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

    /// What was asked and remembered since the start.
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
    /// The cached answer for a token. A token that was valid and has expired since is refused.
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

    /// Looks a token up, no longer than that may take, and remembers the answer.
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
            // Keystone has answered. What the token is worth is not known.
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

    /// Asks Keystone for a token's holder; none when Keystone does not know the token (404). When Keystone refuses the service's
    /// own token (401), which a change of Keystone's keys does before its time, another one is fetched once; if it refuses that too, the
    /// service or the looked-up token is refused, which is no outage. Neither is a user that may not validate the token (403), where
    /// a new token of that user would change nothing.
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

/// A time for people.
fn humane(time: Duration) -> String {
    format!("{} s", time.as_secs_f64())
}
