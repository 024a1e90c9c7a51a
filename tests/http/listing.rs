//! Lists of messages over HTTP.

use http::Method;
use serde_json::{Value, json};

use super::{Service, service};

const MESSAGES: &str = "/v2/queues/q/messages";
const US: (&str, &str) = ("Client-ID", "3381af92-4cd6-11e2-957b-00163e1ea28a");

fn bodies(page: &Value) -> Vec<i64> {
    page["messages"].as_array().unwrap().iter().map(|message| message["body"].as_i64().unwrap()).collect()
}

fn next(page: &Value) -> Option<String> {
    let links = page["links"].as_array().unwrap();
    assert!(links.iter().all(|link| link["rel"] == json!("next")));
    links.first().map(|link| link["href"].as_str().unwrap().to_owned())
}

fn post(service: &Service, numbers: std::ops::Range<i64>) {
    for some in numbers.collect::<Vec<_>>().chunks(500) {
        let bodies: Vec<Value> = some.iter().map(|number| json!(number)).collect();
        assert_eq!(service.client.post_messages("q", &bodies).unwrap().status, 201);
    }
}

/// All that a list shows, following its links to the first empty page, and how many pages had something.
fn walk(service: &Service, path: &str) -> (Vec<i64>, usize) {
    let (mut all, mut pages, mut path) = (Vec::new(), 0, path.to_owned());
    loop {
        let page = service.client.get(&path).unwrap().json();
        let found = bodies(&page);
        if found.is_empty() {
            return (all, pages);
        }
        pages += 1;
        all.extend(found);
        path = next(&page).expect("a page with messages has a link");
    }
}

#[test]
fn pages_follow_each_other_in_order_and_end_with_an_empty_one() {
    let service = service();
    post(&service, 0..10);
    assert_eq!(walk(&service, &format!("{MESSAGES}?limit=3")), ((0..10).collect(), 4));
    assert_eq!(walk(&service, &format!("{MESSAGES}?limit=1")), ((0..10).collect(), 10));
    let first = service.client.get(MESSAGES).unwrap().json();
    assert_eq!(bodies(&first), (0..10).collect::<Vec<_>>());
    let keys: Vec<&String> = first["messages"][0].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["age", "body", "href", "id", "ttl"]);
}

#[test]
fn a_link_carries_the_parameters_on() {
    let service = service();
    post(&service, 0..3);
    let path = format!("{MESSAGES}?limit=2&echo=True&include_claimed=1");
    let link = next(&service.client.get(&path).unwrap().json()).unwrap();
    assert!(
        link.starts_with(&format!("{MESSAGES}?limit=2&echo=true&include_claimed=true&marker=")),
        "{link}"
    );
}

#[test]
fn a_marker_stays_good_when_its_message_is_deleted() {
    let service = service();
    post(&service, 0..6);
    let page = service.client.get(&format!("{MESSAGES}?limit=2")).unwrap().json();
    for message in page["messages"].as_array().unwrap() {
        assert_eq!(service.client.delete(message["href"].as_str().unwrap()).unwrap().status, 204);
    }
    let second = service.client.get(&next(&page).unwrap()).unwrap().json();
    assert_eq!(bodies(&second), [2, 3]);
}

#[test]
fn foreign_marker_is_behind_all_messages() {
    let service = service();
    post(&service, 0..3);
    let page = service.client.get(&format!("{MESSAGES}?marker=sfhlsfdjh2048")).unwrap().json();
    assert_eq!(page, json!({"messages": [], "links": []}));
}

#[test]
fn own_messages_are_left_out_unless_they_are_asked_for() {
    let service = service();
    let ours = service.server.client().with_header(US.0, US.1);
    ours.post_messages("q", &[json!(1)]).unwrap();
    post(&service, 2..4);
    ours.post_messages("q", &[json!(4)]).unwrap();
    let list = |query: &str| bodies(&ours.get(&format!("{MESSAGES}{query}")).unwrap().json());
    assert_eq!(list(""), [2, 3]);
    // The filter precedes the cut.
    assert_eq!(list("?limit=1"), [2]);
    assert_eq!(list("?echo=true"), [1, 2, 3, 4]);
    assert_eq!(bodies(&service.client.get(MESSAGES).unwrap().json()), [1, 2, 3, 4]);
}

#[test]
fn claimed_messages_are_left_out_unless_they_are_asked_for() {
    let service = service();
    post(&service, 0..5);
    let claim = service.client.claim("q", 2, 60).unwrap().granted().unwrap();
    let list = |query: &str| service.client.get(&format!("{MESSAGES}{query}")).unwrap().json();
    assert_eq!(bodies(&list("?limit=2")), [2, 3]);
    let all = list("?include_claimed=true");
    assert_eq!(bodies(&all), [0, 1, 2, 3, 4]);
    let hrefs: Vec<&str> =
        all["messages"].as_array().unwrap().iter().map(|message| message["href"].as_str().unwrap()).collect();
    let of_claim = format!("?claim_id={}", claim.id);
    assert!(hrefs[..2].iter().all(|href| href.ends_with(&of_claim)), "{hrefs:?}");
    assert!(hrefs[2..].iter().all(|href| !href.contains('?')), "{hrefs:?}");
    // What returns from a claim is in its old place, though its body has to be read again.
    service.client.release_claim("q", &claim.id).unwrap();
    assert_eq!(bodies(&list("")), [0, 1, 2, 3, 4]);
}

#[test]
fn list_continues_beyond_memory() {
    let service = service();
    // More messages than memory keeps ready.
    post(&service, 0..6_000);
    let page = |marker: &str| service.client.get(&format!("{MESSAGES}?limit=20{marker}")).unwrap().json();
    let mut last = page("");
    let mut all = bodies(&last);
    while let Some(link) = next(&last) {
        last = service.client.get(&link).unwrap().json();
        all.extend(bodies(&last));
    }
    assert_eq!(all, (0..6_000).collect::<Vec<_>>());
}

#[test]
fn filter_over_backlog_returns_next_marker() {
    let service = service();
    let ours = service.server.client().with_header(US.0, US.1);
    for _ in 0..42 {
        let bodies: Vec<Value> = (0..500).map(|_| json!("ours")).collect();
        ours.post_messages("q", &bodies).unwrap();
    }
    service.client.post_messages("q", &[json!(7)]).unwrap();
    let mut path = MESSAGES.to_owned();
    for requests in 1.. {
        let page = ours.get(&path).unwrap().json();
        if !bodies(&page).is_empty() {
            assert_eq!((bodies(&page), requests), (vec![7], 2));
            break;
        }
        path = next(&page).expect("a page that ended early has a link");
    }
}

#[test]
fn messages_are_read_by_their_ids_in_the_order_of_the_ids() {
    let service = service();
    let ids = service.client.post_messages("q", &[json!(0), json!(1), json!(2)]).unwrap().posted_ids();
    let claim = service.client.claim("q", 1, 60).unwrap().granted().unwrap();
    let (query, unknown) =
        (format!("?ids={},nonsense&ids={}&ids=", ids[2], ids[0]), "01a1fc0b-7a70-73e1-a5b6-7f7b06722333");
    let found = service.client.get(&format!("{MESSAGES}{query},{unknown}")).unwrap();
    let page = found.json();
    assert_eq!((found.status.as_u16(), bodies(&page)), (200, vec![2, 0]));
    assert!(page.get("links").is_none());
    assert!(page["messages"][1]["href"].as_str().unwrap().ends_with(&format!("?claim_id={}", claim.id)));
    assert_eq!(service.client.get(&format!("{MESSAGES}?ids={unknown}")).unwrap().status, 404);
    // A blank list is none, so this is a plain list.
    assert_eq!(bodies(&service.client.get(&format!("{MESSAGES}?ids=")).unwrap().json()), [1, 2]);
    let many = [ids[0].as_str(); 21].join(",");
    assert_eq!(service.client.get(&format!("{MESSAGES}?ids={many}")).unwrap().status, 400);
}

#[test]
fn wrong_parameters_of_a_list_are_400_and_named() {
    let service = service();
    service.client.create_queue("q").unwrap();
    for (query, name) in [
        ("limit=0", "limit"),
        ("limit=21", "limit"),
        ("limit=ten", "limit"),
        ("limit=1&limit=2", "limit"),
        ("echo=maybe", "echo"),
        ("include_claimed=2", "include_claimed"),
        ("marker=%ff", "marker"),
    ] {
        for queue in ["q", "missing"] {
            let path = format!("/v2/queues/{queue}/messages?{query}");
            let answer = service.client.send(Method::GET, &path, &[], None).unwrap();
            assert_eq!(answer.status, 400, "{query}");
            let said = answer.json()["description"].as_str().unwrap().to_owned();
            assert!(said.starts_with(&format!("{name}:")), "{query}: {said}");
        }
    }
}
