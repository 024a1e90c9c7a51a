//! The settings of webhooks: subscribers to which the service sends messages over HTTP.

use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::{ArgAction, Args, ValueEnum};

use angarium_core::confirmation::ConfirmationRule;
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

    /// Whether a new webhook gets messages only when it is confirmed, and by whom
    #[arg(long, env = "ANGARIUM_WEBHOOK_CONFIRMATION", default_value = "none", value_name = "WHO")]
    pub webhook_confirmation: ConfirmationChoice,

    /// Address of the service for subscribers, as https://queue.example: requests for a confirmation name it
    #[arg(long, env = "ANGARIUM_WEBHOOK_CONFIRMATION_URL", value_name = "URL", value_parser = service_url)]
    pub webhook_confirmation_url: Option<String>,
}

/// Who confirms new webhooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ConfirmationChoice {
    /// No webhook needs a confirmation
    None,
    /// The subscriber by the headers that it was sent, or a member of the project, as in Zaqar
    Project,
    /// The subscriber by the headers that it was sent, or an administrator
    Subscriber,
}

impl ConfirmationChoice {
    /// The rule of this choice.
    pub fn rule(self) -> Option<ConfirmationRule> {
        match self {
            Self::None => None,
            Self::Project => Some(ConfirmationRule::Project),
            Self::Subscriber => Some(ConfirmationRule::Subscriber),
        }
    }
}

fn service_url(text: &str) -> Result<String, &'static str> {
    let host = ["https://", "http://"].iter().find_map(|scheme| text.strip_prefix(scheme));
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#' | b'@');
    match host {
        Some(host) if !host.is_empty() && !host.starts_with('/') && host.bytes().all(is_plain) => {
            Ok(text.trim_end_matches('/').to_owned())
        }
        _ => Err("it begins with http:// or https:// and a host, and has neither a query nor a user"),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_of_the_service_has_a_scheme_and_a_host() {
        for (text, read) in [
            ("https://queue.example", "https://queue.example"),
            ("http://queue.example:8888/", "http://queue.example:8888"),
            ("https://example/queues/", "https://example/queues"),
        ] {
            assert_eq!(service_url(text).as_deref(), Ok(read));
        }
        for wrong in
            ["", "queue.example", "https://", "https:///v2", "https://a b", "https://a?b", "https://a@b"]
        {
            assert!(service_url(wrong).is_err(), "{wrong}");
        }
    }
}
