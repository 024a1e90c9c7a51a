//! Tasks over HTTP: the form of requests and answers, a dry run, a cancellation, SQS beside REST, and a restart.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Service, service};
use crate::support::client::Answer;
use crate::support::server::Server;

const TASKS: &str = "/v2/queues/q/tasks";
/// All states of messages.
const STATES: [&str; 7] = ["ready", "delayed", "claimed", "in_transfer", "held", "done", "failed"];
/// Max time of a wait; only a failing test waits so long.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Posts these tagged messages, and fails them for good.
fn failed(service: &Service, tags: &[&str]) -> Vec<String> {
    let message = |tag: &&str| json!({"body": {"of": tag}, "tags": [tag], "keep": 600});
    let messages: Vec<Value> = tags.iter().map(message).collect();
    let posted = service.client.post("/v2/queues/q/messages", &json!({"messages": messages})).unwrap();
    let ids = posted.posted_ids();
    let terms = json!({"ttl": 300, "by": "worker-1"});
    let claim = service.client.post("/v2/queues/q/claims?limit=20", &terms).unwrap().granted().unwrap();
    let entry = |id: &String| json!({"id": id, "fail": {"reason": "no space", "retry": false}});
    let entries: Vec<Value> = ids.iter().map(entry).collect();
    let path = format!("/v2/queues/q/claims/{}/settle", claim.id);
    let settled = service.client.post(&path, &json!({"messages": entries})).unwrap();
    assert_eq!(settled.status, 200, "{}", settled.text());
    ids
}

fn start(service: &Service, task: &Value) -> String {
    let answer = service.client.post(TASKS, task).unwrap();
    assert_eq!(answer.status, 202, "{task}: {}", answer.text());
    answer.json()["id"].as_str().unwrap().to_owned()
}

/// Waits until a task has ended.
fn ended(service: &Service, id: &str) -> Value {
    let begun = Instant::now();
    loop {
        let task = service.client.get(&format!("{TASKS}/{id}")).unwrap().json();
        if !["running", "cancelling"].contains(&task["state"].as_str().unwrap()) {
            return task;
        }
        assert!(begun.elapsed() < MAX_WAIT, "{task}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn peeked(service: &Service, queue: &str, query: &str) -> Vec<String> {
    let page = service.client.get(&format!("/v2/queues/{queue}/peek?{query}")).unwrap().json();
    let ids = page["messages"].as_array().unwrap().iter().map(|message| message["id"].as_str().unwrap());
    ids.map(ToOwned::to_owned).collect()
}

#[test]
fn dry_run_counts_and_changes_nothing() {
    let service = service();
    let ids = failed(&service, &["eu", "us", "eu"]);
    let dry = json!({"do": "requeue", "filter": {"tag": "eu"}, "max": 1, "dry_run": true});
    let answer = service.client.post(TASKS, &dry).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    let plan = answer.json();
    assert_eq!(
        (&plan["matches"], &plan["looked_at"], &plan["is_whole"]),
        (&json!(2), &json!(3), &json!(true))
    );
    let sample = plan["sample"].as_array().unwrap();
    assert_eq!(sample.iter().map(|message| &message["id"]).collect::<Vec<_>>(), [&ids[0], &ids[2]]);
    assert_eq!((&sample[0]["state"], &sample[0]["body"]["of"]), (&json!("failed"), &json!("eu")));
    assert_eq!(peeked(&service, "q", "state=failed"), ids);
    assert_eq!(service.client.get(TASKS).unwrap().json(), json!({"tasks": []}));
}

#[test]
fn task_shows_its_changes_of_selected_messages() {
    let service = service();
    let ids = failed(&service, &["eu", "us", "eu"]);
    service.client.put("/v2/queues/next", None).unwrap();
    let filter = json!({"state": ["failed"], "tag": "eu"});
    let id = start(&service, &json!({"do": "move", "filter": filter, "to": "next", "rate": 100, "max": 9}));
    let task = ended(&service, &id);
    let expected = [
        ("id", json!(id)),
        ("do", json!("move")),
        ("filter", filter),
        ("to", json!("next")),
        ("rate", json!(100)),
        ("max", json!(9)),
        ("state", json!("completed")),
        ("moved", json!(2)),
        ("skipped", json!(0)),
        ("failed", json!({})),
        ("looked_at", json!(3)),
    ];
    for (key, value) in expected {
        assert_eq!(task[key], value, "{key}");
    }
    assert!(task["began"].is_string() && task["ended"].is_string(), "{task}");
    assert_eq!(peeked(&service, "next", ""), [&*ids[0], &*ids[2]]);
    assert_eq!(peeked(&service, "q", ""), [&*ids[1]]);
    let next = start(&service, &json!({"do": "requeue"}));
    let task = ended(&service, &next);
    assert_eq!((&task["moved"], &task["filter"]), (&json!(1), &json!({"state": ["failed"]})));
    assert!(task.get("to").is_none() && task.get("max").is_none(), "{task}");
    assert_eq!(peeked(&service, "q", "state=ready"), [&*ids[1]]);
    let last = start(&service, &json!({"do": "delete", "filter": {"state": ["ready"]}}));
    assert_eq!(ended(&service, &last)["moved"], 1);
    assert!(peeked(&service, "q", "").is_empty());
    let listed = service.client.get(TASKS).unwrap().json();
    let listed: Vec<&Value> = listed["tasks"].as_array().unwrap().iter().map(|task| &task["id"]).collect();
    assert_eq!(listed, [&json!(last), &json!(next), &json!(id)]);
}

#[test]
fn cancelled_task_ends_and_frees_the_queue_for_another() {
    let service = service();
    let bodies: Vec<Value> = (0..100).map(Value::from).collect();
    service.client.post_messages("q", &bodies).unwrap();
    let task = json!({"do": "delete", "filter": {"state": ["ready"]}, "rate": 1});
    let id = start(&service, &task);
    let second = service.client.post(TASKS, &task).unwrap();
    assert_eq!((second.status.as_u16(), &second.json()["code"]), (409, &json!("conflict")));
    let path = format!("{TASKS}/{id}");
    assert_eq!(service.client.delete(&path).unwrap().status, 204);
    assert_eq!(ended(&service, &id)["state"], "cancelled");
    assert_eq!(service.client.delete(&path).unwrap().status, 204, "it has ended");
    let all = start(&service, &json!({"do": "delete", "filter": {"state": ["ready"]}}));
    assert_eq!(ended(&service, &all)["state"], "completed");
}

#[test]
fn tasks_of_sqs_and_rest_are_one_list() {
    let service = service();
    let sqs = |operation: &str, asked: &Value| {
        let client = service.client.clone().with_header("x-amz-target", &format!("AmazonSQS.{operation}"));
        client.post("/", asked).unwrap()
    };
    let arn = |queue: &str| format!("arn:aws:sqs:us-east-1:000000000000:{queue}");
    service.client.put("/v2/queues/next", None).unwrap();
    let source = json!({"_dead_letter_queue": "q", "_max_claim_count": 1});
    service.client.put("/v2/queues/source", Some(&source)).unwrap();
    service.client.post_messages("q", &[json!(1)]).unwrap();
    let asked = json!({"SourceArn": arn("q"), "DestinationArn": arn("next")});
    assert_eq!(sqs("StartMessageMoveTask", &asked).status, 200);
    let listed = || service.client.get(TASKS).unwrap().json()["tasks"].take();
    let id = listed()[0]["id"].as_str().unwrap().to_owned();
    let task = ended(&service, &id);
    assert_eq!((&task["do"], &task["to"], &task["moved"]), (&json!("move"), &json!("next"), &json!(1)));
    assert!(task.get("filter").is_none(), "{task}");
    service.client.post_messages("q", &[json!(2)]).unwrap();
    let moved = start(&service, &json!({"do": "move", "to": "next"}));
    ended(&service, &moved);
    let deleted = start(&service, &json!({"do": "delete", "filter": {"state": ["ready"]}}));
    ended(&service, &deleted);
    assert_eq!(listed().as_array().unwrap().len(), 3);
    let asked = json!({"SourceArn": arn("q"), "MaxResults": 10});
    let results = sqs("ListMessageMoveTasks", &asked).json()["Results"].take();
    // SQS has no word for a deletion.
    assert_eq!(results.as_array().unwrap().len(), 2, "{results}");
    assert_eq!(results[0]["ApproximateNumberOfMessagesMoved"], 1);
}

fn refused(answer: &Answer) -> (u16, String) {
    let body = answer.json();
    (answer.status.as_u16(), body["description"].as_str().unwrap().to_owned())
}

#[test]
fn wrong_tasks_are_refused_and_named() {
    let service = service();
    service.client.post_messages("q", &[json!(1)]).unwrap();
    service.client.put("/v2/queues/f.fifo", Some(&json!({"_fifo": true}))).unwrap();
    let long = "x".repeat(1_025);
    for (task, field) in [
        (json!({"do": "copy"}), "do"),
        (json!({"do": "move"}), "to"),
        (json!({"do": "move", "to": "no/name"}), "to"),
        (json!({"do": "move", "to": "missing"}), "to"),
        (json!({"do": "move", "to": "q"}), "to"),
        (json!({"do": "move", "to": "f.fifo"}), "to"),
        (json!({"do": "requeue", "to": "origin"}), "to"),
        (json!({"do": "move", "to": "origin", "filter": {"state": ["done"]}}), "filter.state"),
        (json!({"do": "delete"}), "filter"),
        (json!({"do": "delete", "filter": {}}), "filter"),
        (json!({"do": "delete", "filter": {"contains": ""}}), "filter"),
        (json!({"do": "delete", "filter": {"min_age": 0, "min_attempts": 0}}), "filter"),
        (json!({"do": "delete", "filter": {"state": STATES}}), "filter"),
        (json!({"do": "delete", "filter": {"state": ["gone"]}}), "filter.state"),
        (json!({"do": "requeue", "filter": {"state": []}}), "filter.state"),
        (json!({"do": "delete", "filter": {"state": [], "tag": "eu"}}), "filter.state"),
        (json!({"do": "delete", "filter": {"tag": long}}), "filter.tag"),
        (json!({"do": "delete", "filter": {"group": "a b"}}), "filter.group"),
        (json!({"do": "delete", "filter": {"min_age": -1}}), "filter.min_age"),
        (json!({"do": "delete", "filter": {"max_age": 4_294_967_296_u64}}), "filter.max_age"),
        (json!({"do": "requeue", "rate": 0}), "rate"),
        (json!({"do": "requeue", "rate": 501}), "rate"),
        (json!({"do": "requeue", "max": 0}), "max"),
        (json!({"do": "requeue", "max": 9_007_199_254_740_992_u64}), "max"),
    ] {
        let (status, why) = refused(&service.client.post(TASKS, &task).unwrap());
        assert_eq!(status, 400, "{task}");
        assert!(why.starts_with(&format!("{field}:")), "{task}: {why}");
    }
    for task in [
        json!({}),
        json!({"do": 1}),
        json!({"do": "requeue", "filter": {"tags": "eu"}}),
        json!({"do": "requeue", "filter": {"tag": null}}),
        json!({"do": "requeue", "filter": {"state": "failed"}}),
        json!({"do": "requeue", "rate": null}),
        json!({"do": "requeue", "dry_run": "yes"}),
        json!({"do": "requeue", "limit": 1}),
    ] {
        assert_eq!(refused(&service.client.post(TASKS, &task).unwrap()).0, 400, "{task}");
    }
    assert_eq!(service.client.get(TASKS).unwrap().json(), json!({"tasks": []}));
}

#[test]
fn absent_queues_and_tasks_are_404() {
    let service = service();
    let none = "9b1f7d7e-6f0a-4a53-8f0d-2d2f4c7a1e55";
    let task = json!({"do": "requeue"});
    for (queue, is_there) in [("missing", false), ("q", true)] {
        if is_there {
            service.client.post_messages(queue, &[json!(1)]).unwrap();
        } else {
            let path = format!("/v2/queues/{queue}/tasks");
            assert_eq!(service.client.get(&path).unwrap().status, 404);
            assert_eq!(service.client.post(&path, &task).unwrap().status, 404);
            let dry = json!({"do": "requeue", "dry_run": true});
            assert_eq!(service.client.post(&path, &dry).unwrap().status, 404);
        }
        for id in [none, "nonsense"] {
            let path = format!("/v2/queues/{queue}/tasks/{id}");
            assert_eq!(service.client.get(&path).unwrap().status, 404, "{path}");
            assert_eq!(service.client.delete(&path).unwrap().status, 404, "{path}");
        }
    }
}

#[test]
fn task_continues_after_kill() {
    let service = service();
    let bodies: Vec<Value> = (0..60).map(Value::from).collect();
    service.client.post_messages("q", &bodies).unwrap();
    service.client.put("/v2/queues/next", None).unwrap();
    let id = start(&service, &json!({"do": "move", "to": "next", "rate": 20}));
    thread::sleep(Duration::from_millis(500));
    let service = service.again(Server::kill9);
    let later = service.client.post_messages("q", &[json!("later")]).unwrap().posted_ids();
    let task = ended(&service, &id);
    assert_eq!(task["state"], "completed", "{task}");
    assert_eq!(peeked(&service, "q", ""), later);
    let stats = service.client.stats("next").unwrap().json();
    assert_eq!(stats["messages"]["total"], 60, "{stats}");
}
