//! Topics through the SQS endpoint: there are none.

use serde_json::json;

use super::wire::{NONE, Service};

#[test]
fn topic_is_no_queue_of_sqs() {
    let service = Service::start();
    assert_eq!(service.client().put("/v2/topics/news", None).unwrap().status.as_u16(), 201);
    let url = service.server.url("/000000000000/news");
    for (operation, body) in [
        ("GetQueueUrl", json!({"QueueName": "news"})),
        ("GetQueueAttributes", json!({"QueueUrl": url, "AttributeNames": ["All"]})),
        ("SendMessage", json!({"QueueUrl": url, "MessageBody": "x"})),
        ("ReceiveMessage", json!({"QueueUrl": url})),
        ("PurgeQueue", json!({"QueueUrl": url})),
        ("DeleteQueue", json!({"QueueUrl": url})),
    ] {
        let refused = service.json(operation, &body, NONE);
        assert_eq!(refused.status.as_u16(), 400, "{operation}: {}", refused.text());
        assert!(refused.text().contains("QueueDoesNotExist"), "{operation}: {}", refused.text());
    }
    let created = service.json("CreateQueue", &json!({"QueueName": "news"}), NONE);
    assert_eq!(created.status.as_u16(), 400, "{}", created.text());
    assert!(created.text().contains("There is a topic news"), "{}", created.text());
    let listed = service.done("ListQueues", &json!({}));
    assert!(!listed.to_string().contains("news"), "{listed}");
    assert_eq!(service.client().get("/v2/topics/news").unwrap().status.as_u16(), 200);
}
