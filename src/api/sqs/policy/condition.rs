//! Conditions of statements: the facts of a request that they use, and the comparisons.
//!
//! | key | operators | values |
//! |---|---|---|
//! | `aws:SourceIp` | `IpAddress`, `NotIpAddress` | addresses and networks (CIDR) |
//! | `aws:SecureTransport` | `Bool` | `true`, `false` |
//! | `aws:PrincipalArn` | `Arn…` and `String…` with `Equals` and `Like`, their `Not` forms, `StringEqualsIgnoreCase` | ARNs; `Like` and all of `Arn…` with `*` and `?` |
//! | `aws:CurrentTime` | `Date…` | ISO 8601, or seconds since 1970 |
//! | `aws:EpochTime` | `Date…`, `Numeric…` | seconds since 1970 |
//!
//! Names of keys are case-insensitive. A key matches if one of its values does; with a `Not` operator, no value may
//! match. All keys of all operators must match. Every request has all the facts, so `…IfExists` equals the operator
//! without it. If this replica does not know a fact, the condition has no result.

use serde_json::Value;

use super::RequestFacts;
use super::pattern::{Case, matches};
use super::reading::refuse_variables;
use angarium_core::network::Network;
use angarium_core::time::Timestamp;

/// A comparison of one fact.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    test: Test,
    /// Whether it holds when no value matches.
    is_negated: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Test {
    Address(Vec<Network>),
    Secure(Vec<bool>),
    Principal(TextForm, Vec<String>),
    /// Seconds since 1970.
    Time(Order, Vec<f64>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TextForm {
    Exact,
    IgnoringCase,
    Wild,
    /// Compared part by part between the colons.
    Arn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// The type that an operator compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Address,
    Bool,
    Text(TextForm),
    Date(Order),
    Number(Order),
}

/// Number of parts of an ARN.
const ARN_PARTS: usize = 6;

/// Parses the conditions of a statement.
///
/// # Errors
///
/// The operator, key or value that is not understood.
pub fn read(value: &Value) -> Result<Vec<Condition>, String> {
    let Value::Object(operators) = value else { return Err("Condition: it is no object".to_owned()) };
    let mut conditions = Vec::new();
    for (operator, keys) in operators {
        let (kind, is_negated) =
            kind(operator).ok_or_else(|| format!("Condition: the operator {operator:?} is not supported"))?;
        let Value::Object(keys) = keys else {
            return Err(format!("Condition: {operator} is no object"));
        };
        for (key, values) in keys {
            let place = format!("Condition: {operator} of {key:?}");
            conditions.push(Condition { test: test(kind, key, values, &place)?, is_negated });
        }
    }
    Ok(conditions)
}

/// Returns the type that an operator compares, and whether it is a `Not` form.
fn kind(operator: &str) -> Option<(Kind, bool)> {
    let operator = operator.strip_suffix("IfExists").unwrap_or(operator);
    let text = |form| Kind::Text(form);
    Some(match operator {
        "IpAddress" => (Kind::Address, false),
        "NotIpAddress" => (Kind::Address, true),
        "Bool" => (Kind::Bool, false),
        "StringEquals" => (text(TextForm::Exact), false),
        "StringNotEquals" => (text(TextForm::Exact), true),
        "StringEqualsIgnoreCase" => (text(TextForm::IgnoringCase), false),
        "StringNotEqualsIgnoreCase" => (text(TextForm::IgnoringCase), true),
        "StringLike" => (text(TextForm::Wild), false),
        "StringNotLike" => (text(TextForm::Wild), true),
        "ArnEquals" | "ArnLike" => (text(TextForm::Arn), false),
        "ArnNotEquals" | "ArnNotLike" => (text(TextForm::Arn), true),
        _ => {
            let date = operator.strip_prefix("Date").and_then(order);
            let number = || operator.strip_prefix("Numeric").and_then(order);
            match date {
                Some((order, is_negated)) => (Kind::Date(order), is_negated),
                None => number().map(|(order, is_negated)| (Kind::Number(order), is_negated))?,
            }
        }
    })
}

fn order(name: &str) -> Option<(Order, bool)> {
    Some(match name {
        "Equals" => (Order::Equal, false),
        "NotEquals" => (Order::Equal, true),
        "LessThan" => (Order::Less, false),
        "LessThanEquals" => (Order::LessOrEqual, false),
        "GreaterThan" => (Order::Greater, false),
        "GreaterThanEquals" => (Order::GreaterOrEqual, false),
        _ => return None,
    })
}

fn test(kind: Kind, key: &str, values: &Value, place: &str) -> Result<Test, String> {
    let values = match values {
        Value::Array(values) => values.as_slice(),
        one => std::slice::from_ref(one),
    };
    if values.is_empty() {
        return Err(format!("{place}: there is no value"));
    }
    let wrong = |value: &Value, why: &str| format!("{place}: {value} is not understood: {why}");
    match (key.to_ascii_lowercase().as_str(), kind) {
        ("aws:sourceip", Kind::Address) => {
            let network = |value: &Value| text(value).parse().map_err(|why| wrong(value, why));
            Ok(Test::Address(values.iter().map(network).collect::<Result<_, _>>()?))
        }
        ("aws:securetransport", Kind::Bool) => {
            let truth = |value: &Value| match text(value).to_ascii_lowercase().as_str() {
                "true" => Ok(true),
                "false" => Ok(false),
                _ => Err(wrong(value, "it is true or false")),
            };
            Ok(Test::Secure(values.iter().map(truth).collect::<Result<_, _>>()?))
        }
        ("aws:principalarn", Kind::Text(form)) => {
            let pattern = |value: &Value| arn_pattern(form, value, place);
            Ok(Test::Principal(form, values.iter().map(pattern).collect::<Result<_, _>>()?))
        }
        ("aws:currenttime" | "aws:epochtime", Kind::Date(order)) => {
            let date = |value: &Value| {
                let why =
                    "a date is as in 2030-01-31T12:00:00Z, 2030-01-31, or seconds since 1970 from 1973 on";
                instant(&text(value)).ok_or_else(|| wrong(value, why))
            };
            Ok(Test::Time(order, values.iter().map(date).collect::<Result<_, _>>()?))
        }
        ("aws:epochtime", Kind::Number(order)) => {
            let number = |value: &Value| {
                seconds(&text(value)).ok_or_else(|| wrong(value, "it is a number of seconds since 1970"))
            };
            Ok(Test::Time(order, values.iter().map(number).collect::<Result<_, _>>()?))
        }
        _ => Err(format!("{place}: this key with this operator is not supported")),
    }
}

/// Returns the text of a value: AWS accepts numbers and booleans with and without quotes.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        // No valid value.
        Value::Null | Value::Array(_) | Value::Object(_) => String::new(),
    }
}

fn arn_pattern(form: TextForm, value: &Value, place: &str) -> Result<String, String> {
    let Value::String(pattern) = value else {
        return Err(format!("{place}: {value} is no text"));
    };
    refuse_variables(place, pattern)?;
    if form == TextForm::Arn && pattern != "*" && pattern.splitn(ARN_PARTS, ':').count() < ARN_PARTS {
        return Err(format!("{place}: {pattern:?} is no ARN"));
    }
    Ok(pattern.clone())
}

fn seconds(text: &str) -> Option<f64> {
    let plain = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'-');
    text.parse().ok().filter(|number: &f64| number.is_finite() && text.bytes().all(plain))
}

/// Numbers that can only be seconds: no year, no day without hyphens, and no milliseconds.
const SECONDS: std::ops::Range<f64> = 1e8..1e11;

/// Parses an instant to seconds: a number, or a date with or without a time of day.
fn instant(text: &str) -> Option<f64> {
    if let Some(number) = seconds(text) {
        return Some(number).filter(|number| SECONDS.contains(number));
    }
    let of_day = || Timestamp::from_calendar(&format!("{text}T00:00:00Z"));
    let instant = Timestamp::from_calendar(text).or_else(of_day)?;
    Some(whole_seconds(instant))
}

#[expect(clippy::cast_precision_loss, reason = "seconds of any calendar are far below 2^53")]
fn whole_seconds(instant: Timestamp) -> f64 {
    (instant.as_millis() / 1_000) as f64
}

impl Condition {
    /// Whether the condition holds; none when the fact is not known here.
    pub(super) fn holds(&self, facts: &RequestFacts<'_>) -> Option<bool> {
        let is_met = match &self.test {
            Test::Address(networks) => {
                let address = facts.source?.address?;
                networks.iter().any(|network| network.contains(address))
            }
            Test::Secure(wanted) => wanted.contains(&facts.source?.is_secure),
            Test::Principal(form, patterns) => {
                let arn = format!("arn:aws:iam::{}:root", facts.account);
                patterns.iter().any(|pattern| form.fits(pattern, &arn))
            }
            Test::Time(order, values) => {
                let now = whole_seconds(facts.now);
                values.iter().any(|value| order.holds(now, *value))
            }
        };
        Some(is_met != self.is_negated)
    }
}

impl TextForm {
    fn fits(self, pattern: &str, arn: &str) -> bool {
        match self {
            Self::Exact => pattern == arn,
            Self::IgnoringCase => pattern.eq_ignore_ascii_case(arn),
            Self::Wild => matches(pattern, arn, Case::Kept),
            Self::Arn if pattern == "*" => true,
            Self::Arn => {
                let parts = |text: &str| text.splitn(ARN_PARTS, ':').map(str::to_owned).collect::<Vec<_>>();
                let (patterns, parts) = (parts(pattern), parts(arn));
                patterns.len() == parts.len()
                    && patterns.iter().zip(&parts).all(|(pattern, part)| matches(pattern, part, Case::Kept))
            }
        }
    }
}

impl Order {
    fn holds(self, now: f64, value: f64) -> bool {
        match self {
            Self::Equal => (now - value).abs() < f64::EPSILON,
            Self::Less => now < value,
            Self::LessOrEqual => now <= value,
            Self::Greater => now > value,
            Self::GreaterOrEqual => now >= value,
        }
    }
}
