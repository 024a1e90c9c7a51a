//! `angarium message peek`: messages in any state, without a change of them.

use clap::Args;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::print_pages;
use crate::caller::CallerArgs;
use crate::failure::Failure;
use crate::listing::{ExtentArgs, Listing};
use crate::message_filter::FilterArgs;
use crate::notice;
use crate::printer::Item;
use crate::queue::{self, parsed};
use crate::remote::Remote;
use crate::table::{bare, cut, one_line};
use angarium_settings::units::span;

/// Column heads of a table of messages in any state.
pub const HEADS: &[&str] = &["ID", "STATE", "AGE", "ATTEMPTS", "BY", "BODY"];

/// Arguments of `message peek`.
#[derive(Args, Clone, Debug)]
pub struct PeekArgs {
    /// The queue
    queue: String,
    #[command(flatten)]
    extent: ExtentArgs,
    #[command(flatten)]
    filter: FilterArgs,
    /// How much of each body: nothing, 4 KiB, or all; without it 4 KiB
    #[arg(long, value_name = "EXTENT", value_parser = ["none", "head", "whole"])]
    body: Option<String>,
}

/// A message in any state.
#[derive(Debug, Deserialize)]
struct PeekedMessage {
    id: String,
    state: String,
    age: u64,
    #[serde(default)]
    ready_in: Option<u64>,
    #[serde(default)]
    claim: Option<PeekedClaim>,
    details: PeekedDetails,
    #[serde(default)]
    body: Option<Box<RawValue>>,
    /// The begin of a body that is not shown as a whole.
    #[serde(default)]
    body_head: Option<String>,
}

/// The claim of a message.
#[derive(Debug, Deserialize)]
struct PeekedClaim {
    #[serde(default)]
    by: Option<String>,
    expires_in: u64,
}

/// Details of a message that the table shows.
#[derive(Debug, Deserialize)]
struct PeekedDetails {
    attempts: u64,
    #[serde(default)]
    outcome: Option<PeekedOutcome>,
}

/// The outcome of a kept message.
#[derive(Debug, Deserialize)]
struct PeekedOutcome {
    #[serde(default)]
    by: Option<String>,
}

pub(super) fn run(caller: &CallerArgs, remote: &Remote, args: &PeekArgs) -> Result<(), Failure> {
    let mut parameters = args.filter.parameters()?;
    parameters.push(("body", args.body.clone()));
    let path = format!("{}/peek", queue::path(&args.queue));
    let listing = Listing::new(remote, &path, "messages", &args.extent, &parameters).past_empty_pages();
    if print_pages(caller, listing, HEADS, item, "there are no such messages")? {
        notice::tell_if_missing(remote, &args.queue);
    }
    Ok(())
}

/// Returns a message in any state in all formats.
pub fn item(json: &RawValue) -> Result<Item, Failure> {
    let message: PeekedMessage = parsed(json)?;
    Ok(Item { row: message.row(), json: one_line(json), plain: message.plain() })
}

impl PeekedMessage {
    /// Returns the cells for [`HEADS`].
    fn row(&self) -> Vec<String> {
        let body = self.body.as_deref().map(cut).or_else(|| self.body_head.clone());
        vec![
            self.id.clone(),
            self.state(),
            span(self.age),
            self.details.attempts.to_string(),
            self.by().unwrap_or("-").to_owned(),
            body.unwrap_or_else(|| "-".to_owned()),
        ]
    }

    /// Returns the state, with the time until it ends.
    fn state(&self) -> String {
        let left = self.ready_in.or(self.claim.as_ref().map(|claim| claim.expires_in));
        left.map_or_else(|| self.state.clone(), |left| format!("{} {}", self.state, span(left)))
    }

    /// Returns the name of the holder: of the claim, or of the settle.
    fn by(&self) -> Option<&str> {
        let of_outcome = || self.details.outcome.as_ref()?.by.as_deref();
        self.claim.as_ref().and_then(|claim| claim.by.as_deref()).or_else(of_outcome)
    }

    /// Returns the bare body as far as it is shown; without one the id.
    fn plain(&self) -> String {
        let body = self.body.as_deref().map(bare).or_else(|| self.body_head.clone());
        body.unwrap_or_else(|| self.id.clone())
    }
}
