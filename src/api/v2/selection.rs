//! The conditions on messages, as the query of a peek and the filter of a task name them: one set of names and bounds.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use crate::api::json::not_null;
use crate::api::query::not_negative;
use angarium_core::error::{Error, InvalidPart};
use angarium_core::group::GroupName;
use angarium_core::selection::MessageSelection;
use angarium_core::settle::MessageState;

/// Max bytes of a text that messages are compared with. So the link of a page is never too long, even if each byte is
/// escaped.
const TEXT_BYTES: usize = 1_024;

/// The messages that fulfil each condition. Unknown keys are refused.
#[derive(Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MessageFilter {
    /// In one of these states. An empty list is refused: the script that made it has found no state.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "states")]
    #[schema(inline, value_type = Vec<FilterState>, min_items = 1, max_items = 7)]
    pub state: Vec<String>,
    /// Of this group.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "not_null")]
    #[schema(max_length = 128, pattern = "^[!-~]+$", nullable = false)]
    pub group: Option<String>,
    /// With this tag.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "not_null")]
    #[schema(max_length = 1_024, nullable = false)]
    pub tag: Option<String>,
    /// Settled by the holder that gave itself this name, and kept.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "not_null")]
    #[schema(max_length = 1_024, nullable = false)]
    pub by: Option<String>,
    /// Posted at least so many seconds ago.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "not_null")]
    #[schema(minimum = 0, maximum = 4_294_967_295_u64, nullable = false)]
    pub min_age: Option<i64>,
    /// Posted at most so many seconds ago.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "not_null")]
    #[schema(minimum = 0, maximum = 4_294_967_295_u64, nullable = false)]
    pub max_age: Option<i64>,
    /// Claimed at least so often.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "not_null")]
    #[schema(minimum = 0, maximum = 4_294_967_295_u64, nullable = false)]
    pub min_attempts: Option<i64>,
    /// With this text in their body, with its case, as in the JSON that was posted.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "not_null")]
    #[schema(max_length = 1_024, nullable = false)]
    pub contains: Option<String>,
}

/// A state of a message.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
#[expect(dead_code, reason = "only its description is used: the state is a word of the domain")]
pub enum FilterState {
    Ready,
    Delayed,
    Claimed,
    InTransfer,
    Held,
    Done,
    Failed,
}

fn states<'de, D: Deserializer<'de>>(field: D) -> Result<Vec<String>, D::Error> {
    let states = Vec::deserialize(field)?;
    if states.is_empty() {
        return Err(D::Error::custom("the list of states is empty; leave `state` out to name none"));
    }
    Ok(states)
}

impl MessageFilter {
    /// Checks the conditions. `within` precedes the names of the fields in errors.
    pub fn selection(self, place: InvalidPart, within: &str) -> Result<MessageSelection, Error> {
        let field = |name: &str| format!("{within}{name}");
        for (name, text) in [("tag", &self.tag), ("by", &self.by), ("contains", &self.contains)] {
            if text.as_ref().is_some_and(|text| text.len() > TEXT_BYTES) {
                let why = format!("it has more than {TEXT_BYTES} bytes");
                return Err(Error::invalid(place, field(name), why));
            }
        }
        let state = |word: &String| {
            MessageState::of_word(word).ok_or_else(|| {
                let words = MessageState::ALL.map(MessageState::as_str).join(", ");
                let why = format!("{word:?} is no state; those are {words}");
                Error::invalid(place, field("state"), why)
            })
        };
        let number = |name: &str, number: Option<i64>| {
            number.map(|number| not_negative(field(name), number)).transpose()
        };
        Ok(MessageSelection {
            states: self.state.iter().map(state).collect::<Result<_, _>>()?,
            group: self.group.map(|group| GroupName::new(&group, field("group"))).transpose()?,
            min_age: number("min_age", self.min_age)?,
            max_age: number("max_age", self.max_age)?,
            min_attempts: number("min_attempts", self.min_attempts)?,
            tag: self.tag,
            by: self.by,
            contains: self.contains,
        })
    }
}

impl From<MessageSelection> for MessageFilter {
    fn from(selection: MessageSelection) -> Self {
        Self {
            state: selection.states.iter().map(|state| state.as_str().to_owned()).collect(),
            group: selection.group.map(|group| group.to_string()),
            tag: selection.tag,
            by: selection.by,
            min_age: selection.min_age.map(i64::from),
            max_age: selection.max_age.map(i64::from),
            min_attempts: selection.min_attempts.map(i64::from),
            contains: selection.contains,
        }
    }
}
