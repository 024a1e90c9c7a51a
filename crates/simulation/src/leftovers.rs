//! The judge of what a run leaves behind: once all queues are empty, no pool has a message and the tree has no claim
//! and no deleted queue that is still to be cleaned.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use angarium_storage::embedded::{AuditedQueue, audit};
use bytes::Bytes;
use parking_lot::Mutex;

use crate::cluster::Cluster;
use crate::history::History;

/// How long the brokers may take to clean up.
const CLEANING: Duration = Duration::from_secs(400);

/// In a path, behind the name of a topic, or of the source of a subscription.
const MARK: &str = "%7e";

/// Waits until nothing is left, and notes what stays.
///
/// With `keeps_abandoned`, pools were removed with the messages in them, and the storages still have these.
pub async fn check(cluster: &Cluster, history: &Arc<Mutex<History>>, keeps_abandoned: bool) {
    let end = cluster.world().elapsed() + CLEANING;
    loop {
        let left = leftovers(cluster, keeps_abandoned);
        if left.is_empty() {
            return;
        }
        if cluster.world().elapsed() > end {
            left.into_iter().take(3).for_each(|text| history.lock().violation(text));
            return;
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
}

fn leftovers(cluster: &Cluster, keeps_abandoned: bool) -> Vec<String> {
    let mut left = Vec::new();
    let storages = if keeps_abandoned { Vec::new() } else { cluster.storages().all() };
    for storage in storages {
        let queues = storage.snapshot().queues;
        let filled = queues.iter().filter(|(_, held)| !held.entries.is_empty());
        left.extend(filled.map(|(queue, held)| {
            format!("pool {} has {} messages of queue {queue:?} left", storage.name(), held.entries.len())
        }));
    }
    let view = cluster.journal().and_then(|journal| journal.view().ok());
    if cluster.is_embedded() && view.is_none() {
        left.push("the embedded store is not open".into());
    }
    if let Some(view) = view {
        let audit = audit(&view);
        let is_left = |queue: &&AuditedQueue| queue.counted.messages > 0 || !queue.is_whole();
        left.extend(
            audit.queues.iter().filter(is_left).map(|queue| format!("the embedded pool has {queue:?}")),
        );
        if audit.shared_bodies > 0 {
            left.push(format!("the embedded pool has {} bodies of no message", audit.shared_bodies));
        }
        left.extend(audit.unlisted);
    }
    let tree = cluster.nodes();
    left.extend(orphans(&tree));
    if !keeps_abandoned {
        left.extend(unnamed(cluster, &tree));
    }
    left.extend(tree.keys().filter(|path| is_leftover(path)).map(|path| format!("the tree has {path} left")));
    left
}

/// The subscriptions in the tree whose queue or topic is gone.
fn orphans(tree: &BTreeMap<String, Bytes>) -> Vec<String> {
    let is_orphan = |path: &&String| {
        let (["", "queues", ..], Some((source, id))) =
            (&path.split('/').collect::<Vec<_>>()[..], path.rsplit_once(MARK))
        else {
            return false;
        };
        !id.is_empty() && !tree.contains_key(source)
    };
    tree.keys().filter(is_orphan).map(|path| format!("the tree has {path}, and not its source")).collect()
}

/// The data in pools of queues that the tree does not have.
fn unnamed(cluster: &Cluster, tree: &BTreeMap<String, Bytes>) -> Vec<String> {
    let id_of = |(path, data): (&String, &Bytes)| {
        let ["", "queues", _, _, _] = path.split('/').collect::<Vec<_>>()[..] else { return None };
        let record: serde_json::Value = serde_json::from_slice(data).ok()?;
        Some(record["id"].as_str()?.to_owned())
    };
    let named: BTreeSet<String> = tree.iter().filter_map(id_of).collect();
    let mut left = Vec::new();
    for storage in cluster.storages().all() {
        let queues = storage.snapshot().queues;
        let unnamed = queues.keys().map(ToString::to_string).filter(|queue| !named.contains(queue));
        left.extend(
            unnamed.map(|queue| format!("pool {} has data of the deleted queue {queue}", storage.name())),
        );
    }
    left
}

/// Whether a node is that of a claim or of a deleted queue.
fn is_leftover(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    matches!(parts[..], ["", "run", _, "claims", _, _] | ["", "run", _, "dropped", _])
}
