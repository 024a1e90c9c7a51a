//! `angarium queue`, against a real server.

use serde_json::json;

use super::beside_a_server;

#[test]
fn a_queue_is_created_once_and_keeps_its_metadata() {
    let it = beside_a_server();
    let create = |setting: &str| it.program.json(&["queue", "create", "orders", "--set", setting]);
    assert_eq!(create("team=red"), json!({"name": "orders", "created": true}));
    assert_eq!(create("team=blue"), json!({"name": "orders", "created": false}));
    assert_eq!(it.program.json(&["queue", "show", "orders"])["team"], json!("red"));
}

#[test]
fn queues_are_listed_through_all_pages() {
    let it = beside_a_server();
    let names: Vec<String> = (0..45).map(|number| format!("q{number:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    it.program.say(&[&["queue", "create"], names.as_slice()].concat());
    assert_eq!(it.program.plain(&["queue", "list"]), names);
    assert_eq!(it.program.plain(&["queue", "list", "--limit", "23"]), names[..23]);
    assert_eq!(it.program.plain(&["queue", "list", "--marker", "q40"]), names[41..]);
    assert_eq!(it.program.json(&["queue", "list", "--all"]).as_array().unwrap().len(), 45);
}

#[test]
fn an_empty_listing_says_so_and_is_an_empty_array() {
    let it = beside_a_server();
    assert_eq!(it.program.say(&["queue", "list"]), "there are no queues\n");
    assert_eq!(it.program.json(&["queue", "list"]), json!([]));
    assert!(it.program.plain(&["queue", "list"]).is_empty());
}

#[test]
fn metadata_is_set_and_unset_by_key() {
    let it = beside_a_server();
    it.program.say(&["queue", "create", "q"]);
    let set = it.program.json(&["queue", "set", "q", "a/~b=x y", "_default_message_ttl=120"]);
    assert_eq!((&set["a/~b"], &set["_default_message_ttl"]), (&json!("x y"), &json!(120)));
    let left = it.program.json(&["queue", "unset", "q", "a/~b"]);
    assert_eq!((left.get("a/~b"), &left["_default_message_ttl"]), (None, &json!(120)));
}

#[test]
fn stats_count_the_messages_of_each_queue() {
    let it = beside_a_server();
    it.program.say(&["message", "post", "q", "one"]);
    it.program.say(&["message", "post", "q", "two"]);
    it.program.say(&["claim", "create", "q", "--limit", "1"]);
    let table = it.program.say(&["queue", "stats", "q", "other"]);
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["NAME", "FREE", "CLAIMED", "TOTAL", "OLDEST", "NEWEST"]);
    assert_eq!(rows[1][..4], ["q", "1", "1", "2"]);
    assert_eq!(rows[2], ["other", "0", "0", "0", "-", "-"]);
}

#[test]
fn a_purge_empties_a_queue() {
    let it = beside_a_server();
    it.program.say(&["message", "post", "q", "one"]);
    it.program.say(&["queue", "purge", "q", "--only", "messages"]);
    assert_eq!(it.program.plain(&["queue", "stats", "q"]), ["0"]);
}

#[test]
fn queues_of_another_project_are_not_seen() {
    let it = beside_a_server();
    it.program.say(&["queue", "create", "q", "--project", "one"]);
    assert_eq!(it.program.plain(&["queue", "list", "--project", "one"]), ["q"]);
    assert!(it.program.plain(&["queue", "list", "--project", "two"]).is_empty());
}

#[test]
fn a_deleted_queue_is_gone_with_its_messages() {
    let it = beside_a_server();
    it.program.say(&["message", "post", "q", "one"]);
    it.program.say(&["queue", "delete", "q"]);
    assert!(it.program.plain(&["queue", "list"]).is_empty());
    assert_eq!(it.program.plain(&["queue", "stats", "q"]), ["0"]);
}

#[test]
fn a_queue_is_moved_to_another_pool_and_waited_for() {
    let it = beside_a_server();
    it.program.say(&["pool", "create", "other", "--uri", "embedded:other", "--weight", "0"]);
    it.program.say(&["message", "post", "q", "one"]);
    let moved = it.program.say(&["queue", "migrate", "q", "other", "--wait", "30"]);
    assert_eq!(moved, "queue q is in pool other\n");
    // A claimed message stays where it is: the queue is on its way until somebody turns it round.
    it.program.say(&["claim", "create", "q"]);
    let begun = it.program.json(&["queue", "migrate", "q", "default", "--rate", "10"]);
    assert_eq!(
        (&begun["from"], &begun["to"], &begun["rate"]),
        (&json!("other"), &json!("default"), &json!(10))
    );
    assert_eq!(it.program.plain(&["queue", "migration", "q"]), ["1"]);
    assert_eq!(it.program.json(&["queue", "cancel-migration", "q"])["state"], json!("canceled"));
}
