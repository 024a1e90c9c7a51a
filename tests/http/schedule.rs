//! Delays, waits, durability and dead letters over HTTP.

use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};

use super::{Service, service};
use crate::support::client::Answer;
use crate::support::server::Server;
use angarium_testbed::held::wait_until;

const MESSAGES: &str = "/v2/queues/q/messages";

fn post(service: &Service, message: &Value) -> Answer {
    service.client.post(MESSAGES, &json!({"messages": [message]})).unwrap()
}

fn wait(service: &Service, seconds: &str) -> Answer {
    let path = format!("/v2/queues/q/claims?wait={seconds}");
    service.client.send(Method::POST, &path, &[], None).unwrap()
}

#[test]
fn a_message_with_a_delay_or_a_date_is_not_claimed_before() {
    let service = service();
    assert_eq!(post(&service, &json!({"body": 1, "delay": 900})).status, 201);
    assert_eq!(post(&service, &json!({"body": 2, "not_before": "9000-01-01T00:00:00Z"})).status, 201);
    assert_eq!(service.client.claim("q", 20, 60).unwrap().status, 204);
    assert_eq!(post(&service, &json!({"body": 3, "not_before": "1999-01-01T00:00:00+01:00"})).status, 201);
    let claim = service.client.claim("q", 20, 60).unwrap().json();
    assert_eq!(claim["messages"].as_array().unwrap().len(), 1);
    assert_eq!((&claim["messages"][0]["body"], &claim["messages"][0]["claim_count"]), (&json!(3), &json!(1)));
}

#[test]
fn invalid_delay_is_400_naming_the_field() {
    let service = service();
    for (message, field) in [
        (json!({"body": 1, "delay": 901}), "messages[0].delay"),
        (json!({"body": 1, "delay": -1}), "messages[0].delay"),
        (json!({"body": 1, "delay": "1"}), "messages[0].delay"),
        (json!({"body": 1, "not_before": "soon"}), "messages[0].not_before"),
        (json!({"body": 1, "delay": 1, "not_before": "2030-01-01T00:00:00Z"}), "messages[0].not_before"),
    ] {
        let answer = post(&service, &message);
        assert_eq!(answer.status, 400, "{message}");
        assert!(answer.text().contains(field), "{message}: {}", answer.text());
    }
}

#[test]
fn post_reports_its_durability() {
    let service = service();
    assert_eq!(post(&service, &json!({"body": 1})).json()["durability"], json!("sync"));
    service.client.put("/v2/queues/r", Some(&json!({"_durability": "relaxed"}))).unwrap();
    let relaxed = service.client.post("/v2/queues/r/messages", &json!({"messages": [{"body": 1}]}));
    assert_eq!(relaxed.unwrap().json()["durability"], json!("relaxed"));
}

/// The bodies on a page, and the path of the next one.
fn page(service: &Service, path: &str) -> (Vec<Value>, Option<String>) {
    let page = service.client.get(path).unwrap().json();
    let bodies = page["messages"].as_array().unwrap().iter().map(|message| message["body"].clone()).collect();
    (bodies, page["links"][0]["href"].as_str().map(str::to_owned))
}

#[test]
fn list_includes_delayed_messages_on_request() {
    let service = service();
    for message in [
        json!({"body": 1}),
        json!({"body": 2, "delay": 900}),
        json!({"body": 3, "not_before": "9000-01-01T00:00:00Z"}),
        json!({"body": 4, "delay": 0}),
    ] {
        assert_eq!(post(&service, &message).status, 201);
    }
    for (query, bodies) in [
        ("", vec![1, 4]),
        ("include_delayed=false", vec![1, 4]),
        ("include_delayed=true", vec![1, 2, 3, 4]),
        ("include_claimed=true", vec![1, 4]),
        ("include_delayed=true&include_claimed=true", vec![1, 2, 3, 4]),
    ] {
        assert_eq!(page(&service, &format!("{MESSAGES}?{query}")).0, bodies, "{query}");
    }
    assert_eq!(service.client.claim("q", 1, 60).unwrap().status, 201);
    assert_eq!(page(&service, &format!("{MESSAGES}?include_delayed=true")).0, [2, 3, 4]);
    let both = format!("{MESSAGES}?include_delayed=true&include_claimed=true");
    assert_eq!(page(&service, &both).0, [1, 2, 3, 4]);
}

#[test]
fn pages_with_delayed_messages_are_whole_and_ordered() {
    let service = service();
    for body in 0..23 {
        let delay = if body % 3 == 0 { 900 } else { 0 };
        assert_eq!(post(&service, &json!({"body": body, "delay": delay})).status, 201);
    }
    for limit in [1, 4, 20] {
        let (mut found, mut path) = (Vec::new(), format!("{MESSAGES}?include_delayed=true&limit={limit}"));
        loop {
            let (bodies, next) = page(&service, &path);
            assert!(bodies.len() <= limit);
            if bodies.is_empty() {
                break;
            }
            found.extend(bodies);
            path = next.expect("a page with messages has a link");
            assert!(path.contains("include_delayed=true"), "{path}");
        }
        assert_eq!(found, (0..23).map(Value::from).collect::<Vec<_>>(), "{limit}");
    }
}

#[test]
fn message_delayed_by_claim_is_listed_as_scheduled() {
    let service = service();
    post(&service, &json!({"body": 1}));
    let claim = service.client.claim("q", 1, 60).unwrap().granted().unwrap();
    let released = service.client.delete(&format!("/v2/queues/q/claims/{}?delay=900", claim.id)).unwrap();
    assert_eq!(released.status, 204);
    assert_eq!(page(&service, MESSAGES).0, [0; 0]);
    assert_eq!(page(&service, &format!("{MESSAGES}?include_delayed=true")).0, [1]);
    let stats = service.client.stats("q").unwrap().json();
    assert_eq!((&stats["messages"]["claimed"], &stats["messages"]["free"]), (&json!(0), &json!(1)));
}

#[test]
fn waiting_claim_is_answered_by_post_within_bounds() {
    let service = service();
    for seconds in ["21", "-1", "x"] {
        assert_eq!(wait(&service, seconds).status, 400, "{seconds}");
    }
    assert_eq!(wait(&service, "1").status, 204);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| wait(&service, "20"));
        std::thread::sleep(Duration::from_millis(200));
        post(&service, &json!({"body": 1}));
        assert_eq!(waiting.join().unwrap().status, 201);
    });
}

#[test]
fn claim_released_with_delay_returns_later() {
    let service = service();
    post(&service, &json!({"body": 1}));
    let claim = service.client.claim("q", 1, 60).unwrap().json();
    let path = format!("/v2/queues/q/claims/{}", claim["id"].as_str().unwrap());
    assert_eq!(service.client.delete(&format!("{path}?delay=901")).unwrap().status, 400);
    assert_eq!(service.client.delete(&format!("{path}?delay=5")).unwrap().status, 204);
    assert_eq!(service.client.claim("q", 1, 60).unwrap().status, 204);
    let again = wait(&service, "20").json();
    assert_eq!(again["messages"][0]["claim_count"], json!(2));
}

#[test]
fn dead_letters_follow_new_metadata_and_survive_kill_9() {
    let service = service();
    post(&service, &json!({"body": "poison"}));
    let claim = service.client.claim("q", 1, 60).unwrap().json();
    service.client.release_claim("q", claim["id"].as_str().unwrap()).unwrap();
    let patch = |target: &str| {
        let body = json!([
            {"op": "add", "path": "/metadata/_max_claim_count", "value": 1},
            {"op": "add", "path": "/metadata/_dead_letter_queue", "value": target},
        ]);
        let kind = "application/openstack-messaging-v2.0-json-patch";
        service.client.send_as(Method::PATCH, "/v2/queues/q", kind, body.to_string().as_bytes()).unwrap()
    };
    assert_eq!(patch("q").status, 400, "a queue cannot take its own dead letters");
    assert_eq!(patch("dead").status, 200);
    assert_eq!(service.client.claim("q", 1, 60).unwrap().status, 204);
    // Somewhere in its move, or at its end.
    let service = service.again(Server::kill9);
    let start = Instant::now();
    let moved = loop {
        let _ = service.client.claim("q", 1, 60).unwrap();
        let claim = service.client.claim("dead", 20, 60).unwrap();
        if claim.status == 201 {
            break claim.json();
        }
        assert!(start.elapsed() < Duration::from_secs(120), "it does not come");
    };
    assert_eq!(moved["messages"][0]["body"], json!("poison"));
    assert_eq!(moved["messages"][0]["id"], claim["messages"][0]["id"]);
    assert_eq!(service.client.get("/v2/queues/q/stats").unwrap().json()["messages"]["total"], json!(0));
}

#[test]
fn shutdown_answers_waiting_claims_with_204() {
    let service = service();
    let client = service.server.client();
    let waiting = std::thread::spawn(move || {
        client.send(Method::POST, "/v2/queues/q/claims?wait=20", &[], None).unwrap().status
    });
    wait_until("it waits", || {
        let page = service.client.get("/metrics").unwrap().text();
        page.lines().any(|line| line == "angarium_waiting_claims 1")
    });
    let start = Instant::now();
    assert!(service.server.terminate().success());
    assert_eq!(waiting.join().unwrap(), 204);
    assert!(start.elapsed() < Duration::from_secs(15), "it waited to the end");
}

#[test]
fn details_of_a_delayed_message_say_when_it_is_due() {
    let service = service();
    post(&service, &json!({"body": 1}));
    post(&service, &json!({"body": 2, "delay": 600}));
    let details = [("X-Message-Details", "true")];
    let path = format!("{MESSAGES}?include_delayed=true&include_claimed=true&echo=true");
    let listed = || {
        let page = service.client.send(Method::GET, &path, &details, None).unwrap().json();
        let all = page["messages"].as_array().unwrap().clone();
        all.into_iter().map(|message| message["details"].clone()).collect::<Vec<_>>()
    };
    let all = listed();
    assert_eq!(
        (&all[0]["state"], all[0].get("delay"), all[0].get("not_before")),
        (&json!("ready"), None, None)
    );
    assert_eq!(all[1]["state"], json!("delayed"));
    assert!((500..=600).contains(&all[1]["delay"].as_u64().unwrap()), "{all:?}");
    assert!(all[1]["not_before"].as_str().unwrap().ends_with('Z'), "{all:?}");
    service.client.claim("q", 1, 60).unwrap().granted().unwrap();
    assert_eq!(listed()[0]["state"], json!("claimed"));
}
