//! Mutual TLS between replicas. Each side shows the certificate of its process, and takes the other for a replica by its
//! fingerprint alone: names, issuers and dates of certificates do not count.
//!
//! In TLS 1.3 a client ends its handshake before the server has checked its certificate. So the server sends one byte
//! when it has admitted the client, and the client sends no request before: a request to a replica that does not know
//! this one was certainly not sent.

use std::sync::Arc;
use std::{fmt, io};

use parking_lot::RwLock;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, Resumption};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, OtherError,
    PeerIncompatible, ServerConfig, SignatureScheme,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

use crate::identity::{Fingerprint, PeerIdentity};
use crate::trust::{PeerProof, PeerTrust};

/// The byte of a server that has admitted a client.
const ADMITTED: u8 = b'A';
/// The name that a client asks for. It is not sent, and not checked.
const NAME: &str = "angarium-replica";

/// The handshakes of a process with the other replicas.
#[derive(Clone)]
pub struct PeerTls {
    connector: TlsConnector,
    acceptor: TlsAcceptor,
    trust: PeerTrust,
    shown: Arc<ShownCertificate>,
}

/// The certificate that handshakes show from now on. The lock is held for single reads or writes.
#[derive(Debug)]
struct ShownCertificate(RwLock<Arc<CertifiedKey>>);

impl ShownCertificate {
    fn current(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.0.read())
    }
}

impl ResolvesClientCert for ShownCertificate {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl ResolvesServerCert for ShownCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}

impl fmt::Debug for PeerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerTls").finish_non_exhaustive()
    }
}

impl PeerTls {
    /// Prepares handshakes with this certificate, with the replicas that `trust` admits.
    ///
    /// # Errors
    ///
    /// The reason, when the certificate cannot be used.
    pub fn new(identity: &PeerIdentity, trust: PeerTrust) -> Result<Self, String> {
        let provider = Arc::new(ring::default_provider());
        let verifier = Arc::new(PeerVerifier::new(&provider, trust.clone()));
        let shown = Arc::new(ShownCertificate(RwLock::new(Arc::clone(identity.certified()))));
        let failed = |error: Error| error.to_string();
        let mut client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(failed)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&verifier) as Arc<dyn ServerCertVerifier>)
            .with_client_cert_resolver(Arc::clone(&shown) as Arc<dyn ResolvesClientCert>);
        client.enable_sni = false;
        // A resumed session would not show the certificate again, which may have been withdrawn.
        client.resumption = Resumption::disabled();
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(failed)?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(Arc::clone(&shown) as Arc<dyn ResolvesServerCert>);
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        Ok(Self { connector: Arc::new(client).into(), acceptor: Arc::new(server).into(), trust, shown })
    }

    /// Returns the fingerprint of the certificate that handshakes show.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.shown.current().cert[0])
    }

    /// Has handshakes show this certificate from now on. Open connections keep theirs.
    pub fn show(&self, identity: &PeerIdentity) {
        *self.shown.0.write() = Arc::clone(identity.certified());
    }

    /// Returns the replicas that are admitted.
    pub fn trust(&self) -> &PeerTrust {
        &self.trust
    }

    /// Performs the handshake with another replica, and waits until it has admitted this one.
    ///
    /// # Errors
    ///
    /// The other side is no replica that is admitted, or does not admit this one. No request was sent.
    pub async fn connect(&self, stream: TcpStream) -> io::Result<client::TlsStream<TcpStream>> {
        let name = ServerName::try_from(NAME).expect("it is a host name");
        let mut stream = self.connector.connect(name, stream).await?;
        match stream.read_u8().await? {
            ADMITTED => Ok(stream),
            other => Err(io::Error::new(io::ErrorKind::InvalidData, format!("it begins with byte {other}"))),
        }
    }

    /// Performs the handshake with another replica, and tells it that it is admitted.
    ///
    /// # Errors
    ///
    /// The other side is no replica that is admitted.
    pub async fn accept(&self, stream: TcpStream) -> io::Result<(server::TlsStream<TcpStream>, PeerProof)> {
        let mut stream = self.acceptor.accept(stream).await?;
        let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first).map(Fingerprint::of);
        let none = || io::Error::new(io::ErrorKind::PermissionDenied, "it has shown no certificate");
        let proof = PeerProof::Certificate(shown.ok_or_else(none)?);
        stream.write_u8(ADMITTED).await?;
        stream.flush().await?;
        Ok((stream, proof))
    }
}

/// Checks the certificate of the other side, in both directions.
#[derive(Debug)]
struct PeerVerifier {
    algorithms: WebPkiSupportedAlgorithms,
    trust: PeerTrust,
}

/// Why a certificate is refused.
#[derive(Debug)]
struct UnknownReplica(Fingerprint);

impl fmt::Display for UnknownReplica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no replica of the registry has the certificate {}", self.0)
    }
}

impl std::error::Error for UnknownReplica {}

impl PeerVerifier {
    fn new(provider: &CryptoProvider, trust: PeerTrust) -> Self {
        Self { algorithms: provider.signature_verification_algorithms, trust }
    }

    fn check(&self, certificate: &CertificateDer<'_>, others: &[CertificateDer<'_>]) -> Result<(), Error> {
        let fingerprint = Fingerprint::of(certificate);
        if others.is_empty() && self.trust.admits(PeerProof::Certificate(fingerprint)) {
            return Ok(());
        }
        let unknown = OtherError(Arc::new(UnknownReplica(fingerprint)));
        Err(Error::InvalidCertificate(CertificateError::Other(unknown)))
    }

    fn verify(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }
}

/// The error of a handshake in TLS 1.2, which neither side offers.
fn too_old() -> Error {
    Error::PeerIncompatible(PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig)
}

impl ServerCertVerifier for PeerVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(certificate, others).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(too_old())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl ClientCertVerifier for PeerVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(certificate, others).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(too_old())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use angarium_catalogue::{Component, ComponentState};
    use angarium_core::time::Timestamp;
    use tokio::net::TcpListener;
    use uuid::Uuid;

    use super::*;
    use crate::replicas::Replica;

    /// A process with a certificate, and the replicas that it knows.
    struct Process {
        identity: PeerIdentity,
        trust: PeerTrust,
        tls: PeerTls,
    }

    impl Process {
        fn new() -> Self {
            let (identity, trust) = (PeerIdentity::generate().unwrap(), PeerTrust::default());
            let tls = PeerTls::new(&identity, trust.clone()).unwrap();
            Self { identity, trust, tls }
        }

        fn component(&self) -> Component {
            let certificate = Some(self.identity.fingerprint());
            let replica = Replica { certificate, ..Replica::new(Uuid::nil(), "host", "a:1") };
            replica.component(ComponentState::Running, Timestamp::from_millis(0))
        }

        fn learn(&self, others: &[&Self]) {
            let components: Vec<Component> = others.iter().map(|other| other.component()).collect();
            self.trust.learn(components.iter());
        }
    }

    /// Connects `client` to `server`, and returns what each side has.
    async fn handshake(
        client: &Process,
        server: &Process,
    ) -> (io::Result<client::TlsStream<TcpStream>>, io::Result<(server::TlsStream<TcpStream>, PeerProof)>)
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = async { server.tls.accept(listener.accept().await.unwrap().0).await };
        let connecting = async { client.tls.connect(TcpStream::connect(address).await.unwrap()).await };
        tokio::join!(connecting, serving)
    }

    #[tokio::test]
    async fn replicas_of_the_registry_admit_each_other() {
        let (client, server) = (Process::new(), Process::new());
        client.learn(&[&server]);
        server.learn(&[&client]);
        let (connected, accepted) = handshake(&client, &server).await;
        let (mut stream, proof) = accepted.unwrap();
        assert_eq!(proof, PeerProof::Certificate(client.identity.fingerprint()));
        let mut connected = connected.unwrap();
        connected.write_all(b"request").await.unwrap();
        connected.flush().await.unwrap();
        let mut received = [0; 7];
        stream.read_exact(&mut received).await.unwrap();
        assert_eq!(&received, b"request");
    }

    /// The client must not take its request for sent.
    #[tokio::test]
    async fn client_unknown_to_the_server_is_refused_before_its_request() {
        let (client, server) = (Process::new(), Process::new());
        client.learn(&[&server]);
        server.learn(&[&Process::new()]);
        let (connected, accepted) = handshake(&client, &server).await;
        let why = accepted.map(|_| ()).unwrap_err().to_string();
        assert!(why.contains(&client.identity.fingerprint().to_string()), "{why}");
        assert!(connected.is_err());
    }

    #[tokio::test]
    async fn renewed_certificate_is_admitted_once_it_is_known() {
        let (client, server) = (Process::new(), Process::new());
        client.learn(&[&server]);
        server.learn(&[&client]);
        let renewed = Process { identity: PeerIdentity::generate().unwrap(), ..Process::new() };
        client.tls.show(&renewed.identity);
        assert_eq!(client.tls.fingerprint(), renewed.identity.fingerprint());
        let (connected, accepted) = handshake(&client, &server).await;
        assert!(accepted.is_err() && connected.is_err());
        server.learn(&[&client, &renewed]);
        for (from, to) in [(&client, &server), (&server, &client)] {
            let (connected, accepted) = handshake(from, to).await;
            assert!(connected.is_ok() && accepted.is_ok());
        }
    }

    /// The registry is what admits it, so a date cannot end the links of a cluster.
    #[tokio::test]
    async fn expired_certificate_of_the_registry_is_admitted() {
        let identity = PeerIdentity::expired();
        let trust = PeerTrust::default();
        let tls = PeerTls::new(&identity, trust.clone()).unwrap();
        let (expired, other) = (Process { identity, trust, tls }, Process::new());
        expired.learn(&[&other]);
        other.learn(&[&expired]);
        for (client, server) in [(&expired, &other), (&other, &expired)] {
            let (connected, accepted) = handshake(client, server).await;
            assert!(connected.is_ok() && accepted.is_ok());
        }
    }

    #[tokio::test]
    async fn server_of_another_installation_is_refused() {
        let (client, server) = (Process::new(), Process::new());
        client.learn(&[&Process::new()]);
        server.learn(&[&client]);
        let (connected, accepted) = handshake(&client, &server).await;
        let why = connected.map(|_| ()).unwrap_err().to_string();
        assert!(why.contains(&server.identity.fingerprint().to_string()), "{why}");
        assert!(accepted.is_err());
    }

    /// The certificates are public. The key belongs to another one.
    #[tokio::test]
    async fn certificate_without_its_key_is_refused() {
        let (replica, server) = (Process::new(), Process::new());
        server.learn(&[&replica]);
        let provider = Arc::new(ring::default_provider());
        let trust = PeerTrust::default();
        trust.learn([server.component()].iter());
        let verifier = Arc::new(PeerVerifier::new(&provider, trust.clone()));
        let own = PeerIdentity::generate().unwrap();
        let (certificate, key) = (replica.identity.certified().cert.clone(), own.certified().key.clone());
        let stolen = Arc::new(CertifiedKey::new(certificate, key));
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_client_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(stolen)));
        let thief = Process { tls: PeerTls { connector: Arc::new(config).into(), ..replica.tls }, ..replica };
        let (connected, accepted) = handshake(&thief, &server).await;
        assert!(accepted.is_err() && connected.is_err());
    }

    #[tokio::test]
    async fn client_without_a_certificate_is_refused() {
        let (client, server) = (Process::new(), Process::new());
        client.learn(&[&server]);
        server.learn(&[&client]);
        let provider = Arc::new(ring::default_provider());
        let verifier = Arc::new(PeerVerifier::new(&provider, client.trust.clone()));
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        let nameless =
            Process { tls: PeerTls { connector: Arc::new(config).into(), ..client.tls }, ..client };
        let (connected, accepted) = handshake(&nameless, &server).await;
        assert!(accepted.is_err() && connected.is_err());
    }

    #[tokio::test]
    async fn replica_in_tls_1_2_is_refused() {
        let server = Process::new();
        let provider = Arc::new(ring::default_provider());
        let verifier = Arc::new(PeerVerifier::new(&provider, server.trust.clone()));
        server.learn(&[&server]);
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS12])
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        let old = Process::new();
        let old = Process { tls: PeerTls { connector: Arc::new(config).into(), ..old.tls }, ..old };
        let (connected, accepted) = handshake(&old, &server).await;
        assert!(accepted.is_err() && connected.is_err());
    }
}
