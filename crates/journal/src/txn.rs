//! The transaction of a commit group: each piece of work reads the state after all work before it, and writes to one
//! batch.

use std::collections::HashMap;

use bytes::Bytes;

use super::backend::GroupWrites;
use super::disk::RoomLeft;
use super::{JournalError, Room, Space};
use angarium_core::time::Timestamp;

/// The writes of one group of work. Each piece of work reads the writes of the pieces before it.
pub struct Txn<'a> {
    writes: &'a mut dyn GroupWrites,
    left: RoomLeft,
    /// Bytes of the keys and values of the group.
    bytes: usize,
    now: Timestamp,
    /// Writes of the group to the spaces that work reads back. Messages are left out: no work decides anything by a
    /// message of the same group, and keeping them here would cost more than writing them.
    written: HashMap<Space, HashMap<Bytes, Option<Bytes>>>,
}

fn is_read_back(space: Space) -> bool {
    matches!(
        space,
        Space::Tree | Space::Records | Space::Totals | Space::Stamps | Space::Buckets | Space::Readers
    )
}

impl<'a> Txn<'a> {
    /// Begins a group at `now`, with the room that is left before it. `writes` receives the writes of its work.
    pub fn new(writes: &'a mut dyn GroupWrites, left: RoomLeft, now: Timestamp) -> Self {
        Self { writes, left, bytes: 0, now, written: HashMap::new() }
    }

    /// Returns when the group began. It is stored with the group as the time of the last write.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Returns whether there is room for new messages after the writes of the group so far.
    pub fn room(&self) -> Room {
        self.left.room()
    }

    /// Returns the bytes of the keys and values that the group has written so far.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the value of a key. In the spaces of messages, headers, schedule and notes, writes of the same group are
    /// not visible: a queue has at most one batch in flight, so no write of the group can concern it.
    pub fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, JournalError> {
        if let Some(value) = self.written.get(&space).and_then(|written| written.get(key)) {
            return Ok(value.clone());
        }
        self.writes.get(space, key)
    }

    /// Returns the length of a value in bytes, without reading the value where the store supports that.
    pub fn size_of(&self, space: Space, key: &[u8]) -> Result<Option<u32>, JournalError> {
        self.writes.size_of(space, key)
    }

    pub fn put(&mut self, space: Space, key: Bytes, value: Bytes) {
        self.note_bytes(key.len().saturating_add(value.len()));
        self.keep(space, &key, Some(&value));
        self.writes.put(space, key, value);
    }

    /// Removes a key. An absent key is no error.
    pub fn remove(&mut self, space: Space, key: Bytes) {
        self.note_bytes(key.len());
        self.keep(space, &key, None);
        self.writes.remove(space, key);
    }

    fn note_bytes(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.left.write(bytes);
    }

    /// Keeps a write for work that reads it back.
    fn keep(&mut self, space: Space, key: &Bytes, value: Option<&Bytes>) {
        if is_read_back(space) {
            self.written.entry(space).or_default().insert(key.clone(), value.cloned());
        }
    }
}
