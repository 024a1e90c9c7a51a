//! A read view: the state after one commit, in all spaces, for as long as the reader needs it.

use bytes::Bytes;

use super::backend::Snapshot;
use super::{JournalError, Space};

/// A key with its value, or the error of reading them.
pub type ReadPair = Result<(Bytes, Bytes), JournalError>;

/// The journal at one moment. While a view exists, the store keeps in memory all that is written after that moment. So
/// a caller must not hold a view for long. Its scans may outlive it: they keep the files and the memory tables of that
/// moment, and of later writes only as much as fills these tables up. A failed journal cannot be opened again before its
/// views and their scans are dropped.
pub struct View(Box<dyn Snapshot>);

impl View {
    pub(super) fn of(snapshot: Box<dyn Snapshot>) -> Self {
        Self(snapshot)
    }

    /// Returns the value of a key.
    pub fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, JournalError> {
        self.0.get(space, key)
    }

    /// Returns keys and values from `from` (inclusive) that begin with `prefix`, in ascending order. Reads lazily: a
    /// caller that stops early has not paid for the rest. A range that damage has taken yields one error; a caller that
    /// continues after it misses the lost keys.
    pub fn scan(&self, space: Space, prefix: &[u8], from: &[u8]) -> impl Iterator<Item = ReadPair> + use<> {
        let pairs = self.0.scan(space, prefix, from);
        let prefix = prefix.to_vec();
        pairs.take_while(move |item| item.as_ref().map_or(true, |(key, _)| key.starts_with(&prefix)))
    }

    /// Returns keys and values from `first` to `last`, both inclusive. They can be read from either end. Damage yields
    /// errors as in [`View::scan`].
    pub fn range(
        &self,
        space: Space,
        first: &[u8],
        last: &[u8],
    ) -> impl DoubleEndedIterator<Item = ReadPair> + use<> {
        self.0.range(space, first, last)
    }
}
