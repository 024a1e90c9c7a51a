//! `angarium queue redrive` and `angarium queue tasks`: move, requeue or delete the messages that a filter selects.

use clap::{Args, ValueEnum};
use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::caller::CallerArgs;
use super::failure::Failure;
use super::message::peek;
use super::message_filter::FilterArgs;
use super::printer::{Display, Item};
use super::queue::{parsed, path};
use super::remote::{ApiRequest, Remote, encoded};
use super::table::{Table, one_line};

/// Column heads of a table of tasks.
const HEADS: &[&str] = &["ID", "DO", "STATE", "MOVED", "SKIPPED", "FAILED", "LOOKED AT", "TO", "FILTER"];

/// Arguments of `queue redrive`.
#[derive(Args, Clone, Debug)]
pub struct RedriveArgs {
    /// Its name
    queue: String,
    /// Move the messages to this queue
    #[arg(long, value_name = "QUEUE", conflicts_with = "origin")]
    to: Option<String>,
    /// Move each dead letter to the queue that it was in before
    #[arg(long)]
    origin: bool,
    /// What becomes of each message; without it they move if --to or --origin is given, and are requeued otherwise
    #[arg(long = "do", value_enum, value_name = "VERB")]
    verb: Option<TaskVerb>,
    #[command(flatten)]
    filter: FilterArgs,
    /// At most so many messages a second
    #[arg(long, value_name = "N")]
    rate: Option<u32>,
    /// At most so many messages in all
    #[arg(long, value_name = "N")]
    max: Option<u64>,
    /// Only count the messages, and show some of them
    #[arg(long)]
    dry_run: bool,
}

/// What a task does with each message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
enum TaskVerb {
    /// Move it to another queue
    Move,
    /// Make it available again in its queue
    Requeue,
    /// Delete it
    Delete,
}

/// A request for a task.
#[derive(Serialize)]
struct TaskRequest<'a> {
    #[serde(rename = "do")]
    verb: TaskVerb,
    filter: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max: Option<u64>,
    dry_run: bool,
}

#[derive(Deserialize)]
struct StartedTask {
    id: String,
}

/// The answer to a dry run.
#[derive(Deserialize)]
struct TaskPlan {
    matches: u64,
    /// Number of messages that would stay, by reason.
    #[serde(default)]
    failed: Map<String, Value>,
    looked_at: u64,
    is_whole: bool,
    sample: Vec<Box<RawValue>>,
}

/// A task in a list.
#[derive(Deserialize)]
struct Task {
    id: String,
    #[serde(rename = "do")]
    verb: String,
    state: String,
    moved: u64,
    skipped: u64,
    failed: Map<String, Value>,
    looked_at: u64,
    #[serde(default)]
    to: Option<String>,
    #[serde(default)]
    filter: Option<Box<RawValue>>,
}

/// Starts a task, or counts the messages that it would change.
pub fn redrive(caller: &CallerArgs, remote: &Remote, args: &RedriveArgs) -> Result<(), Failure> {
    let to = args.to.as_deref().or(args.origin.then_some("origin"));
    let default = if to.is_some() { TaskVerb::Move } else { TaskVerb::Requeue };
    let request = TaskRequest {
        verb: args.verb.unwrap_or(default),
        filter: args.filter.json()?,
        to,
        rate: args.rate,
        max: args.max,
        dry_run: args.dry_run,
    };
    let at = format!("{}/tasks", path(&args.queue));
    let reply = remote.call(ApiRequest::new(Method::POST, at).json(&request)?)?;
    if args.dry_run {
        let TaskPlan { matches, failed, looked_at, is_whole, sample } = reply.parse()?;
        let among = if is_whole { "" } else { ", and the queue has more" };
        let stay =
            if failed.is_empty() { String::new() } else { format!("; to stay: {}", by_reason(&failed)) };
        let sentence = format!("{matches} of {looked_at} messages match{among}{stay}\n");
        let items = sample.iter().map(|json| peek::item(json)).collect::<Result<Vec<Item>, _>>()?;
        let rows: Vec<Vec<String>> = items.iter().map(|item| item.row.clone()).collect();
        let table = if rows.is_empty() { String::new() } else { Table::new(peek::HEADS).with_head(&rows) };
        let people = format!("{sentence}{table}");
        let display = Display { people, json: reply.json_text()?, plain: vec![matches.to_string()] };
        return caller.printer().show(&display);
    }
    let StartedTask { id } = reply.parse()?;
    let people = format!("task {id} has begun: see angarium queue tasks {}\n", args.queue);
    caller.printer().show(&Display { people, json: reply.json_text()?, plain: vec![id] })
}

/// Lists the tasks of a queue.
pub fn list(caller: &CallerArgs, remote: &Remote, queue: &str) -> Result<(), Failure> {
    #[derive(Deserialize)]
    struct TaskList {
        tasks: Vec<Box<RawValue>>,
    }

    let reply = remote.get(format!("{}/tasks", path(queue)))?;
    let TaskList { tasks } = reply.parse()?;
    let mut printer = caller.printer();
    let mut shown = printer.cut_list(HEADS);
    shown.page(tasks.iter().map(|json| item(json)).collect::<Result<_, _>>()?)?;
    shown.end("the queue has had no task")
}

fn item(json: &RawValue) -> Result<Item, Failure> {
    let task: Task = parsed(json)?;
    let absent = || "-".to_owned();
    let row = vec![
        task.id.clone(),
        task.verb,
        task.state,
        task.moved.to_string(),
        task.skipped.to_string(),
        if task.failed.is_empty() { absent() } else { by_reason(&task.failed) },
        task.looked_at.to_string(),
        task.to.unwrap_or_else(absent),
        task.filter.as_deref().map_or_else(absent, one_line),
    ];
    Ok(Item { row, json: one_line(json), plain: task.id })
}

fn by_reason(failed: &Map<String, Value>) -> String {
    failed.iter().map(|(why, messages)| format!("{why} {messages}")).collect::<Vec<_>>().join(", ")
}

/// Cancels a task.
pub fn cancel(caller: &CallerArgs, remote: &Remote, queue: &str, task: &str) -> Result<(), Failure> {
    remote.delete(format!("{}/tasks/{}", path(queue), encoded(task)))?;
    let sentence = format!("task {task} is cancelled; the messages that it has changed stay so");
    caller.printer().done(&sentence, &json!({"id": task}))
}
