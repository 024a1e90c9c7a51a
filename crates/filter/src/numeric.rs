//! The operator `numeric`: a number equal to another one, or in a range.

use std::cmp::Ordering;

use angarium_core::error::Error;

use crate::decimal::Decimal;
use crate::json::Json;
use crate::limits::{NUMERIC_FRACTION_DIGITS, NUMERIC_SIZE};
use crate::location::Location;

/// Numbers between two ends; without an end, all numbers on that side.
#[derive(Clone, Debug, Default)]
pub struct Range {
    bottom: Option<End>,
    top: Option<End>,
}

#[derive(Clone, Debug)]
struct End {
    number: Decimal,
    is_included: bool,
}

const FORM: &str = "an array as [\"=\", 5], [\">\", 5] or [\">=\", 5, \"<\", 10]";

impl Range {
    /// Reads `["=", 5]`, `["<", 5]` (or `<=`, `>`, `>=`), or a range `[">", 5, "<=", 10]`, whose bottom is first.
    pub fn parse(operand: &Json, at: &Location) -> Result<Self, Error> {
        let Json::Array(terms) = operand else { return Err(at.mismatch(FORM, operand)) };
        let mut range = match &terms[..] {
            [operator, number, ..] => Self::side(operator, number, 0, at)?,
            _ => return Err(at.invalid(format!("an operator and a number are expected: {FORM}"))),
        };
        match &terms[2..] {
            [] => return Ok(range),
            [operator, number] => {
                let second = Self::side(operator, number, 2, at)?;
                if range.top.is_some() || second.bottom.is_some() {
                    return Err(at.invalid("a range begins with > or >=, and ends with < or <="));
                }
                range.top = second.top;
            }
            _ => return Err(at.invalid(format!("at most two operators, each with a number: {FORM}"))),
        }
        let ends = range.bottom.as_ref().zip(range.top.as_ref());
        if ends.is_some_and(|(bottom, top)| bottom.number >= top.number) {
            return Err(at.invalid("the bottom of the range is not less than its top"));
        }
        Ok(range)
    }

    fn side(operator: &Json, number: &Json, index: usize, at: &Location) -> Result<Self, Error> {
        let Json::Text(symbol) = operator else {
            return Err(at.index(index).mismatch("one of =, <, <=, > and >=", operator));
        };
        let number = bounded(number, &at.index(index + 1))?;
        let end = |is_included| Some(End { number: number.clone(), is_included });
        Ok(match symbol.as_ref() {
            "=" => Self { bottom: end(true), top: end(true) },
            "<" => Self { bottom: None, top: end(false) },
            "<=" => Self { bottom: None, top: end(true) },
            ">" => Self { bottom: end(false), top: None },
            ">=" => Self { bottom: end(true), top: None },
            _ => return Err(at.index(index).invalid("the operator is none of =, <, <=, > and >=")),
        })
    }

    /// The only number of the range, if it has but one.
    pub fn only(&self) -> Option<&Decimal> {
        let (bottom, top) = self.bottom.as_ref().zip(self.top.as_ref())?;
        (bottom.number == top.number).then_some(&bottom.number)
    }

    /// Whether the range has the number.
    pub fn contains(&self, number: &Decimal) -> bool {
        let is_inside = |end: &Option<End>, inside: Ordering| {
            end.as_ref().is_none_or(|end| match number.cmp(&end.number) {
                Ordering::Equal => end.is_included,
                side => side == inside,
            })
        };
        is_inside(&self.bottom, Ordering::Greater) && is_inside(&self.top, Ordering::Less)
    }
}

/// Reads a number within the bounds of SNS.
fn bounded(value: &Json, at: &Location) -> Result<Decimal, Error> {
    let Json::Number(text) = value else { return Err(at.mismatch("a number", value)) };
    let number = Decimal::parse(text).ok_or_else(|| at.mismatch("a number", value))?;
    if Decimal::parse(NUMERIC_SIZE).is_none_or(|max| number.size() > max) {
        return Err(at.exceeds(format!("the number is not within -{NUMERIC_SIZE} and {NUMERIC_SIZE}")));
    }
    if number.fraction_digits() > NUMERIC_FRACTION_DIGITS {
        return Err(at.exceeds(format!("more than {NUMERIC_FRACTION_DIGITS} digits after the point")));
    }
    Ok(number)
}
