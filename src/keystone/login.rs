//! The service's own token, with which it asks Keystone: fetched when it is needed first, kept until shortly before it expires,
//! fetched again when Keystone refuses it.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use http::HeaderValue;
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;

use super::transport::{Transport, Unusable};
use super::wire;
use angarium_clock::Clock;
use angarium_core::limits;
use angarium_core::time::Timestamp;
use angarium_settings::files;

/// As whom the service asks Keystone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// A user in a project, by their names, with a password.
    Password {
        /// The user.
        user: String,
        /// The domain of the user.
        user_domain: String,
        /// The project.
        project: String,
        /// The domain of the project.
        project_domain: String,
    },
    /// An application credential, by its id, with its secret.
    Application {
        /// Its id.
        id: String,
    },
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
pub(super) struct Login {
    credentials: Credentials,
    secret: watch::Receiver<Arc<Secret>>,
    /// Held while a token is fetched, so that one is fetched for all who need it.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    token: Option<Arc<OwnToken>>,
    /// When Keystone refused the credentials, and with which secret.
    refused: Option<(Instant, Arc<Secret>)>,
}

impl Login {
    /// Has no token yet.
    pub(super) fn new(credentials: Credentials, secret: watch::Receiver<Arc<Secret>>) -> Self {
        Self { credentials, secret, state: Mutex::default() }
    }

    /// A token of the service that is valid for a while yet. One that cannot be replaced is used to its end.
    pub(super) async fn token(
        &self,
        transport: &Transport,
        clock: &Clock,
    ) -> Result<Arc<OwnToken>, Unusable> {
        let mut state = self.state.lock().await;
        let now = clock.wall();
        let kept = state.token.clone().filter(|token| token.expires > now);
        if let Some(token) = &kept
            && token.expires > now.plus_seconds(limits::KEYSTONE_RENEWAL)
        {
            return Ok(Arc::clone(token));
        }
        match self.fetch(&mut state, transport).await {
            Ok(token) => Ok(state.token.insert(Arc::new(token)).clone()),
            Err(error) => kept.ok_or(error),
        }
    }

    /// Forgets a token that Keystone refuses, unless it has been replaced meanwhile.
    pub(super) async fn discard(&self, refused: &Arc<OwnToken>) {
        let mut state = self.state.lock().await;
        if state.token.as_ref().is_some_and(|token| Arc::ptr_eq(token, refused)) {
            state.token = None;
        }
    }

    async fn fetch(&self, state: &mut State, transport: &Transport) -> Result<OwnToken, Unusable> {
        let secret = Arc::clone(&self.secret.borrow());
        if let Some((when, with)) = &state.refused
            && when.elapsed() < limits::KEYSTONE_LOGIN_PAUSE
            && *with == secret
        {
            return Err(Unusable::Away("it has refused the service's credentials a moment ago".to_owned()));
        }
        let body = wire::authentication(&self.credentials, &secret);
        let token = transport.authenticate(body).await?;
        state.refused = token.is_none().then(|| (Instant::now(), secret));
        token.ok_or_else(|| Unusable::Away("it refuses the service's credentials".to_owned()))
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
