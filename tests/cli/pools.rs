//! `angarium pool`, `flavor` and `health`: the requests that Zaqar's API asks for and its answers shown, and the same against
//! a real server.

use serde_json::{Value, json};

use super::canned::Canned;
use super::{Program, beside_a_server};

/// What one command asks for: method and path, and the body; and what it prints.
fn asks(answer: (&'static str, Value), args: &[&str]) -> (String, Value, String) {
    let server = Canned::start(vec![(answer.0, answer.1.to_string())]);
    let out = Program::new(Some(&server.url)).say(args);
    let asked = server.asked().remove(0);
    (asked.line, serde_json::from_str(&asked.body).unwrap_or(Value::Null), out)
}

#[test]
fn a_pool_is_registered_with_uri_weight_flavor_and_options() {
    let args =
        ["pool", "create", "p1", "--uri", "redis://h", "--weight", "100", "--flavor", "f", "--option", "n=3"];
    let (line, body, _) = asks(("201 Created", json!({})), &args);
    assert_eq!(line, "PUT /v2/pools/p1");
    assert_eq!(body, json!({"uri": "redis://h", "weight": 100, "flavor": "f", "options": {"n": 3}}));
}

#[test]
fn pool_update_sends_only_changes() {
    let (line, body, _) = asks(("200 OK", json!({})), &["pool", "update", "p1", "--weight", "0"]);
    assert_eq!((line.as_str(), body), ("PATCH /v2/pools/p1", json!({"weight": 0})));
}

#[test]
fn pools_are_listed_and_shown() {
    let pool = json!({"name": "p1", "uri": "redis://h", "weight": 7, "href": "/v2/pools/p1"});
    let (line, _, out) = asks(("200 OK", json!({"pools": [pool], "links": []})), &["pool", "list"]);
    assert_eq!(line, "GET /v2/pools?limit=20");
    assert_eq!(out, "NAME  WEIGHT  FLAVOR  URI        HELD\np1    7       -       redis://h  -\n");
    let (line, _, out) = asks(("200 OK", pool), &["pool", "show", "p1"]);
    assert_eq!(line, "GET /v2/pools/p1?detailed=true");
    assert!(out.contains("weight  7\n"), "{out}");
}

#[test]
fn a_plan_of_moves_is_shown_and_begun() {
    let planned = json!({
        "project": "", "queue": "q", "from": "a", "to": "b", "messages": 3, "bytes": 90, "load": 12
    });
    let plan = |moves: Value| {
        ("200 OK", json!({"complete": true, "left_out": 0, "silent": ["host:1"], "moves": moves}))
    };
    let (line, _, out) = asks(plan(json!([planned])), &["pool", "balance", "--limit", "5"]);
    assert_eq!(line, "GET /v2/admin/balance?limit=5");
    assert_eq!(
        out,
        "PROJECT  QUEUE  FROM  TO  MESSAGES  BYTES  LOAD/MIN  MOVE\n\
         -        q      a     b   3         90     12        planned\n\
         replica host:1 did not say how busy its queues are\n"
    );
    assert_eq!(
        asks(plan(json!([])), &["pool", "balance"]).2,
        "the pools hold their shares\nreplica host:1 did not say how busy its queues are\n"
    );
    let mut begun = planned.clone();
    begun["begun"] = json!(false);
    begun["description"] = json!("the queue moves already");
    let (line, body, out) = asks(plan(json!([begun])), &["pool", "balance", "--apply", "--rate", "100"]);
    assert_eq!((line.as_str(), body), ("POST /v2/admin/balance", json!({"rate": 100})));
    assert!(out.contains("the queue moves already"), "{out}");
}

#[test]
fn a_pool_is_drained_waited_for_and_taken_back() {
    let left = |waiting: u64| json!({"done": waiting == 0, "waiting": waiting, "moving": 0}).to_string();
    let server = Canned::start(vec![("202 Accepted", left(2)), ("200 OK", left(0))]);
    let args = ["pool", "drain", "p1", "--rate", "9", "--wait", "30"];
    assert_eq!(Program::new(Some(&server.url)).say(&args), "no queue is in it\n");
    let asked = server.asked();
    assert_eq!((asked[0].line.as_str(), asked[0].body.as_str()), ("POST /v2/pools/p1/drain", "{\"rate\":9}"));
    assert_eq!(asked[1].line, "GET /v2/pools/p1/drain");
    let (line, _, out) = asks(("204 No Content", json!(null)), &["pool", "drain", "p1", "--undo"]);
    assert_eq!(line, "DELETE /v2/pools/p1/drain");
    assert!(out.contains("pool p1 is active"), "{out}");
}

#[test]
fn drain_shows_remaining_queues() {
    let left = json!({"done": false, "waiting": 3, "moving": 0});
    let (_, _, out) = asks(("202 Accepted", left), &["pool", "drain", "p1"]);
    assert_eq!(out, "0 queues are on their way, and 3 wait\n");
}

#[test]
fn the_map_is_bars_or_a_picture_in_a_file() {
    let pool = json!({
        "name": "a", "weight": 100, "share": 0.25, "held": 1.0, "state": "active", "queues": 7,
        "answer": {"given": true, "age": 0.0}
    });
    let figures =
        json!({"complete": true, "pools": [pool], "moves": [{"from": "b", "to": "a", "queues": 2}]});
    let (line, _, out) = asks(("200 OK", figures), &["pool", "map"]);
    assert_eq!(line, "GET /v2/admin/map?format=json");
    assert!(out.contains("######..................  25%"), "{out}");
    assert!(out.ends_with("b -> a: 2 on the way\n"), "{out}");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("map.svg");
    let (line, _, _) = asks(("200 OK", json!("<svg/>")), &["pool", "map", "--svg", file.to_str().unwrap()]);
    assert_eq!(line, "GET /v2/admin/map");
    assert_eq!(std::fs::read_to_string(file).unwrap(), "\"<svg/>\"");
}

#[test]
fn a_flavor_is_a_list_of_pools() {
    let create = ["flavor", "create", "f", "--pool", "p1", "--pool", "p2"];
    let (line, body, _) = asks(("201 Created", json!({})), &create);
    assert_eq!((line.as_str(), body), ("PUT /v2/flavors/f", json!({"pool_list": ["p1", "p2"]})));
    let (line, body, _) = asks(("200 OK", json!({})), &["flavor", "update", "f", "--pool", "p2"]);
    assert_eq!((line.as_str(), body), ("PATCH /v2/flavors/f", json!({"pool_list": ["p2"]})));
    let listed = json!({"flavors": [{"name": "f", "pool_list": ["p1", "p2"]}], "links": []});
    assert_eq!(asks(("200 OK", listed), &["flavor", "list"]).2, "NAME  POOLS\nf     p1 p2\n");
}

#[test]
fn pools_and_flavors_are_deleted_by_name() {
    assert_eq!(asks(("204 No Content", json!(null)), &["pool", "delete", "p1"]).0, "DELETE /v2/pools/p1");
    let forced = asks(("204 No Content", json!(null)), &["pool", "delete", "p1", "--force"]);
    assert_eq!(forced.0, "DELETE /v2/pools/p1?force=true");
    assert_eq!(asks(("204 No Content", json!(null)), &["flavor", "delete", "f"]).0, "DELETE /v2/flavors/f");
}

#[test]
fn a_pool_lives_from_its_registration_to_its_deletion() {
    let it = beside_a_server();
    it.program.say(&["pool", "create", "fast", "--uri", "embedded:pools/fast", "--weight", "10"]);
    assert_eq!(it.program.plain(&["pool", "list"]), ["default", "fast"]);
    it.program.say(&["pool", "update", "fast", "--weight", "3", "--state", "draining"]);
    let shown = it.program.json(&["pool", "show", "fast"]);
    assert_eq!((&shown["weight"], &shown["state"]), (&json!(3), &json!("draining")));
    it.program.say(&["pool", "delete", "fast"]);
    assert_eq!(it.program.plain(&["pool", "list"]), ["default"]);
    assert_eq!(it.program.run(&["pool", "show", "fast"]).code, 1);
}

#[test]
fn a_flavor_places_queues_in_its_pools() {
    let it = beside_a_server();
    it.program.say(&["pool", "create", "fast", "--uri", "embedded:pools/fast", "--weight", "10"]);
    it.program.say(&["flavor", "create", "quick", "--pool", "fast"]);
    assert_eq!(it.program.json(&["flavor", "show", "quick"])["pool_list"], json!(["fast"]));
    it.program.say(&["queue", "create", "q", "--set", "_flavor=quick"]);
    // What is used stays.
    assert_eq!(it.program.run(&["pool", "delete", "fast"]).code, 1);
}

#[test]
fn the_health_of_each_pool_is_a_row() {
    let it = beside_a_server();
    let table = it.program.say(&["health"]);
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(rows.contains(&vec!["catalog_reachable", "true"]), "{table}");
    assert!(rows.iter().any(|row| row.starts_with(&["default", "yes", "yes", "active", "sync"])), "{table}");
}

#[test]
fn the_health_of_zaqar_is_shown_too() {
    let health =
        json!({"catalog_reachable": true, "p1": {"storage_reachable": false, "operation_status": {}}});
    let (_, _, table) = asks(("200 OK", health), &["health"]);
    let last: Vec<&str> = table.lines().last().unwrap().split_whitespace().collect();
    assert_eq!(last, ["p1", "NO", "-", "-", "-", "-"]);
}

#[test]
fn pool_and_project_are_held_and_released() {
    let it = beside_a_server();
    it.program.say(&["message", "post", "q", "one"]);
    let said = it.program.say(&["pool", "hold", "default", "--reason", "full disk"]);
    assert_eq!(
        said,
        "pool default is held until `angarium pool release default`: no message can be claimed\n"
    );
    let hold = it.program.json(&["project", "hold", "000000000000", "--reason", "invoice", "--post"]);
    assert_eq!((&hold["project"], &hold["post"]), (&json!("000000000000"), &json!(true)));
    assert_eq!(it.program.plain(&["project", "holds"]), ["pool default", "project 000000000000"]);
    assert_eq!(it.program.plain(&["project", "holds", "--limit", "1"]), ["pool default"]);
    let held = it.program.json(&["project", "holds"]);
    assert_eq!((&held[0]["reason"], &held[1]), (&json!("full disk"), &hold));
    let table = it.program.say(&["project", "holds"]);
    assert!(
        table.starts_with("HELD ") && table.contains("claims, posts") && table.contains("invoice"),
        "{table}"
    );
    assert!(it.program.say(&["pool", "list"]).contains("full disk"));
    assert_eq!(it.program.json(&["pool", "show", "default"])["held"]["reason"], json!("full disk"));
    let explained = it.program.say(&["queue", "explain", "q"]);
    assert!(explained.contains("pool default is held until it is released (full disk)"), "{explained}");
    assert!(
        explained.contains("the project of the queue is held until it is released (invoice)"),
        "{explained}"
    );
    assert_eq!(it.program.say(&["pool", "release", "default"]), "pool default is released\n");
    assert_eq!(it.program.say(&["project", "release", "000000000000"]), "project 000000000000 is released\n");
    assert_eq!(it.program.say(&["project", "holds"]), "no pool and no project is held\n");
    let said = it.program.say(&["pool", "hold", "default", "--only-transfers", "--reason", "backup"]);
    assert!(
        said.ends_with("until `angarium pool release default`: transfers and migrations wait\n"),
        "{said}"
    );
    let table = it.program.say(&["project", "holds"]);
    assert!(table.contains("transfers"), "{table}");
    it.program.say(&["pool", "release", "default"]);
    assert_eq!(it.program.json(&["queue", "explain", "q"]).get("held"), None);
}
