//! `angarium flavor`: list, create, show, change and delete flavors.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use http::Method;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::caller::CallerArgs;
use super::failure::Failure;
use super::listing::{ExtentArgs, Listing};
use super::printer::{Display, Item};
use super::queue::parsed;
use super::remote::{ApiRequest, Remote, encoded};
use super::table::{one_line, pairs};

/// Flavors: names for sets of pools
#[derive(Args, Clone, Debug)]
pub struct FlavorArgs {
    #[command(flatten)]
    caller: CallerArgs,
    #[command(subcommand)]
    command: FlavorCommand,
}

#[derive(Subcommand, Clone, Debug)]
enum FlavorCommand {
    /// List the flavors, by name
    List {
        #[command(flatten)]
        extent: ExtentArgs,
    },
    /// Create a flavor, or change the one of this name
    Create {
        /// Its name
        flavor: String,
        /// A pool of it; give it once for each
        #[arg(long = "pool", required = true, value_name = "POOL")]
        pools: Vec<String>,
    },
    /// Show a flavor
    Show {
        /// Its name
        flavor: String,
    },
    /// Replace the pools of a flavor
    Update {
        /// Its name
        flavor: String,
        /// A pool of it from now on; give it once for each
        #[arg(long = "pool", required = true, value_name = "POOL")]
        pools: Vec<String>,
    },
    /// Delete flavors
    Delete {
        /// Their names
        #[arg(required = true)]
        flavors: Vec<String>,
    },
}

pub(super) fn run(args: &FlavorArgs) -> Result<(), Failure> {
    let remote = args.caller.remote()?;
    match &args.command {
        FlavorCommand::List { extent } => list(args, &remote, extent),
        FlavorCommand::Create { flavor, pools } => {
            remote.call(ApiRequest::new(Method::PUT, path(flavor)).json(&json!({"pool_list": pools}))?)?;
            args.caller.printer().done(&format!("flavor {flavor} is created"), &json!({"name": flavor}))
        }
        FlavorCommand::Show { flavor } => {
            let reply = remote.get(path(flavor))?;
            let object: BTreeMap<String, Box<RawValue>> = reply.parse()?;
            let plain = object.iter().map(|(key, value)| format!("{key}={}", one_line(value))).collect();
            args.caller.printer().show(&Display { people: pairs(&object), json: reply.json_text()?, plain })
        }
        FlavorCommand::Update { flavor, pools } => {
            remote.call(ApiRequest::new(Method::PATCH, path(flavor)).json(&json!({"pool_list": pools}))?)?;
            args.caller.printer().done(&format!("flavor {flavor} is changed"), &json!({"name": flavor}))
        }
        FlavorCommand::Delete { flavors } => {
            let mut printer = args.caller.printer();
            flavors.iter().try_for_each(|flavor| {
                remote.delete(path(flavor))?;
                printer.done(&format!("flavor {flavor} is gone"), &json!({"name": flavor}))
            })
        }
    }
}

fn path(flavor: &str) -> String {
    format!("/v2/flavors/{}", encoded(flavor))
}

#[derive(Deserialize)]
struct FlavorEntry {
    name: String,
    pool_list: Vec<String>,
}

fn list(args: &FlavorArgs, remote: &Remote, extent: &ExtentArgs) -> Result<(), Failure> {
    let mut listing = Listing::new(remote, "/v2/flavors", "flavors", extent, &[]);
    let mut printer = args.caller.printer();
    let mut shown = printer.list(&["NAME", "POOLS"]);
    while let Some(page) = listing.page()? {
        let mut items = Vec::with_capacity(page.len());
        for json in page {
            let FlavorEntry { name, pool_list } = parsed(&json)?;
            items.push(Item {
                row: vec![name.clone(), pool_list.join(" ")],
                json: one_line(&json),
                plain: name,
            });
        }
        shown.page(items)?;
    }
    shown.end("there are no flavors")
}
