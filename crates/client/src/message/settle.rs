//! `angarium message settle`: what becomes of a claimed message, with the messages that follow from it, in one step.

use clap::{ArgGroup, Args};
use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::caller::CallerArgs;
use crate::failure::{Failure, Refusal};
use crate::printer::Display;
use crate::queue;
use crate::remote::{ApiRequest, Remote, encoded};
use crate::setting::{Setting, raw_or_file};
use angarium_settings::units;

/// Arguments of `message settle`. An option of one verdict conflicts with the other ones: clap does not ask for what an
/// argument requires if another argument excludes it.
#[derive(Args, Clone, Debug)]
#[command(group(ArgGroup::new("verdict").required(true).args(["done", "fail", "target", "defer"])))]
pub struct SettleArgs {
    /// The queue
    queue: String,
    /// The claim that holds the message
    claim: String,
    /// The message's id
    id: String,
    /// It is done: it is removed, or kept with its outcome if it was posted so
    #[arg(long)]
    done: bool,
    /// Result of a message that is done and kept; @FILE reads it from a file
    #[arg(long, value_name = "JSON|@FILE", conflicts_with_all = ["fail", "target", "defer"])]
    result: Option<String>,
    /// It failed: it returns while it has attempts left, and else becomes a dead letter or is kept
    #[arg(long)]
    fail: bool,
    /// Why it failed
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["done", "target", "defer"])]
    reason: Option<String>,
    /// How long until a failed message returns; the backoff of its queue when not given
    #[arg(long, value_name = "DURATION", value_parser = units::seconds)]
    #[arg(conflicts_with_all = ["done", "target", "defer"])]
    retry_in: Option<u64>,
    /// It has failed for good, whatever attempts are left
    #[arg(long, conflicts_with_all = ["done", "target", "defer", "retry_in"])]
    no_retry: bool,
    /// Move it to this queue, with its id and its history
    #[arg(long = "move", value_name = "QUEUE")]
    target: Option<String>,
    /// How long until a moved message can be claimed; the default of that queue when not given
    #[arg(long, value_name = "DURATION", value_parser = units::seconds)]
    #[arg(conflicts_with_all = ["done", "fail", "defer"])]
    delay: Option<u64>,
    /// It returns after this time, and the claim does not count as an attempt
    #[arg(long, value_name = "DURATION", value_parser = units::seconds)]
    defer: Option<u64>,
    /// Post a message to a queue in the same step; a body that is JSON is taken as such, any other as text
    #[arg(long = "forward", value_name = "QUEUE=BODY", conflicts_with = "defer")]
    forwards: Vec<Setting>,
    /// Values that are kept with the message, as JSON, in place of earlier ones; @FILE reads them from a file
    #[arg(long, value_name = "JSON|@FILE")]
    meta: Option<String>,
}

/// The settle of one message: it has one verdict.
#[derive(Default, Serialize)]
pub struct SettleEntry<'a> {
    id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    done: Option<DoneVerdict>,
    #[serde(skip_serializing_if = "Option::is_none", rename = "move")]
    transfer: Option<MoveVerdict<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fail: Option<FailVerdict<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    defer: Option<DeferVerdict>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    forward: Vec<Forward<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    meta: Option<Box<RawValue>>,
}

#[derive(Serialize)]
struct DoneVerdict {
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Box<RawValue>>,
}

#[derive(Serialize)]
struct MoveVerdict<'a> {
    queue: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay: Option<u64>,
}

#[derive(Default, Serialize)]
struct FailVerdict<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_in: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry: Option<bool>,
}

#[derive(Serialize)]
struct DeferVerdict {
    delay: u64,
}

#[derive(Serialize)]
struct Forward<'a> {
    queue: &'a str,
    body: &'a RawValue,
}

impl<'a> SettleEntry<'a> {
    /// Returns the entry of a message that failed for this reason.
    pub fn failed(id: &'a str, reason: &'a str) -> Self {
        let fail = FailVerdict { reason: Some(reason), ..FailVerdict::default() };
        Self { id, fail: Some(fail), ..Self::default() }
    }

    fn of_args(args: &'a SettleArgs) -> Result<Self, Failure> {
        let json = |text: &Option<String>| text.as_deref().map(raw_or_file).transpose();
        let forward = |setting: &'a Setting| Forward { queue: &setting.key, body: &setting.value };
        let mut entry = Self {
            id: &args.id,
            forward: args.forwards.iter().map(forward).collect(),
            meta: json(&args.meta)?,
            ..Self::default()
        };
        if args.done {
            entry.done = Some(DoneVerdict { result: json(&args.result)? });
        }
        if args.fail {
            let retry = args.no_retry.then_some(false);
            let reason = args.reason.as_deref();
            entry.fail = Some(FailVerdict { reason, retry_in: args.retry_in, retry });
        }
        entry.transfer = args.target.as_deref().map(|queue| MoveVerdict { queue, delay: args.delay });
        entry.defer = args.defer.map(|delay| DeferVerdict { delay });
        Ok(entry)
    }
}

/// A settled message.
pub struct Settlement {
    /// Its state now; `-` if the server does not report it.
    pub state: String,
    /// The ids of the forwarded messages.
    ids: Vec<String>,
    json: String,
}

pub(super) fn run(caller: &CallerArgs, remote: &Remote, args: &SettleArgs) -> Result<(), Failure> {
    let settled = settle(remote, &args.queue, &args.claim, &SettleEntry::of_args(args)?)?;
    let state = settled.state.replace('_', " ");
    let mut people = format!("message {} is {state}\n", args.id);
    for (setting, id) in args.forwards.iter().zip(&settled.ids) {
        people.push_str(&format!("message {id} is forwarded to {}\n", setting.key));
    }
    caller.printer().show(&Display { people, json: settled.json, plain: settled.ids })
}

/// Settles a message of a claim. Its refusal is that of the request.
pub fn settle(
    remote: &Remote,
    queue: &str,
    claim: &str,
    entry: &SettleEntry<'_>,
) -> Result<Settlement, Failure> {
    #[derive(Serialize)]
    struct SettleRequest<'a> {
        messages: [&'a SettleEntry<'a>; 1],
    }
    #[derive(Deserialize)]
    struct SettleReply {
        results: Vec<Box<RawValue>>,
    }
    #[derive(Deserialize)]
    struct SettleResult {
        status: u16,
        #[serde(default)]
        state: Option<String>,
        #[serde(default)]
        ids: Vec<String>,
        #[serde(default)]
        error: Option<Box<RawValue>>,
    }

    let at = format!("{}/claims/{}/settle", queue::path(queue), encoded(claim));
    let reply = remote.call(ApiRequest::new(Method::POST, at).json(&SettleRequest { messages: [entry] })?)?;
    let SettleReply { results } = reply.parse()?;
    let Some(json) = results.first() else { return Err(reply.strange("it has no result")) };
    let result: SettleResult =
        serde_json::from_str(json.get()).map_err(|error| reply.strange(error.to_string()))?;
    if result.status >= 400 {
        let body = result.error.as_deref().map_or("", RawValue::get);
        return Err(Refusal::of(result.status, body.as_bytes(), None));
    }
    let state = result.state.unwrap_or_else(|| "-".to_owned());
    Ok(Settlement { state, ids: result.ids, json: json.get().to_owned() })
}
