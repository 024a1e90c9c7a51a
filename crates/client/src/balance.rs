//! `angarium pool balance` and `angarium pool map`: proposed moves of queues between pools, and their current
//! placement.

use std::fs;
use std::path::PathBuf;

use clap::Args;
use http::Method;
use serde::Deserialize;
use serde_json::json;

use super::failure::Failure;
use super::printer::{Display, Printer};
use super::remote::{ApiRequest, Remote, with_query};
use super::table::Table;

/// Width of a full bar in characters.
const BAR: usize = 24;
/// Moves of automatic balance that are printed, the newest.
const AUTOMATIC_MOVES: usize = 10;

#[derive(Args, Clone, Debug)]
pub(super) struct BalanceArgs {
    /// Begin the moves; without it they are only shown
    #[arg(long)]
    apply: bool,
    /// At most this many moves
    #[arg(long, value_name = "MOVES")]
    limit: Option<u32>,
    /// Messages a second that each migration copies at most
    #[arg(long, value_name = "MESSAGES", requires = "apply")]
    rate: Option<u32>,
}

#[derive(Args, Clone, Debug)]
pub(super) struct MapArgs {
    /// Write it as a picture (SVG) into a file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Plan {
    complete: bool,
    silent: Vec<String>,
    moves: Vec<PlanMove>,
}

#[derive(Deserialize)]
struct PlanMove {
    project: String,
    queue: String,
    from: String,
    to: String,
    messages: u64,
    bytes: u64,
    load: u64,
    begun: Option<bool>,
    description: Option<String>,
}

impl PlanMove {
    fn row(&self) -> Vec<String> {
        let outcome = match (self.begun, &self.description) {
            (None, _) => "planned".to_owned(),
            (Some(true), _) => "begun".to_owned(),
            (Some(false), why) => why.clone().unwrap_or_else(|| "not begun".to_owned()),
        };
        let project = if self.project.is_empty() { "-" } else { &self.project };
        let [messages, bytes, load] = [self.messages, self.bytes, self.load].map(|figure| figure.to_string());
        let (queue, from, to) = (self.queue.clone(), self.from.clone(), self.to.clone());
        vec![project.into(), queue, from, to, messages, bytes, load, outcome]
    }
}

/// Shows the proposed moves, or starts them.
pub(super) fn balance(remote: &Remote, printer: &mut Printer, args: &BalanceArgs) -> Result<(), Failure> {
    const PATH: &str = "/v2/admin/balance";
    let reply = if args.apply {
        let mut body = json!({});
        for (key, value) in [("limit", args.limit), ("rate", args.rate)] {
            if let Some(value) = value {
                body[key] = json!(value);
            }
        }
        remote.call(ApiRequest::new(Method::POST, PATH).json(&body)?)?
    } else {
        remote.get(with_query(PATH, &[("limit", args.limit.map(|limit| limit.to_string()))]))?
    };
    let Plan { complete, silent, moves } = reply.parse()?;
    let rows: Vec<_> = moves.iter().map(PlanMove::row).collect();
    let mut people = if moves.is_empty() {
        "the pools hold their shares\n".to_owned()
    } else {
        Table::new(&["PROJECT", "QUEUE", "FROM", "TO", "MESSAGES", "BYTES", "LOAD/MIN", "MOVE"])
            .with_head(&rows)
    };
    if !complete {
        people.push_str("not all queues were looked at: there are too many\n");
    }
    for replica in &silent {
        people.push_str(&format!("replica {replica} did not say how busy its queues are\n"));
    }
    let plain = moves.iter().map(|planned| planned.queue.clone()).collect();
    printer.show(&Display { people, json: reply.json_text()?, plain })
}

#[derive(Deserialize)]
struct Map {
    complete: bool,
    pools: Vec<MapPool>,
    moves: Vec<MapMove>,
    /// Absent before the first round of automatic balance.
    #[serde(default)]
    balance: Option<MapBalance>,
}

/// The last round of automatic balance.
#[derive(Deserialize)]
struct MapBalance {
    at: String,
    description: String,
    moves: Vec<AutomaticMove>,
}

#[derive(Deserialize)]
struct AutomaticMove {
    project: String,
    queue: String,
    from: String,
    to: String,
    at: String,
    reason: String,
    description: Option<String>,
}

impl MapBalance {
    /// Formats the round, and the last moves of it and of earlier ones.
    fn lines(&self) -> String {
        let mut lines = format!("automatic balance at {}: {}\n", self.at, self.description);
        for one in self.moves.iter().take(AUTOMATIC_MOVES) {
            let at =
                if one.project.is_empty() { &one.queue } else { &format!("{}/{}", one.project, one.queue) };
            let AutomaticMove { from, to, reason, .. } = one;
            lines.push_str(&format!("  {} {at} from {from} to {to}: {reason}", one.at));
            if let Some(why) = &one.description {
                lines.push_str(&format!("; not begun: {why}"));
            }
            lines.push('\n');
        }
        lines
    }
}

#[derive(Deserialize)]
struct MapPool {
    name: String,
    weight: u32,
    share: f64,
    held: f64,
    state: String,
    queues: u64,
    /// Absent in answers of older versions.
    #[serde(default)]
    subscription_queues: u64,
}

impl MapPool {
    fn row(&self) -> Vec<String> {
        let queues = match self.subscription_queues {
            0 => self.queues.to_string(),
            some => format!("{} ({some} of subscriptions)", self.queues),
        };
        let weight = self.weight.to_string();
        vec![self.name.clone(), self.state.clone(), weight, bar(self.share), bar(self.held), queues]
    }
}

#[derive(Deserialize)]
struct MapMove {
    from: String,
    to: String,
    queues: u64,
}

/// Shows the placement of all queues, or writes it as a picture.
pub(super) fn map(remote: &Remote, printer: &mut Printer, args: &MapArgs) -> Result<(), Failure> {
    const PATH: &str = "/v2/admin/map";
    if let Some(file) = &args.svg {
        let picture = remote.get(PATH)?.body;
        let failed = |error| Failure::Usage(format!("{} cannot be written: {error}", file.display()));
        fs::write(file, picture).map_err(failed)?;
        let name = file.display().to_string();
        return printer.done(&format!("the map is in {name}"), &json!({"file": name}));
    }
    let reply = remote.get(with_query(PATH, &[("format", Some("json".to_owned()))]))?;
    let Map { complete, pools, moves, balance } = reply.parse()?;
    let rows: Vec<_> = pools.iter().map(MapPool::row).collect();
    let mut people = Table::new(&["POOL", "STATE", "WEIGHT", "SHARE", "HELD", "QUEUES"]).with_head(&rows);
    for MapMove { from, to, queues } in &moves {
        people.push_str(&format!("{from} -> {to}: {queues} on the way\n"));
    }
    if let Some(balance) = &balance {
        people.push_str(&balance.lines());
    }
    if !complete {
        people.push_str("not all queues were looked at: there are too many\n");
    }
    let plain = pools.iter().map(|pool| pool.name.clone()).collect();
    printer.show(&Display { people, json: reply.json_text()?, plain })
}

/// Formats a share from 0 to 1 as a bar and a percentage.
fn bar(part: f64) -> String {
    let part = part.clamp(0.0, 1.0);
    let full = (part * BAR as f64).round() as usize;
    format!("{}{} {:>3.0}%", "#".repeat(full), ".".repeat(BAR - full), part * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_long_as_its_part() {
        assert_eq!(bar(0.0), "........................   0%");
        assert_eq!(bar(0.5), "############............  50%");
        assert_eq!(bar(7.0), "######################## 100%");
    }
}
