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
use crate::sets::fold;

/// A rule that looks at one value. Exact strings and numbers are in the [`crate::rule_set::RuleSet`].
#[derive(Clone, Debug)]
pub enum Rule {
    Null,
    Bool(bool),
    Prefix(Box<str>),
    Suffix(Box<str>),
    /// Has the folded text.
    EqualsIgnoreCase(Box<str>),
    Numeric(Range),
    Cidr(Network),
    /// Accepts a value, or a key without one.
    Exists(bool),
    AnythingBut(AnythingBut),
}

impl Rule {
    /// Reads an object with one operator.
    pub fn parse(object: &Object, at: &Location) -> Result<Self, Error> {
        let mut entries = object.iter();
        let (Some((operator, operand)), None) = (entries.next(), entries.next()) else {
            return Err(at.invalid("a rule has exactly one operator, as {\"prefix\": \"a\"}"));
        };
        let at = at.key(operator);
        match operator {
            "prefix" => Ok(Self::Prefix(text(operand, &at)?.into())),
            "suffix" => Ok(Self::Suffix(text(operand, &at)?.into())),
            "equals-ignore-case" => Ok(Self::EqualsIgnoreCase(fold(text(operand, &at)?).into())),
            "numeric" => Range::parse(operand, &at).map(Self::Numeric),
            "cidr" => network(operand, &at).map(Self::Cidr),
            "anything-but" => AnythingBut::parse(operand, &at).map(Self::AnythingBut),
            "exists" => match operand {
                Json::Bool(exists) => Ok(Self::Exists(*exists)),
                _ => Err(at.mismatch("true or false", operand)),
            },
            _ => Err(at.invalid(
                "unknown operator: use anything-but, cidr, equals-ignore-case, exists, numeric, prefix or suffix",
            )),
        }
    }

    /// The number of `numeric` with `=`.
    pub fn exact_number(&self) -> Option<&Decimal> {
        match self {
            Self::Numeric(range) => range.only(),
            _ => None,
        }
    }

    /// Whether the value follows the rule.
    pub fn accepts(&self, scalar: &Scalar) -> bool {
        match (self, scalar) {
            (Self::Null, scalar) => matches!(scalar, Scalar::Null),
            (Self::Bool(own), Scalar::Bool(value)) => own == value,
            (Self::Prefix(prefix), Scalar::Text(text)) => text.starts_with(prefix.as_ref()),
            (Self::Suffix(suffix), Scalar::Text(text)) => text.ends_with(suffix.as_ref()),
            (Self::EqualsIgnoreCase(folded), Scalar::Text(text)) => equals_ignore_case(folded, text),
            (Self::Numeric(range), Scalar::Number(number)) => range.contains(number),
            (Self::Cidr(network), Scalar::Text(text)) => {
                text.parse::<IpAddr>().is_ok_and(|address| network.contains(address))
            }
            (Self::Exists(exists), scalar) => *exists && !matches!(scalar, Scalar::Null | Scalar::Text("")),
            (Self::AnythingBut(excluded), scalar) => excluded.accepts(scalar),
            (
                Self::Bool(_)
                | Self::Prefix(_)
                | Self::Suffix(_)
                | Self::EqualsIgnoreCase(_)
                | Self::Numeric(_)
                | Self::Cidr(_),
                _,
            ) => false,
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

/// Compares with a folded text. The common case of ASCII needs no memory.
fn equals_ignore_case(folded: &str, text: &str) -> bool {
    if text.is_ascii() { folded.eq_ignore_ascii_case(text) } else { fold(text) == folded }
}
