//! The service's own token for requests to Keystone: fetched at the first use, renewed in the background shortly before
//! it expires, and fetched again when Keystone refuses it.

use std::fmt;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::Shared;
use http::HeaderValue;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::limits;
use super::transport::{Transport, Unusable};
use super::wire;
use angarium_clock::Clock;
use angarium_core::time::Timestamp;
use angarium_settings::files;

/// The credentials of the service at Keystone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// A user in a project, by name, with a password.
    Password { user: String, user_domain: String, project: String, project_domain: String },
    /// An application credential, by id, with its secret.
    Application { id: String },
}

/// The password, or the secret of an application credential.
#[derive(PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Reads a file with the secret, optionally followed by a line break. An error has the name of the file.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = files::read_text(path, limits::KEYSTONE_SECRET_BYTES);
        let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
        let secret = text.trim_end_matches(['\r', '\n']);
        if secret.is_empty() {
            return Err(format!("{}: it has no secret of Keystone", path.display()));
        }
        Ok(Self(secret.to_owned()))
    }

    /// Returns the secret, only to be sent to Keystone.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// A token of the service.
pub(super) struct OwnToken {
    header: HeaderValue,
    expires: Timestamp,
}

impl OwnToken {
    /// Creates a token that Keystone has issued.
    pub(super) fn new(mut header: HeaderValue, expires: Timestamp) -> Self {
        header.set_sensitive(true);
        Self { header, expires }
    }

    /// Returns the token as a header value.
    pub(super) fn header(&self) -> &HeaderValue {
        &self.header
    }
}

/// Fetches and caches the service's token.
pub(super) struct Login(Arc<LoginParts>);

struct LoginParts {
    credentials: Credentials,
    secret: watch::Receiver<Arc<Secret>>,
    transport: Arc<Transport>,
    /// Max time of a request for a token.
    timeout: Duration,
    /// Held for single accesses.
    state: Mutex<State>,
}

/// The result of a renewal, for all its waiters.
type Renewal = Shared<Pin<Box<dyn Future<Output = Result<Arc<OwnToken>, Unusable>> + Send>>>;

#[derive(Default)]
struct State {
    token: Option<Arc<OwnToken>>,
    /// The task that fetches the next token; there is at most one.
    renewal: Option<Renewal>,
    /// The time at which Keystone refused the credentials, and the refused secret.
    refused: Option<(Instant, Arc<Secret>)>,
    /// The time at which Keystone refused a token that it had just issued.
    new_refused: Option<Instant>,
}

/// Ends the renewal in a state, also when its task panics.
struct RenewalEnd(Arc<LoginParts>);

impl Drop for RenewalEnd {
    fn drop(&mut self) {
        self.0.state.lock().renewal = None;
    }
}

impl Login {
    /// Creates a login without a token.
    pub(super) fn new(
        credentials: Credentials,
        secret: watch::Receiver<Arc<Secret>>,
        transport: Arc<Transport>,
        timeout: Duration,
    ) -> Self {
        Self(Arc::new(LoginParts { credentials, secret, transport, timeout, state: Mutex::default() }))
    }

    /// Returns a token of the service. A token that expires soon is renewed in the background and stays in use, until
    /// its expiry if it cannot be replaced; a request waits for Keystone only if there is no valid token.
    pub(super) async fn token(&self, clock: &Clock) -> Result<Arc<OwnToken>, Unusable> {
        let renewal = {
            let mut state = self.0.state.lock();
            let now = clock.wall();
            let kept = state.token.clone().filter(|token| token.expires > now);
            match kept {
                Some(token) => {
                    if token.expires <= now.plus_seconds(limits::KEYSTONE_RENEWAL) {
                        // The reason for a failure matters only when this token has expired.
                        drop(self.0.renew(&mut state));
                    }
                    return Ok(token);
                }
                None => self.0.renew(&mut state)?,
            }
        };
        renewal.await
    }

    /// Discards a token that Keystone refuses, unless it was replaced meanwhile. Returns whether another token may
    /// help: it does not if a new one was refused recently.
    pub(super) fn discard(&self, refused: &Arc<OwnToken>) -> bool {
        let mut state = self.0.state.lock();
        if state.new_refused.is_some_and(|when| when.elapsed() < limits::KEYSTONE_LOGIN_PAUSE) {
            return false;
        }
        if state.token.as_ref().is_some_and(|token| Arc::ptr_eq(token, refused)) {
            state.token = None;
        }
        true
    }

    /// Records that Keystone refuses a token that it has just issued.
    pub(super) fn note_new_refused(&self) {
        self.0.state.lock().new_refused = Some(Instant::now());
    }
}

impl LoginParts {
    /// Joins the renewal, or begins one unless Keystone refused the credentials recently.
    fn renew(self: &Arc<Self>, state: &mut State) -> Result<Renewal, Unusable> {
        if let Some(renewal) = &state.renewal {
            return Ok(renewal.clone());
        }
        let secret = Arc::clone(&self.secret.borrow());
        if let Some((when, with)) = &state.refused
            && when.elapsed() < limits::KEYSTONE_LOGIN_PAUSE
            && *with == secret
        {
            return Err(Unusable::Refused("it has refused the service's credentials a moment ago"));
        }
        let renewal = Arc::clone(self).begin(secret);
        state.renewal = Some(renewal.clone());
        Ok(renewal)
    }

    /// Fetches a token in a task, which does not end with the look-up that needed it first.
    #[expect(
        clippy::disallowed_methods,
        reason = "it ends with its timeout, and nothing of the service waits for it"
    )]
    fn begin(self: Arc<Self>, secret: Arc<Secret>) -> Renewal {
        let task = tokio::spawn(async move {
            let end = RenewalEnd(self);
            end.0.fetch(secret).await
        });
        let ended = || Err(Unusable::Away("the request for the service's token was cut short".to_owned()));
        let renewal = async move { task.await.unwrap_or_else(|_| ended()) };
        (Box::pin(renewal) as Pin<Box<dyn Future<Output = _> + Send>>).shared()
    }

    async fn fetch(&self, secret: Arc<Secret>) -> Result<Arc<OwnToken>, Unusable> {
        let body = wire::authentication(&self.credentials, &secret);
        let fetched = timeout(self.timeout, self.transport.authenticate(body)).await;
        let silent = || Unusable::Away("it gives the service no token in time".to_owned());
        let token = fetched.map_err(|_| silent())??;
        let mut state = self.state.lock();
        state.refused = token.is_none().then(|| (Instant::now(), secret));
        let token = Arc::new(token.ok_or(Unusable::Refused("it refuses the service's credentials"))?);
        state.token = Some(Arc::clone(&token));
        Ok(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_is_a_file_without_its_line_break() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        assert!(Secret::read(&path).unwrap_err().contains("secret"));
        for (text, read) in [("s3cret\n", "s3cret"), (" two words ", " two words "), ("a\nb\r\n", "a\nb")] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(Secret::read(&path).unwrap().as_str(), read);
        }
        for empty in ["", "\n", "\r\n"] {
            std::fs::write(&path, empty).unwrap();
            assert!(Secret::read(&path).unwrap_err().contains("no secret"));
        }
        assert_eq!(format!("{:?}", Secret("hidden".to_owned())), "Secret");
    }
}
