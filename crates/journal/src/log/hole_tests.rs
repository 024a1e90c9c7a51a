//! Tests of missing log files, and of tables whose blocks are damaged while the store is open.
#![allow(clippy::panic, reason = "a test fails by it")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fjall::AbstractTree;
use tempfile::TempDir;

use super::batch::{BatchReader, Next};
use super::tests::{
    GROUPS, await_witness, copy, files, flush, key, killed_after, missing, open, store, value, write,
};
use super::witness::Mark;
use crate::{Journal, JournalError, OpenError, SPACES, Space, StoreCopy, inspect};
use angarium_core::durability::Durability;

const MAX_WAIT: Duration = Duration::from_secs(60);

/// Splits the only log of a store into several files. Each file begins with the first group of `starts`.
fn split(path: &Path, starts: &[u64]) {
    let log = path.join("0.jnl");
    let bytes = fs::read(&log).unwrap();
    let (mut reader, mut ends, mut before) = (BatchReader::new(File::open(&log).unwrap()), Vec::new(), 0);
    while let Next::Batch(batch) = reader.next().unwrap() {
        if batch.position.is_some_and(|position| starts.contains(&position.group)) {
            ends.push(before);
        }
        before = usize::try_from(reader.end()).unwrap();
    }
    assert_eq!(ends.len(), starts.len());
    ends.push(before);
    let mut from = 0;
    for (number, end) in ends.into_iter().enumerate() {
        fs::write(path.join(format!("{number}.jnl")), &bytes[from..end]).unwrap();
        from = end;
    }
}

fn refused(path: &Path) -> String {
    match open(path, false) {
        Err(OpenError::Damaged { damage, .. }) => damage.to_string(),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was opened"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn needed_oldest_log_is_missed() {
    // All writes of `meta` are in tables, those of the other key spaces are not.
    let image = killed_after(|journal| {
        store(journal).unwrap().space(Space::Meta).rotate_memtable_and_wait().unwrap();
    })
    .await;
    split(image.path(), &[21]);
    let whole = tempfile::tempdir().unwrap();
    copy(image.path(), whole.path());
    assert_eq!(missing(&open(whole.path(), false).unwrap()), Vec::<u32>::new());
    fs::remove_file(image.path().join("0.jnl")).unwrap();
    let text = refused(image.path());
    assert!(
        text.contains("1.jnl is damaged at byte 0") && text.contains("log files before it are gone"),
        "{text}"
    );
    let found = inspect(image.path()).unwrap().unwrap();
    assert_eq!(found.damage.len(), 1);
    drop(open(image.path(), true).unwrap());
    let journal = open(image.path(), false).unwrap();
    assert_eq!(missing(&journal), (1..=20).collect::<Vec<_>>());
}

/// A witness of an earlier version, which observed a memtable while its first write was being entered.
#[tokio::test(flavor = "multi_thread")]
async fn unknown_sequence_in_witness_misses_no_log() {
    let image = killed_after(|_| {}).await;
    let mut mark = Mark::read(image.path()).unwrap().unwrap();
    assert!(!mark.unflushed.is_empty());
    mark.unflushed.iter_mut().for_each(|write| write.sequence = 0);
    mark.write(image.path()).unwrap();
    assert_eq!(missing(&open(image.path(), false).unwrap()), Vec::<u32>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn flushed_oldest_log_is_not_missed() {
    let image = killed_after(flush).await;
    split(image.path(), &[21]);
    fs::remove_file(image.path().join("0.jnl")).unwrap();
    assert_eq!(missing(&open(image.path(), false).unwrap()), Vec::<u32>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_behind_a_missing_log_is_accepted_once() {
    let image = killed_after(|_| {}).await;
    split(image.path(), &[15, 25]);
    fs::remove_file(image.path().join("1.jnl")).unwrap();
    let log = image.path().join("2.jnl");
    let mut bytes = fs::read(&log).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&log, &bytes).unwrap();
    let text = refused(image.path());
    assert!(text.contains("1.jnl is damaged") && text.contains("--accept-log-damage"), "{text}");
    drop(open(image.path(), true).unwrap());
    for _ in 0..2 {
        let journal = open(image.path(), false).unwrap();
        assert_eq!(missing(&journal), (15..=GROUPS).collect::<Vec<_>>());
    }
    let kept = files(image.path()).into_iter().find(|file| {
        let text = file.to_string_lossy();
        text.contains("damaged-") && text.ends_with("2.jnl")
    });
    assert_eq!(fs::read(kept.unwrap()).unwrap(), bytes);
}

/// Returns a key of the round that sorts between the keys of the other rounds.
fn mixed(group: u32, round: u32) -> Bytes {
    Bytes::from(format!("mixed {group:03} {round}"))
}

async fn write_round(journal: &Journal, round: u32) -> Result<(), JournalError> {
    let writes = move |txn: &mut crate::Txn<'_>| {
        for group in 1..=GROUPS {
            txn.put(Space::Entries, mixed(group, round), value(group));
        }
    };
    journal.commit_as(Durability::Sync, writes).await
}

async fn write_round_in_time(journal: &Journal, round: u32) {
    let start = Instant::now();
    while let Err(error) = write_round(journal, round).await {
        assert!(start.elapsed() < MAX_WAIT, "{error}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Flushes the key space of entries, unless the journal is being opened again.
fn flush_entries(journal: &Journal) {
    if let Ok(store) = store(journal) {
        _ = store.space(Space::Entries).rotate_memtable_and_wait();
    }
}

fn tables(journal: &Journal) -> Vec<PathBuf> {
    let store = store(journal).unwrap();
    let tables = store.space(Space::Entries).tree.tree_config().path.join("tables");
    files(&tables)
}

/// Returns an open store with one table of entries that has a wrong bit in the middle.
async fn with_damaged_table(dir: &TempDir) -> Journal {
    let journal = open(dir.path(), false).unwrap();
    write(&journal, 1, Durability::Sync).await;
    write_round(&journal, 0).await.unwrap();
    flush_entries(&journal);
    let [table] = &tables(&journal)[..] else { panic!("{:?}", tables(&journal)) };
    let mut bytes = fs::read(table).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    fs::write(table, bytes).unwrap();
    journal
}

/// Counts the keys of the first round that are refused as damaged. All others must be right.
fn refused_keys(journal: &Journal) -> usize {
    let view = journal.view().unwrap();
    let mut refused = 0;
    for group in 1..=GROUPS {
        match view.get(Space::Entries, &mixed(group, 0)) {
            Ok(found) => assert_eq!(found, Some(value(group)), "{group}"),
            Err(JournalError::Damaged(_)) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    let scanned: Vec<_> = view.scan(Space::Entries, b"mixed", b"mixed").collect();
    let failed = scanned.iter().filter(|pair| matches!(pair, Err(JournalError::Damaged(_)))).count();
    assert_eq!(failed > 0, refused > 0);
    let reversed = view.range(Space::Entries, b"mixed", b"mixee").rev().any(|pair| pair.is_err());
    assert_eq!(reversed, refused > 0);
    refused
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_block_is_refused_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let journal = with_damaged_table(&dir).await;
    assert_eq!(journal.damage(), None);
    let refused = refused_keys(&journal);
    assert!((1..=4).contains(&refused), "{refused}");
    let met = journal.damage().unwrap();
    assert!(met.reads > 1 && met.places == 1 && met.text.contains("doctor --data"), "{met:?}");
    assert!(met.text.contains("entries"), "{met:?}");
    // Work that reads a damaged key is refused, other work is not.
    let damaged = (1..=GROUPS).find(|group| journal.get(Space::Entries, &mixed(*group, 0)).is_err()).unwrap();
    let read = journal.commit(move |txn| txn.get(Space::Entries, &mixed(damaged, 0))).await.unwrap();
    assert!(matches!(read, Err(JournalError::Damaged(_))), "{read:?}");
    write(&journal, 2, Durability::Sync).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn merge_of_a_damaged_table_ends_no_other_work() {
    let dir = tempfile::tempdir().unwrap();
    let journal = with_damaged_table(&dir).await;
    let before = refused_keys(&journal);
    // The store merges overlapping tables once it has a few of them.
    let ranges = dir.path().join("damaged-ranges");
    let start = Instant::now();
    let mut round = 1;
    while !ranges.exists() {
        assert!(start.elapsed() < MAX_WAIT, "no merge met the damage");
        write_round_in_time(&journal, round % 9 + 1).await;
        flush_entries(&journal);
        round += 1;
    }
    write_round_in_time(&journal, 1).await;
    let after = refused_keys(&journal);
    assert!(after >= before && after <= before + 2, "{before} became {after}");
    for _ in 0..6 {
        write_round_in_time(&journal, 2).await;
        flush_entries(&journal);
    }
    let merged = store(&journal).unwrap().space(Space::Entries).major_compact();
    assert!(merged.is_ok(), "{merged:?}");
    assert_eq!(refused_keys(&journal), after);
    drop(journal);
    assert_eq!(refused_keys(&open(dir.path(), false).unwrap()), after);
    let found = inspect(dir.path()).unwrap().unwrap();
    assert!(found.damage.iter().all(|damage| damage.file == ranges) && !found.damage.is_empty());
    // Without the list the keys would be absent without an error.
    let list = fs::read(&ranges).unwrap();
    fs::remove_file(&ranges).unwrap();
    assert!(refused(dir.path()).contains("damaged-ranges"));
    fs::write(&ranges, list).unwrap();
    let journal = open(dir.path(), true).unwrap();
    let absent =
        (1..=GROUPS).filter(|group| journal.get(Space::Entries, &mixed(*group, 0)).unwrap().is_none());
    assert!((1..=after).contains(&absent.count()));
    drop(journal);
    drop(open(dir.path(), false).unwrap());
}

/// Waits until the file lists the keys of all tables.
async fn await_keys(dir: &Path, journal: &Journal) {
    let start = Instant::now();
    let count = || {
        let store = store(journal).unwrap();
        SPACES[1..].iter().map(|(space, _)| store.space(*space).table_count()).sum::<usize>()
    };
    let listed =
        || fs::read_to_string(dir.join("table-keys")).unwrap_or_default().matches("\ntable ").count();
    while listed() != count() {
        assert!(start.elapsed() < MAX_WAIT, "{} of {} tables are listed", listed(), count());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn table_without_readable_block_takes_its_keys_alone() {
    for is_open in [true, false] {
        for left in [Some(&[0xa5; 20_000][..]), Some(&[]), None] {
            let dir = tempfile::tempdir().unwrap();
            let journal = with_damaged_table(&dir).await;
            let [table] = &tables(&journal)[..] else { panic!("{:?}", tables(&journal)) };
            let table = table.clone();
            // The second case damages only the first block, whose header states its length.
            let bytes = fs::read(&table).unwrap();
            let first = 33 + u32::from_le_bytes(bytes[21..25].try_into().unwrap()) as usize;
            let (is_cut, left) = (left.is_none(), left.unwrap_or(&bytes[..first]));
            let outside = Bytes::from_static(b"zzz");
            let put = outside.clone();
            journal.commit(move |txn| txn.put(Space::Entries, put.clone(), put)).await.unwrap();
            await_keys(dir.path(), &journal).await;
            let journal = if is_open {
                fs::write(&table, left).unwrap();
                let (start, mut round) = (Instant::now(), 1);
                while !dir.path().join("damaged-ranges").exists() {
                    assert!(start.elapsed() < MAX_WAIT, "no merge was mended");
                    write_round_in_time(&journal, round % 9 + 1).await;
                    flush_entries(&journal);
                    round += 1;
                }
                write_round_in_time(&journal, 2).await;
                journal
            } else {
                drop(journal);
                fs::write(&table, left).unwrap();
                let found = inspect(dir.path()).unwrap().unwrap();
                assert!(found.damage.iter().any(|damage| damage.file == table), "{:?}", found.damage);
                let journal = open(dir.path(), false).unwrap();
                write_round(&journal, 2).await.unwrap();
                journal
            };
            let view = journal.view().unwrap();
            for group in 1..=GROUPS {
                let found = view.get(Space::Entries, &mixed(group, 0));
                match found {
                    Err(JournalError::Damaged(_)) => {}
                    Ok(found) if is_cut && found == Some(value(group)) => {}
                    found => panic!("{group}: {found:?}, {left:?}"),
                }
            }
            assert!(view.get(Space::Entries, &mixed(GROUPS, 0)).is_err());
            assert_eq!(view.get(Space::Entries, &outside).unwrap(), Some(outside.clone()));
            assert_eq!(view.get(Space::Tree, &key(1)).unwrap(), Some(value(1)));
            drop(view);
            drop(journal);
            // The old table itself is kept, and the next start finds the rewritten one.
            let kept =
                files(dir.path()).into_iter().filter(|file| file.to_str().unwrap().contains("-table-"));
            assert!(kept.map(|file| fs::read(file).unwrap()).any(|bytes| bytes == left));
            let journal = open(dir.path(), false).unwrap();
            assert!(journal.get(Space::Entries, &mixed(GROUPS, 0)).is_err());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn table_of_unknown_keys_stops_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let journal = with_damaged_table(&dir).await;
    let [table] = &tables(&journal)[..] else { panic!("{:?}", tables(&journal)) };
    let table = table.clone();
    await_keys(dir.path(), &journal).await;
    drop(journal);
    fs::write(&table, vec![0xa5; 20_000]).unwrap();
    fs::remove_file(dir.path().join("table-keys")).unwrap();
    assert!(refused(dir.path()).contains(table.to_str().unwrap()));
    assert!(!dir.path().join("damaged-ranges").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn copy_of_a_store_is_read_and_the_store_unchanged() {
    let image = killed_after(flush).await;
    let contents = |path: &Path| -> Vec<_> {
        files(path).into_iter().map(|file| (file.clone(), fs::read(file).unwrap())).collect()
    };
    let before = contents(image.path());
    let scratch = tempfile::tempdir().unwrap();
    let copied = StoreCopy::open(image.path(), scratch.path()).unwrap().unwrap();
    for group in 1..=GROUPS {
        assert_eq!(copied.view().get(Space::Tree, &key(group)).unwrap(), Some(value(group)));
    }
    assert!(copied.spaces().iter().any(|(_, name)| *name == "entries"));
    drop(copied);
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
    assert!(before == contents(image.path()), "it was changed");
    await_witness(image.path(), GROUPS);
}

/// The parts of a table beside its data are damaged too: its index, its filter, its metadata, and the list of its
/// parts.
#[tokio::test(flavor = "multi_thread")]
async fn merge_of_a_table_with_other_damage_ends_no_other_work() {
    let dir = tempfile::tempdir().unwrap();
    let journal = with_damaged_table(&dir).await;
    let [table] = &tables(&journal)[..] else { panic!("{:?}", tables(&journal)) };
    let list = sfa::Reader::new(table).unwrap();
    let length = fs::metadata(table).unwrap().len();
    let parts = list.toc().iter().filter(|part| part.name() != b"data" && part.len() > 0);
    let parts: Vec<_> = parts.map(|part| (part.pos(), part.len())).collect();
    assert!(parts.len() >= 3, "{parts:?}");
    for (from, size) in parts.into_iter().chain([(length - 16, 16)]) {
        let dir = tempfile::tempdir().unwrap();
        let journal = with_damaged_table(&dir).await;
        let [table] = &tables(&journal)[..] else { panic!("{:?}", tables(&journal)) };
        let mut bytes = fs::read(table).unwrap();
        let (from, size) = (usize::try_from(from).unwrap(), usize::try_from(size).unwrap());
        bytes[from..from + size].fill(0xa5);
        fs::write(table, bytes).unwrap();
        let (start, mut round) = (Instant::now(), 1);
        while !dir.path().join("damaged-ranges").exists() {
            assert!(start.elapsed() < MAX_WAIT, "no merge was mended, {from} to {}", from + size);
            write_round_in_time(&journal, round % 9 + 1).await;
            flush_entries(&journal);
            round += 1;
        }
        for _ in 0..6 {
            write_round_in_time(&journal, 2).await;
            flush_entries(&journal);
        }
        let refused = refused_keys(&journal);
        assert!((1..=6).contains(&refused), "{refused}, {from} to {}", from + size);
        drop(journal);
        let found = inspect(dir.path()).unwrap().unwrap();
        let ranges = dir.path().join("damaged-ranges");
        assert!(found.damage.iter().any(|damage| damage.file == ranges), "{from}: {:?}", found.damage);
        assert_eq!(refused_keys(&open(dir.path(), false).unwrap()), refused);
    }
}
