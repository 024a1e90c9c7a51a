//! The evaluator of queue policies for one request. It is a pure function of the policy text and the facts.
//!
//! ```text
//! policy ──▶ statements ──▶ about this caller, action, queue, and their conditions hold?
//!                              any Deny  ──▶ Denied
//!                              any Allow ──▶ Allowed
//!                              none      ──▶ Unmentioned
//! ```
//!
//! | element | supported values |
//! |---|---|
//! | `Principal`, `NotPrincipal` | `*`, and under `AWS` accounts: their ids, or `arn:aws:iam::ACCOUNT:root` |
//! | `Action`, `NotAction` | `*` and `sqs:NAME` in any case, with `*` and `?`; the name of an operation represents its batch too |
//! | `Resource`, `NotResource` | `*` and ARNs with `*` and `?` |
//! | `Condition` | addresses, TLS, the caller's ARN and dates: see [`condition`] |
//!
//! [`check`] refuses a policy with anything else before it is stored, also through REST. A policy that an older version
//! has stored fails closed: an unreadable policy denies everything; a statement that is not understood allows nothing
//! if it is an `Allow`, and otherwise denies everything. The same holds for a condition on an unknown fact.
//! `permissions` states what the queue's own account may do nevertheless.

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

/// The facts of a request.
#[derive(Clone, Copy, Debug)]
pub struct RequestFacts<'a> {
    /// The account of the caller.
    pub account: &'a str,
    /// The source of the request, if the replica of the client has sent it.
    pub source: Option<Source>,
    /// The time of the evaluation.
    pub now: Timestamp,
}

/// The decision of a policy on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// A statement allows the request, and none denies it.
    Allowed,
    /// A statement denies the request, or cannot be understood.
    Denied,
    /// No statement matches the request.
    Unmentioned,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    Allow,
    Deny,
}

/// A set, or its complement.
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
    /// Patterns of action names, without the service.
    actions: Matcher<String>,
    resources: Matcher<String>,
    conditions: Vec<Condition>,
}

impl Statement {
    /// Whether the statement matches a request; none when a required fact is unknown.
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

/// Whether a pattern matches an operation. A batch operation also matches the pattern of its single operation.
fn is_action(pattern: &str, operation: Operation) -> bool {
    let name = operation.name();
    let single = name.strip_suffix("Batch").unwrap_or(name);
    [single, name].iter().any(|name| matches(pattern, name, Case::Ignored))
}

/// Evaluates a policy for an operation on the queue of `arn`; without a policy the request is unmentioned.
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

/// Parses and checks a policy before it is stored.
///
/// # Errors
///
/// The part that is not understood, with the name of its element.
pub fn check(policy: &str) -> Result<Value, String> {
    for statement in reading::statements(policy)? {
        statement.map_err(|misfit| misfit.why)?;
    }
    serde_json::from_str(policy).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
