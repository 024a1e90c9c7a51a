//! A rule of a key: an operator with its operand.

use std::net::IpAddr;

use angarium_core::error::Error;
use angarium_core::network::Network;

use crate::anything_but::AnythingBut;
use crate::decimal::Decimal;
use crate::elements::Scalar;
use crate::json::Json;
use crate::location::Location;
use crate::numeric::Range;
use crate::object::Object;

/// An operator with its operand.
#[derive(Clone, Debug)]
pub enum Operator<'a> {
    Prefix(&'a str),
    Suffix(&'a str),
    EqualsIgnoreCase(&'a str),
    /// `numeric` with `=`.
    Number(Decimal),
    Other(Rule),
}

/// A rule that looks at one value. Rules of which one search finds the right one are in the
/// [`crate::rule_set::RuleSet`].
#[derive(Clone, Debug)]
pub enum Rule {
    Null,
    Bool(bool),
    Numeric(Range),
    Cidr(Network),
    /// Accepts a value, or a key without one.
    Exists(bool),
    AnythingBut(AnythingBut),
}

impl<'a> Operator<'a> {
    /// Reads an object with one operator.
    pub fn parse(object: &'a Object, at: &Location) -> Result<Self, Error> {
        let mut entries = object.iter();
        let (Some((operator, operand)), None) = (entries.next(), entries.next()) else {
            return Err(at.invalid("a rule has exactly one operator, as {\"prefix\": \"a\"}"));
        };
        let at = at.key(operator);
        match operator {
            "prefix" => text(operand, &at).map(Self::Prefix),
            "suffix" => text(operand, &at).map(Self::Suffix),
            "equals-ignore-case" => text(operand, &at).map(Self::EqualsIgnoreCase),
            "numeric" => Range::parse(operand, &at).map(|range| match range.only() {
                Some(number) => Self::Number(number.clone()),
                None => Self::Other(Rule::Numeric(range)),
            }),
            "cidr" => network(operand, &at).map(Rule::Cidr).map(Self::Other),
            "anything-but" => AnythingBut::parse(operand, &at).map(Rule::AnythingBut).map(Self::Other),
            "exists" => match operand {
                Json::Bool(exists) => Ok(Self::Other(Rule::Exists(*exists))),
                _ => Err(at.mismatch("true or false", operand)),
            },
            _ => Err(at.invalid(
                "unknown operator: use anything-but, cidr, equals-ignore-case, exists, numeric, prefix or suffix",
            )),
        }
    }
}

impl Rule {
    /// Whether the value follows the rule.
    pub fn accepts(&self, scalar: &Scalar) -> bool {
        match (self, scalar) {
            (Self::Null, scalar) => matches!(scalar, Scalar::Null),
            (Self::Bool(own), Scalar::Bool(value)) => own == value,
            (Self::Numeric(range), Scalar::Number(number)) => range.contains(number),
            (Self::Cidr(network), Scalar::Text(text)) => {
                text.parse::<IpAddr>().is_ok_and(|address| network.contains(address))
            }
            (Self::Exists(exists), scalar) => *exists && !matches!(scalar, Scalar::Null | Scalar::Text("")),
            (Self::AnythingBut(excluded), scalar) => excluded.accepts(scalar),
            (Self::Bool(_) | Self::Numeric(_) | Self::Cidr(_), _) => false,
        }
    }
}

fn text<'a>(operand: &'a Json, at: &Location) -> Result<&'a str, Error> {
    match operand {
        Json::Text(text) => Ok(text),
        _ => Err(at.mismatch("a string", operand)),
    }
}

fn network(operand: &Json, at: &Location) -> Result<Network, Error> {
    let text = text(operand, at)?;
    let network = text.contains('/').then(|| text.parse().ok()).flatten();
    network.ok_or_else(|| at.invalid("no network: write an address and a prefix, as 10.0.0.0/8 or fd00::/8"))
}
