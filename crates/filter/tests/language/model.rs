//! Random policies and messages: the answer is that of the naive evaluator.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use angarium_core::message_attribute::{MessageAttribute, MessageAttributes, Value as AttributeValue};
use angarium_filter::limits::{POLICY_COMBINATIONS, POLICY_KEYS};
use angarium_filter::{FilterPolicy, FilterScope, MessageView};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

use crate::naive::{self, Row};

fn texts() -> impl Strategy<Value = Value> {
    prop::sample::select(vec![
        "", "a", "A", "ab", "ba", "é", "É", "1", "null", "10.0.0.7", "10.1.0.0", "11.0.0.1",
    ])
    .prop_map(Value::from)
}

/// Numbers that `f64` has exactly, in several notations.
fn numbers() -> impl Strategy<Value = Value> {
    prop_oneof![(-3i64..4).prop_map(Value::from), (-6i32..7).prop_map(|half| json!(f64::from(half) / 2.0))]
}

fn scalars() -> impl Strategy<Value = Value> {
    prop_oneof![4 => texts(), 3 => numbers(), 1 => Just(json!(null)), 1 => any::<bool>().prop_map(Value::from)]
}

fn one_or_more(value: impl Strategy<Value = Value> + Clone) -> impl Strategy<Value = Value> {
    prop_oneof![value.clone(), prop::collection::vec(value, 1..4).prop_map(Value::from)]
}

fn texts_with_letters() -> impl Strategy<Value = Value> + Clone {
    prop::sample::select(vec!["a", "A", "b", "ab", "é", "1"]).prop_map(Value::from)
}

fn numeric() -> impl Strategy<Value = Value> {
    let one = (prop::sample::select(vec!["=", "<", "<=", ">", ">="]), numbers())
        .prop_map(|(operator, number)| json!([operator, number]));
    let range =
        (-3i64..1, 1i64..4, any::<bool>(), any::<bool>()).prop_map(|(bottom, top, with_bottom, with_top)| {
            json!([if with_bottom { ">=" } else { ">" }, bottom, if with_top { "<=" } else { "<" }, top])
        });
    prop_oneof![one, range]
}

fn rules() -> impl Strategy<Value = Value> {
    let affix = || prop::sample::select(vec!["prefix", "suffix", "equals-ignore-case"]);
    let excluded = prop_oneof![
        one_or_more(texts_with_letters()),
        one_or_more((-3i64..4).prop_map(Value::from)),
        (affix(), one_or_more(texts_with_letters()))
            .prop_map(|(operator, operand)| json!({ operator: operand })),
    ];
    prop_oneof![
        4 => scalars(),
        2 => (affix(), texts()).prop_map(|(operator, operand)| json!({ operator: operand })),
        2 => numeric().prop_map(|terms| json!({ "numeric": terms })),
        1 => Just(json!({"cidr": "10.0.0.0/8"})),
        2 => any::<bool>().prop_map(|exists| json!({ "exists": exists })),
        3 => excluded.prop_map(|excluded| json!({ "anything-but": excluded })),
    ]
}

/// Key `d` has keys below it or none, as a dotted key beside an array has no meaning that is worth a definition.
fn keys() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a", "b", "d.x", "d.y.x", "$or"])
}

fn leaf() -> impl Strategy<Value = Value> {
    prop::collection::vec(rules(), 1..4).prop_map(Value::from)
}

fn object(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    prop::collection::btree_map(keys(), value, 1..3).prop_map(to_object)
}

fn to_object(map: BTreeMap<&'static str, Value>) -> Value {
    map.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

fn body_policies() -> impl Strategy<Value = Value> {
    let below = leaf().prop_recursive(3, 12, 3, |below| {
        prop_oneof![object(below.clone()), prop::collection::vec(object(below), 1..4).prop_map(Value::from)]
    });
    object(below).prop_map(|policy| plain_arrays(policy, true))
}

/// Makes objects in arrays that are no `$or` rules again: an array may only have them below `$or`.
fn plain_arrays(policy: Value, may_nest: bool) -> Value {
    let entries = policy.as_object().cloned().unwrap_or_default();
    let entries = entries.into_iter().map(|(key, value)| {
        let is_or = key == "$or";
        let value = match value {
            Value::Array(values) => {
                let is_branch = |value: &Value| value.as_object().is_some_and(has_keys);
                let all = values.len() > 1 && values.iter().all(is_branch);
                let plain = |value| match is_branch(&value) {
                    true if is_or && all => plain_arrays(value, may_nest),
                    true => json!({"exists": true}),
                    false => value,
                };
                values.into_iter().map(plain).collect()
            }
            below if may_nest => plain_arrays(below, may_nest),
            _ => json!([{"exists": true}]),
        };
        (key, value)
    });
    entries.collect()
}

fn has_keys(object: &serde_json::Map<String, Value>) -> bool {
    object.keys().any(|key| ["a", "b", "d.x", "d.y.x", "$or"].contains(&key.as_str()))
}

fn bodies() -> impl Strategy<Value = Value> {
    let value = scalars().prop_recursive(4, 24, 4, |below| {
        prop_oneof![
            prop::collection::vec(below.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(keys(), below, 0..4).prop_map(to_object),
        ]
    });
    prop::collection::btree_map(keys(), value, 2..6).prop_map(to_object)
}

fn attribute_rows() -> impl Strategy<Value = BTreeMap<&'static str, (&'static str, Value)>> {
    let value = prop_oneof![
        texts().prop_map(|text| ("String", text)),
        numbers().prop_map(|number| ("Number", number)),
        prop::collection::vec(scalars(), 0..4).prop_map(|values| ("String.Array", Value::from(values))),
        Just(("Binary", Value::Null)),
    ];
    prop::collection::btree_map(keys(), value, 0..6)
}

fn to_attributes(rows: &BTreeMap<&'static str, (&'static str, Value)>) -> MessageAttributes {
    let attribute = |data_type: &str, value: &Value| {
        let value = match (data_type, value) {
            ("Binary", _) => AttributeValue::Binary(vec![0].into()),
            ("String", Value::String(text)) => AttributeValue::Text(text.clone()),
            (_, value) => AttributeValue::Text(value.to_string()),
        };
        MessageAttribute { data_type: data_type.to_owned(), value }
    };
    rows.iter().map(|(name, (data_type, value))| ((*name).to_owned(), attribute(data_type, value))).collect()
}

/// Counts answers, so that a test with one answer only is found.
#[derive(Default)]
struct Tally {
    accepted: AtomicU64,
    refused: AtomicU64,
    beyond_bounds: AtomicU64,
}

impl Tally {
    /// Checks the refusal of a policy beyond its bounds, or else the answer.
    fn check(&self, policy: &Value, scope: FilterScope, message: &MessageView, expected: bool) {
        let mut keys = Vec::new();
        let combinations = naive::size(policy, 1, &mut keys);
        keys.sort();
        keys.dedup();
        let is_bounded = combinations <= POLICY_COMBINATIONS && keys.len() <= POLICY_KEYS;
        match FilterPolicy::parse("filter", &policy.to_string(), scope) {
            Err(error) => {
                assert!(
                    !is_bounded && error.to_string().starts_with("filter: more than"),
                    "{policy}: {error}"
                );
                self.beyond_bounds.fetch_add(1, Ordering::Relaxed);
            }
            Ok(compiled) => {
                assert!(is_bounded, "{combinations} combinations, {} keys: {policy}", keys.len());
                assert_eq!(compiled.accepts(message), expected, "{policy}");
                let count = if expected { &self.accepted } else { &self.refused };
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn assert_varied(&self, cases: u64) {
        for count in [&self.accepted, &self.refused] {
            let count = count.load(Ordering::Relaxed);
            assert!(count > cases / 25, "{count} of {cases}");
        }
    }
}

const CASES: u32 = 4_000;

fn run<S: Strategy>(cases: &S, check: impl Fn(S::Value)) {
    let mut runner = TestRunner::new(Config { cases: CASES, failure_persistence: None, ..Config::default() });
    runner
        .run(cases, |case| {
            check(case);
            Ok(())
        })
        .unwrap();
}

#[test]
fn bodies_are_accepted_as_by_the_naive_evaluator() {
    let tally = Tally::default();
    run(&(body_policies(), bodies()), |(policy, body)| {
        let text = body.to_string();
        let attributes = MessageAttributes::default();
        let message = MessageView::new(&attributes, text.as_bytes());
        tally.check(&policy, FilterScope::Body, &message, naive::accepts(&policy, &naive::rows(&body, "")));
    });
    tally.assert_varied(CASES.into());
    assert!(tally.beyond_bounds.load(Ordering::Relaxed) > 100, "policies reach the bounds");
}

/// Alternatives that need the same element of an array are rare among policies of any form.
#[test]
fn or_below_arrays_is_as_by_the_naive_evaluator() {
    let tally = Tally::default();
    let flat = |rule: BoxedStrategy<Value>, count| {
        let key = prop::sample::select(vec!["a", "b", "c"]);
        prop::collection::btree_map(key, rule, count).prop_map(to_object)
    };
    let rules = prop::sample::select(vec![json!(["x"]), json!(["y"]), json!([{"exists": false}])]).boxed();
    let branches = prop::collection::vec(flat(rules.clone(), 1..3), 2..4);
    let value = prop::sample::select(vec![json!("x"), json!("y"), json!(["x", "y"])]).boxed();
    let elements = prop::collection::vec(flat(value, 0..3), 1..4);
    run(&(branches, rules, elements), |(branches, beside, elements)| {
        let policy =
            json!({"k": {"$or": branches, "c": beside}, "$or": [{"k": {"a": ["x"]}}, {"k": {"b": ["y"]}}]});
        let body = json!({ "k": elements });
        let text = body.to_string();
        let attributes = MessageAttributes::default();
        let message = MessageView::new(&attributes, text.as_bytes());
        tally.check(&policy, FilterScope::Body, &message, naive::accepts(&policy, &naive::rows(&body, "")));
    });
    tally.assert_varied(CASES.into());
}

#[test]
fn attributes_are_accepted_as_by_the_naive_evaluator() {
    let tally = Tally::default();
    let policies = (object(leaf()), prop::option::of(prop::collection::vec(object(leaf()), 2..4)));
    run(&(policies, attribute_rows()), |((mut policy, branches), rows)| {
        if let Some(branches) = branches {
            policy["$or"] = branches.into();
        }
        let policy = plain_arrays(policy, false);
        let attributes = to_attributes(&rows);
        let values = rows.iter().filter(|(_, (data_type, _))| *data_type != "Binary");
        let values: BTreeMap<_, _> = values.map(|(name, (_, value))| (*name, value.clone())).collect();
        let naive_rows: Vec<Row> =
            if values.is_empty() { Vec::new() } else { naive::rows(&to_object(values), "") };
        let message = MessageView::new(&attributes, b"");
        tally.check(&policy, FilterScope::Attributes, &message, naive::accepts(&policy, &naive_rows));
    });
    tally.assert_varied(CASES.into());
}
