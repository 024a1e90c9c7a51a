//! Changing for how long received messages are hidden.

use std::sync::Arc;

use serde::Deserialize;

use super::arguments::{Whole, required, within};
use super::batch::{Done, Entries, Results, check_ids, entries};
use super::context::Context;
use super::encode::Answer;
use super::fault::{Fault, HANDLE};
use super::fifo::Fifo;
use crate::broker::Changed;
use crate::domain::claim::Visibility;
use crate::domain::limits;
use crate::error::Error;

const TIMEOUT: &str = "VisibilityTimeout";

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ChangeMessageVisibility {
    receipt_handle: Option<String>,
    visibility_timeout: Option<Whole>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    id: Option<String>,
    receipt_handle: Option<String>,
    visibility_timeout: Option<Whole>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ChangeMessageVisibilityBatch {
    #[serde(default)]
    entries: Option<Entries<Entry>>,
}

/// Hides one message for another time from now on, or shows it.
pub async fn change(context: &Context<'_>, asked: ChangeMessageVisibility) -> Result<Answer, Fault> {
    let queue = context.request.subject()?;
    let handle = required(HANDLE, asked.receipt_handle)?;
    let visibility = visibility(asked.visibility_timeout)?;
    let outcomes = context.broker.receipts_change(queue, &[(&handle, visibility)]).await?;
    let asked = (handle.as_str(), visibility);
    outcomes.into_iter().try_for_each(|outcome| told(Fifo::of(&queue.name), asked, outcome))?;
    Ok(Answer::done())
}

/// The same of several messages, each for itself.
pub async fn change_batch(
    context: &Context<'_>,
    asked: ChangeMessageVisibilityBatch,
) -> Result<Answer, Fault> {
    let queue = context.request.subject()?;
    let entries = entries(asked.entries, context.most.batch)?;
    check_ids(entries.iter().map(|entry| entry.id.as_deref().unwrap_or_default()))?;
    let checks: Vec<Result<Visibility, Fault>> =
        entries.iter().map(|entry| visibility(entry.visibility_timeout)).collect();
    let asked = entries.iter().zip(&checks).filter_map(|(entry, check)| {
        let handle = entry.receipt_handle.as_deref().unwrap_or_default();
        Some((handle, *check.as_ref().ok()?))
    });
    let outcomes = context.broker.receipts_change(queue, &asked.collect::<Vec<_>>()).await?;
    let mut outcomes = outcomes.into_iter();
    let results: Vec<_> = entries
        .iter()
        .zip(checks)
        .map(|(entry, check)| {
            let id = entry.id.clone().unwrap_or_default();
            let handle = entry.receipt_handle.as_deref().unwrap_or_default();
            let result = check.and_then(|visibility| {
                let told = |outcome| told(Fifo::of(&queue.name), (handle, visibility), outcome);
                outcomes.next().map_or(Ok(()), told)
            });
            (id.clone(), result.map(|()| Done::new(id)))
        })
        .collect();
    Ok(Answer::new(Results::new(results)))
}

fn visibility(asked: Option<Whole>) -> Result<Visibility, Fault> {
    let (least, most) = limits::VISIBILITY;
    let seconds = within(TIMEOUT, asked, (least.into(), most.into()))?;
    Ok(Visibility::new(seconds.ok_or_else(|| Fault::missing(TIMEOUT))?, TIMEOUT)?)
}

fn told(
    queue: Fifo,
    (handle, visibility): (&str, Visibility),
    outcome: Result<Changed, Arc<Error>>,
) -> Result<(), Fault> {
    let seconds = visibility.seconds().to_string();
    match outcome.map_err(|error| Fault::of_parameter(error, &[(HANDLE, handle), (TIMEOUT, &seconds)]))? {
        Changed::Over if queue == Fifo::Yes => {
            Err(Fault::parameter(HANDLE, handle, "The receipt handle has expired"))
        }
        Changed::Done | Changed::Over => Ok(()),
        Changed::Gone => {
            let why = "Message does not exist or is not available for visibility timeout change";
            Err(Fault::parameter(HANDLE, handle, why))
        }
    }
}
