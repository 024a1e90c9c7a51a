//! Inputs that are deep or many, on a small stack: a parser that recurses with its input ends the process here.

use std::thread;

use angarium::config::{TreeChoice, layers, sqs_keys, tokens};
use angarium_core::pool::PoolUri;
use serde_json::json;

use super::judge::Service;

/// Three quarters of what a worker of the runtime has: a debug build of a handler takes most of it.
const STACK: usize = 3 << 19;
const DEPTHS: [usize; 4] = [9, 127, 2_000, 200_000];

/// Runs on a thread with a small stack.
fn on_small_stack(run: impl FnOnce() + Send + 'static) {
    thread::Builder::new().stack_size(STACK).spawn(run).unwrap().join().unwrap();
}

fn nested(open: &str, middle: &str, close: &str, depth: usize) -> String {
    format!("{}{middle}{}", open.repeat(depth), close.repeat(depth))
}

/// Texts of JSON that are nested, closed and not.
fn texts(depth: usize) -> [String; 4] {
    [
        nested("[", "1", "]", depth),
        nested("{\"a\":", "1", "}", depth),
        "[".repeat(depth),
        nested("[{\"Statement\":", "{}", "}]", depth / 2),
    ]
}

fn rest(depth: usize) -> Vec<String> {
    let mut requests = Vec::new();
    for text in texts(depth) {
        requests.push(format!("POST /v2/queues/deep/messages\n\n{{\"messages\":[{{\"body\":{text}}}]}}"));
        requests.push(format!("POST /v2/queues/deep/messages\n\n{text}"));
        requests.push(format!("PUT /v2/queues/deep\n\n{{\"a\":{text}}}"));
        requests.push(format!(
            "PATCH /v2/queues/deep\nContent-Type: application/openstack-messaging-v2.0-json-patch\n\n\
             [{{\"op\":\"add\",\"path\":\"/metadata/a\",\"value\":{text}}}]"
        ));
        requests.push(format!(
            "PUT /v2/pools/deep\n\n{{\"uri\":\"embedded:x\",\"weight\":1,\"options\":{text}}}"
        ));
    }
    requests.push(format!(
        "PATCH /v2/queues/deep\nContent-Type: application/openstack-messaging-v2.0-json-patch\n\n\
         [{{\"op\":\"add\",\"path\":\"/metadata{}\",\"value\":1}}]",
        "/a".repeat(depth)
    ));
    requests.push(format!("GET /v2/queues?{}\n\n", "a[b]=c&".repeat(depth.min(8_000))));
    requests
}

fn headers(depth: usize) -> Vec<String> {
    let many = |part: &str| part.repeat(depth.min(4_000));
    [
        ("Accept", many("text/html;q=0.1;a=\"b\",")),
        ("Accept", many("(")),
        ("traceparent", many("00-")),
        ("tracestate", many("a=b,")),
        ("Authorization", format!("AWS4-HMAC-SHA256 {}", many("Credential=a/b,"))),
        ("Authorization", format!("AWS4-HMAC-SHA256 Credential={}", many("/"))),
        ("X-Roles", many("a,")),
    ]
    .map(|(name, value)| format!("GET /?Action=ListQueues\n{name}: {value}\n\n"))
    .into()
}

fn sqs(depth: usize) -> Vec<String> {
    let json = |operation: &str, body: &str| format!("POST /\nX-Amz-Target: AmazonSQS.{operation}\n\n{body}");
    let url = "http://h/000000000000/deep";
    let mut requests = Vec::new();
    for text in texts(depth) {
        requests.push(json("SendMessage", &format!("{{\"QueueUrl\":\"{url}\",\"Other\":{text}}}")));
        requests.push(json(
            "SendMessage",
            &format!("{{\"MessageAttributes\":{{\"a\":{text}}},\"QueueUrl\":\"{url}\"}}"),
        ));
        requests.push(json("SendMessage", &text));
        for attribute in ["Policy", "RedrivePolicy", "RedriveAllowPolicy"] {
            for text in [text.clone(), format!("{{\"Statement\":{text}}}"), format!("{{\"x\":{text}}}")] {
                let attributes = json!({"QueueUrl": url, "Attributes": {attribute: text}});
                requests.push(json("SetQueueAttributes", &attributes.to_string()));
            }
        }
        requests.push(json("CancelMessageMoveTask", &json!({"TaskHandle": text}).to_string()));
    }
    requests.push(json(
        "GetQueueAttributes",
        &format!("{{\"QueueUrl\":\"{url}\",\"AttributeNames\":[\"All\"]}}"),
    ));
    for pair in ["a.", "Attribute.1.Value.", "SendMessageBatchRequestEntry.1.", ".", "1."] {
        let name = pair.repeat(depth);
        requests.push(format!(
            "POST /?Action=SendMessage\nContent-Type: application/x-www-form-urlencoded\n\n{name}a=1"
        ));
        if name.len() < 60_000 {
            requests.push(format!("GET /?Action=x&{name}a=1\n\n"));
        }
        let many: String = (0..depth).map(|number| format!("{pair}{number}=1&")).collect();
        requests.push(format!("POST /000000000000/deep\nContent-Type: application/x-www-form-urlencoded\n\nAction=SendMessage&{many}"));
    }
    requests
}

#[test]
fn deep_requests_are_answered_on_a_small_stack() {
    let service = Service::start();
    assert_eq!(service.check(b"PUT /v2/queues/deep\n\n{}"), Some(201));
    on_small_stack(move || {
        service.check_alive();
        for depth in DEPTHS {
            for request in [rest(depth), headers(depth), sqs(depth)].concat() {
                // What HTTP refuses itself is no request; the rest is judged.
                let _ = service.check(request.as_bytes());
            }
        }
        service.check_alive();
    });
}

/// JSON of SQS whose lists and maps have so many elements.
fn wide(count: usize) -> Vec<(String, u16)> {
    let url = "http://h/000000000000/deep";
    let json = |operation: &str, member: &str, value: String| {
        format!(
            "POST /\nX-Amz-Target: AmazonSQS.{operation}\n\n{{\"QueueUrl\":\"{url}\",\"{member}\":{value}}}"
        )
    };
    let list = |element: &str| format!("[{}]", vec![element; count].join(","));
    let map = |value: &str| {
        let entries: Vec<String> = (0..count).map(|at| format!("\"k{at}\":{value}")).collect();
        format!("{{{}}}", entries.join(","))
    };
    let in_entry = |member: &str, value: String| {
        format!("[{{\"Id\":\"a\",\"MessageBody\":\"x\",\"{member}\":{value}}}]")
    };
    let attribute = "{\"DataType\":\"String\",\"StringValue\":\"v\"}";
    let mut requests = Vec::new();
    for operation in ["SendMessageBatch", "DeleteMessageBatch", "ChangeMessageVisibilityBatch"] {
        requests.push(json(operation, "Entries", list("{}")));
        requests.push(json(
            operation,
            "Entries",
            list("{\"Id\":\"a\",\"MessageBody\":\"x\",\"ReceiptHandle\":\"x\"}"),
        ));
    }
    for member in ["AttributeNames", "MessageSystemAttributeNames", "MessageAttributeNames"] {
        requests.push(json("ReceiveMessage", member, list("\"\"")));
    }
    requests.push(json("ReceiveMessage", "MaxNumberOfMessages", list("[]")));
    requests.push(json("GetQueueAttributes", "AttributeNames", list("\"All\"")));
    requests.push(json("SetQueueAttributes", "Attributes", map("\"1\"")));
    requests.push(json("CreateQueue", "QueueName\":\"deep\",\"Tags", map("\"v\"")));
    requests.push(json("TagQueue", "Tags", map("\"v\"")));
    requests.push(json("UntagQueue", "TagKeys", list("\"k\"")));
    requests.push(json("AddPermission", "Label\":\"l\",\"Actions\":[\"*\"],\"AWSAccountIds", list("\"1\"")));
    requests.push(json("SendMessage", "MessageBody\":\"x\",\"MessageAttributes", map(attribute)));
    requests.push(json("SendMessageBatch", "Entries", in_entry("MessageAttributes", map(attribute))));
    // The entry of a batch is refused for itself.
    let status =
        |request: &String| if request.contains("\"Id\":\"a\"") && request.contains("k1") { 200 } else { 400 };
    requests.iter().map(|request| (request.clone(), status(request))).collect()
}

#[test]
fn wide_lists_of_sqs_are_refused() {
    let service = Service::start();
    assert_eq!(service.check(b"PUT /v2/queues/deep\n\n{}"), Some(201));
    for count in [300, 3_000, 100_000] {
        for (request, status) in wide(count) {
            let shown: String = request.chars().take(200).collect();
            assert_eq!(service.check(request.as_bytes()), Some(status), "{count} in {shown}");
        }
    }
    service.check_alive();
}

/// Requests of REST with lists and maps of so many elements. None is within its bound.
fn wide_rest(count: usize) -> Vec<String> {
    let list = |element: &str| format!("[{}]", vec![element; count].join(","));
    let keys: Vec<String> = (0..count).map(|at| format!("\"k{at}\":1")).collect();
    let ids = vec!["1"; count].join(",");
    let patch = list("{\"op\":\"add\",\"path\":\"/metadata/a\",\"value\":1}");
    vec![
        format!("POST /v2/queues/deep/messages\n\n{{\"messages\":{}}}", list("{\"body\":1}")),
        format!("POST /v2/queues/deep/messages/batch\n\n{{\"messages\":{}}}", list("{\"body\":1}")),
        format!("DELETE /v2/queues/deep/messages?ids={ids}\n\n"),
        format!("GET /v2/queues/deep/messages?ids={ids}\n\n"),
        format!("PUT /v2/queues/deep\n\n{{{}}}", keys.join(",")),
        format!(
            "PATCH /v2/queues/deep\nContent-Type: application/openstack-messaging-v2.0-json-patch\n\n{patch}"
        ),
        format!("PUT /v2/flavors/wide\n\n{{\"pool_list\":{}}}", list("\"p\"")),
        format!("POST /v2/queues/deep/purge\n\n{{\"resource_types\":{}}}", list("\"messages\"")),
    ]
}

#[test]
fn wide_rest_requests_are_refused() {
    let service = Service::start();
    assert_eq!(service.check(b"PUT /v2/queues/deep\n\n{}"), Some(201));
    for count in [24_001, 100_000] {
        for request in wide_rest(count) {
            let shown: String = request.chars().take(120).collect();
            let status = service.check(request.as_bytes());
            // A URI that long is refused by HTTP itself.
            let is_refused = status.map_or(count > 24_001, |status| (400..500).contains(&status));
            assert!(is_refused, "{count} {status:?} in {shown}");
        }
    }
    service.check_alive();
}

#[test]
fn wide_settings_end_no_process() {
    let lines = |line: &dyn Fn(usize) -> String| (0..100_000).map(line).collect::<String>();
    assert!(layers::parse(&lines(&|at| format!("k{at} = 1\n"))).is_err());
    assert!(layers::parse(&format!("log = [{}]", "1,".repeat(100_000))).is_err());
    assert!(tokens::parse(&lines(&|_| "[[token]]\nhash = \"x\"\n".to_owned())).is_err());
    let key = |at| format!("[[key]]\nid = \"K{at}\"\nsecret = \"s\"\nproject = \"p\"\n");
    // Whether so many are a file of keys is not for this to say.
    let _ = sqs_keys::parse(&lines(&key));
}

#[test]
fn names_of_2000_parts_are_refused() {
    let service = Service::start();
    let name = "a.".repeat(2_000);
    for request in [
        format!("GET /?Action=x&{name}=1\n\n"),
        format!("POST /\nContent-Type: application/x-www-form-urlencoded\n\nAction=ListQueues&{name}=1"),
    ] {
        assert_eq!(service.check(request.as_bytes()), Some(400));
    }
}

#[test]
fn batch_of_500_entries_with_ten_attributes_passes() {
    use angarium::api::{ContextLimits, SqsSettings};
    use angarium_clock::Clock;

    let batch = |entries: usize| {
        let mut body = "Action=SendMessageBatch&QueueUrl=deep".to_owned();
        for entry in 1..=entries {
            let at = format!("SendMessageBatchRequestEntry.{entry}");
            body.push_str(&format!("&{at}.Id={entry}&{at}.MessageBody=x"));
            for attribute in 1..=10 {
                let at = format!("{at}.MessageAttribute.{attribute}");
                body.push_str(&format!(
                    "&{at}.Name=n{attribute}&{at}.Value.DataType=String&{at}.Value.StringValue=v"
                ));
            }
        }
        format!("POST /\nContent-Type: application/x-www-form-urlencoded\n\n{body}").into_bytes()
    };
    let most = ContextLimits { batch: 500, ..ContextLimits::default() };
    for (most, entries) in [(most, 500), (ContextLimits::default(), 10)] {
        let service = Service::start_with(Clock::system(), SqsSettings { most, ..SqsSettings::default() });
        assert_eq!(service.check(b"PUT /v2/queues/deep\n\n{}"), Some(201));
        assert_eq!(service.check(&batch(entries)), Some(200), "{entries} entries");
        assert_eq!(service.check(&batch(4 * entries)), Some(400), "too many");
    }
}

#[test]
fn deep_settings_are_refused_on_a_small_stack() {
    on_small_stack(|| {
        for depth in DEPTHS {
            for text in texts(depth) {
                assert!(layers::parse(&format!("log = {text}")).is_err());
                assert!(tokens::parse(&format!("token = {text}")).is_err());
                assert!(sqs_keys::parse(&format!("key = {text}")).is_err());
            }
            for name in [nested("a.", "b", "", depth), nested("[", "a", "]", depth)] {
                assert!(layers::parse(&format!("{name} = 1")).is_err());
                assert!(tokens::parse(&format!("{name} = 1")).is_err());
                assert!(sqs_keys::parse(&format!("{name} = 1")).is_err());
            }
            for part in ["a:1,", "a/", "?a=b&", "[", "%41", "@"] {
                for scheme in ["redis-cluster", "redis-sentinel", "postgres", "embedded", "zookeeper"] {
                    let address = format!("{scheme}://{}", part.repeat(depth));
                    // Whether it is one is for others to say.
                    let _ = (PoolUri::new(&address).is_ok(), address.parse::<TreeChoice>().is_ok());
                }
            }
        }
    });
}
