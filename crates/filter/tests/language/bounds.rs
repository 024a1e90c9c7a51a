//! The bounds of a policy: at them it is taken, beyond them it is refused.

use angarium_filter::limits::{POLICY_BYTES, POLICY_COMBINATIONS, POLICY_KEYS};
use angarium_filter::{FilterPolicy, FilterScope};

use crate::verdict::refusal;

const COMBINATIONS: &str = "filter: more than 150 combinations of values";
const KEYS: &str = "filter: more than 5 keys,";

fn assert_taken(policy: &str, scope: FilterScope) {
    FilterPolicy::parse("filter", policy, scope).unwrap_or_else(|error| panic!("{policy}: {error}"));
}

fn assert_refused(policy: &str, scope: FilterScope, why: &str) {
    let found = refusal(policy, scope);
    assert!(found.starts_with(why), "{policy}: {found}");
}

/// An array of so many values.
fn values(count: u64) -> String {
    let values: Vec<String> = (0..count).map(|value| value.to_string()).collect();
    format!("[{}]", values.join(","))
}

#[test]
fn combinations_are_the_product_of_values() {
    let policy = |a, b| format!(r#"{{"a": {}, "b": {}}}"#, values(a), values(b));
    for scope in [FilterScope::Attributes, FilterScope::Body] {
        assert_taken(&format!(r#"{{"a": {}}}"#, values(POLICY_COMBINATIONS)), scope);
        assert_refused(&format!(r#"{{"a": {}}}"#, values(POLICY_COMBINATIONS + 1)), scope, COMBINATIONS);
        assert_taken(&policy(50, 3), scope);
        assert_refused(&policy(51, 3), scope, COMBINATIONS);
    }
}

#[test]
fn level_of_a_key_multiplies_its_values() {
    // 4 values at level 3, 3 at level 2: 72. With 2 more: 144; with 3 more: 216.
    let nested = |more| {
        format!(
            r#"{{"a": {{"b": {{"c": {}}}}}, "d": {{"e": {}}}, "f": {}}}"#,
            values(4),
            values(3),
            values(more)
        )
    };
    assert_taken(&nested(2), FilterScope::Body);
    assert_refused(&nested(3), FilterScope::Body, COMBINATIONS);
}

#[test]
fn objects_of_or_add_up() {
    // 3 × (6 + 4 × (4 + 7)) = 150, and one more.
    let or = |last| {
        format!(
            r#"{{"source": {}, "$or": [{{"m": {}}}, {{"t": {}, "$or": [{{"i": {}}}, {{"s": {}}}]}}]}}"#,
            values(3),
            values(6),
            values(4),
            values(4),
            values(last)
        )
    };
    assert_taken(&or(7), FilterScope::Attributes);
    assert_refused(&or(8), FilterScope::Attributes, COMBINATIONS);
    // (3 + 2) × 2·2 × (1·2 + 3·2) = 160.
    let nested = format!(
        r#"{{"$or": [{{"m": {}}}, {{"n": {}}}], "d": {{"c": {}, "$or": [{{"s": {}}}, {{"t": {}}}]}}}}"#,
        values(3),
        values(2),
        values(2),
        values(1),
        values(3)
    );
    assert_refused(&nested, FilterScope::Body, COMBINATIONS);
}

#[test]
fn list_of_anything_but_is_one_value() {
    let list: Vec<String> = (0..20_000).map(|number| format!("\"{number}\"")).collect();
    assert_taken(&format!(r#"{{"a": [{{"anything-but": [{}]}}]}}"#, list.join(",")), FilterScope::Body);
}

#[test]
fn outermost_keys_are_counted() {
    let flat = |count: usize| {
        let keys: Vec<String> = (0..count).map(|key| format!(r#""k{key}": [1]"#)).collect();
        format!("{{{}}}", keys.join(","))
    };
    for scope in [FilterScope::Attributes, FilterScope::Body] {
        assert_taken(&flat(POLICY_KEYS), scope);
        assert_refused(&flat(POLICY_KEYS + 1), scope, KEYS);
    }
    // Keys below others do not count, and the same key counts once.
    let nested = r#"{"b": [1], "c": [1], "d": [1], "e": [1], "f": [1], "g": [1]}"#;
    assert_taken(&format!(r#"{{"a": {nested}}}"#), FilterScope::Body);
    let six = r#"{"a": {"x": [1]}, "b": [1], "c": [1], "d": [1], "e": [1], "f": [1]}"#;
    assert_refused(six, FilterScope::Body, KEYS);
    // A key with dots is one of the outermost level, whatever its path.
    let dotted = r#"{"a.b": [1], "a.c": [1], "a.d": [1], "a.e": [1], "a.f": [1], "a.g": [1]}"#;
    assert_refused(dotted, FilterScope::Body, KEYS);
    // The combinations bound the nested ones.
    let deep = r#"{"b": [1], "c": [1], "d": [1], "e": [1], "f": [1], "g": [1], "h": [1], "i": [1]}"#;
    assert_refused(&format!(r#"{{"a": {deep}}}"#), FilterScope::Body, COMBINATIONS);
    let branches: Vec<String> = (0..10).map(|value| format!(r#"{{"a": [{value}], "b": [1]}}"#)).collect();
    assert_taken(&format!(r#"{{"$or": [{}], "a.x": [1]}}"#, branches.join(",")), FilterScope::Body);
    assert_refused(
        r#"{"$or": [{"a": [1], "b": [1], "c": [1]}, {"d": [1], "e": [1], "f": [1]}]}"#,
        FilterScope::Attributes,
        KEYS,
    );
}

#[test]
fn text_of_a_policy_is_bounded() {
    let policy = |bytes: usize| {
        let frame = r#"{"a": [""]}"#;
        frame.replace("\"\"", &format!("\"{}\"", "x".repeat(bytes - frame.len())))
    };
    assert_taken(&policy(POLICY_BYTES), FilterScope::Body);
    assert_refused(&policy(POLICY_BYTES + 1), FilterScope::Body, "filter: 262145 bytes, more than 262144");
}
