//! As many subscriptions of one queue as there may be: the program is killed while it posts, migrates and deletes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use angarium_core::limits::SUBSCRIPTIONS;
use angarium_testbed::held::wait_until;
use http::StatusCode;
use serde_json::{Value, json};

use super::service;
use super::subscriptions::total;
use crate::support::client::Client;
use crate::support::server::Server;

const PATH: &str = "/v2/queues/q/subscriptions";
const MIGRATE: &str = "/v2/queues/q/migrate";
/// Messages of one post.
const MESSAGES: usize = 3;
/// Clients that subscribe beside each other.
const CLIENTS: usize = 4;

fn subscribe_all(server: &Server) {
    thread::scope(|scope| {
        for first in 0..CLIENTS {
            scope.spawn(move || {
                let client = server.client();
                for number in (first..SUBSCRIPTIONS).step_by(CLIENTS) {
                    let body = json!({"subscriber": format!("pull:{number}")});
                    let created = client.post(PATH, &body).unwrap();
                    assert_eq!(created.status, StatusCode::CREATED, "{}", created.text());
                }
            });
        }
    });
}

/// The paths of all subscriptions, page by page.
fn listed(client: &Client) -> Vec<String> {
    let (mut paths, mut next) = (Vec::new(), format!("{PATH}?limit=20"));
    loop {
        let page = client.get(&next).unwrap().json();
        let ids = page["subscriptions"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap());
        paths.extend(ids.map(|id| format!("{PATH}/{id}")));
        let Some(link) = page["links"].get(0) else { return paths };
        link["href"].as_str().unwrap().clone_into(&mut next);
    }
}

/// Posts until the program is gone. Returns the number of messages whose posts were answered.
fn post_until_it_ends(client: &Client, answered: &AtomicUsize) {
    let bodies: Vec<Value> = (0..MESSAGES).map(|number| json!(number)).collect();
    while client.post_messages("q", &bodies).is_ok_and(|posted| posted.status == StatusCode::CREATED) {
        answered.fetch_add(MESSAGES, Ordering::SeqCst);
    }
}

#[test]
fn thousand_subscriptions_outlive_kill_9() {
    let service = service();
    subscribe_all(&service.server);
    let more = service.client.post(PATH, &json!({"subscriber": "pull:more"})).unwrap();
    assert_eq!(more.status, StatusCode::TOO_MANY_REQUESTS, "{}", more.text());

    let (answered, client) = (AtomicUsize::new(0), service.server.client());
    let service = thread::scope(|scope| {
        scope.spawn(|| post_until_it_ends(&client, &answered));
        wait_until("posts are answered", || answered.load(Ordering::SeqCst) >= 2 * MESSAGES);
        service.again(Server::kill9)
    });
    let (client, answered) = (&service.client, answered.load(Ordering::SeqCst));
    let paths = listed(client);
    assert_eq!(paths.len(), SUBSCRIPTIONS);
    wait_until("the queue is served again", || total(client, "/v2/queues/q").is_u64());
    let stored = total(client, "/v2/queues/q");
    let copies = stored.as_u64().unwrap() as usize;
    assert!(copies == answered || copies == answered + MESSAGES, "{copies} of {answered}");
    let some = || paths.iter().step_by(SUBSCRIPTIONS / 20);
    some().for_each(|path| assert_eq!(total(client, path), stored, "a post reaches all or none"));

    let other = json!({"uri": "embedded:other", "weight": 0});
    assert_eq!(client.put("/v2/pools/other", Some(&other)).unwrap().status, StatusCode::CREATED);
    let begun = client.post(MIGRATE, &json!({"pool": "other"})).unwrap();
    assert_eq!(begun.status, StatusCode::ACCEPTED, "{}", begun.text());
    let all = copies * (SUBSCRIPTIONS + 1);
    // None while the replica that has just begun counts.
    let usage = |client: &Client, pool: &str| {
        let shown = client.get(&format!("/v2/pools/{pool}")).unwrap().json();
        shown["usage"]["messages"].as_u64().map(|messages| messages as usize)
    };
    wait_until("some copies have moved", || usage(client, "other") > Some(all / 10));
    let service = service.again(Server::kill9);
    let client = &service.client;
    wait_until("the queue arrives", || client.get(MIGRATE).unwrap().status == StatusCode::NOT_FOUND);
    wait_until("the copies are counted", || {
        (usage(client, "default"), usage(client, "other")) == (Some(0), Some(all))
    });
    some().for_each(|path| assert_eq!(total(client, path), stored));

    assert_eq!(client.delete("/v2/queues/q").unwrap().status, StatusCode::NO_CONTENT);
    wait_until("some are deleted", || usage(client, "other").is_some_and(|left| left < all - copies));
    thread::sleep(Duration::from_millis(20));
    let service = service.again(Server::kill9);
    let client = &service.client;
    wait_until("all copies are removed", || usage(client, "other") == Some(0));
    assert_eq!(listed(client), [""; 0]);
}
