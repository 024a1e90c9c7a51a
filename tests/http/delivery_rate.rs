//! The option `rate` of webhooks: a sink counts.

use std::thread;
use std::time::{Duration, Instant};

use http::StatusCode;
use serde_json::json;

use super::subscriptions::total;
use super::webhooks::{hook, post, start};
use crate::support::sink::Sink;
use angarium_testbed::held::wait_until;

const SECOND: Duration = Duration::from_secs(1);
/// At the first rate they take 15 seconds, of which a busy machine may need some at the second one.
const MESSAGES: usize = 300;

/// Longer than a webhook with this rate waits for the next requests.
const PAUSE: Duration = Duration::from_millis(750);

/// The greatest number of requests within a second. The sink may read some late, so a part of them counts as of another
/// second. After a pause of the machine it reads at once all that was sent meanwhile: that second tells nothing.
fn most_in_a_second(sink: &Sink) -> usize {
    let times: Vec<Instant> = sink.received.lock().iter().map(|received| received.at).collect();
    let pauses = times.windows(2).filter(|pair| pair[1] - pair[0] > PAUSE);
    let ends: Vec<Instant> = pauses.map(|pair| pair[1]).collect();
    let is_late = |at: &Instant| ends.iter().any(|end| *at >= *end && *at < *end + SECOND);
    let times: Vec<Instant> = times.into_iter().filter(|at| !is_late(at)).collect();
    let within = |first: &Instant| times.iter().filter(|at| **at >= *first && **at < *first + SECOND).count();
    times.iter().map(within).max().unwrap_or_default()
}

#[test]
fn webhook_with_rate_gets_no_more_in_a_second() {
    let service = start();
    let client = &service.client;
    let sink = Sink::start(&[]);
    let path = hook(client, &sink, json!({"options": {"rate": 20, "max_in_flight": 50}}));
    assert_eq!(client.get(&path).unwrap().json()["options"]["rate"], 20);
    for number in 0..MESSAGES {
        post(client, json!(number));
    }
    wait_until("some of the deliveries", || sink.count() >= 30);
    // A busy machine delays some requests to the next ones.
    assert!(most_in_a_second(&sink) <= 24, "{}", most_in_a_second(&sink));
    let changed = client.patch(&path, &json!({"options": {"rate": 10_000, "max_in_flight": 50}})).unwrap();
    assert_eq!(changed.status, StatusCode::NO_CONTENT, "{}", changed.text());
    let begin = Instant::now();
    wait_until("the rest", || total(client, &path) == 0);
    assert!(begin.elapsed() < Duration::from_secs(8), "{:?}", begin.elapsed());
    assert_eq!(sink.count(), MESSAGES);
}

#[test]
fn slow_webhook_delays_no_other_one() {
    let service = start();
    let client = &service.client;
    let (slow, fast) = (Sink::start(&[]), Sink::start(&[]));
    // More than the permits of an account, if each kept one.
    for number in 0..8 {
        let mut body = json!({"options": {"rate": 1, "max_in_flight": 100}});
        body["subscriber"] = json!(format!("http://{}/{number}", slow.address));
        let created = client.post("/v2/queues/q/subscriptions", &body).unwrap();
        assert_eq!(created.status, StatusCode::CREATED, "{}", created.text());
    }
    let path = hook(client, &fast, json!({}));
    for number in 0..40 {
        post(client, json!(number));
    }
    wait_until("the other deliveries", || total(client, &path) == 0);
    thread::sleep(SECOND);
    assert_eq!(fast.count(), 40);
    assert!(slow.count() < 8 * 20, "{}", slow.count());
}

#[test]
fn rate_of_consumers_is_refused() {
    let service = start();
    for (subscriber, rate) in
        [("pull:a", json!(5)), ("queue:other", json!(0)), ("https://a.example/", json!("fast"))]
    {
        let body = json!({"subscriber": subscriber, "options": {"rate": rate}});
        let refused = service.client.post("/v2/queues/q/subscriptions", &body).unwrap();
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{}", refused.text());
        assert!(refused.text().contains("options.rate"), "{}", refused.text());
    }
}
