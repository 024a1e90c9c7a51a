//! The backend of an open journal: reads of the disk, and the queue of the committer.

use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use angarium_journal::{
    Backend, DiskSpace, GroupWrites, JournalError, MetDamage, Pairs, ReadPair, ReadPlace, Snapshot, Space,
    Work,
};
use bytes::Bytes;

use super::shared::{OpenStore, Shared};
use super::versions::{self, KeyBounds, Writes};

/// The handle of an open journal. Its drop closes the journal: the committer writes the waiting work and ends.
pub(super) struct SimulatedJournal(pub(super) Arc<Shared>);

impl Drop for SimulatedJournal {
    fn drop(&mut self) {
        self.0.begin_close();
    }
}

impl Backend for SimulatedJournal {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, JournalError> {
        let (store, group) = self.0.store()?;
        store.disk.get(space, key, group)
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>, JournalError> {
        let (store, group) = self.0.store()?;
        store.disk.open_view(store.opening, group);
        Ok(Box::new(SimulatedSnapshot(Arc::new(View { store, group }))))
    }

    /// It has no memory tables: each group is in its log.
    fn flush(&self) {}

    /// Reads run in their task, after other tasks have had the chance to make steps.
    fn read_place(&self) -> ReadPlace {
        let world = self.0.world().clone();
        ReadPlace::Inline(Box::pin(async move {
            match world.below(8) {
                0..=3 => {}
                4..=6 => tokio::task::yield_now().await,
                _ => tokio::time::sleep(Duration::from_millis(1 + world.below(5))).await,
            }
        }))
    }

    fn submit(&self, work: Box<dyn Work>) -> Result<(), JournalError> {
        self.0.submit(work)
    }

    fn lost(&self) -> JournalError {
        let cause: Arc<str> = "the end of the committer".into();
        self.0.end(&cause);
        JournalError::Unknown(cause)
    }

    fn damage(&self) -> Option<MetDamage> {
        None
    }

    fn disk_space(&self) -> Option<DiskSpace> {
        Some(self.0.disk.space())
    }

    fn reserve(&self) -> u64 {
        self.0.options.reserve
    }

    fn is_checked(&self) -> bool {
        self.0.is_checked()
    }

    fn note_checked(&self) {
        self.0.note_checked();
    }

    fn check_open(&self) -> Result<(), JournalError> {
        self.0.check_open()
    }

    fn check_alive(&self) -> Result<(), JournalError> {
        self.0.check_alive()
    }
}

/// The state after a group, which the disk keeps while this exists.
struct View {
    store: Arc<OpenStore>,
    group: u64,
}

impl Drop for View {
    fn drop(&mut self) {
        self.store.disk.close_view(self.store.opening, self.group);
    }
}

struct SimulatedSnapshot(Arc<View>);

impl SimulatedSnapshot {
    fn pairs(&self, space: Space, bounds: KeyBounds) -> Pairs {
        Box::new(ViewPairs { view: Arc::clone(&self.0), space, bounds })
    }
}

impl Snapshot for SimulatedSnapshot {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, JournalError> {
        self.0.store.disk.get(space, key, self.0.group)
    }

    fn scan(&self, space: Space, _prefix: &[u8], from: &[u8]) -> Pairs {
        self.pairs(space, (Bound::Included(Bytes::copy_from_slice(from)), Bound::Unbounded))
    }

    fn range(&self, space: Space, first: &[u8], last: &[u8]) -> Pairs {
        let bound = |key| Bound::Included(Bytes::copy_from_slice(key));
        self.pairs(space, (bound(first), bound(last)))
    }
}

/// The pairs of a view that are not read yet.
struct ViewPairs {
    view: Arc<View>,
    space: Space,
    bounds: KeyBounds,
}

impl Iterator for ViewPairs {
    type Item = ReadPair;

    fn next(&mut self) -> Option<ReadPair> {
        let pair = self.view.store.disk.first(self.space, &self.bounds, self.view.group).transpose()?;
        if let Ok((key, _)) = &pair {
            self.bounds.0 = Bound::Excluded(key.clone());
        }
        Some(pair)
    }
}

impl DoubleEndedIterator for ViewPairs {
    fn next_back(&mut self) -> Option<ReadPair> {
        let pair = self.view.store.disk.last(self.space, &self.bounds, self.view.group).transpose()?;
        if let Ok((key, _)) = &pair {
            self.bounds.1 = Bound::Excluded(key.clone());
        }
        Some(pair)
    }
}

/// The writes of a group before they are written.
pub(super) struct StagedGroup {
    store: Arc<OpenStore>,
    /// The group before this one.
    before: u64,
    writes: Writes,
}

impl StagedGroup {
    pub(super) fn new(store: Arc<OpenStore>, before: u64) -> Self {
        Self { store, before, writes: Writes::new() }
    }

    pub(super) fn into_writes(self) -> Writes {
        self.writes
    }
}

impl GroupWrites for StagedGroup {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, JournalError> {
        self.store.disk.get(space, key, self.before)
    }

    fn size_of(&self, space: Space, key: &[u8]) -> Result<Option<u32>, JournalError> {
        Ok(self.get(space, key)?.map(|value| u32::try_from(value.len()).unwrap_or(u32::MAX)))
    }

    fn put(&mut self, space: Space, key: Bytes, value: Bytes) {
        self.writes.insert((versions::number(space), key), Some(value));
    }

    fn remove(&mut self, space: Space, key: Bytes) {
        self.writes.insert((versions::number(space), key), None);
    }
}
