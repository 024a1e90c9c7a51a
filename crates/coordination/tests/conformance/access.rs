//! Trees with an identity: SASL, digests and client certificates at real servers, what a bare client of the ensemble
//! reaches then, and the errors of settings that do not fit.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use angarium_coordination::zookeeper::{
    AccessFiles, Address, CertificateFiles, Protection, ZooKeeperTimeouts, ZooKeeperTree,
};
use angarium_coordination::{Coordination, Mode, TreeError};
use tempfile::TempDir;
use zookeeper_client::{Acl, Acls, Client, CreateMode, Error as ZkError};

use super::support::{Tree, commit, create, create_as, delete, set};
use angarium_testbed::authority::{Authority, Certified, Validity};
use angarium_testbed::zookeeper::{Ensemble, ZooKeeper};

/// Short waits, so that a refusal is seen soon.
pub(super) fn brief() -> ZooKeeperTimeouts {
    let (session, start) = (Duration::from_secs(3), Duration::from_secs(15));
    ZooKeeperTimeouts { session, start, ..ZooKeeperTimeouts::default() }
}

/// Waits that a busy machine keeps.
pub(super) fn patient() -> ZooKeeperTimeouts {
    let (session, start) = (Duration::from_secs(10), Duration::from_secs(60));
    ZooKeeperTimeouts { session, start, ..ZooKeeperTimeouts::default() }
}

/// A file of logins.
pub(super) struct Logins {
    _dir: TempDir,
    pub(super) files: AccessFiles,
}

impl Logins {
    pub(super) fn new(lines: &str) -> Self {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("logins");
        std::fs::write(&path, lines).unwrap();
        Self { _dir: dir, files: AccessFiles { logins: Some(path), ..AccessFiles::default() } }
    }
}

pub(super) async fn open(address: &Address, access: &AccessFiles) -> Arc<ZooKeeperTree> {
    let opened = ZooKeeperTree::open_with(address.clone(), access.clone(), patient()).await;
    Arc::new(opened.expect("the identity is known"))
}

/// The text of the error with which a tree does not open.
async fn refusal(address: &Address, access: &AccessFiles) -> String {
    match ZooKeeperTree::open_with(address.clone(), access.clone(), brief()).await {
        Ok(_) => panic!("{address} opens with {access:?}"),
        Err(TreeError::NotSent(why)) => why,
        Err(error) => panic!("{error:?}"),
    }
}

/// A client that sees the whole ensemble. `logins` are pairs of scheme and login.
pub(super) async fn raw(server: &ZooKeeper, logins: &[(&str, &str)]) -> Client {
    let mut connector = Client::connector();
    for (scheme, login) in logins {
        connector = connector.with_auth(scheme, login.as_bytes());
    }
    connector.connect(&server.endpoint().to_string()).await.unwrap()
}

/// The root of the tree in the ensemble.
pub(super) fn root(address: &Address) -> String {
    let text = address.to_string();
    let (_, rest) = text.split_once("://").unwrap();
    rest[rest.find('/').unwrap()..].to_owned()
}

/// All nodes at and below a path, with their ACLs.
pub(super) async fn acls(client: &Client, path: &str) -> Vec<(String, Vec<Acl>)> {
    let (mut found, mut waiting) = (Vec::new(), vec![path.to_owned()]);
    while let Some(path) = waiting.pop() {
        let acl = match client.get_acl(&path).await {
            Ok((acl, _)) => acl,
            Err(ZkError::NoNode) => continue,
            Err(error) => panic!("{path}: {error}"),
        };
        let children = client.list_children(&path).await.unwrap_or_default();
        waiting.extend(children.iter().map(|name| format!("{}/{name}", path.trim_end_matches('/'))));
        found.push((path, acl));
    }
    found
}

/// The nodes at and below a path on which another than this id has rights.
pub(super) async fn open_nodes(client: &Client, path: &str, scheme: &str, id: &str) -> Vec<String> {
    let all = acls(client, path).await;
    let is_own = |entry: &Acl| entry.scheme() == scheme && entry.id().starts_with(id);
    all.into_iter().filter(|(_, acl)| !acl.iter().all(is_own)).map(|(path, _)| path).collect()
}

/// Uses every kind of node.
async fn be_busy(tree: &Tree) {
    let mut watch = tree.watch_tree("/meta").unwrap();
    commit(tree, &[create("/meta"), create("/meta/a"), create_as("/meta/e", Mode::Ephemeral)]).await;
    watch.next().await;
    commit(tree, &[create_as("/meta/n-", Mode::Numbered), set("/meta/a", "secret")]).await;
    for i in 0..20 {
        commit(tree, &[create(format!("/meta/a/{i}"))]).await;
    }
    commit(tree, &[delete("/meta/a/3")]).await;
}

/// A bare client gets no data and no names, and changes nothing.
async fn assert_bare_gets_nothing(bare: &Client, paths: &[String]) {
    for path in paths {
        let child = format!("{path}/intruder");
        let acl = Acls::anyone_all();
        assert_eq!(bare.get_data(path).await.unwrap_err(), ZkError::NoAuth, "{path}");
        assert_eq!(bare.list_children(path).await.unwrap_err(), ZkError::NoAuth, "{path}");
        assert_eq!(bare.get_acl(path).await.unwrap_err(), ZkError::NoAuth, "{path}");
        assert_eq!(bare.set_data(path, b"x", None).await.unwrap_err(), ZkError::NoAuth, "{path}");
        assert_eq!(bare.set_acl(path, &acl, None).await.unwrap_err(), ZkError::NoAuth, "{path}");
        let made = bare.create(&child, b"x", &CreateMode::Persistent.with_acls(acl)).await;
        assert!(matches!(made, Err(ZkError::NoAuth | ZkError::NoChildrenForEphemerals)), "{path}");
        // The right to delete is one of the parent, which may not be ours; such a node has children.
        assert!(bare.delete(path, None).await.is_err(), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tree_of_a_digest_is_closed_to_others() {
    let server = ZooKeeper::start();
    let (address, logins) = (server.fresh_tree(), Logins::new("digest angarium:secret"));
    let tree = open(&address, &logins.files).await;
    assert_eq!(tree.protection(), Some(Protection::Closed));
    be_busy(&(Arc::clone(&tree) as Tree)).await;
    let admin = raw(&server, &[("digest", "angarium:secret")]).await;
    // With the parents of the root, which it has created too.
    assert_eq!(open_nodes(&admin, "/tests", "digest", "angarium:").await, [""; 0]);
    let nodes: Vec<_> = acls(&admin, "/tests").await.into_iter().map(|(path, _)| path).collect();
    assert!(nodes.len() > 25, "{nodes:?}");
    for stranger in [&[][..], &[("digest", "angarium:guess")]] {
        assert_bare_gets_nothing(&raw(&server, stranger).await, &nodes).await;
    }
    assert_eq!(acls(&admin, "/tests").await.len(), nodes.len());
    let bare = refusal(&address, &AccessFiles::default()).await;
    assert!(bare.contains("closed to a session without an identity"), "{bare}");
    let other = refusal(&address, &Logins::new("digest angarium:guess").files).await;
    assert!(other.contains("closed to the identity of this session"), "{other}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tree_of_a_sasl_user_is_closed_to_others() {
    let server = ZooKeeper::start_with_logins(&[("angarium", "secret"), ("other", "known")]);
    let (address, logins) = (server.fresh_tree(), Logins::new("sasl angarium:secret"));
    let tree = open(&address, &logins.files).await;
    be_busy(&(Arc::clone(&tree) as Tree)).await;
    let sasl = zookeeper_client::SaslOptions::digest_md5("angarium", "secret");
    let admin = Client::connector().with_sasl(sasl).connect(&server.endpoint().to_string()).await.unwrap();
    assert_eq!(open_nodes(&admin, "/tests", "sasl", "angarium").await, [""; 0]);
    let nodes: Vec<_> = acls(&admin, "/tests").await.into_iter().map(|(path, _)| path).collect();
    assert_bare_gets_nothing(&raw(&server, &[]).await, &nodes).await;
    let other = refusal(&address, &Logins::new("sasl other:known").files).await;
    assert!(other.contains("closed to the identity of this session"), "{other}");
    let began = Instant::now();
    let guess = refusal(&address, &Logins::new("sasl angarium:guess").files).await;
    assert!(guess.contains("refuse the credentials"), "{guess}");
    assert!(began.elapsed() < brief().start, "a refusal is final, and takes {:?}", began.elapsed());
}

/// The nonce of the client is short in one of 16 sessions, and its form is odd then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sasl_sessions_begin_again_and_again() {
    let server = ZooKeeper::start_with_logins(&[("angarium", "secret")]);
    let (address, logins) = (server.fresh_tree(), Logins::new("sasl angarium:secret"));
    for _ in 0..100 {
        open(&address, &logins.files).await.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn login_without_a_provider_is_named() {
    let server = ZooKeeper::shared();
    let refused = refusal(&server.fresh_tree(), &Logins::new("sasl angarium:secret").files).await;
    assert!(refused.contains("gave the session no identity"), "{refused}");
}

/// A server with TLS, its authority, and a client certificate.
struct Secured {
    server: ZooKeeper,
    authority: Authority,
    client: Certified,
}

impl Secured {
    fn start(validity: Validity) -> Self {
        let authority = Authority::new();
        let server = authority.certify("server", &["127.0.0.1", "localhost"], validity);
        let client = authority.certify("angarium", &[], Validity::Now);
        Self { server: ZooKeeper::start_with_tls(&authority, &server), authority, client }
    }

    fn address(&self, host: &str) -> Address {
        format!("zookeeper://{host}:{}/tls", self.server.secure_port()).parse().unwrap()
    }

    fn access(&self, certified: &Certified) -> AccessFiles {
        let certificate =
            CertificateFiles { chain: certified.certificate.clone(), key: certified.key.clone() };
        AccessFiles {
            authorities: Some(self.authority.file()),
            certificate: Some(certificate),
            ..AccessFiles::default()
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tree_of_a_client_certificate_is_closed_to_others() {
    let it = Secured::start(Validity::Now);
    let tree = open(&it.address("localhost"), &it.access(&it.client)).await;
    be_busy(&(Arc::clone(&tree) as Tree)).await;
    // Another session with the same subject, over the address this time.
    let again = it.authority.certify("angarium", &[], Validity::Now);
    let other: Tree = open(&it.address("127.0.0.1"), &it.access(&again)).await;
    assert_eq!(other.get("/meta/a").await.unwrap().unwrap().data, "secret");
    let stranger = it.authority.certify("stranger", &[], Validity::Now);
    let refused = refusal(&it.address("localhost"), &it.access(&stranger)).await;
    assert!(refused.contains("closed to the identity of this session"), "{refused}");
    let bare = raw(&it.server, &[]).await;
    for path in ["/tls", "/tls/meta", "/tls/meta/a", "/tls/run", "/tls/run/writers"] {
        assert_bare_gets_nothing(&bare, &[path.to_owned()]).await;
    }
}

/// The leader dies under a closed tree: sessions go on at the other servers with their identity, and with nothing less.
async fn outlive_the_leader(ensemble: &mut Ensemble, address: &Address, access: &AccessFiles) {
    let tree = open(address, access).await;
    assert_eq!(tree.protection(), Some(Protection::Closed));
    be_busy(&(Arc::clone(&tree) as Tree)).await;
    let leader = ensemble.leader();
    ensemble.0[leader].kill9();
    let ended = Instant::now() + Duration::from_secs(60);
    while tree.commit(&[], &[set("/meta/a", "again")]).await.is_err() {
        assert!(Instant::now() < ended, "the tree does not recover");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    commit(&(Arc::clone(&tree) as Tree), &[create("/meta/after")]).await;
    let second: Tree = open(address, access).await;
    assert_eq!(second.get("/meta/a").await.unwrap().unwrap().data, "again");
    let root = root(address);
    let nodes = ["", "/meta", "/meta/a", "/meta/a/5", "/meta/after", "/run", "/run/writers"];
    let nodes = nodes.map(|node| format!("{root}{node}"));
    for server in ensemble.0.iter().enumerate().filter(|(index, _)| *index != leader).map(|(_, one)| one) {
        assert_bare_gets_nothing(&raw(server, &[]).await, &nodes).await;
    }
    ensemble.0[leader].restart();
    assert_bare_gets_nothing(&raw(&ensemble.0[leader], &[]).await, &nodes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sasl_tree_of_three_servers_outlives_their_leader() {
    let mut ensemble = Ensemble::start_with_logins(&[("angarium", "secret")]);
    let (address, logins) = (ensemble.fresh_tree(), Logins::new("sasl angarium:secret"));
    outlive_the_leader(&mut ensemble, &address, &logins.files).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_tree_of_three_servers_outlives_their_leader() {
    let authority = Authority::new();
    let server = authority.certify("server", &["127.0.0.1", "localhost"], Validity::Now);
    let client = authority.certify("angarium", &[], Validity::Now);
    let mut ensemble = Ensemble::start_with_tls(&authority, &server);
    let servers = ensemble.0.each_ref().map(|server| format!("127.0.0.1:{}", server.secure_port()));
    let address = format!("zookeeper://{}/tls", servers.join(",")).parse().unwrap();
    let certificate = CertificateFiles { chain: client.certificate.clone(), key: client.key.clone() };
    let access = AccessFiles {
        authorities: Some(authority.file()),
        certificate: Some(certificate),
        ..AccessFiles::default()
    };
    outlive_the_leader(&mut ensemble, &address, &access).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unfit_certificates_are_named() {
    let it = Secured::start(Validity::Now);
    let address = it.address("127.0.0.1");
    let no_certificate = AccessFiles { certificate: None, ..it.access(&it.client) };
    let past = it.authority.certify("past", &[], Validity::Past);
    let foreign = Authority::new();
    let unknown = foreign.certify("angarium", &[], Validity::Now);
    let wrong_authority = AccessFiles { authorities: Some(foreign.file()), ..it.access(&it.client) };
    for (access, why) in [
        (no_certificate, "alert"),
        (it.access(&past), "alert"),
        (it.access(&unknown), "alert"),
        (wrong_authority, "UnknownIssuer"),
    ] {
        let refused = refusal(&address, &access).await;
        assert!(refused.contains(why), "{refused} is not about {why}");
    }
}

/// TLS to the port of clear text, and clear text to that of TLS.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_port_ends_the_start_with_its_cause() {
    let it = Secured::start(Validity::Now);
    let plain: Address = format!("zookeeper://{}/tls", it.server.endpoint()).parse().unwrap();
    let (secure, certified) = (it.address("127.0.0.1"), it.access(&it.client));
    let bare = AccessFiles::default();
    for (address, access, why) in [
        (plain, certified, "does not speak TLS on this port"),
        (secure, bare, "it speaks TLS, and the settings"),
    ] {
        let began = Instant::now();
        let opened = ZooKeeperTree::open_with(address.clone(), access, ZooKeeperTimeouts::default()).await;
        let Err(TreeError::NotSent(refused)) = opened else { panic!("{address} opens") };
        assert!(refused.contains(why), "{refused}");
        let port = address.to_string().rsplit_once('/').map(|(servers, _)| servers.to_owned()).unwrap();
        assert!(refused.contains(port.trim_start_matches("zookeeper://")), "{refused}");
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expired_or_foreign_server_is_named() {
    let past = Secured::start(Validity::Past);
    let refused = refusal(&past.address("127.0.0.1"), &past.access(&past.client)).await;
    assert!(refused.contains("xpired"), "{refused}");
    let authority = Authority::new();
    let server = authority.certify("server", &["zk.test"], Validity::Now);
    let client = authority.certify("angarium", &[], Validity::Now);
    let named = Secured { server: ZooKeeper::start_with_tls(&authority, &server), authority, client };
    let refused = refusal(&named.address("127.0.0.1"), &named.access(&named.client)).await;
    assert!(refused.contains("not valid for name"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_settings_are_errors_at_once() {
    let authority = Authority::new();
    let client = authority.certify("angarium", &[], Validity::Now);
    let other = authority.certify("other", &[], Validity::Now);
    let dir = TempDir::new().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let (empty, text) = (file("empty", ""), file("text", "-----BEGIN CERTIFICATE-----\nx"));
    let with = |ca: &Path, chain: &Path, key: &Path| AccessFiles {
        logins: None,
        authorities: Some(ca.to_owned()),
        certificate: Some(CertificateFiles { chain: chain.to_owned(), key: key.to_owned() }),
    };
    let (ca, chain, key) = (authority.file(), client.certificate.as_path(), client.key.as_path());
    let good = with(&ca, chain, key);
    for (address, access, why) in [
        ("zookeeper://a..b:1", good.clone(), "a..b"),
        ("zookeeper://-a:1", good.clone(), "-a"),
        ("zookeeper://a!:1", good.clone(), "a!"),
        ("zookeeper://127.0.0.1:1", with(&empty, chain, key), "no certificate"),
        ("zookeeper://127.0.0.1:1", with(&text, chain, key), "text"),
        ("zookeeper://127.0.0.1:1", with(&ca, &empty, key), "no certificate"),
        ("zookeeper://127.0.0.1:1", with(&ca, chain, &empty), "no key"),
        ("zookeeper://127.0.0.1:1", with(&ca, chain, chain), "no key"),
        ("zookeeper://127.0.0.1:1", with(&ca, chain, &other.key), "not be consistent"),
        ("zookeeper://127.0.0.1:1", with(dir.path(), chain, key), "not a regular file"),
        (
            "zookeeper://127.0.0.1:1",
            AccessFiles { authorities: None, ..good.clone() },
            "needs the certificates",
        ),
    ] {
        let began = Instant::now();
        let refused = refusal(&address.parse().unwrap(), &access).await;
        assert!(refused.contains(why), "{refused} is not about {why}");
        assert!(began.elapsed() < Duration::from_secs(5), "{refused}");
    }
}
