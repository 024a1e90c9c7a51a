//! `angarium message get`: a message with its whole body, because lists cut it; and its outcome, for which the server
//! waits if it is asked to.

use std::time::Duration;

use clap::Args;
use http::Method;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::{DETAILED, Message, path};
use crate::caller::CallerArgs;
use crate::failure::Failure;
use crate::printer::Display;
use crate::remote::{ApiRequest, Remote, Reply, with_query};
use crate::table::{Table, flatten, one_line};
use angarium_settings::units::{self, span};

/// The state of a message that was moved to another queue.
const TRANSFERRED: &str = "transferred";

/// Arguments of `message get`.
#[derive(Args, Clone, Debug)]
pub struct GetArgs {
    /// The queue
    queue: String,
    /// Their ids
    #[arg(required = true)]
    ids: Vec<String>,
    /// Wait so long until the message is done, failed or gone, 20s at most. Plain lines have the state and then the
    /// result or the reason, in place of the body
    #[arg(long, value_name = "DURATION", value_parser = units::seconds_within(0, 3600))]
    wait: Option<u32>,
}

/// The state of a message, beside its [`Message`]. A server that knows no outcomes sends none of it.
#[derive(Debug, Deserialize)]
struct MessageStatus {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    state: Option<String>,
    /// The queue that a moved message is in.
    #[serde(default)]
    to: Option<String>,
    #[serde(default)]
    outcome: Option<MessageOutcome>,
    #[serde(default)]
    details: MessageExtras,
}

/// The outcome of a message that is done or has failed.
#[derive(Debug, Deserialize)]
struct MessageOutcome {
    #[serde(default, deserialize_with = "given")]
    result: Option<Box<RawValue>>,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    by: Option<String>,
    #[serde(default)]
    at: Option<String>,
    #[serde(default)]
    attempts: Option<u64>,
}

/// Details that only some messages have.
#[derive(Debug, Default, Deserialize)]
struct MessageExtras {
    #[serde(default)]
    to: Option<String>,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(default)]
    keep: Option<u64>,
    #[serde(default, deserialize_with = "given")]
    meta: Option<Box<RawValue>>,
    #[serde(default)]
    history: Vec<MessageEvent>,
}

/// An event in the history of a message.
#[derive(Debug, Deserialize)]
struct MessageEvent {
    at: String,
    what: String,
    #[serde(default)]
    by: Option<String>,
    #[serde(default)]
    reason: Option<String>,
}

/// Reads any JSON, `null` too: a result may be that.
fn given<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::deserialize(value).map(Some)
}

pub(super) fn run(caller: &CallerArgs, remote: &Remote, args: &GetArgs) -> Result<(), Failure> {
    let mut printer = caller.printer();
    for id in &args.ids {
        let at = with_query(&path(&args.queue, id), &[("wait", args.wait.map(|wait| wait.to_string()))]);
        let extra_wait = Duration::from_secs(args.wait.unwrap_or(0).into());
        let request = ApiRequest::new(Method::GET, at).headers(DETAILED).extra_wait(extra_wait);
        printer.show(&display(&remote.call(request)?, args)?)?;
    }
    Ok(())
}

fn display(reply: &Reply, args: &GetArgs) -> Result<Display, Failure> {
    let status: MessageStatus = reply.parse()?;
    let json = reply.json_text()?;
    if status.state.as_deref() == Some(TRANSFERRED) {
        let to = status.to.unwrap_or_else(|| "-".to_owned());
        let rows = [row("id", status.id.unwrap_or_default()), row("state", TRANSFERRED), row("to", &to)];
        let people = Table::new(&["", ""]).rows(&rows);
        return Ok(Display { people, json, plain: vec![format!("{TRANSFERRED}\t{to}")] });
    }
    let message: Message = reply.parse()?;
    let mut rows = vec![
        row("id", message.id()),
        row("state", message.state()),
        row("age", message.age()),
        row("ttl", message.ttl.map_or_else(|| "-".to_owned(), span)),
        row("body", message.plain()),
    ];
    status.details.add_to(&mut rows);
    if let Some(outcome) = &status.outcome {
        outcome.add_to(&mut rows);
    }
    let plain = if args.wait.is_some() { status.line() } else { message.plain() };
    Ok(Display { people: Table::new(&["", ""]).rows(&rows), json, plain: vec![plain] })
}

fn row(key: &str, value: impl Into<String>) -> Vec<String> {
    vec![key.to_owned(), value.into()]
}

impl MessageStatus {
    /// Returns the state, and the result or the reason if there is one.
    fn line(&self) -> String {
        let state = self.state.as_deref().unwrap_or("-");
        let outcome = self.outcome.as_ref();
        let text = outcome.and_then(|it| it.result.as_deref().map(one_line).or_else(|| it.reason.clone()));
        text.map_or_else(|| state.to_owned(), |text| format!("{state}\t{text}"))
    }
}

impl MessageOutcome {
    fn add_to(&self, rows: &mut Vec<Vec<String>>) {
        if let Some(result) = &self.result {
            flatten("result", result, rows);
        }
        let attempts = self.attempts.map(|attempts| attempts.to_string());
        let known = [("reason", &self.reason), ("by", &self.by), ("at", &self.at), ("attempts", &attempts)];
        rows.extend(known.into_iter().filter_map(|(key, value)| Some(row(key, value.as_deref()?))));
    }
}

impl MessageExtras {
    fn add_to(&self, rows: &mut Vec<Vec<String>>) {
        rows.extend(self.to.as_deref().map(|to| row("to", to)));
        if !self.tags.is_empty() {
            rows.push(row("tags", self.tags.join(", ")));
        }
        rows.extend(self.keep.map(|keep| row("keep", span(keep))));
        if let Some(meta) = &self.meta {
            flatten("meta", meta, rows);
        }
        for (index, event) in self.history.iter().enumerate() {
            let by = event.by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
            let reason = event.reason.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
            let key = if index == 0 { "history" } else { "" };
            rows.push(row(key, format!("{} {}{by}{reason}", event.at, event.what)));
        }
    }
}
