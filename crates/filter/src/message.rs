//! A message as policies look at it.

use std::borrow::Cow;
use std::sync::OnceLock;

use angarium_core::message_attribute::{MessageAttribute, MessageAttributes, Value};

use crate::decimal::Decimal;
use crate::json::{Json, read_message};
use crate::object::Object;

/// A message in front of any number of policies. The body is read when the first policy asks for it, and once.
#[derive(Debug)]
pub struct MessageView<'a> {
    attributes: &'a MessageAttributes,
    body: &'a [u8],
    attribute_values: OnceLock<Object<'a>>,
    body_values: OnceLock<Option<Json<'a>>>,
}

impl<'a> MessageView<'a> {
    /// Views a message: its attributes, and its body as the subscriber gets it.
    pub fn new(attributes: &'a MessageAttributes, body: &'a [u8]) -> Self {
        Self { attributes, body, attribute_values: OnceLock::new(), body_values: OnceLock::new() }
    }

    /// The attributes that count: a `Binary` does not.
    pub(crate) fn attributes(&self) -> &Object<'a> {
        self.attribute_values.get_or_init(|| {
            let mut object = Object::default();
            for (name, attribute) in self.attributes.iter() {
                if let Some(value) = attribute_value(attribute) {
                    object.push(Cow::Borrowed(name), value);
                }
            }
            object.sort();
            object
        })
    }

    /// The body, if it is a JSON object within the bounds.
    pub(crate) fn body(&self) -> Option<&Object<'a>> {
        let body = self.body_values.get_or_init(|| {
            let text = str::from_utf8(self.body).ok()?;
            // Other bodies need no reading.
            text.trim_start().starts_with('{').then(|| read_message(text).ok())?
        });
        match body {
            Some(Json::Object(object)) => Some(object),
            _ => None,
        }
    }
}

/// The value of an attribute; none for a `Binary`. A `String.Array` or `Number.Array` is the JSON array in its text, or
/// else a plain `String`, as is a `Number` without the form of one.
fn attribute_value(attribute: &MessageAttribute) -> Option<Json<'_>> {
    let Value::Text(text) = &attribute.value else { return None };
    let (data_type, label) = attribute.data_type.split_once('.').unwrap_or((&attribute.data_type, ""));
    if label == "Array"
        && let Ok(array @ Json::Array(_)) = read_message(text)
    {
        return Some(array);
    }
    if data_type == "Number" && Decimal::parse(text).is_some() {
        return Some(Json::Number(text));
    }
    Some(Json::Text(Cow::Borrowed(text)))
}
