//! The drivers by the scheme of a pool's URI. A new driver is one folder and one arm here.

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

/// Why a pool's storage could not be opened.
#[derive(Debug, ThisError)]
pub enum PoolOpenError {
    /// No driver has this scheme.
    #[error(
        "no driver for {0:?}: a pool's URI begins with embedded:, postgres://, postgresql://, redis://, rediss://, \
         redis-cluster:// or redis-sentinel://"
    )]
    Scheme(String),
    /// The URI of a PostgreSQL pool.
    #[error(transparent)]
    Postgres(#[from] PostgresAddressError),
    /// The URI of a Redis pool.
    #[error(transparent)]
    Redis(#[from] RedisAddressError),
    /// A file that the URI names.
    #[error("{0}")]
    File(String),
    /// The path leads out of the data directory.
    #[error("{0:?} is not a path below the data directory")]
    Path(String),
    /// The directory is within that of another pool, or around it.
    #[error("{0:?} shares a directory with another storage")]
    Shared(String),
    /// The embedded store.
    #[error(transparent)]
    Journal(#[from] OpenError),
    /// A pool was registered there, and nothing is there now.
    #[error("there is no storage at {0}; its disk may not be mounted yet")]
    Absent(PathBuf),
    /// The opening did not come to its end.
    #[error("the opening was interrupted: {0}")]
    Interrupted(String),
}

/// Opens the storage behind a URI, at the start and while the service runs.
pub trait Opener: Send + Sync + 'static {
    /// Opens a storage, and may make one when there is none; one that is open already is shared. Blocks while an embedded
    /// store replays its log.
    fn open(&self, uri: &str) -> Result<Arc<dyn PoolStore>, PoolOpenError>;

    /// As [`Opener::open`] for the storage of a registered pool, which is never made: [`PoolOpenError::Absent`] when there
    /// is none. An opener that makes no storages need not tell the two apart.
    fn open_registered(&self, uri: &str) -> Result<Arc<dyn PoolStore>, PoolOpenError> {
        self.open(uri)
    }

    /// Forgets a storage, which then closes with its last handle. Its data stays.
    fn close(&self, uri: &str);
}

/// Opens pools, each storage once: pools with the same path share a journal with the tree or each other. Whose a
/// storage is its stamp states.
pub struct PoolOpener {
    data: PathBuf,
    clock: Clock,
    /// Those of embedded pools.
    options: JournalOptions,
    /// Held while a journal is opened, so that each is opened once.
    journals: Mutex<HashMap<PathBuf, OpenStorage>>,
}

/// What is done about an embedded storage that is not there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Missing {
    Made,
    Refused,
}

struct OpenStorage {
    journal: Journal,
    /// Whether another process opened it, so that it is not closed here.
    is_given: bool,
}

impl PoolOpener {
    /// An opener for embedded paths below `data`, where the journals given are open already.
    pub fn new(data: &Path, clock: Clock, open: impl IntoIterator<Item = (PathBuf, Journal)>) -> Self {
        let given = |(path, journal)| (path, OpenStorage { journal, is_given: true });
        let journals = Mutex::new(open.into_iter().map(given).collect());
        Self { data: data.to_owned(), clock, options: JournalOptions::default(), journals }
    }

    /// The same with other options for the journals that it opens.
    pub fn with_options(self, options: JournalOptions) -> Self {
        Self { options, ..self }
    }

    /// Opens the storage at `uri`, and makes an embedded one when there is none: for a pool that is about to be registered.
    /// Blocks while an embedded store replays its log: within the runtime this is for a thread that may block.
    pub fn open(&self, uri: &str) -> Result<Arc<dyn PoolStore>, PoolOpenError> {
        self.open_as(uri, Missing::Made)
    }

    /// As [`PoolOpener::open`] for a pool that was registered: an embedded storage that is not there is
    /// [`PoolOpenError::Absent`], and nothing is made in its place.
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
            // The rest may hold a password.
            Some((scheme, _)) => Err(PoolOpenError::Scheme(scheme.to_owned())),
            None => Err(PoolOpenError::Scheme(uri.to_owned())),
        }
    }

    /// Forgets the storage at `uri`, which closes with its last handle. What it holds stays. One that was given open
    /// is still used by any process that gave it, and is kept.
    pub fn close(&self, uri: &str) {
        let Some(path) = uri.split_once(':').and_then(|(_, path)| self.full(path).ok()) else { return };
        let mut journals = self.journals.lock();
        if journals.get(&path).is_none_or(|open| open.is_given) {
            return;
        }
        let closed = journals.remove(&path);
        drop(journals);
        // A journal that closes writes first; no process waits for that.
        drop(closed);
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
