//! The meaning of policies in the plainest form: a body becomes rows of paths and values, one row for each choice of
//! elements of its arrays of objects, and a policy is asked about each row. It knows values of `serde_json` only.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Values by their path, joined with dots.
pub type Row = BTreeMap<String, Vec<Value>>;

/// Whether a policy accepts one of the rows.
pub fn accepts(policy: &Value, rows: &[Row]) -> bool {
    rows.iter().any(|row| object_accepts(policy.as_object().unwrap(), "", row))
}

/// The rows of a body.
pub fn rows(value: &Value, path: &str) -> Vec<Row> {
    match value {
        Value::Object(object) => {
            let mut all = vec![Row::new()];
            for (key, value) in object {
                let below = rows(value, &join(path, key));
                all = all.iter().flat_map(|row| below.iter().map(|more| merged(row, more))).collect();
            }
            all
        }
        Value::Array(_) => {
            let mut elements = Vec::new();
            flatten(value, &mut elements);
            let (objects, scalars): (Vec<_>, Vec<_>) =
                elements.into_iter().partition(|value| value.is_object());
            let mut own = Row::new();
            if !scalars.is_empty() {
                own.insert(path.to_owned(), scalars);
            }
            if objects.is_empty() {
                return vec![own];
            }
            objects.iter().flat_map(|object| rows(object, path)).map(|row| merged(&own, &row)).collect()
        }
        scalar => vec![Row::from([(path.to_owned(), vec![scalar.clone()])])],
    }
}

fn flatten(value: &Value, into: &mut Vec<Value>) {
    match value {
        Value::Array(values) => values.iter().for_each(|value| flatten(value, into)),
        other => into.push(other.clone()),
    }
}

fn merged(left: &Row, right: &Row) -> Row {
    let mut row = left.clone();
    for (path, values) in right {
        row.entry(path.clone()).or_default().extend(values.iter().cloned());
    }
    row
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

const OPERATORS: [&str; 7] =
    ["prefix", "suffix", "equals-ignore-case", "numeric", "cidr", "exists", "anything-but"];

/// The objects of `$or`, if it is not a plain key.
fn branches<'a>(key: &str, value: &'a Value) -> Option<&'a [Value]> {
    let objects = value.as_array().filter(|values| key == "$or" && values.len() > 1)?;
    let is_branch = |value: &Value| {
        value.as_object().is_some_and(|object| !object.keys().any(|key| OPERATORS.contains(&key.as_str())))
    };
    objects.iter().all(is_branch).then_some(objects)
}

fn object_accepts(policy: &Map<String, Value>, path: &str, row: &Row) -> bool {
    policy.iter().all(|(key, value)| {
        if let Some(branches) = branches(key, value) {
            return branches.iter().any(|branch| object_accepts(branch.as_object().unwrap(), path, row));
        }
        let path = join(path, key);
        match value {
            Value::Object(below) => object_accepts(below, &path, row),
            rules => rules.as_array().unwrap().iter().any(|rule| match row.get(&path) {
                Some(values) => values.iter().any(|value| rule_accepts(rule, value)),
                None => rule["exists"] == false,
            }),
        }
    })
}

fn rule_accepts(rule: &Value, value: &Value) -> bool {
    let Some((operator, operand)) = rule.as_object().map(|rule| rule.iter().next().unwrap()) else {
        return is_same(rule, value);
    };
    match operator.as_str() {
        "exists" => operand == true && !value.is_null() && value != "",
        "numeric" => value.as_f64().is_some_and(|number| {
            operand.as_array().unwrap().chunks(2).all(|term| {
                let bound = term[1].as_f64().unwrap();
                match term[0].as_str().unwrap() {
                    "=" => number == bound,
                    "<" => number < bound,
                    "<=" => number <= bound,
                    ">" => number > bound,
                    _ => number >= bound,
                }
            })
        }),
        // The tests have the network 10.0.0.0/8 only.
        "cidr" => value.as_str().is_some_and(|text| text.starts_with("10.")),
        "anything-but" => match operand {
            Value::Object(_) => !has_text(operand, value),
            Value::Array(values) => !values.iter().any(|own| is_same(own, value)),
            own => !is_same(own, value),
        },
        _ => has_text(rule, value),
    }
}

/// Whether the value has the prefix, suffix or letters of a rule, or one of several.
fn has_text(rule: &Value, value: &Value) -> bool {
    let (operator, operand) = rule.as_object().unwrap().iter().next().unwrap();
    let operands = operand.as_array().cloned().unwrap_or_else(|| vec![operand.clone()]);
    let Some(text) = value.as_str() else { return false };
    operands.iter().map(|operand| operand.as_str().unwrap()).any(|operand| match operator.as_str() {
        "prefix" => text.starts_with(operand),
        "suffix" => text.ends_with(operand),
        _ => text.to_lowercase() == operand.to_lowercase(),
    })
}

fn is_same(left: &Value, right: &Value) -> bool {
    match (left.as_f64(), right.as_f64()) {
        (Some(left), Some(right)) => left == right,
        _ => left == right,
    }
}

/// The combinations of a policy, and its outermost keys.
pub fn size(policy: &Value, level: u64, keys: &mut Vec<String>) -> u64 {
    let mut combinations = 1;
    for (key, value) in policy.as_object().unwrap() {
        if level == 1 && branches(key, value).is_none() {
            keys.push(key.clone());
        }
        combinations *= match value {
            _ if branches(key, value).is_some() => {
                value.as_array().unwrap().iter().map(|branch| size(branch, level, keys)).sum()
            }
            Value::Object(_) => size(value, level + 1, keys),
            rules => rules.as_array().unwrap().len() as u64 * level,
        };
    }
    combinations
}
