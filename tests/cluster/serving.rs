//! A client may speak to any replica, and cannot tell.

use std::collections::HashSet;
use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{Cluster, queues, slot_of};
use crate::support::client::Client;
use crate::support::identity::{IdentityService, SERVICE_PASSWORD, SERVICE_USER};
use angarium_testbed::held::wait_until;
use angarium_testbed::zookeeper::ZooKeeper;

#[test]
fn any_replica_serves_any_queue() {
    let cluster = Cluster::start(3);
    let clients: Vec<Client> = (0..3).map(|replica| cluster.client(replica)).collect();
    // Instances have random ids: of a few queues one replica may own none.
    let owner_of = |queue: &String| cluster.owner_of(slot_of(queue));
    let owner_of = &owner_of;
    let owned_by = |owner| queues(96).into_iter().filter(move |queue| owner_of(queue) == owner).take(8);
    let queues: Vec<String> = (0..3).flat_map(owned_by).collect();
    for (number, queue) in queues.iter().enumerate() {
        let at = |step: usize| &clients[(number + step) % 3];
        assert_eq!(at(0).create_queue(queue).unwrap().status, StatusCode::CREATED);
        // At once, and for every caller.
        assert_eq!(at(1).create_queue(queue).unwrap().status, StatusCode::NO_CONTENT);
        let posted = at(1).post_messages(queue, &[json!(number), json!("two")]).unwrap();
        assert_eq!(posted.status, StatusCode::CREATED);
        let ids = posted.json()["ids"].as_array().unwrap().clone();
        let claim = at(2).claim(queue, 10, 60).unwrap().granted().unwrap();
        assert_eq!(claim.messages[0].body, json!(number));
        let message = &claim.messages[0].id;
        assert_eq!(ids[0], json!(message));
        assert_eq!(at(0).delete_message(queue, message, None).unwrap().status, StatusCode::FORBIDDEN);
        assert_eq!(
            at(1).delete_message(queue, message, Some(&claim.id)).unwrap().status,
            StatusCode::NO_CONTENT
        );
        for client in &clients {
            let stats = client.stats(queue).unwrap().json();
            assert_eq!((&stats["messages"]["claimed"], &stats["messages"]["total"]), (&json!(1), &json!(1)));
        }
    }
    let owners: HashSet<usize> = queues.iter().map(owner_of).collect();
    assert_eq!(owners.len(), 3, "each has served some of them");
}

#[test]
fn queues_are_listed_by_any_replica_as_soon_as_they_are_there() {
    let cluster = Cluster::start(2);
    for (number, queue) in queues(20).iter().enumerate() {
        assert_eq!(cluster.client(number % 2).create_queue(queue).unwrap().status, StatusCode::CREATED);
        let listed =
            cluster.client((number + 1) % 2).get("/v2/queues?limit=20&with_count=true").unwrap().json();
        assert_eq!(listed["count"], json!(number + 1));
        assert_eq!(listed["queues"].as_array().unwrap().len(), number + 1);
    }
}

#[test]
fn pools_and_flavors_are_everybodys_at_once() {
    let cluster = Cluster::start(2);
    let (one, other) = (cluster.client(0), cluster.client(1));
    let pool = json!({"uri": cluster.redis.uri("prefix=second"), "weight": 10, "flavor": "fast"});
    for round in 0..10 {
        assert_eq!(one.put("/v2/pools/second", Some(&pool)).unwrap().status, StatusCode::CREATED);
        assert_eq!(other.get("/v2/pools/second").unwrap().status, StatusCode::OK, "round {round}");
        let flavor = json!({"pool_list": ["second"]});
        assert_eq!(one.put("/v2/flavors/fast", Some(&flavor)).unwrap().status, StatusCode::CREATED);
        let queue = json!({"_flavor": "fast"});
        for name in ["f1", "f2", "f3"] {
            let created = other.put(&format!("/v2/queues/{name}"), Some(&queue)).unwrap();
            assert_eq!(created.status, StatusCode::CREATED, "{}", created.text());
            assert_eq!(one.delete(&format!("/v2/queues/{name}")).unwrap().status, StatusCode::NO_CONTENT);
        }
        assert_eq!(one.delete("/v2/flavors/fast").unwrap().status, StatusCode::NO_CONTENT);
        assert_eq!(other.get("/v2/flavors/fast").unwrap().status, StatusCode::NOT_FOUND);
        // What the deleted queues have left keeps the pool for a moment.
        angarium_testbed::held::wait_until("the pool is unused", || {
            other.delete("/v2/pools/second").unwrap().status == StatusCode::NO_CONTENT
        });
        assert_eq!(one.get("/v2/pools/second").unwrap().status, StatusCode::NOT_FOUND);
    }
}

#[test]
fn claim_at_one_replica_gets_post_from_another() {
    let cluster = Cluster::start(2);
    for queue in queues(4) {
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let body = json!({"ttl": 60, "grace": 60});
                cluster.client(0).post(&format!("/v2/queues/{queue}/claims?wait=20"), &body).unwrap()
            });
            std::thread::sleep(Duration::from_millis(300));
            assert_eq!(
                cluster.client(1).post_messages(&queue, &[json!("late")]).unwrap().status,
                StatusCode::CREATED
            );
            let claim = waiting.join().unwrap().granted().unwrap();
            assert_eq!(claim.messages[0].body, json!("late"));
        });
    }
}

#[test]
fn errors_are_worded_alike_by_every_replica() {
    let cluster = Cluster::start(2);
    let (here, there) =
        (cluster.client(cluster.owner_of(slot_of("q"))), cluster.client(1 - cluster.owner_of(slot_of("q"))));
    let long = vec![b' '; 300_000];
    let requests: [(Method, &str, &[u8]); 6] = [
        (Method::POST, "/v2/queues/q/messages", b"{\"messages\": [{\"body\": 1, \"ttl\": 1}]}"),
        (Method::POST, "/v2/queues/q/messages", &long),
        (Method::POST, "/v2/queues/q/claims?limit=0", b"{}"),
        (Method::GET, "/v2/queues/q/messages/nothing", b""),
        (Method::GET, "/v2/queues/q/claims/4f6f1c0e-9d7a-4a52-b1b3-6f0d2c9e8a17", b""),
        (Method::POST, "/v2/queues/q/nothing", b"{}"),
    ];
    for (method, path, body) in requests {
        let answers = [&here, &there].map(|client| client.send_text(method.clone(), path, body).unwrap());
        let said = answers.each_ref().map(|answer| {
            let mut said = answer.json();
            // The id of the request is in the header and in the body.
            let id = said.as_object_mut().unwrap().remove("request_id").unwrap();
            assert_eq!(id, json!(answer.headers["x-openstack-request-id"].to_str().unwrap()), "{path}");
            (answer.status, said)
        });
        assert_eq!(said[0], said[1], "{method} {path}");
    }
    let methods = [&here, &there].map(|client| client.delete("/v2/queues/q/stats").unwrap());
    assert_eq!(methods[0].headers["allow"], methods[1].headers["allow"]);
    assert_eq!(methods[0].status, methods[1].status);
}

/// A client does not become another caller by what replicas tell each other.
#[test]
fn headers_of_replicas_are_nothing_from_a_client() {
    let cluster = Cluster::start(2);
    let client = cluster.client(0);
    let headers = [("x-angarium-project", "other"), ("x-angarium-role", "admin"), ("x-project-id", "mine")];
    for queue in queues(4) {
        let path = format!("/v2/queues/{queue}");
        assert_eq!(client.send(Method::PUT, &path, &headers, None).unwrap().status, StatusCode::CREATED);
    }
    let mine = client.send(Method::GET, "/v2/queues", &[("x-project-id", "mine")], None).unwrap().json();
    assert_eq!(mine["queues"].as_array().map(Vec::len), Some(4));
    let others = client.send(Method::GET, "/v2/queues", &[("x-project-id", "other")], None).unwrap().json();
    assert_eq!(others["queues"], Value::Array(Vec::new()));
}

/// The replica that a client speaks to asks Keystone; the others believe it.
#[test]
fn keystone_is_asked_by_the_entry_replica_alone() {
    let (identity, data) = (IdentityService::start(), tempfile::tempdir().unwrap());
    let secret = data.path().join("secret");
    std::fs::write(&secret, SERVICE_PASSWORD).unwrap();
    let mut cluster = Cluster::without_replicas(ZooKeeper::shared(), &[]);
    for _ in 0..2 {
        cluster.add_with(|builder| {
            let builder = builder.arg("--keystone-url").arg(identity.url());
            builder.arg("--keystone-user").arg(SERVICE_USER).arg("--keystone-secret-file").arg(&secret)
        });
    }
    let token = |role: &str| identity.token("demo", &[role]);
    let admin = cluster.client(0).with_header("x-auth-token", &token("admin"));
    wait_until("both replicas have slots", || {
        let components = admin.get("/v2/components").unwrap().json();
        let components = components["components"].as_array().cloned().unwrap_or_default();
        let shares: Vec<_> =
            components.iter().map(|one| one["slots"].as_array().map_or(0, Vec::len)).collect();
        shares.len() == 2 && shares.iter().sum::<usize>() == 256 && shares.iter().all(|share| *share > 60)
    });
    let before = identity.asked().validations;
    let (member, reader) = (token("member"), token("reader"));
    let client = cluster.client(0).with_header("x-auth-token", &member);
    for queue in queues(64) {
        assert_eq!(client.create_queue(&queue).unwrap().status, StatusCode::CREATED);
    }
    assert_eq!(identity.asked().validations, before + 1);
    // The other replica knows the role too.
    let reading = cluster.client(0).with_header("x-auth-token", &reader);
    for queue in queues(64) {
        assert_eq!(reading.stats(&queue).unwrap().status, StatusCode::OK);
        assert_eq!(reading.create_queue(&queue).unwrap().status, StatusCode::FORBIDDEN);
    }
    let forwarded = admin.get("/metrics").unwrap().text();
    let answered = "angarium_forwards_total{outcome=\"answered\"} ";
    let count = forwarded.lines().find_map(|line| line.strip_prefix(answered)).unwrap();
    assert!(count.parse::<f64>().unwrap() >= 1.0, "some of the queues are at the other replica: {count}");
    assert_eq!(identity.asked().validations, before + 2);
}

#[test]
fn sqs_clients_may_ask_any_replica() {
    let cluster = Cluster::start(3);
    let bases: Vec<&str> = cluster.replicas.iter().map(|replica| replica.server().base()).collect();
    crate::sqs::run_at(
        &bases.join(","),
        "replicas.py",
        |_| {},
        || cluster.replicas.iter().map(|replica| replica.server().last_lines()).collect(),
    );
}

#[test]
fn sources_are_judged_as_the_entry_replica_saw_them() {
    let data = tempfile::tempdir().unwrap();
    let keys = crate::sqs::keys_of_two(data.path()).display().to_string();
    // Settings of a cluster live as long as the tests.
    let settings: Vec<&'static str> = vec!["--sqs-keys", keys.leak(), "--trusted-proxy", "127.0.0.1"];
    let cluster = Cluster::start_with(2, settings.leak());
    let bases: Vec<&str> = cluster.replicas.iter().map(|replica| replica.server().base()).collect();
    crate::sqs::run_at(
        &bases.join(","),
        "sources.py",
        |_| {},
        || cluster.replicas.iter().map(|replica| replica.server().last_lines()).collect(),
    );
    for replica in 0..2 {
        let page = cluster.client(replica).get("/metrics").unwrap().text();
        let none = "angarium_forwards_total{outcome=\"answered\"} 0";
        assert!(page.lines().all(|line| line != none), "some requests were passed on: {page}");
    }
}
