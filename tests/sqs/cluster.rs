//! The same clients behind a load balancer, with three replicas and an ensemble of three servers: they cannot tell.

use std::process::Command;
use std::thread;

use super::{OLD_BOTO3, run_at};
use crate::support::cluster::Cluster;
use crate::support::settings::test_tools;

#[test]
fn clients_behind_a_load_balancer_cannot_tell_three_replicas_from_one_service() {
    let cluster = Cluster::start();
    let base = &cluster.balancer.base();
    let last_words = || cluster.last_lines();
    // It lists all queues there are.
    run_at(base, "standard.py", |_| {}, last_words);
    let others = [
        ("fifo.py", "PYTHONPATH", OLD_BOTO3),
        ("consumer.mjs", "SQS_JS", "sqs-js"),
        ("celery_work.py", "PYTHONPATH", "celery"),
    ];
    thread::scope(|scope| {
        for (script, variable, tools) in others {
            let change = move |command: &mut Command| {
                command.env(variable, test_tools().join(tools));
            };
            scope.spawn(move || run_at(base, script, change, last_words));
        }
    });
}
