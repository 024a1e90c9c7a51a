//! The endpoint of SQS, met by the clients that programs use: the scripts of this folder against a real server.

mod admission;
mod cluster;
mod errors;
mod holds;
mod identity;
mod key_rotation;
mod regions;
mod signing;
mod topics;
mod wire;

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::support::server::{Server, ServerBuilder};
use angarium_testbed::settings;

const DENIED: &str = "com.amazon.coral.service#AccessDeniedException";

/// The client of the last years of the query protocol, in a folder beside today's.
const OLD_BOTO3: &str = "old-boto3";

/// Runs a script of this folder against servers at these addresses; `last_words` is what they say when it fails.
pub fn run_at(bases: &str, script: &str, change: impl FnOnce(&mut Command), last_words: impl Fn() -> String) {
    let python = settings::test_tools().join("bin/python");
    let program = if script.ends_with(".mjs") { "node".into() } else { python };
    let path = format!("{}/tests/sqs/{script}", env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new(&program);
    command.arg(&path).arg(bases);
    configure(&mut command);
    change(&mut command);
    succeed(&mut command, last_words);
}

/// What clients read of AWS from the environment, and nothing else.
fn configure(command: &mut Command) {
    for name in ["AWS_PROFILE", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_REGION"] {
        command.env_remove(name);
    }
    command
        .env("NO_PROXY", "*")
        .env("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
        .env("AWS_SECRET_ACCESS_KEY", "secret");
    command.env("AWS_DEFAULT_REGION", "us-east-1").env("AWS_EC2_METADATA_DISABLED", "true");
}

/// Runs the client in Rust, as [`run_at`] runs a script.
fn run_rust_at(base: &str, region: &str, last_words: impl Fn() -> String) {
    // Kept between runs, beside the other client in Rust; tests/run has built it.
    let package = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sqs/rust/Cargo.toml");
    let target = concat!(env!("CARGO_MANIFEST_DIR"), "/target/rust-clients");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["run", "--quiet", "--locked", "--manifest-path", package, "--target-dir", target]);
    cargo.arg("--").arg(base);
    configure(&mut cargo);
    succeed(cargo.env("AWS_DEFAULT_REGION", region), last_words);
}

/// Runs a command, and fails with all that it and the servers said if it fails.
fn succeed(command: &mut Command, last_words: impl Fn() -> String) {
    let ended = command.output().unwrap_or_else(|error| {
        panic!("{command:?}: {error}. Run the tests with tests/run: it installs the clients")
    });
    let said =
        format!("{}{}", String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success(), "{said}\n{}", last_words());
}

/// Runs a script of this folder against a fresh server.
fn run(script: &str, change: impl FnOnce(&mut Command)) {
    let data = tempfile::tempdir().expect("there is room for a temporary directory");
    let server = ServerBuilder::new(data.path()).start();
    run_against(&server, script, change);
}

fn run_against(server: &Server, script: &str, change: impl FnOnce(&mut Command)) {
    run_at(server.base(), script, change, || server.last_lines());
}

#[test]
fn boto3_works_with_standard_queues() {
    run("standard.py", |command| {
        command.env("AWS_RETRY_MODE", "standard");
    });
}

#[test]
fn boto3_of_the_query_protocol_works_with_standard_queues() {
    let old = settings::test_tools().join(OLD_BOTO3);
    assert!(old.is_dir(), "{} is missing: tests/prepare installs it", old.display());
    run("standard.py", |command| {
        command.env("PYTHONPATH", old).env("AWS_RETRY_MODE", "legacy");
    });
}

#[test]
fn boto3_works_with_queues_in_order() {
    run("fifo.py", |_| {});
}

#[test]
fn boto3_of_the_query_protocol_works_with_queues_in_order() {
    run("fifo.py", |command| {
        command.env("PYTHONPATH", settings::test_tools().join(OLD_BOTO3));
    });
}

#[test]
fn boto3_finds_the_details_of_aws() {
    run("details.py", |_| {});
}

#[test]
fn boto3_standard_retries_have_the_right_effect() {
    run("retries.py", |command| {
        command.arg("standard");
    });
}

#[test]
fn boto3_legacy_retries_have_the_right_effect() {
    run("retries.py", |command| {
        command.arg("legacy");
    });
}

#[test]
fn deadlines_are_met_and_dead_letters_arrive_with_the_answer() {
    run("timing.py", |_| {});
}

#[test]
fn boto3_sees_messages_live_by_the_period_of_their_queue() {
    run("retention.py", |_| {});
}

#[test]
fn boto3_has_messages_moved_back() {
    run("move_tasks.py", |_| {});
}

#[test]
fn boto3_of_the_query_protocol_has_messages_moved_back() {
    run("move_tasks.py", |command| {
        command.env("PYTHONPATH", settings::test_tools().join(OLD_BOTO3));
    });
}

#[test]
fn bounds_are_those_of_the_settings() {
    let data = tempfile::tempdir().expect("there is room for a temporary directory");
    let settings = ["--sqs-batch", "20", "--sqs-in-flight", "15", "--sqs-pauses"];
    let server = settings.iter().fold(ServerBuilder::new(data.path()), |server, one| server.arg(one)).start();
    run_against(&server, "bounds.py", |_| {});
}

#[test]
fn the_cli_of_aws_works() {
    run("cli.py", |command| {
        command.env("SQS_CLI", settings::test_tools().join("aws-cli"));
    });
}

#[test]
fn the_javascript_sdk_and_sqs_consumer_work() {
    run("consumer.mjs", |command| {
        command.env("SQS_JS", settings::test_tools().join("sqs-js"));
    });
}

#[test]
fn the_sdk_for_rust_works() {
    let data = tempfile::tempdir().expect("there is room for a temporary directory");
    let server = ServerBuilder::new(data.path()).start();
    run_rust_at(server.base(), "us-east-1", || server.last_lines());
}

#[test]
fn celery_task_of_killed_worker_is_done_by_the_next() {
    run("celery_work.py", |command| {
        command.env("PYTHONPATH", settings::test_tools().join("celery"));
    });
}

#[test]
fn requests_are_signed_and_queues_of_others_are_closed() {
    let data = tempfile::tempdir().expect("there is room for a temporary directory");
    let keys = keys_of_two(data.path());
    let server = ServerBuilder::new(&data.path().join("data")).arg("--sqs-keys").arg(keys).start();
    run_against(&server, "signed.py", |_| {});
}

/// The keys of two accounts, in a file of this directory.
pub fn keys_of_two(data: &Path) -> PathBuf {
    let keys = data.join("keys");
    let text = "[[key]]\nid = 'AKIDONE'\nsecret = 'secret one'\nproject = '111111111111'\n\
        [[key]]\nid = 'AKIDOTHER'\nsecret = 'secret/other'\nproject = '222222222222'\n";
    std::fs::write(&keys, text).expect("the directory is there");
    keys
}

#[test]
fn policies_allow_and_deny_by_all_their_elements() {
    let data = tempfile::tempdir().expect("there is room for a temporary directory");
    let server =
        ServerBuilder::new(&data.path().join("data")).arg("--sqs-keys").arg(keys_of_two(data.path()));
    let server = server.arg("--trusted-proxy").arg("127.0.0.1").start();
    run_against(&server, "policies.py", |_| {});
}

#[test]
fn tokens_without_keys_refuse_all_sqs_requests() {
    let data = tempfile::tempdir().expect("there is room for a temporary directory");
    let tokens = data.path().join("tokens");
    std::fs::write(&tokens, "").expect("the directory is there");
    let server = ServerBuilder::new(&data.path().join("data")).arg("--tokens").arg(&tokens).start();
    let answer = server.client().with_header("x-amz-target", "AmazonSQS.ListQueues").post("/", &json!({}));
    let answer = answer.expect("it answers");
    assert_eq!((answer.status.as_u16(), answer.json()["__type"].as_str()), (403, Some(DENIED)));
    let answer = server.client().get("/?Action=ListQueues").expect("it answers");
    assert_eq!(answer.status.as_u16(), 403);
    assert!(String::from_utf8_lossy(&answer.body).contains("<Code>AccessDenied</Code>"));
}

#[test]
fn rest_and_sqs_share_queues_and_rest_wins_its_paths() {
    let data = tempfile::tempdir().expect("there is room for a temporary directory");
    let server = ServerBuilder::new(data.path()).start();
    let (rest, sqs) =
        (server.client(), server.client().with_header("x-amz-target", "AmazonSQS.ReceiveMessage"));
    let posted = json!({"messages": [{"body": {"a": [1.50]}}, {"body": "text"}]});
    assert_eq!(rest.post("/v2/queues/q/messages", &posted).expect("it answers").status.as_u16(), 201);
    let asked = json!({"QueueUrl": "q", "MaxNumberOfMessages": 10});
    let answer = sqs.post("/any/deeper/path", &asked).expect("it answers");
    let bodies = answer.json()["Messages"].as_array().cloned().unwrap_or_default();
    let bodies: Vec<_> = bodies.iter().map(|message| message["Body"].clone()).collect();
    assert_eq!(bodies, [json!("{\"a\":[1.5]}"), json!("text")]);
    // A path of REST is one, whatever the header states; and `GET /` without an action is the versions.
    assert_eq!(sqs.post("/v2/queues/q/messages", &posted).expect("it answers").status.as_u16(), 201);
    assert!(rest.get("/").expect("it answers").json()["versions"].is_array());
    // What changes something is not done by a GET that any page could have a browser send.
    let rest = rest.with_header("authorization", "AWS4-HMAC-SHA256 Credential=x");
    for (path, code) in [
        ("/000000000000/q?Action=ListQueues", "InvalidAction"),
        ("/?Action=Nothing", "InvalidAction"),
        ("/000000000000/q?Action=SendMessage", "MissingParameter"),
    ] {
        let answer = rest.get(path).expect("it answers");
        let said = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(said.contains(&format!("<Code>{code}</Code>")), "{path}: {said}");
    }
    let answer = rest.get("/000000000000/q?Action=SendMessage&MessageBody=hello").expect("it answers");
    assert_eq!(answer.status.as_u16(), 200);
    let accepting = rest.with_header("accept", "application/json");
    let answer = accepting.get("/000000000000/q?Action=GetQueueUrl&QueueName=q").expect("it answers").json();
    assert!(answer["GetQueueUrlResponse"]["GetQueueUrlResult"]["QueueUrl"].is_string(), "{answer}");
}
