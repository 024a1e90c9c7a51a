//! `angarium queue`: list, create, show, count, change, purge and delete queues. Their migration stands in [`super::migration`].

use std::collections::BTreeMap;

use clap::{Args, Subcommand, ValueEnum};
use http::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;

use super::caller::CallerArgs;
use super::failure::Failure;
use super::listing::{ExtentArgs, Listing};
use super::migration::{self, MigrateArgs};
use super::printer::{Item, Shown};
use super::remote::{Ask, Remote, encoded};
use super::setting::{Setting, raw};
use super::table::{Table, bare, one_line, pairs, span};

/// The media type of a change of metadata, which Zaqar insists on.
const PATCH: &str = "application/openstack-messaging-v2.0-json-patch";

/// Queues and their metadata
#[derive(Args, Clone, Debug)]
pub struct QueueArgs {
    #[command(flatten)]
    caller: CallerArgs,
    #[command(subcommand)]
    command: QueueCommand,
}

#[derive(Subcommand, Clone, Debug)]
enum QueueCommand {
    /// List the queues of the project, by name
    List {
        #[command(flatten)]
        extent: ExtentArgs,
        /// With their metadata
        #[arg(long)]
        detailed: bool,
    },
    /// Create queues; one that exists stays as it is
    Create {
        /// Their names
        #[arg(required = true)]
        queues: Vec<String>,
        /// Metadata, as KEY=VALUE; a value that is JSON is taken as such, any other as text
        #[arg(long = "set", value_name = "KEY=VALUE")]
        settings: Vec<Setting>,
    },
    /// Show the metadata of a queue
    Show {
        /// Its name
        queue: String,
    },
    /// Count the messages of queues
    Stats {
        /// Their names
        #[arg(required = true)]
        queues: Vec<String>,
    },
    /// Set metadata of a queue
    Set {
        /// Its name
        queue: String,
        /// KEY=VALUE; a value that is JSON is taken as such, any other as text
        #[arg(required = true, value_name = "KEY=VALUE")]
        settings: Vec<Setting>,
    },
    /// Remove metadata of a queue
    Unset {
        /// Its name
        queue: String,
        /// The keys
        #[arg(required = true)]
        keys: Vec<String>,
    },
    /// Delete messages, claimed ones too, or subscriptions of queues, which stay (Zaqar keeps claimed messages)
    Purge {
        /// Their names
        #[arg(required = true)]
        queues: Vec<String>,
        /// What is deleted; both when not given
        #[arg(long, value_enum, value_name = "WHAT")]
        only: Option<Purged>,
    },
    /// Move a queue to another pool while it is used (administrators)
    Migrate(MigrateArgs),
    /// Show how far the migration of a queue is (administrators)
    Migration {
        /// Its name
        queue: String,
    },
    /// Bring a queue back that is on its way to another pool (administrators)
    CancelMigration {
        /// Its name
        queue: String,
    },
    /// Delete queues with all that is in them
    Delete {
        /// Their names
        #[arg(required = true)]
        queues: Vec<String>,
    },
}

/// What a purge can be kept to.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Purged {
    Messages,
    Subscriptions,
}

pub(super) fn run(args: &QueueArgs) -> Result<(), Failure> {
    let remote = args.caller.remote()?;
    match &args.command {
        QueueCommand::List { extent, detailed } => list(args, &remote, extent, *detailed),
        QueueCommand::Create { queues, settings } => create(args, &remote, queues, settings),
        QueueCommand::Show { queue } => {
            let reply = remote.get(path(queue))?;
            let metadata: BTreeMap<String, Box<RawValue>> = reply.parse()?;
            let plain = metadata.iter().map(|(key, value)| format!("{key}={}", one_line(value))).collect();
            args.caller.printer().show(&Shown { people: pairs(&metadata), json: reply.json_text()?, plain })
        }
        QueueCommand::Stats { queues } => stats(args, &remote, queues),
        QueueCommand::Set { queue, settings } => {
            let add = |setting: &Setting| Change::new("add", &setting.key, Some(setting.value.clone()));
            change(args, &remote, queue, settings.iter().map(add).collect())
        }
        QueueCommand::Unset { queue, keys } => {
            let remove = |key: &String| Change::new("remove", key, None);
            change(args, &remote, queue, keys.iter().map(remove).collect())
        }
        QueueCommand::Purge { queues, only } => purge(args, &remote, queues, *only),
        QueueCommand::Migrate(asked) => migration::migrate(&remote, &mut args.caller.printer(), asked),
        QueueCommand::Migration { queue } => migration::look(&remote, &mut args.caller.printer(), queue),
        QueueCommand::CancelMigration { queue } => {
            migration::cancel(&remote, &mut args.caller.printer(), queue)
        }
        QueueCommand::Delete { queues } => {
            let mut printer = args.caller.printer();
            queues.iter().try_for_each(|queue| {
                remote.delete(path(queue))?;
                printer.done(&format!("queue {queue} is gone"), &json!({"name": queue}))
            })
        }
    }
}

/// The path of a queue.
pub fn path(queue: &str) -> String {
    format!("/v2/queues/{}", encoded(queue))
}

#[derive(Deserialize)]
struct Listed {
    name: String,
    #[serde(default)]
    metadata: BTreeMap<String, Box<RawValue>>,
}

fn list(args: &QueueArgs, remote: &Remote, extent: &ExtentArgs, detailed: bool) -> Result<(), Failure> {
    let details = [("detailed", detailed.then(|| "true".to_owned()))];
    let mut listing = Listing::new(remote, "/v2/queues", "queues", extent, &details);
    let mut printer = args.caller.printer();
    let mut shown = printer.list(if detailed { &["NAME", "METADATA"] } else { &["NAME"] });
    while let Some(page) = listing.page()? {
        let mut items = Vec::with_capacity(page.len());
        for json in page {
            let Listed { name, metadata } = parsed(&json)?;
            let metadata: Vec<_> =
                metadata.iter().map(|(key, value)| format!("{key}={}", bare(value))).collect();
            let row = vec![name.clone(), metadata.join(" ")];
            items.push(Item { row, json: one_line(&json), plain: name });
        }
        shown.page(items)?;
    }
    shown.end("there are no queues")
}

/// An item of a listing.
pub fn parsed<'a, T: Deserialize<'a>>(json: &'a RawValue) -> Result<T, Failure> {
    let strange = |error: serde_json::Error| Failure::Strange {
        asked: "the listing".to_owned(),
        why: error.to_string(),
    };
    serde_json::from_str(json.get()).map_err(strange)
}

fn create(args: &QueueArgs, remote: &Remote, queues: &[String], settings: &[Setting]) -> Result<(), Failure> {
    let metadata: BTreeMap<&str, &RawValue> =
        settings.iter().map(|setting| (setting.key.as_str(), &*setting.value)).collect();
    let mut printer = args.caller.printer();
    for queue in queues {
        let created = remote.ask(Ask::new(Method::PUT, path(queue)).json(&metadata)?)?;
        let created = created.status == StatusCode::CREATED;
        let sentence = if created { "is created" } else { "exists already, and stays as it is" };
        printer.done(&format!("queue {queue} {sentence}"), &json!({"name": queue, "created": created}))?;
    }
    Ok(())
}

#[derive(Deserialize)]
struct Stats {
    messages: Counts,
}

#[derive(Deserialize)]
struct Counts {
    claimed: u64,
    free: u64,
    total: u64,
    #[serde(default)]
    oldest: Option<Milestone>,
    #[serde(default)]
    newest: Option<Milestone>,
}

#[derive(Deserialize)]
struct Milestone {
    age: u64,
}

fn stats(args: &QueueArgs, remote: &Remote, queues: &[String]) -> Result<(), Failure> {
    let mut table = Table::new(&["NAME", "FREE", "CLAIMED", "TOTAL", "OLDEST", "NEWEST"]);
    let (mut rows, mut json, mut plain) = (Vec::new(), BTreeMap::new(), Vec::new());
    for queue in queues {
        let reply = remote.get(format!("{}/stats", path(queue)))?;
        let Stats { messages } = reply.parse()?;
        let age =
            |milestone: Option<Milestone>| milestone.map_or("-".into(), |milestone| span(milestone.age));
        plain.push(messages.total.to_string());
        rows.push(vec![
            queue.clone(),
            messages.free.to_string(),
            messages.claimed.to_string(),
            messages.total.to_string(),
            age(messages.oldest),
            age(messages.newest),
        ]);
        json.insert(queue.as_str(), raw(&reply.json_text()?)?);
    }
    let json = serde_json::to_string(&json).map_err(|error| Failure::Usage(error.to_string()))?;
    args.caller.printer().show(&Shown { people: table.with_head(&rows), json, plain })
}

/// One operation of a JSON patch.
#[derive(Serialize)]
struct Change {
    op: &'static str,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Box<RawValue>>,
}

impl Change {
    fn new(op: &'static str, key: &str, value: Option<Box<RawValue>>) -> Self {
        Self { op, path: format!("/metadata/{}", key.replace('~', "~0").replace('/', "~1")), value }
    }
}

fn change(args: &QueueArgs, remote: &Remote, queue: &str, changes: Vec<Change>) -> Result<(), Failure> {
    let reply = remote.ask(Ask::new(Method::PATCH, path(queue)).json(&changes)?.media(PATCH))?;
    let metadata: BTreeMap<String, Box<RawValue>> = reply.parse()?;
    let plain = metadata.iter().map(|(key, value)| format!("{key}={}", one_line(value))).collect();
    args.caller.printer().show(&Shown { people: pairs(&metadata), json: reply.json_text()?, plain })
}

fn purge(args: &QueueArgs, remote: &Remote, queues: &[String], only: Option<Purged>) -> Result<(), Failure> {
    let mut printer = args.caller.printer();
    let kinds = match only {
        None => json!(["messages", "subscriptions"]),
        Some(Purged::Messages) => json!(["messages"]),
        Some(Purged::Subscriptions) => json!(["subscriptions"]),
    };
    queues.iter().try_for_each(|queue| {
        let ask = Ask::new(Method::POST, format!("{}/purge", path(queue)));
        remote.ask(ask.json(&json!({"resource_types": kinds}))?)?;
        printer.done(&format!("queue {queue} is purged"), &json!({"name": queue}))
    })
}
