//! The values of a message that a policy looks at. An array counts as its elements, at any level of arrays.

use crate::decimal::Decimal;
use crate::json::Json;
use crate::object::Object;

/// A value without parts.
#[derive(Debug)]
pub enum Scalar<'a> {
    Null,
    Bool(bool),
    Number(Decimal),
    Text(&'a str),
}

/// Gives each scalar of `value` to `look`, until it answers true: the value itself, or the elements of an array. Returns
/// the last answer; `None` when there is no scalar. An object has none, as its fields are values of other keys.
pub fn any_scalar(value: &Json, look: &mut impl FnMut(&Scalar) -> bool) -> Option<bool> {
    let scalar = match value {
        Json::Null => Scalar::Null,
        Json::Bool(value) => Scalar::Bool(*value),
        // The reader has checked its form, so it is a decimal.
        Json::Number(text) => Decimal::parse(text).map_or(Scalar::Text(text), Scalar::Number),
        Json::Text(text) => Scalar::Text(text),
        Json::Array(values) => return any(values, |value| any_scalar(value, look)),
        Json::Object(_) => return None,
    };
    Some(look(&scalar))
}

/// Gives each object of `value` to `look`, until it answers true: the value itself, or the elements of an array. Returns
/// the last answer; `None` when there is no object.
pub fn any_object(value: &Json, look: &mut impl FnMut(&Object) -> bool) -> Option<bool> {
    match value {
        Json::Object(object) => Some(look(object)),
        Json::Array(values) => any(values, |value| any_object(value, look)),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::Text(_) => None,
    }
}

fn any(values: &[Json], mut look: impl FnMut(&Json) -> Option<bool>) -> Option<bool> {
    let mut last = None;
    for value in values {
        match look(value) {
            Some(true) => return Some(true),
            Some(false) => last = Some(false),
            None => {}
        }
    }
    last
}
