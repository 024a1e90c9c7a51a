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

#[test]
fn sends_to_held_group_fail_alone() {
    let service = Service::start();
    let client = service.client();
    let url = service.server.url("/000000000000/f.fifo");
    let entry = |id: &str, group: &str| json!({"Id": id, "MessageBody": id, "MessageGroupId": group, "MessageDeduplicationId": id});
    service.done("SendMessageBatch", &json!({"QueueUrl": url, "Entries": [entry("first", "free")]}));
    let hold = "/v2/queues/f.fifo/groups/g/hold";
    for effect in ["post", "discard"] {
        let terms = json!({"claim": false, "reason": "bad deploy", effect: true});
        assert_eq!(client.put(hold, Some(&terms)).unwrap().status.as_u16(), 200);
        let entries = [entry(effect, "free"), entry("held", "g")];
        let sent = service.done("SendMessageBatch", &json!({"QueueUrl": url, "Entries": entries}));
        assert_eq!(
            (sent["Successful"].as_array().map(Vec::len), &sent["Successful"][0]["Id"]),
            (Some(1), &json!(effect))
        );
        let failed = &sent["Failed"][0];
        assert_eq!((&failed["Id"], &failed["SenderFault"]), (&json!("held"), &json!(false)), "{sent}");
        assert!(failed["Message"].as_str().unwrap().contains("bad deploy"), "{sent}");
    }
    assert_eq!(client.delete(hold).unwrap().status.as_u16(), 204);
    // The id of the refused entries is free.
    let sent = service.done("SendMessageBatch", &json!({"QueueUrl": url, "Entries": [entry("held", "g")]}));
    assert_eq!(sent["Successful"].as_array().map(Vec::len), Some(1), "{sent}");
}

#[test]
fn held_pool_and_project_refuse_sends_and_give_no_message() {
    let service = Service::start();
    let client = service.client();
    let url = service.server.url("/000000000000/q");
    let send = json!({"QueueUrl": url, "MessageBody": "x"});
    let receive = json!({"QueueUrl": url, "MaxNumberOfMessages": 10});
    service.done("SendMessage", &send);
    for hold in ["/v2/pools/default/hold", "/v2/projects/000000000000/hold"] {
        let terms = json!({"reason": "bad deploy", "post": true});
        assert_eq!(client.put(hold, Some(&terms)).unwrap().status.as_u16(), 200);
        assert_eq!(service.done("ReceiveMessage", &receive).get("Messages"), None);
        let refused = service.json("SendMessage", &send, NONE);
        assert_eq!(refused.status.as_u16(), 503, "{}", refused.text());
        assert!(refused.text().contains("bad deploy"), "{}", refused.text());
        assert_eq!(client.delete(hold).unwrap().status.as_u16(), 204);
    }
    assert!(service.done("ReceiveMessage", &receive)["Messages"].is_array());
}
