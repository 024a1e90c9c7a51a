//! The database on disk: opening it, and its format.

use std::path::{Path, PathBuf};

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use super::{FORMAT, OpenError, SPACES, Space};
use crate::domain::time::Timestamp;

const FORMAT_KEY: &[u8] = b"format";
/// When the last group was written: milliseconds since the Unix epoch, 8 bytes, big endian.
pub(super) const TIME_KEY: &[u8] = b"time";

/// There from when its user had checked it and its process ended, until it is opened again: there was no crash since.
const CHECKED_KEY: &[u8] = b"checked";

/// Bytes of log files after which quiet key spaces are flushed too: they bound the time of a restart.
const LOG_BYTES: u64 = 256 << 20;
/// Bytes of recent writes in memory per key space.
const MEMTABLE_BYTES: u64 = 16 << 20;
/// Bytes of the cache of blocks read from disk.
const CACHE_BYTES: u64 = 32 << 20;

/// An open database. While it is there, its directory is locked.
pub(super) struct Store {
    pub(super) database: Database,
    spaces: Vec<Keyspace>,
}

impl Store {
    /// Opens the database at `path`, and makes it when there is none. Blocks while it replays its log.
    pub(super) fn open(path: &Path) -> Result<Self, OpenError> {
        let failed = |source| match source {
            fjall::Error::Locked => OpenError::InUse(path.to_owned()),
            source => OpenError::Store { path: path.to_owned(), source },
        };
        let database = Database::builder(path)
            .manual_journal_persist(true)
            .max_journaling_size(LOG_BYTES)
            .cache_size(CACHE_BYTES)
            .open()
            .map_err(failed)?;
        let options = || KeyspaceCreateOptions::default().max_memtable_size(MEMTABLE_BYTES);
        let spaces = SPACES
            .iter()
            .map(|(_, name)| database.keyspace(name, options))
            .collect::<Result<Vec<_>, _>>()
            .map_err(failed)?;
        let store = Self { database, spaces };
        match store.space(Space::Meta).get(FORMAT_KEY).map_err(failed)? {
            Some(found) if *found == *FORMAT => {}
            Some(found) => return Err(other_format(path, &found)),
            None => store.write_format().map_err(failed)?,
        }
        Ok(store)
    }

    pub(super) fn space(&self, space: Space) -> &Keyspace {
        &self.spaces[space as usize]
    }

    /// Whether it needs no check, since it is new or was left checked. From here on it counts as not left.
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

    /// Its process ends, and what is in it was checked.
    pub(super) fn leave_checked(&self) -> Result<(), fjall::Error> {
        self.space(Space::Meta).insert(CHECKED_KEY, b"")?;
        self.database.persist(PersistMode::SyncData)
    }

    fn write_format(&self) -> Result<(), fjall::Error> {
        self.space(Space::Meta).insert(FORMAT_KEY, FORMAT)?;
        self.database.persist(PersistMode::SyncAll)
    }

    /// When the last group was written.
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
