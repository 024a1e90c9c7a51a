//! The evaluator of queue policies: what a policy states of one request. Pure: it reads text and facts, and nothing
//! else.
//!
//! ```text
//! policy ──▶ statements ──▶ about this caller, action, queue, and their conditions hold?
//!                              any Deny  ──▶ Denied
//!                              any Allow ──▶ Allowed
//!                              none      ──▶ Unmentioned
//! ```
//!
//! | element | what is understood |
//! |---|---|
//! | `Principal`, `NotPrincipal` | `*`, and under `AWS` accounts: their ids, or `arn:aws:iam::ACCOUNT:root` |
//! | `Action`, `NotAction` | `*` and `sqs:NAME` in any case, with `*` and `?`; the name of an operation represents its batch too |
//! | `Resource`, `NotResource` | `*` and ARNs with `*` and `?` |
//! | `Condition` | addresses, TLS, the caller's ARN and dates: see [`condition`] |
//!
//! [`check`] refuses a policy with anything else before it is stored, through REST too. One that an older version has
//! stored fails closed: a policy that cannot be read denies everything; of its statements one that is not understood
//! allows nothing if it is an `Allow`, and denies everything otherwise. So does a condition on a fact that is not
//! known. What the queue's own account may do nevertheless is for `permissions` to say.

pub mod condition;
mod pattern;
mod reading;
mod unique;

use serde_json::Value;

use super::operation::Operation;
use angarium_core::source::Source;
use angarium_core::time::Timestamp;
use condition::Condition;
use pattern::{Case, matches};

/// What is known of a request.
#[derive(Clone, Copy, Debug)]
pub struct RequestFacts<'a> {
    /// The account of the caller.
    pub account: &'a str,
    /// Where the request is from, if the replica that the client spoke to has told.
    pub source: Option<Source>,
    /// When it is judged.
    pub now: Timestamp,
}

/// What a policy states of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// A statement allows it, and none denies it.
    Allowed,
    /// A statement denies it, or cannot be understood.
    Denied,
    /// No statement is about it.
    Unmentioned,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    Allow,
    Deny,
}

/// The elements of a set, or all others.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Matcher<T> {
    any_of: Vec<T>,
    is_negated: bool,
}

impl<T> Matcher<T> {
    fn covers(&self, is_it: impl Fn(&T) -> bool) -> bool {
        self.any_of.iter().any(is_it) != self.is_negated
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Principal {
    Everyone,
    Account(String),
}

#[derive(Clone, Debug, PartialEq)]
struct Statement {
    effect: Effect,
    principals: Matcher<Principal>,
    /// Patterns of names, without the service.
    actions: Matcher<String>,
    resources: Matcher<String>,
    conditions: Vec<Condition>,
}

impl Statement {
    /// Whether the statement is about a request; none when a fact is missing that decides it.
    fn applies(&self, facts: &RequestFacts<'_>, operation: Operation, arn: &str) -> Option<bool> {
        let is_caller = |principal: &Principal| match principal {
            Principal::Everyone => true,
            Principal::Account(account) => account == facts.account,
        };
        let is_about = self.principals.covers(is_caller)
            && self.actions.covers(|action| is_action(action, operation))
            && self.resources.covers(|resource| matches(resource, arn, Case::Kept));
        if !is_about {
            return Some(false);
        }
        let mut applies = Some(true);
        for condition in &self.conditions {
            match condition.holds(facts) {
                Some(true) => {}
                Some(false) => return Some(false),
                None => applies = None,
            }
        }
        applies
    }
}

/// Whether a pattern is for an operation. A batch is what each of its entries is: a pattern for either is for it.
fn is_action(pattern: &str, operation: Operation) -> bool {
    let name = operation.name();
    let single = name.strip_suffix("Batch").unwrap_or(name);
    [single, name].iter().any(|name| matches(pattern, name, Case::Ignored))
}

/// What a policy states of an operation on the queue of `arn`; without a policy nothing.
pub fn decide(policy: Option<&str>, facts: &RequestFacts<'_>, operation: Operation, arn: &str) -> Decision {
    let Some(policy) = policy else { return Decision::Unmentioned };
    let Ok(statements) = reading::statements(policy) else { return Decision::Denied };
    let mut decision = Decision::Unmentioned;
    for statement in statements {
        let (effect, applies) = match statement {
            Ok(statement) => (statement.effect, statement.applies(facts, operation, arn)),
            Err(misfit) => (misfit.effect, None),
        };
        match (effect, applies) {
            (Effect::Deny, Some(true) | None) => return Decision::Denied,
            (Effect::Allow, Some(true)) => decision = Decision::Allowed,
            (Effect::Allow, None) | (_, Some(false)) => {}
        }
    }
    decision
}

/// Reads the text of a policy that is to be stored.
///
/// # Errors
///
/// What is not understood, by the name of its element.
pub fn check(policy: &str) -> Result<Value, String> {
    for statement in reading::statements(policy)? {
        statement.map_err(|misfit| misfit.why)?;
    }
    serde_json::from_str(policy).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
