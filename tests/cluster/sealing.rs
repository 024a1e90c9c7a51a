//! Secrets in ZooKeeper are sealed: by one command while replicas serve, under a key that is replaced in the same way. A
//! bare client that reads every node finds none of them.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use http::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;
use zookeeper_client::Client as Raw;

use super::{Cluster, WATCHED};
use crate::support::client::Client;
use crate::support::pauses::{noise, watch};
use crate::support::server::ServerBuilder;
use angarium_testbed::held::wait_until;
use angarium_testbed::redis::{Redis, SYNCED};
use angarium_testbed::zookeeper::ZooKeeper;

const OLD: &str = "2026-10 AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n";
const NEW: &str = "2026-11 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1eff\n";
const PASSWORD: &str = "pass-of-pool";
const TOKEN: &str = "token-in-address";
const SIGNING: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// Files of keys, in a folder of their own.
struct KeyFiles(TempDir);

impl KeyFiles {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, keys: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, keys).unwrap();
        path
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

fn tree(action: &[&str], address: &str, keys: Option<&Path>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_angarium"));
    command.arg("tree").args(action).args(["--coordination", address]);
    if let Some(keys) = keys {
        command.arg("--secret-key-file").arg(keys);
    }
    command
}

/// Runs `tree seal`, and returns whether it succeeded and the text of both its outputs.
fn seal(address: &str, keys: &Path) -> (bool, String) {
    let output = tree(&["seal"], address, Some(keys)).output().unwrap();
    let text = [&output.stdout[..], &output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

/// The data of every node below the root of the tree, as a client without a key reads it.
fn dump(address: &str) -> Vec<(String, String)> {
    let rest = address.strip_prefix("zookeeper://").unwrap();
    let (servers, root) = rest.split_at(rest.find('/').unwrap());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let client = Raw::connector().connect(servers).await.unwrap();
        let (mut nodes, mut waiting) = (Vec::new(), vec![root.to_owned()]);
        while let Some(path) = waiting.pop() {
            let Ok((data, _)) = client.get_data(&path).await else { continue };
            let names = client.list_children(&path).await.unwrap_or_default();
            waiting.extend(names.iter().map(|name| format!("{path}/{name}")));
            nodes.push((path, String::from_utf8_lossy(&data).into_owned()));
        }
        nodes
    })
}

/// Secrets that a dump of the tree shows: the ones that the test has given, and the ones that replicas have made.
fn shown(address: &str, made: &[String]) -> Vec<String> {
    let nodes = dump(address);
    assert!(nodes.len() > 500, "{} nodes", nodes.len());
    let given = [PASSWORD, TOKEN, SIGNING].map(str::to_owned);
    let secrets = given.iter().chain(made);
    secrets.filter(|secret| nodes.iter().any(|(_, data)| data.contains(*secret))).cloned().collect()
}

/// The key of the receipts, from a tree in the clear.
fn made_secrets(address: &str) -> Vec<String> {
    let nodes = dump(address);
    let (_, receipts) = nodes.iter().find(|(path, _)| path.ends_with("/meta/receipts")).unwrap();
    let receipts: Value = serde_json::from_str(receipts).unwrap();
    vec![receipts["key"].to_string()]
}

fn warnings(client: &Client) -> String {
    client.get("/readyz").unwrap().json()["warnings"].to_string()
}

/// Has the service store secrets of each kind. Returns the receipt of a message.
fn store_secrets(client: &Client, pool: &Redis) -> Value {
    let uri = format!("redis://:{PASSWORD}@127.0.0.1:{}/0?prefix=second", pool.port());
    let done = |path: &str, body: Value| {
        let answer = client.put(path, Some(&body)).unwrap();
        assert!(answer.status.is_success(), "{path}: {}", answer.text());
    };
    done("/v2/pools/second", json!({"uri": uri, "weight": 10, "flavor": "fast"}));
    done("/v2/flavors/fast", json!({"pool_list": ["second"]}));
    done("/v2/queues/q", json!({"_flavor": "fast"}));
    let hook = json!({"subscriber": format!("http://127.0.0.1:9/{TOKEN}"), "secrets": [SIGNING]});
    let made = client.post("/v2/queues/hooked/subscriptions", &hook).unwrap();
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.text());
    client.post_messages("q", &[json!(1), json!(2)]).unwrap();
    sqs(client, "ReceiveMessage", json!({}))["Messages"][0]["ReceiptHandle"].clone()
}

fn sqs(client: &Client, operation: &str, mut body: Value) -> Value {
    body["QueueUrl"] = json!("http://h/000000000000/q");
    let client = client.clone().with_header("x-amz-target", &format!("AmazonSQS.{operation}"));
    let answer = client.post("/", &body).unwrap();
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    if answer.body.is_empty() { Value::Null } else { answer.json() }
}

/// Starts a replica again with this file of keys.
fn restart(cluster: &mut Cluster, number: usize, keys: &Path) {
    cluster.restart_with(number, |builder| builder.env("ANGARIUM_SECRET_KEY_FILE", keys));
}

#[test]
fn cluster_is_sealed_while_it_serves_and_its_key_replaced() {
    let (zookeeper, files) = (ZooKeeper::start(), KeyFiles::new());
    let settings: Vec<&str> = SYNCED.iter().copied().chain(["requirepass pass-of-pool"]).collect();
    let pool = Redis::start(&settings);
    let mut cluster = Cluster::start_on(&zookeeper, 2, &["--webhook-allow=127.0.0.0/8"]);
    let address = cluster.address.clone();
    let receipt = store_secrets(&cluster.client(0), &pool);
    let made = made_secrets(&address);
    assert_eq!(shown(&address, &made).len(), 4, "the search finds secrets in the clear");

    let hand_over = cluster.hand_over(0);
    let routes = cluster.routes();
    let ((), traffic) = watch(&routes, WATCHED, || seal_all(&mut cluster, &files, &receipt, &made));
    traffic.assert_kept("sealing", hand_over + noise(), &cluster.client(0));
    let ((), traffic) = watch(&routes, WATCHED, || replace_key(&mut cluster, &files, &receipt));
    traffic.assert_kept("rotation of the secret key", hand_over + noise(), &cluster.client(0));
    assert_eq!(shown(&address, &made), [""; 0]);

    let (old, new) = (files.path("old"), files.path("new"));
    let stranger = || ServerBuilder::new(&files.path("data")).arg("--coordination").arg(&address);
    let refused = stranger().start_refused();
    assert!(refused.contains("'2026-11'") && refused.contains("--secret-key-file"), "{refused}");
    let refused = stranger().arg("--secret-key-file").arg(&old).start_refused();
    assert!(refused.contains("'2026-11'") && refused.contains("has only: 2026-10 (id"), "{refused}");
    check_backup(&cluster, &files, &new);
}

/// Gives all replicas a key, one after the other, and seals the secrets.
fn seal_all(cluster: &mut Cluster, files: &KeyFiles, receipt: &Value, made: &[String]) {
    let address = &cluster.address.clone();
    // Step 1: all replicas get the key. Until then the command writes nothing.
    let old = files.write("old", OLD);
    for number in 0..2 {
        let (done, text) = seal(address, &old);
        assert!(!done && text.contains("started without the key 2026-10 (id"), "{text}");
        restart(cluster, number, &old);
    }
    assert_eq!(shown(address, made).len(), 4);
    assert!(warnings(&cluster.client(1)).contains("run `angarium tree seal`"));

    // Step 2: the command, killed in the middle and run again.
    let mut killed = tree(&["seal"], address, Some(&old)).stdout(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(killed.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.starts_with("sealed /meta/"), "{first}");
    killed.kill().unwrap();
    killed.wait().unwrap();
    let (done, text) = seal(address, &old);
    assert!(
        done && text.contains("4 nodes are sealed") && text.contains("under the key '2026-10'"),
        "{text}"
    );
    assert_eq!(shown(address, made), [""; 0]);
    wait_until("no replica warns", || (0..2).all(|number| warnings(&cluster.client(number)) == "[]"));
    check_serving(cluster, receipt);
}

/// Replaces the key by another one.
fn replace_key(cluster: &mut Cluster, files: &KeyFiles, receipt: &Value) {
    let address = &cluster.address.clone();
    // The next key: all replicas get it beside the old one, then the data key is sealed again.
    let (both, new) = (files.write("both", &format!("{NEW}{OLD}")), files.write("new", NEW));
    for number in 0..2 {
        let (done, text) = seal(address, &both);
        assert!(!done && text.contains("started without the key 2026-11 (id"), "{text}");
        restart(cluster, number, &both);
    }
    let (done, text) = seal(address, &both);
    assert!(done && text.contains("sealed again, now under the key '2026-11'"), "{text}");
    for number in 0..2 {
        restart(cluster, number, &new);
    }
    check_serving(cluster, receipt);
}

/// Pools, receipts and requests between replicas work with sealed secrets, and answers show none.
fn check_serving(cluster: &Cluster, receipt: &Value) {
    for number in 0..2 {
        let client = cluster.client(number);
        let shown = client.get("/v2/pools/second").unwrap().json()["uri"].to_string();
        assert!(shown.contains(":***@") && !shown.contains(PASSWORD), "{shown}");
        assert_eq!(client.post_messages("q", &[json!(3)]).unwrap().status, StatusCode::CREATED);
        sqs(&client, "ChangeMessageVisibility", json!({"ReceiptHandle": receipt, "VisibilityTimeout": 600}));
    }
}

/// A backup has the secrets sealed, and needs no key; a service on it needs one.
fn check_backup(cluster: &Cluster, files: &KeyFiles, keys: &Path) {
    let file = files.path("tree.jsonl");
    let run = |action: &str, address: &str| {
        let done = tree(&[action, file.to_str().unwrap()], address, None).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    run("export", &cluster.address);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("/meta/pools/second") && text.contains("/meta/seal"));
    assert!(![PASSWORD, TOKEN, SIGNING].iter().any(|secret| text.contains(secret)));
    let fresh = ZooKeeper::start();
    let address = fresh.fresh_tree().to_string();
    run("import", &address);
    let builder = ServerBuilder::new(&files.path("restored")).arg("--coordination").arg(&address);
    let restored = builder.arg("--secret-key-file").arg(keys).start();
    let pool = restored.client().get("/v2/pools/second").unwrap().json();
    assert!(pool["uri"].to_string().contains(":***@"), "{pool}");
}

#[test]
fn new_cluster_with_a_key_shows_no_secret() {
    let (zookeeper, files) = (ZooKeeper::start(), KeyFiles::new());
    let keys = files.write("keys", OLD);
    let settings: Vec<&str> = SYNCED.iter().copied().chain(["requirepass pass-of-pool"]).collect();
    let pool = Redis::start(&settings);
    let mut cluster = Cluster::without_replicas(&zookeeper, &["--webhook-allow=127.0.0.0/8"]);
    for _ in 0..2 {
        cluster.add_with(|builder| builder.arg("--secret-key-file").arg(&keys));
    }
    cluster.wait_until_shared();
    let receipt = store_secrets(&cluster.client(0), &pool);
    assert_eq!(shown(&cluster.address, &[]), [""; 0]);
    let sealed = dump(&cluster.address).into_iter().filter(|(_, data)| data.starts_with("{\"sealed\":"));
    assert_eq!(sealed.count(), 4);
    assert_eq!(warnings(&cluster.client(0)), "[]");
    check_serving(&cluster, &receipt);
    let replica = &mut cluster.replicas[1];
    replica.server.take().unwrap().kill9();
    replica.server = Some(replica.builder.start());
    cluster.wait_until_shared();
    check_serving(&cluster, &receipt);
}
