//! The settings of the service, with their defaults, checked whole before anything starts.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, ValueEnum};

use crate::coordination::zookeeper::Address;
use crate::domain::limits;
use crate::placement::Algorithm;

/// What `angarium serve` can be told. Each has a flag, an environment variable and a default.
#[derive(Args, Clone, Debug)]
pub struct Config {
    /// Address and port to listen on; port 0 takes a free one
    #[arg(
        long,
        env = "ANGARIUM_LISTEN",
        default_value = "127.0.0.1:8888",
        value_name = "ADDR",
        value_parser = listen_address
    )]
    pub listen: SocketAddr,

    /// Directory of everything the service keeps; made when missing
    #[arg(
        long,
        env = "ANGARIUM_DATA",
        default_value = "angarium-data",
        value_name = "DIR",
        value_parser = OsStringValueParser::new().try_map(directory)
    )]
    pub data: PathBuf,

    /// Bytes of free space below which new messages are refused and everything else goes on
    #[arg(long, env = "ANGARIUM_RESERVE", default_value_t = limits::RESERVE_BYTES, value_name = "BYTES")]
    pub reserve: u64,

    /// What holds queues and claims: `embedded`, or `zookeeper://HOST:PORT,HOST:PORT/NODE`
    #[arg(long, env = "ANGARIUM_COORDINATION", default_value = "embedded", value_name = "WHERE")]
    pub coordination: TreeChoice,

    /// Believe the clock although it differs by more than a day from the last write
    #[arg(long, env = "ANGARIUM_ACCEPT_CLOCK")]
    pub accept_clock: bool,
    /// Where the storage of the first pool is, made when there is none; without it `embedded:journal`, or no
    /// pool on ZooKeeper
    #[arg(long, env = "ANGARIUM_POOL", value_name = "URI")]
    pub pool: Option<String>,

    /// How the pool of a new queue is chosen: `weighted`, `least_used`, `random` or `rendezvous`
    #[arg(long, env = "ANGARIUM_PLACEMENT", default_value_t, value_name = "HOW")]
    pub placement: Algorithm,

    /// Form of the log on standard error
    #[arg(long, env = "ANGARIUM_LOG_FORMAT", default_value = "text", value_name = "FORM")]
    pub log_format: LogFormat,

    /// What is logged: a level, or levels by module as in `warn,angarium::broker=debug`
    #[arg(
        long,
        env = "ANGARIUM_LOG",
        default_value = "info,fjall=warn,lsm_tree=warn,zookeeper_client=error",
        value_name = "FILTER"
    )]
    pub log: String,
}

fn listen_address(text: &str) -> Result<SocketAddr, &'static str> {
    let form = "it is an IP address and a port, as in 127.0.0.1:8888, [::1]:8888 or 0.0.0.0:8888";
    text.parse().map_err(|_| form)
}

fn directory(path: OsString) -> Result<PathBuf, &'static str> {
    if path.is_empty() { Err("it is the path of a directory, and is empty") } else { Ok(path.into()) }
}

/// Which tree holds queues and claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeChoice {
    /// The one below the data directory, for a service of one process.
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
