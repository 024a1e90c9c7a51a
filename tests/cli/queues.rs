//! `angarium queue`, against a real server.

use serde_json::{Value, json};

use super::canned::Canned;
use super::{Program, beside_a_server};
use angarium_core::time::Timestamp;

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
    let names: Vec<String> = (0..135).map(|number| format!("q{number:03}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    it.program.say(&[&["queue", "create"], names.as_slice()].concat());
    assert_eq!(it.program.plain(&["queue", "list"]), names);
    assert_eq!(it.program.plain(&["queue", "list", "--limit", "23"]), names[..23]);
    assert_eq!(it.program.plain(&["queue", "list", "--marker", "q040"]), names[41..]);
    assert_eq!(it.program.json(&["queue", "list", "--all"]).as_array().unwrap().len(), 135);
    assert_eq!(it.program.say(&["queue", "list"]).lines().count(), 136, "a head, and all of them");
}

#[test]
fn empty_listing_is_an_empty_array() {
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
fn queue_is_explained_in_a_sentence_or_whole() {
    let it = beside_a_server();
    it.program.say(&["message", "post", "q", "one"]);
    let sentence = "1 message is ready: a claim gets the oldest.";
    assert_eq!(it.program.say(&["queue", "explain", "q"]), format!("{sentence}\n"));
    assert_eq!(it.program.plain(&["queue", "explain", "q"]), [sentence]);
    let whole = it.program.json(&["queue", "explain", "q"]);
    assert_eq!((&whole["says"], &whole["ready"]), (&json!(sentence), &json!(1)));
}

#[test]
fn queue_is_held_and_released() {
    let it = beside_a_server();
    it.program.say(&["message", "post", "q", "one"]);
    let said = it.program.say(&["queue", "hold", "q", "--reason", "bad deploy"]);
    assert_eq!(said, "queue q is held until `angarium queue release q`: no message can be claimed\n");
    assert!(
        it.program
            .say(&["queue", "explain", "q"])
            .contains("the queue is held until it is released (bad deploy)")
    );
    let until = "2999-01-01T00:00:00Z";
    let terms = ["--reason", "again", "--discard", "--allow-claims", "--until", until];
    let hold = it.program.json(&[&["queue", "hold", "q"][..], &terms].concat());
    assert_eq!(
        (&hold["claim"], &hold["discard"], &hold["until"]),
        (&json!(false), &json!(true), &json!(until))
    );
    let (_, told) = it.program.hint(&["queue", "show", "q"]);
    assert_eq!(told, "angarium: queue q is held: again\n");
    assert_eq!(it.program.say(&["queue", "release", "q"]), "queue q is released\n");
    assert_eq!(it.program.json(&["queue", "explain", "q"]).get("held"), None);
    it.program.say(&["queue", "show", "q"]);
}

#[test]
fn hold_takes_duration_and_release_names_other_holds() {
    let it = beside_a_server();
    it.program.say(&["message", "post", "q", "one", "--group", "acme"]);
    let list = it.program.json(&["message", "peek", "q"]);
    assert_eq!(list[0]["details"]["group"], json!("acme"), "{list}");
    it.program.say(&["queue", "hold", "q", "--reason", "audit", "--group", "acme"]);
    let hold = it.program.json(&["queue", "hold", "q", "--reason", "bad deploy", "--until", "2h"]);
    let date = |date: &Value| Timestamp::from_calendar(date.as_str().unwrap()).unwrap();
    let lasts = date(&hold["until"]).seconds_since(date(&hold["at"]));
    assert!((7_100..=7_300).contains(&lasts), "{hold}");
    let (said, told) = it.program.hint(&["queue", "release", "q"]);
    assert_eq!(
        (&*said, &*told),
        ("queue q is released\n", "angarium: group acme of queue q is held: audit\n")
    );
    for (until, code) in [("soon", 1), ("99999999999999999", 2)] {
        let ended = it.program.run(&["queue", "hold", "q", "--reason", "x", "--until", until]);
        assert_eq!(ended.code, code, "{ended:?}");
    }
    assert_eq!(
        it.program.say(&["queue", "release", "q", "--group", "acme"]),
        "group acme of queue q is released\n"
    );
}

#[test]
fn stats_count_the_messages_of_each_queue() {
    let it = beside_a_server();
    it.program.say(&["message", "post", "q", "one"]);
    it.program.say(&["message", "post", "q", "two"]);
    it.program.say(&["claim", "create", "q", "--limit", "1"]);
    it.program.say(&["message", "post", "q", "later", "--delay", "10m"]);
    it.program.say(&["queue", "create", "other"]);
    let table = it.program.say(&["queue", "stats", "q", "other"]);
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["NAME", "READY", "CLAIMED", "DELAYED", "TRANSFER", "TOTAL", "OLDEST", "NEWEST"]);
    assert_eq!(rows[1][..6], ["q", "1", "1", "1", "0", "3"]);
    assert_eq!(rows[2], ["other", "0", "0", "0", "0", "0", "-", "-"]);
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
    let (out, told) = it.program.hint(&["queue", "stats", "q", "-o", "plain"]);
    assert_eq!(
        (out.as_str(), told.as_str()),
        ("0\n", "angarium: queue q does not exist: there is nothing to count\n")
    );
}

/// A mistyped queue was shown with its defaults, emptied, deleted and claimed from as if it were there.
#[test]
fn missing_queue_differs_from_empty_one() {
    let it = beside_a_server();
    it.program.say(&["queue", "create", "empty"]);
    for (args, told) in [
        (vec!["queue", "show"], "queue typo does not exist: these are the defaults of a new one"),
        (vec!["queue", "stats"], "queue typo does not exist: there is nothing to count"),
        (vec!["queue", "purge"], "queue typo does not exist"),
        (vec!["queue", "delete"], "queue typo did not exist"),
        (vec!["message", "list"], "queue typo does not exist"),
        (vec!["message", "pop"], "queue typo does not exist"),
        (vec!["message", "consume"], "queue typo does not exist"),
        (vec!["claim", "create"], "queue typo does not exist"),
        (vec!["claim", "list"], "queue typo does not exist"),
    ] {
        let of = |queue| it.program.hint(&[&args[..], &[queue]].concat()).1;
        assert_eq!(of("typo"), format!("angarium: {told}\n"), "{args:?}");
        if args[1] != "delete" {
            assert_eq!(of("empty"), "", "{args:?}");
        }
    }
}

#[test]
fn unknown_attribute_is_refused_with_hint() {
    let it = beside_a_server();
    for args in [
        ["queue", "create", "q", "--set", "_defualt_message_ttl=60"].as_slice(),
        ["queue", "set", "q", "_defualt_message_ttl=60"].as_slice(),
    ] {
        let refused = it.program.run(args);
        assert_eq!(refused.code, 2, "{refused:?}");
        assert!(refused.err.contains("did you mean `_default_message_ttl`?"), "{}", refused.err);
    }
    assert!(it.program.plain(&["queue", "list"]).is_empty());
    it.program.say(&["queue", "create", "q", "--set", "_of_my_own=1", "--allow-unknown"]);
    assert_eq!(it.program.json(&["queue", "show", "q"])["_of_my_own"], json!(1));
}

/// Those that the server has are all known to the command line.
#[test]
fn attributes_of_the_server_are_accepted() {
    let it = beside_a_server();
    let document: Value = serde_json::from_str(include_str!("../../openapi/angarium.json")).unwrap();
    let attributes = document["components"]["schemas"]["QueueAttributes"]["properties"].as_object().unwrap();
    assert!(attributes.len() > 20, "{attributes:?}");
    for key in attributes.keys() {
        it.program.say(&["queue", "create", "q", "--set", &format!("{key}=null")]);
    }
}

#[test]
fn listed_queues_are_counted() {
    let it = beside_a_server();
    it.program.say(&["message", "post", "q", "one"]);
    it.program.say(&["message", "post", "q", "two"]);
    it.program.say(&["message", "post", "q", "later", "--delay", "1m30s"]);
    it.program.say(&["claim", "create", "q", "--limit", "1", "--ttl", "2m"]);
    let table = it.program.say(&["queue", "list"]);
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["NAME", "READY", "CLAIMED", "DELAYED", "TRANSFER", "OLDEST", "IN/S", "OUT/S"]);
    assert_eq!(rows[1][..5], ["q", "1", "1", "1", "0"]);
    assert!(rows[1][5].ends_with('s') && rows[1][6] != "0.0" && rows[1][7] == "0.0", "{table}");
    assert_eq!(it.program.say(&["queue", "list", "--no-stats"]), "NAME\nq\n");
    assert_eq!(it.program.json(&["queue", "list"])[0]["stats"]["delayed"], json!(1));
}

/// Zaqar takes a parameter that it does not know for a filter, and would list nothing.
#[test]
fn server_without_queue_counts_is_not_asked() {
    let home = r#"{"resources": {"rel/queues": {"href-template": "/v2/queues{?marker,limit,detailed}"}}}"#;
    let page = r#"{"queues": [{"name": "q"}], "links": []}"#;
    let server = Canned::start(vec![("200 OK", home.to_owned()), ("200 OK", page.to_owned())]);
    assert_eq!(Program::new(Some(&server.url)).say(&["queue", "list"]), "NAME\nq\n");
    assert_eq!(server.asked()[1].line, "GET /v2/queues?limit=20");
}

#[test]
fn a_queue_is_moved_to_another_pool_and_waited_for() {
    let it = beside_a_server();
    it.program.say(&["pool", "create", "other", "--uri", "embedded:other", "--weight", "0"]);
    it.program.say(&["message", "post", "q", "one"]);
    let moved = it.program.say(&["queue", "migrate", "q", "other", "--wait", "30"]);
    assert_eq!(moved, "queue q is in pool other\n");
    // A claimed message stays where it is: the queue is on its way until a user turns it round.
    it.program.say(&["claim", "create", "q"]);
    let begun = it.program.json(&["queue", "migrate", "q", "default", "--rate", "10"]);
    assert_eq!(
        (&begun["from"], &begun["to"], &begun["rate"]),
        (&json!("other"), &json!("default"), &json!(10))
    );
    assert_eq!(it.program.plain(&["queue", "migration", "q"]), ["1"]);
    assert_eq!(it.program.json(&["queue", "cancel-migration", "q"])["state"], json!("canceled"));
}
