//! The settings of a replica among others. They take effect only with ZooKeeper: a service on the embedded tree has one
//! replica.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use angarium_core::limits;
use angarium_settings::units;

/// Where the other replicas reach this one, and how much of the queues it serves.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Replicas")]
pub struct ClusterSettings {
    /// Address and port for the other replicas, which forward requests in mutual TLS; without it the address of --listen and
    /// a free port. Each process makes its certificate, and its fingerprint in ZooKeeper admits it
    #[arg(long, env = "ANGARIUM_PEER_LISTEN", value_name = "ADDR", value_parser = super::listen_address)]
    pub peer_listen: Option<SocketAddr>,

    /// Host and port at which the other replicas reach that address; without it the address itself, or the name of this host
    /// when it listens everywhere
    #[arg(long, env = "ANGARIUM_ADVERTISE", value_name = "HOST:PORT", value_parser = host_and_port)]
    pub advertise: Option<String>,

    /// File of the certificate that this replica shows to the others (PEM); without it each process makes one. Its
    /// fingerprint in ZooKeeper admits it, dates and issuers do not count; needs --peer-key. It is read again when it
    /// changes
    #[arg(long, env = "ANGARIUM_PEER_CERT", value_name = "FILE")]
    pub peer_cert: Option<PathBuf>,

    /// File of the key of that certificate (PEM)
    #[arg(long, env = "ANGARIUM_PEER_KEY", value_name = "FILE")]
    pub peer_key: Option<PathBuf>,

    /// Share of the queues that this replica serves, beside those of the others
    #[arg(long, env = "ANGARIUM_WEIGHT", default_value = "100", value_name = "NUMBER")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub weight: u32,

    /// How long until ZooKeeper gives up a replica that it learns nothing of, and others serve its queues. Its servers
    /// grant 2 to 20 of their ticks
    #[arg(long, env = "ANGARIUM_SESSION_TIMEOUT", value_name = "DURATION")]
    #[arg(default_value_t = limits::TREE_SESSION_DEFAULT, value_parser = units::seconds_within(limits::TREE_SESSION.0, limits::TREE_SESSION.1))]
    pub session_timeout: u32,
}

fn host_and_port(text: &str) -> Result<String, &'static str> {
    let form = "it is a host and a port, as in replica-1.internal:8889 or [fd00::1]:8889";
    let (host, port) = text.rsplit_once(':').ok_or(form)?;
    let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
    let is_bracketed = host.starts_with('[') && host.ends_with(']');
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    let is_host = if is_bracketed {
        host[1..host.len() - 1].parse::<std::net::Ipv6Addr>().is_ok()
    } else {
        !host.is_empty() && host.bytes().all(is_name)
    };
    if is_port && is_host { Ok(text.to_owned()) } else { Err(form) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_for_others_has_a_host_and_a_port() {
        for good in ["a:1", "10.0.0.1:8889", "replica-1.internal:65535", "[fd00::1]:80"] {
            assert_eq!(host_and_port(good).as_deref(), Ok(good));
        }
        for bad in ["", "a", "a:", ":1", "a:0", "a:65536", "http://a:1", "a b:1", "fd00::1:80", "[x]:1"] {
            assert!(host_and_port(bad).is_err(), "{bad}");
        }
    }
}
