//! FIFO queues: their messages are ordered by group, and their names end in `.fifo`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::account::{NAME, wrong_name};
use super::fault::{Fault, Kind};
use super::queue_attributes::{Attributes, TRUTH, invalid, refused, unknown};
use angarium_core::attributes as keys;
use angarium_core::dedup::DedupScope;
use angarium_core::names::{FIFO_SUFFIX, QueueName};
use angarium_core::patch::Entries;
use angarium_core::queue::Metadata;

/// The rule for the name of a FIFO queue.
const FIFO_NAME: &str = "The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, must end with \
                         .fifo suffix and be 1 to 80 in length";

const FIFO: &str = "FifoQueue";
const CONTENT: &str = "ContentBasedDeduplication";
const SCOPE: &str = "DeduplicationScope";
const LIMIT: &str = "FifoThroughputLimit";
const PER_GROUP: &str = "perMessageGroupId";
/// The reason for refusing these two attributes together.
const NEEDS_GROUPS: &str =
    "The perMessageGroupId value is allowed only when the value for DeduplicationScope is messageGroup";

/// The attributes that only FIFO queues have.
pub const NAMES: [&str; 4] = [FIFO, CONTENT, SCOPE, LIMIT];

/// The type of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fifo {
    /// A standard queue.
    No,
    /// A FIFO queue.
    Yes,
}

impl Fifo {
    /// Returns the type of a queue by its name.
    pub fn of(name: &QueueName) -> Self {
        if name.is_fifo() { Self::Yes } else { Self::No }
    }
}

/// Checks that the name and the attributes of a new queue give it the same type.
pub fn check_new(name: &QueueName, attributes: &Attributes) -> Result<(), Fault> {
    let rest = name.as_str().strip_suffix(FIFO_SUFFIX).unwrap_or(name.as_str());
    let is_asked = attributes.get(FIFO).is_some_and(|value| value.eq_ignore_ascii_case("true"));
    if rest.is_empty() || rest.contains('.') {
        return Err(wrong_name(name.as_str(), if is_asked { FIFO_NAME } else { NAME }));
    }
    match Fifo::of(name) {
        Fifo::Yes if !is_asked => Err(wrong_name(name.as_str(), NAME)),
        Fifo::No if is_asked => Err(wrong_name(name.as_str(), FIFO_NAME)),
        _ => check_throughput(attributes, &Throughput::default()),
    }
}

/// Checks that a throughput limit per group is used only with deduplication per group. `before` has the values of
/// attributes that the request does not set.
pub fn check_throughput(attributes: &Attributes, before: &Throughput) -> Result<(), Fault> {
    let by_group = |scope: &String| scope == "messageGroup";
    let is_by_group = attributes.get(SCOPE).map_or(before.scope == DedupScope::Group, by_group);
    let is_per_group = attributes.get(LIMIT).map_or(before.is_per_group, |limit| limit == PER_GROUP);
    match attributes.get(SCOPE) {
        _ if is_by_group || !is_per_group => Ok(()),
        Some(_) if !attributes.contains_key(LIMIT) => Err(refused(SCOPE, NEEDS_GROUPS)),
        _ => Err(refused(LIMIT, NEEDS_GROUPS)),
    }
}

/// The high-throughput settings of a queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct Throughput {
    scope: DedupScope,
    is_per_group: bool,
}

impl Throughput {
    /// Returns the settings of an existing queue.
    pub fn of(metadata: &Metadata) -> Self {
        let own = metadata.own();
        let limit =
            own.get(keys::FIFO_THROUGHPUT).and_then(|limit| serde_json::from_str::<String>(limit.get()).ok());
        Self { scope: metadata.attributes().dedup_scope, is_per_group: limit.as_deref() == Some(PER_GROUP) }
    }
}

/// Returns the metadata key and the value of a FIFO attribute.
pub fn attribute(queue: Fifo, name: &str, value: &str) -> Result<(&'static str, Value), Fault> {
    if queue == Fifo::No {
        let why = format!("You can specify the {name} only when FifoQueue is set to true.");
        let is_unknown = [FIFO, CONTENT].contains(&name);
        return Err(if is_unknown { unknown(name) } else { Fault::new(Kind::InvalidAttributeName, why) });
    }
    let truth = || value.to_ascii_lowercase().parse::<bool>().map_err(|_| invalid(name, value, TRUTH));
    Ok(match (name, value) {
        (FIFO, _) if truth()? => (keys::FIFO, json!(true)),
        (FIFO, _) => return Err(refused(FIFO, "Modifying queue type is not supported")),
        (CONTENT, _) => (keys::CONTENT_DEDUP, json!(truth()?)),
        (SCOPE, "queue") => (keys::DEDUP_SCOPE, json!("queue")),
        (SCOPE, "messageGroup") => (keys::DEDUP_SCOPE, json!("group")),
        (LIMIT, "perQueue" | PER_GROUP) => (keys::FIFO_THROUGHPUT, json!(value)),
        (SCOPE, _) => return Err(invalid(name, value, "queue or messageGroup")),
        _ => return Err(invalid(name, value, "perQueue or perMessageGroupId")),
    })
}

/// Adds the FIFO attributes of a queue, if it is a FIFO queue.
pub fn show(attributes: &keys::Attributes, own: &Entries, shown: &mut BTreeMap<&'static str, String>) {
    if !attributes.is_fifo {
        return;
    }
    let scope = match attributes.dedup_scope {
        DedupScope::Queue => "queue",
        DedupScope::Group => "messageGroup",
    };
    let limit = own.get(keys::FIFO_THROUGHPUT).and_then(|limit| serde_json::from_str(limit.get()).ok());
    shown.insert(FIFO, "true".to_owned());
    shown.insert(CONTENT, attributes.has_content_dedup.to_string());
    shown.insert(SCOPE, scope.to_owned());
    shown.insert(LIMIT, limit.unwrap_or_else(|| "perQueue".to_owned()));
}
