//! Checks of a store, before and after it is opened.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use fjall::{AbstractTree, Keyspace};
use tracing::warn;

use super::batch::{BatchReader, LogBatch, Next};
use super::position::{KEY, Position};
use super::ranges::{self, DamagedRanges};
use super::tail::{self, Rest};
use super::unflushed::Unflushed;
use super::witness::{FILE as WITNESS, Mark};
use super::{CheckError, Damage, Remedy, files, manifest};

/// The readable part of one log file.
#[derive(Debug)]
pub(super) struct LogFile {
    pub(super) path: PathBuf,
    /// Offset after its last whole batch.
    pub(super) end: u64,
    pub(super) rest: Rest,
    /// Why the bytes after `end` are no batch.
    pub(super) found: &'static str,
}

impl LogFile {
    fn is_whole(&self) -> bool {
        self.rest.end == 0
    }
}

/// Result of a scan. The scan changes nothing.
#[derive(Debug, Default)]
pub(crate) struct StoreCheck {
    /// The log files, oldest first.
    pub(super) logs: Vec<LogFile>,
    /// Index of the first log with an unreadable place.
    pub(super) first_bad: Option<usize>,
    /// Whether that place is before the log at `first_bad`: the log file before it is missing.
    pub(super) is_gap: bool,
    /// The first batch with a position before that place, with its sequence number. `last` is the last one.
    pub(super) first: Option<(u64, Position)>,
    pub(super) last: Option<Position>,
    /// Proofs that synced data is missing. For logs, the earliest proof is first.
    pub(crate) damage: Vec<Damage>,
    /// Contents of the log witness.
    pub(crate) mark: Option<Mark>,
    /// The file of the log witness, if it is damaged. The store is opened without it.
    pub(crate) damaged_mark: Option<PathBuf>,
    /// Number of readable groups with positions.
    pub(crate) groups: u64,
    /// Key ranges that damage has taken from tables.
    pub(crate) ranges: DamagedRanges,
    /// Sequence number of the first readable batch.
    oldest: Option<u64>,
    /// The greatest group that logs after the first unreadable place report as synced.
    later_synced: Option<u64>,
}

/// Scans the store at `path`, which no process may have open. A missing store counts as whole.
pub(crate) fn check(path: &Path) -> io::Result<StoreCheck> {
    let mut checked = StoreCheck::default();
    match Mark::read(path) {
        Ok(mark) => checked.mark = mark,
        Err(error) if error.kind() == ErrorKind::InvalidData => {
            // The witness is damaged. The logs still prove what it would prove, except about their own end.
            warn!(path = %path.display(), "log witness damaged");
            checked.damaged_mark = Some(path.join(WITNESS));
        }
        Err(error) => return Err(error),
    }
    checked.damage = manifest::damage(path, checked.mark.as_ref().map(|mark| mark.spaces.as_slice()))?;
    checked.read_ranges(path)?;
    let logs = files::logs(path)?;
    if manifest::is_store(path) && logs.is_empty() {
        let found = "there is no log file";
        checked.damage.push(log_damage(path.join("0.jnl"), 0, found, 0, Remedy::Restore));
    }
    for (index, (number, log)) in logs.iter().enumerate() {
        if index > 0 && logs[index - 1].0 + 1 != *number {
            let (before, missing) = (&logs[index - 1].1, logs[index - 1].0 + 1);
            let file = before.with_file_name(format!("{missing}.jnl"));
            checked.damage.push(log_damage(file, 0, "the log file is missing", 0, Remedy::AcceptOrRestore));
            checked.is_gap |= checked.first_bad.is_none();
            checked.first_bad.get_or_insert(index);
        }
        checked.scan(index, log)?;
    }
    checked.judge_tail();
    checked.judge_mark(path);
    checked.judge_oldest(path);
    Ok(checked)
}

impl StoreCheck {
    /// Returns whether nothing is missing.
    pub(super) fn is_whole(&self) -> bool {
        self.first_bad.is_none() && self.damage.is_empty()
    }

    pub(crate) fn log_count(&self) -> usize {
        self.logs.len()
    }

    fn read_ranges(&mut self, path: &Path) -> io::Result<()> {
        let file = || path.join(ranges::FILE);
        let found = match DamagedRanges::read(path) {
            Ok(ranges) => {
                let witnessed = self.mark.as_ref().map_or(0, |mark| mark.ranges);
                self.ranges = ranges;
                (self.ranges.ranges.len() < witnessed).then_some("it lists less than it did")
            }
            Err(error) if error.kind() == ErrorKind::InvalidData => Some("it cannot be read"),
            Err(error) => return Err(error),
        };
        let damage = found.map(|found| {
            let found = format!("{found}, and it lists the keys lost by earlier damage");
            log_damage(file(), 0, &found, 0, Remedy::AcceptOrRestore)
        });
        self.damage.extend(damage);
        Ok(())
    }

    /// Returns the logs up to the first unreadable place, each with the offset after its last whole batch.
    pub(crate) fn readable(&self) -> impl Iterator<Item = (&Path, u64)> {
        let count = self.first_bad.map_or(self.logs.len(), |index| index + usize::from(!self.is_gap));
        self.logs.iter().take(count).map(|log| (log.path.as_path(), log.end))
    }

    /// Returns the log and the offset where unsynced writes end within a batch.
    pub(crate) fn torn(&self) -> Option<(PathBuf, u64)> {
        let log = self.logs.get(self.first_bad.filter(|_| self.damage.is_empty())?)?;
        Some((log.path.clone(), log.end))
    }

    fn scan(&mut self, index: usize, path: &Path) -> io::Result<()> {
        let mut reader = BatchReader::new(File::open(path)?);
        let mut before = None;
        let (mut end, found) = loop {
            match reader.next()? {
                Next::Batch(batch) => {
                    self.oldest.get_or_insert(batch.sequence);
                    if let Err(found) = self.follow(before, &batch) {
                        break (before.map_or(0, |(_, end)| end), found);
                    }
                    before = Some((batch.sequence, reader.end()));
                }
                Next::End => break (reader.end(), "no batch begins here"),
                Next::Bad(found) => break (reader.end(), found),
            }
        };
        let store = self.last.map(|last| last.store).or(self.mark.as_ref().map(|mark| mark.store));
        let rest = tail::read(&mut File::open(path)?, end, store)?;
        if rest.end == 0 {
            end = reader.end().max(end);
        }
        let log = LogFile { path: path.to_owned(), end, rest, found };
        if !log.is_whole() {
            self.first_bad.get_or_insert(index);
        }
        self.logs.push(log);
        Ok(())
    }

    /// Checks that a batch may follow the batches before it. A gap in the group numbers means that something is
    /// missing.
    fn follow(&mut self, before: Option<(u64, u64)>, batch: &LogBatch) -> Result<(), &'static str> {
        let Some(position) = batch.position else { return Ok(()) };
        if self.first_bad.is_some() {
            // This batch is in a log after the first unreadable place, and would be cut with everything after that
            // place.
            self.later_synced = self.later_synced.max(Some(position.group.saturating_sub(1)));
            return Ok(());
        }
        if before.is_some_and(|(sequence, _)| batch.sequence <= sequence) {
            return Err("a batch has a sequence number before that of the one before it");
        }
        let follows = match self.last {
            None => true,
            Some(last) if last.store == position.store => position.group == last.group + 1,
            // The operator accepted damage between the two groups, which restarted the numbers.
            Some(last) => position.group > last.group,
        };
        if !follows {
            return Err("a group does not follow the one before it");
        }
        self.first.get_or_insert((batch.sequence, position));
        self.last = Some(position);
        self.groups += 1;
        Ok(())
    }

    /// Records damage if something after the first unreadable place was synced.
    fn judge_tail(&mut self) {
        let Some(index) = self.first_bad.filter(|_| !self.is_gap) else { return };
        let Some(log) = self.logs.get(index) else { return };
        let good = self.last.map(|last| last.group);
        let first_cut = good.map(|group| group + 1).or(log.rest.first_group);
        let later = &self.logs[index + 1..];
        let synced = self.later_synced.max(log.rest.synced);
        let is_synced = synced.zip(first_cut).is_some_and(|(synced, first)| synced >= first);
        // The store syncs a log as a whole before it starts the next one.
        let is_sealed = later.iter().any(|log| log.end > 0 || !log.is_whole());
        if log.is_whole() || !(is_synced || is_sealed) {
            return;
        }
        let lost = synced.zip(good).map_or(1, |(synced, good)| synced.saturating_sub(good).max(1));
        let proof =
            if is_sealed { "logs after it have commits" } else { "groups after it name it as synced" };
        let found = format!("{}, and {proof}", log.found);
        let damage = log_damage(log.path.clone(), log.end, &found, lost, Remedy::AcceptOrRestore);
        self.damage.push(damage);
    }

    /// Records damage if the last group that the witness names is missing, as far as the logs show.
    fn judge_mark(&mut self, path: &Path) {
        let (Some(mark), Some(last)) = (&self.mark, self.last) else { return };
        if !self.damage.is_empty() || (mark.store == last.store && mark.group <= last.group) {
            return;
        }
        let log = self.first_bad.map_or(self.logs.last(), |index| self.logs.get(index));
        let (file, end) = log.map_or((path.to_owned(), 0), |log| (log.path.clone(), log.end));
        self.damage.push(short(mark, Some(last), file, end));
    }
}

impl StoreCheck {
    /// Records damage if the logs do not reach back to all writes that are in no table yet.
    fn judge_oldest(&mut self, path: &Path) {
        let Some(mark) = self.mark.as_ref().filter(|_| self.damage.is_empty()) else { return };
        let is_gone = |write: &&Unflushed| {
            // Earlier versions wrote 0 for a write that was just being entered.
            write.sequence > 0
                && self.oldest.is_none_or(|oldest| write.sequence < oldest)
                && manifest::list_number(path, write.space) == Some(write.list)
        };
        let Some(gone) = mark.unflushed.iter().find(is_gone) else { return };
        let found = format!(
            "the log files before it are gone, and key space {} has writes that are in no table",
            gone.space
        );
        let file = self.logs.first().map_or(path.to_owned(), |log| log.path.clone());
        self.damage.push(log_damage(file, 0, &found, 1, Remedy::AcceptOrRestore));
    }
}

/// Returns the damage of a log that ends before the last group that the witness names.
fn short(mark: &Mark, last: Option<Position>, file: PathBuf, end: u64) -> Damage {
    let own = last.filter(|last| last.store == mark.store);
    let (found, lost) = match (own, last) {
        (Some(last), _) => {
            let found =
                format!("the log ends with group {}, and group {} was synced", last.group, mark.group);
            (found, mark.group - last.group)
        }
        (None, Some(_)) => ("the log is not that of the log witness beside it".to_owned(), 1),
        (None, None) => {
            (format!("group {} was synced and is in no log and no table", mark.group), mark.group)
        }
    };
    log_damage(file, end, &found, lost, Remedy::AcceptOrRestore)
}

/// Compares the opened store with the witness and the logs. A group that is in no log must be in the tables of `meta`.
pub(crate) fn check_opened(
    path: &Path,
    checked: &StoreCheck,
    meta: &Keyspace,
) -> Result<Option<Position>, CheckError> {
    let last = last_position(meta)?;
    if let Some(mark) = &checked.mark {
        let is_there = match last {
            Some(last) => last.store == mark.store && last.group >= mark.group,
            None => mark.group == 0,
        };
        if !is_there {
            let log = checked.logs.last();
            let (file, end) = log.map_or((path.to_owned(), 0), |log| (log.path.clone(), log.end));
            return Err(Box::new(short(mark, last, file, end)).into());
        }
    }
    if let Some((sequence, first)) = checked.first {
        // The tables of `meta` may be newer than the oldest log. Then they hold the writes before that log.
        let is_flushed = meta.tree.get_highest_persisted_seqno().is_some_and(|flushed| flushed >= sequence);
        let is_next = || {
            let before = position_before(meta, sequence)?;
            io::Result::Ok(match before {
                None => first.group == 1,
                Some(before) if before.store == first.store => before.group + 1 == first.group,
                Some(before) => before.group < first.group,
            })
        };
        if !is_flushed && !is_next()? {
            let found =
                format!("the oldest log begins with group {}, and those before it are gone", first.group);
            let file = checked.logs.first().map_or(path.to_owned(), |log| log.path.clone());
            let damage = log_damage(file, 0, &found, 1, Remedy::AcceptOrRestore);
            return Err(Box::new(damage).into());
        }
    }
    Ok(last)
}

/// Returns the position of the last group in an open store.
pub(crate) fn last_position(meta: &Keyspace) -> io::Result<Option<Position>> {
    position_before(meta, fjall::SeqNo::MAX)
}

fn position_before(meta: &Keyspace, sequence: fjall::SeqNo) -> io::Result<Option<Position>> {
    let value = meta.tree.get(KEY, sequence).map_err(io::Error::other)?;
    Ok(value.and_then(|value| Position::decode(&value)))
}

fn log_damage(file: PathBuf, offset: u64, found: &str, lost_groups: u64, remedy: Remedy) -> Damage {
    Damage { file, offset, found: found.to_owned(), lost_groups, remedy }
}
