//! Tests with every kind of damage in every kind of file after the process was killed: either the store is not opened,
//! or nothing is missing.

use std::any::Any;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tempfile::TempDir;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::file_journal::FileJournal;
use crate::limits;
use crate::store::Store;
use crate::{Journal, JournalError, JournalOptions, OpenError, SPACES, Space};
use angarium_clock::Clock;
use angarium_core::durability::Durability;

const PAGE: usize = 4_096;
pub(super) const GROUPS: u32 = 40;
/// Bytes of a log that are copied: more than these tests write, and less than the length of a new log.
const LONGEST: u64 = 1 << 20;

/// Whether key spaces are flushed to tables while the groups are written.
#[derive(Clone, Copy, PartialEq)]
enum Tables {
    None,
    Some,
}

pub(super) fn key(group: u32) -> Bytes {
    Bytes::from(format!("key {group}"))
}

pub(super) fn value(group: u32) -> Bytes {
    // Bytes that do not compress.
    (0..375_u64).flat_map(|part| xxh3_64_with_seed(&part.to_le_bytes(), group.into()).to_le_bytes()).collect()
}

pub(super) async fn write(journal: &Journal, group: u32, durability: Durability) {
    let write = journal.commit_as(durability, move |txn| {
        txn.put(Space::Tree, key(group), value(group));
        txn.put(Space::Entries, key(group), value(group));
    });
    write.await.unwrap();
}

/// Returns the open store of a journal in files.
pub(crate) fn store(journal: &Journal) -> Result<Arc<Store>, JournalError> {
    let backend: &dyn Any = &*journal.backend;
    backend.downcast_ref::<FileJournal>().unwrap().current.store()
}

pub(super) fn flush(journal: &Journal) {
    let store = store(journal).unwrap();
    for (space, _) in SPACES {
        store.space(space).rotate_memtable_and_wait().unwrap();
    }
}

/// Returns what a killed process leaves of a store with groups 1 to [`GROUPS`], all of them witnessed, after `last` ran
/// on it. The witness recorded the first groups before the others were written.
pub(super) async fn killed_after(last: impl FnOnce(&Journal)) -> TempDir {
    let (dir, image) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let journal = Journal::open(dir.path(), &Clock::manual(1_000)).unwrap();
    for group in 1..=GROUPS {
        write(&journal, group, Durability::Sync).await;
        if group == 5 {
            await_witness(dir.path(), group);
        }
    }
    last(&journal);
    await_witness(dir.path(), GROUPS);
    // The witness records later flushes a moment later.
    std::thread::sleep(2 * limits::WITNESS_PAUSE);
    copy(dir.path(), image.path());
    drop(journal);
    image
}

/// Returns what a killed process leaves of a store with groups 1 to [`GROUPS`], all of them witnessed.
async fn killed(tables: Tables) -> TempDir {
    let (dir, image) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let journal = Journal::open(dir.path(), &Clock::manual(1_000)).unwrap();
    for group in 1..=GROUPS {
        write(&journal, group, Durability::Sync).await;
        if tables == Tables::Some && group == GROUPS / 2 {
            flush(&journal);
        }
    }
    await_witness(dir.path(), GROUPS);
    copy(dir.path(), image.path());
    drop(journal);
    image
}

pub(super) fn await_witness(path: &Path, group: u32) {
    let (start, wanted) = (Instant::now(), format!("group={group} "));
    while !fs::read_to_string(path.join("log-witness")).unwrap().contains(&wanted) {
        assert!(start.elapsed() < Duration::from_secs(30), "group {group} is not witnessed");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub(super) fn files(path: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path).unwrap() {
        let entry = entry.unwrap().path();
        if entry.is_dir() { found.extend(files(&entry)) } else { found.push(entry) }
    }
    found.sort();
    found
}

/// Copies all files, except most of the zeros at the end of a log.
pub(super) fn copy(from: &Path, to: &Path) {
    for file in files(from) {
        let target = to.join(file.strip_prefix(from).unwrap());
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        let mut bytes = Vec::new();
        File::open(&file).unwrap().take(LONGEST).read_to_end(&mut bytes).unwrap();
        fs::write(&target, &bytes).unwrap();
    }
    fs::create_dir_all(to.join("keyspaces")).unwrap();
}

fn used(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

pub(super) fn open(path: &Path, accept_damage: bool) -> Result<Journal, OpenError> {
    let options = JournalOptions { accept_damage, ..JournalOptions::default() };
    Journal::open_with(path, &Clock::manual(1_000), options)
}

/// Returns the groups that are missing without an error. A failed read is an error.
pub(super) fn missing(journal: &Journal) -> Vec<u32> {
    let is_missing = |group: &u32| {
        [Space::Tree, Space::Entries]
            .into_iter()
            .any(|space| journal.get(space, &key(*group)).is_ok_and(|found| found != Some(value(*group))))
    };
    (1..=GROUPS).filter(is_missing).collect()
}

/// Returns the possible damages of a file with these `bytes`, each with its name and the remaining contents.
fn damages(bytes: &[u8]) -> Vec<(String, Option<Vec<u8>>)> {
    let used = used(bytes);
    let mut left = vec![("removed".to_owned(), None), ("emptied".to_owned(), Some(Vec::new()))];
    let places = [used / 2, 0, used.saturating_sub(1), used / 5, used * 4 / 5];
    for &at in &places[..if used > PAGE { 5 } else { 2 }] {
        let mut flipped = bytes.to_vec();
        if let Some(byte) = flipped.get_mut(at) {
            *byte ^= 0x10;
        }
        left.push((format!("bit at {at}"), Some(flipped)));
        let mut zeroed = bytes.to_vec();
        let page = at / PAGE * PAGE..(at / PAGE * PAGE + PAGE).min(bytes.len());
        zeroed[page].fill(0);
        left.push((format!("zero page at {at}"), Some(zeroed)));
        left.push((format!("cut at {at}"), Some(bytes[..at].to_vec())));
    }
    if used > 4 * PAGE {
        let mut swapped = bytes.to_vec();
        let (first, second) = swapped.split_at_mut(2 * PAGE);
        first[PAGE..].swap_with_slice(&mut second[..PAGE]);
        left.push(("pages swapped".to_owned(), Some(swapped)));
    }
    left
}

async fn damage_is_refused_or_harmless(tables: Tables) -> usize {
    let image = killed(tables).await;
    let mut refused = 0;
    // Key spaces behave alike, so three suffice: the one with positions, and with tables the first one and one with
    // values.
    let is_tried = |file: &PathBuf| {
        let text = file.to_string_lossy();
        let is_in = |space: u32| text.contains(&format!("keyspaces/{space}/"));
        match tables {
            Tables::None => !text.contains("keyspaces/") || is_in(1),
            Tables::Some => is_in(0) || is_in(5),
        }
    };
    for file in files(image.path()).into_iter().filter(is_tried) {
        let bytes = fs::read(&file).unwrap();
        for (name, left) in damages(&bytes) {
            let copied = tempfile::tempdir().unwrap();
            copy(image.path(), copied.path());
            let target = copied.path().join(file.strip_prefix(image.path()).unwrap());
            match left {
                Some(left) => fs::write(&target, left).unwrap(),
                None => fs::remove_file(&target).unwrap(),
            }
            match open(copied.path(), false) {
                Ok(journal) => {
                    let lost = missing(&journal);
                    assert!(lost.is_empty(), "{}, {name}: {lost:?} are missing in silence", target.display());
                }
                Err(_) => refused += 1,
            }
        }
    }
    refused
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_of_a_log_is_refused_or_harmless() {
    let refused = damage_is_refused_or_harmless(Tables::None).await;
    assert!(refused > 20, "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_of_tables_is_refused_or_harmless() {
    let refused = damage_is_refused_or_harmless(Tables::Some).await;
    assert!(refused > 20, "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tail_of_another_store_is_refused() {
    let (own, other) = (killed(Tables::None).await, killed(Tables::None).await);
    let (log, foreign) = (own.path().join("0.jnl"), fs::read(other.path().join("0.jnl")).unwrap());
    let mut bytes = fs::read(&log).unwrap();
    let middle = used(&bytes) / 2;
    bytes[middle..].copy_from_slice(&foreign[middle..]);
    fs::write(&log, bytes).unwrap();
    assert!(matches!(open(own.path(), false), Err(OpenError::Damaged { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_store_is_unchanged_and_opens_when_accepted() {
    let image = killed(Tables::None).await;
    let log = image.path().join("0.jnl");
    let mut bytes = fs::read(&log).unwrap();
    let middle = used(&bytes) / 2;
    bytes[middle] ^= 1;
    fs::write(&log, &bytes).unwrap();
    for _ in 0..2 {
        let error = open(image.path(), false).map(|_| ()).unwrap_err();
        let damage = match error {
            OpenError::Damaged { damage, .. } => Some(damage),
            _ => None,
        };
        let damage = damage.expect("the log is damaged");
        assert_eq!(damage.file, log);
        assert!(
            damage.lost_groups >= u64::from(GROUPS) / 2 - 2
                && damage.to_string().contains("--accept-log-damage")
        );
        assert!((damage.offset as usize) <= middle && damage.offset > 0, "{damage}");
        assert!(fs::read(&log).unwrap() == bytes, "it was changed");
    }
    drop(open(image.path(), true).unwrap());
    let journal = open(image.path(), false).unwrap();
    let lost = missing(&journal);
    assert!(!lost.is_empty() && lost == (lost[0]..=GROUPS).collect::<Vec<_>>(), "{lost:?}");
    write(&journal, GROUPS + 1, Durability::Sync).await;
    drop(journal);
    let copied =
        files(image.path()).into_iter().find(|file| file.to_string_lossy().contains("damaged-")).unwrap();
    assert!(bytes[..used(&bytes)].ends_with(&fs::read(copied).unwrap()));
    let journal = open(image.path(), false).unwrap();
    assert_eq!(journal.get(Space::Tree, &key(GROUPS + 1)).unwrap(), Some(value(GROUPS + 1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn torn_tail_of_relaxed_groups_is_cut() {
    let image = killed(Tables::None).await;
    let journal = open(image.path(), false).unwrap();
    for group in GROUPS + 1..=GROUPS + 4 {
        write(&journal, group, Durability::Relaxed).await;
    }
    let torn = tempfile::tempdir().unwrap();
    copy(image.path(), torn.path());
    let log = torn.path().join("0.jnl");
    let mut bytes = fs::read(&log).unwrap();
    // A page in the middle of the unsynced groups did not reach the disk; the pages after it did.
    let at = used(&bytes) - 2 * 6_200;
    bytes[at..at + 2_000].fill(0);
    fs::write(&log, bytes).unwrap();
    let journal = open(torn.path(), false).unwrap();
    assert_eq!(missing(&journal), Vec::<u32>::new());
    assert_eq!(journal.get(Space::Tree, &key(GROUPS + 4)).unwrap(), None);
    write(&journal, GROUPS + 4, Durability::Sync).await;
    drop(journal);
    let journal = open(torn.path(), false).unwrap();
    assert_eq!(journal.get(Space::Tree, &key(GROUPS + 4)).unwrap(), Some(value(GROUPS + 4)));
}

#[tokio::test(flavor = "multi_thread")]
async fn store_reopens_after_flushes_and_restarts() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..3 {
        let journal = open(dir.path(), false).unwrap();
        for group in 1..=GROUPS {
            write(&journal, group, if group % 3 == 0 { Durability::Sync } else { Durability::Relaxed }).await;
            if round % 2 == 1 && group % 9 == 0 {
                flush(&journal);
            }
        }
        assert!(missing(&journal).is_empty());
        let killed = tempfile::tempdir().unwrap();
        copy(dir.path(), killed.path());
        let found = missing(&open(killed.path(), false).unwrap());
        assert!(found.is_empty(), "round {round}: {found:?}");
    }
}
