//! The embedded database: the tree and the embedded pools keep their bytes here, under one committer.
//!
//! It owns the files below the data directory and the only thread that writes them. It knows keys and values
//! in a fixed set of key spaces and nothing of what they mean. All that is waiting when a sync ends goes into
//! the next one, so that a claim and a post share an fdatasync, and a power cut leaves a prefix of the commits.
//!
//! This is the one home of the `fjall` crate. What it asks of its user (fjall 3.1): one writer thread, since a
//! commit with a sync holds its lock; never one key space per queue; a failed write closes the store for
//! good, because nobody knows what of it is on the disk.

mod committer;
mod disk;
mod txn;
mod view;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use fjall::{Database, Keyspace, KeyspaceCreateOptions};
use thiserror::Error as ThisError;

use crate::clock::Clock;
use crate::domain::time::Timestamp;
use committer::Committer;
pub use disk::DiskSpace;
pub use txn::Txn;
pub use view::{ReadPair, View};

/// A set of keys of its own. Their numbers and names are on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    /// The format of the database, and the time of its last write.
    Meta = 0,
    /// Nodes of the tree.
    Tree = 1,
    /// Of each slot of the pool: who may write, and the number of the last batch.
    Records = 2,
    /// Of each queue of the pool: how much it holds and where it begins.
    Totals = 3,
    /// Ready messages.
    Entries = 4,
    /// Headers of messages that changed since.
    Headers = 5,
    /// Whose pool this is.
    Stamps = 6,
    /// Messages that are not ready.
    Aside = 7,
    /// Scheduled messages by their time.
    Schedule = 8,
    /// Where to look for what is due.
    Buckets = 9,
    /// What queues remember beside their messages.
    Notes = 10,
}

const SPACES: [(Space, &str); 11] = [
    (Space::Meta, "meta"),
    (Space::Tree, "tree"),
    (Space::Records, "records"),
    (Space::Totals, "totals"),
    (Space::Entries, "entries"),
    (Space::Headers, "headers"),
    (Space::Stamps, "stamps"),
    (Space::Aside, "aside"),
    (Space::Schedule, "schedule"),
    (Space::Buckets, "buckets"),
    (Space::Notes, "notes"),
];

/// The format this program writes. Another one is refused, never converted by guessing.
const FORMAT: &[u8] = b"angarium 2";
const FORMAT_KEY: &[u8] = b"format";
/// When the last group was written: milliseconds since the Unix epoch, 8 bytes, big endian.
const TIME_KEY: &[u8] = b"time";

/// Bytes of log files after which quiet key spaces are flushed too: they bound the time of a restart.
const LOG_BYTES: u64 = 256 << 20;
/// Bytes of recent writes in memory per key space.
const MEMTABLE_BYTES: u64 = 16 << 20;
/// Bytes of the cache of blocks read from disk.
const CACHE_BYTES: u64 = 32 << 20;

/// Why the journal did not do what it was asked.
#[derive(Clone, Debug, ThisError)]
pub enum JournalError {
    /// Too much is waiting already. Nothing was written.
    #[error("too many writes are waiting")]
    Busy,
    /// A write failed earlier, or the journal is closed. Nothing was written.
    #[error("the journal is closed after {0}")]
    Closed(Arc<str>),
    /// The write failed: it may be on disk or not.
    #[error("the write failed: {0}")]
    Unknown(Arc<str>),
    /// A read failed.
    #[error("the read failed: {0}")]
    Read(Arc<str>),
}

/// Why a journal could not be opened.
#[derive(Debug, ThisError)]
pub enum OpenError {
    /// Another process has it open.
    #[error("{0} is in use by another process")]
    InUse(PathBuf),
    /// It was written by a program with another format.
    #[error("{path} has the format {found:?}, and this program reads {FORMAT:?}")]
    Format {
        /// Where.
        path: PathBuf,
        /// What it says of itself.
        found: String,
    },
    /// The store itself.
    #[error("cannot open {path}")]
    Store {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: fjall::Error,
    },
}

/// A handle to an open journal. Clones share it; the last one to go closes it.
#[derive(Clone)]
pub struct Journal {
    store: Arc<Store>,
    committer: Arc<Committer>,
}

struct Store {
    path: PathBuf,
    database: Database,
    spaces: Vec<Keyspace>,
}

impl Store {
    fn space(&self, space: Space) -> &Keyspace {
        &self.spaces[space as usize]
    }
}

impl Journal {
    /// Opens the journal below `path`, and makes it when there is none. Blocks while it replays its log.
    ///
    /// Sets `clock` forward to the last write of the journal if it is behind: time does not go back between two
    /// runs.
    pub fn open(path: &Path, clock: &Clock) -> Result<Self, OpenError> {
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
        let store = Arc::new(Store { path: path.to_owned(), database, spaces });
        check_format(&store, path)?;
        clock.not_before(last_write(&store).map_err(failed)?);
        let committer = Arc::new(Committer::start(Arc::clone(&store), clock.clone()));
        Ok(Self { store, committer })
    }

    /// The value of a key, as of the last commit that is on disk.
    pub fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, JournalError> {
        self.committer.check_open()?;
        let value = self.store.space(space).get(key).map_err(read_failed)?;
        Ok(value.map(Bytes::from))
    }

    /// The state after the last commit, for reads that must fit each other.
    pub fn view(&self) -> Result<View, JournalError> {
        self.committer.check_open()?;
        Ok(View::of(Arc::clone(&self.store)))
    }

    /// Runs `work` on the committer's thread, in the order of the calls, and returns what it returned once
    /// everything it wrote, and everything it saw, is on disk.
    ///
    /// `work` sees the outcome of all work before it. It must be short and must not wait.
    pub async fn commit<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Txn<'_>) -> T + Send + 'static,
    ) -> Result<T, JournalError> {
        self.committer.submit(work)?.await.unwrap_or_else(|_| Err(self.committer.lost()))
    }

    /// How much room there is where the journal lies; none when the file system does not say.
    pub fn disk_space(&self) -> Option<DiskSpace> {
        DiskSpace::at(&self.store.path)
    }

    /// Whether writes are accepted.
    pub fn check_open(&self) -> Result<(), JournalError> {
        self.committer.check_open()
    }
}

fn read_failed(error: fjall::Error) -> JournalError {
    JournalError::Read(error.to_string().into())
}

/// When the last group was written.
fn last_write(store: &Store) -> Result<Timestamp, fjall::Error> {
    let value = store.space(Space::Meta).get(TIME_KEY)?;
    let millis = value.and_then(|value| Some(u64::from_be_bytes((*value).try_into().ok()?)));
    Ok(Timestamp::from_millis(millis.unwrap_or(0)))
}

fn check_format(store: &Store, path: &Path) -> Result<(), OpenError> {
    let failed = |source| OpenError::Store { path: path.to_owned(), source };
    let meta = store.space(Space::Meta);
    match meta.get(FORMAT_KEY).map_err(failed)? {
        Some(found) if *found == *FORMAT => Ok(()),
        Some(found) => {
            let found = String::from_utf8_lossy(&found).into_owned();
            Err(OpenError::Format { path: path.to_owned(), found })
        }
        None => {
            meta.insert(FORMAT_KEY, FORMAT).map_err(failed)?;
            store.database.persist(fjall::PersistMode::SyncAll).map_err(failed)
        }
    }
}
