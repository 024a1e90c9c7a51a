//! Requests and answers of SQS as they are on the wire, in both protocols, where no SDK shows them.

use http::Method;
use md5::{Digest, Md5};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::signing::pairs;
use crate::support::client::{Answer, Client};
use crate::support::server::{Server, ServerBuilder};

pub(super) const NONE: &[(&str, &str)] = &[];
const FORM: &str = "application/x-www-form-urlencoded";

/// A server with a standard queue `q` and a FIFO queue `f.fifo`.
pub(super) struct Service {
    pub(super) server: Server,
    _data: TempDir,
}

impl Service {
    pub(super) fn start() -> Self {
        let data = tempfile::tempdir().unwrap();
        let service = Self { server: ServerBuilder::new(data.path()).start(), _data: data };
        service.done("CreateQueue", &json!({"QueueName": "q"}));
        service.done("CreateQueue", &json!({"QueueName": "f.fifo", "Attributes": {"FifoQueue": "true"}}));
        service
    }

    pub(super) fn client(&self) -> Client {
        self.server.client()
    }

    pub(super) fn json(&self, operation: &str, members: &Value, headers: &[(&str, &str)]) -> Answer {
        let client = self.client().with_header("x-amz-target", &format!("AmazonSQS.{operation}"));
        client.send(Method::POST, "/", headers, Some(members)).unwrap()
    }

    pub(super) fn done(&self, operation: &str, members: &Value) -> Value {
        let answer = self.json(operation, members, NONE);
        assert_eq!(answer.status.as_u16(), 200, "{operation} {members}: {}", text(&answer));
        answer.json()
    }

    pub(super) fn form(&self, path: &str, body: &[u8]) -> Answer {
        self.client().send_as(Method::POST, path, FORM, body).unwrap()
    }

    /// A GET of the query protocol, from a client that is no browser.
    fn get(&self, path: &str, accept: &str) -> Answer {
        let headers = [("authorization", "AWS4-HMAC-SHA256 Credential=x"), ("accept", accept)];
        self.client().send(Method::GET, path, &headers, None).unwrap()
    }

    /// The message of the error that both protocols answer with this code.
    pub(super) fn refused(&self, code: &str, operation: &str, members: &Value) -> String {
        let answer = self.json(operation, members, NONE);
        let what = format!("{operation} {members}: {}", text(&answer));
        let told = answer.headers.get("x-amzn-query-error").and_then(|told| told.to_str().ok());
        assert_eq!((answer.status.as_u16(), told), (400, Some(format!("{code};Sender").as_str())), "{what}");
        let message = answer.json()["message"].as_str().unwrap().to_owned();
        let form =
            form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs(operation, members)).finish();
        let xml = text(&self.form("/", form.as_bytes()));
        assert!(xml.contains(&format!("<Code>{code}</Code>")), "{operation} {members}: {xml}");
        let escaped =
            message.replace('&', "&amp;").replace('"', "&quot;").replace('>', "&gt;").replace('<', "&lt;");
        assert!(xml.contains(&format!("<Message>{escaped}</Message>")), "{message}: {xml}");
        message
    }

    fn count(&self, queue: &str) -> Value {
        let name = "ApproximateNumberOfMessages";
        let asked = json!({"QueueUrl": queue, "AttributeNames": [name]});
        self.done("GetQueueAttributes", &asked)["Attributes"][name].clone()
    }
}

fn md5(text: &str) -> String {
    Md5::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn text(answer: &Answer) -> String {
    String::from_utf8_lossy(&answer.body).into_owned()
}

#[test]
fn result_without_members_is_an_empty_element() {
    let service = Service::start();
    for (operation, queue) in [("ReceiveMessage", "q"), ("ListQueueTags", "q"), ("GetQueueAttributes", "q")] {
        let said = text(&service.get(&format!("/000000000000/{queue}?Action={operation}"), "*/*"));
        assert!(said.contains(&format!("<{operation}Result/><ResponseMetadata>")), "{said}");
    }
}

#[test]
fn queue_url_without_action_is_an_unknown_operation() {
    let service = Service::start();
    let answers = [
        service.get("/000000000000/q", "*/*"),
        service.get("/000000000000/q", "application/json"),
        service.form("/000000000000/q", b"MessageBody=x"),
    ];
    for answer in answers {
        assert_eq!((answer.status.as_u16(), text(&answer).as_str()), (404, "<UnknownOperationException/>\n"));
        assert!(
            !answer.headers.contains_key("content-type") && answer.headers.contains_key("x-amzn-requestid")
        );
    }
}

#[test]
fn json_form_of_query_answers_has_lists() {
    let service = Service::start();
    let asked = |query: &str| {
        let answer = service.get(&format!("/{query}"), "application/json");
        assert_eq!(answer.status.as_u16(), 200, "{query}: {}", text(&answer));
        answer.json()
    };
    let kind = json!({"DataType": "String", "StringValue": "v"});
    let sent = json!({"QueueUrl": "q", "MessageBody": "hello", "MessageAttributes": {"kind": kind}});
    service.done("SendMessage", &sent);
    service.done("TagQueue", &json!({"QueueUrl": "q", "Tags": {"team": "orders"}}));
    let shown = asked("000000000000/q?Action=GetQueueAttributes&AttributeName.1=All");
    let shown = &shown["GetQueueAttributesResponse"]["GetQueueAttributesResult"]["Attributes"];
    let size = json!({"Name": "MaximumMessageSize", "Value": "1048576"});
    assert!(shown.as_array().is_some_and(|all| all.contains(&size) && all.len() > 5), "{shown}");
    let shown = asked("000000000000/q?Action=ListQueueTags");
    let tags = &shown["ListQueueTagsResponse"]["ListQueueTagsResult"]["Tags"];
    assert_eq!(tags, &json!([{"Key": "team", "Value": "orders"}]));
    let shown = asked("?Action=ListQueues");
    let urls = &shown["ListQueuesResponse"]["ListQueuesResult"]["queueUrls"];
    assert!(urls.as_array().is_some_and(|urls| urls.len() == 2), "{shown}");
    let query = "Action=ReceiveMessage&AttributeName.1=SenderId&MessageAttributeName.1=All";
    let shown = asked(&format!("000000000000/q?{query}"));
    let message = &shown["ReceiveMessageResponse"]["ReceiveMessageResult"]["messages"][0];
    assert_eq!(message["Body"], "hello", "{shown}");
    assert_eq!(message["Attributes"], json!([{"Name": "SenderId", "Value": "000000000000"}]));
    assert_eq!(message["MessageAttributes"], json!([{"Name": "kind", "Value": kind}]));
}

#[test]
fn non_utf8_text_is_refused() {
    let service = Service::start();
    let (form, url) = ("Action=SendMessage&MessageBody=a%FF", "Action=SendMessage&MessageBody=a%C3%28");
    let answers = [
        service.form("/000000000000/q", form.as_bytes()),
        service.form("/000000000000/q", b"Action=SendMessage&MessageBody=a\xff"),
        service.get(&format!("/000000000000/q?{url}"), "*/*"),
    ];
    for answer in answers {
        let said = text(&answer);
        assert_eq!(answer.status.as_u16(), 400, "{said}");
        assert!(said.contains("<Code>InvalidParameterValue</Code>"), "{said}");
        assert!(said.contains("for parameter MessageBody is invalid. Reason: "), "{said}");
    }
    assert_eq!(service.count("q"), "0");
    let meant = service.form("/000000000000/q", b"Action=SendMessage&MessageBody=a%EF%BF%BD");
    assert_eq!((meant.status.as_u16(), service.count("q")), (200, json!("1")));
}

/// Errors that programs read: the value and the parameter stand where they stand in AWS.
#[test]
fn body_beyond_xml_has_the_md5_of_its_delivered_text() {
    let service = Service::start();
    let body = "a\u{0}b\u{ffff}c\r\n";
    let send = json!({"QueueUrl": "q", "MessageBody": body});
    service.refused("InvalidMessageContents", "SendMessage", &send);
    for _ in 0..2 {
        assert_eq!(service.client().post_messages("q", &[json!(body)]).unwrap().status.as_u16(), 201);
    }
    let received = service.done("ReceiveMessage", &json!({"QueueUrl": "q"}));
    let message = &received["Messages"][0];
    assert_eq!((&message["Body"], &message["MD5OfBody"]), (&json!(body), &json!(md5(body))));
    let answer = text(&service.form("/", b"Action=ReceiveMessage&QueueUrl=q"));
    let delivered = "a\u{fffd}b\u{fffd}c\r\n";
    assert!(answer.contains(&delivered.replace('\r', "&#13;")), "{answer}");
    assert!(answer.contains(&format!("<MD5OfBody>{}</MD5OfBody>", md5(delivered))), "{answer}");
}

#[test]
fn error_names_value_and_parameter() {
    let service = Service::start();
    let long = "x".repeat(129);
    let (q, f) = ("QueueUrl", "f.fifo");
    let send = |member: &str, value: Value| json!({q: "q", "MessageBody": "x", member: value});
    let ordered = |member: &str, value: Value| json!({q: f, "MessageBody": "x", "MessageGroupId": "g", "MessageDeduplicationId": "d", member: value});
    let policy =
        json!({"deadLetterTargetArn": "arn:aws:sqs:us-east-1:000000000000:none", "maxReceiveCount": 3});
    let mut more = policy.clone();
    more["reason"] = json!("x");
    let (policy, more) = (policy.to_string(), more.to_string());
    let redrive = |policy: &str| json!({q: "q", "Attributes": {"RedrivePolicy": policy}});
    for (operation, members, parameter, value) in [
        ("ReceiveMessage", json!({q: "q", "MaxNumberOfMessages": 11}), "MaxNumberOfMessages", "11"),
        ("ReceiveMessage", json!({q: "q", "WaitTimeSeconds": -1}), "WaitTimeSeconds", "-1"),
        ("ReceiveMessage", json!({q: "q", "ReceiveRequestAttemptId": "a"}), "ReceiveRequestAttemptId", "a"),
        ("ReceiveMessage", json!({q: f, "ReceiveRequestAttemptId": "a b"}), "ReceiveRequestAttemptId", "a b"),
        ("SendMessage", send("MessageGroupId", json!("a b")), "MessageGroupId", "a b"),
        ("SendMessage", send("MessageGroupId", json!(long)), "MessageGroupId", long.as_str()),
        ("SendMessage", send("MessageDeduplicationId", json!("d")), "MessageDeduplicationId", "d"),
        ("SendMessage", send("DelaySeconds", json!(901)), "DelaySeconds", "901"),
        ("SendMessage", ordered("DelaySeconds", json!(2)), "DelaySeconds", "2"),
        ("SendMessage", ordered("MessageDeduplicationId", json!("")), "MessageDeduplicationId", ""),
        ("CreateQueue", json!({"QueueName": "a b"}), "QueueName", "a b"),
        ("CreateQueue", json!({"QueueName": "a.fifo"}), "QueueName", "a.fifo"),
        ("ListQueues", json!({"MaxResults": 1001}), "MaxResults", "1001"),
        ("ListQueues", json!({"MaxResults": 1, "NextToken": "orders"}), "NextToken", "orders"),
        ("ListDeadLetterSourceQueues", json!({q: "q", "NextToken": "orders"}), "NextToken", "orders"),
        ("SetQueueAttributes", redrive(&policy), "RedrivePolicy", &policy),
        ("SetQueueAttributes", redrive(&more), "RedrivePolicy", &more),
        ("RemovePermission", json!({q: "q", "Label": "l"}), "Label", "l"),
        ("RemovePermission", json!({q: "q", "Label": "a b"}), "Label", "a b"),
        ("StartMessageMoveTask", json!({"SourceArn": "x"}), "SourceArn", "x"),
    ] {
        let said = service.refused("InvalidParameterValue", operation, &members);
        let begins = format!("Value {value} for parameter {parameter} is invalid. Reason: ");
        assert!(said.starts_with(&begins) && said.len() > begins.len() + 5, "{operation} {members}: {said}");
    }
    for (attributes, name) in
        [(json!({"VisibilityTimeout": "43201"}), "VisibilityTimeout"), (json!({"Policy": "{}"}), "Policy")]
    {
        let members = json!({q: "q", "Attributes": attributes});
        let said = service.refused("InvalidAttributeValue", "SetQueueAttributes", &members);
        assert!(said.starts_with(&format!("Invalid value for the parameter {name}. Reason: ")), "{said}");
    }
    service.done("SetQueueAttributes", &json!({q: "q", "Attributes": {"MaximumMessageSize": "1024"}}));
    let said = service.refused(
        "InvalidParameterValue",
        "SendMessage",
        &send("MessageBody", json!("x".repeat(1_025))),
    );
    assert_eq!(said, "One or more parameters are invalid. Reason: Message must be shorter than 1024 bytes.");
}

#[test]
fn both_apis_show_and_bound_one_size() {
    let service = Service::start();
    let (key, rest) = ("_max_messages_post_size", service.client());
    let in_sqs = |queue: &str| {
        let asked = json!({"QueueUrl": queue, "AttributeNames": ["MaximumMessageSize"]});
        service.done("GetQueueAttributes", &asked)["Attributes"]["MaximumMessageSize"].clone()
    };
    let in_rest = |queue: &str| rest.get(&format!("/v2/queues/{queue}")).unwrap().json()[key].clone();
    let post = |queue: &str, bytes: usize| {
        rest.post_messages(queue, &[json!("x".repeat(bytes - 2))]).unwrap().status.as_u16()
    };
    assert_eq!(rest.put("/v2/queues/made", None).unwrap().status.as_u16(), 201);
    assert_eq!(post("posted", 262_144), 201);
    for (queue, bytes) in [("q", 1_048_576), ("made", 262_144), ("posted", 262_144)] {
        assert_eq!((in_sqs(queue), in_rest(queue)), (json!(bytes.to_string()), json!(bytes)), "{queue}");
        assert_eq!((post(queue, bytes), post(queue, bytes + 1)), (201, 400), "{queue}");
        let send = |bytes: usize| json!({"QueueUrl": queue, "MessageBody": "x".repeat(bytes)});
        service.done("SendMessage", &send(bytes));
        let said = service.refused("InvalidParameterValue", "SendMessage", &send(bytes + 1));
        assert!(said.ends_with(&format!("Message must be shorter than {bytes} bytes.")), "{said}");
    }
    // What one of them sets the other shows and keeps to; attributes count.
    let size = json!({"QueueUrl": "q", "Attributes": {"MaximumMessageSize": "2000"}});
    service.done("SetQueueAttributes", &size);
    assert_eq!((in_rest("q"), post("q", 2_000), post("q", 2_001)), (json!(2_000), 201, 400));
    let created = rest.put("/v2/queues/wide", Some(&json!({key: 1_048_576}))).unwrap();
    assert_eq!((created.status.as_u16(), in_sqs("wide")), (201, json!("1048576")));
    let kind = json!({"DataType": "String", "StringValue": "v".repeat(995)});
    let send = |bytes: usize| json!({"QueueUrl": "q", "MessageBody": "x".repeat(bytes), "MessageAttributes": {"kind": kind}});
    service.done("SendMessage", &send(2_000 - 995 - "kind".len() - "String".len()));
    let too_long = send(2_001 - 995 - "kind".len() - "String".len());
    assert_eq!(service.json("SendMessage", &too_long, NONE).status.as_u16(), 400);
    assert_eq!(rest.put("/v2/queues/wider", Some(&json!({key: 1_048_577}))).unwrap().status.as_u16(), 400);
    // A queue that loses its bound begins again as one of REST.
    let patch = json!([{"op": "remove", "path": format!("/metadata/{key}")}]).to_string();
    let media = "application/json-patch+json";
    assert_eq!(
        rest.send_as(Method::PATCH, "/v2/queues/wide", media, patch.as_bytes()).unwrap().status.as_u16(),
        200
    );
    assert_eq!((in_sqs("wide"), in_rest("wide")), (json!("262144"), json!(262_144)));
}

#[test]
fn setting_bounds_the_size_in_both_apis() {
    let data = tempfile::tempdir().unwrap();
    let server = ServerBuilder::new(data.path()).arg("--max-messages-post-size=2000000").start();
    let service = Service { server, _data: data };
    let (key, rest) = ("_max_messages_post_size", service.client());
    service.done("CreateQueue", &json!({"QueueName": "q"}));
    assert_eq!(rest.get("/v2/queues/q").unwrap().json()[key], 1_048_576);
    let size = |bytes: u32| json!({"QueueUrl": "q", "Attributes": {"MaximumMessageSize": bytes.to_string()}});
    service.refused("InvalidAttributeValue", "SetQueueAttributes", &size(2_000_001));
    service.done("SetQueueAttributes", &size(2_000_000));
    assert_eq!(rest.get("/v2/queues/q").unwrap().json()[key], 2_000_000);
    service.done("SendMessage", &json!({"QueueUrl": "q", "MessageBody": "x".repeat(2_000_000)}));
    // A batch has its own bound.
    let entries = json!([{"Id": "a", "MessageBody": "x".repeat(1_048_577)}]);
    let asked = json!({"QueueUrl": "q", "Entries": entries});
    service.refused("AWS.SimpleQueueService.BatchRequestTooLong", "SendMessageBatch", &asked);
}

#[test]
fn error_names_the_receipt_handle() {
    let service = Service::start();
    let send = json!({"QueueUrl": "q", "MessageBody": "x"});
    service.done("SendMessage", &send);
    let got = service.done("ReceiveMessage", &json!({"QueueUrl": "q"}));
    let handle = got["Messages"][0]["ReceiptHandle"].as_str().unwrap();
    let change = |handle: &str, seconds: u32| json!({"QueueUrl": "q", "ReceiptHandle": handle, "VisibilityTimeout": seconds});
    let said = service.refused("InvalidParameterValue", "ChangeMessageVisibility", &change(handle, 43_200));
    assert!(said.starts_with("Value 43200 for parameter VisibilityTimeout is invalid. Reason: "), "{said}");
    service.done("DeleteMessage", &json!({"QueueUrl": "q", "ReceiptHandle": handle}));
    let said = service.refused("InvalidParameterValue", "ChangeMessageVisibility", &change(handle, 5));
    let begins =
        format!("Value {handle} for parameter ReceiptHandle is invalid. Reason: Message does not exist");
    assert!(said.starts_with(&begins), "{said}");
    for (operation, members) in [
        ("DeleteMessage", json!({"QueueUrl": "q", "ReceiptHandle": "garbage"})),
        ("ChangeMessageVisibility", change("garbage", 5)),
    ] {
        let said = service.refused("ReceiptHandleIsInvalid", operation, &members);
        assert_eq!(said, "The input receipt handle \"garbage\" is not a valid receipt handle.");
    }
}

#[test]
fn unknown_attribute_names_are_refused() {
    let service = Service::start();
    for (operation, members) in [
        ("ReceiveMessage", json!({"QueueUrl": "q", "AttributeNames": ["SenderId", "Colour"]})),
        ("ReceiveMessage", json!({"QueueUrl": "q", "MessageSystemAttributeNames": ["Colour"]})),
        ("GetQueueAttributes", json!({"QueueUrl": "q", "AttributeNames": ["Colour"]})),
        ("SetQueueAttributes", json!({"QueueUrl": "q", "Attributes": {"Colour": "red"}})),
        ("CreateQueue", json!({"QueueName": "new", "Attributes": {"Colour": "red"}})),
    ] {
        let said = service.refused("InvalidAttributeName", operation, &members);
        assert_eq!(said, "Unknown Attribute Colour.", "{operation}");
    }
    // The model of AWS lets a receive name attributes of queues.
    service.done("ReceiveMessage", &json!({"QueueUrl": "q", "AttributeNames": ["All", "QueueArn"]}));
    // Attributes that senders name are not known to any caller.
    service.done("ReceiveMessage", &json!({"QueueUrl": "q", "MessageAttributeNames": ["Colour", "%"]}));
}

#[test]
fn effect_of_a_policy_is_allow_or_deny() {
    let service = Service::start();
    for effect in [json!("Permit"), json!("allow"), json!(["Allow"]), Value::Null] {
        let statement = json!({"Effect": effect, "Principal": "*", "Action": "sqs:*", "Resource": "*"});
        let policy = json!({"Version": "2012-10-17", "Statement": [statement]}).to_string();
        let members = json!({"QueueUrl": "q", "Attributes": {"Policy": policy}});
        let said = service.refused("InvalidAttributeValue", "SetQueueAttributes", &members);
        assert!(said.contains("Effect"), "{said}");
    }
}

#[test]
fn header_of_a_trace_becomes_an_attribute_of_its_messages() {
    const TRACE: &str = "Root=1-3152b799-8954dae64eda91bc9a23a7e8;Parent=7fa8c0f79203be72;Sampled=1";
    const OTHER: &str = "Root=1-5759e988-bd862e3fe1be46a994272793";
    let service = Service::start();
    let headers = [("X-Amzn-Trace-Id", TRACE)];
    let own = json!({"AWSTraceHeader": {"DataType": "String", "StringValue": OTHER}});
    let entries = json!([
        {"Id": "a", "MessageBody": "batch"}, {"Id": "b", "MessageBody": "own", "MessageSystemAttributes": own}
    ]);
    let one = service.json("SendMessage", &json!({"QueueUrl": "q", "MessageBody": "one"}), &headers);
    assert!(one.json()["MD5OfMessageSystemAttributes"].is_null(), "the sender has sent none");
    service.json("SendMessageBatch", &json!({"QueueUrl": "q", "Entries": entries}), &headers);
    let client =
        service.client().with_header(headers[0].0, TRACE).with_header("authorization", "AWS4 Credential=x");
    client.get("/000000000000/q?Action=SendMessage&MessageBody=query").unwrap();
    service.done("SendMessage", &json!({"QueueUrl": "q", "MessageBody": "none"}));
    let long = "x".repeat(1_025);
    service.json(
        "SendMessage",
        &json!({"QueueUrl": "q", "MessageBody": "long"}),
        &[("X-Amzn-Trace-Id", &long)],
    );
    let asked = json!({"QueueUrl": "q", "MaxNumberOfMessages": 10, "AttributeNames": ["AWSTraceHeader"]});
    let got = service.done("ReceiveMessage", &asked);
    let traces: Vec<_> = got["Messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| {
            let trace = message["Attributes"]["AWSTraceHeader"].as_str();
            (message["Body"].as_str().unwrap().to_owned(), trace.map(str::to_owned))
        })
        .collect();
    let expected = [
        ("one", Some(TRACE)),
        ("batch", Some(TRACE)),
        ("own", Some(OTHER)),
        ("query", Some(TRACE)),
        ("none", None),
        ("long", None),
    ];
    assert_eq!(traces, expected.map(|(body, trace)| (body.to_owned(), trace.map(str::to_owned))));
}

#[test]
fn url_of_another_region_needs_no_region() {
    let service = Service::start();
    let credential = |region: &str| {
        format!("AWS4-HMAC-SHA256 Credential=x/20261123/{region}/sqs/aws4_request, Signature=x")
    };
    let there = credential("eu-west-1");
    let headers = [("authorization", there.as_str())];
    let create = json!({"QueueName": "q"});
    let made = service.json("CreateQueue", &create, &headers).json();
    let url = made["QueueUrl"].as_str().unwrap().to_owned();
    assert_eq!(url, service.server.url("/queue/eu-west-1/000000000000/q"));
    for (operation, members) in [("GetQueueUrl", &create), ("ListQueues", &json!({}))] {
        assert!(text(&service.json(operation, members, &headers)).contains(&url), "{operation}");
    }
    assert_eq!(service.done("CreateQueue", &create)["QueueUrl"], service.server.url("/000000000000/q"));
    // Without credentials, and with those of the service's own region, in all forms of a request.
    let send = |body: &str| json!({"QueueUrl": url, "MessageBody": body});
    service.done("SendMessage", &send("a"));
    let here = credential("us-east-1");
    let sent = service.json("SendMessage", &send("b"), &[("authorization", here.as_str())]);
    assert_eq!(sent.status.as_u16(), 200, "{}", text(&sent));
    let path = url.strip_prefix(service.server.base()).unwrap();
    assert_eq!(service.form(path, b"Action=SendMessage&MessageBody=c").status.as_u16(), 200);
    let asked = service.get(&format!("{path}?Action=GetQueueAttributes&AttributeName.1=All"), "*/*");
    let said = text(&asked);
    assert!(said.contains("<Value>arn:aws:sqs:eu-west-1:000000000000:q</Value>"), "{said}");
    assert!(said.contains("<Name>ApproximateNumberOfMessages</Name><Value>3</Value>"), "{said}");
    assert_eq!(service.count("q"), "0", "that of the service's own region is another queue");
    // ARNs are of the region of the queue.
    let dead = json!({"deadLetterTargetArn": "arn:aws:sqs:eu-west-1:000000000000:q", "maxReceiveCount": 1});
    service.json("CreateQueue", &json!({"QueueName": "source"}), &headers);
    let source = service.server.url("/queue/eu-west-1/000000000000/source");
    let set = json!({"QueueUrl": source, "Attributes": {"RedrivePolicy": dead.to_string()}});
    service.done("SetQueueAttributes", &set);
    let listed = service.done("ListDeadLetterSourceQueues", &json!({"QueueUrl": url}));
    assert_eq!(listed["queueUrls"], json!([source]));
}

#[test]
fn pages_of_a_listing_follow_their_tokens() {
    let service = Service::start();
    for number in 0..5 {
        service.done("CreateQueue", &json!({"QueueName": format!("page-{number}")}));
    }
    let (mut urls, mut token) = (Vec::new(), Value::Null);
    for _ in 0..3 {
        let page = service
            .done("ListQueues", &json!({"QueueNamePrefix": "page-", "MaxResults": 2, "NextToken": token}));
        urls.extend(page["QueueUrls"].as_array().unwrap().clone());
        token = page["NextToken"].clone();
    }
    assert_eq!((urls.len(), token.clone()), (5, Value::Null), "{urls:?}");
    let page = service.done("ListQueues", &json!({"MaxResults": 1}));
    // A token is of one listing.
    let members = json!({"QueueUrl": "q", "MaxResults": 1, "NextToken": page["NextToken"]});
    service.refused("InvalidParameterValue", "ListDeadLetterSourceQueues", &members);
}

#[test]
fn name_of_2000_parts_ends_no_process() {
    let service = Service::start();
    let name = "a.".repeat(2_000);
    let query = service.get(&format!("/?Action=ListQueues&{name}=1"), "application/xml");
    assert_eq!(query.status.as_u16(), 400, "{}", text(&query));
    let form = service.form("/", format!("Action=ListQueues&{name}=1").as_bytes());
    assert_eq!(form.status.as_u16(), 400, "{}", text(&form));
    assert_eq!(service.client().get("/livez").unwrap().status.as_u16(), 200);
}
