//! `angarium queue list` and `angarium queue stats`: the queues of a project, and their message counts.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::caller::CallerArgs;
use super::failure::Failure;
use super::listing::{ExtentArgs, Listing};
use super::notice;
use super::printer::{Display, Item};
use super::queue::{called, parsed, path};
use super::remote::Remote;
use super::setting::raw;
use super::table::{Table, one_line, worded};
use angarium_settings::units::span;

/// Optional columns of a list of queues.
#[derive(Clone, Copy, Debug)]
pub struct Columns {
    pub detailed: bool,
    /// Message counts.
    pub counted: bool,
}

/// A queue in a listing.
#[derive(Deserialize)]
pub struct QueueEntry {
    pub name: String,
    #[serde(default)]
    metadata: BTreeMap<String, Box<RawValue>>,
    /// Message counts, if the server has them.
    #[serde(default)]
    pub stats: Option<ListCounts>,
}

/// Message counts of a queue.
#[derive(Deserialize)]
pub struct ListCounts {
    /// Claimable messages.
    pub ready: u64,
    /// Messages under a claim.
    pub claimed: u64,
    /// Delayed messages.
    pub delayed: u64,
    in_transfer: u64,
    /// Seconds since the oldest message was posted that is ready or claimed.
    #[serde(default)]
    pub oldest_age: Option<u64>,
    rates: Rates,
}

impl ListCounts {
    /// Messages that have left per second, as the mean of the last half minute or minute.
    pub fn removed_per_second(&self) -> f64 {
        self.rates.removed
    }
}

#[derive(Deserialize)]
struct Rates {
    posted: f64,
    removed: f64,
}

impl QueueEntry {
    /// Returns its cells: ready, claimed, delayed, in transfer, age of the oldest message, and the rates of posts and
    /// removals.
    pub fn counts(&self) -> [String; 7] {
        let Some(stats) = &self.stats else { return [const { "-" }; 7].map(ToOwned::to_owned) };
        let numbers =
            [stats.ready, stats.claimed, stats.delayed, stats.in_transfer].map(|number| number.to_string());
        let [ready, claimed, delayed, in_transfer] = numbers;
        let oldest = stats.oldest_age.map_or_else(|| "-".to_owned(), span);
        let [posted, removed] = [stats.rates.posted, stats.rates.removed].map(|rate| format!("{rate:.1}"));
        [ready, claimed, delayed, in_transfer, oldest, posted, removed]
    }
}

/// Returns whether the server can count queues in their listing. A server without this feature, such as Zaqar, would
/// take the parameter for a filter, and its resource directory does not name the parameter.
///
/// # Errors
///
/// Those of a server that does not respond.
pub fn counts_queues(remote: &Remote) -> Result<bool, Failure> {
    #[derive(Deserialize)]
    struct Home {
        resources: BTreeMap<String, Box<RawValue>>,
    }
    match remote.get("/v2/").and_then(|reply| reply.parse::<Home>()) {
        Ok(Home { resources }) => {
            Ok(resources.get("rel/queues").is_some_and(|queues| queues.get().contains("with_stats")))
        }
        // The listing itself will report the failure, or succeed.
        Err(Failure::Refused(_) | Failure::Strange { .. }) => Ok(false),
        Err(failure) => Err(failure),
    }
}

/// Lists queues page by page.
pub fn list(
    caller: &CallerArgs,
    remote: &Remote,
    extent: &ExtentArgs,
    columns: Columns,
) -> Result<(), Failure> {
    let Columns { detailed, counted } = columns;
    let counted = counted && counts_queues(remote)?;
    let yes = |flag: bool| flag.then(|| "true".to_owned());
    let parameters = [("detailed", yes(detailed)), ("with_stats", yes(counted))];
    let mut listing = Listing::new(remote, "/v2/queues", "queues", extent, &parameters);
    let mut printer = caller.printer();
    let mut shown = printer.list(match (counted, detailed) {
        (false, false) => &["NAME"],
        (false, true) => &["NAME", "METADATA"],
        (true, false) => &["NAME", "READY", "CLAIMED", "DELAYED", "TRANSFER", "OLDEST", "IN/S", "OUT/S"],
        (true, true) => {
            &["NAME", "READY", "CLAIMED", "DELAYED", "TRANSFER", "OLDEST", "IN/S", "OUT/S", "METADATA"]
        }
    });
    while let Some(page) = listing.page()? {
        let mut items = Vec::with_capacity(page.len());
        for json in page {
            let listed: QueueEntry = parsed(&json)?;
            let mut row = vec![listed.name.clone()];
            if counted {
                row.extend(listed.counts());
            }
            if detailed {
                let set = listed.metadata.iter().filter(|(_, value)| value.get() != "null");
                let metadata = set.map(|(key, value)| format!("{key}={}", worded(value)));
                row.push(metadata.collect::<Vec<_>>().join(" "));
            }
            items.push(Item { row, json: one_line(&json), plain: listed.name });
        }
        shown.page(items)?;
    }
    shown.end("there are no queues")
}

#[derive(Deserialize)]
struct Stats {
    messages: Counts,
}

/// Message counts of a queue. Zaqar has claimed, free and total.
#[derive(Deserialize)]
struct Counts {
    claimed: u64,
    free: u64,
    total: u64,
    #[serde(default)]
    ready: Option<u64>,
    #[serde(default)]
    delayed: Option<u64>,
    #[serde(default)]
    in_transfer: Option<u64>,
    #[serde(default)]
    oldest: Option<Milestone>,
    #[serde(default)]
    newest: Option<Milestone>,
}

#[derive(Deserialize)]
struct Milestone {
    age: u64,
}

impl Counts {
    fn row(self, queue: &str) -> Vec<String> {
        let number = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
        let age =
            |milestone: Option<Milestone>| milestone.map_or("-".into(), |milestone| span(milestone.age));
        vec![
            queue.to_owned(),
            self.ready.unwrap_or(self.free).to_string(),
            self.claimed.to_string(),
            number(self.delayed),
            number(self.in_transfer),
            self.total.to_string(),
            age(self.oldest),
            age(self.newest),
        ]
    }
}

/// Shows the counts of each queue.
pub fn stats(caller: &CallerArgs, remote: &Remote, queues: &[String]) -> Result<(), Failure> {
    let heads = &["NAME", "READY", "CLAIMED", "DELAYED", "TRANSFER", "TOTAL", "OLDEST", "NEWEST"];
    let (mut rows, mut json, mut plain) = (Vec::new(), BTreeMap::new(), Vec::new());
    for queue in queues {
        let reply = remote.get(format!("{}/stats", path(queue)))?;
        if notice::is_of_missing(&reply) {
            notice::tell(&format!("{} does not exist: there is nothing to count", called(queue)));
        }
        let Stats { messages } = reply.parse()?;
        plain.push(messages.total.to_string());
        rows.push(messages.row(queue));
        json.insert(queue.as_str(), raw(&reply.json_text()?)?);
    }
    let json = serde_json::to_string(&json).map_err(|error| Failure::Usage(error.to_string()))?;
    caller.printer().show(&Display { people: Table::new(heads).with_head(&rows), json, plain })
}
