//! `GET /v2/components`: the replicas and their slots.

use http::StatusCode;
use serde_json::{Value, json};

use super::service;

#[test]
fn a_service_alone_has_every_slot() {
    let service = service();
    let answer = service.client.get("/v2/components").unwrap();
    assert_eq!(answer.status, StatusCode::OK);
    let view = answer.json();
    assert_eq!(view["unowned_slots"], json!([]));
    let [one] = view["components"].as_array().unwrap().as_slice() else { panic!("{view}") };
    assert_eq!(one["instance"], view["answered_by"]);
    assert_eq!((&one["state"], &one["version"]), (&json!("running"), &json!(env!("CARGO_PKG_VERSION"))));
    let slots: Vec<u64> = one["slots"].as_array().unwrap().iter().filter_map(Value::as_u64).collect();
    assert_eq!((&one["passed_over"], &one["unreached_pools"]), (&json!(false), &json!([])));
    assert_eq!(slots, (0..256).collect::<Vec<u64>>());
}
