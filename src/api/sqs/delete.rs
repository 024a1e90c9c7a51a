//! Deleting messages by their handles.

use serde::Deserialize;

use super::arguments::required;
use super::batch::{Done, Entries, Results, check_ids, entries};
use super::context::Context;
use super::encode::Answer;
use super::fault::{Fault, HANDLE};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct DeleteMessage {
    receipt_handle: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    id: Option<String>,
    receipt_handle: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct DeleteMessageBatch {
    #[serde(default)]
    entries: Option<Entries<Entry>>,
}

/// Deletes one message. One that is gone is deleted already.
pub async fn one(context: &Context<'_>, asked: DeleteMessage) -> Result<Answer, Fault> {
    let queue = context.request.subject()?;
    let handle = required(HANDLE, asked.receipt_handle)?;
    let outcomes = context.broker.receipts_delete(queue, &[&handle]).await?;
    let told = |error| Fault::of_parameter(error, &[(HANDLE, handle.as_str())]);
    outcomes.into_iter().collect::<Result<(), _>>().map_err(told)?;
    Ok(Answer::done())
}

/// Deletes several messages, each for itself.
pub async fn batch(context: &Context<'_>, asked: DeleteMessageBatch) -> Result<Answer, Fault> {
    let queue = context.request.subject()?;
    let entries = entries(asked.entries, context.most.batch)?;
    check_ids(entries.iter().map(|entry| entry.id.as_deref().unwrap_or_default()))?;
    let handles: Vec<&str> =
        entries.iter().map(|entry| entry.receipt_handle.as_deref().unwrap_or_default()).collect();
    let outcomes = context.broker.receipts_delete(queue, &handles).await?;
    let results = entries.iter().zip(outcomes).map(|(entry, outcome)| {
        let id = entry.id.clone().unwrap_or_default();
        let handle = entry.receipt_handle.as_deref().unwrap_or_default();
        let told = |error| Fault::of_parameter(error, &[(HANDLE, handle)]);
        (id.clone(), outcome.map(|()| Done::new(id)).map_err(told))
    });
    Ok(Answer::new(Results::new(results)))
}
