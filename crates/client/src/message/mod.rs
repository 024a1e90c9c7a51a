//! `angarium message`: post, list, peek at, get, delete, pop, consume, settle and requeue messages.

mod command;
mod consume;
mod get;
mod list;
pub mod outline;
pub mod peek;
mod post;
mod requeue;
mod settle;

use clap::{Args, Subcommand};
use http::Method;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::caller::CallerArgs;
use super::failure::Failure;
use super::listing::Listing;
use super::notice;
use super::printer::{Display, Item};
use super::queue;
use super::remote::{ApiRequest, Remote, encoded, with_query};
use super::table::{Table, bare, cut};
use angarium_settings::units::span;

/// The header that requests message details unknown to Zaqar. Zaqar ignores it.
const DETAILED: &[(&str, &str)] = &[("x-message-details", "true")];

/// Messages
#[derive(Args, Clone, Debug)]
pub struct MessageArgs {
    #[command(flatten)]
    caller: CallerArgs,
    #[command(subcommand)]
    command: MessageCommand,
}

#[derive(Subcommand, Clone, Debug)]
enum MessageCommand {
    /// Post a message, or one for each line
    Post(post::PostArgs),
    /// List messages that can be claimed, oldest first; nothing is claimed by it
    List(list::ListArgs),
    /// Show messages in any state, and their holders; nothing is changed by it
    Peek(peek::PeekArgs),
    /// Show messages, claimed or not, and the outcome of those that are kept
    Get(get::GetArgs),
    /// Delete messages; one that does not exist is deleted already
    Delete {
        /// The queue
        queue: String,
        /// Their ids
        #[arg(required = true)]
        ids: Vec<String>,
        /// The claim they are under; without it only free messages are deleted
        #[arg(long, value_name = "ID")]
        claim: Option<String>,
        /// Recall messages under claims of others too: the holder can no longer settle them
        #[arg(long, conflicts_with = "claim")]
        force: bool,
    },
    /// Take the oldest free messages out of the queue; if the answer is lost, so are they
    Pop {
        /// The queue
        queue: String,
        /// How many
        #[arg(long, value_name = "N", default_value_t = 1)]
        count: u32,
    },
    /// Claim messages and delete each one when it is done: printed, or given to a command that succeeds
    Consume(consume::ConsumeArgs),
    /// Decide what becomes of a claimed message, and forward messages in the same step
    Settle(settle::SettleArgs),
    /// Make messages available again: delayed, failed or done ones, with no attempts and a new life
    Requeue(requeue::RequeueArgs),
}

/// A message in a response.
#[derive(Debug, Deserialize)]
pub struct Message {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    href: Option<String>,
    #[serde(default)]
    ttl: Option<u64>,
    #[serde(default)]
    age: Option<u64>,
    #[serde(default)]
    details: Details,
    /// The posted body.
    pub body: Box<RawValue>,
}

/// Message details unknown to Zaqar.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Details {
    state: Option<String>,
    delay: Option<u64>,
    group: Option<String>,
    tags: Vec<String>,
}

impl Details {
    /// Returns the state, with the remaining delay of a delayed message.
    fn state(&self) -> String {
        match (&self.state, self.delay) {
            (Some(state), Some(left)) => format!("{state} {}", span(left)),
            (Some(state), None) => state.clone(),
            (None, _) => "-".to_owned(),
        }
    }
}

impl Message {
    /// Returns the state, with the remaining delay of a delayed message.
    fn state(&self) -> String {
        self.details.state()
    }

    /// Returns the id. Some responses of Zaqar have it only in the path.
    pub fn id(&self) -> &str {
        let in_path = || self.href.as_deref()?.rsplit('/').next()?.split('?').next();
        self.id.as_deref().or_else(in_path).unwrap_or("-")
    }

    /// Returns the time since the post.
    pub fn age(&self) -> String {
        self.age.map_or_else(|| "-".to_owned(), span)
    }

    /// Returns its cells: id, state, age, ttl, body.
    fn row(&self) -> Vec<String> {
        let seconds = |seconds: Option<u64>| seconds.map_or("-".into(), span);
        vec![self.id().to_owned(), self.state(), seconds(self.age), seconds(self.ttl), cut(&self.body)]
    }

    /// Returns the bare body: a string without its quotes, any other value as JSON on one line.
    pub fn plain(&self) -> String {
        bare(&self.body)
    }
}

pub(super) fn run(args: &MessageArgs) -> Result<(), Failure> {
    let remote = args.caller.remote()?;
    match &args.command {
        MessageCommand::Post(post) => post::run(&args.caller, &remote, post),
        MessageCommand::List(list) => list::run(&args.caller, &remote, list),
        MessageCommand::Peek(peek) => peek::run(&args.caller, &remote, peek),
        MessageCommand::Get(get) => get::run(&args.caller, &remote, get),
        MessageCommand::Delete { queue, ids, claim, force } => {
            notice::tell_if_missing(&remote, queue);
            let mut printer = args.caller.printer();
            ids.iter().try_for_each(|id| {
                if *force {
                    recall(&remote, queue, id)?;
                } else {
                    delete(&remote, queue, id, claim.as_deref())?;
                }
                printer.done(&format!("message {id} is gone"), &json!({"id": id}))
            })
        }
        MessageCommand::Pop { queue, count } => pop(&args.caller, &remote, queue, *count),
        MessageCommand::Consume(consume) => consume::run(&args.caller, &remote, consume),
        MessageCommand::Settle(settle) => settle::run(&args.caller, &remote, settle),
        MessageCommand::Requeue(requeue) => requeue::run(&args.caller, &remote, requeue),
    }
}

/// Prints a listing of messages page by page. Returns true when there were none; then a table is `nothing`.
fn print_pages(
    caller: &CallerArgs,
    mut listing: Listing<'_>,
    heads: &'static [&'static str],
    item: impl Fn(&RawValue) -> Result<Item, Failure>,
    nothing: &str,
) -> Result<bool, Failure> {
    let mut printer = caller.printer();
    let mut shown = printer.cut_list(heads);
    while let Some(page) = listing.page()? {
        let items = page.iter().map(|json| item(json)).collect::<Result<_, _>>()?;
        shown.page(items)?;
    }
    let is_empty = shown.is_empty();
    shown.end(nothing)?;
    Ok(is_empty)
}

fn path(queue: &str, id: &str) -> String {
    format!("{}/messages/{}", queue::path(queue), encoded(id))
}

/// Deletes a message, claimed or free.
fn delete(remote: &Remote, queue: &str, id: &str, claim: Option<&str>) -> Result<(), Failure> {
    remote.delete(with_query(&path(queue, id), &[("claim_id", claim.map(ToOwned::to_owned))])).map(drop)
}

/// Deletes a message whatever holds it.
fn recall(remote: &Remote, queue: &str, id: &str) -> Result<(), Failure> {
    remote.delete(with_query(&path(queue, id), &[("force", Some("true".to_owned()))])).map(drop)
}

fn pop(caller: &CallerArgs, remote: &Remote, queue: &str, count: u32) -> Result<(), Failure> {
    #[derive(Deserialize)]
    struct PopReply {
        messages: Vec<Message>,
    }

    let at = with_query(&format!("{}/messages", queue::path(queue)), &[("pop", Some(count.to_string()))]);
    let reply = remote.call(ApiRequest::new(Method::DELETE, at))?;
    let PopReply { messages } = reply.parse()?;
    if messages.is_empty() {
        notice::tell_if_missing(remote, queue);
    }
    let rows: Vec<_> = messages.iter().map(full_row).collect();
    let people = if rows.is_empty() {
        "there is nothing to pop\n".to_owned()
    } else {
        Table::new(&["ID", "AGE", "TTL", "BODY"]).with_head(&rows)
    };
    let plain = messages.iter().map(Message::plain).collect();
    caller.printer().show(&Display { people, json: reply.json_text()?, plain })
}

/// Returns the row of a popped message. Its body is not cut, because it exists nowhere else any more.
fn full_row(message: &Message) -> Vec<String> {
    let seconds = |seconds: Option<u64>| seconds.map_or("-".into(), span);
    vec![message.id().to_owned(), seconds(message.age), seconds(message.ttl), bare(&message.body)]
}
