//! Opens pools: selects the driver by the scheme of a pool's URI. A new driver is one folder and one arm here.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use thiserror::Error as ThisError;

use super::PoolStore;
use super::embedded::EmbeddedPool;
pub use super::embedded::{Audit, AuditedQueue, audit};
use super::postgres::{Address as PostgresAddress, AddressError as PostgresAddressError, PostgresPool};
use super::redis::{Address as RedisAddress, AddressError as RedisAddressError, RedisPool};
use angarium_clock::Clock;
use angarium_journal::{Journal, JournalOptions, OpenError};

/// Reason why a pool's storage could not be opened.
#[derive(Debug, ThisError)]
pub enum PoolOpenError {
    /// No driver has this scheme.
    #[error(
        "no driver for {0:?}: a pool's URI begins with embedded:, postgres://, postgresql://, redis://, rediss://, \
         redis-cluster:// or redis-sentinel://"
    )]
    Scheme(String),
    /// The URI of a PostgreSQL pool is wrong.
    #[error(transparent)]
    Postgres(#[from] PostgresAddressError),
    /// The URI of a Redis pool is wrong.
    #[error(transparent)]
    Redis(#[from] RedisAddressError),
    /// A file that the URI names cannot be read.
    #[error("{0}")]
    File(String),
    /// The path leads out of the data directory.
    #[error("{0:?} is not a path below the data directory")]
    Path(String),
    /// The directory is inside the directory of another storage, or contains one.
    #[error("{0:?} shares a directory with another storage")]
    Shared(String),
    /// The embedded store could not be opened.
    #[error(transparent)]
    Journal(#[from] OpenError),
    /// A pool was registered there, and now there is no storage.
    #[error("there is no storage at {0}; its disk may not be mounted yet")]
    Absent(PathBuf),
    /// The opening was interrupted before its end.
    #[error("the opening was interrupted: {0}")]
    Interrupted(String),
}

/// Opens the storage of a URI, at the start and at run time.
pub trait Opener: Send + Sync + 'static {
    /// Opens a storage, and may create it when there is none; an open one is shared. Blocks while an embedded store
    /// replays its log.
    fn open(&self, uri: &str) -> Result<Arc<dyn PoolStore>, PoolOpenError>;

    /// Like [`Opener::open`], for the storage of a registered pool, which is never created: [`PoolOpenError::Absent`]
    /// when there is none. An opener that never creates storages need not distinguish the two.
    fn open_registered(&self, uri: &str) -> Result<Arc<dyn PoolStore>, PoolOpenError> {
        self.open(uri)
    }

    /// Drops the handle to a storage, which closes with the last handle. Its data stays.
    fn close(&self, uri: &str);

    /// Returns whether no method of this opener may block, so that it needs no thread for it.
    fn never_blocks(&self) -> bool {
        false
    }
}

/// Opens each storage once: pools with the same path share a journal, with each other or with the tree. The stamp of
/// the storage decides to which pool it belongs.
pub struct PoolOpener {
    data: PathBuf,
    clock: Clock,
    /// Options of the journals of embedded pools.
    options: JournalOptions,
    /// Held while a journal is opened, so that each is opened once.
    journals: Mutex<HashMap<PathBuf, OpenStorage>>,
}

/// What to do about an embedded storage that does not exist.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Missing {
    Made,
    Refused,
}

struct OpenStorage {
    journal: Journal,
    /// Whether the caller of [`PoolOpener::new`] opened it, so that it is not closed here.
    is_given: bool,
}

impl PoolOpener {
    /// Returns an opener for embedded paths below `data`; the journals in `open` are open already.
    pub fn new(data: &Path, clock: Clock, open: impl IntoIterator<Item = (PathBuf, Journal)>) -> Self {
        let given = |(path, journal)| (path, OpenStorage { journal, is_given: true });
        let journals = Mutex::new(open.into_iter().map(given).collect());
        Self { data: data.to_owned(), clock, options: JournalOptions::default(), journals }
    }

    /// Returns the opener with other options for the journals that it opens.
    pub fn with_options(self, options: JournalOptions) -> Self {
        Self { options, ..self }
    }

    /// Opens the storage at `uri`, and creates an embedded one when there is none: for a pool that will be registered
    /// next. Blocks while an embedded store replays its log, so call it on a thread that may block.
    pub fn open(&self, uri: &str) -> Result<Arc<dyn PoolStore>, PoolOpenError> {
        self.open_as(uri, Missing::Made)
    }

    /// Like [`PoolOpener::open`], for a registered pool: an embedded storage that does not exist is
    /// [`PoolOpenError::Absent`], and none is created.
    pub fn open_registered(&self, uri: &str) -> Result<Arc<dyn PoolStore>, PoolOpenError> {
        self.open_as(uri, Missing::Refused)
    }

    fn open_as(&self, uri: &str, missing: Missing) -> Result<Arc<dyn PoolStore>, PoolOpenError> {
        match uri.split_once(':') {
            Some(("embedded", path)) => Ok(Arc::new(EmbeddedPool::new(self.journal(path, missing)?))),
            Some(("postgres" | "postgresql", _)) => {
                let address: PostgresAddress = uri.parse()?;
                address.check_files().map_err(PoolOpenError::File)?;
                Ok(Arc::new(PostgresPool::new(address)))
            }
            Some(("redis" | "rediss" | "redis-cluster" | "redis-sentinel", _)) => {
                let address: RedisAddress = uri.parse()?;
                address.check_files().map_err(PoolOpenError::File)?;
                Ok(Arc::new(RedisPool::new(address)))
            }
            // The rest may have a password.
            Some((scheme, _)) => Err(PoolOpenError::Scheme(scheme.to_owned())),
            None => Err(PoolOpenError::Scheme(uri.to_owned())),
        }
    }

    /// Drops the handle to the storage at `uri`, which closes with the last handle. Its data stays. A journal from
    /// [`PoolOpener::new`] is still in use by its opener, and is kept.
    pub fn close(&self, uri: &str) {
        let Some(path) = uri.split_once(':').and_then(|(_, path)| self.full(path).ok()) else { return };
        let mut journals = self.journals.lock();
        if journals.get(&path).is_none_or(|open| open.is_given) {
            return;
        }
        let closed = journals.remove(&path);
        drop(journals);
        // A journal writes before it closes, so the lock is released first.
        drop(closed);
    }

    /// Returns the open journal of an embedded storage and its path below the data directory; none when `uri` is that
    /// of another storage, or nothing is open there.
    pub fn open_journal(&self, uri: &str) -> Option<(PathBuf, Journal)> {
        let path = uri.strip_prefix("embedded:")?;
        let full = self.full(path).ok()?;
        let journal = self.journals.lock().get(&full)?.journal.clone();
        Some((full.strip_prefix(&self.data).ok()?.to_owned(), journal))
    }

    fn full(&self, path: &str) -> Result<PathBuf, PoolOpenError> {
        let relative = Path::new(path);
        let plain = relative.components().all(|part| matches!(part, Component::Normal(_)));
        if path.is_empty() || !plain {
            return Err(PoolOpenError::Path(path.to_owned()));
        }
        Ok(self.data.join(relative))
    }

    fn journal(&self, path: &str, missing: Missing) -> Result<Journal, PoolOpenError> {
        let full = self.full(path)?;
        let mut journals = self.journals.lock();
        if let Some(open) = journals.get(&full) {
            return Ok(open.journal.clone());
        }
        if journals.keys().any(|other| other.starts_with(&full) || full.starts_with(other)) {
            return Err(PoolOpenError::Shared(path.to_owned()));
        }
        if missing == Missing::Refused && !Journal::is_at(&full) {
            return Err(PoolOpenError::Absent(full));
        }
        let journal = Journal::open_beside(&full, &self.clock, self.options)?;
        journals.insert(full, OpenStorage { journal: journal.clone(), is_given: false });
        Ok(journal)
    }
}

impl Opener for PoolOpener {
    fn open(&self, uri: &str) -> Result<Arc<dyn PoolStore>, PoolOpenError> {
        Self::open(self, uri)
    }

    fn open_registered(&self, uri: &str) -> Result<Arc<dyn PoolStore>, PoolOpenError> {
        Self::open_registered(self, uri)
    }

    fn close(&self, uri: &str) {
        Self::close(self, uri);
    }
}
