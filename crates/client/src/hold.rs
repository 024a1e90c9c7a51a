//! `angarium queue hold`, `angarium pool hold`, `angarium project hold`, `release` of each, and `angarium project holds`.

use clap::Args;
use http::Method;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::failure::Failure;
use super::listing::{ExtentArgs, Listing};
use super::notice;
use super::printer::{Display, Item, Printer};
use super::queue::{self, parsed};
use super::remote::{ApiRequest, Remote};
use super::table::one_line;
use angarium_settings::units;

/// Columns of the holds of pools and projects.
const HEADS: &[&str] = &["HELD", "STOPS", "SINCE", "UNTIL", "BY", "REASON"];

#[derive(Args, Clone, Debug)]
pub(super) struct HoldArgs {
    /// Its name
    pub(super) name: String,
    /// Why, in one line for the people who meet the hold
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// When the hold ends by itself: a date as 2030-01-05T08:00:00Z, or a duration from now as 2h
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Refuse posts
    #[arg(long)]
    post: bool,
    /// Drop posts, which are answered as accepted; those of SQS are refused
    #[arg(long, conflicts_with = "post")]
    discard: bool,
    /// Let messages be claimed: only posts are held
    #[arg(long)]
    pub(super) allow_claims: bool,
    /// Hold nothing but transfers to other queues and migrations, while the pools are copied; of a pool alone
    #[arg(long, conflicts_with_all = ["post", "discard", "allow_claims"])]
    only_transfers: bool,
}

/// Returns the date of a text that is a duration from now by the clock of this machine. Any other text is left to the
/// server.
fn date(text: &str) -> Result<String, Failure> {
    let Ok(seconds) = units::seconds(text) else { return Ok(text.to_owned()) };
    let left = i64::try_from(seconds).ok().map(SignedDuration::from_secs);
    let end = left.and_then(|left| Timestamp::now().checked_add(left).ok());
    let late = || Failure::Usage(format!("--until {text}: it is later than any date"));
    Ok(end.ok_or_else(late)?.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// A resource that can be held.
pub(super) struct Holdable<'a> {
    /// The command of its noun: `queue`, `topic`, `pool` or `project`.
    pub(super) noun: &'static str,
    /// Its name.
    pub(super) name: &'a str,
    /// The group of the queue, if only that is meant.
    pub(super) group: Option<&'a str>,
    /// Its path.
    pub(super) path: String,
}

#[derive(Deserialize)]
struct Hold {
    claim: bool,
    post: bool,
    discard: bool,
    #[serde(default)]
    transfer: bool,
    reason: String,
    at: String,
    until: Option<String>,
    by: Option<String>,
    pool: Option<String>,
    project: Option<String>,
}

impl Hold {
    /// Returns its effects in these words: on claims, on posts that are refused, on posts that are dropped, on transfers.
    fn effects(&self, words: [&'static str; 4]) -> String {
        let words = [self.claim, self.post, self.discard, self.transfer].into_iter().zip(words);
        words.filter(|(is_set, _)| *is_set).map(|(_, word)| word).collect::<Vec<_>>().join(", ")
    }

    /// Returns the held pool or project; none when a queue or a group is held.
    fn target(&self) -> Option<String> {
        let of_pool = self.pool.as_ref().map(|pool| format!("pool {pool}"));
        of_pool.or_else(|| self.project.as_ref().map(|project| format!("project {project}")))
    }

    /// Returns its cells for [`HEADS`].
    fn row(&self) -> Vec<String> {
        let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let effects = self.effects(["claims", "posts", "posts (dropped)", "transfers"]);
        vec![
            or_none(&self.target()),
            effects,
            self.at.clone(),
            or_none(&self.until),
            or_none(&self.by),
            self.reason.clone(),
        ]
    }

    fn sentence(&self, held: &Holdable<'_>) -> String {
        let Holdable { noun, name, group, .. } = held;
        let effects = self.effects([
            "no message can be claimed",
            "posts are refused",
            "posts are dropped",
            "transfers and migrations wait",
        ]);
        let until = self.until.as_ref().map_or_else(
            || {
                let group = group.map(|group| format!(" --group {group}")).unwrap_or_default();
                format!("until `angarium {noun} release {name}{group}`")
            },
            |until| format!("until {until}"),
        );
        format!("{} is held {until}: {}\n", held.title(), effects)
    }
}

impl Holdable<'_> {
    fn title(&self) -> String {
        let Self { noun, name, .. } = self;
        match self.group {
            Some(group) => format!("group {group} of {noun} {name}"),
            None => format!("{noun} {name}"),
        }
    }

    /// Holds it.
    pub(super) fn hold(
        &self,
        remote: &Remote,
        printer: &mut Printer,
        args: &HoldArgs,
    ) -> Result<(), Failure> {
        let HoldArgs { reason, until, post, discard, allow_claims, only_transfers, .. } = args;
        let is_claim = !allow_claims && !only_transfers;
        let mut body = json!({"claim": is_claim, "post": post, "discard": discard, "reason": reason});
        if *only_transfers {
            body["transfer"] = json!(true);
        }
        if let Some(until) = until {
            body["until"] = json!(date(until)?);
        }
        let request = ApiRequest::new(Method::PUT, format!("{}/hold", self.path));
        let reply = remote.call(request.json(&body)?)?;
        let hold: Hold = reply.parse()?;
        let (people, json) = (hold.sentence(self), reply.json_text()?);
        printer.show(&Display { people, json, plain: vec![self.name.to_owned()] })
    }

    /// Ends its hold.
    pub(super) fn release(&self, remote: &Remote, printer: &mut Printer) -> Result<(), Failure> {
        remote.delete(format!("{}/hold", self.path))?;
        let mut released = json!({"name": self.name});
        if let Some(group) = self.group {
            released["group"] = json!(group);
        }
        printer.done(&format!("{} is released", self.title()), &released)?;
        if ["queue", "topic"].contains(&self.noun) && self.group.is_none() {
            let topic = if self.noun == "topic" { queue::TOPIC } else { "" };
            tell_holds(remote, &[topic, self.name].concat());
        }
        Ok(())
    }
}

/// Lists the holds of pools and projects.
pub(super) fn list(remote: &Remote, printer: &mut Printer, extent: &ExtentArgs) -> Result<(), Failure> {
    let mut listing = Listing::new(remote, "/v2/admin/holds", "holds", extent, &[]);
    let mut shown = printer.cut_list(HEADS);
    while let Some(page) = listing.page()? {
        let item = |json: &RawValue| {
            let hold: Hold = parsed(json)?;
            Ok(Item { row: hold.row(), json: one_line(json), plain: hold.target().unwrap_or_default() })
        };
        shown.page(page.iter().map(|json| item(json)).collect::<Result<_, Failure>>()?)?;
    }
    shown.end("no pool and no project is held")
}

/// The holds of a queue, in its explanation.
#[derive(Deserialize)]
struct QueueHolds {
    #[serde(default)]
    held: Vec<Hold>,
    #[serde(default)]
    held_groups: Vec<GroupHold>,
}

#[derive(Deserialize)]
struct GroupHold {
    group: String,
    is_releasing: bool,
    hold: Hold,
}

/// Prints a notice for each hold that is in force for a queue. A failure prints none, because they are only hints.
pub(super) fn tell_holds(remote: &Remote, queue: &str) {
    let explained = remote.get(format!("{}/explain", queue::path(queue)));
    let Ok(QueueHolds { held, held_groups }) = explained.and_then(|reply| reply.parse()) else { return };
    for hold in held {
        let name = hold.target().unwrap_or_else(|| queue::called(queue));
        notice::tell(&format!("{name} is held: {}", hold.reason));
    }
    for GroupHold { group, hold, .. } in held_groups.into_iter().filter(|held| !held.is_releasing) {
        notice::tell(&format!("group {group} of {} is held: {}", queue::called(queue), hold.reason));
    }
}
