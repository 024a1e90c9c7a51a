//! TLS with the built program: what a client sees of it, and certificates that change while it runs.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderName, Request, StatusCode, Version};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tokio_util::task::TaskTracker;

use crate::support::server::{Server, ServerBuilder};

const MAX_WAIT: Duration = Duration::from_secs(20);

/// A directory with the certificate and the key of a service, and data.
pub struct TlsFiles(TempDir);

impl TlsFiles {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn certificate(&self) -> PathBuf {
        self.0.path().join("cert.pem")
    }

    fn key(&self) -> PathBuf {
        self.0.path().join("key.pem")
    }

    /// Puts a new certificate there, and tells which.
    pub fn issue(&self) -> CertificateDer<'static> {
        let (certificate, key) = issued();
        std::fs::write(self.certificate(), certificate.pem()).unwrap();
        std::fs::write(self.key(), key.serialize_pem()).unwrap();
        certificate.der().clone()
    }

    fn start(&self) -> Server {
        self.start_with(&[])
    }

    /// The certificate that is there.
    pub fn certificate_now(&self) -> CertificateDer<'static> {
        let text = std::fs::read(self.certificate()).unwrap();
        CertificateDer::from_pem_slice(&text).unwrap()
    }

    pub fn start_with(&self, settings: &[&str]) -> Server {
        let builder = ServerBuilder::new(&self.0.path().join("data"))
            .arg("--tls-cert")
            .arg(self.certificate())
            .arg("--tls-key")
            .arg(self.key());
        settings.iter().fold(builder, |builder, setting| builder.arg(*setting)).start()
    }
}

fn issued() -> (rcgen::Certificate, rcgen::KeyPair) {
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    (cert, signing_key)
}

/// Shakes hands as a client that trusts `certificate` only and offers `protocols`.
pub async fn connect(
    server: &Server,
    certificate: &CertificateDer<'static>,
    protocols: &[&[u8]],
) -> std::io::Result<TlsStream<tokio::net::TcpStream>> {
    connect_after(&[], server, certificate, protocols).await
}

/// As [`connect`], after these bytes in the clear.
async fn connect_after(
    before: &[u8],
    server: &Server,
    certificate: &CertificateDer<'static>,
    protocols: &[&[u8]],
) -> std::io::Result<TlsStream<tokio::net::TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let mut stream = tokio::net::TcpStream::connect(address(server)).await?;
    stream.write_all(before).await?;
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

fn address(server: &Server) -> String {
    server.base().strip_prefix("https://").unwrap().to_owned()
}

fn ping(version: Version) -> Request<Empty<Bytes>> {
    let request = Request::builder().version(version).header("host", "localhost");
    request.uri("https://localhost/v2/ping").body(Empty::new()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn http1_is_served_over_tls() {
    let place = TlsFiles::new();
    let certificate = place.issue();
    let server = place.start();
    for protocols in [&[b"http/1.1".as_slice()][..], &[]] {
        let stream = connect(&server, &certificate, protocols).await.unwrap();
        let (mut client, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        TaskTracker::new().spawn(connection);
        let answer = client.send_request(ping(Version::HTTP_11)).await.unwrap();
        assert_eq!((answer.status(), answer.version()), (StatusCode::NO_CONTENT, Version::HTTP_11));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn http2_is_served_when_offered() {
    let place = TlsFiles::new();
    let certificate = place.issue();
    let server = place.start();
    let stream = connect(&server, &certificate, &[b"h2", b"http/1.1"]).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut client, connection) = handshake.await.unwrap();
    TaskTracker::new().spawn(connection);
    let answer = client.send_request(ping(Version::HTTP_2)).await.unwrap();
    assert_eq!((answer.status(), answer.version()), (StatusCode::NO_CONTENT, Version::HTTP_2));
}

/// Status and body of the answer to a ping with this many headers of this many bytes more, in a version.
async fn answered(
    server: &Server,
    certificate: &CertificateDer<'static>,
    version: Version,
    more: &[usize],
) -> (StatusCode, String) {
    let mut request = ping(version);
    for (number, bytes) in more.iter().enumerate() {
        let name = HeaderName::from_bytes(format!("x-more-{number}").as_bytes()).unwrap();
        request.headers_mut().insert(name, "x".repeat(*bytes).parse().unwrap());
    }
    let protocol: &[u8] = if version == Version::HTTP_2 { b"h2" } else { b"http/1.1" };
    let stream = TokioIo::new(connect(server, certificate, &[protocol]).await.unwrap());
    let answer = if version == Version::HTTP_2 {
        let (mut client, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
        TaskTracker::new().spawn(connection);
        client.send_request(request).await.unwrap()
    } else {
        let (mut client, connection) = http1::handshake(stream).await.unwrap();
        TaskTracker::new().spawn(connection);
        client.send_request(request).await.unwrap()
    };
    let (status, body) = (answer.status(), answer.into_body().collect().await.unwrap().to_bytes());
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn long_header_is_431_in_both_versions() {
    let place = TlsFiles::new();
    let certificate = place.issue();
    let server = place.start_with(&["--max-header-bytes=16384"]);
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let (status, _) = answered(&server, &certificate, version, &[16_000]).await;
        assert_eq!(status, StatusCode::NO_CONTENT, "{version:?}");
        let (status, text) = answered(&server, &certificate, version, &[16_384]).await;
        assert_eq!(status, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "{version:?}");
        assert!(text.contains("--max-header-bytes") && text.contains("16384"), "{version:?}: {text}");
        let (status, text) = answered(&server, &certificate, version, &[1; 90]).await;
        assert_eq!(status, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "{version:?}");
        assert!(text.contains("91 headers"), "{version:?}: {text}");
        for more in [&[30_000][..], &[1; 101]] {
            let (status, _) = answered(&server, &certificate, version, more).await;
            assert_eq!(status, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "{version:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn proxy_header_precedes_handshake() {
    let place = TlsFiles::new();
    let certificate = place.issue();
    let builder = ServerBuilder::new(&place.0.path().join("data"));
    let files = [place.certificate(), place.key()];
    let server = ["--tls-cert", "--tls-key"]
        .iter()
        .zip(files)
        .fold(builder, |builder, (setting, file)| builder.arg(*setting).arg(file));
    let server = server.arg("--trusted-proxy").arg("127.0.0.1").start();
    let header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xcb\0\x71\x09\x0a\0\0\x01\0\x50\x01\xbb";
    for before in [&header[..], b""] {
        let stream = connect_after(before, &server, &certificate, &[b"h2"]).await.unwrap();
        let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (mut client, connection) = handshake.await.unwrap();
        TaskTracker::new().spawn(connection);
        assert_eq!(
            client.send_request(ping(Version::HTTP_2)).await.unwrap().status(),
            StatusCode::NO_CONTENT
        );
    }
    let cut = connect_after(&header[..20], &server, &certificate, &[b"h2"]).await;
    cut.expect_err("its handshake is taken for the rest of the header");
}

/// Whether a client that trusts `certificate` only is served, at some time.
async fn becomes_served(server: &Server, certificate: &CertificateDer<'static>) -> bool {
    let given_up = Instant::now() + MAX_WAIT;
    while Instant::now() < given_up {
        if connect(server, certificate, &[]).await.is_ok() {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    false
}

#[tokio::test(flavor = "multi_thread")]
async fn new_certificate_is_used_at_sighup_without_drops() {
    let place = TlsFiles::new();
    let before = place.issue();
    let server = place.start();
    let stream = connect(&server, &before, &[]).await.unwrap();
    let (mut client, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    TaskTracker::new().spawn(connection);
    assert_eq!(client.send_request(ping(Version::HTTP_11)).await.unwrap().status(), StatusCode::NO_CONTENT);

    let after = place.issue();
    server.hang_up();
    assert!(becomes_served(&server, &after).await, "{}", server.last_lines());
    connect(&server, &before, &[]).await.expect_err("it is not shown any more");
    client.ready().await.unwrap();
    assert_eq!(client.send_request(ping(Version::HTTP_11)).await.unwrap().status(), StatusCode::NO_CONTENT);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_without_its_key_changes_nothing() {
    let place = TlsFiles::new();
    let good = place.issue();
    let server = place.start();
    std::fs::write(place.certificate(), issued().0.pem()).unwrap();
    server.hang_up();
    // Read again by now or not: either way the first one is shown, and the service is there.
    let given_up = Instant::now() + MAX_WAIT;
    while !server.last_lines().contains("settings files refused") {
        assert!(Instant::now() < given_up, "{}", server.last_lines());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    connect(&server, &good, &[]).await.unwrap();
}

#[test]
fn start_with_wrong_files_names_them() {
    let place = TlsFiles::new();
    place.issue();
    std::fs::write(place.key(), issued().1.serialize_pem()).unwrap();
    let said = refused(&place.certificate(), &place.key());
    assert!(said.contains("cert.pem") && said.contains("key.pem"), "{said}");
    let said = refused(&place.certificate(), Path::new("/nowhere/key.pem"));
    assert!(said.contains("/nowhere/key.pem"), "{said}");
    std::fs::write(place.certificate(), "nothing").unwrap();
    let said = refused(&place.certificate(), &place.key());
    assert!(said.contains("there is no certificate"), "{said}");
}

/// What the program states when it does not start with these.
fn refused(certificate: &Path, key: &Path) -> String {
    let data = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_angarium"))
        .args(["serve", "--listen", "127.0.0.1:0", "--data"])
        .arg(data.path().join("data"))
        .arg("--tls-cert")
        .arg(certificate)
        .arg("--tls-key")
        .arg(key)
        .output()
        .unwrap();
    assert!(!output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn plain_text_to_tls_is_closed() {
    use std::io::{Read, Write};
    let place = TlsFiles::new();
    place.issue();
    let server = place.start();
    let mut client = TcpStream::connect(address(&server)).unwrap();
    client.set_read_timeout(Some(MAX_WAIT)).unwrap();
    client.write_all(b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    let mut said = Vec::new();
    // The end may be a reset: what was sent is not read whole.
    let _ = client.read_to_end(&mut said);
    assert!(!said.starts_with(b"HTTP/"), "{}", String::from_utf8_lossy(&said));
}

#[test]
fn client_without_handshake_is_closed() {
    use std::io::Read;
    let place = TlsFiles::new();
    place.issue();
    let server = ServerBuilder::new(&place.0.path().join("data"))
        .arg("--tls-cert")
        .arg(place.certificate())
        .arg("--tls-key")
        .arg(place.key())
        .arg("--first-byte-timeout=300ms")
        .start();
    let mut client = TcpStream::connect(address(&server)).unwrap();
    client.set_read_timeout(Some(MAX_WAIT)).unwrap();
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
}
