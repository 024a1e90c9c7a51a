//! The key of receipts is replaced while replicas serve: no receipt is refused at any of them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use angarium_core::limits::RECEIPT_KEY_LEAD_SECONDS;
use angarium_core::receipt::ReceiptKey;
use angarium_core::time::Timestamp;
use http::StatusCode;
use serde_json::{Value, json};
use zookeeper_client::Client as Raw;

use super::Cluster;
use crate::support::client::Client;
use crate::support::pauses::{Pause, Stopper, max_hand_over};

/// Sends a request to SQS, and returns the answer of success.
fn sqs(client: &Client, operation: &str, queue: &str, mut body: Value) -> Value {
    body["QueueUrl"] = json!(format!("http://h/000000000000/{queue}"));
    let client = client.clone().with_header("x-amz-target", &format!("AmazonSQS.{operation}"));
    let answer = client.post("/", &body).unwrap();
    assert_eq!(answer.status, StatusCode::OK, "{operation}: {}", answer.text());
    if answer.body.is_empty() { Value::Null } else { answer.json() }
}

/// Sends and receives a message, and returns its receipt.
fn receive(client: &Client, queue: &str) -> String {
    sqs(client, "SendMessage", queue, json!({"MessageBody": "1"}));
    let received = sqs(client, "ReceiveMessage", queue, json!({"WaitTimeSeconds": 5}));
    received["Messages"][0]["ReceiptHandle"].as_str().expect("a message").to_owned()
}

/// The newest key, as it is in the tree.
fn newest_key(address: &str) -> [u8; 32] {
    let rest = address.strip_prefix("zookeeper://").unwrap();
    let (servers, root) = rest.split_at(rest.find('/').unwrap());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (data, _) = runtime.block_on(async {
        let client = Raw::connector().connect(servers).await.unwrap();
        client.get_data(&format!("{root}/meta/receipts")).await.unwrap()
    });
    let record: Value = serde_json::from_slice(&data).unwrap();
    serde_json::from_value(record["key"].clone()).unwrap()
}

fn is_known(key: &[u8; 32], handle: &str) -> bool {
    ReceiptKey::new(*key).open(handle, Timestamp::from_millis(0)).is_some()
}

#[test]
fn receipt_key_is_replaced_under_load() {
    let cluster = Cluster::start(2);
    let clients = [cluster.client(0), cluster.client(1)];
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let (clients, stop) = (&clients, &stop);
        let queues = (0..4).map(|number| format!("q{number}"));
        let running: Vec<_> = queues
            .map(|queue| {
                sqs(&clients[0], "CreateQueue", &queue, json!({"QueueName": queue}));
                let kept = receive(&clients[0], &queue);
                scope.spawn(move || {
                    let mut turns = clients.iter().cycle();
                    let (mut handle, mut pause, mut is_over) = (String::new(), Pause::begin(), false);
                    // Once more after the end: on a busy machine the cycle before may have begun long ago.
                    while !is_over {
                        is_over = stop.load(Ordering::Relaxed);
                        handle = receive(turns.next().unwrap(), &queue);
                        let delete = json!({"ReceiptHandle": handle});
                        sqs(turns.next().unwrap(), "DeleteMessage", &queue, delete);
                        pause.succeed();
                        turns.next();
                        thread::sleep(Duration::from_millis(20));
                    }
                    sqs(&clients[1], "DeleteMessage", &queue, json!({"ReceiptHandle": kept}));
                    (kept, handle, pause.longest())
                })
            })
            .collect();
        let stopper = Stopper(stop);
        let rotate = |client: &Client| client.post("/v2/receipts/rotate", &json!({})).unwrap();
        let rotated = rotate(&clients[1]);
        assert_eq!(rotated.status, StatusCode::OK, "{}", rotated.text());
        assert_eq!(rotate(&clients[0]).status, StatusCode::CONFLICT);
        thread::sleep(Duration::from_secs(u64::from(RECEIPT_KEY_LEAD_SECONDS) + 5));
        drop(stopper);
        let key = newest_key(&cluster.address);
        for running in running {
            let (kept, last, pause) = running.join().unwrap();
            eprintln!("rotation of the key of receipts: {pause:.2?} at most between two deletions");
            assert!(pause <= max_hand_over(), "{pause:?}");
            assert!(is_known(&key, &last) && !is_known(&key, &kept));
        }
    });
}
