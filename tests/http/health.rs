//! Health over HTTP.

use serde_json::json;

use super::service;

#[test]
fn health_tells_of_each_pool_and_writes_nothing() {
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
    // Unlike Zaqar's, which makes a queue to find out.
    assert_eq!(service.client.stats("health").unwrap().json()["messages"]["total"], json!(0));
}
