//! Policies and messages of the tests, and the check of one against the other.

use angarium_core::message_attribute::{MessageAttribute, MessageAttributes, Value};
use angarium_filter::{FilterPolicy, FilterScope, MessageView};

/// Makes attributes of rows of name, type and text.
pub fn attributes(rows: &[(&str, &str, &str)]) -> MessageAttributes {
    let attribute = |data_type: &str, text: &str| {
        let value = match data_type {
            "Binary" => Value::Binary(text.as_bytes().to_vec().into()),
            _ => Value::Text(text.to_owned()),
        };
        MessageAttribute { data_type: data_type.to_owned(), value }
    };
    rows.iter().map(|(name, data_type, text)| ((*name).to_owned(), attribute(data_type, text))).collect()
}

/// Whether a policy for bodies accepts a body.
pub fn accepts_body(policy: &str, body: &[u8]) -> bool {
    let policy = FilterPolicy::parse("filter", policy, FilterScope::Body).unwrap();
    policy.accepts(&MessageView::new(&MessageAttributes::default(), body))
}

/// Whether a policy for attributes accepts them.
pub fn accepts_attributes(policy: &str, rows: &[(&str, &str, &str)]) -> bool {
    let policy = FilterPolicy::parse("filter", policy, FilterScope::Attributes).unwrap();
    policy.accepts(&MessageView::new(&attributes(rows), b"{}"))
}

/// Checks rules of the key `k` against its values in bodies.
pub fn assert_values(rules: &str, accepted: &[&str], refused: &[&str]) {
    let policy = format!("{{\"k\": [{rules}]}}");
    let accepts = |value: &&&str| accepts_body(&policy, format!("{{\"k\": {value}}}").as_bytes());
    let wrongly_refused: Vec<_> = accepted.iter().filter(|value| !accepts(value)).collect();
    let wrongly_accepted: Vec<_> = refused.iter().filter(accepts).collect();
    assert!(wrongly_refused.is_empty(), "{rules} refuses {wrongly_refused:?}");
    assert!(wrongly_accepted.is_empty(), "{rules} accepts {wrongly_accepted:?}");
}

/// Checks a policy against whole bodies.
pub fn assert_bodies(policy: &str, accepted: &[&str], refused: &[&str]) {
    for body in accepted {
        assert!(accepts_body(policy, body.as_bytes()), "{policy} refuses {body}");
    }
    for body in refused {
        assert!(!accepts_body(policy, body.as_bytes()), "{policy} accepts {body}");
    }
}

/// The refusal of a policy: its path, and why.
pub fn refusal(policy: &str, scope: FilterScope) -> String {
    match FilterPolicy::parse("filter", policy, scope) {
        Ok(_) => format!("{policy} is taken"),
        Err(error) => error.to_string(),
    }
}
