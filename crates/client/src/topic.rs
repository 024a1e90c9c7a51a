//! `angarium topic`: list, create, show, change, hold and delete topics. But for the list, each command is that of a
//! queue whose name has the prefix of topics.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::caller::CallerArgs;
use super::failure::Failure;
use super::hold::HoldArgs;
use super::listing::{ExtentArgs, Listing};
use super::printer::Item;
use super::queue::{self, PurgeKind, QueueArgs, QueueCommand, TOPIC, parsed};
use super::setting::Setting;
use super::table::{one_line, worded};

/// Topics: queues that keep nothing, and copy each message for their subscriptions
#[derive(Args, Clone, Debug)]
pub struct TopicArgs {
    #[command(flatten)]
    caller: CallerArgs,
    #[command(subcommand)]
    command: TopicCommand,
}

#[derive(Subcommand, Clone, Debug)]
enum TopicCommand {
    /// List the topics of the project, by name
    List {
        #[command(flatten)]
        extent: ExtentArgs,
        /// With their metadata
        #[arg(long)]
        detailed: bool,
    },
    /// Create topics; one that exists stays as it is. Other commands name a topic as topic:NAME
    Create {
        /// Their names
        #[arg(required = true)]
        topics: Vec<String>,
        /// Metadata, as KEY=VALUE; a value that is JSON is taken as such, any other as text
        #[arg(long = "set", value_name = "KEY=VALUE")]
        settings: Vec<Setting>,
        /// Set keys with an underscore too that are no attributes
        #[arg(long)]
        allow_unknown: bool,
    },
    /// Show the metadata of a topic
    Show {
        /// Its name
        topic: String,
    },
    /// Explain a topic in a sentence: its subscriptions, and why posts to it are refused
    Explain {
        /// Its name
        topic: String,
    },
    /// Set metadata of a topic
    Set {
        /// Its name
        topic: String,
        /// KEY=VALUE; a value that is JSON is taken as such, any other as text
        #[arg(required = true, value_name = "KEY=VALUE")]
        settings: Vec<Setting>,
        /// Set keys with an underscore too that are no attributes
        #[arg(long)]
        allow_unknown: bool,
    },
    /// Remove metadata of a topic
    Unset {
        /// Its name
        topic: String,
        /// The keys
        #[arg(required = true)]
        keys: Vec<String>,
    },
    /// Hold the posts to a topic: with --post they are refused, with --discard dropped
    Hold(HoldArgs),
    /// Release a topic that is held
    Release {
        /// Its name
        topic: String,
    },
    /// Delete all subscriptions of topics, which stay
    Purge {
        /// Their names
        #[arg(required = true)]
        topics: Vec<String>,
    },
    /// Delete topics with their subscriptions
    Delete {
        /// Their names
        #[arg(required = true)]
        topics: Vec<String>,
        /// Also while a copy cannot leave for its queue; the pool of the topic need not be reachable
        #[arg(long)]
        force: bool,
    },
}

pub(super) fn run(TopicArgs { caller, command }: TopicArgs) -> Result<(), Failure> {
    let command = match command {
        TopicCommand::List { extent, detailed } => return list(&caller, &extent, detailed),
        TopicCommand::Create { topics, settings, allow_unknown } => {
            QueueCommand::Create { queues: all(&topics), settings, allow_unknown }
        }
        TopicCommand::Show { topic } => QueueCommand::Show { queue: one(&topic) },
        TopicCommand::Explain { topic } => QueueCommand::Explain { queue: one(&topic) },
        TopicCommand::Set { topic, settings, allow_unknown } => {
            QueueCommand::Set { queue: one(&topic), settings, allow_unknown }
        }
        TopicCommand::Unset { topic, keys } => QueueCommand::Unset { queue: one(&topic), keys },
        TopicCommand::Hold(mut terms) => {
            // A topic has no claims to stop.
            (terms.name, terms.allow_claims) = (one(&terms.name), true);
            QueueCommand::Hold { group: None, terms }
        }
        TopicCommand::Release { topic } => QueueCommand::Release { queue: one(&topic), group: None },
        TopicCommand::Purge { topics } => {
            QueueCommand::Purge { queues: all(&topics), only: Some(PurgeKind::Subscriptions), kept: false }
        }
        TopicCommand::Delete { topics, force } => QueueCommand::Delete { queues: all(&topics), force },
    };
    queue::run(&QueueArgs { caller, command })
}

fn one(topic: &str) -> String {
    [TOPIC, topic].concat()
}

fn all(topics: &[String]) -> Vec<String> {
    topics.iter().map(|topic| one(topic)).collect()
}

/// A topic in a listing.
#[derive(Deserialize)]
struct TopicEntry {
    name: String,
    #[serde(default)]
    metadata: BTreeMap<String, Box<RawValue>>,
}

fn list(caller: &CallerArgs, extent: &ExtentArgs, detailed: bool) -> Result<(), Failure> {
    let remote = caller.remote()?;
    let parameters = [("detailed", detailed.then(|| "true".to_owned()))];
    let mut listing = Listing::new(&remote, "/v2/topics", "topics", extent, &parameters);
    let mut printer = caller.printer();
    let mut shown = printer.list(if detailed { &["NAME", "METADATA"] } else { &["NAME"] });
    while let Some(page) = listing.page()? {
        let mut items = Vec::with_capacity(page.len());
        for json in page {
            let TopicEntry { name, metadata } = parsed(&json)?;
            let mut row = vec![name.clone()];
            if detailed {
                let set = metadata.iter().filter(|(_, value)| value.get() != "null");
                let metadata = set.map(|(key, value)| format!("{key}={}", worded(value)));
                row.push(metadata.collect::<Vec<_>>().join(" "));
            }
            items.push(Item { row, json: one_line(&json), plain: name });
        }
        shown.page(items)?;
    }
    shown.end("there are no topics")
}
