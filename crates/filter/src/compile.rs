//! From the JSON of a policy to its alternatives: `$or` is multiplied out, within the bound of combinations.

use std::collections::BTreeSet;
use std::sync::Arc;

use angarium_core::error::Error;

use crate::json::{Json, path_parts};
use crate::limits::{JSON_LEVELS, POLICY_COMBINATIONS, POLICY_KEYS};
use crate::location::Location;
use crate::object::Object;
use crate::pattern::Pattern;
use crate::policy::FilterScope;
use crate::rule_set::RuleSet;

/// Names of operators, now or perhaps later. An array of `$or` with such a key is an array of rules.
const RESERVED: [&str; 24] = [
    "<",
    "<=",
    "=",
    ">",
    ">=",
    "anything-but",
    "cidr",
    "date-after",
    "date-before",
    "date-on-or-after",
    "date-on-or-before",
    "equals-ignore-case",
    "exactly",
    "exists",
    "in-date-range",
    "ip-address-in-range",
    "ip-address-not-in-range",
    "not-equals-ignore-case",
    "not-wildcard",
    "numeric",
    "prefix",
    "regex",
    "suffix",
    "wildcard",
];

/// Returns the rules of a policy, and the number of its alternatives: a message that one of them accepts is accepted.
pub fn compile(policy: &Object, scope: FilterScope, at: &Location) -> Result<(Pattern, usize), Error> {
    let mut compiler = Compiler { scope, keys: BTreeSet::new(), root: at };
    let alternatives = compiler.object(policy, &[], 1, at)?.list;
    let mut pattern = Pattern::default();
    for (alternative, Conjunction(needed)) in alternatives.iter().enumerate() {
        for (path, rules) in needed {
            pattern.add(path, rules, alternative);
        }
    }
    Ok((pattern, alternatives.len()))
}

type Path = Arc<[Arc<str>]>;

/// Rules of paths, all of which must accept.
#[derive(Clone, Default)]
struct Conjunction(Vec<(Path, Arc<RuleSet>)>);

/// Conjunctions, one of which must accept, and the combinations of values that they count for: at least as many as they
/// are.
struct Alternatives {
    list: Vec<Conjunction>,
    combinations: u64,
}

struct Compiler<'a> {
    scope: FilterScope,
    /// Different keys of the outermost level, as they are written.
    keys: BTreeSet<Arc<str>>,
    root: &'a Location<'a>,
}

impl Compiler<'_> {
    /// Reads an object below `above`. `level` is 1 for the policy itself.
    fn object(
        &mut self,
        object: &Object,
        above: &[Arc<str>],
        level: u64,
        at: &Location,
    ) -> Result<Alternatives, Error> {
        if object.is_empty() {
            return Err(at.invalid("the object has no key"));
        }
        let mut all = Alternatives { list: vec![Conjunction::default()], combinations: 1 };
        for (key, value) in object.iter() {
            let at = at.key(key);
            let more = match value {
                Json::Array(values) => match branches(key, values) {
                    Some(branches) => self.any(&branches, above, level, &at)?,
                    None => {
                        self.count_key(key, level)?;
                        self.rules(values, &self.path(above, key, &at)?, level, &at)?
                    }
                },
                Json::Object(below) => {
                    if self.scope == FilterScope::Attributes {
                        return Err(at.mismatch("an array, as attributes have no keys below them", value));
                    }
                    self.count_key(key, level)?;
                    self.object(below, &self.path(above, key, &at)?, level + 1, &at)?
                }
                _ => return Err(at.mismatch("an array of values and rules, or an object", value)),
            };
            all = self.multiply(all, &more)?;
        }
        Ok(all)
    }

    /// Counts a key as SNS does: of nested keys only the outermost one. The combinations bound those below it, since each
    /// level of a key multiplies them.
    fn count_key(&mut self, key: &str, level: u64) -> Result<(), Error> {
        if level > 1 || self.keys.contains(key) {
            return Ok(());
        }
        self.keys.insert(key.into());
        if self.keys.len() > POLICY_KEYS {
            let why = format!("more than {POLICY_KEYS} keys, those of the objects of $or included");
            return Err(self.root.exceeds(why));
        }
        Ok(())
    }

    /// Reads the objects of `$or`.
    fn any(
        &mut self,
        branches: &[&Object],
        above: &[Arc<str>],
        level: u64,
        at: &Location,
    ) -> Result<Alternatives, Error> {
        let mut any = Alternatives { list: Vec::new(), combinations: 0 };
        for (index, branch) in branches.iter().enumerate() {
            let branch = self.object(branch, above, level, &at.index(index))?;
            any.combinations = self.bounded(any.combinations.saturating_add(branch.combinations))?;
            any.list.extend(branch.list);
        }
        Ok(any)
    }

    fn rules(
        &mut self,
        values: &[Json],
        path: &[Arc<str>],
        level: u64,
        at: &Location,
    ) -> Result<Alternatives, Error> {
        let count = u64::try_from(values.len()).unwrap_or(u64::MAX);
        let combinations = self.bounded(count.saturating_mul(level))?;
        let rules = Arc::new(RuleSet::parse(values, at)?);
        Ok(Alternatives { list: vec![Conjunction(vec![(Path::from(path), rules)])], combinations })
    }

    /// Joins each alternative of one side with each of the other.
    fn multiply(&self, left: Alternatives, right: &Alternatives) -> Result<Alternatives, Error> {
        let combinations = self.bounded(left.combinations.saturating_mul(right.combinations))?;
        let join = |left: &Conjunction, right: &Conjunction| {
            Conjunction(left.0.iter().chain(&right.0).cloned().collect())
        };
        let pairs = left.list.iter().flat_map(|one| right.list.iter().map(move |other| join(one, other)));
        Ok(Alternatives { list: pairs.collect(), combinations })
    }

    fn bounded(&self, combinations: u64) -> Result<u64, Error> {
        if combinations <= POLICY_COMBINATIONS {
            return Ok(combinations);
        }
        Err(self.root.exceeds(format!(
            "more than {POLICY_COMBINATIONS} combinations of values: the product, over the keys, of the number of \
             values and the level of the key; the objects of $or add up"
        )))
    }

    /// The path of a key. Names of attributes are taken literally.
    fn path(&self, above: &[Arc<str>], key: &str, at: &Location) -> Result<Vec<Arc<str>>, Error> {
        let mut path = above.to_vec();
        match self.scope {
            FilterScope::Attributes => path.push(key.into()),
            FilterScope::Body => path.extend(path_parts(key).map(Arc::from)),
        }
        if path.len() > JSON_LEVELS {
            return Err(at.exceeds(format!("more than {JSON_LEVELS} levels of keys")));
        }
        Ok(path)
    }
}

/// The objects of a key `$or`. None if it is a plain key: it has fewer than two elements, one that is no object, or one
/// with the name of an operator.
fn branches<'a>(key: &str, values: &'a [Json<'a>]) -> Option<Vec<&'a Object<'a>>> {
    if key != "$or" || values.len() < 2 {
        return None;
    }
    let branch = |value: &'a Json<'a>| match value {
        Json::Object(object) if !object.iter().any(|(key, _)| RESERVED.contains(&key)) => Some(object),
        _ => None,
    };
    values.iter().map(branch).collect()
}
