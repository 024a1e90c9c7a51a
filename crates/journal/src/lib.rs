//! The embedded database: the tree and the embedded pools keep their bytes here, under one committer.
//!
//! It owns the files below the data directory and the only thread that writes them. It knows keys and values
//! in a fixed set of key spaces and nothing of what they mean. All that is waiting when a sync ends moves into
//! the next one, so that a claim and a post share an fdatasync, and a power cut leaves a prefix of the commits.
//!
//! This is the one home of the `fjall` crate. What it asks of its user (fjall 3.1): one writer thread, since a commit
//! with a sync holds its lock; never one key space per queue; after a failed write the store is dropped and opened
//! again, because it is unknown what of it is on the disk.

mod committer;
mod copy;
mod current;
mod damage;
mod disk;
mod inspect;
pub mod limits;
mod log;
mod lost;
mod mend;
mod reclaim;
mod rescue;
mod stall;
mod store;
mod tables;
mod txn;
mod view;
mod work;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use thiserror::Error as ThisError;
use tracing::warn;

use angarium_clock::Clock;
use angarium_core::durability::Durability;
use angarium_core::limits as core_limits;
use committer::Committer;
pub use copy::StoreCopy;
use current::Current;
pub use damage::MetDamage;
use disk::RoomWatch;
pub use disk::{DiskSpace, Room};
pub use inspect::{Inspection, inspect};
use log::Witness;
pub use log::{Damage, Remedy};
use store::{Acceptance, Store};
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
    /// Messages of groups, by their group.
    Groups = 11,
}

const SPACES: [(Space, &str); 12] = [
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
    (Space::Groups, "groups"),
];

impl Space {
    /// Its name on disk.
    pub fn name(self) -> &'static str {
        SPACES[self as usize].1
    }
}

/// The format this program writes. Another one is refused, never converted by guessing.
const FORMAT: &[u8] = b"angarium 2";

/// Why the journal did not do what it was asked.
#[derive(Clone, Debug, ThisError)]
pub enum JournalError {
    /// Too much is waiting already. Nothing was written.
    #[error("too many writes are waiting")]
    Busy,
    /// A write failed earlier and the journal is opened again, or it is closed. Nothing was written.
    #[error("the journal is closed after {0}")]
    Closed(Arc<str>),
    /// The write failed: it may be on disk or not.
    #[error("the write failed: {0}")]
    Unknown(Arc<str>),
    /// A read failed.
    #[error("the read failed: {0}")]
    Read(Arc<str>),
    /// A read met damage: it fails again when it is repeated. Nothing was written.
    #[error("stored data is damaged: {0}")]
    Damaged(Arc<str>),
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
        /// What it states of itself.
        found: String,
    },
    /// Something that was synced is missing or cannot be read.
    #[error("cannot open {path}: {damage}")]
    Damaged {
        /// Where.
        path: PathBuf,
        /// What is damaged, and what can be done.
        damage: Box<Damage>,
    },
    #[error("cannot read {path}")]
    File {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
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

/// How a journal is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalOptions {
    /// Bytes of its file system that are kept for what is not a new message.
    pub reserve: u64,
    /// Go on without what a damaged log has lost, which is refused otherwise.
    pub accept_damage: bool,
    /// How long a commit may take: one that takes longer stalls the journal until it ends. New work is then refused as not
    /// written.
    pub commit_deadline: Duration,
}

impl Default for JournalOptions {
    fn default() -> Self {
        Self {
            reserve: core_limits::RESERVE_BYTES,
            accept_damage: false,
            commit_deadline: limits::COMMIT_DEADLINE,
        }
    }
}

/// A handle to an open journal. Clones share it; the last one to go closes it.
#[derive(Clone)]
pub struct Journal {
    path: PathBuf,
    reserve: u64,
    current: Arc<Current>,
    committer: Arc<Committer>,
    /// See [`Journal::is_checked`].
    is_checked: Arc<AtomicBool>,
}

impl Journal {
    /// Opens the journal below `path`, and makes it when there is none, with the usual options. Blocks while it
    /// replays its log.
    ///
    /// `clock` continues from the last write of the journal: time does not go back between two runs, and a step of more
    /// than a day is not believed. A journal of which something synced is missing is not opened and not changed.
    pub fn open(path: &Path, clock: &Clock) -> Result<Self, OpenError> {
        Self::open_with(path, clock, JournalOptions::default())
    }

    /// The same with other options.
    pub fn open_with(path: &Path, clock: &Clock, options: JournalOptions) -> Result<Self, OpenError> {
        let store = Store::open(path, Acceptance::of(options), clock.wall())?;
        clock.resume(store.last_write(path)?);
        Self::start(path, clock, options, store)
    }

    /// The same for a journal beside the first one. It may have been quiet for long, so it only sets `clock` forward.
    pub fn open_beside(path: &Path, clock: &Clock, options: JournalOptions) -> Result<Self, OpenError> {
        let store = Store::open(path, Acceptance::of(options), clock.wall())?;
        clock.not_before(store.last_write(path)?);
        Self::start(path, clock, options, store)
    }

    /// Whether there is a journal below `path`, or a part of one. Not when its disk is not mounted. Two or three looks at the
    /// file system.
    pub fn is_at(path: &Path) -> bool {
        log::is_begun(path)
    }

    fn start(path: &Path, clock: &Clock, options: JournalOptions, store: Store) -> Result<Self, OpenError> {
        let failed = |source| OpenError::File { path: path.to_owned(), source };
        let mark = store.mark.clone();
        let is_checked = Arc::new(AtomicBool::new(store.take_checked(path)?));
        let (current, path) = (Arc::new(Current::new(store)), path.to_owned());
        let witness = Witness::start(path.clone(), mark, Arc::clone(&current)).map_err(failed)?;
        let (reserve, checked) = (options.reserve, Arc::clone(&is_checked));
        if reserve < limits::SMALL_RESERVE {
            warn!(path = %path.display(), reserve, enough = limits::SMALL_RESERVE, "disk reserve may not suffice");
        }
        let room = RoomWatch::new(path.clone(), reserve);
        let committer =
            Committer::start(Arc::clone(&current), path.clone(), clock.clone(), room, checked, witness);
        committer.set_deadline(options.commit_deadline);
        Ok(Self { path, reserve, current, committer: Arc::new(committer), is_checked })
    }

    /// Whether what is in it needs no check by its user: there was no crash since the last one, or it is new.
    pub fn is_checked(&self) -> bool {
        self.is_checked.load(Ordering::Relaxed)
    }

    /// Its user has checked what is in it. That is remembered when the journal is closed, and not after a crash.
    pub fn note_checked(&self) {
        self.is_checked.store(true, Ordering::Relaxed);
    }

    /// The value of a key, as of the last commit.
    pub fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, JournalError> {
        let store = self.current.store()?;
        store.check_read(space, key)?;
        let value = store.space(space).get(key).map_err(|failure| store.read_failed(space, &failure))?;
        Ok(value.map(Bytes::from))
    }

    /// The state after the last commit, for reads that must fit each other.
    pub fn view(&self) -> Result<View, JournalError> {
        self.current.store().map(View::of)
    }

    /// Runs `work` on the committer's thread, in the order of the calls, and returns what it returned once
    /// everything it wrote, and everything it saw, is on disk.
    ///
    /// `work` sees the outcome of all work before it. It must be short and must not wait.
    pub async fn commit<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Txn<'_>) -> T + Send + 'static,
    ) -> Result<T, JournalError> {
        self.commit_as(Durability::Sync, work).await
    }

    /// The same, but returns as soon as what it wrote is as durable as asked: a relaxed write outlives the process at
    /// once, and a power cut [`core_limits::RELAXED_SYNC`] later.
    pub async fn commit_as<T: Send + 'static>(
        &self,
        durability: Durability,
        work: impl FnOnce(&mut Txn<'_>) -> T + Send + 'static,
    ) -> Result<T, JournalError> {
        self.committer.submit(durability, work)?.await.unwrap_or_else(|_| Err(self.committer.lost()))
    }

    /// The damage that reads have met; none when they met none.
    pub fn damage(&self) -> Option<MetDamage> {
        self.current.damage().met()
    }

    /// How much room there is where the journal is; none when the file system does not say.
    pub fn disk_space(&self) -> Option<DiskSpace> {
        DiskSpace::at(&self.path)
    }

    /// Whether there is room for new messages now. A file system that does not say has room.
    pub fn room(&self) -> Room {
        Room::of(self.disk_space(), self.reserve)
    }

    /// Whether reads and writes are accepted: not while the journal is opened again after a failure.
    pub fn check_open(&self) -> Result<(), JournalError> {
        self.current.check_open()
    }

    /// Whether they are, or will be again without a restart.
    pub fn check_alive(&self) -> Result<(), JournalError> {
        self.current.check_alive()
    }
}
