//! The triggers of KEDA: the file is well formed, and the query of each trigger brings the number that it scales by.

use serde_json::{Value, json};

use crate::support::server::Server;
use crate::support::yaml::yaml;

const FILE: &str = "examples/keda.yaml";
/// The host that the file names, of a service in the same cluster.
const HOST: &str = "http://angarium.default.svc:8888";

/// The path of a URL of the file.
fn path(metadata: &Value, key: &str) -> String {
    let url = metadata[key].as_str().unwrap_or_else(|| panic!("{key} is not in {metadata}"));
    url.strip_prefix(HOST).unwrap_or_else(|| panic!("{url} has another host")).to_owned()
}

fn text<'a>(metadata: &'a Value, key: &str) -> &'a str {
    metadata[key].as_str().unwrap_or_else(|| panic!("KEDA reads {key} as a text: {metadata}"))
}

/// The sum that KEDA's trigger for SQS scales by.
fn of_sqs(server: &Server, metadata: &Value) -> u64 {
    assert_eq!(path(metadata, "awsEndpoint"), "");
    let names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"];
    let url = format!("{}{}", server.base(), path(metadata, "queueURL"));
    let client = server.client().with_header("X-Amz-Target", "AmazonSQS.GetQueueAttributes");
    let body = json!({"QueueUrl": url, "AttributeNames": names}).to_string();
    let answer = client.send_as(http::Method::POST, "/", "application/x-amz-json-1.0", body.as_bytes());
    let shown = answer.expect("the service answers").json();
    let number = |name: &str| shown["Attributes"][name].as_str().and_then(|text| text.parse::<u64>().ok());
    names.iter().map(|name| number(name).unwrap_or_else(|| panic!("{name}: {shown}"))).sum()
}

/// The number that its trigger for any API scales by.
fn of_rest(server: &Server, metadata: &Value) -> u64 {
    let shown = server.client().get(&path(metadata, "url")).expect("the service answers").json();
    let place = format!("/{}", text(metadata, "valueLocation").replace('.', "/"));
    shown.pointer(&place).and_then(Value::as_u64).unwrap_or_else(|| panic!("{place}: {shown}"))
}

#[test]
fn triggers_of_keda_read_the_length_of_a_queue() {
    let documents = yaml(FILE);
    let of_kind = |kind: &'static str| documents.iter().filter(move |document| document["kind"] == kind);
    let credentials: Vec<&Value> = of_kind("TriggerAuthentication").collect();
    let data = tempfile::tempdir().expect("there is room for a temporary directory");
    let server = Server::start(data.path());
    let bodies: Vec<Value> = (0..3).map(Value::from).collect();
    server.client().post_messages("jobs", &bodies).expect("the service answers");
    assert!(server.client().claim("jobs", 1, 60).expect("the service answers").granted().is_some());
    let mut seen = Vec::new();
    for object in of_kind("ScaledObject") {
        let spec = &object["spec"];
        assert!(spec["scaleTargetRef"]["name"].is_string() && spec["maxReplicaCount"].is_u64(), "{object}");
        for trigger in spec["triggers"].as_array().expect("it has triggers") {
            let (kind, metadata) = (text(trigger, "type"), &trigger["metadata"]);
            let (length, parameters): (u64, &[&str]) = match kind {
                "aws-sqs-queue" => (of_sqs(&server, metadata), &["awsAccessKeyID", "awsSecretAccessKey"]),
                "metrics-api" => (of_rest(&server, metadata), &["token"]),
                other => panic!("{other}"),
            };
            seen.push((kind, length));
            let target = if kind == "metrics-api" { "targetValue" } else { "queueLength" };
            assert!(text(metadata, target).parse::<u32>().is_ok());
            let named = &trigger["authenticationRef"]["name"];
            let found = credentials.iter().find(|found| &found["metadata"]["name"] == named);
            let references = found.expect("there are credentials")["spec"]["secretTargetRef"].as_array();
            let given: Vec<&str> = references
                .expect("from a secret")
                .iter()
                .map(|reference| text(reference, "parameter"))
                .collect();
            assert_eq!(given, parameters);
        }
    }
    // Through SQS messages in work count too: the worker that has them is needed.
    assert_eq!(seen, [("aws-sqs-queue", 3), ("metrics-api", 2)]);
}
