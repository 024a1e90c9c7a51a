//! The database on disk: its format and how it is opened.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::available_parallelism;

use bytes::Bytes;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use tracing::warn;

use super::damage::DamageWatch;
use super::log::{self, CheckError, DamagedRanges, Mark, Numbering, Position, Remedy, StoreCheck};
use super::lost::LostRanges;
use super::mend::{self, MendResult, Refused, Scope};
use super::{FORMAT, JournalError, JournalOptions, OpenError, SPACES, Space, tables};
use crate::limits;
use angarium_core::time::Timestamp;

const FORMAT_KEY: &[u8] = b"format";
/// Key of the time of the last group: milliseconds since the Unix epoch, 8 bytes, big endian.
pub(super) const TIME_KEY: &[u8] = b"time";

/// Key that exists from a clean close of checked contents until the next open. It proves that there was no crash since.
pub(super) const CHECKED_KEY: &[u8] = b"checked";

/// Bytes of log files after which idle key spaces are flushed too. They bound the time of a restart.
const LOG_BYTES: u64 = 256 << 20;

/// Whether damage of the log is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Acceptance {
    Refuse,
    Accept,
}

impl Acceptance {
    pub(super) fn of(options: JournalOptions) -> Self {
        if options.accept_damage { Self::Accept } else { Self::Refuse }
    }
}

/// An open database. Its directory is locked while it exists.
pub(super) struct Store {
    pub(super) database: Database,
    spaces: Vec<Keyspace>,
    /// The first mark that the witness of this store writes.
    pub(super) mark: Mark,
    /// Key ranges whose reads are refused, because damage has taken some of their keys.
    pub(super) lost: LostRanges,
    /// Counts the damage that reads meet.
    pub(super) damage: Arc<DamageWatch>,
}

impl Store {
    /// Opens the database at `path`, and creates it when there is none. Blocks while it reads its log twice: to check
    /// it, and to replay it. A damaged table that prevents the start is rewritten without its lost keys, if its keys
    /// are known.
    pub(super) fn open(path: &Path, acceptance: Acceptance, now: Timestamp) -> Result<Self, OpenError> {
        let refused = match Self::open_whole(path, acceptance, now) {
            Err(OpenError::Damaged { path, damage }) if tables::is_table(&damage.file) => {
                OpenError::Damaged { path, damage }
            }
            opened => return opened,
        };
        let mended = mend::mend(path, now, Refused::Leave, Scope::Listed);
        match mended.inspect_err(|error| warn!(%error, "damaged tables cannot be rewritten")) {
            Ok(MendResult { left: 0, .. }) => Self::open_whole(path, acceptance, now),
            _ => Err(refused),
        }
    }

    fn open_whole(path: &Path, acceptance: Acceptance, now: Timestamp) -> Result<Self, OpenError> {
        let failed = |source| match source {
            fjall::Error::Locked => OpenError::InUse(path.to_owned()),
            source => failure(path, source),
        };
        let (checked, mut accepted) = check(path, acceptance, now)?;
        let database = Database::builder(path)
            .manual_journal_persist(true)
            .max_journaling_size(LOG_BYTES)
            .cache_size(limits::STORE_CACHE_BYTES)
            .worker_threads(workers())
            .open()
            .map_err(failed)?;
        let options = || KeyspaceCreateOptions::default().max_memtable_size(limits::STORE_TABLE_BYTES);
        let spaces = SPACES
            .iter()
            .map(|(_, name)| database.keyspace(name, options))
            .collect::<Result<Vec<_>, _>>()
            .map_err(failed)?;
        let last = match log::check_opened(path, &checked, &spaces[Space::Meta as usize]) {
            Ok(last) => last,
            Err(CheckError::Damage(damage)) if acceptance == Acceptance::Accept => {
                log::accepted(&damage);
                accepted = true;
                log::last_position(&spaces[Space::Meta as usize])
                    .map_err(|source| OpenError::File { path: path.to_owned(), source })?
            }
            Err(error) => return Err(refusal(path, error)),
        };
        let lost = LostRanges::of(&checked.ranges, &spaces);
        let known = last.map(|last| last.store).or(checked.mark.as_ref().map(|mark| mark.store));
        let mut mark = Mark {
            store: known.filter(|_| !accepted).unwrap_or_else(rand::random),
            group: last.map_or(0, |last| last.group),
            spaces: log::complete_spaces(path)
                .map_err(|source| OpenError::File { path: path.to_owned(), source })?,
            unflushed: checked.mark.map(|mark| mark.unflushed).unwrap_or_default(),
            ranges: checked.ranges.ranges.len(),
        };
        if accepted {
            mark.group += 1;
            begin_numbers(&database, &spaces[Space::Meta as usize], &mark).map_err(failed)?;
        }
        let store = Self { database, spaces, mark, lost, damage: Arc::default() };
        match store.space(Space::Meta).get(FORMAT_KEY).map_err(failed)? {
            Some(found) if *found == *FORMAT => {}
            Some(found) => return Err(other_format(path, &found)),
            None => store.write_format().map_err(failed)?,
        }
        Ok(store)
    }

    /// Opens a copy of a database to read it; no other process may have the copy open. Nothing is flushed or merged.
    /// Reads of the lost `ranges` of the original are refused.
    pub(super) fn open_copy(path: &Path, ranges: &DamagedRanges) -> Result<Self, fjall::Error> {
        let database = Database::builder(path)
            .manual_journal_persist(true)
            .max_journaling_size(u64::MAX)
            .cache_size(limits::STORE_CACHE_BYTES)
            .worker_threads_unchecked(0)
            .open()?;
        let spaces = SPACES
            .iter()
            .map(|(_, name)| database.keyspace(name, KeyspaceCreateOptions::default))
            .collect::<Result<Vec<_>, _>>()?;
        let lost = LostRanges::of(ranges, &spaces);
        let mark = Mark { store: 0, group: 0, spaces: Vec::new(), unflushed: Vec::new(), ranges: 0 };
        Ok(Self { database, spaces, mark, lost, damage: Arc::default() })
    }

    /// Returns the group numbers to continue from.
    pub(super) fn numbering(&self) -> Numbering {
        Numbering::after(self.mark.store, self.mark.group)
    }

    pub(super) fn space(&self, space: Space) -> &Keyspace {
        &self.spaces[space as usize]
    }

    /// Returns the value of a key after the last commit.
    pub(super) fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, JournalError> {
        self.check_read(space, key)?;
        let value = self.space(space).get(key).map_err(|failure| self.read_failed(space, &failure))?;
        Ok(value.map(Bytes::from))
    }

    /// Records a failed read of `space` and returns the error for the caller.
    pub(super) fn read_failed(&self, space: Space, failure: &fjall::Error) -> JournalError {
        self.damage.judge(space, failure)
    }

    /// Refuses a read of a key that damage may have taken.
    pub(super) fn check_read(&self, space: Space, key: &[u8]) -> Result<(), JournalError> {
        match self.lost.at(space, key) {
            None => Ok(()),
            Some(range) => Err(self.damage.meet(space, range)),
        }
    }

    /// Returns whether the contents need no check, because the store is new or was closed as checked. Removes that
    /// record.
    pub(super) fn take_checked(&self, path: &Path) -> Result<bool, OpenError> {
        let failed = |source| OpenError::Store { path: path.to_owned(), source };
        let meta = self.space(Space::Meta);
        if meta.get(CHECKED_KEY).map_err(failed)?.is_none() {
            return Ok(meta.get(TIME_KEY).map_err(failed)?.is_none());
        }
        meta.remove(CHECKED_KEY).map_err(failed)?;
        self.database.persist(PersistMode::SyncData).map_err(failed)?;
        Ok(true)
    }

    /// Records that the contents were checked, when the process ends.
    pub(super) fn leave_checked(&self) -> Result<(), fjall::Error> {
        self.space(Space::Meta).insert(CHECKED_KEY, b"")?;
        self.database.persist(PersistMode::SyncData)
    }

    fn write_format(&self) -> Result<(), fjall::Error> {
        self.space(Space::Meta).insert(FORMAT_KEY, FORMAT)?;
        self.database.persist(PersistMode::SyncAll)
    }

    /// Returns the time of the last group.
    pub(super) fn last_write(&self, path: &Path) -> Result<Timestamp, OpenError> {
        let failed = |source| OpenError::Store { path: path.to_owned(), source };
        let value = self.space(Space::Meta).get(TIME_KEY).map_err(failed)?;
        let millis = value.and_then(|value| Some(u64::from_be_bytes((*value).try_into().ok()?)));
        Ok(Timestamp::from_millis(millis.unwrap_or(0)))
    }
}

fn other_format(path: &Path, found: &[u8]) -> OpenError {
    let found = String::from_utf8_lossy(found).into_owned();
    OpenError::Format { path: PathBuf::from(path), found }
}

/// Returns the number of threads that flush and merge tables.
fn workers() -> usize {
    let (min, max) = limits::STORE_WORKERS;
    available_parallelism().map_or(min, |processors| processors.get().clamp(min, max))
}

/// Writes a group that restarts the group numbers of a store, after damage was accepted.
fn begin_numbers(database: &Database, meta: &Keyspace, mark: &Mark) -> Result<(), fjall::Error> {
    let position =
        Position { store: mark.store, group: mark.group, synced: mark.group - 1, floor: database.seqno() };
    let mut batch = database.batch().durability(Some(PersistMode::SyncAll));
    batch.insert(meta, log::KEY, position.encode());
    batch.commit()
}

/// Checks the files at `path` before the database opens them, and cuts the unsynced writes that a power cut left.
/// Returns the result of the check, and whether damage was accepted.
fn check(path: &Path, acceptance: Acceptance, now: Timestamp) -> Result<(StoreCheck, bool), OpenError> {
    let failed = |source: std::io::Error| refusal(path, source.into());
    let _lock = log::lock(path).map_err(failed)?;
    let mut checked = log::check(path).map_err(failed)?;
    let Some(first) = checked.damage.first() else {
        checked.cut_tail(path, now).map_err(failed)?;
        if acceptance == Acceptance::Accept {
            checked.accept_ranges(path, now).map_err(failed)?;
        }
        return Ok((checked, false));
    };
    let worst = checked.damage.iter().find(|damage| damage.remedy == Remedy::Restore);
    match (worst, acceptance) {
        (None, Acceptance::Accept) => {
            checked.accept(path, now).map_err(failed)?;
            // The result of the check no longer describes the files.
            Ok((StoreCheck::default(), true))
        }
        (worst, _) => Err(refusal(path, Box::new(worst.unwrap_or(first).clone()).into())),
    }
}

/// Returns why the database could not be opened. The database does not name an unreadable table, so this looks for it.
fn failure(path: &Path, source: fjall::Error) -> OpenError {
    let path = path.to_owned();
    match tables::first_damage(&path).filter(|_| matches!(source, fjall::Error::Storage(_))) {
        Some(damage) => OpenError::Damaged { path, damage: Box::new(damage) },
        None => OpenError::Store { path, source },
    }
}

fn refusal(path: &Path, error: CheckError) -> OpenError {
    let path = path.to_owned();
    match error {
        CheckError::Damage(damage) => OpenError::Damaged { path, damage },
        CheckError::Io(error) if error.kind() == ErrorKind::WouldBlock => OpenError::InUse(path),
        CheckError::Io(source) => OpenError::File { path, source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Journal;
    use angarium_clock::Clock;

    /// Number of the key spaces of the first version.
    const EARLIER: usize = 12;

    /// Opens a store as a program of the first version does.
    fn open_earlier(path: &Path) -> (Database, Vec<Keyspace>) {
        let database = Database::builder(path).manual_journal_persist(true).open().unwrap();
        let spaces = SPACES[..EARLIER].iter();
        let spaces = spaces.map(|(_, name)| database.keyspace(name, KeyspaceCreateOptions::default).unwrap());
        let spaces = spaces.collect();
        (database, spaces)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn store_of_the_first_version_gets_new_key_spaces() {
        let dir = tempfile::tempdir().unwrap();
        let (database, spaces) = open_earlier(dir.path());
        spaces[Space::Meta as usize].insert(FORMAT_KEY, FORMAT).unwrap();
        let position = Position { store: 7, group: 1, synced: 0, floor: database.seqno() };
        let mut batch = database.batch().durability(Some(PersistMode::SyncAll));
        batch.insert(&spaces[Space::Entries as usize], b"k", b"v");
        batch.insert(&spaces[Space::Meta as usize], log::KEY, position.encode());
        batch.commit().unwrap();
        drop((spaces, database));
        for round in 0..2 {
            let journal = Journal::open(dir.path(), &Clock::manual(1_000)).unwrap();
            assert_eq!(journal.get(Space::Entries, b"k").unwrap().as_deref(), Some(&b"v"[..]));
            let expected = (round > 0).then(|| Bytes::from_static(b"kept"));
            for space in [Space::Kept, Space::Settled] {
                assert_eq!(journal.get(space, b"k").unwrap(), expected, "{} in round {round}", space.name());
                let write = journal.commit(move |txn| txn.put(space, "k".into(), "kept".into()));
                write.await.unwrap();
            }
        }
        // The earlier program still reads what it knows.
        let (_database, spaces) = open_earlier(dir.path());
        assert_eq!(*spaces[Space::Meta as usize].get(FORMAT_KEY).unwrap().unwrap(), *FORMAT);
        assert_eq!(*spaces[Space::Entries as usize].get(b"k").unwrap().unwrap(), *b"v");
    }
}
