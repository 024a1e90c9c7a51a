//! `angarium message post`: bodies from an argument, a file or standard input, split into requests that the server
//! accepts.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;

use clap::{Args, ValueHint};
use http::{HeaderValue, Method};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::caller::CallerArgs;
use crate::failure::{Failure, printable};
use crate::printer::{Form, Item, List};
use crate::progress::Progress;
use crate::queue;
use crate::remote::{ApiRequest, Remote, decoded};
use crate::setting::{raw, string};
use angarium_settings::units;

/// Max bytes of bodies per request. With the surrounding JSON, the request is below the 262,144 bytes that Zaqar and
/// older versions of this service allow.
const REQUEST_BYTES: usize = 200_000;
/// Max messages per request, because the JSON around small bodies counts too.
const REQUEST_MESSAGES: usize = 500;
/// Max bytes that are read of one body. The server refuses much smaller bodies, and reports its own bound.
const BODY_BYTES: u64 = 64 << 20;
/// The header of a response to a post that a hold has dropped, with the reason of the hold.
const DISCARDED: &str = "x-discarded";

/// Arguments of `message post`.
#[derive(Args, Clone, Debug)]
pub struct PostArgs {
    /// The queue; it is created when it does not exist
    queue: String,
    /// The body; `-` reads standard input. With --lines the file whose lines are the bodies
    #[arg(required_unless_present = "file", conflicts_with = "file", allow_hyphen_values = true)]
    body: Option<String>,
    /// Read the body from a file
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: Option<PathBuf>,
    /// Each line is a message of its own; empty lines are left out
    #[arg(long)]
    lines: bool,
    /// The body is JSON; without this it is text, and posted as a JSON string
    #[arg(long)]
    json: bool,
    /// How long a message lives
    #[arg(long, value_name = "DURATION", value_parser = units::seconds)]
    ttl: Option<u64>,
    /// How long until it can be claimed
    #[arg(long, value_name = "DURATION", value_parser = units::seconds)]
    delay: Option<u64>,
    /// How long it is kept with its outcome after it was settled
    #[arg(long, value_name = "DURATION", value_parser = units::seconds)]
    keep: Option<u64>,
    /// A tag, which is shown without the body; may be repeated
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// Its group: messages of a group are delivered in order in a FIFO queue, and in a fair share elsewhere
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
}

/// A message to post.
#[derive(Serialize)]
struct MessageInput<'a> {
    body: Box<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    keep: Option<u64>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    tags: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<&'a str>,
}

pub(super) fn run(caller: &CallerArgs, remote: &Remote, args: &PostArgs) -> Result<(), Failure> {
    queue::refuse_subscription(&args.queue, "only posts to its queue fill it")?;
    let (input, length) = open(args)?;
    let mut printer = caller.printer();
    let form = printer.form();
    let mut post =
        Post { remote, args, form, shown: printer.list(&[]), waiting: Vec::new(), bytes: 0, posted: 0 };
    let done = if args.lines { post.lines(input, &Progress::new(length)) } else { post.whole(input) };
    match (done, post.posted) {
        (Ok(()), 1) => post.shown.end("posted 1 message"),
        (Ok(()), posted) => post.shown.end(&format!("posted {posted} messages")),
        (Err(failure), 0) => Err(failure),
        (Err(failure), posted) => {
            Err(Failure::Partly { done: format!("{} posted", counted(posted)), then: Box::new(failure) })
        }
    }
}

/// Returns the input, and its length in bytes if that is known.
fn open(args: &PostArgs) -> Result<(Box<dyn BufRead>, Option<u64>), Failure> {
    // With `--lines`, the argument names a file: lines in one argument would be unusual.
    let named_file = args.body.as_deref().filter(|body| args.lines && *body != "-").map(PathBuf::from);
    if let Some(path) = args.file.as_ref().or(named_file.as_ref()) {
        let what = if args.lines { "the file of lines " } else { "" };
        let named = |error: std::io::Error| Failure::Usage(format!("{what}{}: {error}", path.display()));
        let file = File::open(path).map_err(named)?;
        let length = file.metadata().map_err(named)?.len();
        return Ok((Box::new(BufReader::new(file)), Some(length)));
    }
    match args.body.as_deref() {
        Some("-") | None => Ok((Box::new(std::io::stdin().lock()), None)),
        Some(body) => Ok((Box::new(std::io::Cursor::new(body.to_owned())), None)),
    }
}

/// A post in progress, of one or more requests.
struct Post<'a> {
    remote: &'a Remote,
    args: &'a PostArgs,
    form: Form,
    shown: List<'a>,
    waiting: Vec<MessageInput<'a>>,
    /// Bytes of the waiting bodies.
    bytes: usize,
    /// Number of messages that the server has certainly accepted.
    posted: usize,
}

impl Post<'_> {
    /// Posts the whole input as one message.
    fn whole(&mut self, input: Box<dyn BufRead>) -> Result<(), Failure> {
        let mut bytes = Vec::new();
        input.take(BODY_BYTES).read_to_end(&mut bytes).map_err(unreadable)?;
        self.add(&bytes, "the body")?;
        self.send()
    }

    /// Posts each line as a message.
    fn lines(&mut self, mut input: Box<dyn BufRead>, progress: &Progress) -> Result<(), Failure> {
        for number in 1_u64.. {
            let mut line = Vec::new();
            let read = (&mut input).take(BODY_BYTES).read_until(b'\n', &mut line).map_err(unreadable)?;
            if read == 0 {
                break;
            }
            let text = line.strip_suffix(b"\n").unwrap_or(&line);
            let text = text.strip_suffix(b"\r").unwrap_or(text);
            if !text.trim_ascii().is_empty() {
                self.add(text, &format!("line {number}"))?;
            }
            if self.bytes >= REQUEST_BYTES || self.waiting.len() >= REQUEST_MESSAGES {
                self.send()?;
            }
            progress.advance(read as u64, self.posted);
        }
        self.send()
    }

    /// Adds a message. Sends the waiting messages first if it does not fit into their request.
    fn add(&mut self, text: &[u8], position: &str) -> Result<(), Failure> {
        let wrong = |why: &str| Failure::Usage(format!("{position}: {why}"));
        let text = std::str::from_utf8(text).map_err(|_| wrong("it is not UTF-8 text"))?;
        let body = if self.args.json { raw(text) } else { string(text) };
        let body = body.map_err(|failure| wrong(&failure.to_string()))?;
        let bytes = body.get().len();
        if self.bytes + bytes > REQUEST_BYTES {
            self.send()?;
        }
        self.bytes += bytes;
        let PostArgs { ttl, delay, keep, ref tags, ref group, .. } = *self.args;
        self.waiting.push(MessageInput { body, ttl, delay, keep, tags, group: group.as_deref() });
        Ok(())
    }

    /// Posts the waiting messages, all or none, and shows their ids.
    fn send(&mut self) -> Result<(), Failure> {
        #[derive(Serialize)]
        struct Messages<'a> {
            messages: &'a [MessageInput<'a>],
        }
        #[derive(Deserialize)]
        struct Resources {
            resources: Vec<String>,
        }

        if self.waiting.is_empty() {
            return Ok(());
        }
        let request = ApiRequest::new(Method::POST, format!("{}/messages", queue::path(&self.args.queue)));
        let reply = self.remote.call(request.json(&Messages { messages: &self.waiting })?)?;
        if let Some(reason) = reply.headers.get(DISCARDED) {
            return Err(dropped(self.waiting.len(), reason));
        }
        self.posted += self.waiting.len();
        self.waiting.clear();
        self.bytes = 0;
        if self.form == Form::Table {
            return Ok(());
        }
        let Resources { resources } = reply.parse()?;
        let ids = resources.iter().map(|path| path.rsplit('/').next().unwrap_or(path));
        let item = |id: &str| Item { row: Vec::new(), json: format!("{id:?}"), plain: id.to_owned() };
        self.shown.page(ids.map(item).collect())
    }
}

/// Returns the failure for a request whose messages a hold has dropped.
fn dropped(messages: usize, reason: &HeaderValue) -> Failure {
    let reason = decoded(reason.as_bytes());
    let why = format!("dropped and not posted, because of a hold: {}", printable(&reason));
    Failure::Found(format!("{} {why}", counted(messages)))
}

fn counted(messages: usize) -> String {
    if messages == 1 { "1 message was".to_owned() } else { format!("{messages} messages were") }
}

fn unreadable(error: std::io::Error) -> Failure {
    Failure::Usage(format!("the input cannot be read: {error}"))
}
