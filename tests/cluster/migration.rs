//! Queues that go to another pool while their slots are served by several replicas.

use std::thread;
use std::time::{Duration, Instant};

use http::StatusCode;
use serde_json::json;

use super::transfers::{arrivals, kill_messages, one_of_each};
use super::{Cluster, MAX_WAIT};
use crate::support::client::Client;
use angarium_testbed::held::wait_until;
use angarium_testbed::postgres::Postgres;

fn add_rows(client: &Client) {
    let pool = json!({"uri": Postgres::shared().fresh_uri(), "weight": 0});
    assert_eq!(client.put("/v2/pools/rows", Some(&pool)).unwrap().status, StatusCode::CREATED);
}

fn send(client: &Client, queue: &str, pool: &str, rate: u32) {
    let body = json!({"pool": pool, "rate": rate});
    let begun = client.post(&format!("/v2/queues/{queue}/migrate"), &body).unwrap();
    assert_eq!(begun.status, StatusCode::ACCEPTED, "{}", begun.text());
}

fn await_arrival(client: &Client, queue: &str) {
    let start = Instant::now();
    while client.get(&format!("/v2/queues/{queue}/migrate")).unwrap().status != StatusCode::NOT_FOUND {
        assert!(start.elapsed() < MAX_WAIT, "{queue} does not arrive");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Dead letters leave a queue that moves for one of another replica that moves too.
#[test]
fn dead_letters_transfer_from_and_to_migrating_queues() {
    let mut cluster = Cluster::start(2);
    let (source, target) = one_of_each(&cluster);
    let client = cluster.client(0);
    add_rows(&client);
    let metadata = json!({"_dead_letter_queue": target, "_max_claim_count": 1});
    assert_eq!(
        client.put(&format!("/v2/queues/{source}"), Some(&metadata)).unwrap().status,
        StatusCode::CREATED
    );
    // What waits there is copied slowly, and the dead letters go meanwhile.
    let waiting: Vec<_> = (0..400).map(|_| json!(1_000)).collect();
    assert_eq!(client.post_messages(&target, &waiting).unwrap().status, StatusCode::CREATED);
    send(&client, &target, "rows", 40);
    kill_messages(&client, &source, 0..20);
    send(&client, &source, "rows", 40);
    kill_messages(&client, &source, 20..40);
    // The owner of the source dies on the way, and then starts again.
    cluster.replicas[0].server.take().unwrap().kill9();
    cluster.wait_until_shared();
    let client = cluster.client(1);
    kill_messages(&client, &source, 40..60);
    cluster.replicas[0].server = Some(cluster.replicas[0].builder.start());
    cluster.wait_until_shared();
    for queue in [&source, &target] {
        await_arrival(&client, queue);
    }
    // What waited is older than what died.
    for _ in 0..waiting.len() / 20 {
        let claim = client.claim(&target, 20, 300).unwrap().granted().unwrap();
        assert!(claim.messages.iter().all(|message| message.body == json!(1_000)), "{claim:?}");
    }
    assert_eq!(arrivals(&client, (&source, &target), 60), (0..60).collect());
    let left = client.stats(&source).unwrap().json();
    assert_eq!(left["messages"]["total"], json!(0));
    // A pool on a busy machine may not report it at once.
    wait_until("all of it lies in the other pool", || {
        client.get("/v2/pools/default").unwrap().json()["usage"]["messages"] == json!(0)
    });
}

/// A pool is removed with the messages in it, at one replica: each replica restarts the queues that it serves.
#[test]
fn removed_pool_restarts_queues_of_all_replicas() {
    let cluster = Cluster::start(2);
    let (first, second) = one_of_each(&cluster);
    let client = cluster.client(0);
    add_rows(&client);
    let pool = |name: &str, weight: u64| {
        let changed = client.patch(&format!("/v2/pools/{name}"), &json!({"weight": weight})).unwrap();
        assert_eq!(changed.status, StatusCode::OK, "{}", changed.text());
    };
    pool("rows", 1);
    pool("default", 0);
    for queue in [&first, &second] {
        let made = client.put(&format!("/v2/queues/{queue}"), Some(&json!({"colour": "red"}))).unwrap();
        assert_eq!(made.status, StatusCode::CREATED);
        assert_eq!(client.post_messages(queue, &[json!(1), json!(2)]).unwrap().status, StatusCode::CREATED);
    }
    pool("default", 1);
    assert_eq!(client.delete("/v2/pools/rows").unwrap().status, StatusCode::FORBIDDEN);
    let removed = client.delete("/v2/pools/rows?force=true").unwrap();
    assert_eq!(removed.status, StatusCode::NO_CONTENT, "{}", removed.text());
    for client in [cluster.client(0), cluster.client(1)] {
        assert_eq!(client.get("/v2/pools/rows").unwrap().status, StatusCode::NOT_FOUND);
        for queue in [&first, &second] {
            assert_eq!(client.get(&format!("/v2/queues/{queue}")).unwrap().json()["colour"], json!("red"));
            let (total, posted) =
                (client.stats(queue).unwrap().json(), client.post_messages(queue, &[json!(3)]));
            assert_eq!(total["messages"]["total"], json!(0), "{queue}");
            assert_eq!(posted.unwrap().status, StatusCode::CREATED);
            let claim = client.claim(queue, 5, 60).unwrap().granted().unwrap();
            let gone = client.delete_message(queue, &claim.messages[0].id, Some(&claim.id)).unwrap();
            assert_eq!((claim.messages.len(), gone.status), (1, StatusCode::NO_CONTENT));
        }
    }
}
