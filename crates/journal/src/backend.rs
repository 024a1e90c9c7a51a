//! The seam between a journal and its database. [`super::Journal`], [`super::View`] and [`super::Txn`] are plain
//! handles over these traits. `file_journal` has the database in files; another backend, in memory for instance,
//! implements them outside of this crate and is passed to [`super::Journal::over`].

use std::any::Any;
use std::pin::Pin;

use bytes::Bytes;

use super::{DiskSpace, JournalError, MetDamage, ReadPair, Space, Work};

/// How a backend runs the reads that callers await.
pub enum ReadPlace {
    /// On a thread that may block, because a read may wait for the disk.
    BlockingThread,
    /// In the task of the caller, once this future has resolved.
    Inline(Pin<Box<dyn Future<Output = ()> + Send>>),
}

/// Keys and values in order, which can be read from either end.
pub type Pairs = Box<dyn DoubleEndedIterator<Item = ReadPair> + Send>;

/// A database with one committer. All handles of a journal share it; the last one that is dropped closes it.
pub trait Backend: Any + Send + Sync {
    /// Returns the value of a key after the last commit.
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, JournalError>;

    /// Returns the state after the last commit.
    fn snapshot(&self) -> Result<Box<dyn Snapshot>, JournalError>;

    /// Writes its memory tables to files, so that a view taken next keeps little in memory. A backend without memory
    /// tables does nothing. Blocks its thread.
    fn flush(&self);

    /// Returns where the next read runs.
    fn read_place(&self) -> ReadPlace;

    /// Queues a piece of work. The committer runs the pieces one after the other in the order of the calls, makes the
    /// writes of a group of them durable, and settles each piece. An error means that the piece never runs.
    fn submit(&self, work: Box<dyn Work>) -> Result<(), JournalError>;

    /// Closes the journal for good, because a piece of work was dropped before it was settled: the committer has ended.
    /// Returns the error for that piece.
    fn lost(&self) -> JournalError;

    /// Returns the damage that reads have met; none when they met none.
    fn damage(&self) -> Option<MetDamage>;

    /// Returns the space of the disk; none when it is unknown.
    fn disk_space(&self) -> Option<DiskSpace>;

    /// Bytes of free space below which there is no room for new messages.
    fn reserve(&self) -> u64;

    /// Returns whether the contents need no check by the journal's user.
    fn is_checked(&self) -> bool;

    /// Records that the journal's user has checked the contents.
    fn note_checked(&self);

    /// Checks that reads and writes are accepted.
    fn check_open(&self) -> Result<(), JournalError>;

    /// Checks that reads and writes are accepted now, or will be again without a restart.
    fn check_alive(&self) -> Result<(), JournalError>;
}

/// The state after one commit, in all spaces.
pub trait Snapshot: Send + Sync {
    /// Returns the value of a key.
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, JournalError>;

    /// Returns keys and values from `from` (inclusive) on. The reader takes the pairs whose keys begin with `prefix`; the
    /// pairs behind them may follow. Reads lazily.
    fn scan(&self, space: Space, prefix: &[u8], from: &[u8]) -> Pairs;

    /// Returns keys and values from `first` to `last`, both inclusive. Reads lazily.
    fn range(&self, space: Space, first: &[u8], last: &[u8]) -> Pairs;
}

/// The writes of one group of work, over the state before the group.
pub trait GroupWrites {
    /// Returns the value of a key before the group.
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, JournalError>;

    /// Returns the length of a value in bytes before the group.
    fn size_of(&self, space: Space, key: &[u8]) -> Result<Option<u32>, JournalError>;

    /// Adds a write to the group.
    fn put(&mut self, space: Space, key: Bytes, value: Bytes);

    /// Adds the removal of a key, which may be absent, to the group.
    fn remove(&mut self, space: Space, key: Bytes);
}
