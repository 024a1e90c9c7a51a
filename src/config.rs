//! The settings of the service, with their defaults. All of them are checked before anything starts.

pub mod balance;
pub mod cluster;
pub mod connections;
pub mod hosts;
pub mod keystone;
pub mod layers;
pub mod limits;
pub mod quotas;
pub mod requests;
pub mod sqs;
pub mod sqs_keys;
pub mod tokens;
pub mod waits;
pub mod webhooks;
pub mod zookeeper;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::{BoolishValueParser, OsStringValueParser, TypedValueParser};
use clap::{ArgAction, Args, ValueEnum};
use thiserror::Error as ThisError;

use angarium_coordination::zookeeper::Address;
use angarium_core::limits as bounds;
use angarium_engine::placement::Algorithm;
use angarium_settings::units;
use balance::BalanceSettings;
use cluster::ClusterSettings;
use connections::ConnectionSettings;
use hosts::HostSettings;
use keystone::KeystoneSettings;
use limits::{BadLimits, LimitSettings};
use quotas::QuotaSettings;
use requests::RequestSettings;
use sqs::SqsSettings;
use waits::WaitSettings;
use webhooks::WebhookSettings;
use zookeeper::ZooKeeperSettings;

/// What `angarium serve` can be told. Each has a flag, an environment variable and a key in a file, all of one name,
/// and most have a default.
#[derive(Args, Clone, Debug)]
pub struct Config {
    /// File of settings: TOML, with the names of the flags as keys, `_` for `-`. Flags and environment win over it
    #[arg(long, env = "ANGARIUM_CONFIG", value_name = "FILE")]
    #[arg(help_heading = "Service")]
    pub config: Option<PathBuf>,

    /// Address and port to listen on; port 0 takes a free one
    #[arg(
        long,
        env = "ANGARIUM_LISTEN",
        default_value = "127.0.0.1:8888",
        value_name = "ADDR",
        value_parser = listen_address
    )]
    #[arg(help_heading = "Service")]
    pub listen: SocketAddr,

    /// Directory of everything the service keeps; made when missing
    #[arg(
        long,
        env = "ANGARIUM_DATA",
        default_value = "angarium-data",
        value_name = "DIR",
        value_parser = OsStringValueParser::new().try_map(directory)
    )]
    #[arg(help_heading = "Service")]
    pub data: PathBuf,

    /// Free space below which new messages and results are refused; every other request is served
    #[arg(long, env = "ANGARIUM_RESERVE", default_value_t = bounds::RESERVE_BYTES, value_name = "SIZE")]
    #[arg(value_parser = units::bytes)]
    #[arg(help_heading = "Storage")]
    pub reserve: u64,

    /// Waits for the disk.
    #[command(flatten)]
    pub waits: WaitSettings,

    /// What holds queues and claims: `embedded`, or `zookeeper://HOST:PORT,HOST:PORT/NODE`
    #[arg(long, env = "ANGARIUM_COORDINATION", default_value = "embedded", value_name = "WHERE")]
    #[arg(help_heading = "Replicas")]
    pub coordination: TreeChoice,

    /// Access to ZooKeeper.
    #[command(flatten)]
    pub zookeeper: ZooKeeperSettings,

    /// File of the keys for the secrets in the tree, as the passwords of pools: lines of a name and 32 random bytes in
    /// Base64, the newest first. A new tree is then sealed, an existing one by `angarium tree seal`
    #[arg(long, env = "ANGARIUM_SECRET_KEY_FILE", value_name = "FILE")]
    #[arg(help_heading = "Access")]
    pub secret_key_file: Option<PathBuf>,

    /// This replica among others.
    #[command(flatten)]
    pub cluster: ClusterSettings,

    /// File of the tokens that requests must bring (`angarium token new` makes one); without it there is no
    /// authentication. It is read again when it changes
    #[arg(long, env = "ANGARIUM_TOKENS", value_name = "FILE")]
    #[arg(help_heading = "Access")]
    pub tokens: Option<PathBuf>,

    /// Tokens of Keystone.
    #[command(flatten)]
    pub keystone: KeystoneSettings,

    /// Listen beyond this machine although there is no authentication
    #[arg(long, env = "ANGARIUM_INSECURE_NO_AUTH", default_value = "false", value_name = "BOOL")]
    #[arg(action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[arg(value_parser = BoolishValueParser::new())]
    #[arg(help_heading = "Access")]
    pub insecure_no_auth: bool,

    /// The host names of the service.
    #[command(flatten)]
    pub hosts: HostSettings,

    /// File of the certificate to serve TLS with, its chain after it (PEM); needs --tls-key. It is read again when it
    /// changes
    #[arg(long, env = "ANGARIUM_TLS_CERT", value_name = "FILE")]
    #[arg(help_heading = "Service")]
    pub tls_cert: Option<PathBuf>,

    /// File of the certificate's key (PEM)
    #[arg(long, env = "ANGARIUM_TLS_KEY", value_name = "FILE")]
    #[arg(help_heading = "Service")]
    pub tls_key: Option<PathBuf>,

    /// Bounds of connections.
    #[command(flatten)]
    pub connections: ConnectionSettings,

    /// Bounds of requests.
    #[command(flatten)]
    pub requests: RequestSettings,

    /// The endpoint of SQS.
    #[command(flatten)]
    pub sqs: SqsSettings,

    /// Where webhooks may be.
    #[command(flatten)]
    pub webhooks: WebhookSettings,

    /// What clients may ask for.
    #[command(flatten)]
    pub limits: LimitSettings,

    /// Bounds of what projects hold.
    #[command(flatten)]
    pub quotas: QuotaSettings,

    /// Believe the clock although it differs by more than a day from the last write
    #[arg(long, env = "ANGARIUM_ACCEPT_CLOCK", default_value = "false", value_name = "BOOL")]
    #[arg(action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[arg(value_parser = BoolishValueParser::new())]
    #[arg(help_heading = "Storage")]
    pub accept_clock: bool,

    /// Go on without what damage of the log or of tables of the embedded store has lost, after keeping a copy
    #[arg(long, env = "ANGARIUM_ACCEPT_LOG_DAMAGE", default_value = "false", value_name = "BOOL")]
    #[arg(action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[arg(value_parser = BoolishValueParser::new())]
    #[arg(help_heading = "Storage")]
    pub accept_log_damage: bool,

    /// Use the data directory although it is not where it was: it was moved, or copied and the original is gone
    #[arg(long, env = "ANGARIUM_MOVED", default_value = "false", value_name = "BOOL")]
    #[arg(action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[arg(value_parser = BoolishValueParser::new())]
    #[arg(help_heading = "Storage")]
    pub moved: bool,

    /// Where the storage of the first pool is, made when there is none; without it `embedded:journal`, or no
    /// pool on ZooKeeper
    #[arg(long, env = "ANGARIUM_POOL", value_name = "URI")]
    #[arg(help_heading = "Storage")]
    pub pool: Option<String>,

    /// How the pool of a new queue is chosen: `weighted`, `least_used`, `random` or `rendezvous`
    #[arg(long, env = "ANGARIUM_PLACEMENT", default_value_t, value_name = "HOW")]
    #[arg(help_heading = "Storage")]
    pub placement: Algorithm,

    /// Automatic balance.
    #[command(flatten)]
    pub balance: BalanceSettings,

    /// Queues with metrics of their own, and as many of the deepest others; the rest share the name `_other`
    #[arg(long, env = "ANGARIUM_METRICS_QUEUES", default_value = "200", value_name = "NUMBER")]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=10_000))]
    #[arg(help_heading = "Logs and metrics")]
    pub metrics_queues: u32,

    /// Form of the log on standard error
    #[arg(long, env = "ANGARIUM_LOG_FORMAT", default_value = "text", value_name = "FORM")]
    #[arg(help_heading = "Logs and metrics")]
    pub log_format: LogFormat,

    /// What is logged: a level, or levels by module as in `warn,angarium_broker=debug`
    #[arg(
        long,
        env = "ANGARIUM_LOG",
        default_value = "info,fjall=warn,lsm_tree=warn,zookeeper_client=error",
        value_name = "FILTER"
    )]
    #[arg(help_heading = "Logs and metrics")]
    pub log: String,
}

/// An invalid combination of valid settings.
#[derive(Debug, PartialEq, Eq, ThisError)]
pub enum ConfigError {
    /// Any client that reaches the address could do everything.
    #[error(
        "{0} can be reached from other machines, and there is no authentication: name a file with --tokens, \
         or a Keystone with --keystone-url, listen on 127.0.0.1, or accept it with --insecure-no-auth"
    )]
    Exposed(SocketAddr),
    /// TLS needs both files.
    #[error("--tls-cert and --tls-key go together")]
    HalfTls,
    /// So does the identity among replicas.
    #[error("--peer-cert and --peer-key go together")]
    HalfPeerIdentity,
    /// The settings of Keystone are incomplete or conflict.
    #[error("{0}")]
    Keystone(&'static str),
    /// The settings of the access to ZooKeeper are incomplete.
    #[error("{0}")]
    ZooKeeper(&'static str),
    /// A default is outside its bounds.
    #[error(transparent)]
    Limits(#[from] BadLimits),
}

impl Config {
    /// Returns the scheme of the service's URLs.
    pub fn scheme(&self) -> &'static str {
        if self.tls_cert.is_some() { "https" } else { "http" }
    }

    /// Checks the combination of the settings.
    pub fn check(&self) -> Result<(), ConfigError> {
        let is_local = self.listen.ip().to_canonical().is_loopback();
        let has_keystone = self.keystone.chosen().map_err(ConfigError::Keystone)?.is_some();
        if !is_local && self.tokens.is_none() && !has_keystone && !self.insecure_no_auth {
            return Err(ConfigError::Exposed(self.listen));
        }
        if self.tls_cert.is_some() != self.tls_key.is_some() {
            return Err(ConfigError::HalfTls);
        }
        if self.cluster.peer_cert.is_some() != self.cluster.peer_key.is_some() {
            return Err(ConfigError::HalfPeerIdentity);
        }
        self.zookeeper.chosen().map_err(ConfigError::ZooKeeper)?;
        if self.coordination == TreeChoice::Embedded && self.zookeeper.is_set() {
            return Err(ConfigError::ZooKeeper(
                "the settings of ZooKeeper need --coordination zookeeper://…",
            ));
        }
        self.limits.chosen()?;
        Ok(())
    }
}

/// Returns a text as a TOML string.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            control if control.is_control() => quoted.push_str(&format!("\\u{:04X}", u32::from(control))),
            plain => quoted.push(plain),
        }
    }
    quoted.push('"');
    quoted
}

fn listen_address(text: &str) -> Result<SocketAddr, &'static str> {
    let form = "it is an IP address and a port, as in 127.0.0.1:8888, [::1]:8888 or 0.0.0.0:8888";
    text.parse().map_err(|_| form)
}

fn directory(path: OsString) -> Result<PathBuf, &'static str> {
    if path.is_empty() { Err("it is the path of a directory, and is empty") } else { Ok(path.into()) }
}

/// The tree that holds queues and claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeChoice {
    /// The tree below the data directory, for a service with one replica.
    Embedded,
    /// An ensemble of ZooKeeper.
    ZooKeeper(Address),
}

impl FromStr for TreeChoice {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "embedded" => Ok(Self::Embedded),
            address if address.contains("://") => address.parse().map(Self::ZooKeeper),
            _ => Err("it is 'embedded', or an address as in zookeeper://HOST:PORT,HOST:PORT/NODE"),
        }
    }
}

/// The form of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        config: Config,
    }

    fn check(args: &[&str]) -> Result<(), ConfigError> {
        Program::try_parse_from([&["angarium"], args].concat()).unwrap().config.check()
    }

    #[test]
    fn unauthenticated_service_serves_only_loopback_by_default() {
        for local in ["127.0.0.1:0", "127.9.9.9:80", "[::1]:80", "[::ffff:127.0.0.1]:80"] {
            assert_eq!(check(&["--listen", local]), Ok(()));
        }
        for open in ["0.0.0.0:80", "[::]:80", "10.0.0.1:80", "[::ffff:10.0.0.1]:80"] {
            assert_eq!(check(&["--listen", open]), Err(ConfigError::Exposed(open.parse().unwrap())));
            assert_eq!(check(&["--listen", open, "--insecure-no-auth"]), Ok(()));
            assert_eq!(check(&["--listen", open, "--tokens", "file"]), Ok(()));
        }
    }

    #[test]
    fn a_certificate_needs_its_key() {
        assert_eq!(check(&["--tls-cert", "file"]), Err(ConfigError::HalfTls));
        assert_eq!(check(&["--tls-key", "file"]), Err(ConfigError::HalfTls));
        assert_eq!(check(&["--tls-cert", "file", "--tls-key", "file"]), Ok(()));
    }

    #[test]
    fn client_certificate_needs_key_and_authorities() {
        let (cert, key) = (["--zookeeper-tls-cert", "file"], ["--zookeeper-tls-key", "file"]);
        for part in [cert.as_slice(), key.as_slice(), &[cert, key].concat()] {
            assert!(matches!(check(part), Err(ConfigError::ZooKeeper(_))), "{part:?}");
        }
        let all = [cert, key, ["--zookeeper-tls-ca", "file"]].concat();
        assert!(matches!(check(&all), Err(ConfigError::ZooKeeper(_))), "the tree is embedded");
        assert_eq!(check(&[all, vec!["--coordination", "zookeeper://a/b"]].concat()), Ok(()));
    }
}
