//! The settings of client limits: pages, claims, bodies, times. They have the names of Zaqar's options where these
//! exist. Each value is checked when it is read, their combination at the start.

use clap::Args;
use clap::builder::RangedI64ValueParser;
use thiserror::Error as ThisError;

use angarium_core::limits::{self, Limits, Span};
use angarium_settings::units;

/// What clients may ask for, and what holds when they do not say. A client that asks for more is answered 400.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "What clients may ask for")]
pub struct LimitSettings {
    /// Queues on a page of their listing
    #[arg(long, env = "ANGARIUM_MAX_QUEUES_PER_PAGE", default_value_t = limits::PAGE as u32)]
    #[arg(value_name = "NUMBER", value_parser = page())]
    pub max_queues_per_page: u32,

    /// Messages on a page of their listing, and ids that one request may name
    #[arg(long, env = "ANGARIUM_MAX_MESSAGES_PER_PAGE", default_value_t = limits::PAGE as u32)]
    #[arg(value_name = "NUMBER", value_parser = page())]
    pub max_messages_per_page: u32,

    /// Pools on a page of their listing
    #[arg(long, env = "ANGARIUM_MAX_POOLS_PER_PAGE", default_value_t = limits::PAGE as u32)]
    #[arg(value_name = "NUMBER", value_parser = page())]
    pub max_pools_per_page: u32,

    /// Flavors on a page of their listing
    #[arg(long, env = "ANGARIUM_MAX_FLAVORS_PER_PAGE", default_value_t = limits::PAGE as u32)]
    #[arg(value_name = "NUMBER", value_parser = page())]
    pub max_flavors_per_page: u32,

    /// Elements of a page when the client names no limit
    #[arg(long, env = "ANGARIUM_DEFAULT_PER_PAGE", default_value_t = limits::PAGE_DEFAULT as u32)]
    #[arg(value_name = "NUMBER", value_parser = page())]
    pub default_per_page: u32,

    /// Messages that one claim or pop may take
    #[arg(long, env = "ANGARIUM_MAX_MESSAGES_PER_CLAIM_OR_POP", default_value_t = limits::CLAIM_MESSAGES as u32)]
    #[arg(value_name = "NUMBER", value_parser = claim())]
    pub max_messages_per_claim_or_pop: u32,

    /// Messages of a claim when the client names no limit
    #[arg(long, env = "ANGARIUM_DEFAULT_MESSAGES_PER_CLAIM", default_value_t = limits::CLAIM_MESSAGES_DEFAULT as u32)]
    #[arg(value_name = "NUMBER", value_parser = claim())]
    pub default_messages_per_claim: u32,

    /// Bytes of the metadata of a queue
    #[arg(long, env = "ANGARIUM_MAX_QUEUE_METADATA", default_value_t = limits::METADATA_BYTES as u32)]
    #[arg(value_name = "SIZE", value_parser = metadata())]
    pub max_queue_metadata: u32,

    /// Bytes of a message, with its attributes of SQS; a queue may have a smaller bound, and none a greater one
    #[arg(long, env = "ANGARIUM_MAX_MESSAGES_POST_SIZE", default_value_t = limits::SQS_MESSAGE_BYTES as u32)]
    #[arg(value_name = "SIZE", value_parser = message())]
    pub max_messages_post_size: u32,

    /// How long a message lives when neither its post nor its queue states
    #[arg(long, env = "ANGARIUM_DEFAULT_MESSAGE_TTL", default_value_t = limits::MESSAGE_TTL_DEFAULT)]
    #[arg(value_name = "DURATION", value_parser = time())]
    pub default_message_ttl: u32,

    /// How long a message lives at least
    #[arg(long, env = "ANGARIUM_MIN_MESSAGE_TTL", default_value_t = limits::MESSAGE_TTL.0)]
    #[arg(value_name = "DURATION", value_parser = time())]
    pub min_message_ttl: u32,

    /// How long a message lives at most
    #[arg(long, env = "ANGARIUM_MAX_MESSAGE_TTL", default_value_t = limits::MESSAGE_TTL.1)]
    #[arg(value_name = "DURATION", value_parser = time())]
    pub max_message_ttl: u32,

    /// How long until a message can be claimed when neither its post nor its queue states
    #[arg(long, env = "ANGARIUM_DEFAULT_MESSAGE_DELAY", default_value_t = limits::MESSAGE_DELAY_DEFAULT)]
    #[arg(value_name = "DURATION", value_parser = time_or_none())]
    pub default_message_delay: u32,

    /// How long until a message can be claimed at most
    #[arg(long, env = "ANGARIUM_MAX_MESSAGE_DELAY", default_value_t = limits::MESSAGE_DELAY.1)]
    #[arg(value_name = "DURATION", value_parser = time_or_none())]
    pub max_message_delay: u32,

    /// How long a claim lasts when the client names no ttl
    #[arg(long, env = "ANGARIUM_DEFAULT_CLAIM_TTL", default_value_t = limits::CLAIM_TTL_DEFAULT)]
    #[arg(value_name = "DURATION", value_parser = time())]
    pub default_claim_ttl: u32,

    /// How long a claim lasts at least
    #[arg(long, env = "ANGARIUM_MIN_CLAIM_TTL", default_value_t = limits::CLAIM_TTL.0)]
    #[arg(value_name = "DURATION", value_parser = time())]
    pub min_claim_ttl: u32,

    /// How long a claim lasts at most
    #[arg(long, env = "ANGARIUM_MAX_CLAIM_TTL", default_value_t = limits::CLAIM_TTL.1)]
    #[arg(value_name = "DURATION", value_parser = time())]
    pub max_claim_ttl: u32,

    /// How long a message outlives its claim when the client names no grace
    #[arg(long, env = "ANGARIUM_DEFAULT_CLAIM_GRACE", default_value_t = limits::CLAIM_GRACE_DEFAULT)]
    #[arg(value_name = "DURATION", value_parser = time_or_none())]
    pub default_claim_grace: u32,

    /// How long a message outlives its claim at least
    #[arg(long, env = "ANGARIUM_MIN_CLAIM_GRACE", default_value_t = limits::CLAIM_GRACE.0)]
    #[arg(value_name = "DURATION", value_parser = time_or_none())]
    pub min_claim_grace: u32,

    /// How long a message outlives its claim at most
    #[arg(long, env = "ANGARIUM_MAX_CLAIM_GRACE", default_value_t = limits::CLAIM_GRACE.1)]
    #[arg(value_name = "DURATION", value_parser = time_or_none())]
    pub max_claim_grace: u32,
}

/// A min, default and max value that are not in this order.
#[derive(Debug, PartialEq, Eq, ThisError)]
#[error("{default} is not within its bounds: they are {least} and {most}")]
pub struct BadLimits {
    default: String,
    least: String,
    most: String,
}

/// A setting as an error message names it; a fixed bound has no name.
type SettingName = (&'static str, u32);

impl LimitSettings {
    /// Returns the limits, after a check that each default is within its bounds.
    pub fn chosen(&self) -> Result<Limits, BadLimits> {
        let page = |name, most| {
            let default = ("--default-per-page", self.default_per_page);
            span(("", 1), default, (name, most))
        };
        Ok(Limits {
            queues_page: page("--max-queues-per-page", self.max_queues_per_page)?,
            messages_page: page("--max-messages-per-page", self.max_messages_per_page)?,
            pools_page: page("--max-pools-per-page", self.max_pools_per_page)?,
            flavors_page: page("--max-flavors-per-page", self.max_flavors_per_page)?,
            claim_messages: span(
                ("", 1),
                ("--default-messages-per-claim", self.default_messages_per_claim),
                ("--max-messages-per-claim-or-pop", self.max_messages_per_claim_or_pop),
            )?,
            metadata_bytes: self.max_queue_metadata as usize,
            message_bytes: self.max_messages_post_size as usize,
            message_ttl: span(
                ("--min-message-ttl", self.min_message_ttl),
                ("--default-message-ttl", self.default_message_ttl),
                ("--max-message-ttl", self.max_message_ttl),
            )?,
            message_delay: span(
                ("", 0),
                ("--default-message-delay", self.default_message_delay),
                ("--max-message-delay", self.max_message_delay),
            )?,
            claim_ttl: span(
                ("--min-claim-ttl", self.min_claim_ttl),
                ("--default-claim-ttl", self.default_claim_ttl),
                ("--max-claim-ttl", self.max_claim_ttl),
            )?,
            claim_grace: span(
                ("--min-claim-grace", self.min_claim_grace),
                ("--default-claim-grace", self.default_claim_grace),
                ("--max-claim-grace", self.max_claim_grace),
            )?,
        })
    }
}

fn span(least: SettingName, default: SettingName, most: SettingName) -> Result<Span, BadLimits> {
    let text = |(name, value): SettingName| format!("{name} {value}").trim_start().to_owned();
    Span::new(least.1, default.1, most.1).ok_or_else(|| BadLimits {
        default: text(default),
        least: text(least),
        most: text(most),
    })
}

fn up_to(most: usize) -> RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=most as i64)
}

fn page() -> RangedI64ValueParser<u32> {
    up_to(limits::PAGE_MAX)
}

fn claim() -> RangedI64ValueParser<u32> {
    up_to(limits::CLAIM_MESSAGES_MAX)
}

fn metadata() -> impl Fn(&str) -> Result<u32, String> + Clone {
    units::bytes_within(1, limits::METADATA_BYTES_MAX as u32)
}

fn message() -> impl Fn(&str) -> Result<u32, String> + Clone {
    units::bytes_within(1, limits::MESSAGE_BYTES_MAX as u32)
}

fn time() -> impl Fn(&str) -> Result<u32, String> + Clone {
    units::seconds_within(1, limits::SECONDS_MAX)
}

fn time_or_none() -> impl Fn(&str) -> Result<u32, String> + Clone {
    units::seconds_within(0, limits::SECONDS_MAX)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        limits: LimitSettings,
    }

    fn chosen(args: &[&str]) -> Result<Limits, BadLimits> {
        Program::try_parse_from([&["angarium"], args].concat()).unwrap().limits.chosen()
    }

    #[test]
    fn the_defaults_are_zaqars() {
        assert_eq!(chosen(&[]), Ok(Limits::ZAQAR));
    }

    #[test]
    fn default_outside_bounds_is_refused_with_all_names() {
        for (args, said) in [
            (
                ["--max-message-ttl", "600"],
                "--default-message-ttl 3600 is not within its bounds: they are --min-message-ttl 60 and \
                 --max-message-ttl 600",
            ),
            (
                ["--max-queues-per-page", "5"],
                "--default-per-page 10 is not within its bounds: they are 1 and --max-queues-per-page 5",
            ),
            (
                ["--default-message-delay", "901"],
                "--default-message-delay 901 is not within its bounds: they are 0 and --max-message-delay 900",
            ),
            (
                ["--min-claim-grace", "61"],
                "--default-claim-grace 60 is not within its bounds: they are --min-claim-grace 61 and \
                 --max-claim-grace 43200",
            ),
        ] {
            assert_eq!(chosen(&args).unwrap_err().to_string(), said);
        }
    }

    #[test]
    fn settings_stay_within_the_widest_limits() {
        for (name, most) in [
            ("--max-messages-per-page", limits::PAGE_MAX),
            ("--max-messages-per-claim-or-pop", limits::CLAIM_MESSAGES_MAX),
            ("--max-queue-metadata", limits::METADATA_BYTES_MAX),
            ("--max-messages-post-size", limits::MESSAGE_BYTES_MAX),
            ("--max-message-ttl", limits::SECONDS_MAX as usize),
            ("--max-message-delay", limits::SECONDS_MAX as usize),
            ("--max-claim-ttl", limits::SECONDS_MAX as usize),
            ("--max-claim-grace", limits::SECONDS_MAX as usize),
        ] {
            assert!(chosen(&[name, &most.to_string()]).is_ok(), "{name}");
            let beyond = (most + 1).to_string();
            assert!(Program::try_parse_from(["angarium", name, &beyond]).is_err(), "{name}");
        }
    }
}
