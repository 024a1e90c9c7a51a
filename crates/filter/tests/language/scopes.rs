//! The two parts of a message that a policy may look at.

use angarium_core::message_attribute::MessageAttributes;
use angarium_filter::{FilterPolicy, FilterScope, MessageView};

use crate::verdict::{accepts_attributes, accepts_body, attributes};

#[test]
fn attribute_is_compared_by_its_type() {
    for (rules, data_type, text, accepted) in [
        (r#""100""#, "String", "100", true),
        (r#""100""#, "String.label", "100", true),
        ("100", "String", "100", false),
        ("100", "Number", "1e2", true),
        ("100", "Number.int", "+0100.0", true),
        (r#""100""#, "Number", "100", false),
        (r#"{"numeric": [">", 0, "<=", 100]}"#, "Number", "99", true),
        (r#"{"numeric": [">", 0, "<=", 100]}"#, "Number", "111", false),
        (r#"{"numeric": [">", 0]}"#, "String", "99", false),
        (r#"{"prefix": "9"}"#, "Number", "99", false),
        // A number without the form of one is a string.
        (r#""abc""#, "Number", "abc", true),
        ("true", "String", "true", false),
        (r#"{"cidr": "10.0.0.0/8"}"#, "String", "10.1.1.1", true),
    ] {
        let policy = format!(r#"{{"k": [{rules}]}}"#);
        assert_eq!(
            accepts_attributes(&policy, &[("k", data_type, text)]),
            accepted,
            "{rules}: {data_type} {text}"
        );
    }
}

#[test]
fn array_attribute_counts_as_its_elements() {
    for (rules, data_type, text, accepted) in [
        (r#""rugby""#, "String.Array", r#"["rugby", "tennis"]"#, true),
        (r#""soccer""#, "String.Array", r#"["rugby", "tennis"]"#, false),
        (r#"{"anything-but": ["rugby", "tennis"]}"#, "String.Array", r#"["rugby", "baseball"]"#, true),
        (r#"{"anything-but": ["rugby", "tennis"]}"#, "String.Array", r#"["rugby"]"#, false),
        (r#"{"anything-but": [100, 500]}"#, "Number.Array", "[100, 50]", true),
        ("true", "String.Array", r#"[1, true, null]"#, true),
        ("null", "String.Array", r#"[1, true, null]"#, true),
        (r#"{"exists": true}"#, "String.Array", "[]", false),
        // Not the text of an array: a string.
        (r#""rugby""#, "String.Array", "rugby", true),
        (r#""rugby""#, "String.Array", r#""rugby""#, false),
    ] {
        let policy = format!(r#"{{"k": [{rules}]}}"#);
        assert_eq!(
            accepts_attributes(&policy, &[("k", data_type, text)]),
            accepted,
            "{rules}: {data_type} {text}"
        );
    }
    // Only an array type is read as JSON.
    assert!(!accepts_attributes(r#"{"k": ["rugby"]}"#, &[("k", "String", r#"["rugby"]"#)]));
}

#[test]
fn binary_attribute_does_not_count() {
    let (present, absent) = (r#"{"k": [{"exists": true}]}"#, r#"{"k": [{"exists": false}]}"#);
    let rows = [("k", "Binary", "a"), ("other", "String", "a")];
    assert!(!accepts_attributes(present, &rows));
    assert!(accepts_attributes(absent, &rows));
    assert!(!accepts_attributes(r#"{"k": ["a"]}"#, &rows));
    assert!(!accepts_attributes(absent, &rows[..1]), "no attribute counts");
}

#[test]
fn absence_needs_another_attribute() {
    let policy = r#"{"store": [{"exists": false}]}"#;
    assert!(accepts_attributes(policy, &[("other", "Number", "99")]));
    assert!(!accepts_attributes(policy, &[("store", "Number", "99"), ("other", "Number", "99")]));
    assert!(!accepts_attributes(policy, &[]));
    assert!(!accepts_attributes(r#"{"k": [null, {"anything-but": "whatever"}]}"#, &[]));
    assert!(accepts_attributes("{}", &[]));
}

#[test]
fn names_of_attributes_are_literal() {
    assert!(accepts_attributes(r#"{"a.b": ["x"]}"#, &[("a.b", "String", "x")]));
    assert!(!accepts_attributes(r#"{"a.b": ["x"]}"#, &[("a", "String.Array", r#"[{"b": "x"}]"#)]));
    assert!(!accepts_attributes(r#"{"K": ["x"]}"#, &[("k", "String", "x")]));
}

#[test]
fn or_holds_for_attributes() {
    let policy = r#"{"source": ["a"], "$or": [{"m": ["x"]}, {"n": [{"numeric": ["=", 5]}]}]}"#;
    assert!(accepts_attributes(policy, &[("source", "String", "a"), ("n", "Number", "5.0")]));
    assert!(!accepts_attributes(policy, &[("source", "String", "a"), ("n", "Number", "6")]));
}

#[test]
fn body_without_a_json_object_is_refused() {
    let policy = r#"{"k": [{"exists": false}]}"#;
    let refused: [&[u8]; 10] = [
        b"",
        b"plain text",
        b"\"{}\"",
        b"[{}]",
        b"null",
        b"5",
        b"{",
        b"{} {}",
        b"{\"a\": \"\xff\"}",
        b"\xef\xbb\xbf{}",
    ];
    for body in refused {
        assert!(!accepts_body(policy, body), "{}", String::from_utf8_lossy(body));
    }
    assert!(accepts_body(policy, b" \r\n\t{ } \n"));
}

#[test]
fn each_scope_ignores_the_other() {
    let rows = attributes(&[("k", "String", "a")]);
    for (body, attributes, scope, accepted) in [
        (&br#"{"k": "b"}"#[..], &rows, FilterScope::Attributes, true),
        (br#"{"k": "b"}"#, &rows, FilterScope::Body, false),
        (br#"{"k": "a"}"#, &MessageAttributes::default(), FilterScope::Body, true),
        (br#"{"k": "a"}"#, &MessageAttributes::default(), FilterScope::Attributes, false),
    ] {
        let policy = FilterPolicy::parse("filter", r#"{"k": ["a"]}"#, scope).unwrap();
        assert_eq!(policy.accepts(&MessageView::new(attributes, body)), accepted);
    }
}

#[test]
fn one_view_serves_many_policies() {
    let attributes = attributes(&[("k", "Number", "1")]);
    let message = MessageView::new(&attributes, br#"{"k": 2}"#);
    let accepted = [(FilterScope::Attributes, "1"), (FilterScope::Body, "2"), (FilterScope::Body, "1")].map(
        |(scope, number)| {
            let policy = FilterPolicy::parse("filter", &format!(r#"{{"k": [{number}]}}"#), scope).unwrap();
            policy.accepts(&message)
        },
    );
    assert_eq!(accepted, [true, true, false]);
}
