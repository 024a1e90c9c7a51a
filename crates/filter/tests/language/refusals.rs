//! Policies that are refused, with the path of the wrong part.

use angarium_core::error::{Error, InvalidPart};
use angarium_filter::{FilterPolicy, FilterScope};

use crate::verdict::refusal;

/// Checks the begin of the refusals of policies for bodies.
fn assert_refusals(rows: &[(&str, &str)]) {
    for (policy, expected) in rows {
        let found = refusal(policy, FilterScope::Body);
        assert!(found.starts_with(expected), "{policy}: {found}");
    }
}

#[test]
fn policy_without_a_json_object_is_refused() {
    assert_refusals(&[
        ("", "filter: the text ends within JSON (byte 0)"),
        ("[]", "filter: an array instead of an object"),
        ("5", "filter: a number instead of an object"),
        ("{\"a\": [1]", "filter: a comma or } is expected (byte 9)"),
        ("{\"a\": [1]} x", "filter: text after the end of the JSON (byte 11)"),
        (r#"{"a": [1], "a": [2]}"#, "filter: the key a is there more than once"),
        (r#"{"a": [{"prefix": "x", "prefix": "y"}]}"#, "filter: the key prefix is there more than once"),
    ]);
}

#[test]
fn key_without_rules_is_refused() {
    assert_refusals(&[
        (r#"{"a": "x"}"#, "filter.a: a string instead of an array of values and rules, or an object"),
        (r#"{"a": {"suffix": "x"}}"#, "filter.a.suffix: a string instead of an array"),
        (r#"{"a": null}"#, "filter.a: null instead of an array"),
        (r#"{"a": []}"#, "filter.a: the array is empty"),
        (r#"{"a": {}}"#, "filter.a: the object has no key"),
        (r#"{"a": {"b": [1], "c": {}}}"#, "filter.a.c: the object has no key"),
        (r#"{"a": [["x"]]}"#, "filter.a[0]: an array instead of a string, number, boolean, null or object"),
        (r#"{"$or": [{"a": [1]}, {}]}"#, "filter.$or[1]: the object has no key"),
        (r#"{"$or": [{"a": [1]}, {"b": 5}]}"#, "filter.$or[1].b: a number instead of an array"),
        (r#"{"$or": [{"a": [1]}]}"#, "filter.$or[0].a: unknown operator"),
        (r#"{"$or": []}"#, "filter.$or: the array is empty"),
    ]);
}

#[test]
fn rule_with_a_wrong_operator_is_refused() {
    assert_refusals(&[
        (r#"{"a": [1, {}]}"#, "filter.a[1]: a rule has exactly one operator"),
        (r#"{"a": [{"suffix": "x", "prefix": "y"}]}"#, "filter.a[0]: a rule has exactly one operator"),
        (r#"{"a": [{"wildcard": "x*"}]}"#, "filter.a[0].wildcard: unknown operator: use anything-but"),
        (r#"{"a": [{"Prefix": "x"}]}"#, "filter.a[0].Prefix: unknown operator"),
    ]);
}

#[test]
fn rule_with_a_wrong_operand_is_refused() {
    assert_refusals(&[
        (r#"{"a": [{"prefix": 5}]}"#, "filter.a[0].prefix: a number instead of a string"),
        (r#"{"a": [{"suffix": ["x", "y"]}]}"#, "filter.a[0].suffix: an array instead of a string"),
        (r#"{"a": [{"suffix": null}]}"#, "filter.a[0].suffix: null instead of a string"),
        (r#"{"a": [{"equals-ignore-case": {}}]}"#, "filter.a[0].equals-ignore-case: an object instead"),
        (r#"{"a": [{"exists": null}]}"#, "filter.a[0].exists: null instead of true or false"),
        (r#"{"a": [{"exists": "no"}]}"#, "filter.a[0].exists: a string instead of true or false"),
        (r#"{"a": [{"cidr": 10}]}"#, "filter.a[0].cidr: a number instead of a string"),
        (r#"{"a": [{"cidr": "10.0.0.1"}]}"#, "filter.a[0].cidr: no network"),
        (r#"{"a": [{"cidr": "10.0.0.0/33"}]}"#, "filter.a[0].cidr: no network"),
        (r#"{"a": [{"cidr": "10.0.0/8"}]}"#, "filter.a[0].cidr: no network"),
        (r#"{"a": [{"cidr": "::/129"}]}"#, "filter.a[0].cidr: no network"),
        (r#"{"a": [{"cidr": "10.0.0.0/8/8"}]}"#, "filter.a[0].cidr: no network"),
    ]);
}

#[test]
fn numeric_with_wrong_terms_is_refused() {
    let at = |place: &str, why: &str| format!("filter.a[0].numeric{place}: {why}");
    for (terms, place, why) in [
        ("5", "", "a number instead of an array"),
        ("[]", "", "an operator and a number are expected"),
        (r#"["="]"#, "", "an operator and a number are expected"),
        (r#"["!=", 5]"#, "[0]", "the operator is none of"),
        (r#"[5, "<"]"#, "[0]", "a number instead of one of"),
        (r#"["=", "000"]"#, "[1]", "a string instead of a number"),
        (r#"["<", 100, ">", 10]"#, "", "a range begins with > or >="),
        (r#"[">=", 1, ">", 2]"#, "", "a range begins with > or >="),
        (r#"["=", 1, "<", 2]"#, "", "a range begins with > or >="),
        (r#"[">", 1, "=", 2]"#, "", "a range begins with > or >="),
        (r#"[">", 3, "<", 1]"#, "", "the bottom of the range is not less than its top"),
        (r#"[">=", 1, "<=", 1.0]"#, "", "the bottom of the range is not less than its top"),
        (r#"[">", 20, "<="]"#, "", "at most two operators"),
        (r#"[">", 20, 30, 40]"#, "[2]", "a number instead of one of"),
        (r#"[">", 20, "test", 30]"#, "[2]", "the operator is none of"),
        (r#"[">", 20, "<", "30"]"#, "[3]", "a string instead of a number"),
        (r#"[">", 20, "<", 30, "<", 50]"#, "", "at most two operators"),
        (r#"["<", 1000000000.1]"#, "[1]", "the number is not within"),
        (r#"[">", -1000000001]"#, "[1]", "the number is not within"),
        (r#"["<", 1e400]"#, "[1]", "the number is not within"),
        (r#"["<", 0.000001]"#, "[1]", "more than 5 digits after the point"),
    ] {
        assert_refusals(&[(&format!(r#"{{"a": [{{"numeric": {terms}}}]}}"#), &at(place, why))]);
    }
    for terms in [r#"["<", 1000000000.00000]"#, r#"["=", -1e9]"#, r#"[">", 0.00001, "<", 1200e-7]"#] {
        let policy = format!(r#"{{"a": [{{"numeric": {terms}}}]}}"#);
        FilterPolicy::parse("filter", &policy, FilterScope::Body).unwrap();
    }
}

#[test]
fn anything_but_with_wrong_values_is_refused() {
    let at = |place: &str, why: &str| format!("filter.a[0].anything-but{place}: {why}");
    for (operand, place, why) in [
        ("null", "", "null instead of"),
        ("true", "", "a boolean instead of"),
        ("[]", "", "the array is empty"),
        (r#"["x", 5]"#, "[1]", "a number instead of a string"),
        (r#"[5, "x"]"#, "[1]", "a string instead of a number"),
        (r#"["x", null]"#, "[1]", "null instead of a string"),
        (r#"[{"prefix": "x"}]"#, "[0]", "an object instead of a string"),
        ("{}", "", "exactly one of"),
        (r#"{"prefix": "x", "suffix": "y"}"#, "", "exactly one of"),
        (r#"{"exists": false}"#, ".exists", "anything-but takes"),
        (r#"{"numeric": ["=", 5]}"#, ".numeric", "anything-but takes"),
        (r#"{"prefix": false}"#, ".prefix", "a boolean instead of a string"),
        (r#"{"prefix": []}"#, ".prefix", "the array is empty"),
        (r#"{"prefix": ["x", ""]}"#, ".prefix", "an empty string"),
        (r#"{"suffix": ""}"#, ".suffix", "an empty string"),
        (r#"{"equals-ignore-case": ["x", 5]}"#, ".equals-ignore-case[1]", "a number instead of a string"),
    ] {
        assert_refusals(&[(&format!(r#"{{"a": [{{"anything-but": {operand}}}]}}"#), &at(place, why))]);
    }
}

#[test]
fn attributes_have_no_keys_below_them() {
    let policy = r#"{"a": {"b": [1]}}"#;
    assert_eq!(
        refusal(policy, FilterScope::Attributes),
        "filter.a: an object instead of an array, as attributes have no keys below them"
    );
    FilterPolicy::parse("filter", policy, FilterScope::Body).unwrap();
}

#[test]
fn refusal_tells_form_from_bound() {
    let place = |policy: &str| match FilterPolicy::parse("FilterPolicy", policy, FilterScope::Body) {
        Err(Error::Invalid { place, field, .. }) => (place, field),
        other => panic!("{other:?}"),
    };
    assert_eq!(place(r#"{"a": 5}"#), (InvalidPart::Body, "FilterPolicy.a".to_owned()));
    let numeric = r#"{"a": [{"numeric": ["<", 1e10]}]}"#;
    assert_eq!(place(numeric), (InvalidPart::Limit, "FilterPolicy.a[0].numeric[1]".to_owned()));
}

#[test]
fn long_key_is_cut_in_a_refusal() {
    let policy = format!(r#"{{"{}": 5}}"#, "é".repeat(10_000));
    let expected = format!("filter.{}…: a number instead", "é".repeat(64));
    assert_refusals(&[(&policy, &expected)]);
}

#[test]
fn text_of_a_policy_stays_as_given() {
    let text = " {\"b\" : [1.50, \"\\u0061\"],\n\"a\":[null] }";
    let policy = FilterPolicy::parse("filter", text, FilterScope::Attributes).unwrap();
    assert_eq!((policy.text(), policy.scope()), (text, FilterScope::Attributes));
    assert!(!policy.is_empty());
    let same = FilterPolicy::parse("other", text, FilterScope::Attributes).unwrap();
    assert_eq!(policy, same);
    assert_ne!(policy, FilterPolicy::parse("filter", text, FilterScope::Body).unwrap());
    assert!(FilterPolicy::parse("filter", "{ }", FilterScope::Body).unwrap().is_empty());
}
