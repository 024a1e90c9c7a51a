//! Held queues through the SQS endpoint.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use http::StatusCode;
use serde_json::{Value, json};

use super::wire::{NONE, Service};
use crate::support::pauses::Stopper;
use angarium_testbed::held::wait_until;

#[test]
fn receive_of_held_queue_is_empty_and_sends_are_refused() {
    let service = Service::start();
    let client = service.client();
    for (queue, group) in [("q", None), ("f.fifo", Some("g"))] {
        let url = service.server.url(&format!("/000000000000/{queue}"));
        let mut send = json!({"QueueUrl": url, "MessageBody": "x"});
        if let Some(group) = group {
            send["MessageGroupId"] = json!(group);
            send["MessageDeduplicationId"] = json!("once");
        }
        let hold = format!("/v2/queues/{queue}/hold");
        for effect in ["post", "discard"] {
            let held = client
                .put(&hold, Some(&json!({"claim": false, "reason": "bad deploy", effect: true})))
                .unwrap();
            assert_eq!(held.status.as_u16(), 200, "{}", held.text());
            let refused = service.json("SendMessage", &send, NONE);
            assert_eq!(refused.status.as_u16(), 503, "{}", refused.text());
            assert!(refused.text().contains("ServiceUnavailable"), "{}", refused.text());
            assert!(refused.text().contains("bad deploy"), "{}", refused.text());
        }
        assert_eq!(client.put(&hold, Some(&json!({"reason": "bad deploy"}))).unwrap().status.as_u16(), 200);
        // The id of the refused sends is free.
        service.done("SendMessage", &send);
        let receive = json!({"QueueUrl": url, "MaxNumberOfMessages": 10});
        assert_eq!(service.done("ReceiveMessage", &receive).get("Messages"), None);
        assert_eq!(client.delete(&hold).unwrap().status.as_u16(), 204);
        let received = service.done("ReceiveMessage", &receive);
        assert_eq!(received["Messages"].as_array().map(Vec::len), Some(1), "{received}");
    }
}

#[test]
fn sends_to_held_group_fail_alone() {
    let service = Service::start();
    let client = service.client();
    let url = service.server.url("/000000000000/f.fifo");
    let entry = |id: &str, group: &str| json!({"Id": id, "MessageBody": id, "MessageGroupId": group, "MessageDeduplicationId": id});
    service.done("SendMessageBatch", &json!({"QueueUrl": url, "Entries": [entry("first", "free")]}));
    let hold = "/v2/queues/f.fifo/groups/g/hold";
    for effect in ["post", "discard"] {
        let terms = json!({"claim": false, "reason": "bad deploy", effect: true});
        assert_eq!(client.put(hold, Some(&terms)).unwrap().status.as_u16(), 200);
        let entries = [entry(effect, "free"), entry("held", "g")];
        let sent = service.done("SendMessageBatch", &json!({"QueueUrl": url, "Entries": entries}));
        assert_eq!(
            (sent["Successful"].as_array().map(Vec::len), &sent["Successful"][0]["Id"]),
            (Some(1), &json!(effect))
        );
        let failed = &sent["Failed"][0];
        assert_eq!((&failed["Id"], &failed["SenderFault"]), (&json!("held"), &json!(false)), "{sent}");
        assert!(failed["Message"].as_str().unwrap().contains("bad deploy"), "{sent}");
    }
    assert_eq!(client.delete(hold).unwrap().status.as_u16(), 204);
    // The id of the refused entries is free.
    let sent = service.done("SendMessageBatch", &json!({"QueueUrl": url, "Entries": [entry("held", "g")]}));
    assert_eq!(sent["Successful"].as_array().map(Vec::len), Some(1), "{sent}");
}

#[test]
fn held_pool_and_project_refuse_sends_and_give_no_message() {
    let service = Service::start();
    let client = service.client();
    let url = service.server.url("/000000000000/q");
    let send = json!({"QueueUrl": url, "MessageBody": "x"});
    let receive = json!({"QueueUrl": url, "MaxNumberOfMessages": 10});
    service.done("SendMessage", &send);
    for hold in ["/v2/pools/default/hold", "/v2/projects/000000000000/hold"] {
        let terms = json!({"reason": "bad deploy", "post": true});
        assert_eq!(client.put(hold, Some(&terms)).unwrap().status.as_u16(), 200);
        assert_eq!(service.done("ReceiveMessage", &receive).get("Messages"), None);
        let refused = service.json("SendMessage", &send, NONE);
        assert_eq!(refused.status.as_u16(), 503, "{}", refused.text());
        assert!(refused.text().contains("bad deploy"), "{}", refused.text());
        assert_eq!(client.delete(hold).unwrap().status.as_u16(), 204);
    }
    assert!(service.done("ReceiveMessage", &receive)["Messages"].is_array());
}

/// The time, effect and messages of a request of a client under load.
struct Load {
    start: Instant,
    end: Instant,
    is_discarded: bool,
    messages: Vec<u64>,
}

/// Posts numbers from `first` on, two in a request, until `is_over`.
fn post_until(service: &Service, first: u64, is_over: &AtomicBool) -> Vec<Load> {
    let client = service.client();
    let numbers = (first..).step_by(2).take_while(|_| !is_over.load(Ordering::SeqCst));
    let post = |number| {
        let (start, messages) = (Instant::now(), vec![number, number + 1]);
        let answer = client.post_messages("q", &[json!(number), json!(number + 1)]).unwrap();
        let is_discarded = answer.status == StatusCode::ACCEPTED;
        if is_discarded {
            assert_eq!(answer.headers["x-discarded"], "load test");
            assert_eq!(answer.json(), json!({"resources": []}));
        } else {
            assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text());
        }
        Load { start, end: Instant::now(), is_discarded, messages }
    };
    numbers.map(post).collect()
}

/// Sends numbers from `first` on through SQS until `is_over`. A refused send counts as discarded.
fn send_until(service: &Service, first: u64, is_over: &AtomicBool) -> Vec<Load> {
    let url = service.server.url("/000000000000/q");
    let numbers = (first..).take_while(|_| !is_over.load(Ordering::SeqCst));
    let send = |number: u64| {
        let start = Instant::now();
        let send = json!({"QueueUrl": url, "MessageBody": number.to_string()});
        let answer = service.json("SendMessage", &send, NONE);
        let is_discarded = answer.status == StatusCode::SERVICE_UNAVAILABLE;
        assert!(is_discarded || answer.status == StatusCode::OK, "{}", answer.text());
        assert!(!is_discarded || answer.text().contains("load test"), "{}", answer.text());
        Load { start, end: Instant::now(), is_discarded, messages: vec![number] }
    };
    numbers.map(send).collect()
}

/// Returns the numbers of all messages of the queue.
fn stored(service: &Service) -> Vec<u64> {
    let client = service.client();
    let mut numbers = Vec::new();
    while let Some(claim) = client.claim("q", 20, 600).unwrap().granted() {
        // A body that was sent through SQS is a string.
        let number = |body: &Value| body.as_u64().or_else(|| body.as_str()?.parse().ok());
        numbers.extend(claim.messages.iter().map(|message| number(&message.body).unwrap()));
    }
    numbers.sort_unstable();
    numbers
}

#[test]
fn hold_discards_under_load_exactly_its_requests() {
    const HOLD: &str = "/v2/queues/q/hold";
    let service = Service::start();
    let client = service.client();
    let is_over = AtomicBool::new(false);
    let mut holds: Vec<(Instant, Instant)> = Vec::new();
    let (posts, sends) = thread::scope(|scope| {
        let stopper = Stopper(&is_over);
        let posts = [0, 1_000_000].map(|first| {
            scope.spawn({
                let (service, is_over) = (&service, &is_over);
                move || post_until(service, first, is_over)
            })
        });
        let sends = scope.spawn(|| send_until(&service, 2_000_000, &is_over));
        for _ in 0..10 {
            thread::sleep(Duration::from_millis(50));
            let terms = json!({"claim": false, "discard": true, "reason": "load test"});
            assert_eq!(client.put(HOLD, Some(&terms)).unwrap().status, StatusCode::OK);
            let held = Instant::now();
            thread::sleep(Duration::from_millis(50));
            holds.push((held, Instant::now()));
            assert_eq!(client.delete(HOLD).unwrap().status, StatusCode::NO_CONTENT);
        }
        drop(stopper);
        (
            posts.map(|posts| posts.join().unwrap()).into_iter().flatten().collect::<Vec<_>>(),
            sends.join().unwrap(),
        )
    });
    let discarded: usize =
        posts.iter().filter(|load| load.is_discarded).map(|load| load.messages.len()).sum();
    let count = format!("angarium_messages_discarded_total {discarded}");
    wait_until("all are counted", || {
        client.get("/metrics").unwrap().text().lines().any(|line| line == count)
    });
    for load in posts.iter().chain(&sends) {
        let is_held = holds.iter().any(|(start, end)| load.start > *start && load.end < *end);
        assert!(load.is_discarded || !is_held, "{:?} were stored during a hold", load.messages);
    }
    let is_varied = |loads: &[Load]| {
        loads.iter().any(|load| load.is_discarded) && loads.iter().any(|load| !load.is_discarded)
    };
    assert!(is_varied(&posts) && is_varied(&sends), "{discarded}");
    let acknowledged = posts.into_iter().chain(sends).filter(|load| !load.is_discarded);
    let mut acknowledged: Vec<u64> = acknowledged.flat_map(|load| load.messages).collect();
    acknowledged.sort_unstable();
    assert_eq!(stored(&service), acknowledged);
}
