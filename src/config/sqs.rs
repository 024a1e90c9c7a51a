//! The settings of the SQS endpoint.

use std::path::PathBuf;

use clap::builder::BoolishValueParser;
use clap::{ArgAction, Args};

use angarium_core::limits;
use angarium_core::region::{Regions, is_region};

/// The endpoint of SQS.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Amazon SQS")]
pub struct SqsSettings {
    /// Region of SQS whose queues are those of REST; another region has queues of its own
    #[arg(long, env = "ANGARIUM_SQS_REGION", default_value = "us-east-1", value_name = "REGION", value_parser = region)]
    pub sqs_region: String,

    /// Regions that SQS requests may be for, with commas between them; the service's own always, and `*` for any. A client
    /// chooses its region, and that of the project `ACCOUNT@REGION` with it: beside --sqs-keys a token whose project has an
    /// `@` is refused unless this names no other region
    #[arg(long, env = "ANGARIUM_SQS_REGIONS", default_value_t, value_name = "REGIONS")]
    pub sqs_regions: Regions,

    /// File of the keys that SQS clients sign their requests with; without it they need none, or with --tokens are
    /// refused. It is read again when it changes
    #[arg(long, env = "ANGARIUM_SQS_KEYS", value_name = "FILE")]
    pub sqs_keys: Option<PathBuf>,

    /// What the URLs of SQS queues begin with; without it the address that each request was sent to
    #[arg(long, env = "ANGARIUM_SQS_PUBLIC_URL", value_name = "URL", value_parser = public_url)]
    pub sqs_public_url: Option<String>,

    /// Messages of a receive and entries of a batch at most, 10 to 500
    #[arg(long, env = "ANGARIUM_SQS_BATCH", default_value_t = limits::SQS_BATCH, value_name = "N", value_parser = batch)]
    pub sqs_batch: usize,

    /// Messages of a queue that may be received and not deleted yet; beyond it receives are refused
    #[arg(long, env = "ANGARIUM_SQS_IN_FLIGHT", default_value_t = limits::SQS_IN_FLIGHT, value_name = "N")]
    #[arg(value_parser = in_flight)]
    pub sqs_in_flight: usize,

    /// Refuse what SQS refuses: to purge a queue twice within a minute, to make one within a minute of its deletion
    #[arg(long, env = "ANGARIUM_SQS_PAUSES", default_value = "false", value_name = "BOOL")]
    #[arg(action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[arg(value_parser = BoolishValueParser::new())]
    pub sqs_pauses: bool,
}

fn batch(text: &str) -> Result<usize, String> {
    number(text, limits::SQS_BATCH, limits::SQS_BATCH_MAX)
}

fn in_flight(text: &str) -> Result<usize, String> {
    number(text, 1, limits::SQS_IN_FLIGHT_MAX)
}

fn number(text: &str, least: usize, most: usize) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("it is a number from {least} to {most}"))
}

fn region(text: &str) -> Result<String, &'static str> {
    if is_region(text) {
        Ok(text.to_owned())
    } else {
        Err("it is 1 to 32 lower-case letters, digits and hyphens")
    }
}

fn public_url(text: &str) -> Result<String, &'static str> {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://")).unwrap_or_default();
    if rest.is_empty() || rest.contains(['?', '#', ' ']) {
        return Err("it is an address as in https://queues.example.com, and a path if it has one");
    }
    Ok(text.trim_end_matches('/').to_owned())
}
