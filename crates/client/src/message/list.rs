//! `angarium message list`: the messages that can be claimed, and others on request.

use clap::Args;
use serde_json::value::RawValue;

use super::outline::MessageOutline;
use super::{DETAILED, Message, print_pages};
use crate::caller::CallerArgs;
use crate::failure::Failure;
use crate::listing::{ExtentArgs, Listing};
use crate::notice;
use crate::printer::Item;
use crate::queue::{self, parsed};
use crate::remote::Remote;
use crate::table::one_line;

/// Column heads of a table of messages.
const HEADS: &[&str] = &["ID", "STATE", "AGE", "TTL", "BODY"];

/// Arguments of `message list`.
#[derive(Args, Clone, Debug)]
pub struct ListArgs {
    /// The queue
    queue: String,
    #[command(flatten)]
    extent: ExtentArgs,
    /// Claimed ones too
    #[arg(long)]
    include_claimed: bool,
    /// Lists delayed messages too
    #[arg(long)]
    include_delayed: bool,
    /// Leave out what was posted under the same --client-id
    #[arg(long, requires = "client_id")]
    no_echo: bool,
    /// Leave out the bodies: show group, tags and length instead. Plain lines have the ids
    #[arg(long)]
    no_bodies: bool,
}

pub(super) fn run(caller: &CallerArgs, remote: &Remote, args: &ListArgs) -> Result<(), Failure> {
    let yes = |flag: bool| flag.then(|| "true".to_owned());
    let mut parameters = vec![
        ("echo", yes(!args.no_echo)),
        ("include_claimed", yes(args.include_claimed)),
        ("include_delayed", yes(args.include_delayed)),
    ];
    if args.no_bodies {
        let (name, value) = MessageOutline::PARAMETER;
        parameters.push((name, Some(value.to_owned())));
    }
    let path = format!("{}/messages", queue::path(&args.queue));
    let listing = Listing::new(remote, &path, "messages", &args.extent, &parameters).with_headers(DETAILED);
    let nothing = "there are no messages to list";
    let is_empty = if args.no_bodies {
        print_pages(caller, listing, MessageOutline::HEADS, outline, nothing)?
    } else {
        print_pages(caller, listing, HEADS, item, nothing)?
    };
    if is_empty {
        notice::tell_if_missing(remote, &args.queue);
    }
    Ok(())
}

fn item(json: &RawValue) -> Result<Item, Failure> {
    let message: Message = parsed(json)?;
    Ok(Item { row: message.row(), json: one_line(json), plain: message.plain() })
}

fn outline(json: &RawValue) -> Result<Item, Failure> {
    let message: MessageOutline = parsed(json)?;
    Ok(Item { row: message.row(), json: one_line(json), plain: message.id().to_owned() })
}
