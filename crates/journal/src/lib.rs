//! The embedded database. The tree and the embedded pools store their bytes in it, under one committer.
//!
//! The journal owns the files below the data directory and the only thread that writes them. It stores keys and values
//! in a fixed set of key spaces and does not know what they mean. All work that waits when a sync ends moves into the
//! next sync, so a claim and a post share one fdatasync, and a power cut leaves a prefix of the commits.
//!
//! Only this crate uses the `fjall` crate. Rules for using fjall 3.1: one writer thread, because a commit with a sync
//! holds fjall's lock; a fixed number of key spaces, never one per queue; after a failed write, drop the store and open
//! it again, because it is unknown how much of the write is on disk.

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

/// A key space: a separate set of keys. The numbers and names of key spaces are stored on disk. A key space that a
/// store of an earlier version lacks is created when the store is opened; a program of that version ignores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    /// The format of the database, and the time of its last write.
    Meta = 0,
    /// Nodes of the tree.
    Tree = 1,
    /// For each slot of the pool: its writer and the number of its last batch.
    Records = 2,
    /// For each queue of the pool: its totals and the position of its first message.
    Totals = 3,
    /// Ready messages.
    Entries = 4,
    /// Headers of messages that changed after the post.
    Headers = 5,
    /// The owner stamp of the pool.
    Stamps = 6,
    /// Messages that are not ready.
    Aside = 7,
    /// Scheduled messages by their time.
    Schedule = 8,
    /// Index of the times at which messages become due.
    Buckets = 9,
    /// Values that queues store beside their messages.
    Notes = 10,
    /// Messages of message groups, ordered by group.
    Groups = 11,
    /// Messages that are done or failed and are kept.
    Kept = 12,
    /// Kept messages by the time when they were settled.
    Settled = 13,
}

const SPACES: [(Space, &str); 14] = [
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
    (Space::Kept, "kept"),
    (Space::Settled, "settled"),
];

impl Space {
    /// Returns the name that is stored on disk.
    pub fn name(self) -> &'static str {
        SPACES[self as usize].1
    }
}

/// The format that this program writes. A store in another format is refused and never converted.
const FORMAT: &[u8] = b"angarium 2";

/// Errors of reads and commits.
#[derive(Clone, Debug, ThisError)]
pub enum JournalError {
    /// Too much work is waiting. Nothing was written.
    #[error("too many writes are waiting")]
    Busy,
    /// The journal is closed, or it is being opened again after a failed write. Nothing was written.
    #[error("the journal is closed after {0}")]
    Closed(Arc<str>),
    /// The write failed: its outcome is unknown.
    #[error("the write failed: {0}")]
    Unknown(Arc<str>),
    /// The read failed.
    #[error("the read failed: {0}")]
    Read(Arc<str>),
    /// The read met damage and fails again when it is repeated. Nothing was written.
    #[error("stored data is damaged: {0}")]
    Damaged(Arc<str>),
}

/// Errors of opening a journal.
#[derive(Debug, ThisError)]
pub enum OpenError {
    /// Another process has the journal open.
    #[error("{0} is in use by another process")]
    InUse(PathBuf),
    /// A program with another format wrote the journal.
    #[error("{path} has the format {found:?}, and this program reads {FORMAT:?}")]
    Format {
        /// Directory of the journal.
        path: PathBuf,
        /// The stored format.
        found: String,
    },
    /// Synced data is missing or cannot be read.
    #[error("cannot open {path}: {damage}")]
    Damaged {
        /// Directory of the journal.
        path: PathBuf,
        /// The damage and its remedy.
        damage: Box<Damage>,
    },
    #[error("cannot read {path}")]
    File {
        /// Directory of the journal.
        path: PathBuf,
        /// Error of the file system.
        #[source]
        source: std::io::Error,
    },
    /// The store itself failed.
    #[error("cannot open {path}")]
    Store {
        /// Directory of the journal.
        path: PathBuf,
        /// Error of the store.
        #[source]
        source: fjall::Error,
    },
}

/// Options for opening a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalOptions {
    /// Free bytes of the file system that new messages may not use.
    pub reserve: u64,
    /// Opens a journal with a damaged log without the lost commits. Such a journal is refused otherwise.
    pub accept_damage: bool,
    /// Max time for a commit. A longer commit stalls the journal until it ends: meanwhile new work is refused, and the
    /// error guarantees that nothing was written.
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

/// A handle to an open journal. Clones share the journal; dropping the last one closes it.
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
    /// Opens the journal below `path` with the default options, and creates it when there is none. Blocks while it
    /// replays its log.
    ///
    /// `clock` continues from the last write of the journal: time does not run backwards between two runs, and the
    /// clock does not trust a step of more than a day. A journal that misses synced data is neither opened nor changed.
    pub fn open(path: &Path, clock: &Clock) -> Result<Self, OpenError> {
        Self::open_with(path, clock, JournalOptions::default())
    }

    /// Opens the journal below `path` like [`Self::open`], with other options.
    pub fn open_with(path: &Path, clock: &Clock, options: JournalOptions) -> Result<Self, OpenError> {
        let store = Store::open(path, Acceptance::of(options), clock.wall())?;
        clock.resume(store.last_write(path)?);
        Self::start(path, clock, options, store)
    }

    /// Opens another journal beside the first one. Its last write may be old, so it only moves `clock` forward.
    pub fn open_beside(path: &Path, clock: &Clock, options: JournalOptions) -> Result<Self, OpenError> {
        let store = Store::open(path, Acceptance::of(options), clock.wall())?;
        clock.not_before(store.last_write(path)?);
        Self::start(path, clock, options, store)
    }

    /// Returns whether there is a journal, or a part of one, below `path`. False when its disk is not mounted. Costs up
    /// to three file system calls.
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

    /// Returns whether the contents need no check by the journal's user: the journal is new, or there was no crash
    /// since the last check.
    pub fn is_checked(&self) -> bool {
        self.is_checked.load(Ordering::Relaxed)
    }

    /// Records that the journal's user has checked the contents. A clean close stores this; a crash loses it.
    pub fn note_checked(&self) {
        self.is_checked.store(true, Ordering::Relaxed);
    }

    /// Returns the value of a key after the last commit.
    pub fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, JournalError> {
        let store = self.current.store()?;
        store.check_read(space, key)?;
        let value = store.space(space).get(key).map_err(|failure| store.read_failed(space, &failure))?;
        Ok(value.map(Bytes::from))
    }

    /// Returns a view of the state after the last commit, for reads that must be consistent with each other.
    pub fn view(&self) -> Result<View, JournalError> {
        self.current.store().map(View::of)
    }

    /// Runs `work` on the committer's thread, in the order of the calls. Returns its result once everything that `work`
    /// wrote and read is on disk.
    ///
    /// `work` sees the writes of all work before it. It must be short and must not block.
    pub async fn commit<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Txn<'_>) -> T + Send + 'static,
    ) -> Result<T, JournalError> {
        self.commit_as(Durability::Sync, work).await
    }

    /// Runs `work` like [`Self::commit`], and returns as soon as its writes have the given durability. A relaxed write
    /// survives a crash of the process at once, and a power cut after [`core_limits::RELAXED_SYNC`].
    pub async fn commit_as<T: Send + 'static>(
        &self,
        durability: Durability,
        work: impl FnOnce(&mut Txn<'_>) -> T + Send + 'static,
    ) -> Result<T, JournalError> {
        self.committer.submit(durability, work)?.await.unwrap_or_else(|_| Err(self.committer.lost()))
    }

    /// Returns the damage that reads have met; none when they met none.
    pub fn damage(&self) -> Option<MetDamage> {
        self.current.damage().met()
    }

    /// Returns the space of the journal's file system; none when the file system does not report it.
    pub fn disk_space(&self) -> Option<DiskSpace> {
        DiskSpace::at(&self.path)
    }

    /// Bytes of free space below which there is no room for new messages.
    pub fn reserve(&self) -> u64 {
        self.reserve
    }

    /// Returns whether there is room for new messages now. A file system that does not report its space has room.
    pub fn room(&self) -> Room {
        Room::of(self.disk_space(), self.reserve)
    }

    /// Checks that the journal accepts reads and writes. It does not while it is stalled or being opened again.
    pub fn check_open(&self) -> Result<(), JournalError> {
        self.current.check_open()
    }

    /// Checks that the journal accepts reads and writes now, or will again without a restart.
    pub fn check_alive(&self) -> Result<(), JournalError> {
        self.current.check_alive()
    }
}
