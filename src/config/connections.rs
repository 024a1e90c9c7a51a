//! The settings of connections: their number, and the time limits of a client.

use std::time::Duration;

use clap::Args;

use angarium_core::limits;
use angarium_core::network::Network;
use angarium_settings::units;

/// Bounds of the connections of clients. What a deadline counts from is at `server::listener::ConnectionLimits`.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Connections and requests")]
pub struct ConnectionSettings {
    /// Connections served at once; one more is refused, unless it probes the service
    #[arg(long, env = "ANGARIUM_MAX_CONNECTIONS", default_value = "4096", value_name = "NUMBER")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub max_connections: u32,

    /// Connections of one address; one more is refused
    #[arg(long, env = "ANGARIUM_MAX_CONNECTIONS_PER_ADDRESS", default_value = "1024", value_name = "NUMBER")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub max_connections_per_address: u32,

    /// Requests at once on one connection of HTTP/2
    #[arg(long, env = "ANGARIUM_MAX_STREAMS", default_value = "100", value_name = "NUMBER")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub max_streams: u32,

    /// How long a client that waits for an answer may be silent before it is asked whether it is still there
    #[arg(long, env = "ANGARIUM_PROBE_AFTER", default_value = "20s", value_name = "DURATION")]
    #[arg(value_parser = units::wait)]
    pub probe_after: Duration,

    /// How long a new connection may send nothing, or shake hands
    #[arg(long, env = "ANGARIUM_FIRST_BYTE_TIMEOUT", default_value = "10s", value_name = "DURATION")]
    #[arg(value_parser = units::wait)]
    pub first_byte_timeout: Duration,

    /// How long the header of a request may take from its first byte on
    #[arg(long, env = "ANGARIUM_HEADER_TIMEOUT", default_value = "10s", value_name = "DURATION")]
    #[arg(value_parser = units::wait)]
    pub header_timeout: Duration,

    /// How long a request's body may make no progress
    #[arg(long, env = "ANGARIUM_BODY_TIMEOUT", default_value = "30s", value_name = "DURATION")]
    #[arg(value_parser = units::wait)]
    pub body_timeout: Duration,

    /// How long an answer may wait for its client to read on
    #[arg(long, env = "ANGARIUM_WRITE_TIMEOUT", default_value = "30s", value_name = "DURATION")]
    #[arg(value_parser = units::wait)]
    pub write_timeout: Duration,

    /// Bytes of answers that wait for their clients to read on; beyond them the slowest connection is cut
    #[arg(long, env = "ANGARIUM_MAX_UNSENT_BYTES", default_value_t = limits::UNSENT_BYTES, value_name = "SIZE")]
    #[arg(value_parser = units::bytes_within(limits::UNSENT_BYTES_MIN, u32::MAX))]
    pub max_unsent_bytes: u32,

    /// How long a connection may rest between requests; more than a load balancer in front keeps its own
    #[arg(long, env = "ANGARIUM_IDLE_TIMEOUT", default_value = "90s", value_name = "DURATION")]
    #[arg(value_parser = units::wait)]
    pub idle_timeout: Duration,

    /// How long requests in progress may take to finish once the service is told to stop
    #[arg(long, env = "ANGARIUM_DRAIN_TIMEOUT", default_value = "25s", value_name = "DURATION")]
    #[arg(value_parser = units::wait)]
    pub drain_timeout: Duration,

    /// Bytes of the header of a request, with its first line and four for each field; a longer one is answered 431
    #[arg(long, env = "ANGARIUM_MAX_HEADER_BYTES", default_value = "65536", value_name = "SIZE")]
    #[arg(value_parser = units::bytes_within(8_192, 1_048_576))]
    pub max_header_bytes: u32,

    /// Networks of the proxies, with commas between them, that are believed when they say where a request is from: in a
    /// PROXY header (version 2), or in X-Forwarded-For and X-Forwarded-Proto, which they must set themselves. Of all
    /// others the connection counts
    #[arg(long, env = "ANGARIUM_TRUSTED_PROXY", value_name = "CIDR", value_delimiter = ',')]
    pub trusted_proxy: Vec<Network>,
}
