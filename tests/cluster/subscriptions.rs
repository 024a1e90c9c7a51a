//! Subscriptions in a cluster: through any replica, and after the death of the owner.

use http::StatusCode;
use serde_json::{Value, json};

use super::{Cluster, queues, slot_of};
use crate::support::client::{Claim, Client};
use angarium_testbed::held::wait_until;

fn claim(client: &Client, subscription: &str) -> Claim {
    let claimed = client.post(&format!("{subscription}/claims?limit=20"), &json!({"ttl": 300})).unwrap();
    claimed.granted().unwrap_or_else(|| panic!("{}: {}", claimed.status, claimed.text()))
}

fn bodies(claim: &Claim) -> Vec<&Value> {
    claim.messages.iter().map(|message| &message.body).collect()
}

#[test]
fn copies_are_served_by_all_replicas_and_after_a_take_over() {
    let mut cluster = Cluster::start(2);
    let mut names = queues(64).into_iter();
    let queue = names.find(|queue| cluster.owner_of(slot_of(queue)) == 0).unwrap();
    let target = names.find(|queue| cluster.owner_of(slot_of(queue)) == 1).unwrap();
    let path = format!("/v2/queues/{queue}/subscriptions");
    let subscribe = |subscriber: &str| {
        let created = cluster.client(1).post(&path, &json!({ "subscriber": subscriber })).unwrap();
        assert_eq!(created.status, StatusCode::CREATED, "{}", created.text());
        format!("{path}/{}", created.json()["subscription_id"].as_str().unwrap())
    };
    let (pulled, _) = (subscribe("pull:"), subscribe(&format!("queue:{target}")));
    cluster.client(1).post_messages(&queue, &[json!(1), json!(2)]).unwrap();
    // Each request is forwarded to the owner of the source, and each path in an answer leads there too.
    let mut first = claim(&cluster.client(1), &pulled);
    assert_eq!(bodies(&first), [&json!(1), &json!(2)]);
    let held = cluster.client(0).get(&format!("{pulled}/claims/{}", first.id)).unwrap();
    let href = held.json()["messages"][0]["href"].as_str().unwrap().to_owned();
    assert_eq!(cluster.client(1).delete(&href).unwrap().status, StatusCode::NO_CONTENT);
    let settled = json!({"messages": [{"id": first.messages.remove(1).id, "done": {}}]});
    let settled = cluster.client(1).post(&format!("{pulled}/claims/{}/settle", first.id), &settled).unwrap();
    assert_eq!(settled.json()["results"][0]["status"], json!(200), "{}", settled.text());
    let has_arrived = |client: &Client, messages: usize| {
        client.stats(&target).unwrap().json()["messages"]["ready"] == json!(messages)
    };
    wait_until("copies are in the other queue", || has_arrived(&cluster.client(0), 2));

    cluster.client(1).post_messages(&queue, &[json!(3)]).unwrap();
    cluster.replicas[0].server.take().unwrap().kill9();
    cluster.wait_until_shared();
    let client = cluster.client(1);
    assert_eq!(bodies(&claim(&client, &pulled)), [&json!(3)]);
    client.post_messages(&queue, &[json!(4)]).unwrap();
    assert_eq!(bodies(&claim(&client, &pulled)), [&json!(4)]);
    wait_until("copies are in the other queue", || has_arrived(&client, 4));
}
