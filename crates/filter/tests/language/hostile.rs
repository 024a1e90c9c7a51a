//! Input that is made to hurt: it is refused or answered, in bounded stack and time.

use std::fmt::Write;
use std::thread;

use angarium_core::message_attribute::MessageAttributes;
use angarium_filter::limits::{DOTTED_PARTS, JSON_LEVELS, POLICY_BYTES};
use angarium_filter::{FilterPolicy, FilterScope, MessageView};
use proptest::prelude::*;

use crate::verdict::{accepts_attributes, accepts_body, refusal};

/// Stack of a thread for the deepest input. Threads of the service have 2 MiB; a debug build needs the most.
const STACK: usize = 1 << 20;

fn on_small_stack(check: impl FnOnce() + Send + 'static) {
    thread::Builder::new().stack_size(STACK).spawn(check).unwrap().join().unwrap();
}

#[test]
fn deep_json_is_refused_not_followed() {
    on_small_stack(|| {
        for open in ["[", r#"{"a":"#, r#"[{"a":"#, r#"{"a.b":"#] {
            let text = open.repeat(POLICY_BYTES / open.len());
            let found = refusal(&text, FilterScope::Body);
            assert!(found.contains("levels of JSON"), "{open}: {found}");
            let body = format!(r#"{{"a": {text}"#);
            assert!(!accepts_body(r#"{"a": [{"exists": false}]}"#, body.as_bytes()), "{open}");
            assert!(!accepts_attributes(r#"{"a": [1]}"#, &[("a", "String.Array", &text)]), "{open}");
        }
    });
}

#[test]
fn deepest_json_is_read_on_a_small_stack() {
    on_small_stack(|| {
        let levels = JSON_LEVELS - 1;
        let policy = format!("{}[1]{}", r#"{"a":"#.repeat(levels), "}".repeat(levels));
        let body = format!("{}1{}", r#"{"a":"#.repeat(levels), "}".repeat(levels));
        assert!(accepts_body(&policy, body.as_bytes()));
        assert!(!accepts_body(&policy, body.replace('1', "2").as_bytes()));
        let array = format!(r#"{{"a": {}1{}}}"#, "[".repeat(levels), "]".repeat(levels));
        assert!(accepts_body(r#"{"a": [1]}"#, array.as_bytes()));
        let or = r#"{"$or": [{"b": [1]}, "#;
        let whole = format!("{}{}{}", or.repeat(60), r#"{"a": [1]}"#, "]}".repeat(60));
        assert!(accepts_body(&whole, br#"{"a": 1}"#) && !accepts_body(&whole, b"{}"));
    });
}

#[test]
fn exponential_or_is_refused_by_its_combinations() {
    let mut policy = String::from("{");
    for level in 0..30 {
        write!(policy, r#""a{level}": {{"$or": [{{"b": [1]}}, {{"b": [2]}}]}}, "#).unwrap();
    }
    policy.push_str(r#""z": [1]}"#);
    assert!(refusal(&policy, FilterScope::Body).starts_with("filter: more than"));
    // One key in all branches, each of which is an `$or` again.
    let mut nested = r#"{"b": [1]}"#.to_owned();
    for _ in 0..12 {
        nested = format!(r#"{{"$or": [{nested}, {nested}]}}"#);
    }
    assert!(nested.len() < POLICY_BYTES);
    assert!(refusal(&nested, FilterScope::Attributes).starts_with("filter: more than 150 combinations"));
}

#[test]
fn wide_input_is_answered() {
    let many = |part: &dyn Fn(usize) -> String| (0..25_000).map(part).collect::<Vec<_>>().join(",");
    let prefixes = many(&|number| format!("\"x{number}\""));
    let policy = format!(r#"{{"a": [{{"anything-but": {{"prefix": [{prefixes}]}}}}]}}"#);
    let array = |part: &dyn Fn(usize) -> String| format!(r#"{{"a": [{}]}}"#, many(part));
    assert!(!accepts_body(&policy, array(&|number| format!("\"x{number}y\"")).as_bytes()));
    let objects = array(&|number| format!(r#"{{"b": {number}}}"#));
    assert!(accepts_body(r#"{"a": {"b": [24999]}}"#, objects.as_bytes()));
    assert!(!accepts_body(r#"{"a": {"b": [25000]}}"#, objects.as_bytes()));
    // Keys with dots are joined once, not for each of them.
    let dotted = format!("{{{}}}", many(&|number| format!(r#""a.k{number}": {number}"#)));
    assert!(accepts_body(r#"{"a": {"k24999": [24999]}}"#, dotted.as_bytes()));
    let repeated = format!("{{{}}}", many(&|number| format!(r#""a": {number}"#)));
    assert!(accepts_body(r#"{"a": [24999]}"#, repeated.as_bytes()));
    assert!(!accepts_body(r#"{"a": [0]}"#, repeated.as_bytes()));
}

#[test]
fn key_of_many_dots_is_literal() {
    let key = ".".repeat(100_000);
    let body = format!(r#"{{"{key}": 1, "a": 2}}"#);
    assert!(accepts_body(r#"{"a": [2]}"#, body.as_bytes()));
    assert!(accepts_body(&format!(r#"{{"{key}": [1]}}"#), body.as_bytes()));
    let path = vec!["a"; DOTTED_PARTS].join(".");
    let levels = JSON_LEVELS / DOTTED_PARTS;
    let deep =
        |levels: usize| format!("{}[1]{}", format!(r#"{{"{path}":"#).repeat(levels), "}".repeat(levels));
    assert!(accepts_body(&deep(levels - 1), deep(levels - 1).as_bytes()));
    assert!(refusal(&deep(levels + 1), FilterScope::Body).contains("more than 128 levels of keys"));
}

#[test]
fn huge_numbers_are_compared_by_their_digits() {
    let zeros = "0".repeat(100_000);
    let huge = format!("1{zeros}");
    for (rule, number, accepted) in [
        (huge.as_str(), huge.as_str(), true),
        (&huge, "1e100000", true),
        (&huge, "1e100001", false),
        (r#"{"numeric": [">", 5]}"#, "1e999999999999999999999999", true),
        (r#"{"numeric": [">", 5]}"#, "-1e999999999999999999999999", false),
        (r#"{"numeric": [">", 0, "<", 0.00001]}"#, "1e-999999999999999999999999", true),
        ("0", "0e999999999999999999999999", true),
    ] {
        let policy = format!(r#"{{"a": [{rule}]}}"#);
        let body = format!(r#"{{"a": {number}}}"#);
        assert_eq!(accepts_body(&policy, body.as_bytes()), accepted, "{} {}", rule.len(), number.len());
        assert_eq!(accepts_attributes(&policy, &[("a", "Number", number)]), accepted);
    }
}

#[test]
fn repeated_keys_cannot_hide_a_value() {
    let policy = r#"{"role": [{"anything-but": "admin"}]}"#;
    assert!(!accepts_body(policy, br#"{"role": "user", "role": "admin"}"#));
    assert!(accepts_body(policy, br#"{"role": "admin", "role": "user"}"#));
    assert!(!accepts_body(policy, br#"{"role": "user", "r\u006fle": "admin"}"#));
}

const SEEDS: [&str; 4] = [
    r#"{"a": ["x", 1.5, null, true, {"prefix": "p"}, {"exists": false}, {"cidr": "10.0.0.0/8"}], "b.c": [2]}"#,
    r#"{"$or": [{"a": [{"numeric": [">", 0, "<=", 5e0]}]}, {"b": {"c": [{"suffix": "s"}]}}], "d": [1]}"#,
    r#"{"a": [{"anything-but": ["x", "y"]}, {"anything-but": {"prefix": ["p"]}}, {"anything-but": [1, 2]}]}"#,
    r#"{"b": {"c": [{"equals-ignore-case": "É"}], "$or": [{"x": [1]}, {"y.z": [2]}]}}"#,
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn nearly_right_input_never_panics(
        seed in prop::sample::select(&SEEDS[..]),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0usize..8), 0..4),
        noise in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let mut text = seed.as_bytes().to_vec();
        for (from, to, length) in edits {
            let from = from.index(text.len());
            let part = text[from..(from + length).min(text.len())].to_vec();
            let to = to.index(text.len());
            text.splice(to..(to + length / 2).min(text.len()), part);
        }
        for scope in [FilterScope::Body, FilterScope::Attributes] {
            let Ok(policy) = std::str::from_utf8(&text) else { continue };
            match FilterPolicy::parse("filter", policy, scope) {
                Ok(policy) => {
                    for body in SEEDS.iter().map(|seed| seed.as_bytes()).chain([&text[..], &noise]) {
                        policy.accepts(&MessageView::new(&MessageAttributes::default(), body));
                    }
                }
                Err(error) => prop_assert!(error.to_string().starts_with("filter"), "{error}"),
            }
        }
    }
}
