//! The client of subscribers.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_TYPE, HOST, HeaderName, HeaderValue, USER_AGENT};
use http::{Method, Request};
use http_body_util::Full;
use rustls::RootCertStore;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;

use crate::answer::judge;
use crate::connection::{WebhookConnection, connect_cause, tls_cause};
use crate::delivery::{Accepted, Delivery};
use crate::egress::{EgressRules, ForbiddenAddress};
use crate::error::{DeliveryError, Phase, UnreachableCause};
use crate::idle::IdleConnections;
use crate::limits::{ADDRESSES, ANSWER_BYTES, ClientLimits};
use crate::metered::Socket;
use crate::resolver::Resolver;
use crate::url::{Host, Origin, Scheme};

/// Names the program to subscribers, unless the user's headers name another.
const PRODUCT: &str = concat!("angarium/", env!("CARGO_PKG_VERSION"));

/// Gives messages to subscribers. One client serves all of them: it bounds a delivery, not their number.
pub struct WebhookClient {
    rules: EgressRules,
    tls: TlsConnector,
    limits: ClientLimits,
    resolver: Arc<dyn Resolver>,
    idle: IdleConnections,
}

/// Reads the certificates that the system trusts. Reads files.
pub fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

impl WebhookClient {
    /// Makes a client that trusts the certificates in `roots`.
    pub fn new(
        rules: EgressRules,
        roots: RootCertStore,
        limits: ClientLimits,
        resolver: Arc<dyn Resolver>,
    ) -> Result<Self, rustls::Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder =
            rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let tls = TlsConnector::from(Arc::new(config));
        Ok(Self { rules, tls, limits, resolver, idle: IdleConnections::new(limits) })
    }

    /// Returns the rules, by which addresses of new subscriptions can be refused early.
    pub fn rules(&self) -> &EgressRules {
        &self.rules
    }

    /// Closes connections that were idle for too long. Call it about once in the idle timeout.
    pub fn close_expired(&self) {
        self.idle.close_expired();
    }

    /// Returns the number of idle connections.
    pub fn idle_connections(&self) -> usize {
        self.idle.len()
    }

    /// Delivers a message once. On an idle connection that the subscriber closed meanwhile, the request is sent again
    /// on a new one, so a subscriber may get it twice; the id is the same.
    ///
    /// If the caller drops the future, the connection is closed and the outcome is unknown.
    pub async fn deliver(&self, delivery: &Delivery) -> Result<Accepted, DeliveryError> {
        let deadline = Instant::now() + self.limits.exchange;
        let origin = delivery.url.origin();
        self.rules.check_literal(&delivery.url).map_err(forbidden)?;
        while let Some(mut connection) = self.idle.take(origin) {
            if !connection.is_usable().await {
                continue;
            }
            match self.exchange(connection, delivery, deadline).await {
                Err(DeliveryError::Unreachable(UnreachableCause::ConnectionLost)) => break,
                outcome => return outcome,
            }
        }
        let connection = self.connect(delivery, deadline).await?;
        self.exchange(connection, delivery, deadline).await
    }

    async fn exchange(
        &self,
        mut connection: WebhookConnection,
        delivery: &Delivery,
        deadline: Instant,
    ) -> Result<Accepted, DeliveryError> {
        let answer = timeout_at(deadline, connection.send(request(delivery))).await;
        let answer = answer.map_err(|_| DeliveryError::TimedOut(Phase::Answer))?;
        let (parts, mut body) = answer.map_err(DeliveryError::Unreachable)?.into_parts();
        let mut bytes = BytesMut::with_capacity(ANSWER_BYTES);
        let deadline = Instant::now() + self.limits.answer;
        let is_whole = timeout_at(deadline, connection.read(&mut body, &mut bytes)).await.unwrap_or(false);
        if is_whole && connection.is_usable().await {
            self.idle.put(delivery.url.origin(), connection);
        }
        judge(&parts, &bytes, delivery.timestamp)
    }

    async fn connect(
        &self,
        delivery: &Delivery,
        deadline: Instant,
    ) -> Result<WebhookConnection, DeliveryError> {
        let origin = delivery.url.origin();
        let deadline = deadline.min(Instant::now() + self.limits.connect);
        let addresses = self.addresses(delivery, deadline).await?;
        let stream = self.open(&addresses, deadline).await?;
        let socket: Box<dyn Socket> = match origin.scheme {
            Scheme::Http => Box::new(stream),
            Scheme::Https => self.secure(origin, stream, deadline).await?,
        };
        WebhookConnection::new(socket).await.map_err(DeliveryError::Unreachable)
    }

    /// Resolves the host once. All of its addresses must be allowed, or none is returned.
    async fn addresses(
        &self,
        delivery: &Delivery,
        deadline: Instant,
    ) -> Result<Vec<SocketAddr>, DeliveryError> {
        let origin = delivery.url.origin();
        let ips = match &origin.host {
            Host::Address(ip) => vec![*ip],
            Host::Name(name) => {
                let found = timeout_at(deadline, self.resolver.resolve(name, &delivery.account)).await;
                let found = found.map_err(|_| DeliveryError::TimedOut(Phase::Resolve))?;
                found.map_err(|_| DeliveryError::Unreachable(UnreachableCause::Name))?
            }
        };
        if ips.is_empty() {
            return Err(DeliveryError::Unreachable(UnreachableCause::Name));
        }
        let mut addresses = Vec::with_capacity(ips.len());
        for ip in ips {
            let address = SocketAddr::new(ip, origin.port);
            self.rules.check(address).map_err(forbidden)?;
            addresses.push(address);
        }
        addresses.truncate(ADDRESSES);
        Ok(addresses)
    }

    /// Connects to the first address that answers. Each has its share of the time.
    async fn open(&self, addresses: &[SocketAddr], deadline: Instant) -> Result<TcpStream, DeliveryError> {
        let mut failure = DeliveryError::TimedOut(Phase::Connect);
        for (tried, address) in addresses.iter().enumerate() {
            let left = deadline.saturating_duration_since(Instant::now());
            let share = left / u32::try_from(addresses.len() - tried).unwrap_or(u32::MAX);
            match timeout_at(Instant::now() + share, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    self.vet(&stream)?;
                    return Ok(stream);
                }
                Ok(Err(error)) => failure = DeliveryError::Unreachable(connect_cause(&error)),
                Err(_) => failure = DeliveryError::TimedOut(Phase::Connect),
            }
        }
        Err(failure)
    }

    /// Refuses a connection to a listener of this machine, before a byte is sent.
    fn vet(&self, stream: &TcpStream) -> Result<(), DeliveryError> {
        let lost = |error: io::Error| DeliveryError::Unreachable(connect_cause(&error));
        let (peer, local) = (stream.peer_addr().map_err(lost)?, stream.local_addr().map_err(lost)?);
        self.rules.check_connected(peer, local).map_err(forbidden)?;
        stream.set_nodelay(true).map_err(lost)
    }

    async fn secure(
        &self,
        origin: &Origin,
        stream: TcpStream,
        deadline: Instant,
    ) -> Result<Box<dyn Socket>, DeliveryError> {
        let name = match &origin.host {
            Host::Address(ip) => ServerName::from(*ip),
            Host::Name(name) => ServerName::try_from(name.clone())
                .map_err(|_| DeliveryError::Unreachable(UnreachableCause::Certificate))?,
        };
        let made = timeout_at(deadline, self.tls.connect(name, stream)).await;
        let made = made.map_err(|_| DeliveryError::TimedOut(Phase::Tls))?;
        let stream = made.map_err(|error| DeliveryError::Unreachable(tls_cause(&error)))?;
        Ok(Box::new(stream))
    }
}

fn forbidden(ForbiddenAddress { address }: ForbiddenAddress) -> DeliveryError {
    DeliveryError::Forbidden { address }
}

/// Builds the request. The headers of the user are below those of the protocol.
fn request(delivery: &Delivery) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(delivery.body.clone()));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = delivery.url.target().clone();
    let headers = request.headers_mut();
    headers.insert(USER_AGENT, HeaderValue::from_static(PRODUCT));
    for name in delivery.headers.map().keys() {
        headers.remove(name);
    }
    headers.extend(delivery.headers.map().clone());
    headers.insert(HOST, delivery.url.host_header().clone());
    headers.insert(CONTENT_TYPE, delivery.content_type.clone());
    let id = delivery.id.as_str();
    headers.insert(HeaderName::from_static("webhook-id"), ascii(id));
    headers.insert(HeaderName::from_static("webhook-timestamp"), HeaderValue::from(delivery.timestamp));
    let sign = |secret: &crate::SigningSecret| secret.sign(id, delivery.timestamp, &delivery.body);
    let signatures: Vec<String> = delivery.secrets.iter().map(sign).collect();
    if !signatures.is_empty() {
        headers.insert(HeaderName::from_static("webhook-signature"), ascii(&signatures.join(" ")));
    }
    request
}

/// Makes a value of visible ASCII and spaces.
fn ascii(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("ids and signatures are visible ASCII")
}
