//! What large requests cost in memory that are just what they should be: a small multiple of their size.

use http::{HeaderMap, Method, StatusCode};
use serde_json::{Value, json};

use crate::support::server::{Server, ServerBuilder};
use angarium_testbed::held::wait_until;

const MIB: usize = 1 << 20;
/// Bytes of memory for each byte of a request, and what the store takes beside for its messages.
const MULTIPLE: usize = 8;
const BESIDE: usize = 12 * MIB;
const FORM: &str = "application/x-www-form-urlencoded";

/// The most memory that a server had in use since the last call of [`forget_peak`].
fn peak(server: &Server) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("Linux says it");
    line.trim().trim_end_matches(" kB").parse::<usize>().expect("it is a number") * 1024
}

fn forget_peak(server: &Server) {
    std::fs::write(format!("/proc/{}/clear_refs", server.pid()), "5").unwrap();
}

/// How often a cost is measured. What else a process does at that moment only adds to it, so the least counts.
const MEASURES: usize = 3;

/// Sends a request some times, and states what it costs at most.
fn cost(server: &Server, send: impl Fn() -> (StatusCode, HeaderMap, String)) -> usize {
    let send = || {
        let (status, _, said) = send();
        assert!(status.is_success(), "{status}: {}", said.get(..400).unwrap_or(&said));
    };
    // What the first ones leave in the store and in the windows is not theirs alone.
    (0..3).for_each(|_| send());
    let measure = |_| {
        let before = server.memory_at_rest();
        forget_peak(server);
        (0..3).for_each(|_| send());
        peak(server).saturating_sub(before)
    };
    (0..MEASURES).map(measure).min().unwrap()
}

fn assert_small(what: &str, cost: usize, bytes: usize) {
    eprintln!("{what}: {bytes} bytes cost {cost}");
    assert!(bytes > 3 * MIB / 2, "{what} has {bytes} bytes");
    assert!(cost < MULTIPLE * bytes + BESIDE, "{what} of {bytes} bytes costs {cost}");
}

/// Two bytes of a message, which a form writes as six.
const LETTER: &str = "é";

fn start(settings: &[&str]) -> (Server, tempfile::TempDir) {
    let data = tempfile::tempdir().unwrap();
    let builder = ServerBuilder::new(data.path());
    (settings.iter().fold(builder, |builder, setting| builder.arg(*setting)).start(), data)
}

fn send_form(server: &Server, form: &str) -> (StatusCode, HeaderMap, String) {
    let answer = server.client().send_as(Method::POST, "/", FORM, form.as_bytes()).unwrap();
    let text = answer.text();
    (answer.status, answer.headers, text)
}

fn encoded(pairs: &[(String, String)]) -> String {
    let mut form = form_urlencoded::Serializer::new(String::new());
    form.extend_pairs(pairs);
    form.finish()
}

/// A batch in the query protocol: so many entries with bodies of so many letters, and attributes of so many.
fn batch(server: &Server, entries: usize, letters: usize, attributes: (usize, usize)) -> String {
    let mut pairs = vec![
        ("Action".to_owned(), "SendMessageBatch".to_owned()),
        ("QueueUrl".to_owned(), format!("{}/000000000000/q", server.base())),
    ];
    for entry in 1..=entries {
        let of = |name: &str| format!("SendMessageBatchRequestEntry.{entry}.{name}");
        pairs.push((of("Id"), entry.to_string()));
        pairs.push((of("MessageBody"), LETTER.repeat(letters)));
        for attribute in 1..=attributes.0 {
            let of = |name: &str| of(&format!("MessageAttribute.{attribute}.{name}"));
            pairs.push((of("Name"), format!("a{attribute}")));
            pairs.push((of("Value.DataType"), "String".to_owned()));
            pairs.push((of("Value.StringValue"), LETTER.repeat(attributes.1)));
        }
    }
    encoded(&pairs)
}

#[test]
fn large_valid_form_costs_a_small_multiple() {
    let (server, _data) = start(&["--sqs-batch=500"]);
    let made = send_form(&server, "Action=CreateQueue&QueueName=q");
    assert_eq!(made.0, StatusCode::OK, "{}", made.2);
    let long = batch(&server, 10, 50_000, (0, 0));
    assert_small("a form of long bodies", cost(&server, || send_form(&server, &long)), long.len());
    let many = batch(&server, 500, 20, (10, 60));
    assert_small("a form of many attributes", cost(&server, || send_form(&server, &many)), many.len());
}

#[test]
fn large_valid_json_costs_a_small_multiple() {
    let (server, _data) = start(&["--max-messages-post-size=4194304"]);
    let made = send_form(&server, "Action=CreateQueue&QueueName=q");
    assert_eq!(made.0, StatusCode::OK, "{}", made.2);
    // Each letter as an escape of six.
    let escaped = |value: &Value| value.to_string().replace(LETTER, "\\u00e9");
    let entry = |number: usize| json!({"Id": number.to_string(), "MessageBody": LETTER.repeat(50_000)});
    let entries: Vec<Value> = (0..10).map(entry).collect();
    let url = format!("{}/000000000000/q", server.base());
    let sqs = escaped(&json!({"QueueUrl": url, "Entries": entries}));
    let client = server.client().with_header("X-Amz-Target", "AmazonSQS.SendMessageBatch");
    let send = |client: &crate::support::client::Client, path: &str, media: &str, text: &str| {
        let answer = client.send_as(Method::POST, path, media, text.as_bytes()).unwrap();
        let text = answer.text();
        (answer.status, answer.headers, text)
    };
    let sending = || send(&client, "/", "application/x-amz-json-1.0", &sqs);
    assert_small("a batch as JSON", cost(&server, sending), sqs.len());
    let messages: Vec<Value> = (0..500).map(|_| json!({"body": LETTER.repeat(1_000), "ttl": 60})).collect();
    let rest = escaped(&json!({"messages": messages}));
    let client = server.client();
    let sending = || send(&client, "/v2/queues/q/messages", "application/json", &rest);
    assert_small("a post", cost(&server, sending), rest.len());
    let messages: Vec<Value> = (0..24).map(|_| json!({"body": "x".repeat(262_142), "ttl": 60})).collect();
    let rest = json!({"messages": messages}).to_string();
    let sending = || send(&client, "/v2/queues/q/messages", "application/json", &rest);
    assert_small("a long post", cost(&server, sending), rest.len());
    wait_until("its bodies are done with", || {
        let page = server.client().get("/metrics").unwrap().text();
        page.contains("angarium_budget_bytes{budget=\"bodies\"} 0\n")
    });
}
