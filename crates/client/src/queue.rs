//! `angarium queue`: list, create, show, count, change, purge and delete queues. [`super::queue_counts`] has the
//! counts, [`super::migration`] the migrations, [`super::queue_tasks`] the tasks over messages.

use std::collections::BTreeMap;

use clap::{Args, Subcommand, ValueEnum};
use http::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;

use super::attributes;
use super::caller::CallerArgs;
use super::failure::Failure;
use super::hold::{self, HoldArgs, Holdable};
use super::listing::ExtentArgs;
use super::migration::{self, MigrateArgs};
use super::notice;
use super::printer::Display;
use super::queue_counts::{Columns, list, stats};
use super::queue_explain::explain;
use super::queue_tasks::{self, RedriveArgs};
use super::remote::{ApiRequest, Remote, encoded, with_query};
use super::setting::Setting;
use super::table::{one_line, pairs};

/// Media type of a metadata change, which Zaqar requires.
const PATCH: &str = "application/openstack-messaging-v2.0-json-patch";

/// Queues and their metadata
#[derive(Args, Clone, Debug)]
pub struct QueueArgs {
    #[command(flatten)]
    pub(super) caller: CallerArgs,
    #[command(subcommand)]
    pub(super) command: QueueCommand,
}

#[derive(Subcommand, Clone, Debug)]
pub(super) enum QueueCommand {
    /// List the queues of the project, by name
    List {
        #[command(flatten)]
        extent: ExtentArgs,
        /// With their metadata
        #[arg(long)]
        detailed: bool,
        /// Names only: nothing is counted
        #[arg(long)]
        no_stats: bool,
    },
    /// Create queues; one that exists stays as it is
    Create {
        /// Their names
        #[arg(required = true)]
        queues: Vec<String>,
        /// Metadata, as KEY=VALUE; a value that is JSON is taken as such, any other as text
        #[arg(long = "set", value_name = "KEY=VALUE")]
        settings: Vec<Setting>,
        /// Set keys with an underscore too that are no attributes
        #[arg(long)]
        allow_unknown: bool,
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
    /// Explain in a sentence what a claim of a queue gets now, and why
    Explain {
        /// Its name
        queue: String,
    },
    /// Hold a queue, or one of its groups: no message can be claimed until it is released
    Hold {
        /// Hold only the messages of this group
        #[arg(long)]
        group: Option<String>,
        #[command(flatten)]
        terms: HoldArgs,
    },
    /// Release a queue that is held, or one of its groups
    Release {
        /// Its name
        queue: String,
        /// Release this group
        #[arg(long)]
        group: Option<String>,
    },
    /// Set metadata of a queue
    Set {
        /// Its name
        queue: String,
        /// KEY=VALUE; a value that is JSON is taken as such, any other as text
        #[arg(required = true, value_name = "KEY=VALUE")]
        settings: Vec<Setting>,
        /// Set keys with an underscore too that are no attributes
        #[arg(long)]
        allow_unknown: bool,
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
        /// What is deleted; messages and subscriptions when not given
        #[arg(long, value_enum, value_name = "WHAT")]
        only: Option<PurgeKind>,
        /// The kept messages too, which are done or have failed
        #[arg(long)]
        kept: bool,
    },
    /// Requeue, move or delete messages, in a task that the service runs: the failed ones, or others by a filter
    Redrive(RedriveArgs),
    /// List the latest tasks of a queue, or cancel one
    Tasks {
        /// Its name
        queue: String,
        /// Cancel this task; the messages that it has changed stay so
        #[arg(long, value_name = "ID")]
        cancel: Option<String>,
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
        /// Forwarded messages too that cannot leave the queue; the pool of the queue need not be reachable
        #[arg(long)]
        force: bool,
    },
}

/// Resource type of a purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum PurgeKind {
    Messages,
    Subscriptions,
    Kept,
}

pub(super) fn run(args: &QueueArgs) -> Result<(), Failure> {
    let remote = args.caller.remote()?;
    match &args.command {
        QueueCommand::List { extent, detailed, no_stats } => {
            list(&args.caller, &remote, extent, Columns { detailed: *detailed, counted: !no_stats })
        }
        QueueCommand::Create { queues, settings, allow_unknown } => {
            if !allow_unknown {
                attributes::check(settings.iter().map(|setting| setting.key.as_str()))?;
            }
            create(args, &remote, queues, settings)
        }
        QueueCommand::Show { queue } => show(&args.caller, &remote, queue),
        QueueCommand::Stats { queues } => stats(&args.caller, &remote, queues),
        QueueCommand::Explain { queue } => explain(&args.caller, &remote, queue),
        QueueCommand::Hold { group, terms } => {
            holdable(&terms.name, group.as_deref()).hold(&remote, &mut args.caller.printer(), terms)
        }
        QueueCommand::Release { queue, group } => {
            holdable(queue, group.as_deref()).release(&remote, &mut args.caller.printer())
        }
        QueueCommand::Set { queue, settings, allow_unknown } => {
            if !allow_unknown {
                attributes::check(settings.iter().map(|setting| setting.key.as_str()))?;
            }
            let add = |setting: &Setting| Change::new("add", &setting.key, Some(setting.value.clone()));
            change(args, &remote, queue, settings.iter().map(add).collect())
        }
        QueueCommand::Unset { queue, keys } => {
            let remove = |key: &String| Change::new("remove", key, None);
            change(args, &remote, queue, keys.iter().map(remove).collect())
        }
        QueueCommand::Purge { queues, only, kept } => {
            let mut kinds =
                only.map_or(vec![PurgeKind::Messages, PurgeKind::Subscriptions], |kind| vec![kind]);
            if *kept && *only != Some(PurgeKind::Kept) {
                kinds.push(PurgeKind::Kept);
            }
            purge(args, &remote, queues, &kinds)
        }
        QueueCommand::Redrive(redrive) => queue_tasks::redrive(&args.caller, &remote, redrive),
        QueueCommand::Tasks { queue, cancel: None } => queue_tasks::list(&args.caller, &remote, queue),
        QueueCommand::Tasks { queue, cancel: Some(task) } => {
            queue_tasks::cancel(&args.caller, &remote, queue, task)
        }
        QueueCommand::Migrate(migrate) => migration::migrate(&remote, &mut args.caller.printer(), migrate),
        QueueCommand::Migration { queue } => {
            migration::show_progress(&remote, &mut args.caller.printer(), queue)
        }
        QueueCommand::CancelMigration { queue } => {
            migration::cancel(&remote, &mut args.caller.printer(), queue)
        }
        QueueCommand::Delete { queues, force } => {
            let mut printer = args.caller.printer();
            queues.iter().try_for_each(|queue| {
                let is_missing = notice::is_missing(&remote, queue);
                let force = ("force", force.then(|| "true".to_owned()));
                remote.delete(with_query(&path(queue), &[force]))?;
                if is_missing {
                    notice::tell(&format!("{} did not exist", called(queue)));
                }
                printer.done(&format!("{} is gone", called(queue)), &json!({"name": plain_name(queue)}))
            })
        }
    }
}

/// Before the name of a topic where a queue may be named. No name has a colon.
pub const TOPIC: &str = "topic:";

/// Returns the path of a queue, or of a subscription that is read as one: `QUEUE/ID`. Those of topics are `topic:NAME` and
/// `topic:NAME/ID`.
pub fn path(queue: &str) -> String {
    let topic = queue.strip_prefix(TOPIC);
    let kind = if topic.is_some() { "topics" } else { "queues" };
    let name = topic.unwrap_or(queue);
    match name.split_once('/') {
        Some((source, id)) => format!("/v2/{kind}/{}/subscriptions/{}", encoded(source), encoded(id)),
        None => format!("/v2/{kind}/{}", encoded(name)),
    }
}

/// Returns the words for a queue or a topic in a sentence.
pub fn called(queue: &str) -> String {
    match queue.strip_prefix(TOPIC) {
        Some(topic) => format!("topic {topic}"),
        None => format!("queue {queue}"),
    }
}

/// The name of a queue, or of a topic without its prefix.
fn plain_name(queue: &str) -> &str {
    queue.strip_prefix(TOPIC).unwrap_or(queue)
}

/// Refuses a subscription, `QUEUE/ID`, as the argument of a command for queues alone.
///
/// # Errors
///
/// The reason `why`, as wrong usage.
pub fn refuse_subscription(queue: &str, why: &str) -> Result<(), Failure> {
    match queue.split_once('/') {
        Some((source, _)) => {
            Err(Failure::Usage(format!("{queue} is a subscription of {}: {why}", called(source))))
        }
        None => Ok(()),
    }
}

fn show(caller: &CallerArgs, remote: &Remote, queue: &str) -> Result<(), Failure> {
    let reply = remote.get(path(queue))?;
    if notice::is_of_missing(&reply) {
        notice::tell(&format!("queue {queue} does not exist: these are the defaults of a new one"));
    }
    let metadata: BTreeMap<String, Box<RawValue>> = reply.parse()?;
    let plain = metadata.iter().map(|(key, value)| format!("{key}={}", one_line(value))).collect();
    caller.printer().show(&Display { people: pairs(&metadata), json: reply.json_text()?, plain })?;
    hold::tell_holds(remote, queue);
    Ok(())
}

fn holdable<'a>(queue: &'a str, group: Option<&'a str>) -> Holdable<'a> {
    let of_group = group.map(|group| format!("/groups/{}", encoded(group))).unwrap_or_default();
    let noun = if queue.starts_with(TOPIC) { "topic" } else { "queue" };
    Holdable { noun, name: plain_name(queue), group, path: path(queue) + &of_group }
}

/// Decodes an item of a listing.
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
        let created = remote.call(ApiRequest::new(Method::PUT, path(queue)).json(&metadata)?)?;
        let created = created.status == StatusCode::CREATED;
        let sentence = if created { "is created" } else { "exists already, and stays as it is" };
        printer.done(
            &format!("{} {sentence}", called(queue)),
            &json!({"name": plain_name(queue), "created": created}),
        )?;
    }
    Ok(())
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
    let reply = remote.call(ApiRequest::new(Method::PATCH, path(queue)).json(&changes)?.media(PATCH))?;
    let metadata: BTreeMap<String, Box<RawValue>> = reply.parse()?;
    let plain = metadata.iter().map(|(key, value)| format!("{key}={}", one_line(value))).collect();
    args.caller.printer().show(&Display { people: pairs(&metadata), json: reply.json_text()?, plain })
}

fn purge(args: &QueueArgs, remote: &Remote, queues: &[String], kinds: &[PurgeKind]) -> Result<(), Failure> {
    let mut printer = args.caller.printer();
    queues.iter().try_for_each(|queue| {
        notice::tell_if_missing(remote, queue);
        let request = ApiRequest::new(Method::POST, format!("{}/purge", path(queue)));
        remote.call(request.json(&json!({"resource_types": kinds}))?)?;
        printer.done(&format!("{} is purged", called(queue)), &json!({"name": plain_name(queue)}))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topic_and_its_subscription_have_paths_of_their_own() {
        assert_eq!(path("news"), "/v2/queues/news");
        assert_eq!(path("news/7"), "/v2/queues/news/subscriptions/7");
        assert_eq!(path("topic:news"), "/v2/topics/news");
        assert_eq!(path("topic:news/7"), "/v2/topics/news/subscriptions/7");
        assert_eq!([called("news"), called("topic:news")], ["queue news", "topic news"]);
    }

    #[test]
    fn subscription_is_refused_where_a_queue_is_meant() {
        refuse_subscription("orders", "it is not").unwrap();
        let refused = refuse_subscription("orders/7", "it is not").unwrap_err();
        assert!(
            matches!(refused, Failure::Usage(why) if why.contains("subscription of queue orders: it is not"))
        );
    }
}
