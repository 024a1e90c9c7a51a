//! Replicas that start at the same moment.

use std::thread;

use http::StatusCode;
use serde_json::json;
use tempfile::TempDir;

use crate::support::server::{Server, ServerBuilder};
use angarium_testbed::redis::{Redis, SYNCED};
use angarium_testbed::zookeeper::ZooKeeper;

const REPLICAS: usize = 3;
const ROUNDS: usize = 6;

#[test]
fn replicas_starting_on_empty_tree_become_one_installation() {
    let redis = Redis::start(SYNCED);
    for round in 0..ROUNDS {
        let tree = ZooKeeper::shared().fresh_tree().to_string();
        let data: Vec<_> = (0..REPLICAS).map(|_| TempDir::new().unwrap()).collect();
        let builders = data.iter().map(|data| {
            ServerBuilder::new(data.path())
                .arg("--coordination")
                .arg(&tree)
                .arg("--pool")
                .arg(redis.uri(&format!("prefix=start{round}")))
        });
        let builders: Vec<_> = builders.collect();
        let servers: Vec<Server> = thread::scope(|scope| {
            let starting: Vec<_> = builders.iter().map(|builder| scope.spawn(|| builder.start())).collect();
            starting.into_iter().map(|started| started.join().unwrap()).collect()
        });
        let clients: Vec<_> = servers.iter().map(Server::client).collect();
        let seen = clients[0].get("/v2/components").unwrap().json();
        assert_eq!(seen["components"].as_array().unwrap().len(), REPLICAS, "{seen}");
        let pools = clients[1].get("/v2/pools").unwrap().json();
        assert_eq!(pools["pools"].as_array().unwrap().len(), 1, "{pools}");
        for (client, number) in clients.iter().zip(0..) {
            let posted = client.post_messages(&format!("q{number}"), &[json!(number)]).unwrap();
            assert_eq!(posted.status, StatusCode::CREATED, "round {round}: {}", posted.text());
        }
    }
}
