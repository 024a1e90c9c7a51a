//! `angarium components` and `angarium drain`: list the replicas of the service, and drain one of them.

use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Args;
use http::Method;
use serde::Deserialize;
use serde_json::json;
use uuid::Uuid;

use super::caller::CallerArgs;
use super::failure::Failure;
use super::printer::Display;
use super::remote::{ApiRequest, Remote, Reply};
use super::table::Table;
use angarium_settings::units;

/// Pause between two checks of a draining replica.
const CHECK_PAUSE: Duration = Duration::from_millis(100);

/// Show the replicas of the service, and how many of the 256 slots each serves (administrators)
#[derive(Args, Clone, Debug)]
pub struct ComponentsArgs {
    #[command(flatten)]
    caller: CallerArgs,
}

/// Hand the queues of a replica over to the others, and wait until it has none (administrators)
#[derive(Args, Clone, Debug)]
pub struct DrainArgs {
    /// Which one, as `angarium components` shows it; without it the one that answers
    instance: Option<String>,

    /// How long to wait until it has no queue
    #[arg(long, default_value = "60s", value_name = "DURATION", value_parser = units::seconds)]
    within: u64,

    #[command(flatten)]
    caller: CallerArgs,
}

#[derive(Debug, Deserialize)]
struct Components {
    answered_by: String,
    components: Vec<Component>,
    unowned_slots: Vec<u8>,
}

#[derive(Debug, Deserialize)]
struct Component {
    instance: String,
    address: String,
    version: String,
    state: String,
    weight: u32,
    slots: Vec<u8>,
    #[serde(default)]
    passed_over: bool,
}

impl Component {
    fn row(&self) -> Vec<String> {
        let (weight, slots) = (self.weight.to_string(), self.slots.len().to_string());
        let state =
            if self.passed_over { format!("{}, passed over", self.state) } else { self.state.clone() };
        vec![self.instance.clone(), self.address.clone(), state, weight, slots, self.version.clone()]
    }
}

fn fetch(remote: &Remote) -> Result<(Reply, Components), Failure> {
    let reply = remote.get("/v2/components")?;
    let components = reply.parse()?;
    Ok((reply, components))
}

pub(super) fn components(args: &ComponentsArgs) -> Result<(), Failure> {
    let (reply, found) = fetch(&args.caller.remote()?)?;
    let rows: Vec<_> = found.components.iter().map(Component::row).collect();
    let plain = found.components.iter().map(|one| one.instance.clone()).collect();
    let people = Table::new(&["INSTANCE", "ADDRESS", "STATE", "WEIGHT", "SLOTS", "VERSION"]).with_head(&rows);
    args.caller.printer().show(&Display { people, json: reply.json_text()?, plain })
}

pub(super) fn drain(args: &DrainArgs) -> Result<(), Failure> {
    let remote = args.caller.remote()?;
    let instance = match &args.instance {
        Some(instance) => instance.clone(),
        None => fetch(&remote)?.1.answered_by,
    };
    if Uuid::parse_str(&instance).is_err() {
        return Err(Failure::Usage(format!("{instance:?} is no instance: `angarium components` shows them")));
    }
    remote.call(ApiRequest::new(Method::POST, format!("/v2/components/{instance}/drain")))?;
    let start = Instant::now();
    loop {
        let Components { components: found, unowned_slots, .. } = fetch(&remote)?.1;
        let left = found.iter().find(|one| one.instance == instance).map_or(0, |one| one.slots.len());
        if left == 0 && unowned_slots.is_empty() {
            let sentence = format!("replica {instance} serves no queue any more");
            return args.caller.printer().done(&sentence, &json!({"drained": instance}));
        }
        if start.elapsed() > Duration::from_secs(args.within) {
            let unowned = unowned_slots.len();
            let why = format!("replica {instance} still has {left} slots, and {unowned} have no owner");
            return Err(Failure::Found(why));
        }
        sleep(CHECK_PAUSE);
    }
}
