//! `angarium message consume`: claim, process, delete. A message is deleted only after it was printed, or after the
//! command that processes it has succeeded. Other messages are released, or become claimable when their claim expires.

use std::io::Write;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;

use super::{Message, delete};
use crate::caller::CallerArgs;
use crate::claim::{ClaimGrant, ClaimRequest, Terms, claim, release, renew};
use crate::failure::{Failure, printable};
use crate::notice;
use crate::printer::{Display, Printer};
use crate::remote::Remote;

/// Messages per claim when they are only printed. Few, so that a broken pipe causes few duplicate deliveries.
const PRINTED_PER_CLAIM: u32 = 10;
/// Seconds that the server may wait for a message while an empty queue is followed.
const FOLLOW_WAIT: u64 = 20;
/// Min time between two claims without a result, for servers that do not wait.
const PAUSE: Duration = Duration::from_secs(1);
/// Default lifetime of a claim in seconds, that of the server.
const DEFAULT_TTL: u64 = 300;

/// Arguments of `message consume`.
#[derive(Args, Clone, Debug)]
pub struct ConsumeArgs {
    /// The queue
    queue: String,
    /// Go on when the queue is empty, until interrupted
    #[arg(long)]
    follow: bool,
    /// End after this many messages
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    #[command(flatten)]
    terms: Terms,
    /// Run this for each message, with the body on its standard input and ANGARIUM_MESSAGE_ID set: success deletes the
    /// message, anything else leaves it to be claimed again when its claim ends. The claim is renewed meanwhile
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub(super) fn run(caller: &CallerArgs, remote: &Remote, args: &ConsumeArgs) -> Result<(), Failure> {
    let mut printer = caller.printer();
    let (mut left, mut failed) = (args.count.unwrap_or(u64::MAX), 0_u64);
    while left > 0 {
        let max = if args.command.is_empty() { PRINTED_PER_CLAIM } else { 1 };
        let limit = u32::try_from(left).unwrap_or(max).min(max);
        let wait = args.follow.then_some(FOLLOW_WAIT);
        let started = Instant::now();
        let request = ClaimRequest { queue: &args.queue, limit: Some(limit), terms: &args.terms, wait };
        let Some(granted) = claim(remote, &request)? else {
            if !args.follow {
                if left == args.count.unwrap_or(u64::MAX) {
                    notice::tell_if_missing(remote, &args.queue);
                }
                break;
            }
            std::thread::sleep(PAUSE.saturating_sub(started.elapsed()));
            continue;
        };
        left = left.saturating_sub(granted.messages.len() as u64);
        if args.command.is_empty() {
            print(&mut printer, remote, &args.queue, &granted)?;
        } else {
            failed += run_for_each(remote, args, &granted)?;
        }
    }
    if failed == 1 {
        return Err(Failure::Found(
            "1 message was not done; it is delivered again when its claim ends".into(),
        ));
    }
    if failed > 0 {
        return Err(Failure::Found(format!(
            "{failed} messages were not done; they come again when their claims end"
        )));
    }
    Ok(())
}

/// Prints each message and deletes it. When the output is closed, the claim is released.
fn print(printer: &mut Printer, remote: &Remote, queue: &str, granted: &ClaimGrant) -> Result<(), Failure> {
    for message in &granted.messages {
        let json = json!({"id": message.id(), "body": message.body}).to_string();
        let plain = message.plain();
        let people = format!("{}  {}\n", message.id(), printable(&plain));
        let shown = Display { people, json, plain: vec![plain] };
        if let Err(failure) = printer.show(&shown) {
            release(remote, queue, &granted.id)?;
            return Err(failure);
        }
        delete(remote, queue, message.id(), Some(&granted.id))?;
    }
    Ok(())
}

/// Runs the command for each message. Returns the number of messages that it failed for.
fn run_for_each(remote: &Remote, args: &ConsumeArgs, granted: &ClaimGrant) -> Result<u64, Failure> {
    let mut failed = 0;
    for message in &granted.messages {
        let status = match run_command(remote, args, granted, message) {
            Ok(status) => status,
            Err(failure) => {
                // A command that cannot be started is no failure of the message.
                release(remote, &args.queue, &granted.id)?;
                return Err(failure);
            }
        };
        if status.success() {
            delete(remote, &args.queue, message.id(), Some(&granted.id))?;
        } else {
            notice::tell(&format!("message {} is not done: {status}", message.id()));
            failed += 1;
        }
    }
    Ok(failed)
}

/// Runs the command for one message, and renews the claim while it runs.
fn run_command(
    remote: &Remote,
    args: &ConsumeArgs,
    granted: &ClaimGrant,
    message: &Message,
) -> Result<ExitStatus, Failure> {
    let [program, arguments @ ..] = args.command.as_slice() else {
        return Err(Failure::Usage("there is no command to run".into()));
    };
    let broken = |error: std::io::Error| Failure::Usage(format!("{program}: {error}"));
    let mut child = Command::new(program)
        .args(arguments)
        .env("ANGARIUM_MESSAGE_ID", message.id())
        .stdin(Stdio::piped())
        .spawn()
        .map_err(broken)?;
    let input = child.stdin.take();
    let every = Duration::from_secs(args.terms.ttl.unwrap_or(DEFAULT_TTL)) / 3;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // A command may ignore its input.
            input.map(|mut input| input.write_all(message.plain().as_bytes()))
        });
        // The channel for the exit status: one message from the thread that waits for the command.
        let (ended, end) = sync_channel(1);
        scope.spawn(move || ended.send(child.wait()));
        loop {
            match end.recv_timeout(every) {
                Ok(status) => return status.map_err(broken),
                Err(RecvTimeoutError::Timeout) => {
                    if let Err(failure) = renew(remote, &args.queue, &granted.id, &args.terms) {
                        notice::tell(&format!("claim {} is not renewed: {failure}", granted.id));
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Failure::Found(format!("{program}: its exit status is unknown")));
                }
            }
        }
    })
}
