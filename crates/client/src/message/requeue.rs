//! `angarium message requeue`: makes messages available again under their ids.

use clap::{ArgGroup, Args};
use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;

use super::path;
use crate::caller::CallerArgs;
use crate::failure::Failure;
use crate::printer::Display;
use crate::remote::{ApiRequest, Remote};
use crate::setting::raw;
use angarium_settings::units::{self, span};

/// The date of a message that waits until it is requeued once more.
const NEVER: &str = "never";

/// Arguments of `message requeue`.
#[derive(Args, Clone, Debug)]
#[command(group(ArgGroup::new("when").args(["delay", "not_before", "never"])))]
pub struct RequeueArgs {
    /// The queue
    queue: String,
    /// Their ids
    #[arg(required = true)]
    ids: Vec<String>,
    /// How long until they can be claimed; they can at once when nothing is given
    #[arg(long, value_name = "DURATION", value_parser = units::seconds)]
    delay: Option<u64>,
    /// The date from which they can be claimed, with time and offset from UTC, as 2030-01-31T08:00:00Z
    #[arg(long, value_name = "DATE")]
    not_before: Option<String>,
    /// They can be claimed when they are requeued once more; in a FIFO queue they block their groups
    #[arg(long)]
    never: bool,
    /// Its new body, as JSON: a new message with another id takes its place
    #[arg(long, value_name = "BODY")]
    body: Option<String>,
}

/// When a message can be claimed.
#[derive(Serialize)]
struct RequeueBody<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    delay: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_before: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct RequeuedMessage {
    id: String,
}

pub(super) fn run(caller: &CallerArgs, remote: &Remote, args: &RequeueArgs) -> Result<(), Failure> {
    let not_before = if args.never { Some(NEVER) } else { args.not_before.as_deref() };
    if args.body.is_some() && args.ids.len() > 1 {
        return Err(Failure::Usage("--body is for one message".to_owned()));
    }
    let new = args.body.as_deref().map(raw).transpose()?;
    let body = RequeueBody { delay: args.delay, not_before, body: new.as_deref() };
    let when = match (args.delay, not_before) {
        (Some(delay), _) => format!("can be claimed in {}", span(delay)),
        (None, Some(NEVER)) => "is parked until it is requeued".to_owned(),
        (None, Some(date)) => format!("can be claimed from {date} on"),
        (None, None) => "can be claimed".to_owned(),
    };
    let mut printer = caller.printer();
    args.ids.iter().try_for_each(|id| {
        let at = format!("{}/requeue", path(&args.queue, id));
        let reply = remote.call(ApiRequest::new(Method::POST, at).json(&body)?)?;
        if new.is_some() {
            let RequeuedMessage { id: new } = reply.parse()?;
            let people = format!("message {new} {when}, in the place of {id}\n");
            return printer.show(&Display { people, json: json!({"id": new}).to_string(), plain: vec![new] });
        }
        printer.done(&format!("message {id} {when}"), &json!({"id": id}))
    })
}
