//! A group of work as a batch of the database.

use bytes::Bytes;
use fjall::{OwnedWriteBatch, PersistMode};

use super::backend::GroupWrites;
use super::log::{self, Position};
use super::store::{Store, TIME_KEY};
use super::{JournalError, Space};
use angarium_core::durability::Durability;
use angarium_core::time::Timestamp;

/// The batch of one group, and the store that its work reads.
pub(super) struct StoreGroup<'a> {
    store: &'a Store,
    batch: OwnedWriteBatch,
}

impl<'a> StoreGroup<'a> {
    pub(super) fn new(store: &'a Store, durability: Durability) -> Self {
        let mode = match durability {
            Durability::Relaxed => PersistMode::Buffer,
            Durability::Sync => PersistMode::SyncData,
        };
        Self { store, batch: store.database.batch().durability(Some(mode)) }
    }

    /// Writes the group with the time of its begin and its position. Returns whether there was anything to write; a
    /// group without writes costs nothing.
    pub(super) fn commit(mut self, now: Timestamp, position: Position) -> Result<bool, fjall::Error> {
        if self.batch.is_empty() {
            return Ok(false);
        }
        let time = now.as_millis().to_be_bytes();
        self.batch.insert(self.store.space(Space::Meta), TIME_KEY, time);
        // The check of a log expects the position as the last item of a batch.
        self.batch.insert(self.store.space(Space::Meta), log::KEY, position.encode());
        self.batch.commit().map(|()| true)
    }
}

impl GroupWrites for StoreGroup<'_> {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, JournalError> {
        self.store.get(space, key)
    }

    fn size_of(&self, space: Space, key: &[u8]) -> Result<Option<u32>, JournalError> {
        self.store.check_read(space, key)?;
        self.store.space(space).size_of(key).map_err(|failure| self.store.read_failed(space, &failure))
    }

    fn put(&mut self, space: Space, key: Bytes, value: Bytes) {
        self.batch.insert(self.store.space(space), key, value);
    }

    fn remove(&mut self, space: Space, key: Bytes) {
        self.batch.remove(self.store.space(space), key);
    }
}
