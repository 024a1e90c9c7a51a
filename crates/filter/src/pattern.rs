//! Evaluation: the rules of all alternatives as one tree like the messages, in one pass over a message.

use std::sync::Arc;

use crate::elements::{Scalar, any_object, any_scalar};
use crate::json::Json;
use crate::mask::Mask;
use crate::object::Object;
use crate::rule_set::RuleSet;

/// Rules of a value and of the keys below it, each with the alternatives that need it.
#[derive(Clone, Debug, Default)]
pub struct Pattern {
    rules: Vec<(Arc<RuleSet>, Mask)>,
    below: Vec<(Arc<str>, Pattern)>,
}

impl Pattern {
    /// Adds rules of an alternative for the value at a path.
    pub fn add(&mut self, path: &[Arc<str>], rules: &Arc<RuleSet>, alternative: usize) {
        let Some((key, rest)) = path.split_first() else {
            let place = self.rules.iter().position(|(own, _)| Arc::ptr_eq(own, rules)).unwrap_or_else(|| {
                self.rules.push((Arc::clone(rules), Mask::default()));
                self.rules.len() - 1
            });
            self.rules[place].1.insert(alternative);
            return;
        };
        let place = self.below.iter().position(|(own, _)| own == key).unwrap_or_else(|| {
            self.below.push((Arc::clone(key), Self::default()));
            self.below.len() - 1
        });
        self.below[place].1.add(rest, rules, alternative);
    }

    /// Returns the alternatives of `wanted` that accept the values of the keys of an object.
    pub fn accepting_object(&self, object: &Object, wanted: Mask) -> Mask {
        self.accepting_keys(wanted, |key| object.get(key))
    }

    fn accepting_keys<'j>(&self, wanted: Mask, value: impl Fn(&str) -> Option<&'j Json<'j>>) -> Mask {
        let mut accepting = wanted;
        for (key, pattern) in &self.below {
            if accepting.is_empty() {
                break;
            }
            accepting = pattern.accepting(value(key), accepting);
        }
        accepting
    }

    fn accepting(&self, value: Option<&Json>, wanted: Mask) -> Mask {
        let accepting = self.accepting_scalars(value, wanted);
        if self.below.is_empty() || accepting.is_empty() {
            return accepting;
        }
        self.accepting_below(value, accepting)
    }

    fn accepting_scalars(&self, value: Option<&Json>, wanted: Mask) -> Mask {
        match &self.rules[..] {
            [] => wanted,
            [(rules, needed_by)] => {
                let verdict = value.and_then(|value| any_scalar(value, &mut |scalar| rules.accepts(scalar)));
                let is_accepted = verdict.unwrap_or(rules.accepts_absence());
                if is_accepted { wanted } else { wanted & !*needed_by }
            }
            _ => self.accepting_scalars_of_many(value, wanted),
        }
    }

    /// Looks at each scalar once, with all rules that have not accepted one yet.
    fn accepting_scalars_of_many(&self, value: Option<&Json>, wanted: Mask) -> Mask {
        let needed = self.rules.iter().filter(|(_, needed_by)| !(*needed_by & wanted).is_empty());
        let mut pending: Vec<&(Arc<RuleSet>, Mask)> = needed.collect();
        let mut look = |scalar: &Scalar| {
            pending.retain(|(rules, _)| !rules.accepts(scalar));
            pending.is_empty()
        };
        let verdict = value.and_then(|value| any_scalar(value, &mut look));
        if verdict.is_none() {
            pending.retain(|(rules, _)| !rules.accepts_absence());
        }
        pending.iter().fold(wanted, |accepting, (_, needed_by)| accepting & !*needed_by)
    }

    /// An alternative needs one object with all its keys. A value without an object has no keys below it.
    fn accepting_below(&self, value: Option<&Json>, wanted: Mask) -> Mask {
        let mut accepting = Mask::default();
        let mut look = |object: &Object| {
            accepting = accepting | self.accepting_object(object, wanted & !accepting);
            accepting == wanted
        };
        match value.and_then(|value| any_object(value, &mut look)) {
            Some(_) => accepting,
            None => self.accepting_keys(wanted, |_| None),
        }
    }
}
