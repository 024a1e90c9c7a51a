//! `angarium claim`: create, list, show, renew and release claims.

use std::time::Duration;

use clap::{Args, Subcommand};
use http::{Method, StatusCode, header};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::caller::CallerArgs;
use super::failure::Failure;
use super::listing::{ExtentArgs, Listing};
use super::message::Message;
use super::message::outline::MessageOutline;
use super::notice;
use super::printer::{Display, Item};
use super::queue::{self, parsed};
use super::remote::{ApiRequest, Remote, Reply, encoded, with_query};
use super::table::{Table, cut, one_line};
use angarium_settings::units::{self, span};

/// Claims: messages that a consumer holds for a time
#[derive(Args, Clone, Debug)]
pub struct ClaimArgs {
    #[command(flatten)]
    caller: CallerArgs,
    #[command(subcommand)]
    command: ClaimCommand,
}

#[derive(Subcommand, Clone, Debug)]
enum ClaimCommand {
    /// Claim the oldest messages; nothing to claim is no error
    Create {
        /// The queue
        queue: String,
        /// At most this many messages; the server's default, 10, when not given
        #[arg(long, value_name = "N")]
        limit: Option<u32>,
        #[command(flatten)]
        terms: Terms,
        #[command(flatten)]
        holder: HolderArgs,
        /// How long to wait for a message when there is none
        #[arg(long, value_name = "DURATION", value_parser = units::seconds_within(0, 3600))]
        wait: Option<u32>,
        #[command(flatten)]
        bodies: BodiesArgs,
    },
    /// List the claims of a queue that have not ended
    List {
        /// The queue
        queue: String,
        #[command(flatten)]
        extent: ExtentArgs,
    },
    /// Show a claim and the messages that it still holds
    Show {
        /// The queue
        queue: String,
        /// The claim's id
        claim: String,
        #[command(flatten)]
        bodies: BodiesArgs,
    },
    /// Renew a claim: its time begins again
    Renew {
        /// The queue
        queue: String,
        /// The claim's id
        claim: String,
        #[command(flatten)]
        terms: Terms,
    },
    /// Give claims back: their messages can be claimed again at once
    Release {
        /// The queue
        queue: String,
        /// The ids of the claims
        #[arg(required = true)]
        claims: Vec<String>,
    },
}

/// Whether bodies are shown.
#[derive(Args, Clone, Copy, Debug)]
struct BodiesArgs {
    /// Leave out the bodies: show group, tags and length instead. Plain lines end with the id of the message
    #[arg(long)]
    no_bodies: bool,
}

/// How long a claim lasts.
#[derive(Args, Clone, Debug, Serialize)]
pub struct Terms {
    /// How long the claim lasts; the server's default, 5m, when not given
    #[arg(long, value_name = "DURATION", value_parser = units::seconds)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<u64>,
    /// How long a message which would end before the claim outlives it; 60s when not given
    #[arg(long, value_name = "DURATION", value_parser = units::seconds)]
    #[serde(skip_serializing_if = "Option::is_none")]
    grace: Option<u64>,
}

/// Who holds a claim.
#[derive(Args, Clone, Debug, Serialize)]
pub struct HolderArgs {
    /// Name of the holder, for the outcome and the history of the messages
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<String>,
}

pub(super) fn run(args: &ClaimArgs) -> Result<(), Failure> {
    let remote = args.caller.remote()?;
    match &args.command {
        ClaimCommand::Create { queue, limit, terms, holder, wait, bodies } => {
            let request = ClaimRequest { queue, limit: *limit, terms, holder, wait: wait.map(u64::from) };
            if bodies.no_bodies {
                create::<MessageOutline>(args, &remote, &request)
            } else {
                create::<Message>(args, &remote, &request)
            }
        }
        ClaimCommand::List { queue, extent } => list(&args.caller, &remote, queue, extent),
        ClaimCommand::Show { queue, claim, bodies } if bodies.no_bodies => {
            show_later::<MessageOutline>(args, &remote, queue, claim)
        }
        ClaimCommand::Show { queue, claim, .. } => show_later::<Message>(args, &remote, queue, claim),
        ClaimCommand::Renew { queue, claim, terms } => {
            renew(&remote, queue, claim, terms)?;
            args.caller.printer().done(&format!("claim {claim} is renewed"), &json!({"id": claim}))
        }
        ClaimCommand::Release { queue, claims } => {
            let mut printer = args.caller.printer();
            claims.iter().try_for_each(|claim| {
                release(&remote, queue, claim)?;
                printer.done(&format!("claim {claim} has ended"), &json!({"id": claim}))
            })
        }
    }
}

#[derive(Deserialize)]
struct ClaimEntry {
    id: String,
    ttl: u64,
    age: u64,
    messages: u64,
}

fn list(caller: &CallerArgs, remote: &Remote, queue: &str, extent: &ExtentArgs) -> Result<(), Failure> {
    let at = format!("{}/claims", queue::path(queue));
    let mut listing = Listing::new(remote, &at, "claims", extent, &[]);
    let mut printer = caller.printer();
    let mut shown = printer.list(&["ID", "MESSAGES", "TTL", "AGE", "ENDS IN"]);
    while let Some(page) = listing.page()? {
        let mut items = Vec::with_capacity(page.len());
        for json in page {
            let ClaimEntry { id, ttl, age, messages } = parsed(&json)?;
            let row =
                vec![id.clone(), messages.to_string(), span(ttl), span(age), span(ttl.saturating_sub(age))];
            items.push(Item { row, json: one_line(&json), plain: id });
        }
        shown.page(items)?;
    }
    let is_empty = shown.is_empty();
    shown.end("there are no claims")?;
    if is_empty {
        notice::tell_if_missing(remote, queue);
    }
    Ok(())
}

fn path(queue: &str, claim: &str) -> String {
    format!("{}/claims/{}", queue::path(queue), encoded(claim))
}

/// Parameters of a claim to create.
pub struct ClaimRequest<'a> {
    /// Name of the queue.
    pub queue: &'a str,
    /// Max number of messages.
    pub limit: Option<u32>,
    /// Time to live and grace.
    pub terms: &'a Terms,
    /// Name of the holder.
    pub holder: &'a HolderArgs,
    /// Seconds to wait for a message.
    pub wait: Option<u64>,
}

/// A message as an answer about its claim has it: whole, or without its body.
pub trait ClaimedMessage: DeserializeOwned {
    /// The value of the parameter `bodies`.
    const BODIES: Option<&'static str>;
    /// Column heads of a table.
    const HEADS: &'static [&'static str];
    /// Returns the cells for the heads.
    fn cells(&self) -> Vec<String>;
    /// Returns the fields of a plain line.
    fn line(&self) -> String;
}

impl ClaimedMessage for Message {
    const BODIES: Option<&'static str> = None;
    const HEADS: &'static [&'static str] = &["ID", "AGE", "BODY"];

    fn cells(&self) -> Vec<String> {
        vec![self.id().to_owned(), self.age(), cut(&self.body)]
    }

    /// The body is JSON, so that a line always has as many fields.
    fn line(&self) -> String {
        format!("{}\t{}", self.id(), one_line(&self.body))
    }
}

impl ClaimedMessage for MessageOutline {
    const BODIES: Option<&'static str> = Some(Self::PARAMETER.1);
    const HEADS: &'static [&'static str] = Self::HEADS;

    fn cells(&self) -> Vec<String> {
        self.row()
    }

    fn line(&self) -> String {
        self.id().to_owned()
    }
}

/// A granted claim.
pub struct ClaimGrant<M = Message> {
    /// Id of the claim.
    pub id: String,
    /// Its messages, oldest first.
    pub messages: Vec<M>,
    reply: Reply,
}

/// Claims messages. Returns none when there is nothing to claim.
pub fn claim<M: ClaimedMessage>(
    remote: &Remote,
    request: &ClaimRequest<'_>,
) -> Result<Option<ClaimGrant<M>>, Failure> {
    #[derive(Serialize)]
    struct ClaimBody<'a> {
        #[serde(flatten)]
        terms: &'a Terms,
        #[serde(flatten)]
        holder: &'a HolderArgs,
    }
    #[derive(Deserialize)]
    struct ClaimReply<M> {
        id: Option<String>,
        messages: Vec<M>,
    }

    let query = [
        ("limit", request.limit.map(|limit| limit.to_string())),
        ("wait", request.wait.map(|wait| wait.to_string())),
        ("bodies", M::BODIES.map(ToOwned::to_owned)),
    ];
    let at = with_query(&format!("{}/claims", queue::path(request.queue)), &query);
    let extra_wait = Duration::from_secs(request.wait.unwrap_or(0));
    let body = ClaimBody { terms: request.terms, holder: request.holder };
    let reply = remote.call(ApiRequest::new(Method::POST, at).json(&body)?.extra_wait(extra_wait))?;
    if reply.status == StatusCode::NO_CONTENT {
        return Ok(None);
    }
    let ClaimReply { id, messages } = reply.parse()?;
    // Zaqar returns the claim's id only in this header.
    let location = reply.headers.get(header::LOCATION).and_then(|location| location.to_str().ok());
    let id = id.or_else(|| Some(location?.rsplit('/').next()?.to_owned()));
    let id = id.ok_or_else(|| reply.strange("it does not name the claim"))?;
    Ok(Some(ClaimGrant { id, messages, reply }))
}

/// Renews a claim: its time to live restarts.
pub fn renew(remote: &Remote, queue: &str, claim: &str, terms: &Terms) -> Result<(), Failure> {
    remote.call(ApiRequest::new(Method::PATCH, path(queue, claim)).json(terms)?).map(drop)
}

/// Releases a claim.
pub fn release(remote: &Remote, queue: &str, claim: &str) -> Result<(), Failure> {
    remote.delete(path(queue, claim)).map(drop)
}

fn create<M: ClaimedMessage>(
    args: &ClaimArgs,
    remote: &Remote,
    request: &ClaimRequest<'_>,
) -> Result<(), Failure> {
    let Some(granted) = claim::<M>(remote, request)? else {
        notice::tell_if_missing(remote, request.queue);
        let json = json!({"messages": []}).to_string();
        let people = "there is nothing to claim\n".to_owned();
        return args.caller.printer().show(&Display { people, json, plain: Vec::new() });
    };
    show(args, &granted.id, String::new(), &granted.reply, &granted.messages)
}

fn show_later<M: ClaimedMessage>(
    args: &ClaimArgs,
    remote: &Remote,
    queue: &str,
    claim: &str,
) -> Result<(), Failure> {
    #[derive(Deserialize)]
    struct ClaimMessages<M> {
        ttl: u64,
        age: u64,
        messages: Vec<M>,
    }

    let bodies = M::BODIES.map(ToOwned::to_owned);
    let reply = remote.get(with_query(&path(queue, claim), &[("bodies", bodies)]))?;
    let held: ClaimMessages<M> = reply.parse()?;
    let head = format!("renewed {} ago for {}\n", span(held.age), span(held.ttl));
    show(args, claim, head, &reply, &held.messages)
}

fn show<M: ClaimedMessage>(
    args: &ClaimArgs,
    id: &str,
    more: String,
    reply: &Reply,
    messages: &[M],
) -> Result<(), Failure> {
    let rows: Vec<_> = messages.iter().map(M::cells).collect();
    let people = format!("claim {id}\n{more}{}", Table::new(M::HEADS).cut().with_head(&rows));
    let plain = messages.iter().map(|message| format!("{id}\t{}", message.line())).collect();
    args.caller.printer().show(&Display { people, json: reply.json_text()?, plain })
}
