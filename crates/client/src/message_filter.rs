//! Conditions on messages: options of `message peek` and of `queue redrive`.

use clap::Args;
use serde_json::{Map, Value, json};

use super::failure::Failure;
use angarium_settings::units;

const STATES: [&str; 7] = ["ready", "delayed", "claimed", "in_transfer", "held", "done", "failed"];

/// Which messages: those that fulfil each condition.
#[derive(Args, Clone, Debug)]
pub struct FilterArgs {
    /// Only messages in these states; may be given several times
    #[arg(long, value_name = "STATE", value_delimiter = ',', value_parser = STATES)]
    state: Vec<String>,
    /// Only messages of this group
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// Only messages with this tag
    #[arg(long, value_name = "TAG")]
    tag: Option<String>,
    /// Only messages whose holder has this name: of their claim, or of their settle if they are kept
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
    /// Only messages that were posted at least so long ago
    #[arg(long, value_name = "DURATION", value_parser = units::seconds_within(0, u32::MAX))]
    min_age: Option<u32>,
    /// Only messages that were posted at most so long ago
    #[arg(long, value_name = "DURATION", value_parser = units::seconds_within(0, u32::MAX))]
    max_age: Option<u32>,
    /// Only messages that have been claimed at least so often
    #[arg(long, value_name = "N")]
    min_attempts: Option<u32>,
    /// Only messages with this text in the JSON of their body
    #[arg(long, value_name = "TEXT")]
    contains: Option<String>,
    /// A condition by its name, as `tag=eu` for --tag eu; may be given several times
    #[arg(long = "where", value_name = "NAME=VALUE", value_parser = condition)]
    named: Vec<Condition>,
}

/// A condition with its value as the API has it.
#[derive(Clone, Debug)]
struct Condition {
    name: &'static str,
    value: Value,
}

impl FilterArgs {
    /// Returns the conditions as query parameters.
    ///
    /// # Errors
    ///
    /// A condition that is given twice.
    pub fn parameters(&self) -> Result<Vec<(&'static str, Option<String>)>, Failure> {
        let text = |value: Value| match value {
            Value::String(text) => text,
            Value::Array(states) => states.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(","),
            other => other.to_string(),
        };
        Ok(self.conditions()?.into_iter().map(|given| (given.name, Some(text(given.value)))).collect())
    }

    /// Returns the conditions as the filter of a task.
    ///
    /// # Errors
    ///
    /// A condition that is given twice.
    pub fn json(&self) -> Result<Map<String, Value>, Failure> {
        Ok(self.conditions()?.into_iter().map(|given| (given.name.to_owned(), given.value)).collect())
    }

    fn conditions(&self) -> Result<Vec<Condition>, Failure> {
        let options = [
            ("state", (!self.state.is_empty()).then(|| json!(self.state))),
            ("group", self.group.as_ref().map(|group| json!(group))),
            ("tag", self.tag.as_ref().map(|tag| json!(tag))),
            ("by", self.by.as_ref().map(|by| json!(by))),
            ("min_age", self.min_age.map(|seconds| json!(seconds))),
            ("max_age", self.max_age.map(|seconds| json!(seconds))),
            ("min_attempts", self.min_attempts.map(|attempts| json!(attempts))),
            ("contains", self.contains.as_ref().map(|text| json!(text))),
        ];
        let mut all: Vec<Condition> =
            options.into_iter().filter_map(|(name, value)| Some(Condition { name, value: value? })).collect();
        for given in &self.named {
            if all.iter().any(|other| other.name == given.name) {
                return Err(Failure::Usage(format!("the condition {} is given twice", given.name)));
            }
            all.push(given.clone());
        }
        Ok(all)
    }
}

/// Reads the condition of a `--where`.
fn condition(text: &str) -> Result<Condition, String> {
    let Some((name, value)) = text.split_once('=') else {
        return Err("it has no `=`: write it as `tag=eu`".to_owned());
    };
    let age = || units::seconds_within(0, u32::MAX)(value).map(|seconds| json!(seconds));
    let (name, value) = match name.replace('-', "_").as_str() {
        "state" => ("state", states(value)?),
        "group" => ("group", json!(value)),
        "tag" => ("tag", json!(value)),
        "by" => ("by", json!(value)),
        "min_age" => ("min_age", age()?),
        "max_age" => ("max_age", age()?),
        "min_attempts" => {
            ("min_attempts", json!(value.parse::<u32>().map_err(|_| "it has no number of attempts")?))
        }
        "contains" => ("contains", json!(value)),
        _ => {
            return Err(format!(
                "there is no condition {name}: state, group, tag, by, min-age, max-age, min-attempts and contains exist"
            ));
        }
    };
    Ok(Condition { name, value })
}

fn states(list: &str) -> Result<Value, String> {
    let states: Vec<&str> = list.split(',').collect();
    match states.iter().find(|state| !STATES.contains(state)) {
        Some(state) => Err(format!("there is no state {state}: {} exist", STATES.join(", "))),
        None => Ok(json!(states)),
    }
}
