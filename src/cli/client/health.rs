//! `angarium ping` and `angarium health`: whether a server answers, and how its storage is.

use std::collections::BTreeMap;
use std::time::Instant;

use clap::{Args, ValueEnum};
use serde_json::json;
use serde_json::value::RawValue;

use super::caller::CallerArgs;
use super::failure::Failure;
use super::printer::Shown;
use super::table::{one_line, pairs};

/// Ask whether a server can be used
#[derive(Args, Clone, Debug)]
pub struct PingArgs {
    #[command(flatten)]
    caller: CallerArgs,
    /// What is asked
    #[arg(long, value_enum, default_value_t = Probe::Storage, value_name = "WHAT")]
    probe: Probe,
}

/// What a ping asks.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Probe {
    /// Whether storage can be used (/v2/ping)
    Storage,
    /// Whether a restart would not help (/livez)
    Live,
    /// Whether posts and claims would be served (/readyz)
    Ready,
}

/// Show the health of the service and of its pools (administrators)
#[derive(Args, Clone, Debug)]
pub struct HealthArgs {
    #[command(flatten)]
    caller: CallerArgs,
}

pub(super) fn ping(args: &PingArgs) -> Result<(), Failure> {
    let remote = args.caller.remote()?;
    let path = match args.probe {
        Probe::Storage => "/v2/ping",
        Probe::Live => "/livez",
        Probe::Ready => "/readyz",
    };
    let asked = Instant::now();
    remote.get(path)?;
    let milliseconds = asked.elapsed().as_secs_f64() * 1e3;
    let sentence = format!("{} answers after {milliseconds:.1} ms", remote.base());
    args.caller.printer().done(&sentence, &json!({"url": remote.base(), "milliseconds": milliseconds}))
}

pub(super) fn health(args: &HealthArgs) -> Result<(), Failure> {
    let reply = args.caller.remote()?.get("/v2/health")?;
    let object: BTreeMap<String, Box<RawValue>> = reply.parse()?;
    let plain = object.iter().map(|(key, value)| format!("{key}={}", one_line(value))).collect();
    args.caller.printer().show(&Shown { people: pairs(&object), json: reply.json_text()?, plain })
}
