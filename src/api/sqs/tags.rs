//! Tags of queues.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;

use super::encode::Answer;
use super::endpoint::Context;
use super::fault::Fault;
use super::queues::OneQueue;
use crate::domain::attributes as keys;
use crate::domain::limits::{self, Limits};
use crate::domain::names::QueueRef;
use crate::domain::patch::Change;
use crate::error::Error;

/// How often a change looks again when somebody else made another one meanwhile.
const TRIES: usize = 8;

type Tags = BTreeMap<String, String>;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct TagQueue {
    queue_url: Option<String>,
    #[serde(default)]
    tags: Option<Tags>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct UntagQueue {
    queue_url: Option<String>,
    #[serde(default)]
    tag_keys: Option<Vec<String>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Listed {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    tags: Tags,
}

/// Checks tags that are to be set.
pub fn checked(tags: Tags) -> Result<Tags, Fault> {
    let (most, names, values) = limits::SQS_TAGS;
    let is_plain =
        |text: &str| text.chars().all(|c| c.is_alphanumeric() || c == ' ' || "_.:/=+-@".contains(c));
    for (name, value) in &tags {
        let is_name = (1..=names).contains(&name.chars().count()) && is_plain(name);
        if !is_name || name.to_ascii_lowercase().starts_with("aws:") {
            return Err(Fault::value(format!("Tag key {name:?} is invalid.")));
        }
        if value.chars().count() > values || !is_plain(value) {
            return Err(Fault::value(format!("The value of the tag {name:?} is invalid.")));
        }
    }
    if tags.len() > most {
        return Err(Fault::value(format!("A queue has at most {most} tags.")));
    }
    Ok(tags)
}

/// Sets tags, and leaves the others.
pub async fn add(context: &Context<'_>, asked: TagQueue) -> Result<Answer, Fault> {
    let queue = context.queue(asked.queue_url)?;
    let new = asked.tags.filter(|tags| !tags.is_empty()).ok_or_else(|| Fault::missing("Tags"))?;
    change(context, &queue, |mut tags| {
        tags.extend(new.clone());
        checked(tags)
    })
    .await
}

/// Takes tags away; those that are not there are gone already.
pub async fn remove(context: &Context<'_>, asked: UntagQueue) -> Result<Answer, Fault> {
    let queue = context.queue(asked.queue_url)?;
    let names = asked.tag_keys.filter(|names| !names.is_empty()).ok_or_else(|| Fault::missing("TagKeys"))?;
    change(context, &queue, |mut tags| {
        tags.retain(|name, _| !names.contains(name));
        Ok(tags)
    })
    .await
}

/// The tags of a queue.
pub async fn list(context: &Context<'_>, asked: OneQueue) -> Result<Answer, Fault> {
    let queue = context.queue(asked.queue_url)?;
    Ok(Answer::new(Listed { tags: of(context, &queue).await?.1 }))
}

/// The tags of a queue that exists, and how they are kept.
async fn of(context: &Context<'_>, queue: &QueueRef) -> Result<(Option<Box<RawValue>>, Tags), Fault> {
    let metadata = context.broker.queue_metadata(queue).await?.ok_or_else(Fault::no_queue)?;
    let kept = metadata.own().remove(keys::TAGS);
    let tags = kept.as_ref().and_then(|tags| serde_json::from_str(tags.get()).ok()).unwrap_or_default();
    Ok((kept, tags))
}

async fn change(
    context: &Context<'_>,
    queue: &QueueRef,
    changed: impl Fn(Tags) -> Result<Tags, Fault>,
) -> Result<Answer, Fault> {
    let mut tries = 0;
    loop {
        let (kept, tags) = of(context, queue).await?;
        let text = json!(changed(tags)?).to_string();
        let new = RawValue::from_string(text).expect("a map of text is JSON");
        let key = keys::TAGS.to_owned();
        let changes = vec![Change::Expect(key.clone(), kept), Change::Add(key, new)];
        match context.broker.queue_patch_within(queue, changes, Limits::WIDEST).await {
            Err(Error::Conflict(_)) if tries < TRIES => tries += 1,
            changed => return Ok(changed.map(|_| Answer::done())?),
        }
    }
}
