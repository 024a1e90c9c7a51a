//! Messages posted, deleted and hidden each for itself.

use serde_json::{Value, json};

use super::service;
use crate::support::client::Client;
use crate::support::server::Server;

const BATCH: &str = "/v2/queues/q/messages/batch";
const NO_ID: &str = "7f1f5f2e-31a4-4c4f-9d3b-0e6b4c1d2e3f";

fn statuses(answer: &Value) -> Vec<u64> {
    answer["results"].as_array().unwrap().iter().map(|result| result["status"].as_u64().unwrap()).collect()
}

fn claimed(client: &Client) -> Vec<Value> {
    let claim = client.claim("q", 20, 60).unwrap().granted();
    claim.into_iter().flat_map(|claim| claim.messages).map(|message| message.body).collect()
}

/// Three messages under one claim.
fn three(client: &Client) -> (Vec<String>, String) {
    let ids = client.post_messages("q", &[json!(0), json!(1), json!(2)]).unwrap().posted_ids();
    (ids, client.claim("q", 3, 60).unwrap().granted().unwrap().id)
}

fn hide(client: &Client, id: &str, claim: &str, body: &Value) -> (u16, Value) {
    let answer = client.patch(&format!("/v2/queues/q/messages/{id}?claim_id={claim}"), body).unwrap();
    let shown = if answer.body.is_empty() { Value::Null } else { answer.json() };
    (answer.status.as_u16(), shown)
}

#[test]
fn valid_messages_are_posted_beside_refused_ones() {
    let service = service();
    let messages = json!([{"body": 0}, {"body": 1, "ttl": 1}, {"body": 2}, {"body": 3, "delay": -1}]);
    let answer = service.client.post(BATCH, &json!({"messages": messages})).unwrap();
    assert_eq!(answer.status.as_u16(), 200);
    let answer = answer.json();
    assert_eq!(statuses(&answer), [201, 400, 201, 400]);
    assert_eq!(answer["durability"], "sync");
    let results = answer["results"].as_array().unwrap();
    let said = results[1]["error"]["description"].as_str().unwrap();
    assert!(said.contains("messages[1].ttl"), "{said}");
    assert_eq!((&results[1]["id"], &results[1]["error"]["nothing_written"]), (&Value::Null, &json!(true)));
    let last = service.client.get(results[2]["href"].as_str().unwrap()).unwrap().message();
    assert_eq!((&json!(last.id), last.body), (&results[2]["id"], json!(2)));
    assert_eq!(claimed(&service.client), [json!(0), json!(2)]);
}

#[test]
fn a_batch_without_any_message_in_order_makes_no_queue() {
    let service = service();
    let answer = service.client.post(BATCH, &json!({"messages": [{"body": 1, "ttl": 1}]})).unwrap().json();
    assert_eq!((statuses(&answer), &answer["durability"]), (vec![400], &Value::Null));
    assert_eq!(service.client.get("/v2/queues").unwrap().json()["queues"], json!([]));
}

#[test]
fn a_batch_of_another_form_is_refused_whole() {
    let service = service();
    for wrong in [json!({"messages": []}), json!({"messages": [{"body": 1}, {"ttl": 60}]}), json!([])] {
        assert_eq!(service.client.post(BATCH, &wrong).unwrap().status.as_u16(), 400, "{wrong}");
    }
    assert_eq!(service.client.delete(BATCH).unwrap().status.as_u16(), 400);
    let many = ["x"; 21].join(",");
    assert_eq!(service.client.delete(&format!("{BATCH}?ids={many}")).unwrap().status.as_u16(), 400);
}

#[test]
fn messages_are_deleted_beside_foreign_claimed_one() {
    let service = service();
    let ids = service.client.post_messages("q", &[json!(0), json!(1), json!(2)]).unwrap().posted_ids();
    let claim = || service.client.claim("q", 1, 60).unwrap().granted().unwrap().id;
    let (ours, _) = (claim(), claim());
    let path = format!("{BATCH}?ids={},{},{},nonsense,{NO_ID}&claim_ids={ours}", ids[0], ids[1], ids[2]);
    let answer = service.client.delete(&path).unwrap().json();
    assert_eq!(statuses(&answer), [204, 403, 204, 204, 204]);
    assert_eq!(answer["results"][1]["id"], json!(ids[1]));
    assert_eq!(answer["results"][1]["error"]["title"], "Unable to delete");
    assert_eq!(service.client.stats("q").unwrap().json()["messages"]["total"], json!(1));
}

#[test]
fn one_message_of_a_claim_gets_a_time_of_its_own() {
    let service = service();
    let (ids, claim) = three(&service.client);
    let (status, shown) = hide(&service.client, &ids[1], &claim, &json!({"ttl": 600}));
    let own = shown["claim_id"].as_str().unwrap();
    assert_eq!((status, own == claim), (200, false));
    assert_eq!(shown["href"], format!("/v2/queues/q/messages/{}?claim_id={own}", ids[1]));
    let terms = service.client.get(&format!("/v2/queues/q/claims/{own}")).unwrap().json();
    assert_eq!((&terms["ttl"], terms["messages"].as_array().unwrap().len()), (&json!(600), 1));
    // The others are given back without it.
    assert_eq!(service.client.release_claim("q", &claim).unwrap().status, 204);
    assert_eq!(claimed(&service.client), [json!(0), json!(2)]);
    let delete = |claim| service.client.delete_message("q", &ids[1], Some(claim)).unwrap().status.as_u16();
    assert_eq!((delete(&claim), delete(own)), (400, 204));
}

#[test]
fn the_last_message_of_a_claim_keeps_its_claim() {
    let service = service();
    let (ids, claim) = three(&service.client);
    for id in &ids[..2] {
        service.client.delete_message("q", id, Some(&claim)).unwrap();
    }
    let (status, shown) = hide(&service.client, &ids[2], &claim, &json!({"ttl": 700, "grace": 90}));
    assert_eq!((status, &shown["claim_id"]), (200, &json!(claim)));
    let terms = service.client.get(&format!("/v2/queues/q/claims/{claim}")).unwrap().json();
    assert_eq!(terms["ttl"], json!(700));
}

#[test]
fn one_message_of_a_claim_is_given_back() {
    let service = service();
    let (ids, claim) = three(&service.client);
    assert_eq!(hide(&service.client, &ids[1], &claim, &json!({"ttl": 0})), (204, Value::Null));
    assert_eq!(claimed(&service.client), [json!(1)]);
    assert_eq!(hide(&service.client, &ids[1], &claim, &json!({"ttl": 60})).0, 404);
}

#[test]
fn unclaimed_message_is_not_hidden() {
    let service = service();
    let (ids, claim) = three(&service.client);
    let cases = [(&*ids[0], NO_ID), (NO_ID, &*claim), ("nonsense", &*claim), (&*ids[0], "nonsense")];
    for (id, claim) in cases {
        let (status, shown) = hide(&service.client, id, claim, &json!({}));
        assert_eq!((status, &shown["code"]), (404, &json!("not_found")), "{id} {claim}");
    }
    for wrong in [json!({"ttl": 59}), json!({"ttl": -1}), json!({"ttl": 43_201}), json!({"grace": 1})] {
        assert_eq!(hide(&service.client, &ids[0], &claim, &wrong).0, 400, "{wrong}");
    }
    let unnamed = service.client.patch(&format!("/v2/queues/q/messages/{}", ids[0]), &json!({})).unwrap();
    assert_eq!(unnamed.status.as_u16(), 400);
    let nowhere = format!("/v2/queues/none/messages/{}?claim_id={claim}", ids[0]);
    assert_eq!(service.client.patch(&nowhere, &json!({})).unwrap().status.as_u16(), 404);
}

#[test]
fn a_time_of_its_own_outlives_a_kill() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path());
    let (ids, claim) = three(&server.client());
    let (_, shown) = hide(&server.client(), &ids[1], &claim, &json!({"ttl": 600}));
    assert_eq!(hide(&server.client(), &ids[2], &claim, &json!({"ttl": 0})).0, 204);
    server.kill9();
    let server = Server::start(data.path());
    assert_eq!(claimed(&server.client()), [json!(2)]);
    let own = shown["claim_id"].as_str().unwrap();
    let held = |claim: &str| {
        let shown = server.client().get(&format!("/v2/queues/q/claims/{claim}")).unwrap().json();
        shown["messages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|message| message["body"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!((held(&claim), held(own)), (vec![json!(0)], vec![json!(1)]));
}
