//! Deleting and popping many messages over HTTP.

use serde_json::{Value, json};

use super::service;
use crate::support::client::Client;
use crate::support::server::Server;

const MESSAGES: &str = "/v2/queues/q/messages";

fn numbers(count: i64) -> Vec<Value> {
    (0..count).map(|number| json!(number)).collect()
}

fn bodies(answer: &Value) -> Vec<i64> {
    answer["messages"].as_array().unwrap().iter().map(|message| message["body"].as_i64().unwrap()).collect()
}

#[test]
fn free_messages_are_deleted_by_id_and_unknown_ids_ignored() {
    let service = service();
    let ids = service.client.post_messages("q", &numbers(4)).unwrap().posted_ids();
    let path = format!("{MESSAGES}?ids={},{},nonsense,{}", ids[0], ids[2], ids[0]);
    for _ in 0..2 {
        assert_eq!(service.client.delete(&path).unwrap().status, 204);
    }
    assert_eq!(bodies(&service.client.get(MESSAGES).unwrap().json()), [1, 3]);
    assert_eq!(service.client.stats("q").unwrap().json()["messages"]["total"], json!(2));
}

#[test]
fn one_message_under_another_claim_refuses_the_whole_deletion() {
    let service = service();
    let ids = service.client.post_messages("q", &numbers(4)).unwrap().posted_ids();
    let claim = || service.client.claim("q", 1, 60).unwrap().granted().unwrap().id;
    let (ours, theirs) = (claim(), claim());
    let all = ids.join(",");
    let ended = "7f1f5f2e-31a4-4c4f-9d3b-0e6b4c1d2e3f";
    for claims in ["".to_owned(), format!("&claim_ids={ours}"), format!("&claim_ids={ours},{ended},junk")] {
        let refused = service.client.delete(&format!("{MESSAGES}?ids={all}{claims}")).unwrap();
        assert_eq!((refused.status.as_u16(), &refused.json()["title"]), (403, &json!("Unable to delete")));
    }
    assert_eq!(service.client.stats("q").unwrap().json()["messages"]["total"], json!(4));
    let path = format!("{MESSAGES}?ids={all}&claim_ids={ours}&claim_ids={theirs}");
    assert_eq!(service.client.delete(&path).unwrap().status, 204);
    let stats = service.client.stats("q").unwrap().json();
    assert_eq!(
        stats,
        json!({"messages": {"claimed": 0, "free": 0, "ready": 0, "delayed": 0, "in_transfer": 0, "total": 0}})
    );
}

#[test]
fn claimer_deletes_in_bulk_by_client_id_alone() {
    const OURS: &str = "7f1f5f2e-31a4-4c4f-9d3b-0e6b4c1d2e3f";
    const THEIRS: &str = "00000000-0000-4000-8000-000000000001";
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path());
    let client = |id| server.client().with_header("Client-ID", id);
    let ids = client(OURS).post_messages("q", &numbers(6)).unwrap().posted_ids();
    let claim = client(OURS).claim("q", 3, 60).unwrap().granted().unwrap().id;
    // A claim of no client in particular is that of no `Client-ID`.
    server.client().claim("q", 1, 60).unwrap().granted().unwrap();
    let delete = |client: &Client, ids: &[String], each: &str| {
        client.delete(&format!("{MESSAGES}{each}?ids={}", ids.join(","))).unwrap()
    };
    for other in [client(THEIRS), server.client()] {
        assert_eq!(delete(&other, &ids[..1], "").status, 403);
        assert_eq!(delete(&other, &ids[..1], "/batch").json()["results"][0]["status"], json!(403));
    }
    assert_eq!(delete(&client(OURS), &ids[2..4], "").status, 403, "one is under another claim");
    // A message that was given a time of its own is under the same client's claim.
    let path = format!("{MESSAGES}/{}?claim_id={claim}", ids[1]);
    assert_eq!(client(OURS).patch(&path, &json!({"ttl": 600})).unwrap().status, 200);
    assert_eq!(
        client(OURS).patch(&format!("/v2/queues/q/claims/{claim}"), &json!({"ttl": 600})).unwrap().status,
        204
    );
    assert_eq!(delete(&client(OURS), &ids[..1], "").status, 204);
    server.kill9();
    let server = Server::start(data.path());
    let client = |id| server.client().with_header("Client-ID", id);
    assert_eq!(delete(&client(THEIRS), &ids[1..3], "").status, 403);
    assert_eq!(delete(&client(OURS), &ids[1..2], "/batch").json()["results"][0]["status"], json!(204));
    assert_eq!(delete(&client(OURS), &ids[2..3], "").status, 204);
    // The single form asks for the claim, as before.
    assert_eq!(client(OURS).claim("q", 1, 60).unwrap().granted().unwrap().messages.len(), 1);
    assert_eq!(client(OURS).delete(&format!("{MESSAGES}/{}", ids[4])).unwrap().status, 403);
    assert_eq!(
        bodies(&server.client().get(&format!("{MESSAGES}?include_claimed=true&echo=true")).unwrap().json()),
        [3, 4, 5]
    );
}

#[test]
fn a_claim_is_over_when_its_last_message_is_deleted_with_others() {
    let service = service();
    let ids = service.client.post_messages("q", &numbers(2)).unwrap().posted_ids();
    let claim = service.client.claim("q", 2, 60).unwrap().granted().unwrap();
    service.client.delete(&format!("{MESSAGES}?ids={}&claim_ids={}", ids.join(","), claim.id)).unwrap();
    assert_eq!(service.client.get(&format!("/v2/queues/q/claims/{}", claim.id)).unwrap().status, 404);
}

#[test]
fn a_pop_takes_the_oldest_free_messages_out_in_order() {
    let service = service();
    let ids = service.client.post_messages("q", &numbers(6)).unwrap().posted_ids();
    let claim = service.client.claim("q", 1, 60).unwrap().granted().unwrap();
    let popped = service.client.delete(&format!("{MESSAGES}?pop=3")).unwrap();
    assert_eq!((popped.status.as_u16(), bodies(&popped.json())), (200, vec![1, 2, 3]));
    let first = &popped.json()["messages"][0];
    assert_eq!((&first["id"], &first["href"]), (&json!(ids[1]), &json!(format!("{MESSAGES}/{}", ids[1]))));
    assert_eq!(service.client.get_message("q", &ids[1]).unwrap().status, 404);
    // The claimed one is not popped, and returns in its place.
    assert_eq!(service.client.release_claim("q", &claim.id).unwrap().status, 204);
    assert_eq!(bodies(&service.client.delete(&format!("{MESSAGES}?pop=20")).unwrap().json()), [0, 4, 5]);
    assert_eq!(bodies(&service.client.delete(&format!("{MESSAGES}?pop=1")).unwrap().json()), [0; 0]);
    let stats = service.client.stats("q").unwrap().json();
    assert_eq!(
        stats,
        json!({"messages": {"claimed": 0, "free": 0, "ready": 0, "delayed": 0, "in_transfer": 0, "total": 0}})
    );
}

#[test]
fn popped_messages_stay_deleted_after_kill() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path());
    server.client().post_messages("q", &numbers(3)).unwrap();
    assert_eq!(bodies(&server.client().delete(&format!("{MESSAGES}?pop=2")).unwrap().json()), [0, 1]);
    server.kill9();
    let server = Server::start(data.path());
    assert_eq!(bodies(&server.client().get(MESSAGES).unwrap().json()), [2]);
}

#[test]
fn a_deletion_names_either_ids_or_a_number() {
    let service = service();
    service.client.post_messages("q", &numbers(1)).unwrap();
    let many = ["x"; 21].join(",");
    for query in [
        "".to_owned(),
        "ids=".to_owned(),
        "pop=".to_owned(),
        "claim_ids=x".to_owned(),
        "pop=1&ids=x".to_owned(),
        "pop=0".to_owned(),
        "pop=21".to_owned(),
        "pop=-1".to_owned(),
        "pop=all".to_owned(),
        format!("ids={many}"),
        format!("ids=x&claim_ids={many}"),
    ] {
        assert_eq!(service.client.delete(&format!("{MESSAGES}?{query}")).unwrap().status, 400, "{query}");
    }
    assert_eq!(service.client.stats("q").unwrap().json()["messages"]["total"], json!(1));
}
