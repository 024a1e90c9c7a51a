//! TLS to the servers of an ensemble.
//!
//! The client's crate panics on a name that no certificate can have, and when a process has two providers of TLS and has
//! chosen none (zookeeper-client 0.11.2). So names are checked here, and the provider is installed, before a session is
//! made.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, Error as TlsError, RootCertStore};
use zookeeper_client::{Error as ZkError, TlsOptions};

use super::access::{AccessError, CertificateFiles};
use angarium_settings::files;

/// A server refuses a client certificate of TLS 1.3 only after the handshake, within this time.
const REFUSAL: Duration = Duration::from_secs(1);

/// How a handshake has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HandshakeFailure {
    /// Both sides speak TLS, and one of them has refused the other.
    Refused,
    /// The server has ended the connection, or answered in another protocol.
    OtherProtocol,
    /// The connection is broken.
    Broken,
}

impl HandshakeFailure {
    pub(super) fn of(error: &io::Error) -> Self {
        match error.get_ref().and_then(|cause| cause.downcast_ref::<TlsError>()) {
            Some(TlsError::InvalidMessage(_)) => Self::OtherProtocol,
            Some(_) => Self::Refused,
            None => match error.kind() {
                io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => Self::OtherProtocol,
                _ => Self::Broken,
            },
        }
    }
}

/// Certificates that fit together, ready for handshakes.
pub(super) struct Tls {
    authorities: String,
    /// The chain and the key.
    certificate: Option<(String, String)>,
    /// The same, for [`Tls::try_handshake`].
    config: Arc<ClientConfig>,
}

impl Tls {
    /// Reads the certificates that servers are checked with, and the client certificate if there is one.
    pub(super) fn read(
        authorities: &Path,
        certificate: Option<&CertificateFiles>,
    ) -> Result<Self, AccessError> {
        install_provider();
        let (authorities_text, roots) = read_authorities(authorities)?;
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| AccessError::file(authorities, error))?
            .with_root_certificates(roots);
        let Some(CertificateFiles { chain, key }) = certificate else {
            let config = Arc::new(builder.with_no_client_auth());
            return Ok(Self { authorities: authorities_text, certificate: None, config });
        };
        let (chain_text, key_text) = (read_pem(chain)?, read_pem(key)?);
        let own = certificates(chain, &chain_text)?;
        let secret = PrivateKeyDer::from_pem_slice(key_text.as_bytes())
            .map_err(|error| AccessError::file(key, format!("there is no key in it: {error}")))?;
        let config = builder
            .with_client_auth_cert(own, secret)
            .map_err(|error| AccessError::file(key, format!("with {}: {error}", chain.display())))?;
        let certificate = Some((chain_text, key_text));
        Ok(Self { authorities: authorities_text, certificate, config: Arc::new(config) })
    }

    pub(super) fn has_certificate(&self) -> bool {
        self.certificate.is_some()
    }

    /// Checks that a certificate can be for a server of this name.
    pub(super) fn check_host(host: &str) -> Result<(), AccessError> {
        match ServerName::try_from(host) {
            Ok(_) => Ok(()),
            Err(_) => Err(AccessError::Host(host.to_owned())),
        }
    }

    pub(super) fn options(&self) -> Result<TlsOptions, ZkError> {
        let options = TlsOptions::new().with_pem_ca(&self.authorities)?;
        match &self.certificate {
            Some((chain, key)) => options.with_pem_identity(chain, key),
            None => Ok(options),
        }
    }

    /// Performs a handshake, and waits a moment for the server's refusal of the client certificate.
    pub(super) async fn try_handshake(&self, host: &str, stream: TcpStream) -> io::Result<()> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let mut stream = TlsConnector::from(Arc::clone(&self.config)).connect(name, stream).await?;
        match tokio::time::timeout(REFUSAL, stream.read_u8()).await {
            Ok(Err(error)) => Err(error),
            Ok(Ok(_)) | Err(_) => Ok(()),
        }
    }
}

/// Returns whether a server answers a handshake with one of its own or with an alert. Its certificate is not checked.
pub(super) async fn answers_handshake(host: &str, stream: TcpStream) -> bool {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let (Ok(builder), Ok(name)) =
        (builder.with_safe_default_protocol_versions(), ServerName::try_from(host.to_owned()))
    else {
        return false;
    };
    let config = builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    match TlsConnector::from(Arc::new(config)).connect(name, stream).await {
        Ok(_) => true,
        Err(error) => HandshakeFailure::of(&error) == HandshakeFailure::Refused,
    }
}

/// Chooses the provider of this process if none is chosen: the client's crate brings a second one.
fn install_provider() {
    if CryptoProvider::get_default().is_none() {
        // Another thread may have been faster.
        let _ = ring::default_provider().install_default();
    }
}

fn read_pem(path: &Path) -> Result<String, AccessError> {
    files::read_text(path, files::POOL_FILE_BYTES).map_err(|error| AccessError::file(path, error))
}

fn certificates(path: &Path, text: &str) -> Result<Vec<CertificateDer<'static>>, AccessError> {
    let read = CertificateDer::pem_slice_iter(text.as_bytes()).collect::<Result<Vec<_>, _>>();
    match read {
        Ok(read) if read.is_empty() => Err(AccessError::file(path, "there is no certificate in it")),
        Ok(read) => Ok(read),
        Err(error) => Err(AccessError::file(path, error)),
    }
}

fn read_authorities(path: &Path) -> Result<(String, RootCertStore), AccessError> {
    let text = read_pem(path)?;
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path, &text)? {
        roots.add(certificate).map_err(|error| AccessError::file(path, error))?;
    }
    Ok((text, roots))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_a_certificate_are_refused() {
        for good in ["zk-1.internal", "localhost", "zk_1", "10.0.0.1", "::1"] {
            assert!(Tls::check_host(good).is_ok(), "{good}");
        }
        for bad in ["", "a..b", "-a", "a b", "a\u{e9}", "fe80::1%eth0", "1.2.3.4.5.", "*.internal", "[::1"] {
            assert!(Tls::check_host(bad).is_err(), "{bad}");
        }
    }

    /// With two of them in the process and none chosen, the client's crate would panic at its first session.
    #[test]
    fn provider_is_chosen_before_a_session() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Tls::read(&dir.path().join("none"), None).is_err());
        assert!(CryptoProvider::get_default().is_some());
    }

    #[test]
    fn files_without_certificates_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("empty"), "").unwrap();
        std::fs::write(path("garbage"), "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
            .unwrap();
        std::fs::write(path("binary"), [0xff, 0xfe]).unwrap();
        for (name, why) in [
            ("empty", "no certificate"),
            ("garbage", "invalid"),
            ("binary", "UTF-8"),
            ("none", "No such file"),
        ] {
            let error = Tls::read(&path(name), None).map(drop).unwrap_err().to_string();
            assert!(error.starts_with(path(name).to_str().unwrap()) && error.contains(why), "{error}");
        }
    }
}
