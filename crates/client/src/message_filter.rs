//! Conditions on messages: options of `message peek` and of `queue redrive`.

use clap::Args;
use serde_json::{Map, Value, json};

use angarium_settings::units;

/// Which messages: those that fulfil each condition.
#[derive(Args, Clone, Debug)]
pub struct FilterArgs {
    /// Only messages in these states; may be given several times
    #[arg(
        long, value_name = "STATE", value_delimiter = ',',
        value_parser = ["ready", "delayed", "claimed", "in_transfer", "held", "done", "failed"]
    )]
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
}

impl FilterArgs {
    /// Returns the conditions as query parameters.
    pub fn parameters(&self) -> Vec<(&'static str, Option<String>)> {
        let number = |number: Option<u32>| number.map(|number| number.to_string());
        vec![
            ("state", (!self.state.is_empty()).then(|| self.state.join(","))),
            ("group", self.group.clone()),
            ("tag", self.tag.clone()),
            ("by", self.by.clone()),
            ("min_age", number(self.min_age)),
            ("max_age", number(self.max_age)),
            ("min_attempts", number(self.min_attempts)),
            ("contains", self.contains.clone()),
        ]
    }

    /// Returns the conditions as the filter of a task.
    pub fn json(&self) -> Map<String, Value> {
        let values = [
            ("state", (!self.state.is_empty()).then(|| json!(self.state))),
            ("group", self.group.as_ref().map(|group| json!(group))),
            ("tag", self.tag.as_ref().map(|tag| json!(tag))),
            ("by", self.by.as_ref().map(|by| json!(by))),
            ("min_age", self.min_age.map(|seconds| json!(seconds))),
            ("max_age", self.max_age.map(|seconds| json!(seconds))),
            ("min_attempts", self.min_attempts.map(|attempts| json!(attempts))),
            ("contains", self.contains.as_ref().map(|text| json!(text))),
        ];
        values.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }
}
