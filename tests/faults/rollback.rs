//! Owns the undoing of writes that never reached the disk: reads the shim's log, decides which unsynced
//! writes survive, and takes the others back. It never undoes what a completed sync covers, and never
//! creates or removes a file (see `powercut.c` for what is modelled).

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use rand::Rng;
use rand::rngs::StdRng;

const HEADER: usize = 64;
const MAGIC: u32 = 0x5043_5554;
const UNDO: u32 = 1;
const SYNCED: u32 = 2;
const SYNCED_ALL: u32 = 3;
const FORGOTTEN: u32 = 4;

/// Which of the unsynced writes had reached the disk when the power went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survival {
    Nothing,
    /// The first ones over all files, some number of them; the last of these may be torn.
    Prefix,
    /// The same for each file by itself: disks do not keep files in step.
    PrefixOfEachFile,
}

/// What a power cut did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Damage {
    /// Completed syncs in the log. None means that the shim saw nothing.
    pub syncs: usize,
    /// Writes and changes of size taken back.
    pub undone: usize,
    /// Writes that ended in their middle.
    pub torn: usize,
}

/// Inode and birth time: stays the same through renames, and no later file has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FileId {
    inode: u64,
    born_s: u64,
    born_ns: u64,
}

/// One change of a file, with what it takes to undo it.
struct Change<'a> {
    file: FileId,
    /// Where its record begins in the log.
    position: u64,
    offset: u64,
    /// 0: a change of size, which cannot be torn.
    length: u64,
    old_size: u64,
    old_bytes: &'a [u8],
}

#[derive(Default)]
struct Log<'a> {
    changes: Vec<Change<'a>>,
    syncs: usize,
    /// Changes of the file before this position are durable.
    durable: HashMap<FileId, u64>,
    durable_all: u64,
    /// Changes of the file between two positions that a failed sync has made the system forget.
    forgotten: Vec<(FileId, u64, u64)>,
}

pub fn roll_back(dir: &Path, log: &[u8], survival: Survival, dice: &mut StdRng) -> Damage {
    let log = Log::read(log);
    let paths = paths_by_id(dir);
    let mut damage = Damage { syncs: log.syncs, ..Damage::default() };
    for unsynced in log.unsynced(survival) {
        let survivors = match survival {
            Survival::Nothing => 0,
            Survival::Prefix | Survival::PrefixOfEachFile => dice.random_range(0..=unsynced.len()),
        };
        let (kept, gone) = unsynced.split_at(survivors);
        for change in gone.iter().rev() {
            damage.undone += usize::from(change.undo(&paths));
        }
        let torn = kept.last().filter(|last| last.length > 0 && dice.random_bool(0.5));
        damage.torn +=
            torn.map_or(0, |last| usize::from(last.tear(dice.random_range(0..last.length), &paths)));
    }
    damage
}

/// The completed syncs in a log.
pub fn count_syncs(log: &[u8]) -> usize {
    Log::read(log).syncs
}

impl<'a> Log<'a> {
    /// A last record that is cut off was being written when the process died: its write had not begun.
    fn read(bytes: &'a [u8]) -> Self {
        let mut log = Self::default();
        let mut at = 0;
        while let Some(header) = bytes.get(at..at + HEADER) {
            let word = |place: usize| u64::from_ne_bytes(eight(&header[8 + 8 * place..]));
            let (magic, kind) = (u32::from_ne_bytes(four(header)), u32::from_ne_bytes(four(&header[4..])));
            assert_eq!(magic, MAGIC, "the log is out of step at {at}");
            let file = FileId { inode: word(0), born_s: word(1), born_ns: word(2) };
            let (offset, length, old_size) = (word(3), word(4), word(5));
            let end = at + HEADER + usize::try_from(word(6)).expect("a 64-bit system");
            let Some(old_bytes) = bytes.get(at + HEADER..end) else { break };
            let position = at as u64;
            match kind {
                UNDO => log.changes.push(Change { file, position, offset, length, old_size, old_bytes }),
                SYNCED | SYNCED_ALL => log.add_sync(kind, file, offset),
                FORGOTTEN => log.forgotten.push((file, log.durable(file), offset)),
                _ => panic!("unknown kind {kind} in the log at {at}"),
            }
            at = end;
        }
        log
    }

    fn add_sync(&mut self, kind: u32, file: FileId, began: u64) {
        self.syncs += 1;
        let durable = match kind {
            SYNCED_ALL => &mut self.durable_all,
            _ => self.durable.entry(file).or_default(),
        };
        *durable = began.max(*durable);
    }

    /// Up to where changes of the file are durable.
    fn durable(&self, file: FileId) -> u64 {
        self.durable.get(&file).copied().unwrap_or_default().max(self.durable_all)
    }

    /// Whether no sync has made the change durable, or one that failed has seen to it that none will.
    fn is_lost(&self, change: &Change) -> bool {
        let is_in = |&(file, from, to): &(FileId, u64, u64)| {
            file == change.file && (from..to).contains(&change.position)
        };
        change.position >= self.durable(change.file) || self.forgotten.iter().any(is_in)
    }

    /// The changes that no sync covers, oldest first, in the groups that survive independently.
    fn unsynced(mut self, survival: Survival) -> Vec<Vec<Change<'a>>> {
        let mut groups: Vec<Vec<Change>> = Vec::new();
        let mut group_of = HashMap::new();
        let mut changes = std::mem::take(&mut self.changes);
        changes.retain(|change| self.is_lost(change));
        for change in changes {
            let key = (survival == Survival::PrefixOfEachFile).then_some(change.file);
            let group = *group_of.entry(key).or_insert(groups.len());
            if group == groups.len() {
                groups.push(Vec::new());
            }
            groups[group].push(change);
        }
        groups
    }
}

impl Change<'_> {
    /// Whether the file still exists.
    fn undo(&self, paths: &HashMap<FileId, PathBuf>) -> bool {
        let Some(file) = self.open(paths) else { return false };
        set_size(&file, self.old_size);
        write_at(&file, self.old_bytes, self.offset);
        true
    }

    /// Keeps the first `keep` bytes of a write that is the last one of its file. Whether that exists.
    fn tear(&self, keep: u64, paths: &HashMap<FileId, PathBuf>) -> bool {
        let Some(file) = self.open(paths) else { return false };
        let size = file.metadata().expect("the file is open").len();
        set_size(&file, size.min(self.offset + keep).max(self.old_size));
        let kept = usize::try_from(keep).expect("a 64-bit system").min(self.old_bytes.len());
        write_at(&file, &self.old_bytes[kept..], self.offset + kept as u64);
        true
    }

    fn open(&self, paths: &HashMap<FileId, PathBuf>) -> Option<File> {
        let path = paths.get(&self.file)?;
        Some(OpenOptions::new().write(true).open(path).expect("the file was listed just now"))
    }
}

fn paths_by_id(dir: &Path) -> HashMap<FileId, PathBuf> {
    let mut paths = HashMap::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).expect("the directory exists") {
            let entry = entry.expect("the directory can be read");
            let metadata = entry.metadata().expect("nobody else is in the directory");
            if metadata.is_dir() {
                dirs.push(entry.path());
                continue;
            }
            let born = metadata.created().expect("the shim has checked for birth times");
            let born = born.duration_since(UNIX_EPOCH).expect("files are younger than 1970");
            let (born_s, born_ns) = (born.as_secs(), u64::from(born.subsec_nanos()));
            paths.insert(FileId { inode: metadata.ino(), born_s, born_ns }, entry.path());
        }
    }
    paths
}

fn set_size(file: &File, size: u64) {
    file.set_len(size).expect("the file can be resized");
}

fn write_at(file: &File, bytes: &[u8], offset: u64) {
    file.write_all_at(bytes, offset).expect("the file can be written");
}

fn four(bytes: &[u8]) -> [u8; 4] {
    bytes[..4].try_into().expect("four bytes")
}

fn eight(bytes: &[u8]) -> [u8; 8] {
    bytes[..8].try_into().expect("eight bytes")
}
