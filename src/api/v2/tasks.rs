//! Tasks over the messages of a queue that a filter selects: start, list, get, cancel. Zaqar does not have them.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::peek::PeekedMessage;
use super::selection::MessageFilter;
use crate::api::error::{ApiError, ErrorBody, Errors};
use crate::api::extract::{CallerHeaders, Path, QueuePath, QueueRequest, TaskPath};
use crate::api::json::{Json, RequestBody, not_null, reply};
use angarium_broker::{BodyExtent, Broker, MoveRefusal, SelectionCount};
use angarium_core::error::{Error, InvalidPart, Resource};
use angarium_core::limits::{self, Limits};
use angarium_core::move_task::{MoveRate, MoveStatus, MoveTask, TaskRequest, TaskVerb};
use angarium_core::names::{QueueName, QueueRef};
use angarium_core::time::Timestamp;

/// The target of a move of dead letters to the queues that they came from.
const ORIGIN: &str = "origin";
/// Max of `max`: the greatest whole number that every JSON reader knows exactly.
const MAX: u64 = 9_007_199_254_740_991;

/// What to do with which messages. Unknown keys are refused.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = TaskRequest)]
pub struct TaskBody {
    /// What becomes of each message.
    #[serde(rename = "do")]
    #[schema(pattern = "^(move|requeue|delete)$", example = "move")]
    verb: String,
    /// Which messages. Without states a move takes the ready ones, a requeue the failed ones, and a deletion those in any
    /// state. A deletion has a condition that some message can fail. Claimed messages, and those in transfer, are skipped.
    #[serde(default)]
    filter: MessageFilter,
    /// Where a move takes them: a queue of the same project, or `origin` for the queue from which each is a dead letter.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(max_length = 80, nullable = false)]
    to: Option<String>,
    /// At most so many messages a second; without a bound when absent.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(minimum = 1, maximum = 500, nullable = false)]
    rate: Option<i64>,
    /// At most so many messages in all.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(minimum = 1, maximum = 9_007_199_254_740_991_u64, nullable = false)]
    max: Option<i64>,
    /// Whether the messages are only counted, and some of them shown.
    #[serde(default)]
    dry_run: bool,
}

impl RequestBody for TaskBody {
    fn most(_: &Limits) -> usize {
        limits::SMALL_BODY_BYTES
    }
}

impl TaskBody {
    fn check(self, at: &QueueRef) -> Result<TaskRequest, Error> {
        let verb = TaskVerb::ALL.into_iter().find(|verb| verb.as_str() == self.verb);
        let verb = verb.ok_or_else(|| wrong("do", "it is neither move nor requeue nor delete"))?;
        let target = match (verb, self.to.as_deref()) {
            (TaskVerb::Move, None) => return Err(wrong("to", "a move needs a queue, or origin")),
            (TaskVerb::Move, Some(ORIGIN)) | (TaskVerb::Requeue | TaskVerb::Delete, None) => None,
            (TaskVerb::Move, Some(name)) => {
                let name = QueueName::new(name).map_err(|_| wrong("to", "it is no name of a queue"))?;
                Some(QueueRef { project: at.project.clone(), name })
            }
            (TaskVerb::Requeue | TaskVerb::Delete, Some(_)) => return Err(wrong("to", "only a move has it")),
        };
        let max = self.max.map(|max| u64::try_from(max).ok().filter(|max| (1..=MAX).contains(max)));
        let max = max.map(|max| max.ok_or_else(|| wrong("max", format!("it is not between 1 and {MAX}"))));
        let request = TaskRequest {
            verb,
            selection: self.filter.selection(InvalidPart::Limit, "filter.")?,
            target,
            rate: self.rate.map(|rate| MoveRate::new(rate, "rate")).transpose()?,
            max: max.transpose()?,
        };
        request.checked()
    }
}

fn wrong(field: &str, why: impl Into<String>) -> Error {
    Error::invalid(InvalidPart::Limit, field, why)
}

fn refused(at: &QueueRef, refusal: MoveRefusal) -> Error {
    match refusal {
        MoveRefusal::NoSource => no_queue(at),
        MoveRefusal::NoTarget => wrong("to", "there is no such queue"),
        MoveRefusal::Itself => wrong("to", "the messages are in this queue"),
        MoveRefusal::OtherKind => wrong("to", "one of the two queues is a FIFO queue, and the other is not"),
        MoveRefusal::NotForDeadLetters => wrong("to", "the queue takes no dead letters"),
        MoveRefusal::Active => Error::Conflict(format!("another task of queue {} is active", at.name)),
        MoveRefusal::TooMany => {
            Error::TooMany { what: "active tasks of the project", bound: limits::MOVE_TASKS_ACTIVE }
        }
    }
}

fn no_queue(at: &QueueRef) -> Error {
    Error::NotFound { resource: Resource::Queue, name: at.name.to_string() }
}

/// A task that has begun, or what it would do: both have one form, because generated clients take one.
#[derive(Debug, Default, Serialize, ToSchema)]
pub struct StartedTask {
    /// Its id. Absent for a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    id: Option<Uuid>,
    /// Only for a dry run: how many messages fulfil the conditions, and can be changed and moved; `max` has no effect on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    matches: Option<u64>,
    /// Only for a dry run: how many messages fulfil the conditions but could not be moved to their origins, by reason,
    /// as in a task.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    failed: Option<BTreeMap<&'static str, u64>>,
    /// Only for a dry run: how many messages were compared with the conditions.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    looked_at: Option<u64>,
    /// Only for a dry run: whether these are all. A large queue is not read to its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    is_whole: Option<bool>,
    /// Only for a dry run: the first of the messages, at most 10, with the heads of their bodies.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    sample: Option<Vec<PeekedMessage>>,
}

impl From<SelectionCount> for StartedTask {
    fn from(count: SelectionCount) -> Self {
        let SelectionCount { matches, failed, looked_at, is_whole, sample } = count;
        let sample = sample.into_iter().map(|message| PeekedMessage::new(message, BodyExtent::Head));
        Self {
            id: None,
            matches: Some(matches),
            failed: Some(failed.into_iter().map(|(why, messages)| (why.as_str(), messages)).collect()),
            looked_at: Some(looked_at),
            is_whole: Some(is_whole),
            sample: Some(sample.collect()),
        }
    }
}

/// A task over the messages of a queue.
#[derive(Debug, Serialize, ToSchema)]
pub struct Task {
    /// Its id.
    id: Uuid,
    /// What becomes of each message.
    #[serde(rename = "do")]
    #[schema(pattern = "^(move|requeue|delete)$", example = "move")]
    verb: &'static str,
    /// Which messages. Absent for a task that was started through SQS: all that can be claimed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    filter: Option<MessageFilter>,
    /// Where a move takes them: a queue, or `origin`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    to: Option<String>,
    /// At most so many messages a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    rate: Option<u32>,
    /// At most so many messages in all.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    max: Option<u64>,
    /// A task that is cancelled first finishes the transfers that it has begun. A failed one could not move a message:
    /// its target is gone, or, through SQS, a message is no dead letter.
    #[schema(pattern = "^(running|cancelling|cancelled|completed|failed)$", example = "running")]
    state: &'static str,
    /// How many messages it has moved, requeued or deleted. After its replica was killed it may be too small.
    moved: u64,
    /// How many messages fulfil the conditions but were under a claim or in transfer.
    skipped: u64,
    /// How many messages could not be moved, by reason: `no_origin` for one that is no dead letter, `no_target` for one
    /// whose queue does not exist.
    failed: BTreeMap<&'static str, u64>,
    /// How many messages it has compared with the conditions; 0 for a task that was started through SQS.
    looked_at: u64,
    /// When it began, as `YYYY-MM-DDTHH:MM:SSZ`.
    began: String,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    ended: Option<String>,
}

impl From<MoveTask> for Task {
    fn from(task: MoveTask) -> Self {
        let verb = task.verb();
        let to = || task.target.as_ref().map_or(ORIGIN.to_owned(), |target| target.at.name.to_string());
        let to = (verb == TaskVerb::Move).then(to);
        let date = |millis: u64| Timestamp::from_millis(millis).calendar();
        let (state, failure) = match task.status {
            MoveStatus::Running => ("running", None),
            MoveStatus::Cancelling => ("cancelling", None),
            MoveStatus::Cancelled => ("cancelled", None),
            MoveStatus::Completed => ("completed", None),
            MoveStatus::Failed(why) => ("failed", Some((why.as_str(), 1))),
        };
        let (filter, max, skipped, failed, looked_at) = match task.selected {
            Some(selected) => {
                let failed = selected.failed.into_iter().map(|(why, messages)| (why.as_str(), messages));
                let filter = MessageFilter::from(selected.selection);
                (Some(filter), selected.max, selected.skipped, failed.collect(), selected.looked_at)
            }
            None => (None, None, 0, failure.into_iter().collect(), 0),
        };
        Self {
            id: task.id,
            verb: verb.as_str(),
            filter,
            to,
            rate: task.rate.map(MoveRate::per_second),
            max,
            state,
            moved: task.moved,
            skipped,
            failed,
            looked_at,
            began: date(task.started),
            ended: task.ended.map(date),
        }
    }
}

/// The latest tasks of a queue.
#[derive(Debug, Serialize, ToSchema)]
pub struct TaskList {
    /// At most 10, the newest first.
    tasks: Vec<Task>,
}

/// Start a task over selected messages
///
/// It moves, requeues or deletes the messages that the filter selects, and ends with those that the queue had when it
/// began. It continues by itself, also with a later owner of the queue. A dry run answers at once, and changes nothing. It is
/// refused as the task would be, but other active tasks do not count.
#[utoipa::path(
    post, path = "/v2/queues/{queue_name}/tasks", operation_id = "task_start", tag = "messages",
    params(QueuePath, CallerHeaders),
    responses(
        (status = 200, description = "What the task would do.", body = StartedTask, example = json!({
            "matches": 37, "failed": {}, "looked_at": 120_000, "is_whole": true, "sample": []
        })),
        (status = 202, description = "The task has begun.", body = StartedTask),
        (status = 404, description = "There is no such queue.", body = ErrorBody),
        (status = 409, description = "Another task of the queue is active.", body = ErrorBody),
        Errors
    )
)]
pub async fn post(
    State(broker): State<Broker>,
    asked: QueueRequest,
    Json(body): Json<TaskBody>,
) -> Result<Response, ApiError> {
    let (at, is_dry) = (&asked.queue, body.dry_run);
    let request = body.check(at)?;
    if is_dry {
        let counted = broker.task_dry_run(at, &request).await?;
        let count = counted.map_err(|refusal| refused(at, refusal))?;
        return Ok(reply(StatusCode::OK, &StartedTask::from(count)));
    }
    let id = broker.task_start(at, request).await?.map_err(|refusal| refused(at, refusal))?;
    Ok(reply(StatusCode::ACCEPTED, &StartedTask { id: Some(id), ..StartedTask::default() }))
}

/// List the tasks of a queue
///
/// The latest ten are listed, the newest first, with those that were started through SQS.
#[utoipa::path(
    get, path = "/v2/queues/{queue_name}/tasks", operation_id = "tasks_list", tag = "messages",
    params(QueuePath, CallerHeaders),
    responses(
        (status = 200, description = "The tasks.", body = TaskList),
        (status = 404, description = "There is no such queue.", body = ErrorBody),
        Errors
    )
)]
pub async fn list(State(broker): State<Broker>, asked: QueueRequest) -> Result<Response, ApiError> {
    let at = &asked.queue;
    let tasks = broker.move_tasks_list(at).await?.ok_or_else(|| no_queue(at))?;
    Ok(reply(StatusCode::OK, &TaskList { tasks: tasks.into_iter().map(Task::from).collect() }))
}

/// Get a task
///
/// It shows what the task does, and how far it is.
#[utoipa::path(
    get, path = "/v2/queues/{queue_name}/tasks/{task_id}", operation_id = "task_get", tag = "messages",
    params(QueuePath, ("task_id" = Uuid, Path, description = "The task."), CallerHeaders),
    responses(
        (status = 200, description = "The task.", body = Task),
        (status = 404, description = "There is no such task.", body = ErrorBody),
        Errors
    )
)]
pub async fn get(
    State(broker): State<Broker>,
    asked: QueueRequest,
    Path(TaskPath { task_id }): Path<TaskPath>,
) -> Result<Response, ApiError> {
    let task = broker.task_get(&asked.queue, id(&task_id)?).await?;
    Ok(reply(StatusCode::OK, &Task::from(task)))
}

/// Cancel a task
///
/// It begins no further changes. The messages that it has changed stay so.
#[utoipa::path(
    delete, path = "/v2/queues/{queue_name}/tasks/{task_id}", operation_id = "task_cancel", tag = "messages",
    params(QueuePath, ("task_id" = Uuid, Path, description = "The task."), CallerHeaders),
    responses(
        (status = 204, description = "It ends, or has ended."),
        (status = 404, description = "There is no such task.", body = ErrorBody),
        Errors
    )
)]
pub async fn delete(
    State(broker): State<Broker>,
    asked: QueueRequest,
    Path(TaskPath { task_id }): Path<TaskPath>,
) -> Result<StatusCode, ApiError> {
    broker.task_cancel(&asked.queue, id(&task_id)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn id(text: &str) -> Result<Uuid, Error> {
    text.parse().map_err(|_| Error::NotFound { resource: Resource::Task, name: text.to_owned() })
}
