//! Keys below keys, arrays, `$or` and dots.

use crate::verdict::assert_bodies;

#[test]
fn all_keys_must_accept() {
    assert_bodies(
        r#"{"interests": ["rugby"], "price": [{"numeric": [">", 100]}]}"#,
        &[r#"{"interests": "rugby", "price": 101, "other": []}"#],
        &[r#"{"interests": "rugby", "price": 100}"#, r#"{"interests": "rugby"}"#, r#"{"price": 101}"#, "{}"],
    );
}

#[test]
fn keys_below_keys_are_found() {
    assert_bodies(
        r#"{"object": {"key": [{"prefix": "auto-"}, "fixed"], "nested": [{"exists": false}]}, "test": [{"exists": false}]}"#,
        &[r#"{"object": {"key": "auto-test"}}"#, r#"{"object": {"key": "fixed"}}"#],
        &[
            r#"{"object": {"key": "test-auto"}}"#,
            r#"{"object": {"key": "auto-test"}, "test": "present"}"#,
            r#"{"object": {"key": "auto-test", "nested": "present"}}"#,
            r#"{"object": {"test": "auto-test"}}"#,
            r#"{"test": "auto-test"}"#,
            r#"{"object": "fixed"}"#,
        ],
    );
}

#[test]
fn keys_below_an_absent_key_are_absent() {
    assert_bodies(
        r#"{"a": {"b": {"c": [{"exists": false}]}}}"#,
        &["{}", r#"{"a": 5}"#, r#"{"a": {}}"#, r#"{"a": {"b": []}}"#, r#"{"a": [1, [2]]}"#],
        &[r#"{"a": {"b": {"c": 1}}}"#, r#"{"a": [{"b": [[{"c": [1]}]]}]}"#],
    );
}

#[test]
fn array_counts_as_its_elements() {
    let policy = r#"{"headers": {"route-to": ["queue1"]}}"#;
    assert_bodies(
        policy,
        &[
            r#"{"headers": {"route-to": "queue1"}}"#,
            r#"{"headers": {"route-to": ["queue2", "queue1"]}}"#,
            r#"{"headers": {"route-to": [["queue2"], [["queue1"]]]}}"#,
            r#"{"headers": [{"x": 1}, {"route-to": ["queue1"]}]}"#,
        ],
        &[
            r#"{"headers": {"route-to": ["queue2"]}}"#,
            r#"{"headers": {"route-to": [{"route-to": "queue1"}]}}"#,
            r#"{"headers": ["queue1"]}"#,
        ],
    );
}

#[test]
fn one_element_of_an_array_has_all_keys() {
    let policy = r#"{"Records": {"s3": {"object": {"key": [{"prefix": "auto-"}]}}, "eventName": [{"prefix": "ObjectCreated:"}]}}"#;
    let record = |key: &str, event: &str| {
        format!(r#"{{"eventName": "{event}", "s3": {{"object": [[{{"key": "{key}"}}]]}}}}"#)
    };
    let body = |records: &[String]| format!(r#"{{"Records": [{}]}}"#, records.join(", "));
    let (created, removed) = ("ObjectCreated:Put", "ObjectRemoved:Delete");
    let matching = record("auto-1", created);
    assert_bodies(
        policy,
        &[
            &body(std::slice::from_ref(&matching)),
            &body(&[record("home-1", removed), matching.clone()]),
            &body(&[matching, record("home-1", removed)]),
        ],
        &[
            &body(&[record("auto-1", removed)]),
            &body(&[record("home-1", created)]),
            &body(&[record("auto-1", removed), record("home-1", created)]),
        ],
    );
}

#[test]
fn one_object_of_or_must_accept() {
    assert_bodies(
        r#"{
            "source": ["aws"],
            "$or": [
                {"metric": ["cpu", "latency"]},
                {"type": ["t"], "$or": [{"id": [1]}, {"id": [2], "zone": ["z"]}]}
            ]
        }"#,
        &[
            r#"{"source": "aws", "metric": "latency"}"#,
            r#"{"source": "aws", "type": "t", "id": 1}"#,
            r#"{"source": "aws", "type": "t", "id": 2, "zone": "z"}"#,
        ],
        &[
            r#"{"metric": "cpu"}"#,
            r#"{"source": "aws"}"#,
            r#"{"source": "aws", "type": "t", "id": 2}"#,
            r#"{"source": "aws", "id": 1}"#,
            r#"{"source": "aws", "$or": [{"metric": "cpu"}]}"#,
        ],
    );
}

#[test]
fn or_below_a_key_is_about_keys_there() {
    assert_bodies(
        r#"{"$or": [{"m": ["cpu"]}, {"n": ["ec2"]}], "detail": {"scope": ["s"], "$or": [{"x": [1]}, {"y": [2]}]}}"#,
        &[
            r#"{"m": "cpu", "detail": {"scope": "s", "x": 1}}"#,
            r#"{"n": "ec2", "detail": {"scope": "s", "y": [2]}}"#,
            r#"{"n": "ec2", "detail": [{"scope": "t", "x": 1}, {"scope": "s", "y": 2}]}"#,
            r#"{"n": "ec2", "detail": [{"scope": "s", "y": 2}, {"scope": "t", "x": 1}]}"#,
        ],
        &[
            r#"{"m": "cpu", "detail": {"scope": "s"}, "x": 1}"#,
            r#"{"detail": {"scope": "s", "x": 1}}"#,
            r#"{"n": "ec2", "detail": [{"scope": "t", "x": 1}, {"scope": "s", "y": 3}]}"#,
        ],
    );
}

#[test]
fn same_key_in_and_beside_or_follows_both() {
    assert_bodies(
        r#"{"k": [{"prefix": "a"}], "$or": [{"k": [{"suffix": "z"}]}, {"j": [1]}]}"#,
        &[r#"{"k": "az"}"#, r#"{"k": "a", "j": 1}"#],
        &[r#"{"k": "a"}"#, r#"{"k": "z"}"#, r#"{"k": "z", "j": 1}"#],
    );
}

#[test]
fn or_without_two_plain_objects_is_a_key() {
    assert_bodies(r#"{"$or": ["a", "b"]}"#, &[r#"{"$or": "b"}"#], &[r#"{"a": "b"}"#]);
    assert_bodies(r#"{"$or": [{"prefix": "a"}]}"#, &[r#"{"$or": "ab"}"#], &[r#"{"prefix": "a"}"#]);
    assert_bodies(
        r#"{"$or": [{"numeric": ["=", 1]}, {"prefix": "a"}]}"#,
        &[r#"{"$or": 1}"#, r#"{"$or": "ab"}"#],
        &[r#"{"prefix": "a"}"#, r#"{"$or": 2}"#],
    );
    assert_bodies(r#"{"$or": {"a": [1], "b": [2]}}"#, &[r#"{"$or": {"a": 1, "b": 2}}"#], &[r#"{"a": 1}"#]);
}

#[test]
fn dot_in_a_key_is_a_level() {
    for policy in [r#"{"a.b.c": ["x"]}"#, r#"{"a": {"b.c": ["x"]}}"#, r#"{"a": {"b": {"c": ["x"]}}}"#] {
        assert_bodies(
            policy,
            &[
                r#"{"a": {"b": {"c": "x"}}}"#,
                r#"{"a.b.c": "x"}"#,
                r#"{"a.b": {"c": "x"}}"#,
                r#"{"a": {"b.c": "x"}}"#,
            ],
            &[r#"{"a": {"b": {"c": "y"}}}"#, r#"{"a.b": "x"}"#, r#"{"c": "x"}"#],
        );
    }
    let both = r#"{"a.b": [1], "a": {"c": [2]}}"#;
    assert_bodies(both, &[r#"{"a": [{"b": 1, "c": 2}]}"#], &[r#"{"a": [{"b": 1}, {"c": 2}]}"#]);
}

#[test]
fn empty_policy_accepts_everything() {
    assert_bodies("{}", &["{}", "no JSON", "", "[1]"], &[]);
}
