//! A disk that does not answer: syncs begin and do not end, for a while. No process waits for ever, nothing is said
//! that is not known, and the service returns by itself.

use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use http::StatusCode;
use serde_json::json;

use super::powercut::PowerCut;
use crate::support::client::{Answer, Client, Reply};
use crate::support::server::Server;
use angarium_testbed::held::wait_until;

const QUEUE: &str = "letters";
/// How soon after the deadline of a commit each waiter is answered.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Sends a request on a connection of its own, without waiting for the answer.
fn ask(server: &Server, request: impl FnOnce(&Client) -> Reply + Send + 'static) -> Receiver<Reply> {
    let (client, (answered, answer)) = (server.client(), channel());
    thread::spawn(move || drop(answered.send(request(&client))));
    answer
}

fn post(client: &Client, body: &str) -> Answer {
    client.post_messages(QUEUE, &[json!(body)]).expect("the server is up")
}

/// The code of an error, and whether it states that nothing was written.
fn error_summary(answer: &Answer) -> (StatusCode, String, bool) {
    let body = answer.json();
    let code = body["code"].as_str().unwrap_or_default().to_owned();
    (answer.status, code, body["nothing_written"] == true)
}

/// Whether the service states that it is ready.
fn is_ready(client: &Client) -> bool {
    client.get("/readyz").expect("the server is up").status == StatusCode::OK
}

/// All bodies of the queue.
fn bodies(client: &Client) -> Vec<String> {
    let listed = client.get(&format!("/v2/queues/{QUEUE}/messages?limit=20&echo=true")).expect("it is up");
    let listed = listed.json()["messages"].as_array().cloned().unwrap_or_default();
    listed.iter().map(|message| message["body"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn stalled_commit_is_answered_and_service_recovers() {
    let cut = PowerCut::new();
    let server = cut.server().arg("--commit-timeout=1s").start();
    let client = server.client();
    assert_eq!(client.create_queue(QUEUE).expect("it is up").status, StatusCode::CREATED);
    assert_eq!(post(&client, "acknowledged").status, StatusCode::CREATED);
    assert!(is_ready(&client));

    cut.close_gate();
    let began = Instant::now();
    // The first is in the sync, the others wait behind it.
    let first = ask(&server, |client| Ok(post(client, "first")));
    wait_until("a sync waits", || cut.held_syncs() > 0);
    thread::sleep(Duration::from_millis(100));
    let others: Vec<_> =
        (0..5).map(|number| ask(&server, move |c| Ok(post(c, &format!("other {number}"))))).collect();
    let claim = ask(&server, |client| client.claim(QUEUE, 1, 60));
    let unknown = (StatusCode::SERVICE_UNAVAILABLE, "unknown_outcome".to_owned(), false);
    let first = first.recv_timeout(MAX_WAIT).expect("the first is answered").expect("the server is up");
    assert_eq!(error_summary(&first), unknown);
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
    let mut refused = Vec::new();
    for (number, other) in others.into_iter().enumerate() {
        let other = other.recv_timeout(MAX_WAIT).expect("each is answered").expect("the server is up");
        let (status, code, nothing_written) = error_summary(&other);
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{}", other.text());
        assert_eq!(code == "unknown_outcome", !nothing_written, "{}", other.text());
        refused.extend(nothing_written.then(|| format!("other {number}")));
    }
    let claim = claim.recv_timeout(MAX_WAIT).expect("the claim is answered").expect("the server is up");
    assert_eq!(claim.status, StatusCode::SERVICE_UNAVAILABLE, "{}", claim.text());

    wait_until("it is not ready", || !is_ready(&client));
    assert_eq!(client.get("/livez").expect("the server is up").status, StatusCode::OK);
    let began = Instant::now();
    let (status, _, nothing_written) = error_summary(&post(&client, "while it stands"));
    assert_eq!((status, nothing_written), (StatusCode::SERVICE_UNAVAILABLE, true));
    assert!(began.elapsed() < MAX_WAIT, "{:?}", began.elapsed());
    refused.push("while it stands".to_owned());

    cut.open_gate();
    wait_until("it is ready again", || is_ready(&client));
    wait_until("it takes messages again", || post(&client, "after").status == StatusCode::CREATED);
    let kept = bodies(&client);
    assert!(kept.contains(&"acknowledged".to_owned()) && kept.contains(&"after".to_owned()), "{kept:?}");
    for body in &refused {
        assert!(!kept.contains(body), "{body} was refused as not written: {kept:?}");
    }
    // What was unknown is there once or not at all, and so it is after a crash.
    assert!(kept.iter().filter(|body| *body == "first").count() <= 1, "{kept:?}");
    server.kill9();
    let again = cut.server().start();
    let mut after = bodies(&again.client());
    let mut before = kept;
    after.sort();
    before.sort();
    assert_eq!(after, before);
}

#[test]
fn request_at_stalled_disk_ends_by_its_deadline() {
    let cut = PowerCut::new();
    // The commit itself may take for ever.
    let server = cut.server().arg("--commit-timeout=1h").start();
    let client = server.client();
    assert_eq!(client.create_queue(QUEUE).expect("it is up").status, StatusCode::CREATED);
    cut.close_gate();
    let began = Instant::now();
    let sqs = |client: &Client| {
        let sqs = client.clone().with_header("x-amz-target", "AmazonSQS.SendMessage");
        sqs.post("/", &json!({"QueueUrl": QUEUE, "MessageBody": "b"}))
    };
    let (rest, sqs) = (ask(&server, |client| Ok(post(client, "a"))), ask(&server, sqs));
    let wait = Duration::from_secs(45) + MAX_WAIT;
    let rest = rest.recv_timeout(wait).expect("the post is answered").expect("the server is up");
    let took = began.elapsed();
    assert!((Duration::from_secs(44)..wait).contains(&took), "{took:?}");
    assert_eq!(error_summary(&rest), (StatusCode::SERVICE_UNAVAILABLE, "unknown_outcome".to_owned(), false));
    let sqs = sqs.recv_timeout(MAX_WAIT).expect("the send is answered").expect("the server is up");
    assert_eq!(sqs.status, StatusCode::INTERNAL_SERVER_ERROR, "{}", sqs.text());
    cut.open_gate();
    wait_until("it takes messages again", || post(&client, "c").status == StatusCode::CREATED);
    assert!(bodies(&client).contains(&"c".to_owned()));
}

#[test]
fn pool_change_behind_stalled_one_is_refused() {
    let cut = PowerCut::new();
    // The commit itself may take for ever.
    let server = cut.server().arg("--commit-timeout=1h").start();
    cut.close_gate();
    let pool = |name: &str| {
        let (path, body) =
            (format!("/v2/pools/{name}"), json!({"uri": format!("embedded:{name}"), "weight": 0}));
        move |client: &Client| client.put(&path, Some(&body))
    };
    let first = ask(&server, pool("first"));
    wait_until("the first is at the disk", || cut.held_syncs() > 0);
    thread::sleep(Duration::from_secs(1));
    let second = ask(&server, pool("second"));
    // It waits ten seconds for its turn.
    let second = second.recv_timeout(Duration::from_secs(10) + MAX_WAIT).expect("the second is answered");
    let second = second.expect("the server is up");
    assert_eq!(error_summary(&second), (StatusCode::SERVICE_UNAVAILABLE, "unavailable".to_owned(), true));
    cut.open_gate();
    let first = first.recv_timeout(MAX_WAIT).expect("the first is answered").expect("the server is up");
    assert_eq!(first.status, StatusCode::CREATED, "{}", first.text());
    assert_eq!(server.client().get("/v2/pools/second").expect("it is up").status, StatusCode::NOT_FOUND);
}

#[test]
fn stop_on_stalled_disk_ends_process() {
    let cut = PowerCut::new();
    let server = cut.server().arg("--commit-timeout=1s").start();
    assert_eq!(post(&server.client(), "acknowledged").status, StatusCode::CREATED);
    cut.close_gate();
    let stalled = ask(&server, |client| Ok(post(client, "stalled")));
    stalled.recv_timeout(MAX_WAIT).expect("it is answered").expect("the server is up");
    // The disk never answers: after thirty seconds the process ends without it.
    let ended = server.terminate_within(Duration::from_secs(60));
    assert_eq!(ended.code(), Some(1));
    cut.open_gate();
    let again = cut.server().start();
    assert!(bodies(&again.client()).contains(&"acknowledged".to_owned()));
}
