//! Holds of pools and projects over HTTP: what clients of their queues see, and who may make them.

use http::StatusCode;
use serde_json::{Value, json};

use super::{Service, service};
use crate::support::client::Client;

const POOL: &str = "/v2/pools/default/hold";
const PROJECT: &str = "/v2/projects/acme%2Feu/hold";

fn hold(client: &Client, path: &str, terms: &Value) -> Value {
    let answer = client.put(path, Some(terms)).unwrap();
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    answer.json()
}

fn release(client: &Client, path: &str) {
    assert_eq!(client.delete(path).unwrap().status, StatusCode::NO_CONTENT);
}

impl Service {
    /// A client of the project that [`PROJECT`] names.
    fn acme(&self) -> Client {
        self.client.clone().with_header("X-Project-Id", "acme/eu")
    }
}

#[test]
fn held_pool_and_project_grant_nothing_and_are_explained() {
    let service = service();
    let (client, acme) = (&service.client, service.acme());
    for client in [client, &acme] {
        client.post_messages("q", &[json!(1), json!(2)]).unwrap();
    }
    let claim = acme.claim("q", 1, 300).unwrap().granted().unwrap();
    let project = hold(client, PROJECT, &json!({"reason": "invoice"}));
    assert_eq!((&project["project"], project.get("pool")), (&json!("acme/eu"), None), "{project}");
    assert_eq!(acme.claim("q", 1, 300).unwrap().headers["x-held"], "invoice");
    assert_eq!(client.claim("q", 1, 300).unwrap().status, StatusCode::CREATED);

    let pool = hold(client, POOL, &json!({"reason": "full disk", "post": true}));
    assert_eq!((&pool["pool"], pool.get("project")), (&json!("default"), None), "{pool}");
    assert_eq!(client.get(POOL).unwrap().json(), pool);
    for client in [client, &acme] {
        assert_eq!(client.claim("q", 1, 300).unwrap().headers["x-held"], "full disk");
        let popped = client.delete("/v2/queues/q/messages?pop=1").unwrap();
        assert_eq!((popped.status, &popped.json()["messages"]), (StatusCode::OK, &json!([])));
        let refused = client.post_messages("q", &[json!(3)]).unwrap();
        assert_eq!(
            (refused.status, &refused.json()["code"]),
            (StatusCode::SERVICE_UNAVAILABLE, &json!("held"))
        );
        let peeked = client.get("/v2/queues/q/peek").unwrap().json();
        assert_eq!(peeked["messages"].as_array().unwrap().len(), 2);
    }
    let explained = acme.get("/v2/queues/q/explain").unwrap().json();
    assert_eq!(explained["held"], json!([pool, project]));
    let says = explained["says"].as_str().unwrap();
    let start = "A claim gets nothing now, because pool default is held until it is released (full disk), and the project \
                 of the queue is held until it is released (invoice);";
    assert!(says.starts_with(start), "{says}");
    // A claim that exists continues.
    let path = format!("/v2/queues/q/claims/{}", claim.id);
    assert_eq!(acme.delete(&path).unwrap().status, StatusCode::NO_CONTENT);
    let page = client.get("/metrics").unwrap().text();
    for line in ["angarium_held_pools 1", "angarium_held_projects 1", "angarium_holds 0"] {
        assert!(page.lines().any(|shown| shown == line), "{line}: {page}");
    }

    release(client, POOL);
    assert_eq!(acme.claim("q", 1, 300).unwrap().headers["x-held"], "invoice");
    release(client, PROJECT);
    release(client, PROJECT);
    assert_eq!(acme.claim("q", 10, 300).unwrap().granted().unwrap().messages.len(), 2);
    for path in [POOL, PROJECT] {
        assert_eq!(client.get(path).unwrap().status, StatusCode::NOT_FOUND);
    }
}

#[test]
fn hold_of_project_no_header_can_name_is_refused() {
    let service = service();
    let client = &service.client;
    let terms = json!({"reason": "x"});
    for project in ["%20", "a%20", "%20a", "%09a", "a%0Ab", "a%00", "a%7F", &"p".repeat(257), "%FF"] {
        let path = format!("/v2/projects/{project}/hold");
        for refused in [client.put(&path, Some(&terms)), client.get(&path), client.delete(&path)] {
            let refused = refused.unwrap();
            let code = refused.json()["code"].clone();
            assert_eq!((refused.status, code), (StatusCode::BAD_REQUEST, json!("invalid")), "{project}");
        }
    }
    assert_eq!(client.get("/v2/admin/holds").unwrap().json()["holds"], json!([]));
    // A header can have blanks and other letters within.
    for (project, header) in [("acme%20inc", "acme inc"), ("z%C3%BCrich", "z\u{fc}rich")] {
        let path = format!("/v2/projects/{project}/hold");
        assert_eq!(hold(client, &path, &terms)["project"], json!(header));
        assert_eq!(client.get(&path).unwrap().json()["project"], json!(header));
        release(client, &path);
    }
}

#[test]
fn discarded_posts_of_held_project_create_no_queue() {
    let service = service();
    let acme = service.acme();
    hold(&service.client, PROJECT, &json!({"claim": false, "discard": true, "reason": "load test"}));
    for path in ["/v2/queues/new/messages", "/v2/queues/new/messages/batch"] {
        let answer = acme.post(path, &json!({"messages": [{"body": 1}]})).unwrap();
        assert_eq!(
            (answer.status, &answer.headers["x-discarded"]),
            (StatusCode::ACCEPTED, &"load test".parse().unwrap())
        );
    }
    let queues = acme.get("/v2/queues").unwrap().json();
    assert_eq!(queues["queues"], json!([]));
    release(&service.client, PROJECT);
    assert_eq!(acme.post_messages("new", &[json!(1)]).unwrap().status, StatusCode::CREATED);
}

#[test]
fn holds_are_listed_page_by_page_for_administrators() {
    let service = service();
    let client = &service.client;
    let list = |query: &str| {
        let answer = client.get(&format!("/v2/admin/holds{query}")).unwrap();
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
        answer.json()
    };
    assert_eq!(list(""), json!({"holds": [], "links": []}));
    let project = hold(client, PROJECT, &json!({"reason": "invoice"}));
    let typo =
        hold(client, "/v2/projects/nobody/hold", &json!({"reason": "typo", "claim": false, "post": true}));
    let pool = hold(client, POOL, &json!({"reason": "full disk"}));
    assert_eq!(list("")["holds"], json!([pool, project, typo]));
    let mut path = "/v2/admin/holds?limit=1".to_owned();
    for held in [&pool, &project, &typo] {
        let page = client.get(&path).unwrap().json();
        assert_eq!(page["holds"], json!([held]));
        path = page["links"][0]["href"].as_str().unwrap().to_owned();
    }
    assert_eq!(client.get(&path).unwrap().json(), json!({"holds": [], "links": []}));
    // The answers about a pool have its hold.
    let pools = client.get("/v2/pools").unwrap().json();
    assert_eq!(
        (&pools["pools"][0]["held"], &client.get("/v2/pools/default").unwrap().json()["held"]),
        (&pool, &pool)
    );
    release(client, POOL);
    assert_eq!(client.get("/v2/pools/default").unwrap().json().get("held"), None);
    assert_eq!(list("")["holds"], json!([project, typo]));
    for wrong in ["?marker=x", "?marker=pool/a%20b", "?marker=queue/x", "?limit=0", "?limit=1001"] {
        let answer = client.get(&format!("/v2/admin/holds{wrong}")).unwrap();
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{wrong}");
    }
    let member = client.clone().with_header("X-Roles", "member");
    assert_eq!(member.get("/v2/admin/holds").unwrap().status, StatusCode::FORBIDDEN);
}

#[test]
fn holds_of_pools_and_projects_are_for_administrators() {
    let service = service();
    let member = service.client.clone().with_header("X-Roles", "member");
    let terms = json!({"reason": "x"});
    for path in [POOL, PROJECT] {
        assert_eq!(member.put(path, Some(&terms)).unwrap().status, StatusCode::FORBIDDEN);
        assert_eq!(member.get(path).unwrap().status, StatusCode::FORBIDDEN);
        assert_eq!(member.delete(path).unwrap().status, StatusCode::FORBIDDEN);
    }
}

#[test]
fn unknown_pool_and_bad_terms_are_refused() {
    let service = service();
    let client = &service.client;
    let missing = "/v2/pools/missing/hold";
    assert_eq!(client.put(missing, Some(&json!({"reason": "x"}))).unwrap().status, StatusCode::NOT_FOUND);
    assert_eq!(client.get(missing).unwrap().status, StatusCode::NOT_FOUND);
    assert_eq!(client.delete(missing).unwrap().status, StatusCode::NOT_FOUND);
    let long = format!("/v2/projects/{}/hold", "x".repeat(257));
    assert_eq!(client.put(&long, Some(&json!({"reason": "x"}))).unwrap().status, StatusCode::BAD_REQUEST);
    for body in [
        json!({}),
        json!({"reason": "x", "claim": false}),
        json!({"reason": "x", "until": "2020-01-01T00:00:00Z"}),
    ] {
        for path in [POOL, PROJECT] {
            assert_eq!(client.put(path, Some(&body)).unwrap().status, StatusCode::BAD_REQUEST, "{body}");
        }
    }
}

#[test]
fn held_transfers_of_a_pool_are_shown_and_stop_no_client() {
    let service = service();
    let client = &service.client;
    client.post_messages("q", &[json!(1), json!(2)]).unwrap();
    let terms = json!({"reason": "backup", "transfer": true});
    let held = hold(client, POOL, &terms);
    let effects = ["claim", "post", "discard", "transfer"].map(|name| held[name].clone());
    assert_eq!(effects, [json!(false), json!(false), json!(false), json!(true)], "{held}");
    assert_eq!(client.get("/v2/admin/holds").unwrap().json()["holds"], json!([held]));
    client.post_messages("new", &[json!(3)]).unwrap();
    for queue in ["q", "new"] {
        assert_eq!(client.claim(queue, 1, 300).unwrap().status, StatusCode::CREATED);
    }
    let says = client.get("/v2/queues/q/explain").unwrap().json()["says"].to_string();
    let clause = "transfers to other queues and migrations wait, because pool default is held until it is released (backup)";
    assert!(says.contains(clause), "{says}");
    for path in [PROJECT, "/v2/queues/q/hold", "/v2/queues/q/groups/g/hold"] {
        let refused = client.put(path, Some(&terms)).unwrap();
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{path}");
        assert!(refused.text().contains("transfer"), "{}", refused.text());
    }
    let both = hold(client, POOL, &json!({"reason": "backup", "transfer": true, "claim": true}));
    assert_eq!((&both["claim"], &both["transfer"]), (&json!(true), &json!(true)));
    assert_eq!(client.claim("q", 1, 300).unwrap().headers["x-held"], "backup");
    release(client, POOL);
}
