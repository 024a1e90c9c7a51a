//! The operator `anything-but`: all values but some.

use angarium_core::error::Error;

use crate::decimal::Decimal;
use crate::elements::Scalar;
use crate::json::Json;
use crate::location::Location;
use crate::sets::{FoldedSet, PrefixSet, SuffixSet, TextSet};

/// The excluded values. A value of another type is never excluded. A check costs one search, however many there are.
#[derive(Clone, Debug)]
pub enum AnythingBut {
    Texts(TextSet),
    /// In order.
    Numbers(Vec<Decimal>),
    Prefixes(PrefixSet),
    Suffixes(SuffixSet),
    IgnoreCase(FoldedSet),
}

const FORM: &str = "a string, a number, an array of one of them, or an object as {\"prefix\": \"a\"}";

impl AnythingBut {
    /// Reads a string, a number, a list of one of them, or an object with `prefix`, `suffix` or `equals-ignore-case`, a
    /// string or a list of strings.
    pub fn parse(operand: &Json, at: &Location) -> Result<Self, Error> {
        match operand {
            Json::Object(object) => {
                let mut entries = object.iter();
                let (Some((operator, operand)), None) = (entries.next(), entries.next()) else {
                    return Err(
                        at.invalid("exactly one of prefix, suffix and equals-ignore-case is expected")
                    );
                };
                Self::parse_operator(operator, operand, &at.key(operator))
            }
            Json::Number(_) => Ok(Self::Numbers(numbers(operand, at)?)),
            Json::Array(values) if matches!(values.first(), Some(Json::Number(_))) => {
                Ok(Self::Numbers(numbers(operand, at)?))
            }
            Json::Text(_) | Json::Array(_) => Ok(Self::Texts(texts(operand, at)?.into_iter().collect())),
            Json::Null | Json::Bool(_) => Err(at.mismatch(FORM, operand)),
        }
    }

    fn parse_operator(operator: &str, operand: &Json, at: &Location) -> Result<Self, Error> {
        match operator {
            "prefix" => Ok(Self::Prefixes(affixes(operand, at)?.into_iter().collect())),
            "suffix" => Ok(Self::Suffixes(affixes(operand, at)?.into_iter().collect())),
            "equals-ignore-case" => Ok(Self::IgnoreCase(texts(operand, at)?.into_iter().collect())),
            _ => Err(
                at.invalid("anything-but takes prefix, suffix or equals-ignore-case, and no other operator")
            ),
        }
    }

    /// Whether the value is not excluded.
    pub fn accepts(&self, scalar: &Scalar) -> bool {
        let is_excluded = match (self, scalar) {
            (Self::Texts(texts), Scalar::Text(text)) => texts.contains(text),
            (Self::Prefixes(prefixes), Scalar::Text(text)) => prefixes.begins(text.as_bytes()),
            (Self::Suffixes(suffixes), Scalar::Text(text)) => suffixes.ends(text),
            (Self::IgnoreCase(texts), Scalar::Text(text)) => texts.contains(text),
            (Self::Numbers(numbers), Scalar::Number(number)) => numbers.binary_search(number).is_ok(),
            _ => false,
        };
        !is_excluded
    }
}

/// The elements of a list, or the value itself, with their locations.
fn elements<'a>(
    operand: &'a Json<'a>,
    at: &'a Location<'a>,
) -> Result<impl Iterator<Item = (&'a Json<'a>, Location<'a>)>, Error> {
    let values = match operand {
        Json::Array(values) if values.is_empty() => return Err(at.invalid("the array is empty")),
        Json::Array(values) => &values[..],
        _ => std::slice::from_ref(operand),
    };
    let is_list = matches!(operand, Json::Array(_));
    let locate = move |index| if is_list { at.index(index) } else { *at };
    Ok(values.iter().enumerate().map(move |(index, value)| (value, locate(index))))
}

fn texts<'a>(operand: &'a Json<'a>, at: &'a Location<'a>) -> Result<Vec<&'a str>, Error> {
    let text = |(value, at): (&'a Json<'a>, Location<'a>)| match value {
        Json::Text(text) => Ok(text.as_ref()),
        _ => Err(at.mismatch("a string", value)),
    };
    elements(operand, at)?.map(text).collect()
}

/// Reads prefixes or suffixes. An empty one would exclude every string.
fn affixes<'a>(operand: &'a Json<'a>, at: &'a Location<'a>) -> Result<Vec<&'a str>, Error> {
    let texts = texts(operand, at)?;
    match texts.iter().position(|text| text.is_empty()) {
        Some(_) => Err(at.invalid("an empty string excludes every string")),
        None => Ok(texts),
    }
}

fn numbers(operand: &Json, at: &Location) -> Result<Vec<Decimal>, Error> {
    let number = |(value, at): (&Json, Location)| match value {
        Json::Number(text) => Decimal::parse(text).ok_or_else(|| at.mismatch("a number", value)),
        _ => Err(at.mismatch("a number", value)),
    };
    let mut numbers = elements(operand, at)?.map(number).collect::<Result<Vec<_>, _>>()?;
    numbers.sort();
    Ok(numbers)
}
