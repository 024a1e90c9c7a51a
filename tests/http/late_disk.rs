//! A pool whose disk is late at the start, or missing: nothing is made in its place, and it is served once it is there.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use angarium_clock::Clock;
use angarium_storage::PoolStore;
use angarium_storage::open::PoolOpener;
use http::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::client::Client;
use crate::support::server::{Server, ServerBuilder};
use angarium_testbed::held::wait_until;
use angarium_testbed::zookeeper::ZooKeeper;

/// The queue of the pool on a disk of its own, and one beside it.
const LATE: &str = "late";
const OTHER: &str = "other";

/// A data directory whose pool `two` is on a disk of its own, mounted at `disk`, with a message in its queue.
fn with_own_disk() -> TempDir {
    let data = tempfile::tempdir().unwrap();
    let server = ServerBuilder::new(data.path()).start();
    let client = server.client();
    let pool = json!({"uri": "embedded:disk/two", "weight": 1, "flavor": "own"});
    assert_eq!(client.put("/v2/pools/two", Some(&pool)).unwrap().status, StatusCode::CREATED);
    let flavor = json!({"pool_list": ["two"]});
    assert_eq!(client.put("/v2/flavors/own", Some(&flavor)).unwrap().status, StatusCode::CREATED);
    let queue = client.put(&format!("/v2/queues/{LATE}"), Some(&json!({"_flavor": "own"}))).unwrap();
    assert_eq!(queue.status, StatusCode::CREATED);
    for queue in [LATE, OTHER] {
        assert_eq!(client.post_messages(queue, &[json!("before")]).unwrap().status, StatusCode::CREATED);
    }
    assert!(server.terminate().success());
    data
}

/// Takes the disk away. Its mount point stays.
fn unmount(data: &Path) {
    fs::rename(data.join("disk"), data.join("unmounted")).unwrap();
    fs::create_dir(data.join("disk")).unwrap();
}

fn mount(data: &Path) {
    fs::remove_dir_all(data.join("disk")).unwrap();
    fs::rename(data.join("unmounted"), data.join("disk")).unwrap();
}

fn warnings(client: &Client) -> Vec<String> {
    let answer = client.get("/readyz").unwrap();
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    answer.json()["warnings"].as_array().unwrap().iter().map(Value::to_string).collect()
}

/// The queue of the late pool is refused, every other continues, and the probe warns.
fn assert_waits(client: &Client) {
    let posted = client.post_messages(LATE, &[json!("early")]).unwrap();
    assert_eq!(posted.status, StatusCode::SERVICE_UNAVAILABLE, "{}", posted.text());
    assert_eq!(posted.json()["nothing_written"], json!(true));
    assert_eq!(client.claim(LATE, 1, 60).unwrap().status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(client.post_messages(OTHER, &[json!("go on")]).unwrap().status, StatusCode::CREATED);
    assert!(client.claim(OTHER, 1, 60).unwrap().granted().is_some());
    let warnings = warnings(client);
    assert!(warnings.iter().any(|warning| warning.contains("pool two")), "{warnings:?}");
}

/// The late pool serves again, with what it had, without a restart.
fn assert_served(server: &Server) {
    let client = server.client();
    wait_until("the pool is served", || {
        client.post_messages(LATE, &[json!("after")]).unwrap().status == StatusCode::CREATED
    });
    let claimed = client.claim(LATE, 10, 60).unwrap().granted().unwrap();
    let bodies: Vec<_> = claimed.messages.iter().map(|message| message.body.clone()).collect();
    assert_eq!(bodies, [json!("before"), json!("after")]);
    assert_eq!(warnings(&client), Vec::<String>::new());
}

#[test]
fn late_disk_is_awaited_and_served_without_a_restart() {
    let data = with_own_disk();
    unmount(data.path());
    let server = ServerBuilder::new(data.path()).start();
    assert_waits(&server.client());
    let health = server.client().get("/v2/health").unwrap().json();
    let told = health["pools"]["two"]["description"].as_str().unwrap();
    assert!(told.contains("disk/two") && told.contains("mounted"), "{told}");
    let made: Vec<_> = fs::read_dir(data.path().join("disk")).unwrap().collect();
    assert!(made.is_empty(), "made in the mount point: {made:?}");
    mount(data.path());
    assert_served(&server);
    // It is told once, not at every try.
    let told = server.last_lines().matches("pool unreachable").count();
    assert_eq!(told, 1, "{}", server.last_lines());
    assert!(server.last_lines().contains("pool reachable again"));
}

#[test]
fn empty_store_in_the_mount_point_gives_way_to_the_disk() {
    let data = with_own_disk();
    unmount(data.path());
    // What versions before made there.
    let made: Arc<dyn PoolStore> =
        PoolOpener::new(data.path(), Clock::manual(0), []).open("embedded:disk/two").unwrap();
    drop(made);
    let server = ServerBuilder::new(data.path()).start();
    assert_waits(&server.client());
    mount(data.path());
    assert_served(&server);
}

#[test]
fn only_pool_may_be_late() {
    let data = tempfile::tempdir().unwrap();
    assert_awaits_only_pool(&data, &ServerBuilder::new(data.path()));
}

#[test]
fn only_pool_of_lone_replica_may_be_late() {
    let data = tempfile::tempdir().unwrap();
    let address = ZooKeeper::shared().fresh_tree().to_string();
    assert_awaits_only_pool(&data, &ServerBuilder::new(data.path()).arg("--coordination").arg(address));
}

/// A service starts without the disk of its only pool, and serves when it is there.
fn assert_awaits_only_pool(data: &TempDir, builder: &ServerBuilder) {
    let builder = builder.clone().arg("--pool").arg("embedded:disk/one");
    let server = builder.start();
    assert_eq!(server.client().post_messages(LATE, &[json!("before")]).unwrap().status, StatusCode::CREATED);
    assert!(server.terminate().success());
    unmount(data.path());
    let server = builder.start();
    let client = server.client();
    assert_eq!(client.get("/livez").unwrap().status, StatusCode::OK);
    assert_eq!(client.get("/readyz").unwrap().status, StatusCode::SERVICE_UNAVAILABLE);
    let posted = client.post_messages(LATE, &[json!("early")]).unwrap();
    assert_eq!(posted.status, StatusCode::SERVICE_UNAVAILABLE, "{}", posted.text());
    mount(data.path());
    assert_served(&server);
}

/// The disk never returns: the pool is removed by force, without it, and its queues continue elsewhere.
#[test]
fn pool_with_lost_disk_is_removed_by_force() {
    let data = tempfile::tempdir().unwrap();
    let server = ServerBuilder::new(data.path()).start();
    let client = server.client();
    let weigh = |client: &Client, pool: &str, weight: u64| {
        let changed = client.patch(&format!("/v2/pools/{pool}"), &json!({"weight": weight})).unwrap();
        assert_eq!(changed.status, StatusCode::OK, "{}", changed.text());
    };
    assert_eq!(client.post_messages(OTHER, &[json!("kept")]).unwrap().status, StatusCode::CREATED);
    let pool = json!({"uri": "embedded:disk/two", "weight": 1});
    assert_eq!(client.put("/v2/pools/two", Some(&pool)).unwrap().status, StatusCode::CREATED);
    weigh(&client, "default", 0);
    let metadata = json!({"_max_claim_count": 3, "_dead_letter_queue": OTHER});
    assert_eq!(
        client.put(&format!("/v2/queues/{LATE}"), Some(&metadata)).unwrap().status,
        StatusCode::CREATED
    );
    assert_eq!(
        client.post_messages(LATE, &[json!("lost"), json!("too")]).unwrap().status,
        StatusCode::CREATED
    );
    let lost = client.claim(LATE, 1, 300).unwrap().granted().unwrap();
    weigh(&client, "default", 1);
    assert!(server.terminate().success());
    unmount(data.path());

    let server = ServerBuilder::new(data.path()).start();
    let client = server.client();
    let remove = |query: &str| client.delete(&format!("/v2/pools/two{query}")).unwrap().status.as_u16();
    assert_eq!((remove(""), remove("?force=false"), remove("?force=perhaps")), (403, 403, 400));
    assert_eq!((remove("?force=true"), remove("?force=true")), (204, 204));
    assert_eq!(client.get("/v2/pools/two").unwrap().status, StatusCode::NOT_FOUND);
    assert!(warnings(&client).is_empty());
    let check = |client: &Client, total: u64| {
        let queue = client.get(&format!("/v2/queues/{LATE}")).unwrap().json();
        assert_eq!(queue["_dead_letter_queue"], json!(OTHER), "{queue}");
        assert_eq!(client.stats(LATE).unwrap().json()["messages"]["total"], json!(total));
        assert_eq!(client.stats(OTHER).unwrap().json()["messages"]["total"], json!(1));
    };
    check(&client, 0);
    let done = json!({"messages": [{"id": lost.messages[0].id, "done": {}}]});
    let settled = client.post(&format!("/v2/queues/{LATE}/claims/{}/settle", lost.id), &done).unwrap();
    assert_eq!(settled.json()["results"][0]["status"], json!(404), "{}", settled.text());
    assert_eq!(client.post_messages(LATE, &[json!("new")]).unwrap().status, StatusCode::CREATED);
    server.kill9();
    let server = ServerBuilder::new(data.path()).start();
    check(&server.client(), 1);
    assert_eq!(server.client().get("/v2/pools/two").unwrap().status, StatusCode::NOT_FOUND);
    let claim = server.client().claim(LATE, 5, 60).unwrap().granted().unwrap();
    assert_eq!(claim.messages[0].body, json!("new"));
}
