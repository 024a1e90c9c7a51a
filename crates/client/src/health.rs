//! `angarium ping` and `angarium health`: whether a server responds, and the state of its pools.

use std::collections::BTreeMap;
use std::time::Instant;

use clap::{Args, ValueEnum};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::LocalAddress;
use super::caller::CallerArgs;
use super::failure::{Failure, printable};
use super::printer::Display;
use super::remote::{Remote, Reply};
use super::table::{Table, one_line, pairs};
use angarium_settings::units::size_of;

/// Ask whether a server can be used
#[derive(Args, Clone, Debug)]
pub struct PingArgs {
    #[command(flatten)]
    caller: CallerArgs,
    /// What is asked
    #[arg(long, value_enum, default_value_t = Probe::Storage, value_name = "WHAT")]
    probe: Probe,
    /// Ask the service that the settings of this environment start (ANGARIUM_CONFIG, ANGARIUM_LISTEN, ANGARIUM_TLS_CERT), on this
    /// machine and whatever the name in its certificate. No token is sent
    #[arg(long, conflicts_with_all = ["url", "context"])]
    here: bool,
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

pub(super) fn ping(args: &PingArgs, here: LocalAddress) -> Result<(), Failure> {
    let remote = if args.here {
        Remote::local(&here().map_err(Failure::Usage)?, args.caller.timeout())?
    } else {
        args.caller.remote()?
    };
    let path = match args.probe {
        Probe::Storage => "/v2/ping",
        Probe::Live => "/livez",
        Probe::Ready => "/readyz",
    };
    let started = Instant::now();
    remote.get(path)?;
    let milliseconds = started.elapsed().as_secs_f64() * 1e3;
    let sentence = format!("{} answers after {milliseconds:.1} ms", remote.base());
    args.caller.printer().done(&sentence, &json!({"url": remote.base(), "milliseconds": milliseconds}))
}

/// Health of a pool. Zaqar only reports whether it is reachable.
#[derive(Debug, Deserialize)]
pub struct PoolHealth {
    /// Whether it is reachable.
    pub storage_reachable: bool,
    /// Whether it accepts writes.
    #[serde(default)]
    pub writable: Option<bool>,
    /// Reason for a problem.
    #[serde(default)]
    pub description: Option<String>,
    #[serde(default)]
    state: Option<String>,
    #[serde(default)]
    class: Option<String>,
    #[serde(default)]
    bytes: Option<Room>,
}

#[derive(Debug, Deserialize)]
struct Room {
    free: u64,
}

impl PoolHealth {
    fn row(&self, name: &str) -> Vec<String> {
        let yes = |yes: bool| if yes { "yes" } else { "NO" }.to_owned();
        let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        vec![
            name.to_owned(),
            yes(self.storage_reachable),
            self.writable.map_or("-".to_owned(), yes),
            or_dash(&self.state),
            or_dash(&self.class),
            self.bytes.as_ref().map_or("-".to_owned(), |room| size_of(room.free)),
            self.description.clone().unwrap_or_default(),
        ]
    }
}

/// Returns the pools of a health document by name: below `pools`, or at the top level as in Zaqar.
pub fn pools(reply: &Reply) -> Result<BTreeMap<String, PoolHealth>, Failure> {
    let mut parts: BTreeMap<String, Box<RawValue>> = reply.parse()?;
    if let Some(pools) = parts.remove("pools") {
        parts = serde_json::from_str(pools.get()).map_err(|error| reply.strange(error.to_string()))?;
    }
    let health =
        |(name, value): (String, Box<RawValue>)| Some((name, serde_json::from_str(value.get()).ok()?));
    Ok(parts.into_iter().filter_map(health).collect())
}

/// Lists the failing operations. Usually all operations have the same status.
fn failing(operations: &RawValue) -> String {
    #[derive(Deserialize)]
    struct Operation {
        succeeded: bool,
    }

    let operations: BTreeMap<String, Operation> = serde_json::from_str(operations.get()).unwrap_or_default();
    let failing: Vec<&str> = operations
        .iter()
        .filter(|(_, operation)| !operation.succeeded)
        .map(|(name, _)| name.as_str())
        .collect();
    if failing.is_empty() {
        String::new()
    } else {
        format!("these fail: {}\n", printable(&failing.join(", ")))
    }
}

pub(super) fn health(args: &HealthArgs) -> Result<(), Failure> {
    let reply = args.caller.remote()?.get("/v2/health")?;
    let mut object: BTreeMap<String, Box<RawValue>> = reply.parse()?;
    let plain = object.iter().map(|(key, value)| format!("{key}={}", one_line(value))).collect();
    let pools = pools(&reply)?;
    let operations = object.remove("operation_status");
    object.retain(|key, _| key != "pools" && key != "components" && !pools.contains_key(key));
    let rows: Vec<_> = pools.iter().map(|(name, health)| health.row(name)).collect();
    let heads = &["POOL", "REACHABLE", "WRITABLE", "STATE", "CLASS", "FREE", ""];
    let operations = operations.map_or_else(String::new, |operations| failing(&operations));
    let people = format!("{}{operations}\n{}", pairs(&object), Table::new(heads).with_head(&rows));
    args.caller.printer().show(&Display { people, json: reply.json_text()?, plain })
}
