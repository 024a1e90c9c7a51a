//! The map of the pools, and the plan that brings each to its share.

use http::StatusCode;
use serde_json::{Value, json};

use super::service;
use crate::support::client::Client;
use crate::support::server::ServerBuilder;
use angarium_testbed::held::wait_until;

const PLAN: &str = "/v2/admin/balance";
const QUEUES: usize = 12;

/// Twelve queues of the same size in the first pool, and then a second one of the same weight.
fn lopsided(client: &Client) {
    for number in 0..QUEUES {
        let bodies: Vec<Value> = (0..10).map(|_| json!("x".repeat(1_000))).collect();
        let posted = client.post_messages(&format!("q{number}"), &bodies).unwrap();
        assert_eq!(posted.status, StatusCode::CREATED);
    }
    let pool = json!({"uri": "embedded:second", "weight": 100});
    assert_eq!(client.put("/v2/pools/second", Some(&pool)).unwrap().status, StatusCode::CREATED);
}

fn plan(client: &Client) -> Vec<Value> {
    let shown = client.get(PLAN).unwrap();
    assert_eq!(shown.status, StatusCode::OK, "{}", shown.text());
    assert_eq!((&shown.json()["complete"], &shown.json()["left_out"]), (&json!(true), &json!(0)));
    shown.json()["moves"].as_array().unwrap().clone()
}

fn map(client: &Client) -> Value {
    client.get("/v2/admin/map?format=json").unwrap().json()
}

fn queues_of(map: &Value, pool: &str) -> u64 {
    let pools = map["pools"].as_array().unwrap();
    pools.iter().find(|one| one["name"] == pool).unwrap()["queues"].as_u64().unwrap()
}

#[test]
fn new_pool_gets_its_share_only_on_request() {
    let service = service();
    let client = &service.client;
    lopsided(client);
    let moves = plan(client);
    assert_eq!(moves.len(), QUEUES / 2, "{moves:?}");
    for planned in &moves {
        assert_eq!((&planned["from"], &planned["to"]), (&json!("default"), &json!("second")));
        assert_eq!((&planned["messages"], &planned["begun"]), (&json!(10), &Value::Null));
    }
    assert_eq!(queues_of(&map(client), "second"), 0, "a plan moves nothing");
    assert_eq!(client.get(&format!("{PLAN}?limit=2")).unwrap().json()["moves"].as_array().unwrap().len(), 2);

    let begun = client.post(PLAN, &json!({"limit": 20})).unwrap();
    assert_eq!(begun.status, StatusCode::ACCEPTED, "{}", begun.text());
    let begun = begun.json()["moves"].as_array().unwrap().clone();
    assert_eq!(begun.len(), QUEUES / 2);
    assert!(begun.iter().all(|one| one["begun"] == json!(true)), "{begun:?}");
    wait_until("all have moved", || {
        let map = map(client);
        queues_of(&map, "second") == (QUEUES / 2) as u64 && map["moves"] == json!([])
    });
    assert!(plan(client).is_empty());
    for number in 0..QUEUES {
        let stats = client.stats(&format!("q{number}")).unwrap().json();
        assert_eq!(stats["messages"]["total"], json!(10));
    }
}

#[test]
fn busy_queues_are_shared_among_equal_pools() {
    let service = service();
    let client = &service.client;
    lopsided(client);
    let begun = client.post(PLAN, &json!({})).unwrap().json();
    let name = |one: &Value| one["queue"].as_str().unwrap().to_owned();
    let gone: Vec<String> = begun["moves"].as_array().unwrap().iter().map(name).collect();
    wait_until("all have moved", || {
        let map = map(client);
        queues_of(&map, "second") == (QUEUES / 2) as u64 && map["moves"] == json!([])
    });
    assert!(plan(client).is_empty());
    // Messages come and go in one of the pools.
    for _ in 0..30 {
        for queue in &gone {
            let posted = client.post_messages(queue, &[json!(0)]).unwrap().posted_ids();
            let deleted = client.delete_message(queue, &posted[0], None).unwrap();
            assert_eq!(deleted.status, StatusCode::NO_CONTENT);
        }
    }
    let moves = plan(client);
    let busy = moves.iter().find(|planned| planned["from"] == json!("second")).expect("one goes back");
    assert!(gone.contains(&name(busy)) && busy["load"].as_u64().unwrap() > 60, "{moves:?}");
}

#[test]
fn a_drained_pool_and_one_of_no_weight_neither_give_nor_take() {
    let service = service();
    let client = &service.client;
    lopsided(client);
    for change in [json!({"weight": 0}), json!({"weight": 100, "state": "draining"})] {
        assert_eq!(client.patch("/v2/pools/second", &change).unwrap().status, StatusCode::OK);
        assert!(plan(client).is_empty(), "{change}");
    }
}

#[test]
fn map_shows_shares_holdings_and_moves() {
    let service = service();
    let client = &service.client;
    lopsided(client);
    let slow = json!({"pool": "second", "rate": 1});
    assert_eq!(client.post("/v2/queues/q0/migrate", &slow).unwrap().status, StatusCode::ACCEPTED);
    let figures = map(client);
    assert_eq!(figures["moves"], json!([{"from": "default", "to": "second", "queues": 1}]));
    let first = &figures["pools"][0];
    assert_eq!((&first["name"], &first["share"]), (&json!("default"), &json!(0.5)));
    assert!(first["held"].as_f64().unwrap() > 0.9, "{figures}");
    assert_eq!((queues_of(&figures, "default"), queues_of(&figures, "second")), (11, 1));

    let picture = client.get("/v2/admin/map").unwrap();
    assert_eq!(picture.headers["content-type"], "image/svg+xml");
    let drawn = picture.text();
    assert!(drawn.starts_with("<svg ") && drawn.ends_with("</svg>\n"), "{drawn}");
    for part in [">default<", ">second<", "class=\"arc\"", ">1 queue<", "11 queues, "] {
        assert!(drawn.contains(part), "{part} is not in {drawn}");
    }
}

#[test]
fn service_moves_queues_to_new_pool_by_itself() {
    let data = tempfile::tempdir().unwrap();
    let settings = ["--balance", "auto", "--balance-every", "10", "--balance-when", "20"];
    let server = settings.iter().fold(ServerBuilder::new(data.path()), ServerBuilder::arg).start();
    let client = &server.client();
    assert_eq!(map(client).get("balance"), None);
    lopsided(client);
    wait_until("four queues have moved", || queues_of(&map(client), "second") >= 4);
    let figures = map(client);
    let round = &figures["balance"];
    let moves = round["moves"].as_array().unwrap();
    let first = moves.last().unwrap();
    assert_eq!((&first["from"], &first["to"]), (&json!("default"), &json!("second")));
    let reason = "pool default has 100 % of the bytes and 100 % of the writes, its share is 50 %";
    assert_eq!(first["reason"], json!(reason), "{figures}");
    assert!(round["description"].as_str().unwrap().contains("of a plan with a gain of "), "{figures}");
    assert!(client.get("/v2/admin/map").unwrap().text().contains("automatic balance at "));
}

#[test]
fn invalid_balance_request_is_refused() {
    let service = service();
    let client = &service.client;
    for path in ["/v2/admin/balance?limit=0", "/v2/admin/balance?limit=1001", "/v2/admin/map?format=png"] {
        assert_eq!(client.get(path).unwrap().status, StatusCode::BAD_REQUEST, "{path}");
    }
    for body in [json!({"limit": 0}), json!({"rate": 0}), json!({"rates": 1}), json!([])] {
        assert_eq!(client.post(PLAN, &body).unwrap().status, StatusCode::BAD_REQUEST, "{body}");
    }
}
