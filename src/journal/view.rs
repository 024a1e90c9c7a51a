//! What a reader sees: the state after one commit, in all spaces, however long he reads.

use std::sync::Arc;

use bytes::Bytes;
use fjall::{Readable, Snapshot};

use super::store::Store;
use super::{JournalError, Space, read_failed};

/// A key and its value, or why they could not be read.
pub type ReadPair = Result<(Bytes, Bytes), JournalError>;

/// The journal as it was at one moment. It keeps the files of that moment, and a journal that failed cannot be opened
/// again before it goes, so nobody holds one for long.
pub struct View {
    snapshot: Snapshot,
    store: Arc<Store>,
}

impl View {
    pub(super) fn of(store: Arc<Store>) -> Self {
        Self { snapshot: store.database.snapshot(), store }
    }

    /// The value of a key.
    pub fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, JournalError> {
        let value = self.snapshot.get(self.store.space(space), key).map_err(read_failed)?;
        Ok(value.map(Bytes::from))
    }

    /// Keys and values from `from` (inclusive) that begin with `prefix`, upwards. Reads lazily: a caller that
    /// stops early has not paid for the rest.
    pub fn scan(&self, space: Space, prefix: &[u8], from: &[u8]) -> impl Iterator<Item = ReadPair> + use<> {
        let prefix = prefix.to_vec();
        let range = self.snapshot.range(self.store.space(space), from.to_vec()..);
        range
            .map(pair)
            .take_while(move |item| item.as_ref().map_or(true, |(key, _)| key.starts_with(&prefix)))
    }

    /// Keys and values from `first` to `last`, both inclusive, which may be read from either end.
    pub fn range(
        &self,
        space: Space,
        first: &[u8],
        last: &[u8],
    ) -> impl DoubleEndedIterator<Item = ReadPair> + use<> {
        self.snapshot.range(self.store.space(space), first.to_vec()..=last.to_vec()).map(pair)
    }
}

fn pair(guard: fjall::Guard) -> ReadPair {
    let (key, value) = guard.into_inner().map_err(read_failed)?;
    Ok((key.into(), value.into()))
}
