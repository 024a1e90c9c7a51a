//! Message move tasks, from a dead-letter queue: start, list, cancel.
//!
//! The handle of a task has the form of AWS: base64 of a JSON object with the task id and the queue.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::arguments::{WholeNumber, required, within};
use super::context::Context;
use super::encode::OperationResult;
use super::fault::{Fault, Kind};
use super::resolution::Part;
use angarium_broker::MoveRefusal;
use angarium_core::limits;
use angarium_core::move_task::{MoveFailure, MoveRate, MoveStatus, MoveTask, TaskVerb};
use angarium_core::names::QueueRef;

/// The member with the source queue of a task.
pub const SOURCE: &str = "SourceArn";
/// The member with the destination queue of a task.
pub const TARGET: &str = "DestinationArn";
/// The member with the handle, which has the task and its source.
pub const HANDLE: &str = "TaskHandle";
const RATE: &str = "MaxNumberOfMessagesPerSecond";

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct StartMessageMoveTask {
    max_number_of_messages_per_second: Option<WholeNumber>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ListMessageMoveTasks {
    max_results: Option<WholeNumber>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct CancelMessageMoveTask {
    task_handle: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct StartMoveReply {
    task_handle: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct ListMovesReply {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    results: Vec<TaskEntry>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct CancelMoveReply {
    approximate_number_of_messages_moved: u64,
}

/// A task in a list.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct TaskEntry {
    /// Only of one that can be cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    task_handle: Option<String>,
    status: &'static str,
    source_arn: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    destination_arn: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_number_of_messages_per_second: Option<u32>,
    approximate_number_of_messages_moved: u64,
    approximate_number_of_messages_to_move: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure_reason: Option<&'static str>,
    started_timestamp: u64,
}

/// What a handle states.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Handle {
    task_id: String,
    source_arn: String,
}

impl Handle {
    fn read(text: &str) -> Result<Self, Fault> {
        let handle = STANDARD.decode(text).ok().and_then(|json| serde_json::from_slice(&json).ok());
        // AWS does not repeat an invalid handle.
        let wrong = || Fault::value(format!("Value for parameter {HANDLE} is invalid."));
        handle.ok_or_else(wrong)
    }

    fn text(id: Uuid, source_arn: String) -> Result<String, Fault> {
        let handle = serde_json::to_vec(&Self { task_id: id.to_string(), source_arn });
        handle.map(|json| STANDARD.encode(json)).map_err(|error| {
            Fault::new(Kind::InternalFailure, format!("The handle cannot be written: {error}."))
        })
    }
}

/// Returns the ARN of the source queue in the handle of a task.
pub fn source_of(handle: &str) -> Result<String, Fault> {
    Handle::read(handle).map(|handle| handle.source_arn)
}

/// Starts a task.
pub async fn start(context: &Context<'_>, asked: StartMessageMoveTask) -> Result<OperationResult, Fault> {
    let (source, target) = (context.request.subject()?, context.request.queue(Part::Destination).cloned());
    let (least, most) = limits::MOVE_TASK_RATE;
    let rate = within(RATE, asked.max_number_of_messages_per_second, least.into()..=most.into())?;
    let rate = rate.map(|rate| MoveRate::new(rate, RATE)).transpose()?;
    let started = context.broker.move_task_start(source, target, rate).await?;
    let id = started.map_err(refused)?;
    Ok(OperationResult::new(StartMoveReply { task_handle: Handle::text(id, context.places.arn(source))? }))
}

fn refused(refusal: MoveRefusal) -> Fault {
    match refusal {
        MoveRefusal::NoSource => missing(SOURCE),
        MoveRefusal::NoTarget => missing(TARGET),
        MoveRefusal::NotForDeadLetters => {
            Fault::value("Source queue must be configured as a Dead Letter Queue.")
        }
        MoveRefusal::Itself => Fault::value("Source queue arn and destination queue arn cannot be the same."),
        MoveRefusal::OtherKind => {
            Fault::value("The source queue and destination queue must be of the same queue type.")
        }
        MoveRefusal::TooMany => {
            let most = limits::MOVE_TASKS_ACTIVE;
            Fault::new(
                Kind::OverLimit,
                format!("Only {most} active message movement tasks are allowed for an account."),
            )
        }
        MoveRefusal::Active => Fault::value(
            "There is already a task running. Only one active task is allowed for a source queue arn at a given time.",
        ),
    }
}

/// Lists the latest tasks of a queue, the newest first.
pub async fn list(context: &Context<'_>, asked: ListMessageMoveTasks) -> Result<OperationResult, Fault> {
    let source = context.request.subject()?;
    let most = i64::try_from(limits::MOVE_TASKS).unwrap_or(i64::MAX);
    let most = within("MaxResults", asked.max_results, 1..=most)?.unwrap_or(1);
    let tasks = context.broker.move_tasks_list(source).await?.ok_or_else(|| missing(SOURCE))?;
    // Its form has no word for tasks that do not move messages.
    let moves = tasks.into_iter().filter(|task| task.verb() == TaskVerb::Move);
    let tasks = moves.take(usize::try_from(most).unwrap_or(1));
    let results = tasks.map(|task| TaskEntry::new(context, source, task)).collect::<Result<_, _>>()?;
    Ok(OperationResult::new(ListMovesReply { results }))
}

/// Cancels a task.
pub async fn cancel(context: &Context<'_>, asked: CancelMessageMoveTask) -> Result<OperationResult, Fault> {
    let handle = Handle::read(&required(HANDLE, asked.task_handle)?)?;
    let source = context.request.subject()?;
    context.broker.queue_metadata(source).await?.ok_or_else(|| missing(SOURCE))?;
    let unknown = || Fault::new(Kind::ResourceNotFound, "Task does not exist.");
    let id = handle.task_id.parse().map_err(|_| unknown())?;
    let moved = context.broker.move_task_cancel(source, id).await?.ok_or_else(unknown)?;
    Ok(OperationResult::new(CancelMoveReply { approximate_number_of_messages_moved: moved }))
}

/// Returns the error for a parameter whose queue does not exist.
pub fn missing(parameter: &str) -> Fault {
    let why = format!("The resource that you specified for the {parameter} parameter doesn't exist.");
    Fault::new(Kind::ResourceNotFound, why)
}

impl TaskEntry {
    fn new(context: &Context<'_>, source: &QueueRef, task: MoveTask) -> Result<Self, Fault> {
        let (status, failure_reason) = match task.status {
            MoveStatus::Running => ("RUNNING", None),
            MoveStatus::Cancelling => ("CANCELLING", None),
            MoveStatus::Cancelled => ("CANCELLED", None),
            MoveStatus::Completed => ("COMPLETED", None),
            MoveStatus::Failed(MoveFailure::NoOrigin) => ("FAILED", Some("CouldNotDetermineMessageSource")),
            MoveStatus::Failed(MoveFailure::NoTarget) => {
                ("FAILED", Some("AWS.SimpleQueueService.NonExistentQueue"))
            }
        };
        let source_arn = context.places.arn(source);
        let is_running = task.status == MoveStatus::Running;
        let task_handle = is_running.then(|| Handle::text(task.id, source_arn.clone())).transpose()?;
        Ok(Self {
            task_handle,
            status,
            source_arn,
            destination_arn: task.target.map(|target| context.places.arn(&target.at)),
            max_number_of_messages_per_second: task.rate.map(MoveRate::per_second),
            approximate_number_of_messages_moved: task.moved,
            approximate_number_of_messages_to_move: task.to_move,
            failure_reason,
            started_timestamp: task.started,
        })
    }
}
