//! Tags of queues.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::context::Context;
use super::decode::shown;
use super::encode::OperationResult;
use super::fault::Fault;
use super::lists::{BoundedMap, Names, names};
use super::rewrite::{rewrite, value};
use angarium_core::attributes as keys;
use angarium_core::limits;

type Tags = BTreeMap<String, String>;

/// The tags of a request as they are read: as many as a queue may have.
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

/// The tags of a request, if those are not too many.
pub fn asked(tags: Option<TagsInput>) -> Result<Tags, Fault> {
    tags.unwrap_or_default().whole().map_err(|_| Fault::value(too_many()))
}

fn too_many() -> String {
    format!("A queue has at most {} tags.", limits::SQS_TAGS.0)
}

/// Checks tags that are to be set.
pub fn checked(tags: Tags) -> Result<Tags, Fault> {
    check(&tags).map_err(Fault::value)?;
    Ok(tags)
}

/// Checks tags as they are kept.
///
/// # Errors
///
/// What is wrong with them.
pub fn check_text(kept: &str) -> Result<(), String> {
    let tags: Tags = serde_json::from_str(kept).map_err(|error| error.to_string())?;
    check(&tags)
}

fn check(tags: &Tags) -> Result<(), String> {
    let (most, names, values) = limits::SQS_TAGS;
    let is_plain =
        |text: &str| text.chars().all(|c| c.is_alphanumeric() || c == ' ' || "_.:/=+-@".contains(c));
    for (name, value) in tags {
        let is_name = (1..=names).contains(&name.chars().count()) && is_plain(name);
        if !is_name || name.to_ascii_lowercase().starts_with("aws:") {
            return Err(format!("Tag key {:?} is invalid.", shown(name)));
        }
        if value.chars().count() > values || !is_plain(value) {
            return Err(format!("The value of the tag {:?} is invalid.", shown(name)));
        }
    }
    if tags.len() > most {
        return Err(too_many());
    }
    Ok(())
}

/// Sets tags, and leaves the others.
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

/// Takes tags away; those that are not there are gone already.
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

/// The tags of a queue.
pub async fn list(context: &Context<'_>) -> Result<OperationResult, Fault> {
    let queue = context.request.subject()?;
    let (kept, _) = value(context, queue, keys::TAGS).await?;
    Ok(OperationResult::new(TagsReply { tags: read(kept) }))
}

/// Tags as they are kept.
fn read(kept: Value) -> Tags {
    serde_json::from_value(kept).unwrap_or_default()
}
