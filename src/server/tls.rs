//! TLS on the public port: the certificate and its key, and which protocol a client chose.
//! Never looks into a request. The handshake has the time of a connection's first byte.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::server::TlsStream;

use angarium_settings::files;

/// The name of HTTP/2 in the negotiation of protocols (RFC 7301).
const H2: &[u8] = b"h2";

/// A certificate with its key, ready for handshakes.
#[derive(Debug)]
pub struct Credentials(Arc<ServerConfig>);

impl Credentials {
    /// Reads a chain of certificates, the server's own first, and the key of that one, both in PEM.
    ///
    /// # Errors
    ///
    /// What is wrong, with the file it is wrong in: also a key of another certificate.
    pub fn read(certificates: &Path, key: &Path) -> Result<Self, String> {
        let read = |path: &Path| {
            let read = files::read(path, files::SETTINGS_FILE_BYTES);
            read.map_err(|error| format!("{}: {error}", path.display()))
        };
        let chain = CertificateDer::pem_slice_iter(&read(certificates)?)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| format!("{}: {error}", certificates.display()))?;
        if chain.is_empty() {
            return Err(format!("{}: there is no certificate in it", certificates.display()));
        }
        let secret = PrivateKeyDer::from_pem_slice(&read(key)?)
            .map_err(|error| format!("{}: {error}", key.display()))?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_no_client_auth()
            .with_single_cert(chain, secret)
            .map_err(|error| format!("{} and {}: {error}", certificates.display(), key.display()))?;
        config.alpn_protocols = vec![H2.to_vec(), b"http/1.1".to_vec()];
        Ok(Self(Arc::new(config)))
    }
}

/// What is between the socket and HTTP.
#[derive(Clone, Debug)]
pub enum Transport {
    /// Nothing: HTTP/1.1 in the clear.
    Plain,
    /// TLS with these credentials, which may change: a connection keeps those that it began with.
    Tls(watch::Receiver<Arc<Credentials>>),
}

/// The protocol that a client chose in the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1, also for who chose nothing.
    Http1,
    Http2,
}

/// Shakes hands with a client within `max_wait`.
pub async fn shake_hands<T: AsyncRead + AsyncWrite + Unpin>(
    stream: T,
    credentials: &Credentials,
    max_wait: Duration,
) -> io::Result<(TlsStream<T>, Protocol)> {
    let acceptor = TlsAcceptor::from(Arc::clone(&credentials.0));
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, format!("no handshake within {max_wait:?}"));
    let stream = tokio::time::timeout(max_wait, acceptor.accept(stream)).await.map_err(late)??;
    let is_h2 = stream.get_ref().1.alpn_protocol() == Some(H2);
    Ok((stream, if is_h2 { Protocol::Http2 } else { Protocol::Http1 }))
}
