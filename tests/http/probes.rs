//! Probes of load balancers, orchestrators and scrapers are answered when no other connection has a place.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, StatusCode, Version};
use http_body_util::Empty;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use socket2::{Domain, Socket, Type};
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_util::task::TaskTracker;

use super::tls::{TlsFiles, connect};
use crate::support::server::{Server, ServerBuilder};
use angarium_testbed::held::wait_until;

const MAX_WAIT: Duration = Duration::from_secs(60);
const PROBES: [&str; 4] = ["/livez", "/readyz", "/v2/ping", "/metrics"];
/// Connections of one address that the reserve takes, and how long one that states nothing has its place.
const OF_ADDRESS: usize = 4;
const SILENCE: Duration = Duration::from_secs(2);

/// A server with so few places, and its data.
fn start(settings: &[&str]) -> (Server, tempfile::TempDir) {
    let data = tempfile::tempdir().unwrap();
    let builder = ServerBuilder::new(data.path());
    (settings.iter().fold(builder, |builder, setting| builder.arg(*setting)).start(), data)
}

fn address(server: &Server) -> SocketAddr {
    server.base().split("://").nth(1).unwrap().parse().unwrap()
}

/// A connection from an address of this machine.
fn from(server: &Server, last: u8) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), 0)).into()).unwrap();
    socket.connect(&address(server).into()).unwrap();
    socket.set_read_timeout(Some(MAX_WAIT)).unwrap();
    socket.into()
}

/// A connection that has sent this.
fn sending(server: &Server, last: u8, bytes: &str) -> TcpStream {
    let mut socket = from(server, last);
    socket.write_all(bytes.as_bytes()).unwrap();
    socket
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
}

/// Whether a connection has a place like any other.
fn has_place(server: &Server, last: u8) -> bool {
    let asked = get("/v2/queues").replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n");
    to_end(sending(server, last, &asked)).starts_with("http/1.1 200")
}

/// All that arrives on a connection until its end, in lower case. What is not read before it may end it with a reset.
fn to_end(mut socket: TcpStream) -> String {
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).to_ascii_lowercase()
}

/// Takes all places that there are: with idle connections, and with such as withhold a header and a body.
fn fill(server: &Server, places: usize) -> Vec<TcpStream> {
    let withheld = [
        "",
        "GET /v2/queues HTT",
        "POST /v2/queues/q/messages HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n{",
    ];
    let mut held: Vec<TcpStream> = (0..places)
        .map(|number| match number % 4 {
            0 => {
                let mut idle = sending(server, 1, &get("/v2/queues"));
                let read = idle.read(&mut [0; 4096]).unwrap();
                assert!(read > 0);
                idle
            }
            kind => sending(server, 1, withheld[kind - 1]),
        })
        .collect();
    // They are all there when one more is refused.
    let given_up = Instant::now() + MAX_WAIT;
    while has_place(server, 1) {
        assert!(Instant::now() < given_up, "there are places left");
        held.push(sending(server, 1, ""));
    }
    held
}

#[test]
fn probes_are_answered_when_all_places_are_taken() {
    let long =
        ["--first-byte-timeout=10m", "--header-timeout=10m", "--body-timeout=10m", "--idle-timeout=10m"];
    for bound in ["--max-connections=8", "--max-connections-per-address=8"] {
        let (server, _data) = start(&[&long[..], &[bound]].concat());
        let held = fill(&server, 8);
        for path in PROBES {
            let answer = to_end(sending(&server, 1, &get(path)));
            assert!(answer.starts_with("http/1.1 20"), "{bound} {path}: {answer}");
            assert!(answer.contains("connection: close"), "{bound} {path}: {answer}");
        }
        for asked in [
            get("/v2/queues"),
            get("/v2/queues/livez"),
            get("/livez").replace("GET", "POST"),
            get("/?Action=ListQueues"),
            format!("{}{}", get("/v2/queues"), get("/livez")),
        ] {
            let answer = to_end(sending(&server, 1, &asked));
            assert!(answer.starts_with("http/1.1 503"), "{bound} {asked}: {answer}");
            assert!(answer.contains("retry-after: 2") && answer.contains("connection: close"), "{answer}");
            assert_eq!(answer.matches("http/1.1").count(), 1, "one request is answered: {answer}");
        }
        // A second request of a probe is not read either.
        let answer = to_end(sending(&server, 1, &get("/livez").repeat(2)));
        assert_eq!(answer.matches("http/1.1").count(), 1, "{answer}");
        drop(held);
        wait_until("there are places again", || has_place(&server, 1));
    }
}

#[test]
fn room_of_probes_is_taken_for_moments_and_not_from_others() {
    let (server, _data) = start(&[
        "--max-connections=4",
        "--first-byte-timeout=10m",
        "--header-timeout=10m",
        "--idle-timeout=10m",
    ]);
    let held = fill(&server, 4);
    let taken = |last: u8| -> Vec<TcpStream> {
        let kinds = ["", "GET /livez HTTP/1.1\r\n"].into_iter().cycle();
        kinds.take(OF_ADDRESS).map(|bytes| sending(&server, last, bytes)).collect()
    };
    let since = Instant::now();
    let withheld = taken(2);
    // One more of this address is refused at once, and another address is not.
    wait_until("its room is taken", || {
        to_end(sending(&server, 2, &get("/livez"))).starts_with("http/1.1 503")
    });
    let answer = to_end(sending(&server, 3, &get("/readyz")));
    assert!(answer.starts_with("http/1.1 200"), "{answer}");
    wait_until("its room is free", || {
        to_end(sending(&server, 2, &get("/livez"))).starts_with("http/1.1 200")
    });
    assert!(since.elapsed() >= SILENCE / 2, "it had a moment");
    for socket in withheld {
        let told = to_end(socket);
        assert!(told.starts_with("http/1.1 503") || told.starts_with("http/1.1 408"), "{told}");
    }
    drop(held);
}

/// The status and the version of the answer to a probe over TLS; none without an answer.
async fn probe(
    server: &Server,
    certificate: &CertificateDer<'static>,
    version: Version,
    path: &str,
) -> Option<(StatusCode, bool)> {
    let is_h2 = version == Version::HTTP_2;
    let protocol: &[u8] = if is_h2 { b"h2" } else { b"http/1.1" };
    let stream = connect(server, certificate, &[protocol]).await.ok()?;
    let request = Request::builder().version(version).header("host", "localhost");
    let request = request.uri(format!("https://localhost{path}")).body(Empty::<Bytes>::new()).unwrap();
    let answer = if is_h2 {
        let (mut client, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.ok()?;
        TaskTracker::new().spawn(connection);
        client.send_request(request).await
    } else {
        let (mut client, connection) = http1::handshake(TokioIo::new(stream)).await.ok()?;
        TaskTracker::new().spawn(connection);
        client.send_request(request).await
    };
    let answer = answer.ok()?;
    Some((answer.status(), answer.headers().contains_key("retry-after")))
}

/// As [`probe`], repeated until it is answered, as load balancers do: on a busy machine a handshake can take longer
/// than the reserve waits for it, or the reserve still counts earlier connections.
async fn answered_probe(
    server: &Server,
    certificate: &CertificateDer<'static>,
    version: Version,
    path: &str,
) -> (StatusCode, bool) {
    let given_up = Instant::now() + MAX_WAIT;
    loop {
        if let Some(answer) = probe(server, certificate, version, path).await {
            return answer;
        }
        assert!(Instant::now() < given_up, "{version:?} {path}: no answer: {}", server.last_lines());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_over_tls_are_answered_when_all_places_are_taken() {
    let place = TlsFiles::new();
    let certificate = place.issue();
    let server = place.start_with(&["--max-connections=4", "--first-byte-timeout=10m", "--idle-timeout=10m"]);
    // They do not even shake hands.
    let held: Vec<TcpStream> = (0..4).map(|_| from(&server, 2)).collect();
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let given_up = Instant::now() + MAX_WAIT;
        while probe(&server, &certificate, version, "/v2/queues").await
            != Some((StatusCode::SERVICE_UNAVAILABLE, true))
        {
            assert!(Instant::now() < given_up, "there are places left");
        }
        for path in PROBES {
            let (status, has_retry) = answered_probe(&server, &certificate, version, path).await;
            assert!(status.is_success() && !has_retry, "{version:?} {path}: {status}");
        }
    }
    drop(held);
}
