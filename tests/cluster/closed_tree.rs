//! A tree in ZooKeeper that only the identity of the service can use: nothing that replicas create is open, and an open
//! tree is closed under load.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use http::StatusCode;
use rustix::process::Signal;
use serde_json::{Value, json};
use zookeeper_client::{Acls, Client as Raw, CreateMode, Error as ZkError, SaslOptions};

use super::{Cluster, WATCHED, queues};
use crate::support::client::Client;
use crate::support::pauses::{noise, watch};
use crate::support::server::ServerBuilder;
use angarium_testbed::held::wait_until;
use angarium_testbed::zookeeper::ZooKeeper;

/// A file of logins for ZooKeeper, in a folder of its own.
fn logins(lines: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("there is room for a temporary directory");
    let path = dir.path().join("logins");
    std::fs::write(&path, lines).expect("the directory is ours");
    (dir, path)
}

fn with_identity(builder: ServerBuilder, logins: &Path) -> ServerBuilder {
    builder.arg("--zookeeper-auth-file").arg(logins)
}

/// A session with the ensemble, and the runtime that carries it.
struct Session {
    runtime: tokio::runtime::Runtime,
    client: Raw,
}

impl Session {
    /// Opens a session as a user of SASL, or as any program without one.
    fn open(zookeeper: &ZooKeeper, user: Option<(&'static str, &'static str)>) -> Self {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
        let endpoint = zookeeper.endpoint().to_string();
        let connector = match user {
            Some((user, password)) => Raw::connector().with_sasl(SaslOptions::digest_md5(user, password)),
            None => Raw::connector(),
        };
        let client = runtime.block_on(connector.connect(&endpoint)).expect("it connects");
        Self { runtime, client }
    }

    /// As [`Session::open`], with a login of the scheme `digest`.
    fn with_digest(zookeeper: &ZooKeeper, login: &str) -> Self {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
        let endpoint = zookeeper.endpoint().to_string();
        let connector = Raw::connector().with_auth("digest", login.as_bytes());
        let client = runtime.block_on(connector.connect(&endpoint)).expect("it connects");
        Self { runtime, client }
    }

    /// All paths at and below a node, each with whether its ACL has this scheme alone.
    fn walk(&self, path: &str, scheme: &str) -> Vec<(String, bool)> {
        let (mut found, mut waiting) = (Vec::new(), vec![path.to_owned()]);
        while let Some(path) = waiting.pop() {
            let acl = match self.runtime.block_on(self.client.get_acl(&path)) {
                Ok((acl, _)) => acl,
                Err(ZkError::NoNode) => continue,
                Err(error) => panic!("{path}: {error}"),
            };
            let names = self.runtime.block_on(self.client.list_children(&path)).unwrap_or_default();
            waiting.extend(names.iter().map(|name| format!("{path}/{name}")));
            found.push((path, acl.iter().all(|entry| entry.scheme() == scheme)));
        }
        found
    }

    /// The number of nodes at and below a path, all of which must be closed.
    fn closed_nodes(&self, path: &str, scheme: &str) -> Vec<String> {
        let nodes = self.walk(path, scheme);
        let open: Vec<_> = nodes.iter().filter(|(_, is_closed)| !is_closed).collect();
        assert!(open.is_empty(), "{open:?}");
        nodes.into_iter().map(|(path, _)| path).collect()
    }

    /// Asserts that this session is refused at each of the paths. A node that `admin` no longer finds either has gone with
    /// the session of its replica, or with its work.
    fn assert_gets_nothing(&self, paths: &[String], admin: &Self) {
        for path in paths {
            let (data, names) = (self.client.get_data(path), self.client.list_children(path));
            let data = self.runtime.block_on(data).map(drop).unwrap_err();
            if data == ZkError::NoNode && !admin.finds(path) {
                continue;
            }
            assert_eq!(data, ZkError::NoAuth, "{path}");
            let (set, delete) = (self.client.set_data(path, b"", None), self.client.delete(path, None));
            for refused in [
                self.runtime.block_on(names).map(drop).unwrap_err(),
                self.runtime.block_on(set).map(drop).unwrap_err(),
                self.runtime.block_on(delete).unwrap_err(),
            ] {
                let is_gone = refused == ZkError::NoNode && !admin.finds(path);
                assert!(
                    refused == ZkError::NoAuth || is_gone || refused == ZkError::NotEmpty,
                    "{path}: {refused}"
                );
            }
        }
    }

    fn finds(&self, path: &str) -> bool {
        self.runtime.block_on(self.client.check_stat(path)).expect("the tree answers").is_some()
    }
}

fn done(client: &Client, method: &str, path: &str, body: Value) {
    let answer = match method {
        "put" => client.put(path, Some(&body)),
        _ => client.post(path, &body),
    };
    let answer = answer.unwrap();
    assert!(answer.status.is_success(), "{method} {path}: {}", answer.text());
}

/// Makes the service create nodes of every kind.
fn be_busy(client: &Client, redis: &str) {
    for queue in queues(12) {
        done(client, "put", &format!("/v2/queues/{queue}"), json!({}));
        client.post_messages(&queue, &[json!(1), json!(2)]).unwrap();
        let claim = client.claim(&queue, 1, 600).unwrap().granted().unwrap();
        client.delete_message(&queue, &claim.messages[0].id, Some(&claim.id)).unwrap();
        client.claim(&queue, 1, 600).unwrap().granted().unwrap();
    }
    done(client, "put", "/v2/pools/second", json!({"uri": redis, "weight": 10, "flavor": "fast"}));
    done(client, "put", "/v2/flavors/fast", json!({"pool_list": ["second"]}));
    done(client, "put", "/v2/queues/f.fifo", json!({"_fifo": true}));
    done(client, "put", "/v2/queues/queue-0/hold", json!({"reason": "test"}));
    done(client, "put", "/v2/pools/second/hold", json!({"reason": "test"}));
    done(client, "put", "/v2/topics/news", json!({}));
    done(client, "post", "/v2/topics/news/subscriptions", json!({"subscriber": "pull:a"}));
    done(client, "post", "/v2/queues/queue-1/subscriptions", json!({"subscriber": "queue:queue-2"}));
    done(client, "post", "/v2/topics/news/messages", json!({"messages": [{"body": 1}]}));
    assert_eq!(client.delete("/v2/queues/queue-5").unwrap().status, StatusCode::NO_CONTENT);
}

fn root(cluster: &Cluster) -> &str {
    let (_, rest) = cluster.address.split_once("://").expect("it is an address");
    &rest[rest.find('/').expect("it has a root")..]
}

#[test]
fn busy_replicas_leave_no_open_node() {
    let zookeeper = ZooKeeper::start_with_logins(&[("angarium", "secret")]);
    let (dir, file) = logins("sasl angarium:secret\n");
    let mut cluster = Cluster::without_replicas(&zookeeper, &["--require-secure-tree"]);
    for _ in 0..2 {
        cluster.add_with(|builder| with_identity(builder, &file));
    }
    cluster.wait_until_shared();
    be_busy(&cluster.client(0), &cluster.redis.uri("prefix=second"));
    let admin = Session::open(&zookeeper, Some(("angarium", "secret")));
    let by_hand = format!("{}/by-hand", root(&cluster));
    let everyone = CreateMode::Persistent.with_acls(Acls::anyone_all());
    admin.runtime.block_on(admin.client.create(&by_hand, b"", &everyone)).unwrap();
    // The slots change hands, by force and in order, and with them the nodes of owners.
    cluster.replicas[1].server.take().unwrap().kill9();
    cluster.replicas[1].server = Some(cluster.replicas[1].builder.start());
    cluster.wait_until_shared();
    wait_until("a replica warns of an open node", || warnings(&cluster.client(1)).contains("/by-hand"));
    admin.runtime.block_on(admin.client.delete(&by_hand, None)).unwrap();
    let nodes = admin.closed_nodes("/tests", "sasl");
    for part in [
        "/meta/system",
        "/meta/pools/second",
        "/owner",
        "/holds",
        "/claims/",
        "/run/writers/",
        "/meta/components/replica/",
    ] {
        assert!(nodes.iter().any(|path| path.contains(part)), "no {part} in {} nodes", nodes.len());
    }
    let bare = Session::open(&zookeeper, None);
    bare.assert_gets_nothing(&nodes, &admin);
    let warnings = cluster.client(0).get("/readyz").unwrap().json();
    assert_eq!(warnings["warnings"], json!([]), "{warnings}");
    let tree = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_angarium"));
        command.args(["tree", "export", "tree.jsonl", "--coordination", &cluster.address]);
        command.args(args).current_dir(dir.path()).output().unwrap().status.success()
    };
    assert!(!tree(&[]) && tree(&["--zookeeper-auth-file", file.to_str().unwrap()]));
    let stranger = ServerBuilder::new(&dir.path().join("data")).arg("--coordination").arg(&cluster.address);
    let refused = stranger.start_refused();
    assert!(refused.contains("closed to a session without an identity"), "{refused}");
}

fn secure(cluster: &Cluster, file: Option<&Path>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_angarium"));
    command.args(["tree", "secure", "--coordination", &cluster.address]);
    if let Some(file) = file {
        command.arg("--zookeeper-auth-file").arg(file);
    }
    command.output().expect("the built program can be started")
}

fn warnings(client: &Client) -> String {
    client.get("/readyz").unwrap().json()["warnings"].to_string()
}

#[test]
fn open_cluster_is_secured_under_load() {
    let zookeeper = ZooKeeper::start();
    let (dir, file) = logins("digest angarium:secret\n");
    let mut cluster = Cluster::start_on(&zookeeper, 2, &[]);
    be_busy(&cluster.client(0), &cluster.redis.uri("prefix=second"));
    let refused = secure(&cluster, Some(&file));
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && text.contains("2 sessions use the tree without"), "{text}");
    let hand_over = cluster.hand_over(0);
    let routes = cluster.routes();
    let ((), traffic) = watch(&routes, WATCHED, || {
        // One after the other gets the identity, and works beside replicas without one.
        for number in 0..2 {
            cluster.restart_with(number, |builder| with_identity(builder, &file));
            assert!(number == 1 || !secure(&cluster, Some(&file)).status.success());
        }
        assert!(warnings(&cluster.client(0)).contains("open to every client"));
        let mut doctor = Command::new(env!("CARGO_BIN_EXE_angarium"));
        doctor.args(["doctor", "--url", cluster.replicas[0].server().base()]);
        let doctor = doctor.output();
        let doctor = String::from_utf8(doctor.unwrap().stdout).unwrap();
        assert!(doctor.contains("run `angarium tree secure`"), "{doctor}");
        let strict = ServerBuilder::new(&dir.path().join("strict")).arg("--require-secure-tree");
        let strict = with_identity(strict.arg("--coordination").arg(&cluster.address), &file);
        assert!(strict.start_refused().contains("--require-secure-tree is set"));
        let done = secure(&cluster, Some(&file));
        let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        assert!(done.status.success() && out.contains("nodes are closed"), "{out}{err}");
    });
    traffic.assert_kept("closing of the tree", hand_over + noise(), &cluster.client(0));
    let admin = Session::with_digest(&zookeeper, "angarium:secret");
    let nodes = admin.closed_nodes(root(&cluster), "digest");
    Session::open(&zookeeper, None).assert_gets_nothing(&nodes, &admin);
    assert_eq!(warnings(&cluster.client(0)), "[]");
}

#[test]
fn closing_of_a_path_without_a_tree_is_refused() {
    let zookeeper = ZooKeeper::start();
    let (_dir, file) = logins("digest angarium:secret\n");
    let cluster = Cluster::without_replicas(&zookeeper, &[]);
    let refused = secure(&cluster, Some(&file));
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && text.contains("no service has used the tree at"), "{text}");
    assert!(text.contains(root(&cluster)), "{text}");
}

#[test]
fn refused_login_of_a_running_replica_is_logged() {
    let zookeeper = ZooKeeper::start_with_logins(&[("angarium", "secret")]);
    let (_dir, file) = logins("sasl angarium:secret\n");
    let mut cluster = Cluster::without_replicas(&zookeeper, &["--session-timeout=3"]);
    cluster.add_with(|builder| with_identity(builder, &file));
    std::fs::write(&file, "sasl angarium:hidden-word\n").unwrap();
    let server = cluster.replicas[0].server();
    server.signal(Signal::STOP);
    // Its session ends, and it needs another one.
    let others = format!("{}/meta/components/replica", root(&cluster));
    let admin = Session::open(&zookeeper, Some(("angarium", "secret")));
    wait_until("the session has ended", || {
        admin.runtime.block_on(admin.client.list_children(&others)).unwrap().is_empty()
    });
    server.signal(Signal::CONT);
    wait_until("the refusal is logged", || server.last_lines().contains("zookeeper session refused"));
    assert!(!server.last_lines().contains("hidden-word"), "{}", server.last_lines());
    std::fs::write(&file, "sasl angarium:secret\n").unwrap();
    wait_until("it has a session again", || {
        cluster.client(0).get("/readyz").is_ok_and(|answer| answer.status == StatusCode::OK)
    });
}
