//! The settings of webhooks: subscribers to which the service sends messages over HTTP.

use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::{ArgAction, Args};

use angarium_core::network::Network;
use angarium_settings::units;

/// Where the service may send messages.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Webhooks")]
pub struct WebhookSettings {
    /// Refuse new webhooks, and send nothing to existing ones
    #[arg(long, env = "ANGARIUM_NO_WEBHOOKS", default_value = "false", value_name = "BOOL")]
    #[arg(action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[arg(value_parser = BoolishValueParser::new())]
    pub no_webhooks: bool,

    /// Networks of addresses that are not public, but that webhooks may have, as 10.1.0.0/16; without it private,
    /// loopback and link-local addresses are refused
    #[arg(long, env = "ANGARIUM_WEBHOOK_ALLOW", value_delimiter = ',', value_name = "NETWORKS")]
    #[arg(value_parser = network)]
    pub webhook_allow: Vec<Network>,

    /// How long one request to a webhook may take, with its answer; at most 30 seconds
    #[arg(long, env = "ANGARIUM_WEBHOOK_TIMEOUT", default_value = "10s", value_name = "DURATION")]
    #[arg(value_parser = timeout)]
    pub webhook_timeout: Duration,
}

fn network(text: &str) -> Result<Network, String> {
    text.trim().parse::<Network>().map_err(str::to_owned)
}

/// The longest request: it ends before the claim of its message does.
const LONGEST: Duration = Duration::from_secs(30);

fn timeout(text: &str) -> Result<Duration, String> {
    let timeout = units::wait(text)?;
    if timeout > LONGEST {
        Err(format!("at most {} seconds are possible", LONGEST.as_secs()))
    } else {
        Ok(timeout)
    }
}
