//! The rules of one key. A value is accepted when one of them accepts it.

use angarium_core::error::Error;

use crate::decimal::Decimal;
use crate::elements::Scalar;
use crate::json::Json;
use crate::location::Location;
use crate::rule::{Operator, Rule};
use crate::sets::{FoldedSet, PrefixSet, SuffixSet, TextSet};

/// The array of a key. One search finds a rule of each kind that a message could meet many times.
#[derive(Clone, Debug)]
pub struct RuleSet {
    /// Exact strings.
    texts: TextSet,
    /// Strings in any case.
    folded: FoldedSet,
    prefixes: PrefixSet,
    suffixes: SuffixSet,
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
        let (mut texts, mut folded) = (Vec::new(), Vec::new());
        let (mut prefixes, mut suffixes) = (Vec::new(), Vec::new());
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
                Json::Object(object) => match Operator::parse(object, &at)? {
                    Operator::Prefix(text) => prefixes.push(text),
                    Operator::Suffix(text) => suffixes.push(text),
                    Operator::EqualsIgnoreCase(text) => folded.push(text),
                    Operator::Number(number) => numbers.push(number),
                    Operator::Other(rule) => others.push(rule),
                },
                Json::Array(_) => {
                    return Err(
                        at.mismatch("a string, number, boolean, null or object with an operator", rule)
                    );
                }
            }
        }
        numbers.sort();
        let accepts_absence = others.iter().any(|rule| matches!(rule, Rule::Exists(false)));
        Ok(Self {
            texts: texts.into_iter().collect(),
            folded: folded.into_iter().collect(),
            prefixes: prefixes.into_iter().collect(),
            suffixes: suffixes.into_iter().collect(),
            numbers,
            others,
            accepts_absence,
        })
    }

    /// Whether a key without a value is accepted.
    pub fn accepts_absence(&self) -> bool {
        self.accepts_absence
    }

    /// Whether a rule accepts the value.
    pub fn accepts(&self, scalar: &Scalar) -> bool {
        let is_found = match scalar {
            Scalar::Text(text) => self.accepts_text(text),
            Scalar::Number(number) => self.numbers.binary_search(number).is_ok(),
            Scalar::Null | Scalar::Bool(_) => false,
        };
        is_found || self.others.iter().any(|rule| rule.accepts(scalar))
    }

    fn accepts_text(&self, text: &str) -> bool {
        self.texts.contains(text)
            || self.prefixes.begins(text.as_bytes())
            || self.suffixes.ends(text)
            || self.folded.contains(text)
    }
}
