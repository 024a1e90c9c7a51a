//! The rules of one key. A value is accepted when one of them accepts it.

use angarium_core::error::Error;

use crate::decimal::Decimal;
use crate::elements::Scalar;
use crate::json::Json;
use crate::location::Location;
use crate::rule::Rule;
use crate::sets::TextSet;

/// The array of a key.
#[derive(Clone, Debug)]
pub struct RuleSet {
    /// Exact strings.
    texts: TextSet,
    /// Exact numbers, in order.
    numbers: Vec<Decimal>,
    others: Vec<Rule>,
    accepts_absence: bool,
}

impl RuleSet {
    /// Reads the array of a key: exact values, and objects with an operator.
    pub fn parse(rules: &[Json], at: &Location) -> Result<Self, Error> {
        if rules.is_empty() {
            return Err(at.invalid("the array is empty: no value would be accepted"));
        }
        let mut texts = Vec::new();
        let mut numbers = Vec::new();
        let mut others = Vec::new();
        for (index, rule) in rules.iter().enumerate() {
            let at = at.index(index);
            match rule {
                Json::Null => others.push(Rule::Null),
                Json::Bool(value) => others.push(Rule::Bool(*value)),
                Json::Number(text) => {
                    numbers.push(Decimal::parse(text).ok_or_else(|| at.mismatch("a number", rule))?);
                }
                Json::Text(text) => texts.push(text.as_ref()),
                Json::Object(object) => {
                    let rule = Rule::parse(object, &at)?;
                    match rule.exact_number() {
                        Some(number) => numbers.push(number.clone()),
                        None => others.push(rule),
                    }
                }
                Json::Array(_) => {
                    return Err(
                        at.mismatch("a string, number, boolean, null or object with an operator", rule)
                    );
                }
            }
        }
        numbers.sort();
        let accepts_absence = others.iter().any(|rule| matches!(rule, Rule::Exists(false)));
        Ok(Self { texts: texts.into_iter().collect(), numbers, others, accepts_absence })
    }

    /// Whether a key without a value is accepted.
    pub fn accepts_absence(&self) -> bool {
        self.accepts_absence
    }

    /// Whether a rule accepts the value.
    pub fn accepts(&self, scalar: &Scalar) -> bool {
        let is_exact = match scalar {
            Scalar::Text(text) => self.texts.contains(text),
            Scalar::Number(number) => self.numbers.binary_search(number).is_ok(),
            Scalar::Null | Scalar::Bool(_) => false,
        };
        is_exact || self.others.iter().any(|rule| rule.accepts(scalar))
    }
}
