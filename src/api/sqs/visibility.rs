//! Changes of the visibility timeout of received messages.

use std::sync::Arc;

use serde::Deserialize;

use super::arguments::{WholeNumber, required, within};
use super::batch::{BatchSuccess, Entries, Results, check_ids, entries, missing_of};
use super::context::Context;
use super::encode::OperationResult;
use super::fault::{Fault, HANDLE};
use super::fifo::Fifo;
use angarium_broker::VisibilityResult;
use angarium_core::claim::Visibility;
use angarium_core::error::Error;
use angarium_core::limits;

const TIMEOUT: &str = "VisibilityTimeout";

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ChangeMessageVisibility {
    receipt_handle: Option<String>,
    visibility_timeout: Option<WholeNumber>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    id: Option<String>,
    receipt_handle: Option<String>,
    visibility_timeout: Option<WholeNumber>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ChangeMessageVisibilityBatch {
    #[serde(default)]
    entries: Option<Entries<Entry>>,
}

/// Changes the visibility timeout of one message, from now on; 0 makes it visible.
pub async fn change(context: &Context<'_>, asked: ChangeMessageVisibility) -> Result<OperationResult, Fault> {
    let queue = context.request.subject()?;
    let handle = required(HANDLE, asked.receipt_handle)?;
    let visibility = visibility(asked.visibility_timeout)?;
    let outcomes = context.broker.receipts_change(queue, &[(&handle, visibility)]).await?;
    let told = |outcome| told(Fifo::of(&queue.name), &handle, visibility, outcome);
    outcomes.into_iter().try_for_each(told)?;
    Ok(OperationResult::done())
}

/// Changes the visibility timeout of several messages; each entry succeeds or fails by itself.
pub async fn change_batch(
    context: &Context<'_>,
    asked: ChangeMessageVisibilityBatch,
) -> Result<OperationResult, Fault> {
    let queue = context.request.subject()?;
    let operation = context.request.operation;
    let entries = entries(operation, asked.entries, context.most.batch)?;
    check_ids(operation, entries.iter().map(|entry| entry.id.as_ref()))?;
    let checks: Vec<Result<(&str, Visibility), Fault>> = (1..)
        .zip(&entries)
        .map(|(place, entry)| {
            let handle = entry.receipt_handle.as_deref().filter(|handle| !handle.is_empty());
            let handle = handle.ok_or_else(|| Fault::missing(HANDLE))?;
            let missing = || missing_of(operation, place, TIMEOUT);
            let asked = Some(entry.visibility_timeout.ok_or_else(missing)?);
            Ok((handle, visibility(asked)?))
        })
        .collect();
    let asked: Vec<_> = checks.iter().filter_map(|check| check.as_ref().ok().copied()).collect();
    let mut outcomes = context.broker.receipts_change(queue, &asked).await?.into_iter();
    let results: Vec<_> = entries
        .iter()
        .zip(checks)
        .map(|(entry, check)| {
            let id = entry.id.clone().unwrap_or_default();
            let result = check.and_then(|(handle, visibility)| {
                let Some(outcome) = outcomes.next() else { return Ok(()) };
                told(Fifo::of(&queue.name), handle, visibility, outcome)
            });
            (id.clone(), result.map(|()| BatchSuccess::new(id)))
        })
        .collect();
    Ok(OperationResult::new(Results::new(results)))
}

fn visibility(asked: Option<WholeNumber>) -> Result<Visibility, Fault> {
    let (least, most) = limits::VISIBILITY;
    let seconds = within(TIMEOUT, asked, least.into()..=most.into())?;
    Ok(Visibility::new(seconds.ok_or_else(|| Fault::missing(TIMEOUT))?, TIMEOUT)?)
}

fn told(
    queue: Fifo,
    handle: &str,
    visibility: Visibility,
    outcome: Result<VisibilityResult, Arc<Error>>,
) -> Result<(), Fault> {
    let seconds = visibility.seconds().to_string();
    match outcome.map_err(|error| Fault::of_parameter(error, &[(HANDLE, handle), (TIMEOUT, &seconds)]))? {
        VisibilityResult::Over if queue == Fifo::Yes => {
            Err(Fault::parameter(HANDLE, handle, "The receipt handle has expired"))
        }
        VisibilityResult::Done | VisibilityResult::Over => Ok(()),
        VisibilityResult::Gone => {
            let why = "Message does not exist or is not available for visibility timeout change";
            Err(Fault::parameter(HANDLE, handle, why))
        }
    }
}
