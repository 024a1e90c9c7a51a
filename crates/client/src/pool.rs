//! `angarium pool`: list, create, show, change and delete storage pools. For administrators.

use std::collections::BTreeMap;

use clap::{Args, Subcommand, ValueEnum};
use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;

use super::balance::{self, BalanceArgs, MapArgs};
use super::caller::CallerArgs;
use super::failure::Failure;
use super::hold::{HoldArgs, Holdable};
use super::listing::{ExtentArgs, Listing};
use super::pool_drain::{self, DrainArgs};
use super::printer::{Display, Item};
use super::queue::parsed;
use super::remote::{ApiRequest, Remote, encoded, with_query};
use super::setting::Setting;
use super::table::{one_line, pairs};

/// Storage pools (administrators)
#[derive(Args, Clone, Debug)]
pub struct PoolArgs {
    #[command(flatten)]
    caller: CallerArgs,
    #[command(subcommand)]
    command: PoolCommand,
}

#[derive(Subcommand, Clone, Debug)]
enum PoolCommand {
    /// List the pools, by name
    List {
        #[command(flatten)]
        extent: ExtentArgs,
    },
    /// Register a pool, or change the one of this name
    Create {
        /// Its name
        pool: String,
        /// Where its storage is
        #[arg(long)]
        uri: String,
        /// Its share of the new queues; 0 takes none
        #[arg(long)]
        weight: u32,
        #[command(flatten)]
        more: PoolDetails,
    },
    /// Show a pool with its options
    Show {
        /// Its name
        pool: String,
    },
    /// Change the given properties of a pool
    Update {
        /// Its name
        pool: String,
        /// Where its storage is
        #[arg(long)]
        uri: Option<String>,
        /// Its share of the new queues; 0 takes none
        #[arg(long)]
        weight: Option<u32>,
        /// Whether it takes new queues
        #[arg(long, value_enum)]
        state: Option<State>,
        #[command(flatten)]
        more: PoolDetails,
    },
    /// Move all queues of a pool to others, as placement chooses; it takes no new ones meanwhile
    Drain(DrainArgs),
    /// Hold all queues in a pool: no message can be claimed until it is released
    Hold(HoldArgs),
    /// Release a pool that is held
    Release {
        /// Its name
        pool: String,
    },
    /// Show which queues should go to other pools so that each holds its share by weight, or begin it
    Balance(BalanceArgs),
    /// Show the pool of each queue, and migrations in progress
    Map(MapArgs),
    /// Delete pools; one that is used is refused
    Delete {
        /// Their names
        #[arg(required = true)]
        pools: Vec<String>,
        /// Used pools too, which need not be reachable: their messages are lost, and their queues continue empty elsewhere
        #[arg(long)]
        force: bool,
    },
}

/// Whether a pool takes new queues.
#[derive(Clone, Copy, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    /// By its weight
    Active,
    /// None, whatever its weight
    Draining,
}

#[derive(Args, Clone, Debug)]
struct PoolDetails {
    /// The flavor whose queues it takes; empty for none
    #[arg(long)]
    flavor: Option<String>,
    /// What its driver is told, as KEY=VALUE; a value that is JSON is taken as such, any other as text
    #[arg(long = "option", value_name = "KEY=VALUE")]
    options: Vec<Setting>,
}

/// The settings of a pool in a request.
#[derive(Serialize)]
struct PoolInput<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    uri: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    weight: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    flavor: Option<&'a str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    options: BTreeMap<&'a str, &'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<State>,
}

impl<'a> PoolInput<'a> {
    fn new(uri: Option<&'a str>, weight: Option<u32>, more: &'a PoolDetails) -> Self {
        let options = more.options.iter().map(|option| (option.key.as_str(), &*option.value)).collect();
        Self { uri, weight, flavor: more.flavor.as_deref(), options, state: None }
    }
}

pub(super) fn run(args: &PoolArgs) -> Result<(), Failure> {
    let remote = args.caller.remote()?;
    match &args.command {
        PoolCommand::List { extent } => list(args, &remote, extent),
        PoolCommand::Create { pool, uri, weight, more } => {
            let input = PoolInput::new(Some(uri), Some(*weight), more);
            remote.call(ApiRequest::new(Method::PUT, path(pool)).json(&input)?)?;
            args.caller.printer().done(&format!("pool {pool} is registered"), &json!({"name": pool}))
        }
        PoolCommand::Show { pool } => {
            let reply = remote.get(format!("{}?detailed=true", path(pool)))?;
            let object: BTreeMap<String, Box<RawValue>> = reply.parse()?;
            let plain = object.iter().map(|(key, value)| format!("{key}={}", one_line(value))).collect();
            args.caller.printer().show(&Display { people: pairs(&object), json: reply.json_text()?, plain })
        }
        PoolCommand::Update { pool, uri, weight, state, more } => {
            let input = PoolInput { state: *state, ..PoolInput::new(uri.as_deref(), *weight, more) };
            remote.call(ApiRequest::new(Method::PATCH, path(pool)).json(&input)?)?;
            args.caller.printer().done(&format!("pool {pool} is changed"), &json!({"name": pool}))
        }
        PoolCommand::Drain(drain) => pool_drain::drain(&remote, &mut args.caller.printer(), drain),
        PoolCommand::Hold(terms) => holdable(&terms.name).hold(&remote, &mut args.caller.printer(), terms),
        PoolCommand::Release { pool } => holdable(pool).release(&remote, &mut args.caller.printer()),
        PoolCommand::Balance(plan) => balance::balance(&remote, &mut args.caller.printer(), plan),
        PoolCommand::Map(map) => balance::map(&remote, &mut args.caller.printer(), map),
        PoolCommand::Delete { pools, force } => {
            let mut printer = args.caller.printer();
            pools.iter().try_for_each(|pool| {
                let force = ("force", force.then(|| "true".to_owned()));
                remote.delete(with_query(&path(pool), &[force]))?;
                printer.done(&format!("pool {pool} is gone"), &json!({"name": pool}))
            })
        }
    }
}

pub(super) fn path(pool: &str) -> String {
    format!("/v2/pools/{}", encoded(pool))
}

fn holdable(pool: &str) -> Holdable<'_> {
    Holdable { noun: "pool", name: pool, group: None, path: path(pool) }
}

#[derive(Deserialize)]
struct PoolEntry {
    name: String,
    uri: String,
    weight: u64,
    #[serde(default)]
    flavor: Option<String>,
    #[serde(default)]
    held: Option<PoolHold>,
}

#[derive(Deserialize)]
struct PoolHold {
    reason: String,
}

fn list(args: &PoolArgs, remote: &Remote, extent: &ExtentArgs) -> Result<(), Failure> {
    let mut listing = Listing::new(remote, "/v2/pools", "pools", extent, &[]);
    let mut printer = args.caller.printer();
    let mut shown = printer.list(&["NAME", "WEIGHT", "FLAVOR", "URI", "HELD"]);
    while let Some(page) = listing.page()? {
        let mut items = Vec::with_capacity(page.len());
        for json in page {
            let PoolEntry { name, uri, weight, flavor, held } = parsed(&json)?;
            let flavor = flavor.filter(|flavor| !flavor.is_empty()).unwrap_or_else(|| "-".to_owned());
            let held = held.map_or_else(|| "-".to_owned(), |hold| hold.reason);
            let row = vec![name.clone(), weight.to_string(), flavor, uri, held];
            items.push(Item { row, json: one_line(&json), plain: name });
        }
        shown.page(items)?;
    }
    shown.end("there are no pools")
}
