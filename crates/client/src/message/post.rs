//! `angarium message post`: bodies from an argument, a file or standard input, in requests that the server takes.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;

use clap::{Args, ValueHint};
use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::caller::CallerArgs;
use crate::failure::Failure;
use crate::printer::{Form, Item, List};
use crate::progress::Progress;
use crate::queue;
use crate::remote::{ApiRequest, Remote};
use crate::setting::{raw, string};
use angarium_settings::units;

/// Bytes of bodies in one request: with what is around them below the 262,144 that Zaqar, and this service of before, allow.
const REQUEST_BYTES: usize = 200_000;
/// Messages in one request: what is around small bodies must fit as well.
const REQUEST_MESSAGES: usize = 500;
/// Bytes of one body that are read: no server takes as much, and it is the server that reports it.
const BODY_BYTES: u64 = 64 << 20;

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
}

/// A message to post.
#[derive(Serialize)]
struct MessageInput {
    body: Box<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay: Option<u64>,
}

pub(super) fn run(caller: &CallerArgs, remote: &Remote, args: &PostArgs) -> Result<(), Failure> {
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
            Err(Failure::Partly { done: format!("{posted} messages were posted"), then: Box::new(failure) })
        }
    }
}

/// The input, and its length in bytes where that is known.
fn open(args: &PostArgs) -> Result<(Box<dyn BufRead>, Option<u64>), Failure> {
    // Lines of one argument would be one line: it names their file.
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

/// A post under way, of one request or of many.
struct Post<'a> {
    remote: &'a Remote,
    args: &'a PostArgs,
    form: Form,
    shown: List<'a>,
    waiting: Vec<MessageInput>,
    /// Of the bodies that wait.
    bytes: usize,
    /// Messages that the server has, for certain.
    posted: usize,
}

impl Post<'_> {
    /// The whole input as one message.
    fn whole(&mut self, input: Box<dyn BufRead>) -> Result<(), Failure> {
        let mut bytes = Vec::new();
        input.take(BODY_BYTES).read_to_end(&mut bytes).map_err(unreadable)?;
        self.add(&bytes, "the body")?;
        self.send()
    }

    /// Each line as a message.
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

    /// Adds a message; what waits is sent first when both do not fit into one request.
    fn add(&mut self, text: &[u8], place: &str) -> Result<(), Failure> {
        let wrong = |why: &str| Failure::Usage(format!("{place}: {why}"));
        let text = std::str::from_utf8(text).map_err(|_| wrong("it is not UTF-8 text"))?;
        let body = if self.args.json { raw(text) } else { string(text) };
        let body = body.map_err(|failure| wrong(&failure.to_string()))?;
        let bytes = body.get().len();
        if self.bytes + bytes > REQUEST_BYTES {
            self.send()?;
        }
        self.bytes += bytes;
        self.waiting.push(MessageInput { body, ttl: self.args.ttl, delay: self.args.delay });
        Ok(())
    }

    /// Posts what waits, all or none, and shows the ids.
    fn send(&mut self) -> Result<(), Failure> {
        #[derive(Serialize)]
        struct Messages<'a> {
            messages: &'a [MessageInput],
        }
        #[derive(Deserialize)]
        struct Resources {
            resources: Vec<String>,
        }

        if self.waiting.is_empty() {
            return Ok(());
        }
        let ask = ApiRequest::new(Method::POST, format!("{}/messages", queue::path(&self.args.queue)));
        let reply = self.remote.ask(ask.json(&Messages { messages: &self.waiting })?)?;
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

fn unreadable(error: std::io::Error) -> Failure {
    Failure::Usage(format!("the input cannot be read: {error}"))
}
