//! Checks of the embedded stores below a data directory. Each store is read completely: its logs, its tables, and its
//! messages, which are counted again.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::Check;
use angarium_coordination::nodes_on_disk;
use angarium_core::queue::Metadata;
use angarium_journal::{Inspection, StoreCopy, inspect};
use angarium_storage::Totals;
use angarium_storage::open::{Audit, AuditedQueue, audit};

/// Max depth of a pool's store below the data directory.
const DEPTH: usize = 4;
/// Max damaged places that are listed per store. The others are only counted.
const MAX_FINDINGS: usize = 20;
/// A file that every store has.
const VERSION: &str = "version";
const LOCK: &str = "lock";
/// Directory of the queue records in the tree, and the depth of the records.
const QUEUES: &str = "/queues/";
const QUEUE_DEPTH: u8 = 4;

/// Runs the checks of each store below `data`.
pub(super) fn checks(data: &Path) -> Vec<Check> {
    let mut stores = Vec::new();
    find(data, DEPTH, &mut stores);
    stores.sort();
    stores.iter().flat_map(|store| checks_of(data, store)).collect()
}

fn find(directory: &Path, depth: usize, stores: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    for entry in entries.flatten().map(|entry| entry.path()).filter(|entry| entry.is_dir()) {
        let is_store = entry.join("keyspaces").exists() || entry.join(VERSION).exists();
        if is_store && entry.join(LOCK).exists() {
            stores.push(entry);
        } else if depth > 1 {
            find(&entry, depth - 1, stores);
        }
    }
}

fn checks_of(data: &Path, store: &Path) -> Vec<Check> {
    let name = format!("store {}", store.strip_prefix(data).unwrap_or(store).display());
    let found = match inspect(store) {
        Ok(Some(found)) => found,
        Ok(None) => return Vec::new(),
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            return vec![Check::skipped(
                &name,
                "a service has it open: stop the service to have all of it read",
            )];
        }
        Err(error) => {
            return vec![Check::wrong(&name, error.to_string(), "can this user read it, and does the disk?")];
        }
    };
    let copy = StoreCopy::open(store, &std::env::temp_dir());
    let spaces = copy.as_ref().ok().and_then(Option::as_ref).map(StoreCopy::spaces).unwrap_or_default();
    let mut checks = store_checks(&name, &found, &StoreFiles { store, spaces: &spaces });
    checks.extend(count_again(&name, copy));
    checks
}

/// The files of a store and their contents.
struct StoreFiles<'a> {
    store: &'a Path,
    /// Numbers and names of the key spaces, if they are known.
    spaces: &'a [(u64, &'static str)],
}

impl StoreFiles<'_> {
    /// Returns what a damaged file affects, for a person.
    fn affected(&self, file: &Path) -> String {
        let inner = file.strip_prefix(self.store).unwrap_or(file);
        let Ok(inner) = inner.strip_prefix("keyspaces") else { return String::new() };
        let number: Option<u64> = inner.iter().next().and_then(|part| part.to_str()?.parse().ok());
        let Some(number) = number else { return String::new() };
        if number == 0 {
            return " (the names of all key spaces)".to_owned();
        }
        match self.spaces.iter().find(|(known, _)| *known == number) {
            Some((_, name)) => format!(" (key space {name}: {})", holds(name)),
            None => format!(" (key space {number})"),
        }
    }
}

/// Describes the contents of a key space.
fn holds(space: &str) -> &'static str {
    match space {
        "tree" => "queues, claims and pools",
        "records" => "who may write",
        "totals" => "how much queues hold",
        "entries" => "messages that are ready",
        "headers" => "what changed of messages",
        "stamps" => "whose pool it is",
        "aside" => "messages that are not ready",
        "schedule" => "when messages become ready",
        "buckets" => "when messages expire",
        "notes" => "ids of deduplication",
        "groups" => "messages of groups",
        "kept" => "messages that are done or failed",
        "settled" => "when messages were settled",
        _ => "the format and the last write",
    }
}

/// Counts all messages of the store again.
fn count_again(name: &str, copy: io::Result<Option<StoreCopy>>) -> Vec<Check> {
    let name = format!("{name} messages");
    let not_counted = |why: String| {
        let advice = "see what else is wrong with it";
        vec![Check::wrong(&name, format!("its messages cannot be counted: {why}"), advice)]
    };
    let copy = match copy {
        Ok(Some(copy)) => copy,
        Ok(None) => return Vec::new(),
        Err(error) => return not_counted(error.to_string()),
    };
    // Data with a right checksum is decoded by code that trusts it, so that code may panic.
    let audited = catch_unwind(AssertUnwindSafe(|| {
        let view = copy.view();
        (audit(&view), nodes_on_disk(&view, QUEUE_DEPTH, QUEUES))
    }));
    match audited {
        Ok((found, records)) => {
            let mut checks = audited_checks(&name, &found, &names_of(&records));
            checks.extend(ignored_attributes(&records));
            checks
        }
        Err(_) => not_counted("what is stored cannot be understood".to_owned()),
    }
}

fn audited_checks(name: &str, found: &Audit, names: &HashMap<String, String>) -> Vec<Check> {
    let advice = "keep a copy, then restore from a backup";
    let wrong = |queue: &&AuditedQueue| !queue.is_whole();
    let differing = found.queues.iter().filter(wrong).map(|queue| {
        let id = queue.queue.to_string();
        let at = names.get(&id).map_or_else(|| format!("queue {id}"), |path| format!("queue {path}"));
        let messages = queue.counted.messages;
        match (&queue.unreadable[..], queue.stored) {
            ([], Some(stored)) => Check::wrong(
                name,
                format!("{at} holds {}, and its totals say {}", amount(&queue.counted), amount(&stored)),
                "report it; totals are counted again at the next start after a crash",
            ),
            (unreadable, _) => {
                let why = unreadable.join("; ");
                let found = format!("{at} cannot be read whole ({messages} messages can): {why}");
                Check::wrong(name, found, advice)
            }
        }
    });
    let unlisted = found.unlisted.iter().map(|why| Check::wrong(name, why, advice));
    let mut checks: Vec<_> = unlisted.chain(differing).collect();
    if checks.is_empty() {
        let messages: u64 = found.queues.iter().map(|queue| queue.counted.messages).sum();
        let counted = format!(
            "{messages} messages in {} queues were counted, and totals are right",
            found.queues.len()
        );
        return vec![Check::ok(name, counted)];
    }
    shorten(name, checks.split_off(checks.len().min(MAX_FINDINGS)).len(), &mut checks);
    checks
}

fn amount(totals: &Totals) -> String {
    let Totals { messages, bytes, scheduled: delayed, in_transfer, kept, shared, lent } = totals;
    let mut amount = format!(
        "{messages} messages with {bytes} bytes, {delayed} delayed, {in_transfer} in transfer, {kept} kept"
    );
    if *shared > 0 || *lent > 0 {
        amount.push_str(&format!(", {shared} of the bytes shared, {lent} bytes lent"));
    }
    amount
}

/// Returns the paths of queues by their ids, from the records in the tree.
fn names_of(records: &[(String, Bytes)]) -> HashMap<String, String> {
    let named = |(path, data): &(String, Bytes)| {
        let record: serde_json::Value = serde_json::from_slice(data).ok()?;
        let id = record.get("id")?.as_str()?.replace('-', "");
        Some((id, name_of(path)))
    };
    records.iter().filter_map(named).collect()
}

/// Project and queue of the path of a record.
fn name_of(path: &str) -> String {
    path.split('/').skip(3).collect::<Vec<_>>().join("/")
}

/// The part of a record of a queue that a client has written.
#[derive(Deserialize)]
struct StoredMetadata {
    metadata: Box<RawValue>,
}

/// A warning for each queue with stored attributes that have no effect.
fn ignored_attributes(records: &[(String, Bytes)]) -> Vec<Check> {
    let name = "attributes";
    let advice = "replace the value, or remove the key: `angarium queue set`";
    let warning = |(path, data): &(String, Bytes)| {
        let stored: StoredMetadata = serde_json::from_slice(data).ok()?;
        let metadata = Metadata::stored(stored.metadata).ok()?;
        let ignored = metadata.ignored().iter().map(|ignored| format!("{} {}", ignored.key, ignored.why));
        let ignored: Vec<String> = ignored.collect();
        let found = format!("queue {} ignores {}", name_of(path), ignored.join("; "));
        (!ignored.is_empty()).then(|| Check::warning(name, found, advice))
    };
    records.iter().filter_map(warning).collect()
}

/// Adds the number of omitted findings.
fn shorten(name: &str, left_out: usize, checks: &mut Vec<Check>) {
    if left_out > 0 {
        checks.push(Check::wrong(name, format!("{left_out} more"), "see the first ones"));
    }
}

fn store_checks(name: &str, found: &Inspection, files: &StoreFiles<'_>) -> Vec<Check> {
    let read = format!(
        "{} groups in {} logs and {} tables with {} MiB were read",
        found.groups,
        found.logs,
        found.tables,
        found.table_bytes >> 20
    );
    if found.damage.is_empty() {
        return vec![match &found.torn {
            None => Check::ok(name, read),
            Some((log, offset)) => {
                let torn = format!("{read}; {} ends within a write at byte {offset}", log.display());
                Check::warning(name, torn, "none after a power cut: the write was not acknowledged as synced")
            }
        }];
    }
    let advice = "keep a copy, then restore from a backup";
    let mut checks: Vec<_> = (found.damage.iter().take(MAX_FINDINGS))
        .map(|damage| {
            let affected = files.affected(&damage.file);
            let position = format!("{} at byte {}{affected}", damage.file.display(), damage.offset);
            Check::wrong(name, format!("{position}: {}", damage.found), advice)
        })
        .collect();
    shorten(name, found.damage.len().saturating_sub(MAX_FINDINGS), &mut checks);
    checks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_with_other_shared_bodies_are_told_apart() {
        let own = Totals { messages: 1, bytes: 5, ..Totals::default() };
        assert!(amount(&own).ends_with("0 kept"));
        assert!(amount(&Totals { lent: 7, ..own }).ends_with("0 kept, 0 of the bytes shared, 7 bytes lent"));
    }
}
