//! What is kept in memory has the bounds that `docs/architecture/memory.md` states.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use angarium_core::limits;

#[test]
fn budgets_of_memory_are_as_written_down() {
    let page = include_str!("../../docs/architecture/memory.md");
    let rows: Vec<Vec<&str>> = page
        .lines()
        .skip_while(|line| !line.starts_with("|---"))
        .skip(1)
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    let written: Vec<(String, String)> =
        rows.iter().map(|row| (row[0].replace('`', ""), row[1].replace(',', ""))).collect();
    let real: Vec<(String, String)> =
        budgets().iter().map(|(name, most)| ((*name).to_owned(), most.to_string())).collect();
    assert_eq!(written, real);
    assert_eq!(angarium_broker::limits::IDLE_TICK, Duration::from_secs(60));
}

fn budgets() -> Vec<(&'static str, u64)> {
    let count = |count: usize| count as u64;
    vec![
        ("BODY_BYTES", limits::BODY_BYTES.into()),
        ("UNSENT_BYTES", limits::UNSENT_BYTES.into()),
        ("PROBE_CONNECTIONS", count(angarium::server::limits::PROBE_CONNECTIONS)),
        ("READY_CACHES_BYTES", count(angarium_broker::limits::READY_CACHES_BYTES)),
        ("READY_CACHE_BYTES", count(limits::READY_CACHE_BYTES)),
        ("READY_CACHE_MESSAGES", count(angarium_engine::limits::READY_CACHE_MESSAGES)),
        ("AHEAD_MESSAGES", count(angarium_engine::limits::AHEAD_MESSAGES)),
        ("GROUPS_KNOWN", count(angarium_engine::limits::GROUPS_KNOWN)),
        ("FREED_GROUPS", count(angarium_engine::limits::FREED_GROUPS)),
        ("NOISY_KNOWN", count(angarium_engine::limits::NOISY_KNOWN)),
        ("DEDUP_KNOWN", count(limits::DEDUP_KNOWN)),
        ("DEDUP_KNOWN_ALL", count(limits::DEDUP_KNOWN_ALL)),
        ("RECALLS_KNOWN", count(angarium_engine::limits::RECALLS_KNOWN)),
        ("SETTLE_NOTES", count(angarium_broker::limits::SETTLE_NOTES)),
        ("TRANSFER_TARGETS", count(angarium_broker::limits::TRANSFER_TARGETS)),
        ("IN_TRANSFER_KNOWN", count(limits::IN_TRANSFER_KNOWN)),
        ("WAKE_CHANGES", count(angarium_engine::limits::WAKE_CHANGES)),
        ("WRITER_MESSAGES", count(angarium_broker::limits::WRITER_MESSAGES)),
        ("WRITER_BYTES", count(angarium_broker::limits::WRITER_BYTES)),
        ("SLOT_CLAIMS", count(limits::SLOT_CLAIMS)),
        ("QUEUE_WAITERS", count(limits::QUEUE_WAITERS)),
        ("SLOT_WAITERS", count(limits::SLOT_WAITERS)),
        ("OUTCOME_WAITERS", count(limits::OUTCOME_WAITERS)),
        ("WEBHOOK_REQUESTS", count(angarium_broker::limits::WEBHOOK_REQUESTS)),
        ("SUBSCRIPTIONS_OPTIONS_BYTES", count(limits::SUBSCRIPTIONS_OPTIONS_BYTES)),
        ("LISTINGS_IN_LINE", count(limits::LISTINGS_IN_LINE)),
        ("SURVEY_QUEUES", count(angarium_broker::limits::SURVEY_QUEUES)),
        ("NAMED_QUEUES_MAX", count(angarium_metrics::limits::NAMED_QUEUES_MAX)),
        ("SLOT_COUNTED", count(angarium_broker::limits::SLOT_COUNTED)),
        ("COUNTING_CHANGES", count(angarium_broker::limits::COUNTING_CHANGES)),
        ("OLDEST_QUEUES", count(angarium_broker::limits::OLDEST_QUEUES)),
        ("COUNTING_LINE", count(angarium_broker::limits::COUNTING_LINE)),
        ("METERED_QUOTAS", count(angarium_broker::limits::METERED_QUOTAS)),
        ("COUNTED_PROJECTS", count(angarium_broker::limits::COUNTED_PROJECTS)),
        ("RATED_PROJECTS", count(limits::RATED_PROJECTS)),
        ("SQS_PAUSES", count(angarium_broker::limits::SQS_PAUSES)),
        ("KEYSTONE_TOKENS_KNOWN", count(angarium::keystone::limits::KEYSTONE_TOKENS_KNOWN)),
        ("KEYSTONE_REFUSED_KNOWN", count(angarium::keystone::limits::KEYSTONE_REFUSED_KNOWN)),
        ("KEYSTONE_WAITING", count(angarium::keystone::limits::KEYSTONE_WAITING)),
        ("KEYSTONE_ANSWER_BYTES", count(angarium::keystone::limits::KEYSTONE_ANSWER_BYTES)),
        ("PEER_REQUESTS", count(limits::PEER_REQUESTS)),
        ("PEER_ANSWER_BYTES", count(angarium_cluster::limits::PEER_ANSWER_BYTES)),
        ("WEBHOOK_HEADER_BYTES", count(angarium_webhook::limits::WEBHOOK_HEADER_BYTES)),
        ("PEEK_BYTES", count(limits::PEEK_BYTES)),
        ("WATCH_EVENTS", count(angarium_coordination::limits::WATCH_EVENTS)),
        ("TREE_QUEUE", count(angarium_coordination::zookeeper::limits::TREE_QUEUE)),
        ("TREE_READS", count(angarium_coordination::zookeeper::limits::TREE_READS)),
        ("JOURNAL_QUEUE", count(angarium_journal::limits::JOURNAL_QUEUE)),
        ("STORE_TABLE_BYTES", angarium_journal::limits::STORE_TABLE_BYTES),
        ("STORE_CACHE_BYTES", angarium_journal::limits::STORE_CACHE_BYTES),
        ("DAMAGED_PLACES", count(angarium_journal::limits::DAMAGED_PLACES)),
        ("BACKUP_PIECES", count(angarium::server::limits::BACKUP_PIECES)),
        ("BACKUP_FRAME_BYTES", count(angarium_backup::limits::BACKUP_FRAME_BYTES)),
        ("MEND_BYTES", angarium_journal::limits::MEND_BYTES),
        ("SQS_RECEIVE_BYTES", count(limits::SQS_RECEIVE_BYTES)),
        ("TREE_CHILDREN", count(limits::TREE_CHILDREN)),
        ("SWEEP_MESSAGES", count(angarium_broker::limits::SWEEP_MESSAGES)),
        ("RETAINED_IDLE", count(angarium_broker::limits::RETAINED_IDLE)),
        ("IDLE_ROUNDS", angarium_broker::limits::IDLE_ROUNDS.into()),
    ]
}

/// Bounds that speak of memory and bound something else: one answer, a setting, a time, a record in the tree.
const OTHERS: [&str; 5] =
    ["PAGE_MAX", "SQS_IN_FLIGHT_MAX", "DEDUP_SECONDS", "MOVE_TASKS", "PEER_ANSWER_KEPT"];

#[test]
fn bound_of_memory_is_in_the_table() {
    let texts = files_of_limits().into_iter().map(|path| std::fs::read_to_string(path).unwrap());
    let (mut found, mut doc) = (BTreeSet::new(), String::new());
    for line in texts.collect::<String>().lines() {
        if let Some(text) = line.strip_prefix("///") {
            doc += text;
        } else if let Some((name, kind)) =
            line.strip_prefix("pub const ").and_then(|rest| rest.split_once(": "))
        {
            let is_number = ["u8", "u32", "u64", "usize"].iter().any(|number| kind.starts_with(number));
            if is_number && ["memory", "remember"].iter().any(|word| doc.contains(word)) {
                found.insert(name.to_owned());
            }
            doc.clear();
        } else {
            doc.clear();
        }
    }
    let known: BTreeSet<String> =
        budgets().into_iter().map(|(name, _)| name).chain(OTHERS).map(ToOwned::to_owned).collect();
    assert!(found.contains("BODY_BYTES") && found.contains("READY_CACHE_BYTES"), "{found:?}");
    assert_eq!(found.difference(&known).collect::<Vec<_>>(), [""; 0], "they are not in the table");
}

/// The files of bounds: `limits.rs` of each part, and the files of a folder of this name.
fn files_of_limits() -> Vec<PathBuf> {
    let is_of_limits = |path: &Path| {
        let parts = path.iter().rev().take(2).map(|part| part.to_string_lossy());
        parts.into_iter().any(|part| part.trim_end_matches(".rs") == "limits")
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let parts = std::fs::read_dir(root.join("crates")).unwrap().map(|part| part.unwrap().path());
    let mut folders: Vec<PathBuf> = parts.map(|part| part.join("src")).chain([root.join("src")]).collect();
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
            let path = entry.path();
            if entry.file_type().unwrap().is_dir() {
                folders.push(path);
            } else if is_of_limits(&path) {
                files.push(path);
            }
        }
    }
    files
}
