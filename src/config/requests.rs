//! The settings of requests: max requests at once, and max requests of a project.

use std::num::NonZeroU32;

use clap::Args;

use angarium_core::limits;
use angarium_settings::units;

/// Bounds of the requests of all clients. One more is answered at once, 503 or 429, with `Retry-After`.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Connections and requests")]
pub struct RequestSettings {
    /// Requests in progress at once, without those that wait for a message
    #[arg(long, env = "ANGARIUM_MAX_REQUESTS", default_value = "4096", value_name = "NUMBER")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub max_requests: u32,

    /// Requests at once that wait for a message
    #[arg(long, env = "ANGARIUM_MAX_LONG_POLLS", default_value = "4096", value_name = "NUMBER")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub max_long_polls: u32,

    /// Requests at once of one address that a trusted proxy names in X-Forwarded-For, with those that wait for a message
    #[arg(long, env = "ANGARIUM_MAX_REQUESTS_PER_ADDRESS", default_value = "1024", value_name = "NUMBER")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub max_requests_per_address: u32,

    /// Bytes of request bodies in memory, from their arrival to the answer; a project holds a quarter of them at most
    #[arg(long, env = "ANGARIUM_MAX_BODY_BYTES", default_value_t = limits::BODY_BYTES, value_name = "SIZE")]
    #[arg(value_parser = units::bytes_within(limits::BODY_BYTES_MIN, u32::MAX))]
    pub max_body_bytes: u32,

    /// Requests of each project in a second; unlimited when absent
    #[arg(long, env = "ANGARIUM_PROJECT_REQUESTS_PER_SECOND", value_name = "NUMBER")]
    pub project_requests_per_second: Option<NonZeroU32>,
}
