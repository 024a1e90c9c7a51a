//! TLS on the public port: the certificate and its key, and the negotiated protocol. This module never reads a request.
//! The handshake has the time limit of a connection's first byte.

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

use super::peers::PeerGate;
use angarium_settings::files;

/// The name of HTTP/2 in the protocol negotiation (ALPN, RFC 7301).
const H2: &[u8] = b"h2";

/// A certificate with its key, ready for handshakes.
#[derive(Debug)]
pub struct Credentials(Arc<ServerConfig>);

impl Credentials {
    /// Reads a certificate chain, the server's own certificate first, and its key, both in PEM.
    ///
    /// # Errors
    ///
    /// The error and its file; also when the key belongs to another certificate.
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

/// The layer between the socket and HTTP.
#[derive(Clone, Debug)]
pub enum Transport {
    /// None: HTTP/1.1 without TLS.
    Plain,
    /// TLS with these credentials, which may change: a connection keeps the credentials of its handshake.
    Tls(watch::Receiver<Arc<Credentials>>),
    /// Mutual TLS with other replicas, and clear text with those whose program knows none.
    Peers(PeerGate),
}

/// The protocol that a client chose in the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1, also if the client chose nothing.
    Http1,
    Http2,
}

/// Performs the handshake with a client within `max_wait`.
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
