//! `angarium message consume`: claim, process, delete. A message is deleted only after it was printed, or after the
//! command that processes it has succeeded. Other messages are released or settled as failed, or become claimable when
//! their claim expires.

use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use serde_json::json;

use super::command::{self, CommandEnd, ErrorOutput};
use super::settle::{SettleEntry, settle};
use super::{Message, delete};
use crate::caller::CallerArgs;
use crate::claim::{ClaimGrant, ClaimRequest, HolderArgs, Terms, claim, release, renew};
use crate::failure::{Failure, printable};
use crate::notice;
use crate::printer::{Display, Printer};
use crate::remote::Remote;

/// Messages per claim when they are only printed. Few, so that a broken pipe causes few duplicate deliveries.
const PRINTED_PER_CLAIM: u32 = 10;
/// Seconds that the server may wait for a message while an empty queue is followed.
const FOLLOW_WAIT: u64 = 20;
/// Min time between two claims without a result, for servers that do not wait, and for messages that return at once.
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
    #[command(flatten)]
    holder: HolderArgs,
    /// What becomes of a message whose command fails
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = OnFail::Expire, requires = "command")]
    on_fail: OnFail,
    /// Run this for each message, with the body on its standard input and ANGARIUM_MESSAGE_ID set: success deletes the
    /// message, and --on-fail decides about any other end. The claim is renewed meanwhile
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// What becomes of a message whose command fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OnFail {
    /// It can be claimed again when its claim ends
    Expire,
    /// It can be claimed again at once
    Release,
    /// It is settled as failed; the reason is the last line of the command's standard error
    Fail,
}

impl OnFail {
    /// Returns the failure of a run with messages whose command failed.
    fn failure(self, messages: u64) -> Failure {
        let text = match (self, messages) {
            (Self::Expire, 1) => {
                "1 message was not done; it is delivered again when its claim ends".to_owned()
            }
            (Self::Expire, _) => {
                format!("{messages} messages were not done; they come again when their claims end")
            }
            (Self::Release, 1) => "1 message was not done, and was released".to_owned(),
            (Self::Release, _) => format!("{messages} messages were not done, and were released"),
            (Self::Fail, 1) => "1 message failed".to_owned(),
            (Self::Fail, _) => format!("{messages} messages failed"),
        };
        Failure::Found(text)
    }
}

pub(super) fn run(caller: &CallerArgs, remote: &Remote, args: &ConsumeArgs) -> Result<(), Failure> {
    let mut printer = caller.printer();
    let (mut left, mut failed) = (args.count.unwrap_or(u64::MAX), 0_u64);
    while left > 0 {
        let max = if args.command.is_empty() { PRINTED_PER_CLAIM } else { 1 };
        let limit = u32::try_from(left).unwrap_or(max).min(max);
        let wait = args.follow.then_some(FOLLOW_WAIT);
        let started = Instant::now();
        let (terms, holder) = (&args.terms, &args.holder);
        let request = ClaimRequest { queue: &args.queue, limit: Some(limit), terms, holder, wait };
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
    if failed > 0 { Err(args.on_fail.failure(failed)) } else { Ok(()) }
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
        unless_recalled(message, delete(remote, queue, message.id(), Some(&granted.id)))?;
    }
    Ok(())
}

/// Runs the command for each message. Returns the number of messages that it failed for.
fn run_for_each(remote: &Remote, args: &ConsumeArgs, granted: &ClaimGrant) -> Result<u64, Failure> {
    let mut failed = 0;
    for message in &granted.messages {
        let end = match run_command(remote, args, granted, message) {
            Ok(end) => end,
            Err(failure) => {
                // A command that cannot be started is no failure of the message.
                release(remote, &args.queue, &granted.id)?;
                return Err(failure);
            }
        };
        if end.status.success() {
            unless_recalled(message, delete(remote, &args.queue, message.id(), Some(&granted.id)))?;
        } else {
            notice::tell(&format!("message {} is not done: {}", message.id(), end.status));
            failed += 1;
            give_back(remote, args, granted, message, &end)?;
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
) -> Result<CommandEnd, Failure> {
    let errors = match args.on_fail {
        OnFail::Expire | OnFail::Release => ErrorOutput::Shared,
        OnFail::Fail => ErrorOutput::Remembered,
    };
    let every = Duration::from_secs(args.terms.ttl.unwrap_or(DEFAULT_TTL)) / 3;
    command::run(&args.command, message, errors, every, || {
        if let Err(failure) = renew(remote, &args.queue, &granted.id, &args.terms) {
            notice::tell(&format!("claim {} is not renewed: {failure}", granted.id));
        }
    })
}

/// Gives a message back whose command failed. Pauses if it can be claimed again at once, because it may fail again. A
/// claim for a command has one message, so its release is that of the message.
fn give_back(
    remote: &Remote,
    args: &ConsumeArgs,
    granted: &ClaimGrant,
    message: &Message,
    end: &CommandEnd,
) -> Result<(), Failure> {
    let is_ready = match args.on_fail {
        OnFail::Expire => false,
        OnFail::Release => {
            release(remote, &args.queue, &granted.id)?;
            true
        }
        OnFail::Fail => {
            let reason = end.reason();
            let entry = SettleEntry::failed(message.id(), &reason);
            let settled = match settle(remote, &args.queue, &granted.id, &entry) {
                // It is delivered again, as whenever a command ends after its claim.
                Err(Failure::Refused(refusal)) if refusal.is_missing() && !refusal.is_recall() => {
                    notice::tell(&format!(
                        "claim {} has ended before message {} was settled",
                        granted.id,
                        message.id()
                    ));
                    return Ok(());
                }
                settled => settled,
            };
            unless_recalled(message, settled)?.is_some_and(|settled| settled.state == "ready")
        }
    };
    if is_ready {
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// Returns the result, or none with a notice if the message was recalled meanwhile: it needs no end any more.
fn unless_recalled<T>(message: &Message, result: Result<T, Failure>) -> Result<Option<T>, Failure> {
    match result {
        Err(Failure::Refused(refusal)) if refusal.is_recall() => {
            notice::tell(&format!("message {} was recalled", message.id()));
            Ok(None)
        }
        result => result.map(Some),
    }
}
