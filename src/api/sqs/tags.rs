//! Tags of queues.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::context::Context;
use super::decode::shown;
use super::encode::OperationResult;
use super::fault::{Fault, capitalized, unvalued};
use super::lists::{BoundedMap, Names, names};
use super::rewrite::{rewrite, value};
use angarium_core::attributes as keys;
use angarium_core::limits;

type Tags = BTreeMap<String, String>;

/// The parsed tags of a request, up to the number that a queue may have.
pub type TagsInput = BoundedMap<String, { limits::SQS_TAGS.0 }>;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct TagQueue {
    #[serde(default)]
    tags: Option<TagsInput>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct UntagQueue {
    #[serde(default)]
    tag_keys: Option<Names>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct TagsReply {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    tags: Tags,
}

/// Returns the tags of a request; fails if there are too many.
pub fn asked(tags: Option<TagsInput>) -> Result<Tags, Fault> {
    tags.unwrap_or_default().whole().map_err(|count| Misfit::Number(count).into())
}

/// Checks new tags.
pub fn checked(tags: Tags) -> Result<Tags, Fault> {
    check(&tags)?;
    Ok(tags)
}

/// The reason for refusing tags.
#[derive(Debug)]
enum Misfit<'a> {
    /// An invalid key.
    Key(&'a str),
    /// An invalid value.
    Value(&'a str),
    /// Too many tags.
    Number(usize),
}

impl fmt::Display for Misfit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (most, keys, values) = limits::SQS_TAGS;
        match self {
            Self::Key(key) => {
                let plain = "letters, digits, blanks and _.:/=+-@, and does not begin with aws:";
                write!(f, "{:?} is no key of a tag: it has 1 to {keys} {plain}", shown(key))
            }
            Self::Value(value) => {
                let plain = "letters, digits, blanks and _.:/=+-@";
                write!(f, "{:?} is no value of a tag: it has at most {values} {plain}", shown(value))
            }
            Self::Number(count) => write!(f, "a queue has at most {most} tags, and would have {count}"),
        }
    }
}

impl From<Misfit<'_>> for Fault {
    fn from(misfit: Misfit<'_>) -> Self {
        let why = capitalized(&misfit.to_string());
        match misfit {
            Misfit::Key(key) => Self::parameter("TagKey", key, &why),
            Misfit::Value(value) => Self::parameter("TagValue", value, &why),
            Misfit::Number(_) => Self::value(unvalued("Tags", &why)),
        }
    }
}

/// Checks tags in their stored form.
///
/// # Errors
///
/// The reason, as text.
pub fn check_text(kept: &str) -> Result<(), String> {
    let tags: Tags = serde_json::from_str(kept).map_err(|error| error.to_string())?;
    check(&tags).map_err(|misfit| misfit.to_string())
}

fn check(tags: &Tags) -> Result<(), Misfit<'_>> {
    let (most, names, values) = limits::SQS_TAGS;
    let is_plain =
        |text: &str| text.chars().all(|c| c.is_alphanumeric() || c == ' ' || "_.:/=+-@".contains(c));
    for (name, value) in tags {
        let is_name = (1..=names).contains(&name.chars().count()) && is_plain(name);
        if !is_name || name.to_ascii_lowercase().starts_with("aws:") {
            return Err(Misfit::Key(name));
        }
        if value.chars().count() > values || !is_plain(value) {
            return Err(Misfit::Value(value));
        }
    }
    if tags.len() > most {
        return Err(Misfit::Number(tags.len()));
    }
    Ok(())
}

/// Sets tags and keeps the others.
pub async fn add(context: &Context<'_>, request: TagQueue) -> Result<OperationResult, Fault> {
    let queue = context.request.subject()?;
    let new = asked(request.tags)?;
    if new.is_empty() {
        return Err(Fault::missing("Tags"));
    }
    let changed = |kept| {
        let mut tags = read(kept);
        tags.extend(new.clone());
        Ok(json!(checked(tags)?))
    };
    rewrite(context, queue, keys::TAGS, changed).await
}

/// Removes tags. Tags that do not exist are ignored.
pub async fn remove(context: &Context<'_>, asked: UntagQueue) -> Result<OperationResult, Fault> {
    let queue = context.request.subject()?;
    let names = names(asked.tag_keys, "TagKeys")?;
    if names.is_empty() {
        return Err(Fault::missing("TagKeys"));
    }
    let changed = |kept| {
        let mut tags = read(kept);
        tags.retain(|name, _| !names.contains(name));
        Ok(json!(tags))
    };
    rewrite(context, queue, keys::TAGS, changed).await
}

/// Returns the tags of a queue.
pub async fn list(context: &Context<'_>) -> Result<OperationResult, Fault> {
    let queue = context.request.subject()?;
    let (kept, _) = value(context, queue, keys::TAGS).await?;
    Ok(OperationResult::new(TagsReply { tags: read(kept) }))
}

/// Reads tags in their stored form.
fn read(kept: Value) -> Tags {
    serde_json::from_value(kept).unwrap_or_default()
}
