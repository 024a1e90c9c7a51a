//! Read-modify-write of one metadata key of a queue, without losing concurrent changes of other clients.

use serde_json::Value;
use serde_json::value::RawValue;

use super::context::Context;
use super::encode::OperationResult;
use super::fault::Fault;
use angarium_core::error::Error;
use angarium_core::limits::Limits;
use angarium_core::names::QueueRef;
use angarium_core::patch::Change;

/// Max attempts of a change that conflicts with those of other clients.
const TRIES: usize = 8;

/// Returns the value of a key of an existing queue, and its stored text.
pub async fn value(
    context: &Context<'_>,
    queue: &QueueRef,
    key: &str,
) -> Result<(Value, Option<Box<RawValue>>), Fault> {
    let metadata = context.broker.queue_metadata(queue).await?.ok_or_else(Fault::no_queue)?;
    let written = metadata.own().remove(key);
    let value = written.as_ref().and_then(|written| serde_json::from_str(written.get()).ok());
    Ok((value.unwrap_or(Value::Null), written))
}

/// Replaces the value of a key by the result of `change`.
pub async fn rewrite(
    context: &Context<'_>,
    queue: &QueueRef,
    key: &str,
    change: impl Fn(Value) -> Result<Value, Fault>,
) -> Result<OperationResult, Fault> {
    let mut tries = 0;
    loop {
        let (value, written) = value(context, queue, key).await?;
        let new = RawValue::from_string(change(value)?.to_string()).expect("a value is written as JSON");
        let changes = vec![Change::Expect(key.to_owned(), written), Change::Add(key.to_owned(), new)];
        match context.broker.queue_patch_within(queue, changes, Limits::WIDEST).await {
            Err(Error::Conflict(_)) if tries < TRIES => tries += 1,
            changed => return Ok(changed.map(|_| OperationResult::done())?),
        }
    }
}
