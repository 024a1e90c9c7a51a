//! Access keys are replaced while replicas serve: the file has both for a while, and no request is refused.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;

use super::signing::{Signer, Transport};
use crate::support::cluster::{Cluster, REPLICAS};
use crate::support::pauses::{Pause, Stopper, max_hand_over};
use angarium_testbed::held::wait_until;

const ACCOUNT: &str = "111111111111";
const OLD: (&str, &str) = ("AKIDOLD", "the old secret");
const NEW: (&str, &str) = ("AKIDNEW", "the new secret");

fn write(file: &Path, keys: &[(&str, &str)]) {
    let entry = |(id, secret): &(&str, &str)| {
        format!("[[key]]\nid = '{id}'\nsecret = '{secret}'\nproject = '{ACCOUNT}'\n")
    };
    std::fs::write(file, keys.iter().map(entry).collect::<String>()).unwrap();
}

fn signer((id, secret): (&'static str, &'static str)) -> Signer {
    Signer::new(id, secret)
}

/// Sends to a queue with the key of the moment until told to stop. Returns the longest pause, and the refusals.
fn send_until(base: &str, queue: usize, is_new: &AtomicBool, stop: &AtomicBool) -> (Duration, Vec<String>) {
    let (mut pause, mut refusals) = (Pause::begin(), Vec::new());
    let message = json!({"QueueUrl": format!("{base}/{ACCOUNT}/q{queue}"), "MessageBody": "x"});
    while !stop.load(Ordering::Relaxed) {
        let key = if is_new.load(Ordering::Relaxed) { NEW } else { OLD };
        let sent = signer(key).send(base, Transport::Json, "SendMessage", &message);
        if sent.status == 200 {
            pause.succeed();
        } else {
            refusals.push(sent.text);
        }
        thread::sleep(Duration::from_millis(20));
    }
    (pause.longest(), refusals)
}

#[test]
fn signing_key_is_replaced_under_load() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("keys");
    write(&file, &[OLD]);
    let cluster = Cluster::start_with(|builder| builder.arg("--sqs-keys").arg(&file));
    let bases: Vec<String> = (0..REPLICAS).map(|replica| cluster.base_of(replica)).collect();
    let status =
        |base: &String, key| signer(key).send(base, Transport::Json, "ListQueues", &json!({})).status;
    let is_valid_everywhere = |key| bases.iter().all(|base| status(base, key) == 200);
    for queue in 0..REPLICAS {
        let queue = json!({"QueueName": format!("q{queue}")});
        assert_eq!(signer(OLD).send(&bases[0], Transport::Json, "CreateQueue", &queue).status, 200);
    }
    assert_eq!(status(&bases[0], NEW), 403);
    let (is_new, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let (is_new, stop) = (&is_new, &stop);
        // Each queue is used at each replica, so that most requests are forwarded.
        let pairs = bases.iter().flat_map(|base| (0..REPLICAS).map(move |queue| (base, queue)));
        let sending: Vec<_> =
            pairs.map(|(base, queue)| scope.spawn(move || send_until(base, queue, is_new, stop))).collect();
        let stopper = Stopper(stop);
        write(&file, &[NEW, OLD]);
        wait_until("the new key is valid", || is_valid_everywhere(NEW));
        assert!(is_valid_everywhere(OLD));
        is_new.store(true, Ordering::Relaxed);
        thread::sleep(Duration::from_secs(1));
        write(&file, &[NEW]);
        wait_until("the old key is refused", || bases.iter().all(|base| status(base, OLD) == 403));
        drop(stopper);
        for (pause, refusals) in sending.into_iter().map(|one| one.join().unwrap()) {
            eprintln!("rotation of a signing key: {pause:.2?} at most between two messages");
            assert_eq!(refusals, [""; 0]);
            assert!(pause <= max_hand_over(), "{pause:?}");
        }
    });
}
