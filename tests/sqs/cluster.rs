//! The same clients behind a load balancer, with three replicas and an ensemble of three servers: they cannot tell.

use std::process::Command;
use std::thread;

use super::{OLD_BOTO3, run_at, run_rust_at};
use crate::support::cluster::Cluster;
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
