//! The embedded database. The tree and the embedded pools store their bytes in it, under one committer.
//!
//! The journal owns the files below the data directory and the only thread that writes them. It stores keys and values
//! in a fixed set of key spaces and does not know what they mean. All work that waits when a sync ends moves into the
//! next sync, so a claim and a post share one fdatasync, and a power cut leaves a prefix of the commits.
//!
//! The handles [`Journal`], [`View`] and [`Txn`] know no database: they use the traits of `backend`, and
//! `file_journal` implements these with the files, the committer's thread and the watch of both.
//!
//! Only this crate uses the `fjall` crate. Rules for using fjall 3.1: one writer thread, because a commit with a sync
//! holds fjall's lock; a fixed number of key spaces, never one per queue; after a failed write, drop the store and open
//! it again, because it is unknown how much of the write is on disk.

mod backend;
mod committer;
mod copy;
mod current;
mod damage;
mod disk;
mod file_journal;
mod group;
mod inspect;
pub mod limits;
mod log;
mod lost;
mod mend;
mod moment;
mod reclaim;
mod rescue;
mod restored;
mod snapshot;
mod stall;
mod store;
mod tables;
mod txn;
mod view;
mod work;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use thiserror::Error as ThisError;

use angarium_clock::Clock;
use angarium_core::durability::Durability;
use angarium_core::limits as core_limits;
pub use backend::{Backend, GroupWrites, Pairs, ReadPlace, Snapshot};
pub use copy::StoreCopy;
pub use damage::MetDamage;
pub use disk::{DiskSpace, Room, RoomLeft};
use file_journal::FileJournal;
pub use inspect::{Inspection, inspect};
pub use log::{Damage, Remedy};
pub use moment::{Moment, MomentError, moment};
pub use restored::note_restored;
pub use txn::Txn;
pub use view::{ReadPair, View};
pub use work::Work;

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
    /// Bodies that several messages share.
    Bodies = 14,
    /// For each of these bodies: how many messages have it.
    Readers = 15,
}

const SPACES: [(Space, &str); 16] = [
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
    (Space::Bodies, "bodies"),
    (Space::Readers, "readers"),
];

impl Space {
    /// Returns the name that is stored on disk.
    pub fn name(self) -> &'static str {
        SPACES[self as usize].1
    }

    /// Returns all key spaces but `Meta`, which describes the store itself.
    pub fn contents() -> impl Iterator<Item = Self> {
        SPACES.iter().map(|(space, _)| *space).filter(|space| *space != Self::Meta)
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
    backend: Arc<dyn Backend>,
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
        FileJournal::open(path, clock, options).map(Self::over)
    }

    /// Opens another journal beside the first one. Its last write may be old, so it only moves `clock` forward.
    pub fn open_beside(path: &Path, clock: &Clock, options: JournalOptions) -> Result<Self, OpenError> {
        FileJournal::open_beside(path, clock, options).map(Self::over)
    }

    /// Returns the journal over a backend.
    pub fn over(backend: impl Backend) -> Self {
        Self { backend: Arc::new(backend) }
    }

    /// Returns whether there is a journal, or a part of one, below `path`. False when its disk is not mounted. Costs up
    /// to three file system calls.
    pub fn is_at(path: &Path) -> bool {
        log::is_begun(path)
    }

    /// Returns whether the contents need no check by the journal's user: the journal is new, or there was no crash
    /// since the last check.
    pub fn is_checked(&self) -> bool {
        self.backend.is_checked()
    }

    /// Records that the journal's user has checked the contents. A clean close stores this; a crash loses it.
    pub fn note_checked(&self) {
        self.backend.note_checked();
    }

    /// Returns the value of a key after the last commit.
    pub fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, JournalError> {
        self.backend.get(space, key)
    }

    /// Returns a view of the state after the last commit, for reads that must be consistent with each other.
    pub fn view(&self) -> Result<View, JournalError> {
        self.backend.snapshot().map(View::of)
    }

    /// Runs `read`, which may wait for the disk, where it blocks no other task: on a thread for blocking work, if the
    /// backend reads a disk. There a panic of `read` is [`JournalError::Read`].
    pub async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, JournalError> {
        match self.backend.read_place() {
            ReadPlace::BlockingThread => {
                let journal = self.clone();
                let task = tokio::task::spawn_blocking(move || read(&journal));
                task.await.map_err(|error| JournalError::Read(error.to_string().into()))
            }
            ReadPlace::Inline(before) => {
                before.await;
                Ok(read(self))
            }
        }
    }

    /// Runs `work` on the committer, in the order of the calls. Returns its result once everything that `work` wrote
    /// and read is on disk.
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
        let (work, answer) = work::new(durability, work);
        self.backend.submit(work)?;
        answer.await.unwrap_or_else(|_| Err(self.backend.lost()))
    }

    /// Returns the damage that reads have met; none when they met none.
    pub fn damage(&self) -> Option<MetDamage> {
        self.backend.damage()
    }

    /// Returns the space of the journal's file system; none when the file system does not report it.
    pub fn disk_space(&self) -> Option<DiskSpace> {
        self.backend.disk_space()
    }

    /// Bytes of free space below which there is no room for new messages.
    pub fn reserve(&self) -> u64 {
        self.backend.reserve()
    }

    /// Returns whether there is room for new messages now. A file system that does not report its space has room.
    pub fn room(&self) -> Room {
        Room::of(self.disk_space(), self.reserve())
    }

    /// Checks that the journal accepts reads and writes. It does not while it is stalled or being opened again.
    pub fn check_open(&self) -> Result<(), JournalError> {
        self.backend.check_open()
    }

    /// Checks that the journal accepts reads and writes now, or will again without a restart.
    pub fn check_alive(&self) -> Result<(), JournalError> {
        self.backend.check_alive()
    }
}
