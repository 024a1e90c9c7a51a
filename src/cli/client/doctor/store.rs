//! The embedded stores below a data directory, read as a whole: their logs and their tables.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::Check;
use crate::journal::{Inspection, inspect};

/// How deep below the data directory a store of a pool may be.
const DEPTH: usize = 4;
/// Damaged places that are told of one store; the rest is counted.
const TOLD: usize = 20;
/// The file that a store has.
const VERSION: &str = "version";
const LOCK: &str = "lock";

/// Checks of each store below `data`.
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
    match inspect(store) {
        Ok(Some(found)) => told(&name, &found),
        Ok(None) => Vec::new(),
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            vec![Check::skipped(&name, "a service has it open: stop the service to have all of it read")]
        }
        Err(error) => {
            vec![Check::wrong(&name, error.to_string(), "can this user read it, and does the disk?")]
        }
    }
}

fn told(name: &str, found: &Inspection) -> Vec<Check> {
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
    let mut checks: Vec<_> = (found.damage.iter().take(TOLD))
        .map(|damage| {
            Check::wrong(
                name,
                format!("{} at byte {}: {}", damage.file.display(), damage.offset, damage.found),
                advice,
            )
        })
        .collect();
    if found.damage.len() > TOLD {
        checks.push(Check::wrong(name, format!("{} more places", found.damage.len() - TOLD), advice));
    }
    checks
}
