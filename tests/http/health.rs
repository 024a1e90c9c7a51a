//! Health over HTTP.

use serde_json::json;

use super::service;
use angarium_testbed::held::wait_until;
use angarium_testbed::redis::{Redis, SYNCED};

#[test]
fn health_reports_each_pool_and_writes_nothing() {
    let service = service();
    let body = json!({"uri": "embedded:two", "weight": 0});
    assert_eq!(service.client.put("/v2/pools/two", Some(&body)).unwrap().status, 201);
    let health = service.client.get("/v2/health").unwrap().json();
    assert_eq!((&health["catalog_reachable"], &health["storage_reachable"]), (&json!(true), &json!(true)));
    for (name, weight) in [("default", 100), ("two", 0)] {
        let pool = &health["pools"][name];
        assert_eq!((&pool["storage_reachable"], &pool["writable"]), (&json!(true), &json!(true)), "{name}");
        assert_eq!((&pool["state"], &pool["weight"]), (&json!("active"), &json!(weight)));
        assert_eq!(pool["class"], json!("sync"));
        assert!(pool["seconds"].as_f64().unwrap() >= 0.0);
        let bytes = |key: &str| pool["bytes"][key].as_u64().unwrap();
        assert!(bytes("free") <= bytes("total"));
    }
    let [one] = health["components"].as_array().unwrap().as_slice() else { panic!("{health}") };
    assert_eq!((&one["answer"]["given"], &one["serves"]["ready"]), (&json!(true), &json!(true)));
    assert_eq!(health["message_volume"], json!({"free": 0, "claimed": 0, "total": 0}));
    // Unlike Zaqar's, which makes a queue to find out.
    assert_eq!(service.client.stats("health").unwrap().json()["messages"]["total"], json!(0));
}

#[test]
fn health_reports_operations_in_zaqar_words() {
    let service = service();
    service.client.post_messages("q", &[json!(1), json!(2), json!(3)]).unwrap();
    service.client.claim("q", 1, 60).unwrap().granted().unwrap();
    let health = service.client.get("/v2/health").unwrap().json();
    assert_eq!(health["message_volume"], json!({"free": 2, "claimed": 1, "total": 3}));
    let operations = health["operation_status"].as_object().unwrap();
    assert_eq!(operations.len(), 8);
    for (name, status) in operations {
        assert_eq!((&status["succeeded"], &status["ref"]), (&json!(true), &json!(null)), "{name}");
        assert!(status["seconds"].as_f64().unwrap() >= 0.0, "{name}");
    }
}

#[test]
fn health_reports_failure_of_operations_without_pool() {
    let mut redis = Redis::start(SYNCED);
    let service = service();
    let body = json!({"uri": redis.uri(""), "weight": 0});
    assert_eq!(service.client.put("/v2/pools/two", Some(&body)).unwrap().status, 201);
    redis.kill9();
    wait_until("the pool does not answer", || {
        service.client.get("/v2/health").unwrap().json()["storage_reachable"] == json!(false)
    });
    let health = service.client.get("/v2/health").unwrap().json();
    assert_eq!(health["operation_status"]["claim_messages"]["succeeded"], json!(false));
    assert_eq!(health.get("message_volume"), None, "what the pool holds is not known");
}

#[test]
fn stats_count_all_projects_in_all_pools() {
    let service = service();
    let mine = &service.client;
    let theirs = mine.clone().with_header("X-Project-Id", "theirs");
    mine.post_messages("jobs", &[json!(1), json!(22), json!(333)]).unwrap();
    theirs.post_messages("jobs", &[json!("x")]).unwrap();
    mine.claim("jobs", 2, 60).unwrap().granted().unwrap();
    let stats = mine.get("/v2/stats").unwrap().json();
    assert_eq!(stats["complete"], json!(true));
    assert_eq!(stats["queues"]["total"], json!(2));
    assert_eq!(stats["messages"], json!({"free": 2, "claimed": 2, "total": 4, "bytes": 1 + 2 + 3 + 3}));
    let pool = &stats["pools"]["default"];
    assert_eq!(pool["usage"], json!({"queues": 2, "messages": 4, "bytes": 9}));
    assert_eq!(pool["answer"], json!({"given": true, "age": 0.0}));
    let serves = &stats["components"][0]["serves"];
    assert_eq!(
        (&serves["slots"], &serves["open_queues"], &serves["claimed_messages"]),
        (&json!(256), &json!(2), &json!(2))
    );
}
