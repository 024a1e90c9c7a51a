//! The service's own token, with which it asks Keystone: fetched when it is needed first, renewed in the background shortly before
//! it expires, fetched again when Keystone refuses it.

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

/// As whom the service asks Keystone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// A user in a project, by their names, with a password.
    Password { user: String, user_domain: String, project: String, project_domain: String },
    /// An application credential, by its id, with its secret.
    Application { id: String },
}

/// The password, or the secret of an application credential.
#[derive(PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Reads a file that holds it, and maybe a line break after it. An error has the name of the file.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = files::read_text(path, limits::KEYSTONE_SECRET_BYTES);
        let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
        let secret = text.trim_end_matches(['\r', '\n']);
        if secret.is_empty() {
            return Err(format!("{}: it has no secret of Keystone", path.display()));
        }
        Ok(Self(secret.to_owned()))
    }

    /// To be sent to Keystone, and shown nowhere.
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
    /// A token that Keystone has given.
    pub(super) fn new(mut header: HeaderValue, expires: Timestamp) -> Self {
        header.set_sensitive(true);
        Self { header, expires }
    }

    /// As it is sent.
    pub(super) fn header(&self) -> &HeaderValue {
        &self.header
    }
}

/// Fetches and keeps the service's token.
pub(super) struct Login(Arc<LoginParts>);

struct LoginParts {
    credentials: Credentials,
    secret: watch::Receiver<Arc<Secret>>,
    transport: Arc<Transport>,
    /// How long Keystone may take for a token.
    timeout: Duration,
    /// Held for single looks.
    state: Mutex<State>,
}

/// The outcome of a renewal, for all that wait for it.
type Renewal = Shared<Pin<Box<dyn Future<Output = Result<Arc<OwnToken>, Unusable>> + Send>>>;

#[derive(Default)]
struct State {
    token: Option<Arc<OwnToken>>,
    /// The task that fetches the next token, of which there is one at a time.
    renewal: Option<Renewal>,
    /// When Keystone refused the credentials, and with which secret.
    refused: Option<(Instant, Arc<Secret>)>,
    /// When Keystone refused a token that it had just given.
    new_refused: Option<Instant>,
}

/// Ends the renewal of a state, also when its task panics.
struct RenewalEnd(Arc<LoginParts>);

impl Drop for RenewalEnd {
    fn drop(&mut self) {
        self.0.state.lock().renewal = None;
    }
}

impl Login {
    /// Has no token yet.
    pub(super) fn new(
        credentials: Credentials,
        secret: watch::Receiver<Arc<Secret>>,
        transport: Arc<Transport>,
        timeout: Duration,
    ) -> Self {
        Self(Arc::new(LoginParts { credentials, secret, transport, timeout, state: Mutex::default() }))
    }

    /// A token of the service. One that expires soon is renewed in the background and used meanwhile, to its end if it cannot be
    /// replaced; only without a valid one Keystone is waited for.
    pub(super) async fn token(&self, clock: &Clock) -> Result<Arc<OwnToken>, Unusable> {
        let renewal = {
            let mut state = self.0.state.lock();
            let now = clock.wall();
            let kept = state.token.clone().filter(|token| token.expires > now);
            match kept {
                Some(token) => {
                    if token.expires <= now.plus_seconds(limits::KEYSTONE_RENEWAL) {
                        // Why there is none matters when this one has expired.
                        drop(self.0.renew(&mut state));
                    }
                    return Ok(token);
                }
                None => self.0.renew(&mut state)?,
            }
        };
        renewal.await
    }

    /// Forgets a token that Keystone refuses, unless it has been replaced meanwhile. Returns whether another one may help: not when
    /// a new one was refused a moment ago.
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

    /// Notes that Keystone refuses a token which it has just given.
    pub(super) fn note_new_refused(&self) {
        self.0.state.lock().new_refused = Some(Instant::now());
    }
}

impl LoginParts {
    /// Joins the renewal, or begins one unless Keystone has refused the credentials a moment ago.
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

    /// Fetches a token in a task: it does not end with the look-up that needed it first.
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
