//! A checked policy.

use angarium_core::error::Error;

use crate::compile::compile;
use crate::json::{Json, read_policy};
use crate::limits::POLICY_BYTES;
use crate::location::Location;
use crate::mask::Mask;
use crate::message::MessageView;
use crate::pattern::Pattern;

/// The part of a message that a policy looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterScope {
    /// The attributes beside the body (SNS: `MessageAttributes`).
    Attributes,
    /// The body, a JSON object (SNS: `MessageBody`).
    Body,
}

/// A filter policy: it accepts a message or not. It is checked when it is made, and its text stays as given.
#[derive(Clone, Debug)]
pub struct FilterPolicy {
    text: Box<str>,
    scope: FilterScope,
    /// None for a policy without keys.
    rules: Option<(Pattern, Mask)>,
}

impl FilterPolicy {
    /// Reads a policy from its JSON text. `field` is the client's name for it: an error names the wrong part by its path
    /// below `field`, as `filter.price[0].numeric[1]`.
    ///
    /// The text is needed, not a value of `serde_json`: such a value has rounded the numbers and dropped repeated keys.
    pub fn parse(field: &str, text: &str, scope: FilterScope) -> Result<Self, Error> {
        let at = Location::root(field);
        if text.len() > POLICY_BYTES {
            return Err(at.exceeds(format!("{} bytes, more than {POLICY_BYTES}", text.len())));
        }
        let json = read_policy(text);
        let json = json.map_err(|fault| at.invalid(format!("{} (byte {})", fault.why, fault.at)))?;
        let Json::Object(object) = &json else { return Err(at.mismatch("an object", &json)) };
        let rules = if object.is_empty() {
            None
        } else {
            let (pattern, alternatives) = compile(object, scope, &at)?;
            Some((pattern, Mask::first(alternatives)))
        };
        Ok(Self { text: text.into(), scope, rules })
    }

    /// The JSON text, as given.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The part of a message that it looks at.
    pub fn scope(&self) -> FilterScope {
        self.scope
    }

    /// Whether it is `{}`, which accepts every message. SNS removes a policy by it.
    pub fn is_empty(&self) -> bool {
        self.rules.is_none()
    }

    /// Whether it accepts the message. Cost: each value that a key of the policy names meets each rule of that key at most
    /// once; the body is read once for all policies.
    pub fn accepts(&self, message: &MessageView) -> bool {
        let Some((pattern, alternatives)) = &self.rules else { return true };
        let object = match self.scope {
            // Without an attribute not even `exists: false` accepts (SNS).
            FilterScope::Attributes => Some(message.attributes()).filter(|attributes| !attributes.is_empty()),
            FilterScope::Body => message.body(),
        };
        object.is_some_and(|object| !pattern.accepting_object(object, *alternatives).is_empty())
    }
}

impl PartialEq for FilterPolicy {
    /// Policies are equal when their texts are.
    fn eq(&self, other: &Self) -> bool {
        self.scope == other.scope && self.text == other.text
    }
}

impl Eq for FilterPolicy {}
