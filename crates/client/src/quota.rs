//! `angarium quota`: the quota of the project and its use.

use std::collections::BTreeMap;

use clap::Args;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::caller::CallerArgs;
use super::failure::Failure;
use super::printer::Display;
use super::table::Table;
use angarium_settings::units;

/// Show the quota and the usage of the project
#[derive(Args, Clone, Debug)]
pub struct QuotaArgs {
    #[command(flatten)]
    caller: CallerArgs,
}

#[derive(Debug, Deserialize)]
struct QuotaBound {
    used: Option<u64>,
    quota: Option<u64>,
}

impl QuotaBound {
    fn row(&self, what: &str) -> Vec<String> {
        let or_dash = |number: Option<u64>| match number {
            Some(bytes) if what == "bytes" => units::size_of(bytes),
            Some(number) => number.to_string(),
            None => "-".to_owned(),
        };
        let share = match (self.used, self.quota) {
            (Some(used), Some(quota)) if quota > 0 => {
                format!("{}%", u128::from(used) * 100 / u128::from(quota))
            }
            _ => "-".to_owned(),
        };
        vec![what.to_owned(), or_dash(self.used), or_dash(self.quota), share]
    }

    fn plain(&self, what: &str) -> Vec<String> {
        let line = |key: &str, number: Option<u64>| number.map(|number| format!("{what}.{key}={number}"));
        [line("used", self.used), line("quota", self.quota)].into_iter().flatten().collect()
    }
}

pub(super) fn run(args: &QuotaArgs) -> Result<(), Failure> {
    let reply = args.caller.remote()?.get("/v2/quota")?;
    let mut object: BTreeMap<String, Box<RawValue>> = reply.parse()?;
    let (mut rows, mut plain) = (Vec::new(), Vec::new());
    for what in ["queues", "messages", "bytes"] {
        let Some(value) = object.remove(what) else { continue };
        let bounded: QuotaBound =
            serde_json::from_str(value.get()).map_err(|error| reply.strange(error.to_string()))?;
        rows.push(bounded.row(what));
        plain.extend(bounded.plain(what));
    }
    let people = Table::new(&["WHAT", "USED", "QUOTA", "SHARE"]).with_head(&rows);
    args.caller.printer().show(&Display { people, json: reply.json_text()?, plain })
}
