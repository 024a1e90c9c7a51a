//! Deletion of messages by their handles.

use serde::Deserialize;

use super::arguments::required;
use super::batch::{BatchSuccess, Entries, Results, check_ids, entries};
use super::context::Context;
use super::encode::OperationResult;
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

impl Entry {
    fn handle(&self) -> Option<&str> {
        self.receipt_handle.as_deref().filter(|handle| !handle.is_empty())
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct DeleteMessageBatch {
    #[serde(default)]
    entries: Option<Entries<Entry>>,
}

/// Deletes one message. Succeeds if the message no longer exists.
pub async fn one(context: &Context<'_>, asked: DeleteMessage) -> Result<OperationResult, Fault> {
    let queue = context.request.subject()?;
    let handle = required(HANDLE, asked.receipt_handle)?;
    let outcomes = context.broker.receipts_delete(queue, &[&handle]).await?;
    let told = |error| Fault::of_parameter(error, &[(HANDLE, handle.as_str())]);
    outcomes.into_iter().collect::<Result<(), _>>().map_err(told)?;
    Ok(OperationResult::done())
}

/// Deletes several messages; each entry succeeds or fails by itself.
pub async fn batch(context: &Context<'_>, asked: DeleteMessageBatch) -> Result<OperationResult, Fault> {
    let queue = context.request.subject()?;
    let operation = context.request.operation;
    let entries = entries(operation, asked.entries, context.most.batch)?;
    check_ids(operation, entries.iter().map(|entry| entry.id.as_ref()))?;
    let handles: Vec<&str> = entries.iter().filter_map(Entry::handle).collect();
    let mut outcomes = context.broker.receipts_delete(queue, &handles).await?.into_iter();
    let results: Vec<_> = entries
        .iter()
        .map(|entry| {
            let id = entry.id.clone().unwrap_or_default();
            let result = entry.handle().ok_or_else(|| Fault::missing(HANDLE)).and_then(|handle| {
                let told = |error| Fault::of_parameter(error, &[(HANDLE, handle)]);
                let outcome = outcomes.next().unwrap_or(Ok(()));
                outcome.map_err(|error| told(context.earlier.judge_shared(error)))
            });
            (id.clone(), result.map(|()| BatchSuccess::new(id)))
        })
        .collect();
    Ok(OperationResult::new(Results::new(results)))
}
