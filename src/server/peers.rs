//! The listener for the other replicas, separate from that for clients, its advertised address, and the connections that
//! it admits. A service on the embedded tree has none.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;
use tokio_util::sync::CancellationToken;
use tower::Service;
use tracing::{debug, info};

use super::StartError;
use super::addresses::Addresses;
use super::exchange::App;
use super::face::FaceError;
use super::limits::{PEER_HEADER_BYTES, PEER_HEADER_FIELDS};
use super::listener::ConnectionLimits;
use super::reload::Reloader;
use crate::config::{Config, TreeChoice};
use angarium_broker::Broker;
use angarium_cluster::identity::PeerIdentity;
use angarium_cluster::limits::{PEER_CERTIFICATE_LEAD, PEER_UNPROVEN};
use angarium_cluster::peers::MOVED;
use angarium_cluster::tls::PeerTls;
use angarium_cluster::trust::{PeerProof, PeerTrust};
use angarium_core::limits;
use angarium_settings::files;

/// The bound peer listener.
pub(super) struct PeerListener {
    pub(super) listener: TcpListener,
    /// The address that the other replicas use.
    pub(super) address: String,
}

impl PeerListener {
    /// Binds the peer address of the settings; none for a service with one replica.
    pub(super) async fn bind(config: &Config, host: &str) -> Result<Option<Self>, StartError> {
        let TreeChoice::ZooKeeper(_) = config.coordination else { return Ok(None) };
        let wanted = config.cluster.peer_listen.unwrap_or(SocketAddr::new(config.listen.ip(), 0));
        let failed = |source| StartError::Listen { address: wanted, setting: "--peer-listen", source };
        let listener = TcpListener::bind(wanted).await.map_err(failed)?;
        let address = match &config.cluster.advertise {
            Some(address) => address.clone(),
            None => reached_at(&listener, host).map_err(failed)?,
        };
        Ok(Some(Self { listener, address }))
    }
}

/// The certificate that this process shows to the others at its start, and the ones that follow when its files change.
pub(super) struct PeerCertificate {
    pub(super) first: PeerIdentity,
    /// None for one that the process has made.
    pub(super) renewed: Option<watch::Receiver<Arc<PeerIdentity>>>,
}

impl PeerCertificate {
    /// Reads the files of the settings, or makes a certificate when they name none.
    pub(super) fn open(config: &Config, reloader: &mut Reloader) -> Result<Self, StartError> {
        let (Some(certificate), Some(key)) = (&config.cluster.peer_cert, &config.cluster.peer_key) else {
            let first = PeerIdentity::generate().map_err(StartError::Certificate)?;
            return Ok(Self { first, renewed: None });
        };
        let from = (certificate.clone(), key.clone());
        let read = move || read_identity(&from.0, &from.1);
        let renewed = reloader.watch("--peer-cert or --peer-key", &[certificate, key], read);
        let renewed = renewed.map_err(FaceError::from)?;
        let first = PeerIdentity::clone(&renewed.borrow());
        Ok(Self { first, renewed: Some(renewed) })
    }
}

fn read_identity(certificate: &Path, key: &Path) -> Result<PeerIdentity, String> {
    let read = |path: &Path| {
        let read = files::read(path, files::SETTINGS_FILE_BYTES);
        read.map_err(|error| format!("{}: {error}", path.display()))
    };
    let identity = PeerIdentity::from_pem(&read(certificate)?, &read(key)?);
    identity.map_err(|error| format!("{} and {}: {error}", certificate.display(), key.display()))
}

/// Shows each renewed certificate after the other replicas have learned of it. Its connections stay. Ends when no
/// certificate can follow.
pub(super) async fn renew_certificate(
    broker: Broker,
    tls: PeerTls,
    mut renewed: watch::Receiver<Arc<PeerIdentity>>,
) {
    while renewed.changed().await.is_ok() {
        let identity = Arc::clone(&renewed.borrow_and_update());
        let fingerprint = identity.fingerprint();
        if fingerprint == tls.fingerprint() {
            continue;
        }
        while let Err(error) = broker.publish_certificate(fingerprint).await {
            debug!(error = %error.detail(), "certificate not published");
            tokio::time::sleep(PUBLISH_AGAIN).await;
        }
        tokio::time::sleep(PEER_CERTIFICATE_LEAD).await;
        tls.show(&identity);
        info!(%fingerprint, "certificate for replicas replaced");
    }
}

/// The first byte of a handshake in TLS (RFC 8446, section 5.1). No request begins with it.
const HANDSHAKE: u8 = 22;

/// The peer listener, its handshakes, and the certificates that follow the first one.
pub(super) struct PeerFace {
    pub(super) listener: TcpListener,
    pub(super) tls: PeerTls,
    pub(super) renewed: Option<watch::Receiver<Arc<PeerIdentity>>>,
}

/// A connection of a replica: in clear text from an older program, or in TLS.
type PeerStream = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// Pause before another attempt to publish a certificate.
const PUBLISH_AGAIN: Duration = Duration::from_secs(1);
/// Max time for the sender to read that answer.
const REFUSAL: Duration = Duration::from_secs(1);

/// The handshakes of the peer listener, and its connections without a proof yet.
#[derive(Clone, Debug)]
pub struct PeerGate {
    tls: PeerTls,
    unproven: Addresses,
}

impl PeerGate {
    /// Creates a gate over these handshakes.
    pub fn new(tls: PeerTls) -> Self {
        Self { tls, unproven: Addresses::new(PEER_UNPROVEN) }
    }

    /// Returns the replicas that are admitted.
    pub(super) fn trust(&self) -> &PeerTrust {
        self.tls.trust()
    }
}

/// Admits a connection within `max_wait`, and returns how it has shown that it is one of a replica.
pub(super) async fn admit(
    stream: TcpStream,
    gate: &PeerGate,
    from: IpAddr,
    max_wait: Duration,
) -> io::Result<(PeerStream, PeerProof)> {
    let tls = &gate.tls;
    let many = || io::Error::new(io::ErrorKind::QuotaExceeded, "its address has too many without a proof");
    let _place = gate.unproven.admit(from).ok_or_else(many)?;
    let admitting = async {
        let mut first = [0];
        if stream.peek(&mut first).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if first[0] == HANDSHAKE {
            let (stream, proof) = tls.accept(stream).await?;
            return Ok((Either::Right(Box::new(stream)), proof));
        }
        if tls.trust().admits(PeerProof::ClearText) {
            return Ok((Either::Left(stream), PeerProof::ClearText));
        }
        refuse_clear_text(stream).await;
        Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is in clear text"))
    };
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, format!("nothing is shown within {max_wait:?}"));
    tokio::time::timeout(max_wait, admitting).await.map_err(late)?
}

/// An app that adds the proof of their connection to its requests.
#[derive(Clone, Debug)]
pub(super) struct ProvenApp<A> {
    /// The app that answers.
    pub(super) app: A,
    /// How the connection has shown that it is one of a replica.
    pub(super) proof: PeerProof,
}

impl<A: App> Service<Request<Body>> for ProvenApp<A> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = A::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.app.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> A::Future {
        request.extensions_mut().insert(self.proof);
        self.app.call(request)
    }
}

/// Returns the answer to a request in clear text that is not admitted: nothing was done, and its sender looks again where
/// to send it. A replica takes this one for an older program until it has read the registry.
fn refusal() -> String {
    format!(
        "HTTP/1.1 421 Misdirected Request\r\n{MOVED}: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
    )
}

/// Answers a request that is not read. A connection that is closed with unread bytes would be reset, and the answer lost.
async fn refuse_clear_text(mut stream: TcpStream) {
    let refusing = async {
        stream.write_all(refusal().as_bytes()).await?;
        stream.shutdown().await?;
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await
    };
    let _ = tokio::time::timeout(REFUSAL, refusing).await;
}

/// Serves a connection to its end. When its proof ends, `until` ends it after the request in progress.
pub(super) async fn serve_while_admitted<T>(
    serving: impl Future<Output = T>,
    trust: &PeerTrust,
    proof: PeerProof,
    until: CancellationToken,
) -> T {
    let ended = async {
        trust.ended(proof).await;
        until.cancel();
        std::future::pending::<Infallible>().await
    };
    tokio::select! {
        biased;
        served = serving => served,
        never = ended => match never {},
    }
}

/// Returns the address by which others reach a listener: its own, or `host` if it listens on all interfaces.
pub(super) fn reached_at(listener: &TcpListener, host: &str) -> std::io::Result<String> {
    let address = listener.local_addr()?;
    Ok(if address.ip().is_unspecified() { format!("{host}:{}", address.port()) } else { address.to_string() })
}

/// Returns the bounds of peer connections. One replica may send as many requests as all clients together, and each
/// request has its own connection.
pub(super) fn connection_limits(clients: ConnectionLimits) -> ConnectionLimits {
    ConnectionLimits {
        connections: 2 * limits::PEER_REQUESTS,
        per_address: 2 * limits::PEER_REQUESTS,
        // Replicas wait for a place, and none of them sends probes.
        reserved: 0,
        // Replicas read every answer that they request.
        unsent: usize::MAX,
        // A forwarded request has all headers of its client.
        buffer: clients.buffer.saturating_add(PEER_HEADER_BYTES),
        fields: PEER_HEADER_FIELDS,
        ..clients
    }
}
