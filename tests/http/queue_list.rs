//! The list of queues over HTTP.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Service, service};
use crate::support::client::Client;

const QUEUES: &str = "/v2/queues";

fn names(page: &Value) -> Vec<&str> {
    page["queues"].as_array().unwrap().iter().map(|queue| queue["name"].as_str().unwrap()).collect()
}

fn next(page: &Value) -> Option<String> {
    page["links"].as_array().unwrap().first().map(|link| link["href"].as_str().unwrap().to_owned())
}

fn create(client: &Client, name: &str, metadata: &Value) {
    assert_eq!(client.put(&format!("{QUEUES}/{name}"), Some(metadata)).unwrap().status, 201);
}

fn list(service: &Service, query: &str) -> Value {
    let answer = service.client.get(&format!("{QUEUES}?{query}")).unwrap();
    assert_eq!(answer.status, 200, "{query}: {}", answer.text());
    answer.json()
}

#[test]
fn a_project_without_queues_has_an_empty_page() {
    assert_eq!(list(&service(), ""), json!({"queues": [], "links": []}));
}

#[test]
fn pages_have_the_queues_in_order_of_their_names() {
    let service = service();
    let mut all = ["a", "B", "a.b", "a-b", "a_b", "z9", "10", "9", "q-1", "q.1", "q_1"];
    for name in all {
        create(&service.client, name, &json!({}));
    }
    all.sort_unstable();
    for limit in [1, 4, 11, 20] {
        let (mut found, mut path) = (Vec::new(), format!("{QUEUES}?limit={limit}"));
        loop {
            let page = service.client.get(&path).unwrap().json();
            assert!(names(&page).len() <= limit);
            if names(&page).is_empty() {
                break;
            }
            found.extend(names(&page).into_iter().map(str::to_owned));
            path = next(&page).expect("a page with queues has a link");
        }
        assert_eq!(found, all, "{limit}");
    }
    let page = list(&service, "limit=1");
    assert_eq!(page["queues"][0], json!({"name": "10", "href": "/v2/queues/10"}));
}

#[test]
fn a_marker_need_not_be_the_name_of_a_queue() {
    let service = service();
    for name in ["b", "d"] {
        create(&service.client, name, &json!({}));
    }
    assert_eq!(names(&list(&service, "marker=c")), ["d"]);
    assert_eq!(names(&list(&service, "marker=zzz")), [""; 0]);
    assert_eq!(names(&list(&service, "marker=%2F%20")), ["b", "d"]);
}

#[test]
fn one_project_never_sees_the_queues_of_another() {
    let service = service();
    let project = |name: &str| service.server.client().with_header("X-Project-Id", name);
    let (ours, theirs) = (project("ours"), project("ours/../theirs"));
    create(&ours, "q1", &json!({}));
    create(&theirs, "q2", &json!({}));
    let page = |client: &Client| client.get(&format!("{QUEUES}?with_count=true")).unwrap().json();
    assert_eq!((names(&page(&ours)), &page(&ours)["count"]), (vec!["q1"], &json!(1)));
    assert_eq!((names(&page(&theirs)), &page(&theirs)["count"]), (vec!["q2"], &json!(1)));
}

#[test]
fn a_detailed_list_shows_the_metadata_as_the_queue_itself_does() {
    let service = service();
    create(&service.client, "q", &json!({"node": 31}));
    let page = list(&service, "detailed=true");
    assert_eq!(page["queues"][0]["metadata"], service.client.get("/v2/queues/q").unwrap().json());
    assert!(list(&service, "detailed=no")["queues"][0].get("metadata").is_none());
}

#[test]
fn filters_are_a_part_of_the_name_and_values_of_the_metadata() {
    let service = service();
    create(&service.client, "q1", &json!({"key1": "value1"}));
    create(&service.client, "q2", &json!({"_max_messages_post_size": 2000, "on": true}));
    create(&service.client, "other", &json!({"key2": 30, "text": "30"}));
    for (query, found) in [
        ("name=q", vec!["q1", "q2"]),
        ("name=.", vec![]),
        ("key1=value1", vec!["q1"]),
        ("key2=30", vec!["other"]),
        ("text=30", vec!["other"]),
        ("key2=31", vec![]),
        ("on=true", vec!["q2"]),
        ("_max_messages_post_size=2000", vec!["q2"]),
        ("_default_message_ttl=3600", vec!["other", "q1", "q2"]),
        ("name=q&key1=value1", vec!["q1"]),
        ("name=o&key1=value1", vec![]),
    ] {
        assert_eq!(names(&list(&service, query)), found, "{query}");
    }
    let page = list(&service, "name=q&limit=1&_default_message_ttl=3600");
    assert_eq!(next(&page).unwrap(), "/v2/queues?limit=1&name=q&_default_message_ttl=3600&marker=q1");
    // The filter precedes the cut.
    assert_eq!(names(&list(&service, "limit=1&key1=value1")), ["q1"]);
}

#[test]
fn selective_filter_returns_next_marker() {
    let service = service();
    for number in 0..1_050 {
        create(&service.client, &format!("q{number:04}"), &json!({}));
    }
    create(&service.client, "z", &json!({"rare": 1}));
    let page = list(&service, "rare=1");
    assert_eq!(names(&page), [""; 0]);
    let page = service.client.get(&next(&page).expect("there is more")).unwrap().json();
    assert_eq!(names(&page), ["z"]);
    // Names are looked at in far greater numbers.
    assert_eq!(names(&list(&service, "name=z&rare=1")), ["z"]);
    assert_eq!(list(&service, "with_count=1")["count"], json!(1_051));
}

#[test]
fn wrong_parameters_are_400_and_named() {
    let service = service();
    for (query, name) in [
        ("limit=21", "limit"),
        ("limit=0", "limit"),
        ("detailed=si", "detailed"),
        ("with_count=2", "with_count"),
    ] {
        let answer = service.client.get(&format!("{QUEUES}?{query}")).unwrap();
        assert_eq!(answer.status, 400, "{query}");
        assert!(answer.json()["description"].as_str().unwrap().starts_with(&format!("{name}:")), "{query}");
    }
}

#[test]
fn listing_with_stats_counts_each_message_under_one_state() {
    let service = service();
    let client = &service.client;
    create(client, "empty", &json!({}));
    client.post_messages("q", &[json!(1), json!(2), json!(3)]).unwrap();
    client.post_delayed("q", &[json!(4), json!(5)], 600).unwrap();
    client.claim("q", 1, 60).unwrap().granted().unwrap();
    let page = list(&service, "with_stats=true");
    assert_eq!(names(&page), ["empty", "q"]);
    let none = json!({
        "ready": 0, "delayed": 0, "claimed": 0, "in_transfer": 0, "rates": {"posted": 0.0, "removed": 0.0}
    });
    assert_eq!(page["queues"][0]["stats"], none);
    let stats = &page["queues"][1]["stats"];
    let counts = ["ready", "delayed", "claimed", "in_transfer"].map(|state| stats[state].as_u64().unwrap());
    assert_eq!(counts, [2, 2, 1, 0], "{stats}");
    assert!(stats["oldest_age"].as_u64().unwrap() < 60, "{stats}");
    assert!(stats["rates"]["posted"].as_f64().unwrap() > 0.0, "{stats}");
    assert_eq!(list(&service, "")["queues"][1].get("stats"), None);
}

#[test]
fn pages_with_stats_lead_to_pages_with_stats() {
    let service = service();
    for name in ["a", "b"] {
        create(&service.client, name, &json!({"_max_claim_count": 3}));
    }
    let first = list(&service, "limit=1&with_stats=True&_max_claim_count=3");
    let second = service.client.get(&next(&first).unwrap()).unwrap().json();
    assert_eq!((names(&second), &second["queues"][0]["stats"]["ready"]), (vec!["b"], &json!(0)));
    assert_eq!(service.client.get("/v2/queues?with_stats=maybe").unwrap().status, 400);
}

#[test]
fn dead_letters_go_out_of_one_rate_and_into_the_other() {
    let service = service();
    let client = &service.client;
    create(client, "dead", &json!({}));
    create(client, "q", &json!({"_dead_letter_queue": "dead", "_max_claim_count": 1}));
    client.post_messages("q", &[json!(1)]).unwrap();
    let claim = client.claim("q", 1, 60).unwrap().granted().unwrap();
    client.release_claim("q", &claim.id).unwrap();
    assert_eq!(client.claim("q", 1, 60).unwrap().status, 204);
    let start = Instant::now();
    let queues = loop {
        let page = list(&service, "with_stats=true");
        let [dead, source] = [0, 1].map(|queue| page["queues"][queue]["stats"].clone());
        if (dead["ready"].as_u64(), source["in_transfer"].as_u64()) == (Some(1), Some(0)) {
            break [dead, source];
        }
        assert!(start.elapsed() < Duration::from_secs(30), "{page}");
        std::thread::sleep(Duration::from_millis(50));
    };
    let rate = |queue: usize, way: &str| queues[queue]["rates"][way].as_f64().unwrap();
    assert!(rate(0, "posted") > 0.0 && rate(1, "removed") > 0.0, "{queues:?}");
}
