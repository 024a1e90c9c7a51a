//! Access to an ensemble: the identity of the service there, and TLS. Both are files, which are read for each session.
//!
//! The identity is a set of logins, a client certificate, or both. ZooKeeper gives a session one id for each, and the
//! nodes that the session creates grant all rights to each of these ids.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error as ThisError;
use zookeeper_client::{Client, Connector, Error as ZkError, SaslOptions};

use super::address::Address;
use super::tls::Tls;
use angarium_settings::files;

/// Max bytes of the file of logins.
const FILE_BYTES: u64 = 64 << 10;
/// Max number of logins: an old one and a new one of each kind, and some more. Each is part of the ACL of each node.
const LOGINS: usize = 8;
/// Max bytes of a user's name or a password.
const WORD_BYTES: usize = 256;

/// The files with the identity of the service at ZooKeeper, and with the certificates of the servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessFiles {
    /// The logins, one a line.
    pub logins: Option<PathBuf>,
    /// The certificates that the servers' certificates are checked with (PEM). Without it there is no TLS.
    pub authorities: Option<PathBuf>,
    /// The client certificate.
    pub certificate: Option<CertificateFiles>,
}

/// The files of a certificate with its chain, and of its key (PEM).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate, then its issuers.
    pub chain: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// Errors of the files, and of the address that they are used with. No text has a secret.
#[derive(Debug, ThisError)]
pub enum AccessError {
    /// A file cannot be read, or has not the form that it needs.
    #[error("{file}: {why}", file = .file.display())]
    File {
        /// The path of the file.
        file: PathBuf,
        /// The cause.
        why: String,
    },
    /// No certificate can be for a server of this name.
    #[error("with TLS a server of ZooKeeper has a host name or an IP address, and {0:?} is neither")]
    Host(String),
    /// A client certificate is sent over TLS only.
    #[error("a client certificate for ZooKeeper needs the certificates that its servers are checked with")]
    NoAuthorities,
}

impl AccessError {
    pub(super) fn file(path: &Path, why: impl ToString) -> Self {
        Self::File { file: path.to_owned(), why: why.to_string() }
    }
}

/// The contents of the files.
pub(super) struct Access {
    logins: Vec<Login>,
    tls: Option<Tls>,
}

impl AccessFiles {
    /// Reads the files, and checks that they fit together and to the address.
    pub fn check(&self, address: &Address) -> Result<(), AccessError> {
        self.read(address).map(drop)
    }

    /// Returns whether sessions have an identity, so that nodes can be closed to all others.
    pub fn name_an_identity(&self) -> bool {
        self.logins.is_some() || self.certificate.is_some()
    }

    pub(super) fn read(&self, address: &Address) -> Result<Access, AccessError> {
        let logins = match &self.logins {
            Some(path) => read_logins(path)?,
            None => Vec::new(),
        };
        let tls = match (&self.authorities, &self.certificate) {
            (Some(authorities), certificate) => {
                for host in address.host_names() {
                    Tls::check_host(host)?;
                }
                Some(Tls::read(authorities, certificate.as_ref())?)
            }
            (None, Some(_)) => return Err(AccessError::NoAuthorities),
            (None, None) => None,
        };
        Ok(Access { logins, tls })
    }
}

impl Access {
    /// Connects a new session.
    pub(super) async fn connect(&self, address: &Address, timeout: Duration) -> Result<Client, ZkError> {
        let mut connector = Client::connector().with_session_timeout(timeout);
        for login in &self.logins {
            connector = login.with(connector);
        }
        match &self.tls {
            Some(tls) => connector.with_tls(tls.options()?).secure_connect(&address.hosts()).await,
            None => connector.connect(&address.hosts()).await,
        }
    }

    /// Returns whether ZooKeeper authenticates the sessions.
    pub(super) fn has_identity(&self) -> bool {
        !self.logins.is_empty() || self.tls.as_ref().is_some_and(Tls::has_certificate)
    }

    pub(super) fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }
}

/// A user with its password, and how the two are proven.
#[derive(Clone, PartialEq, Eq)]
enum Login {
    /// ZooKeeper's `digest` scheme: the password is sent as it is.
    Digest { user: String, password: String },
    /// SASL with DIGEST-MD5. A session has one such login.
    Sasl { user: String, password: String },
}

impl Login {
    fn with(&self, connector: Connector) -> Connector {
        match self {
            Self::Digest { user, password } => {
                connector.with_auth("digest", format!("{user}:{password}").as_bytes())
            }
            Self::Sasl { user, password } => {
                connector.with_sasl(SaslOptions::digest_md5(user.clone(), password.clone()))
            }
        }
    }
}

impl FromStr for Login {
    type Err = &'static str;

    fn from_str(line: &str) -> Result<Self, Self::Err> {
        let form = "a login is 'digest USER:PASSWORD' or 'sasl USER:PASSWORD'";
        let (scheme, login) = line.split_once(' ').ok_or(form)?;
        let (user, password) = login.trim().split_once(':').ok_or(form)?;
        // The form of DIGEST-MD5 has quotes around names, and the client escapes none in them.
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\');
        for word in [user, password] {
            if word.is_empty() || word.len() > WORD_BYTES {
                return Err("the user and the password of a login have 1 to 256 bytes each");
            }
            if !word.bytes().all(is_plain) {
                return Err(
                    "the user and the password of a login have letters, digits and signs of ASCII, but no \
                     quotation mark, backslash or space",
                );
            }
        }
        let (user, password) = (user.to_owned(), password.to_owned());
        match scheme {
            "digest" => Ok(Self::Digest { user, password }),
            "sasl" => Ok(Self::Sasl { user, password }),
            _ => Err(form),
        }
    }
}

fn read_logins(path: &Path) -> Result<Vec<Login>, AccessError> {
    let text = files::read_text(path, FILE_BYTES).map_err(|error| AccessError::file(path, error))?;
    let mut logins: Vec<Login> = Vec::new();
    for (number, line) in (1..).zip(text.lines().map(str::trim)) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |why: &str| AccessError::file(path, format!("line {number}: {why}"));
        let login: Login = line.parse().map_err(wrong)?;
        let is_sasl = |login: &Login| matches!(login, Login::Sasl { .. });
        if is_sasl(&login) && logins.iter().any(is_sasl) {
            return Err(wrong("a session can have one login of SASL"));
        }
        if logins.len() == LOGINS {
            return Err(wrong("there are more than 8 logins"));
        }
        logins.push(login);
    }
    if logins.is_empty() { Err(AccessError::file(path, "there is no login in it")) } else { Ok(logins) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("logins");
        std::fs::write(&path, text).unwrap();
        read_logins(&path).map(|logins| logins.len()).unwrap_err().to_string()
    }

    #[test]
    fn logins_are_read_line_by_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("logins");
        std::fs::write(&path, "# new, old\n\ndigest a:b:c\n  digest a:d  \r\nsasl e:f#\n").unwrap();
        let read = read_logins(&path).unwrap();
        let digest =
            |user: &str, password: &str| Login::Digest { user: user.into(), password: password.into() };
        let sasl = Login::Sasl { user: "e".into(), password: "f#".into() };
        assert!(read == [digest("a", "b:c"), digest("a", "d"), sasl]);
    }

    #[test]
    fn bad_logins_are_refused_without_their_words() {
        for (text, why) in [
            ("", "no login"),
            ("# digest a:b", "no login"),
            ("digest hidden", "line 1: a login is"),
            ("hidden:hidden", "line 1: a login is"),
            ("kerberos a:hidden", "line 1: a login is"),
            ("\ndigest :hidden", "line 2: the user and the password of a login have 1 to 256"),
            ("digest a:", "have 1 to 256"),
            ("sasl a:hid\"den", "no quotation mark"),
            ("sasl a:hidden\\", "no quotation mark"),
            ("digest a b:hidden", "no quotation mark"),
            ("digest ä:hidden", "no quotation mark"),
            ("sasl a:b\nsasl c:hidden", "line 2: a session can have one login of SASL"),
            (&"digest a:hidden\n".repeat(9), "line 9: there are more than 8"),
            (&format!("digest a:{}", "hidden".repeat(50)), "have 1 to 256"),
        ] {
            let found = refusal(text);
            assert!(found.contains(why) && !found.contains("hidden"), "{text:?}: {found}");
        }
    }

    #[test]
    fn missing_file_is_named() {
        let files = AccessFiles { logins: Some("/no/such/file".into()), ..AccessFiles::default() };
        let error = files.check(&"zookeeper://a".parse().unwrap()).unwrap_err().to_string();
        assert!(error.starts_with("/no/such/file: No such file"), "{error}");
    }
}
