//! Conditions on messages: their state, their fields and their body.

use serde::{Deserialize, Serialize};

use crate::group::GroupName;
use crate::message::Header;
use crate::outcome::Holder;
use crate::settle::MessageState;
use crate::time::Timestamp;

/// The messages that a request selects: those that fulfil each condition. An absent condition is fulfilled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MessageSelection {
    /// It has one of these states; empty: any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<MessageState>,
    /// It belongs to this group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<GroupName>,
    /// It has this tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// The holder of its claim has this name; for a kept message, the holder that settled it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Min whole seconds since its post.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_age: Option<u32>,
    /// Max whole seconds since its post.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_age: Option<u32>,
    /// Min number of its claims.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_attempts: Option<u32>,
    /// Its body, a JSON text, has these bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contains: Option<String>,
}

/// A message as far as it is known without its body.
pub struct MessageFacts<'a> {
    /// Its header.
    pub header: &'a Header,
    /// Its state.
    pub state: MessageState,
    /// The holder of the claim, if there is one that named itself.
    pub holder: Option<&'a Holder>,
}

impl MessageSelection {
    /// Whether it has a condition that some message can fail. All states, an empty text, and a minimum of 0 are none.
    pub fn is_narrow(&self) -> bool {
        let Self { states, group, tag, by, min_age, max_age, min_attempts, contains } = self;
        let has_all_states = MessageState::ALL.iter().all(|state| states.contains(state));
        (!states.is_empty() && !has_all_states)
            || group.is_some()
            || tag.is_some()
            || by.is_some()
            || min_age.is_some_and(|seconds| seconds > 0)
            || max_age.is_some_and(|seconds| seconds < u32::MAX)
            || min_attempts.is_some_and(|attempts| attempts > 0)
            || contains.as_ref().is_some_and(|text| !text.is_empty())
    }

    /// Whether kept messages may fulfil the conditions.
    pub fn wants_kept(&self) -> bool {
        self.states.is_empty() || self.states.iter().any(|state| state.is_final())
    }

    /// Whether a message fulfils each condition but the one on its body.
    pub fn accepts(&self, message: &MessageFacts<'_>, now: Timestamp) -> bool {
        let MessageFacts { header, state, .. } = message;
        let age = now.seconds_since(header.created);
        let is_tagged =
            |tag: &String| header.extras.as_ref().is_some_and(|extras| extras.tags.as_slice().contains(tag));
        (self.states.is_empty() || self.states.contains(state))
            && self.group.as_ref().is_none_or(|group| header.group.as_ref() == Some(group))
            && self.tag.as_ref().is_none_or(is_tagged)
            && self.by.as_ref().is_none_or(|by| message.by().is_some_and(|holder| holder.as_str() == by))
            && self.min_age.is_none_or(|seconds| age >= seconds.into())
            && self.max_age.is_none_or(|seconds| age <= seconds.into())
            && self.min_attempts.is_none_or(|attempts| header.attempts >= attempts)
    }

    /// Whether a body fulfils the condition on it. A stored body is JSON and so UTF-8.
    pub fn accepts_body(&self, body: &[u8]) -> bool {
        let Some(part) = &self.contains else { return true };
        str::from_utf8(body).is_ok_and(|body| body.contains(part))
    }
}

impl<'a> MessageFacts<'a> {
    fn by(&self) -> Option<&'a Holder> {
        let of_outcome = || self.header.extras.as_ref().and_then(|extras| extras.by.as_ref());
        self.holder.or_else(|| self.state.is_final().then(of_outcome).flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn body_is_searched_with_its_case_and_its_escapes() {
        let contains =
            |part: &str| MessageSelection { contains: Some(part.to_owned()), ..MessageSelection::default() };
        let body = "{\"name\": \"Ärger \\\"x\\\"\"}".as_bytes();
        assert!(contains("Ärger").accepts_body(body) && contains("\\\"x").accepts_body(body));
        assert!(!contains("ärger").accepts_body(body) && !contains(" \"x").accepts_body(body));
        assert!(MessageSelection::default().accepts_body(body));
    }

    #[test]
    fn conditions_of_every_message_make_no_selection_narrow() {
        let selection = |stored: &str| serde_json::from_str::<MessageSelection>(stored).unwrap();
        let all = MessageState::ALL.map(MessageState::as_str);
        let all = serde_json::json!({"states": all, "contains": "", "min_age": 0, "min_attempts": 0});
        let old = r#"{"max_age":4294967295}"#;
        for wide in
            ["{}", r#"{"contains":""}"#, r#"{"min_age":0}"#, r#"{"min_attempts":0}"#, old, &all.to_string()]
        {
            assert!(!selection(wide).is_narrow(), "{wide}");
        }
        for narrow in [
            r#"{"states":["ready"]}"#,
            r#"{"group":"g"}"#,
            r#"{"tag":"","contains":""}"#,
            r#"{"by":"x"}"#,
            r#"{"min_age":1}"#,
            r#"{"max_age":0}"#,
            r#"{"min_attempts":1}"#,
            r#"{"contains":" "}"#,
        ] {
            assert!(selection(narrow).is_narrow(), "{narrow}");
        }
    }

    #[test]
    fn selection_is_read_as_it_was_stored() {
        let selection = MessageSelection {
            states: vec![MessageState::Failed, MessageState::InTransfer],
            group: Some(GroupName::new("g", "group").unwrap()),
            tag: Some("eu".to_owned()),
            min_age: Some(5),
            ..MessageSelection::default()
        };
        let stored = serde_json::to_string(&selection).unwrap();
        assert_eq!(stored, r#"{"states":["failed","in_transfer"],"group":"g","tag":"eu","min_age":5}"#);
        assert_eq!(serde_json::from_str::<MessageSelection>(&stored).unwrap(), selection);
        assert_eq!(serde_json::from_str::<MessageSelection>("{}").unwrap(), MessageSelection::default());
    }
}
