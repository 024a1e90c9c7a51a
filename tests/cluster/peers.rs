//! Connections between replicas: only replicas of the registry are admitted, and their bytes show nothing.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use angarium_catalogue::{Catalogue, ComponentState};
use angarium_cluster::identity::{Fingerprint, PeerIdentity};
use angarium_cluster::peer_client::SESSION;
use angarium_cluster::peers::{PeerFailure, PeerTransport, Peers, SECRET};
use angarium_cluster::replicas::{self, Replica};
use angarium_cluster::tls::PeerTls;
use angarium_coordination::zookeeper::{ZooKeeperTimeouts, ZooKeeperTree};
use angarium_coordination::{Coordination, Op};
use angarium_core::time::Timestamp;
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use parking_lot::Mutex;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Cluster, WATCHED, queues, slot_in, slot_of};
use crate::support::client::Client;
use crate::support::pauses::{max_hand_over, watch};
use angarium_testbed::held::{free_port, wait_until};
use angarium_testbed::zookeeper::ZooKeeper;

/// Longer than a replica needs to see a change of the registry.
const SOON: Duration = Duration::from_secs(20);

/// A replica that speaks the protocol of the others and serves no slot.
pub(super) struct Guest {
    pub(super) tree: Arc<dyn Coordination>,
    node: String,
    identity: PeerIdentity,
    peers: Peers,
}

impl Guest {
    /// Joins the registry of a cluster.
    pub(super) async fn join(cluster: &Cluster) -> Self {
        let address = cluster.address.parse().unwrap();
        let tree: Arc<dyn Coordination> =
            Arc::new(ZooKeeperTree::open(address, ZooKeeperTimeouts::default()).await.unwrap());
        let catalogue = Catalogue::new(Arc::clone(&tree));
        let identity = PeerIdentity::generate().unwrap();
        let me = Replica::new(Uuid::new_v4(), "guest", "127.0.0.1:1");
        let me = Replica { certificate: Some(identity.fingerprint()), ..me };
        let component = me.component(ComponentState::Starting, Timestamp::from_millis(0));
        let node = replicas::join(&catalogue, "guest", &component).await.unwrap().node;
        me.trust.learn(catalogue.registry().await.unwrap().all());
        let peers = Peers::new(Some(PeerTls::new(&identity, me.trust.clone()).unwrap()));
        Self { tree, node, identity, peers }
    }

    /// Sends a peer request, and returns the status of its answer.
    pub(super) async fn send(
        &self,
        address: &str,
        path: &'static str,
        body: &Value,
    ) -> Result<StatusCode, PeerFailure> {
        let request = Request::builder().method(Method::POST).uri(path);
        let request = request.header("content-type", "application/json").body(Bytes::from(body.to_string()));
        let answer = self.peers.send(address, request.unwrap(), Duration::from_secs(10)).await?;
        Ok(answer.status())
    }

    /// As [`Guest::send`], after the other replica has learned of this one.
    pub(super) async fn send_soon(&self, address: &str, path: &'static str, body: &Value) -> StatusCode {
        let sending = async {
            loop {
                match self.send(address, path, body).await {
                    Ok(status) => return status,
                    Err(PeerFailure::NotSent(_)) => tokio::time::sleep(Duration::from_millis(50)).await,
                    Err(failure) => panic!("{failure}"),
                }
            }
        };
        tokio::time::timeout(SOON, sending).await.unwrap()
    }

    /// Ends its session, and with it its node.
    pub(super) async fn leave(self) {
        self.tree.close().await;
    }
}

/// The address of a replica for other replicas.
pub(super) fn peer_address(cluster: &Cluster, replica: usize) -> String {
    let view = cluster.view();
    let instance = cluster.replicas[replica].instance();
    let components = view["components"].as_array().unwrap();
    let found = components.iter().find(|one| one["instance"] == instance.as_str()).unwrap();
    found["address"].as_str().unwrap().to_owned()
}

fn refused_certificates(client: &Client) -> u64 {
    let page = client.get("/metrics").unwrap().text();
    let name = "angarium_authentication_failures_total{reason=\"peer_certificate\"} ";
    page.lines().find_map(|line| line.strip_prefix(name)?.parse().ok()).unwrap()
}

/// Sends a request in clear text to the listener for replicas, and returns the answer.
fn send_clear(address: &str, secret: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!(
        "POST {SESSION} HTTP/1.1\r\nhost: peer\r\n{SECRET}: {secret}\r\ncontent-type: application/json\r\n\
         content-length: 2\r\nconnection: close\r\n\r\n{{}}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// A new installation never has the shared secret of older programs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificate_of_the_registry_needs_no_secret() {
    let cluster = tokio::task::spawn_blocking(|| Cluster::start(2)).await.unwrap();
    let (address, guest) = (peer_address(&cluster, 0), Guest::join(&cluster).await);
    assert_eq!(guest.send_soon(&address, SESSION, &json!({})).await, StatusCode::OK);
    assert!(guest.tree.get(&guest.node).await.unwrap().is_some());
    assert_eq!(guest.tree.get("/meta/peer-secret").await.unwrap(), None);
    guest.leave().await;
}

/// A replica of the release before: it has no certificate, and shows the secret in clear text.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secret_admits_while_an_older_replica_is_registered() {
    let cluster = tokio::task::spawn_blocking(|| Cluster::start(1)).await.unwrap();
    let (address, guest) = (peer_address(&cluster, 0), Guest::join(&cluster).await);
    assert_eq!(guest.send_soon(&address, SESSION, &json!({})).await, StatusCode::OK);
    let catalogue = Catalogue::new(Arc::clone(&guest.tree));
    let older = Replica::new(Uuid::new_v4(), "older", "127.0.0.1:2");
    let component = older.component(ComponentState::Starting, Timestamp::from_millis(0));
    let node = replicas::join(&catalogue, "older", &component).await.unwrap().node;
    let secret = catalogue.peer_secret("of-the-older-program").await.unwrap();
    let send = |secret: &str| {
        let (address, secret) = (address.clone(), secret.to_owned());
        tokio::task::spawn_blocking(move || send_clear(&address, &secret))
    };
    let admitted = async {
        while !send(&secret).await.unwrap().starts_with("HTTP/1.1 200 ") {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(SOON, admitted).await.unwrap();
    for wrong in ["", "wrong"] {
        let answer = send(wrong).await.unwrap();
        // An older program would pass another status on to its client. After this one it tries again.
        assert!(
            answer.starts_with("HTTP/1.1 421 ") && answer.contains("\r\nx-angarium-moved: 1\r\n"),
            "{answer}"
        );
    }
    let page = cluster.client(0).get("/metrics").unwrap().text();
    let counted =
        |line: &str| line.starts_with("angarium_authentication_failures_total{reason=\"peer_secret\"} ");
    let count =
        page.lines().find(|line| counted(line)).and_then(|line| line.rsplit(' ').next()?.parse().ok());
    assert!(count.is_some_and(|count: u64| count >= 2), "{page}");
    assert!(!catalogue.peer_secret_remove(Uuid::nil()).await.unwrap(), "the older one needs it");
    let end = Op::Delete { path: node };
    guest.tree.commit(&[], &[end]).await.unwrap();
    assert!(catalogue.peer_secret_remove(Uuid::nil()).await.unwrap());
    assert_eq!(guest.tree.get("/meta/peer-secret").await.unwrap(), None);
    guest.leave().await;
}

/// A caller with a secret of the tree, in clear text and with a certificate of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secret_admits_no_stranger() {
    let cluster = tokio::task::spawn_blocking(|| Cluster::start(1)).await.unwrap();
    let (address, guest) = (peer_address(&cluster, 0), Guest::join(&cluster).await);
    assert_eq!(guest.send_soon(&address, SESSION, &json!({})).await, StatusCode::OK);
    let catalogue = Catalogue::new(Arc::clone(&guest.tree));
    let secret = catalogue.peer_secret("of-an-older-program").await.unwrap();
    let before = refused_certificates(&cluster.client(0));
    let answer = send_clear(&address, &secret);
    // A replica whose view is old would look again where to send it.
    assert!(answer.starts_with("HTTP/1.1 421 ") && answer.ends_with("\r\n\r\n"), "{answer}");
    let (stranger, trust) = (PeerIdentity::generate().unwrap(), Replica::new(Uuid::nil(), "", "").trust);
    trust.learn(catalogue.registry().await.unwrap().all());
    let peers = Peers::new(Some(PeerTls::new(&stranger, trust).unwrap()));
    let guest = Guest { peers, ..guest };
    let sent = guest.send(&address, SESSION, &json!({})).await;
    assert!(matches!(sent, Err(PeerFailure::NotSent(_))), "{sent:?}");
    wait_until("both are counted", || refused_certificates(&cluster.client(0)) == before + 2);
    guest.leave().await;
}

/// A program of another installation on the same ensemble: its certificates are in another registry.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replica_of_another_installation_is_refused() {
    let start = || (Cluster::start(1), Cluster::start(1));
    let (here, there) = tokio::task::spawn_blocking(start).await.unwrap();
    let guest = Guest::join(&there).await;
    let sent = guest.send(&peer_address(&here, 0), SESSION, &json!({})).await;
    assert!(matches!(sent, Err(PeerFailure::NotSent(_))), "{sent:?}");
    let own = peer_address(&there, 0);
    assert_eq!(guest.send_soon(&own, SESSION, &json!({})).await, StatusCode::OK);
    guest.leave().await;
}

/// Requests for its slots would arrive at the other one.
#[test]
fn replica_with_address_of_another_is_passed_over() {
    let mut cluster = Cluster::start_with(2, &["--session-timeout=4"]);
    let address = peer_address(&cluster, 0);
    cluster.add_with(|builder| builder.arg("--advertise").arg(&address));
    let reports = |replica: usize| {
        let lines = cluster.replicas[replica].server().last_lines();
        lines.contains("replica not reached") && lines.contains("responds at its address")
    };
    wait_until("both others report it", || reports(0) && reports(1));
    let is_shown = || {
        let shown = cluster.client(0).get("/v2/components").unwrap().json();
        let components = shown["components"].as_array().unwrap();
        let passed_over: Vec<_> =
            components.iter().filter(|component| component["passed_over"] == true).collect();
        let [one] = passed_over[..] else { return false };
        let reporting =
            components.iter().filter(|other| other["unreached_replicas"] == json!([one["instance"]])).count();
        reporting == 2
    };
    wait_until("it is shown with the replicas that do not reach it", is_shown);
    let is_stored = |queue: &String| {
        let posted = cluster.client(0).post_messages(queue, &[json!(1)]).unwrap();
        posted.status == StatusCode::CREATED
    };
    wait_until("all queues are served", || queues(24).iter().all(is_stored));
}

/// Writes a new certificate and its key to these files, and returns its fingerprint.
fn write_certificate(files: &[PathBuf; 2]) -> Fingerprint {
    let made = rcgen::generate_simple_self_signed(["replica.example".to_owned()]).unwrap();
    // The key first: until the certificate is there too, the pair is refused.
    std::fs::write(&files[1], made.signing_key.serialize_pem()).unwrap();
    std::fs::write(&files[0], made.cert.pem()).unwrap();
    Fingerprint::of(made.cert.der())
}

#[test]
fn certificate_of_files_is_replaced_under_load() {
    let mut cluster = Cluster::without_replicas(ZooKeeper::shared(), &[]);
    let folder = tempfile::tempdir().unwrap();
    let files =
        ["0", "1"].map(|name| ["cert", "key"].map(|kind| folder.path().join(format!("{name}.{kind}"))));
    let first = files.each_ref().map(write_certificate);
    for [certificate, key] in &files {
        cluster.add_with(|builder| builder.arg("--peer-cert").arg(certificate).arg("--peer-key").arg(key));
    }
    cluster.wait_until_shared();
    let address = peer_address(&cluster, 0);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let guest = runtime.block_on(Guest::join(&cluster));
    // Whether the replica shows this certificate.
    let shows = |fingerprint: Fingerprint| {
        let replica = Replica { certificate: Some(fingerprint), ..Replica::new(Uuid::nil(), "", "") };
        replica.trust.learn([replica.component(ComponentState::Running, Timestamp::from_millis(0))].iter());
        let peers = Peers::new(Some(PeerTls::new(&guest.identity, replica.trust.clone()).unwrap()));
        let request = Request::post(SESSION).header("content-type", "application/json");
        let request = request.body(Bytes::from_static(b"{}")).unwrap();
        let sent = runtime.block_on(peers.send(&address, request, Duration::from_secs(10)));
        sent.is_ok_and(|answer| answer.status() == StatusCode::OK)
    };
    let ((), traffic) = watch(&cluster.routes(), 2 * WATCHED, || {
        wait_until("the certificate of the files is shown", || shows(first[0]));
        let second = write_certificate(&files[0]);
        write_certificate(&files[1]);
        assert!(!shows(second), "the others do not know it yet");
        wait_until("the next certificate is shown", || shows(second));
        assert!(!shows(first[0]));
    });
    traffic.assert_kept("rotation of peer certificates", max_hand_over(), &cluster.client(0));
    assert_eq!((traffic.failed, traffic.unanswered), (0, 0), "{:?}", traffic.failures);
    runtime.block_on(guest.leave());
    // Each new connection has the new certificates.
    cluster.replicas[1].server.take().unwrap().kill9();
    cluster.replicas[1].server = Some(cluster.replicas[1].builder.start());
    cluster.wait_until_shared();
    for queue in queues(12) {
        let client = cluster.client(1 - cluster.owner_of(slot_of(&queue)));
        assert_eq!(client.post_messages(&queue, &[json!(2)]).unwrap().status, StatusCode::CREATED);
    }
}

/// Carries connections to an address, and keeps their bytes.
fn record(listener: TcpListener, to: SocketAddr) -> Arc<Mutex<Vec<u8>>> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&seen);
    std::thread::spawn(move || {
        for from in listener.incoming() {
            let (Ok(from), Ok(onward)) = (from, TcpStream::connect(to)) else { continue };
            for (mut reader, mut writer) in [
                (from.try_clone().unwrap(), onward.try_clone().unwrap()),
                (onward.try_clone().unwrap(), from.try_clone().unwrap()),
            ] {
                let kept = Arc::clone(&kept);
                std::thread::spawn(move || {
                    let mut bytes = [0; 16_384];
                    while let Ok(count @ 1..) = reader.read(&mut bytes) {
                        kept.lock().extend_from_slice(&bytes[..count]);
                        if writer.write_all(&bytes[..count]).is_err() {
                            return;
                        }
                    }
                    let _ = writer.shutdown(std::net::Shutdown::Write);
                });
            }
        }
    });
    seen
}

/// A listener on the way between the replicas sees their bytes.
#[test]
fn bytes_between_replicas_show_nothing() {
    let mut cluster = Cluster::without_replicas(ZooKeeper::shared(), &[]);
    let mut seen = Vec::new();
    for _ in 0..2 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (advertised, local) = (listener.local_addr().unwrap(), free_port());
        seen.push(record(listener, SocketAddr::from(([127, 0, 0, 1], local))));
        cluster.add_with(|builder| {
            let builder = builder.arg("--peer-listen").arg(format!("127.0.0.1:{local}"));
            builder.arg("--advertise").arg(advertised.to_string())
        });
    }
    cluster.wait_until_shared();
    let (body, tenant) = ("words-of-a-body", "tenant-of-a-client");
    let (token, header) = ("token-of-a-client", "header-of-a-client");
    // Instances have random ids: of a few queues one replica may own none.
    let is_owned = |queue: &String, replica| cluster.owner_of(slot_in(tenant, queue)) == replica;
    let is_owned = &is_owned;
    let owned_by = |replica| queues(64).into_iter().filter(move |queue| is_owned(queue, replica)).take(6);
    for (queue, owner) in (0..2).flat_map(|owner| owned_by(owner).map(move |queue| (queue, owner))) {
        let client = cluster.client(1 - owner);
        let client = client.with_header("x-project-id", tenant).with_header("x-words", header);
        let client = client.with_header("authorization", &format!("Bearer {token}"));
        let posted = client.post_messages(&queue, &[json!(body)]).unwrap();
        assert_eq!(posted.status, StatusCode::CREATED);
        let claimed = client.claim(&queue, 1, 60).unwrap().granted().unwrap();
        assert_eq!(claimed.messages[0].body, json!(body));
    }
    for seen in &seen {
        let seen = seen.lock();
        assert!(seen.len() > 4_096, "{} bytes are too few", seen.len());
        let words =
            [body, tenant, token, header, SECRET, "x-words", "authorization", "HTTP/1.1", "content-type"];
        for word in words.into_iter().chain(["angarium-replica"]) {
            let found = seen.windows(word.len()).any(|bytes| bytes.eq_ignore_ascii_case(word.as_bytes()));
            assert!(!found, "{word} is in clear text");
        }
    }
}
