//! Held queues through the SQS endpoint.

use serde_json::json;

use super::wire::{NONE, Service};

#[test]
fn receive_of_held_queue_is_empty_and_sends_are_refused() {
    let service = Service::start();
    let client = service.client();
    for (queue, group) in [("q", None), ("f.fifo", Some("g"))] {
        let url = service.server.url(&format!("/000000000000/{queue}"));
        let mut send = json!({"QueueUrl": url, "MessageBody": "x"});
        if let Some(group) = group {
            send["MessageGroupId"] = json!(group);
            send["MessageDeduplicationId"] = json!("once");
        }
        let hold = format!("/v2/queues/{queue}/hold");
        for effect in ["post", "discard"] {
            let held = client
                .put(&hold, Some(&json!({"claim": false, "reason": "bad deploy", effect: true})))
                .unwrap();
            assert_eq!(held.status.as_u16(), 200, "{}", held.text());
            let refused = service.json("SendMessage", &send, NONE);
            assert_eq!(refused.status.as_u16(), 503, "{}", refused.text());
            assert!(refused.text().contains("ServiceUnavailable"), "{}", refused.text());
            assert!(refused.text().contains("bad deploy"), "{}", refused.text());
        }
        assert_eq!(client.put(&hold, Some(&json!({"reason": "bad deploy"}))).unwrap().status.as_u16(), 200);
        // The id of the refused sends is free.
        service.done("SendMessage", &send);
        let receive = json!({"QueueUrl": url, "MaxNumberOfMessages": 10});
        assert_eq!(service.done("ReceiveMessage", &receive).get("Messages"), None);
        assert_eq!(client.delete(&hold).unwrap().status.as_u16(), 204);
        let received = service.done("ReceiveMessage", &receive);
        assert_eq!(received["Messages"].as_array().map(Vec::len), Some(1), "{received}");
    }
}
