//! Claims over HTTP.

use serde_json::{Value, json};

use super::service;

fn bodies(claim: &Value) -> Vec<Value> {
    claim["messages"].as_array().unwrap().iter().map(|message| message["body"].clone()).collect()
}

fn numbers(range: std::ops::Range<u32>) -> Vec<Value> {
    range.map(Value::from).collect()
}

#[test]
fn a_claim_takes_the_oldest_and_hides_them() {
    let service = service();
    service.client.post_messages("q", &numbers(0..3)).unwrap();
    let answer = service.client.claim("q", 2, 60).unwrap();
    assert_eq!(answer.status, 201);
    let first = answer.json();
    let id = first["id"].as_str().unwrap();
    assert_eq!(answer.headers["location"], format!("/v2/queues/q/claims/{id}").as_str());
    assert_eq!(bodies(&first), numbers(0..2));
    // Zaqar's clients take the claim's id from the end of the first message's href.
    assert!(first["messages"][0]["href"].as_str().unwrap().ends_with(&format!("?claim_id={id}")));
    assert_eq!(bodies(&service.client.claim("q", 2, 60).unwrap().json()), numbers(2..3));
    let empty = service.client.claim("q", 2, 60).unwrap();
    assert_eq!((empty.status.as_u16(), empty.body.len()), (204, 0));
}

#[test]
fn a_claim_without_body_and_limit_has_the_defaults() {
    let service = service();
    service.client.post_messages("q", &numbers(0..12)).unwrap();
    let claim = service.client.send(http::Method::POST, "/v2/queues/q/claims", &[], None).unwrap();
    assert_eq!(bodies(&claim.json()), numbers(0..10));
}

#[test]
fn released_messages_are_claimed_again_in_their_place() {
    let service = service();
    service.client.post_messages("q", &numbers(0..4)).unwrap();
    let claim = service.client.claim("q", 2, 60).unwrap().json();
    let path = format!("/v2/queues/q/claims/{}", claim["id"].as_str().unwrap());
    assert_eq!(service.client.delete(&path).unwrap().status, 204);
    assert_eq!(service.client.delete(&path).unwrap().status, 204);
    assert_eq!(service.client.delete("/v2/queues/q/claims/junk").unwrap().status, 204);
    assert_eq!(bodies(&service.client.claim("q", 20, 60).unwrap().json()), numbers(0..4));
}

#[test]
fn a_released_claim_deletes_nothing_any_more() {
    let service = service();
    service.client.post_messages("q", &numbers(0..1)).unwrap();
    let old = service.client.claim("q", 1, 60).unwrap().json();
    let (claim, id) = (old["id"].as_str().unwrap(), old["messages"][0]["id"].as_str().unwrap());
    service.client.release_claim("q", claim).unwrap();
    assert_eq!(service.client.delete_message("q", id, Some(claim)).unwrap().status, 400);
    assert_eq!(service.client.claim("q", 1, 60).unwrap().status, 201);
    assert_eq!(service.client.delete_message("q", id, Some(claim)).unwrap().status, 400);
    assert_eq!(service.client.stats("q").unwrap().json()["messages"]["total"], json!(1));
}

#[test]
fn grace_raises_ttl_of_message_ending_before_claim() {
    let service = service();
    let message = json!({"messages": [{"body": 1, "ttl": 60}, {"body": 2, "ttl": 3600}]});
    service.client.post("/v2/queues/q/messages", &message).unwrap();
    let claim =
        service.client.post("/v2/queues/q/claims", &json!({"ttl": 500, "grace": 100})).unwrap().json();
    assert_eq!((&claim["messages"][0]["ttl"], &claim["messages"][1]["ttl"]), (&json!(600), &json!(3600)));
}

#[test]
fn a_backlog_of_many_windows_is_claimed_whole_and_in_order() {
    let service = service();
    const EACH: u32 = 500;
    for first in (0..10_000).step_by(EACH as usize) {
        let posted = service.client.post_messages("q", &numbers(first..first + EACH)).unwrap();
        assert_eq!(posted.status, 201);
    }
    let mut next = 0;
    loop {
        let answer = service.client.claim("q", 20, 60).unwrap();
        if answer.status == 204 {
            break;
        }
        let count = u32::try_from(bodies(&answer.json()).len()).unwrap();
        assert_eq!(bodies(&answer.json()), numbers(next..next + count));
        next += count;
    }
    assert_eq!(next, 10_000);
}

#[test]
fn claimers_at_the_same_time_share_and_never_overlap() {
    let service = service();
    for first in (0..2_000).step_by(500) {
        service.client.post_messages("q", &numbers(first..first + 500)).unwrap();
    }
    let claimers: Vec<_> = (0..8)
        .map(|_| {
            let client = service.server.client();
            std::thread::spawn(move || {
                let mut seen = Vec::new();
                loop {
                    let answer = client.claim("q", 7, 300).unwrap();
                    if answer.status == 204 {
                        return seen;
                    }
                    seen.extend(bodies(&answer.json()).iter().map(|body| body.as_u64().unwrap()));
                }
            })
        })
        .collect();
    let mut all: Vec<u64> = claimers.into_iter().flat_map(|claimer| claimer.join().unwrap()).collect();
    all.sort_unstable();
    assert_eq!(all, (0..2_000).collect::<Vec<u64>>());
}

#[test]
fn claim_shows_remaining_messages_until_it_ends() {
    let service = service();
    service.client.post_messages("q", &numbers(0..2)).unwrap();
    let claim = service.client.claim("q", 2, 120).unwrap().json();
    let (id, first) = (claim["id"].as_str().unwrap(), claim["messages"][0]["id"].as_str().unwrap());
    let path = format!("/v2/queues/q/claims/{id}");
    let shown = service.client.get(&path).unwrap().json();
    assert_eq!(
        (&shown["ttl"], &shown["href"], &shown["messages"]),
        (&json!(120), &json!(path), &claim["messages"])
    );
    assert!(shown["age"].as_u64().unwrap() < 60);
    service.client.delete_message("q", first, Some(id)).unwrap();
    assert_eq!(bodies(&service.client.get(&path).unwrap().json()), numbers(1..2));
    service.client.release_claim("q", id).unwrap();
    assert_eq!(service.client.get(&path).unwrap().status, 404);
    assert_eq!(service.client.get("/v2/queues/q/claims/junk").unwrap().status, 404);
    assert_eq!(service.client.get(&path.replace("/q/", "/other/")).unwrap().status, 404);
}

#[test]
fn renewing_a_claim_takes_terms_of_a_live_claim_only() {
    let service = service();
    service.client.post_messages("q", &numbers(0..1)).unwrap();
    let id = service.client.claim("q", 1, 60).unwrap().json()["id"].as_str().unwrap().to_owned();
    let path = format!("/v2/queues/q/claims/{id}");
    let renew = |path: &str, body: Value| service.client.patch(path, &body).unwrap().status.as_u16();
    assert_eq!(renew(&path, json!({"ttl": 700, "grace": 60})), 204);
    assert_eq!(service.client.get(&path).unwrap().json()["ttl"], json!(700));
    assert_eq!(renew(&path, json!({})), 204);
    assert_eq!(service.client.get(&path).unwrap().json()["ttl"], json!(300));
    for bad in [json!({"ttl": 59}), json!({"grace": 59}), json!([]), json!({"ttl": "x"})] {
        assert_eq!(renew(&path, bad.clone()), 400, "{bad}");
    }
    let empty = service.client.send(http::Method::PATCH, &path, &[], None).unwrap();
    assert_eq!(empty.status, 400);
    service.client.release_claim("q", &id).unwrap();
    assert_eq!(renew(&path, json!({"ttl": 700})), 404);
    assert_eq!(renew("/v2/queues/q/claims/junk", json!({"ttl": 700})), 404);
    assert_eq!(renew("/v2/queues/none/claims/7f1f5f2e-31a4-4c4f-9d3b-0e6b4c1d2e3f", json!({})), 404);
}

#[test]
fn claims_of_a_queue_are_listed_page_by_page() {
    let service = service();
    let client = &service.client;
    assert_eq!(client.get("/v2/queues/q/claims").unwrap().json(), json!({"claims": [], "links": []}));
    client.post_messages("q", &numbers(0..12)).unwrap();
    let claim = |limit| client.claim("q", limit, 120).unwrap().granted().unwrap();
    let mut ids: Vec<String> = (0..5).map(|_| claim(2).id).collect();
    let released = claim(1).id;
    client.release_claim("q", &released).unwrap();
    let two = claim(2);
    client.delete_message("q", &two.messages[0].id, Some(&two.id)).unwrap();
    ids.push(two.id.clone());
    ids.sort_unstable();
    let (mut found, mut path) = (Vec::new(), "/v2/queues/q/claims?limit=4".to_owned());
    loop {
        let page = client.get(&path).unwrap().json();
        let claims = page["claims"].as_array().unwrap();
        assert!(claims.len() <= 4);
        for claim in claims {
            let id = claim["id"].as_str().unwrap().to_owned();
            let messages = if id == two.id { 1 } else { 2 };
            assert_eq!((&claim["ttl"], &claim["messages"]), (&json!(120), &json!(messages)));
            assert_eq!(client.get(claim["href"].as_str().unwrap()).unwrap().status, 200);
            found.push(id);
        }
        let Some(link) = page["links"].as_array().unwrap().first() else { break };
        path = link["href"].as_str().unwrap().to_owned();
    }
    assert_eq!(found, ids);
    let behind = client.get("/v2/queues/q/claims?marker=junk").unwrap().json();
    assert_eq!(behind, json!({"claims": [], "links": []}));
    for bad in ["limit=0", "limit=21"] {
        assert_eq!(client.get(&format!("/v2/queues/q/claims?{bad}")).unwrap().status, 400, "{bad}");
    }
}
