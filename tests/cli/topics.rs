//! `angarium topic`, and `topic:NAME` where a command takes a queue, against a real server.

use serde_json::{Value, json};

use super::beside_a_server;

#[test]
fn topic_is_created_shown_listed_and_deleted() {
    let it = beside_a_server();
    assert_eq!(it.program.say(&["topic", "list"]), "there are no topics\n");
    let create = || it.program.json(&["topic", "create", "news", "--set", "team=red"]);
    assert_eq!(create(), json!({"name": "news", "created": true}));
    assert_eq!(create(), json!({"name": "news", "created": false}));
    assert_eq!(it.program.json(&["topic", "set", "news", "_default_message_ttl=120"])["team"], json!("red"));
    assert_eq!(it.program.json(&["topic", "unset", "news", "team"]).get("team"), None);
    assert_eq!(it.program.json(&["topic", "show", "news"])["_default_message_ttl"], json!(120));
    it.program.say(&["queue", "create", "orders"]);
    assert_eq!(it.program.plain(&["topic", "list"]), ["news"]);
    assert_eq!(it.program.plain(&["queue", "list", "--no-stats"]), ["orders"]);
    assert_eq!(it.program.say(&["topic", "delete", "news"]), "topic news is gone\n");
    assert_eq!(it.program.json(&["topic", "list"]), json!([]));
}

#[test]
fn subscription_of_topic_is_read_as_queue() {
    let it = beside_a_server();
    it.program.say(&["topic", "create", "news"]);
    let id = it.program.plain(&["subscription", "create", "topic:news", "pull:a"]).remove(0);
    let explained = it.program.say(&["topic", "explain", "news"]);
    assert!(explained.starts_with("This is a topic with 1 subscription"), "{explained}");
    for body in ["one", "two"] {
        it.program.say(&["message", "post", "topic:news", body]);
    }
    assert_eq!(it.program.plain(&["subscription", "list", "topic:news"]), [id.as_str()]);
    let own = format!("topic:news/{id}");
    let stats = it.program.json(&["queue", "stats", &own]);
    assert_eq!(stats[&own]["messages"]["total"], json!(2));
    let popped: Value = it.program.json(&["message", "pop", &own, "--count", "2"]);
    assert!(popped.to_string().contains("two"), "{popped}");
    assert_eq!(it.program.say(&["topic", "purge", "news"]), "topic news is purged\n");
    assert!(it.program.plain(&["subscription", "list", "topic:news"]).is_empty());
}

#[test]
fn held_topic_names_its_release() {
    let it = beside_a_server();
    it.program.say(&["topic", "create", "news"]);
    let held = it.program.say(&["topic", "hold", "news", "--post", "--reason", "bad deploy"]);
    assert_eq!(held, "topic news is held until `angarium topic release news`: posts are refused\n");
    assert_eq!(it.program.say(&["topic", "release", "news"]), "topic news is released\n");
}
