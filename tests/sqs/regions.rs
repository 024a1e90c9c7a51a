//! The client chooses the region of its requests: what that must not give it.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use super::signing::{Signer, TRANSPORTS, Transport};
use crate::support::client::Client;
use crate::support::server::ServerBuilder;
use angarium_testbed::held::wait_until;

const NO_QUEUE: &str = "AWS.SimpleQueueService.NonExistentQueue";

fn alice(region: &str) -> Signer {
    Signer { region: region.to_owned(), ..Signer::new("AKIDALICE", "the secret of alice") }
}

/// A server with a key of `alice`, and with tokens of these projects.
fn guarded(data: &Path, projects: &[&str]) -> (ServerBuilder, Vec<String>) {
    let (keys, tokens) = (data.join("keys"), data.join("tokens"));
    let key = "[[key]]\nid = 'AKIDALICE'\nsecret = 'the secret of alice'\nproject = 'alice'\n";
    std::fs::write(&keys, key).unwrap();
    std::fs::write(&tokens, "").unwrap();
    let token = |project: &&str| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_angarium"));
        let made = program.args(["token", "new", "--project", project, "--role", "member", "--tokens"]);
        String::from_utf8(made.arg(&tokens).output().unwrap().stdout).unwrap().trim().to_owned()
    };
    let shown = projects.iter().map(token).collect();
    let builder =
        ServerBuilder::new(&data.join("data")).arg("--sqs-keys").arg(keys).arg("--tokens").arg(tokens);
    (builder, shown)
}

#[test]
fn rest_project_of_a_region_is_refused_beside_keys() {
    let data = tempfile::tempdir().unwrap();
    let (builder, tokens) = guarded(data.path(), &["alice@corp", "alice", "bob@example.com"]);
    let server = builder.start();
    let url = server.url("/alice/secrets");
    let region = alice("corp");
    let made = region.send(server.base(), Transport::Json, "CreateQueue", &json!({"QueueName": "secrets"}));
    assert_eq!(made.status, 200, "{}", made.text);
    for (token, status) in [(&tokens[0], 403), (&tokens[1], 200), (&tokens[2], 403)] {
        let client = server.client().with_header("X-Auth-Token", token);
        let answer = client.get("/v2/queues").unwrap();
        assert_eq!(answer.status.as_u16(), status);
        if status == 403 {
            assert_eq!(answer.json()["code"], "regional_project");
            assert!(String::from_utf8_lossy(&answer.body).contains("--sqs-regions"));
        }
    }
    drop(server);
    let server = builder.start();
    wait_until("the start lists the projects", || {
        let said = server.last_lines();
        said.contains("alice@corp")
            && said.contains("bob@example.com")
            && said.contains("queues of regional projects found")
    });
    drop(server);
    // With only its own region there is no other name of the project.
    let server = builder.arg("--sqs-regions=us-east-1").start();
    let client = server.client().with_header("X-Auth-Token", &tokens[0]);
    assert_eq!(client.get("/v2/queues/secrets").unwrap().status.as_u16(), 200);
    let refused =
        region.send(server.base(), Transport::Json, "GetQueueUrl", &json!({"QueueName": "secrets"}));
    assert_eq!((refused.status, refused.text.contains("--sqs-regions")), (403, true), "{}", refused.text);
    let named = json!({"QueueUrl": url.replace("/alice/", "/alice%40corp/"), "AttributeNames": ["All"]});
    let refused = alice("us-east-1").send(server.base(), Transport::Json, "GetQueueAttributes", &named);
    assert_eq!(refused.status, 403, "{}", refused.text);
}

#[test]
fn regional_project_of_a_proxy_is_refused_beside_keys() {
    let data = tempfile::tempdir().unwrap();
    let keys = data.path().join("keys");
    let key = "[[key]]\nid = 'AKIDALICE'\nsecret = 'the secret of alice'\nproject = 'alice'\n";
    std::fs::write(&keys, key).unwrap();
    let builder = ServerBuilder::new(&data.path().join("data")).arg("--sqs-keys").arg(keys);
    let server = builder.start();
    let list = |client: Client| client.get("/v2/queues").unwrap();
    let named = |project: &str| server.client().with_header("X-Project-Id", project);
    let refused = list(named("alice@corp"));
    assert_eq!((refused.status.as_u16(), &refused.json()["code"]), (403, &json!("regional_project")));
    assert_eq!(list(named("alice")).status.as_u16(), 200);
    // A probe is about no project.
    assert_eq!(named("alice@corp").get("/livez").unwrap().status.as_u16(), 200);
    drop(server);
    // With only its own region there is no other name of the project.
    let server = builder.arg("--sqs-regions=us-east-1").start();
    let served = list(server.client().with_header("X-Project-Id", "alice@corp"));
    assert_eq!(served.status.as_u16(), 200, "{}", served.text());
}

#[test]
fn signature_of_one_region_reaches_no_queue_of_another() {
    let data = tempfile::tempdir().unwrap();
    // Only the number of an account makes a path the URL of a queue.
    let keys = super::keys_of_two(data.path());
    let server = ServerBuilder::new(&data.path().join("data")).arg("--sqs-keys").arg(keys).start();
    let one = |region: &str| Signer { region: region.to_owned(), ..Signer::new("AKIDONE", "secret one") };
    let send = |region: &str, transport, operation: &str, members: &serde_json::Value| {
        one(region).send(server.base(), transport, operation, members)
    };
    let create = json!({"QueueName": "q"});
    assert_eq!(send("eu-west-1", Transport::Json, "CreateQueue", &create).status, 200);
    let url = server.url("/queue/eu-west-1/111111111111/q");
    let found = send("eu-west-1", Transport::Json, "GetQueueUrl", &create);
    assert!(found.text.contains(&url), "{}", found.text);
    let message = json!({"QueueUrl": url, "MessageBody": "x"});
    // As AWS does: the endpoint of a region has no queues but its own. One of the same name there is not meant either.
    assert_eq!(send("us-east-1", Transport::Json, "CreateQueue", &create).status, 200);
    let batch = json!({"QueueUrl": url, "Entries": [{"Id": "a", "MessageBody": "x"}]});
    for transport in TRANSPORTS {
        let sent = send("eu-west-1", transport, "SendMessage", &message);
        assert_eq!(sent.status, 200, "{transport:?}: {}", sent.text);
        for (operation, members) in [
            ("SendMessage", &message),
            ("SendMessageBatch", &batch),
            ("ReceiveMessage", &json!({"QueueUrl": url})),
            ("PurgeQueue", &json!({"QueueUrl": url})),
            ("DeleteQueue", &json!({"QueueUrl": url})),
        ] {
            let refused = send("us-east-1", transport, operation, members);
            let (code, words) = match transport {
                Transport::Json => ("QueueDoesNotExist", "The specified queue does not exist."),
                _ => (NO_QUEUE, "The specified queue does not exist for this wsdl version."),
            };
            let told = [code, words, "names eu-west-1", "signed for us-east-1"];
            assert_eq!(refused.status, 400, "{transport:?} {operation}: {refused:?}");
            assert!(told.iter().all(|part| refused.text.contains(part)), "{transport:?}: {refused:?}");
        }
    }
    let names = json!({"QueueUrl": url, "AttributeNames": ["ApproximateNumberOfMessages"]});
    let count = send("eu-west-1", Transport::Json, "GetQueueAttributes", &names);
    assert!(count.text.contains(&format!(":\"{}\"", TRANSPORTS.len())), "{}", count.text);
}

#[test]
fn account_without_quota_is_counted_over_its_regions() {
    let data = tempfile::tempdir().unwrap();
    let (builder, tokens) = guarded(data.path(), &["alice"]);
    let server = builder.start();
    let create = json!({"QueueName": "q"});
    let message = json!({"QueueUrl": "q", "MessageBody": "x"});
    for region in ["us-east-1", "eu-west-1", "ap-east-1"] {
        for (operation, members) in [("CreateQueue", &create), ("SendMessage", &message)] {
            let done = alice(region).send(server.base(), Transport::Json, operation, members);
            assert_eq!(done.status, 200, "{}", done.text);
        }
    }
    let client = server.client().with_header("X-Auth-Token", &tokens[0]);
    let quota = client.get("/v2/quota").unwrap().json();
    assert_eq!((&quota["queues"]["used"], &quota["messages"]["used"]), (&json!(3), &json!(3)), "{quota}");
    assert!(quota["queues"].get("quota").is_none(), "{quota}");
}

#[test]
fn quota_is_shared_by_the_regions_of_an_account() {
    let data = tempfile::tempdir().unwrap();
    let (builder, tokens) = guarded(data.path(), &["alice"]);
    let builder = builder.arg("--project-messages=3").arg("--project-queues=2");
    let server = builder.start();
    let create = json!({"QueueName": "q"});
    let message = json!({"QueueUrl": "q", "MessageBody": "x"});
    for region in ["us-east-1", "eu-west-1"] {
        let made = alice(region).send(server.base(), Transport::Json, "CreateQueue", &create);
        assert_eq!(made.status, 200, "{}", made.text);
        let sent = alice(region).send(server.base(), Transport::Json, "SendMessage", &message);
        assert_eq!(sent.status, 200, "{}", sent.text);
    }
    let refused = alice("ap-east-1").send(server.base(), Transport::Json, "CreateQueue", &create);
    assert!(refused.status == 403 && refused.text.contains("OverLimit"), "{}", refused.text);
    drop(server);
    // What was stored before the start is counted too.
    let server = builder.start();
    let client = server.client().with_header("X-Auth-Token", &tokens[0]);
    let quota = client.get("/v2/quota").unwrap().json();
    assert_eq!((&quota["queues"]["used"], &quota["messages"]["used"]), (&json!(2), &json!(2)), "{quota}");
    for (region, status) in [("eu-west-1", 200), ("us-east-1", 403), ("eu-west-1", 403)] {
        let sent = alice(region).send(server.base(), Transport::Json, "SendMessage", &message);
        assert_eq!(sent.status, status, "{region}: {}", sent.text);
    }
    let refused = alice("ap-east-1").send(server.base(), Transport::Json, "CreateQueue", &create);
    assert_eq!(refused.status, 403, "{}", refused.text);
}
