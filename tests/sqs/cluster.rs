//! The same clients behind a load balancer, with three replicas and an ensemble of three servers: they cannot tell.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::wire::text;
use super::{OLD_BOTO3, run_at, run_rust_at};
use crate::support::cluster::Cluster;
use angarium_testbed::held::wait_until;
use angarium_testbed::settings::test_tools;

/// A client: the script, the variable that states where its tools are, and the folder of the tools.
type Client = (&'static str, Option<(&'static str, &'static str)>);

/// Those that run at the same time: each has queues of its own, in a region of its own.
const TURNS: [&[Client]; 3] = [
    &[("standard.py", None), ("fifo.py", None), ("consumer.mjs", Some(("SQS_JS", "sqs-js")))],
    &[("standard.py", Some(("PYTHONPATH", OLD_BOTO3))), ("fifo.py", Some(("PYTHONPATH", OLD_BOTO3)))],
    &[
        ("celery_work.py", Some(("PYTHONPATH", "celery"))),
        ("cli.py", Some(("SQS_CLI", "aws-cli"))),
        ("move_tasks.py", None),
    ],
];

#[test]
fn clients_cannot_tell_three_replicas_from_one() {
    let cluster = Cluster::start();
    let base = &cluster.balancer.base();
    let last_words = || cluster.last_lines();
    for (turn, clients) in (1..).zip(TURNS) {
        thread::scope(|scope| {
            for (number, &(script, tools)) in clients.iter().enumerate() {
                let change = move |command: &mut Command| {
                    command.env("AWS_DEFAULT_REGION", format!("us-turn{turn}-{number}"));
                    if let Some((variable, folder)) = tools {
                        command.env(variable, test_tools().join(folder));
                    }
                };
                scope.spawn(move || run_at(base, script, change, last_words));
            }
        });
    }
    run_rust_at(base, "us-rust-1", last_words);
}

/// What a service of several replicas carries to the frame keeps the words of the operation.
#[test]
fn error_has_the_same_words_in_a_cluster() {
    let cluster = Cluster::start();
    let errors = |replica: usize| -> Vec<String> {
        let delete = |queue: &str| {
            let client = cluster.client_of(replica).with_header("x-amz-target", "AmazonSQS.DeleteMessage");
            let members = json!({"QueueUrl": queue, "ReceiptHandle": "bad-handle"});
            text(&client.post("/", &members).unwrap())
        };
        (0..8).map(|number| delete(&format!("words-{number}"))).collect()
    };
    for number in 0..8 {
        let client = cluster.client_of(0).with_header("x-amz-target", "AmazonSQS.CreateQueue");
        client.post("/", &json!({"QueueName": format!("words-{number}")})).unwrap();
    }
    for error in errors(0).into_iter().chain(errors(1)) {
        assert!(error.contains("bad-handle"), "{error}");
    }
}

/// Told to stop while receives wait through it: their clients are answered that there is nothing.
#[test]
fn forwarded_receive_ends_when_its_replica_stops() {
    let mut cluster = Cluster::start();
    let queue = (0..128).map(|number| format!("far-{number}")).find(|queue| cluster.owner_of(queue) == 1);
    let queue = queue.expect("one of them is served by the other replica");
    let client = cluster.client_of(0);
    let created = client.clone().with_header("x-amz-target", "AmazonSQS.CreateQueue");
    created.post("/", &json!({"QueueName": queue})).unwrap();
    let receive = client.with_header("x-amz-target", "AmazonSQS.ReceiveMessage");
    let waiting = thread::spawn(move || {
        let began = Instant::now();
        let answer = receive.post("/", &json!({"QueueUrl": queue, "WaitTimeSeconds": 20})).unwrap();
        (answer, began.elapsed())
    });
    wait_until("it waits at the owner", || {
        let page = cluster.client_of(1).get("/metrics").unwrap().text();
        page.lines().any(|line| line == "angarium_waiting_claims 1")
    });
    cluster.leave(0);
    let (answer, lasted) = waiting.join().unwrap();
    assert!(lasted < Duration::from_secs(19), "it ends at the stop: {lasted:?}");
    assert_eq!(answer.status.as_u16(), 200, "{}", text(&answer));
}
