//! What the admission pipeline does for requests of SQS as it does for those of REST: each is measured, counted when it
//! is refused, and found in the log by its id.

use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::client::Answer;
use crate::support::server::{Server, ServerBuilder};
use angarium_testbed::held::wait_until;

const TRACE_ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

fn start(change: impl FnOnce(ServerBuilder) -> ServerBuilder) -> (Server, TempDir) {
    let data = tempfile::tempdir().unwrap();
    (change(ServerBuilder::new(data.path())).start(), data)
}

fn json(server: &Server, operation: &str, members: &Value) -> Answer {
    let client = server.client().with_header("x-amz-target", &format!("AmazonSQS.{operation}"));
    client.post("/", members).unwrap()
}

/// A sample of a counter.
fn counted(server: &Server, series: &str) -> f64 {
    let page = server.client().get("/metrics").unwrap().text();
    page.lines().filter_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse::<f64>().ok()).sum()
}

#[test]
fn throttled_request_counts_as_in_rest() {
    let (server, _data) = start(|builder| builder.arg("--project-requests-per-second=1"));
    let throttled = |answer: &Answer| answer.status.as_u16() == 400;
    wait_until("SQS throttles", || throttled(&json(&server, "ListQueues", &json!({}))));
    assert!(counted(&server, "angarium_refusals_total{status=\"429\",reason=\"too_fast\"}") >= 1.0);
}

#[test]
fn request_refused_before_its_body_is_measured() {
    // It has no keys, and so serves no client of SQS.
    let files = tempfile::tempdir().unwrap();
    let tokens = files.path().join("tokens");
    let digest = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    let token = format!("[[token]]\nproject = \"p\"\nrole = \"admin\"\nsha256 = \"{digest}\"\n");
    std::fs::write(&tokens, token).unwrap();
    let (server, _data) = start(|builder| builder.arg("--tokens").arg(&tokens));
    assert_eq!(json(&server, "ListQueues", &json!({})).status.as_u16(), 403);
    assert_eq!(server.client().get("/?Action=ListQueues").unwrap().status.as_u16(), 403);
    let page = server.client().with_header("x-auth-token", "test").get("/metrics").unwrap().text();
    for operation in ["sqs_ListQueues", "unknown"] {
        let series = format!("angarium_requests_total{{operation=\"{operation}\",code=\"4xx\"}} 1");
        assert!(page.lines().any(|line| line == series), "{series}: {page}");
    }
}

#[test]
fn request_log_has_trace_and_request_id() {
    let (server, _data) = start(|builder| builder.arg("--log=debug").arg("--log-format=json"));
    let parent = format!("00-{TRACE_ID}-00f067aa0ba902b7-01");
    for (operation, code) in
        [("DeleteQueue", "AWS.SimpleQueueService.NonExistentQueue"), ("SendMessage", "MissingParameter")]
    {
        let members = if operation == "DeleteQueue" { json!({"QueueUrl": "none"}) } else { json!({}) };
        let headers = [("x-amz-target", format!("AmazonSQS.{operation}")), ("traceparent", parent.clone())];
        let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
        let refused = server.client().send(Method::POST, "/", &headers, Some(&members)).unwrap();
        let id = refused.headers["x-amzn-requestid"].to_str().unwrap().to_owned();
        let line = || {
            server.last_lines().lines().find_map(|line| {
                let line: Value = serde_json::from_str(line.get(line.find('{')?..)?).ok()?;
                (line["request_id"] == id.as_str() && line["message"] == "request refused").then_some(line)
            })
        };
        wait_until("the refusal is logged", || line().is_some());
        let line = line().unwrap();
        assert_eq!((&line["trace_id"], &line["code"]), (&json!(TRACE_ID), &json!(code)), "{operation}");
    }
}
