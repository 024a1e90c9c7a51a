//! Parsing of policies from JSON, statement by statement, so that one invalid statement hides no other.

use serde_json::{Map, Value};

use super::condition;
use super::pattern::{Case, matches};
use super::unique::Unique;
use super::{Effect, Matcher, Principal, Statement};
use crate::api::sqs::operation::ALL;

/// A statement that is not understood.
#[derive(Debug)]
pub struct Misfit {
    /// The effect of the statement; `Deny` when the effect is not understood either.
    pub(super) effect: Effect,
    /// The part that is not understood, with the name of its element.
    pub why: String,
}

const VERSIONS: [&str; 2] = ["2008-10-17", "2012-10-17"];
const IAM: &str = "arn:aws:iam::";
const ROOT: &str = ":root";

/// Parses the statements of a policy.
///
/// # Errors
///
/// The reason why the whole policy is invalid.
pub fn statements(policy: &str) -> Result<Vec<Result<Statement, Misfit>>, String> {
    let Unique(policy) = serde_json::from_str(policy).map_err(|error| format!("it is no JSON: {error}"))?;
    let Value::Object(policy) = policy else { return Err("it is no JSON object".to_owned()) };
    let mut all = None;
    for (name, value) in policy {
        match (name.as_str(), value) {
            ("Version", Value::String(version)) if VERSIONS.contains(&version.as_str()) => {}
            ("Id", Value::String(_)) => {}
            ("Statement", Value::Array(statements)) => all = Some(statements),
            ("Statement", statement @ Value::Object(_)) => all = Some(vec![statement]),
            ("Version", _) => return Err(format!("Version: it is one of {}", VERSIONS.join(" and "))),
            ("Id", _) => return Err("Id: it is no text".to_owned()),
            ("Statement", _) => return Err("Statement: it is neither an object nor a list".to_owned()),
            (unknown, _) => return Err(format!("the element {unknown:?} is not supported")),
        }
    }
    let all = all.ok_or("the element \"Statement\" is missing")?;
    Ok((1..).zip(all).map(|(number, value)| numbered(number, value)).collect())
}

/// Parses a statement. Its number in the policy becomes part of the error.
fn numbered(number: usize, value: Value) -> Result<Statement, Misfit> {
    let effect = match value.get("Effect").and_then(Value::as_str) {
        Some("Allow") => Effect::Allow,
        _ => Effect::Deny,
    };
    let misfit = |why: String| Misfit { effect, why: format!("statement {number}: {why}") };
    let Value::Object(elements) = value else { return Err(misfit("it is no object".to_owned())) };
    statement(elements).map_err(misfit)
}

fn statement(elements: Map<String, Value>) -> Result<Statement, String> {
    let (mut effect, mut principals, mut actions, mut resources) = (None, None, None, None);
    let mut conditions = Vec::new();
    for (name, value) in &elements {
        let is_negated = name.starts_with("Not");
        match name.as_str() {
            "Sid" if value.is_string() => {}
            "Sid" => return Err("Sid: it is no text".to_owned()),
            "Effect" => effect = Some(effect_of(value)?),
            "Principal" | "NotPrincipal" => {
                put(&mut principals, name, Matcher { any_of: named_principals(name, value)?, is_negated })?;
            }
            "Action" | "NotAction" => {
                let any_of = texts(name, value)?.into_iter().map(|text| action(name, text));
                let any_of = any_of.collect::<Result<_, _>>()?;
                put(&mut actions, name, Matcher { any_of, is_negated })?;
            }
            "Resource" | "NotResource" => {
                let any_of = texts(name, value)?.into_iter().map(|text| resource(name, text));
                let any_of = any_of.collect::<Result<_, _>>()?;
                put(&mut resources, name, Matcher { any_of, is_negated })?;
            }
            "Condition" => conditions = condition::read(value)?,
            unknown => return Err(format!("the element {unknown:?} is not supported")),
        }
    }
    let missing = |name: &str| format!("the element {name:?} is missing");
    Ok(Statement {
        effect: effect.ok_or_else(|| missing("Effect"))?,
        principals: principals.ok_or_else(|| missing("Principal"))?,
        actions: actions.ok_or_else(|| missing("Action"))?,
        resources: resources.ok_or_else(|| missing("Resource"))?,
        conditions,
    })
}

fn put<T>(place: &mut Option<T>, name: &str, value: T) -> Result<(), String> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(format!("{name}: an element and its Not form exclude each other")),
    }
}

fn effect_of(value: &Value) -> Result<Effect, String> {
    match value.as_str() {
        Some("Allow") => Ok(Effect::Allow),
        Some("Deny") => Ok(Effect::Deny),
        _ => Err(format!("Effect: {value} is neither \"Allow\" nor \"Deny\"")),
    }
}

/// Parses one text, or a list of at least one.
fn texts<'v>(name: &str, value: &'v Value) -> Result<Vec<&'v str>, String> {
    let wrong = || format!("{name}: it is neither a text nor a list of texts");
    match value {
        Value::String(text) => Ok(vec![text]),
        Value::Array(all) if all.is_empty() => Err(format!("{name}: the list is empty")),
        Value::Array(all) => all.iter().map(|text| text.as_str().ok_or_else(wrong)).collect(),
        _ => Err(wrong()),
    }
}

fn named_principals(name: &str, value: &Value) -> Result<Vec<Principal>, String> {
    if value == "*" {
        return Ok(vec![Principal::Everyone]);
    }
    let Value::Object(kinds) = value else {
        return Err(format!("{name}: it is neither \"*\" nor an object with the key \"AWS\""));
    };
    if let Some(kind) = kinds.keys().find(|kind| *kind != "AWS") {
        return Err(format!("{name}: the kind {kind:?} is not supported, only \"AWS\" is"));
    }
    let named = kinds.get("AWS").ok_or_else(|| format!("{name}: the key \"AWS\" is missing"))?;
    texts(name, named)?.into_iter().map(|text| principal(name, text)).collect()
}

fn principal(name: &str, text: &str) -> Result<Principal, String> {
    if text == "*" {
        return Ok(Principal::Everyone);
    }
    let account = match text.strip_prefix(IAM) {
        Some(rest) => rest.strip_suffix(ROOT),
        None => Some(text).filter(|text| !text.starts_with("arn:")),
    };
    match account {
        Some(account) if !account.is_empty() && !account.contains(['*', '?']) => {
            Ok(Principal::Account(account.to_owned()))
        }
        _ => Err(format!(
            "{name}: {text:?} is no account: write its id or {IAM}ACCOUNT{ROOT}; users, roles and wildcards in a name are \
             not supported"
        )),
    }
}

/// Returns the pattern of an action, without the service.
fn action(name: &str, text: &str) -> Result<String, String> {
    if text == "*" {
        return Ok(text.to_owned());
    }
    let pattern = match text.split_once(':') {
        Some((service, pattern)) if service.eq_ignore_ascii_case("sqs") => pattern,
        _ => return Err(format!("{name}: {text:?} is no action of SQS, as in \"sqs:SendMessage\"")),
    };
    if !ALL.iter().any(|operation| matches(pattern, operation.name(), Case::Ignored)) {
        return Err(format!("{name}: there is no action {text:?}"));
    }
    Ok(pattern.to_owned())
}

fn resource(name: &str, text: &str) -> Result<String, String> {
    if !text.starts_with("arn:") && !text.starts_with(['*', '?']) {
        return Err(format!("{name}: {text:?} is neither \"*\" nor an ARN"));
    }
    refuse_variables(name, text)?;
    Ok(text.to_owned())
}

/// Refuses policy variables, which AWS would substitute.
pub fn refuse_variables(name: &str, text: &str) -> Result<(), String> {
    if text.contains("${") {
        return Err(format!("{name}: {text:?} has a policy variable, which is not supported"));
    }
    Ok(())
}
