//! The settings of the service, with their defaults, checked whole before anything starts.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// What `angarium serve` can be told. Each has a flag, an environment variable and a default.
#[derive(Args, Clone, Debug)]
pub struct Config {
    /// Address and port to listen on; port 0 takes a free one
    #[arg(long, env = "ANGARIUM_LISTEN", default_value = "127.0.0.1:8888", value_name = "ADDR")]
    pub listen: SocketAddr,

    /// Directory of everything the service keeps; made when missing
    #[arg(long, env = "ANGARIUM_DATA", default_value = "angarium-data", value_name = "DIR")]
    pub data: PathBuf,

    /// Form of the log on standard error
    #[arg(long, env = "ANGARIUM_LOG_FORMAT", default_value = "text", value_name = "FORM")]
    pub log_format: LogFormat,

    /// What is logged: a level, or levels by module as in `warn,angarium::broker=debug`
    #[arg(
        long,
        env = "ANGARIUM_LOG",
        default_value = "info,fjall=warn,lsm_tree=warn",
        value_name = "FILTER"
    )]
    pub log: String,
}

/// The form of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}
