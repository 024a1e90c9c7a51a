//! A snapshot of the database, with the store that it belongs to.

use std::iter::once_with;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use fjall::{AbstractTree, Readable, Snapshot as DatabaseSnapshot};
use lsm_tree::{Guard, IterGuardImpl};

use super::backend::{Pairs, Snapshot};
use super::store::Store;
use super::{JournalError, ReadPair, Space};

/// The state of a store at one moment. It keeps the files of that moment, and the store.
pub(super) struct StoreSnapshot {
    snapshot: DatabaseSnapshot,
    store: Arc<Store>,
}

impl StoreSnapshot {
    pub(super) fn of(store: Arc<Store>) -> Self {
        Self { snapshot: store.database.snapshot(), store }
    }

    /// Chains the pairs before the lost keys, one error in their place, and the pairs after them. `shown` is the last
    /// key that the caller may see.
    ///
    /// The pairs are read from the tree. They hold the store and the tables of that moment, in memory and in files, but
    /// not the snapshot of the database: while one is open, the database keeps the memory tables of all later writes.
    fn parts(
        &self,
        space: Space,
        first: &[u8],
        last: Bound<&[u8]>,
        shown: Option<&[u8]>,
    ) -> impl DoubleEndedIterator<Item = ReadPair> + use<> {
        let range = |from: Bound<&[u8]>, to: Bound<&[u8]>| {
            let store = Arc::clone(&self.store);
            let tree = &store.space(space).tree;
            let pairs = tree.range::<&[u8], _>((from, to), self.snapshot.seqno(), None);
            pairs.map(move |guard| pair(guard).map_err(|failure| store.read_failed(space, &failure)))
        };
        let (before, lost, behind) = match self.store.lost.within(space, first, shown) {
            None => (Some(range(Bound::Included(first), last)), None, None),
            Some((lowest, highest)) => {
                let is_before = lowest.first.as_slice() > first;
                let is_behind = match last {
                    Bound::Included(last) | Bound::Excluded(last) => last > highest.last.as_slice(),
                    Bound::Unbounded => true,
                };
                let damage = Arc::clone(&self.store.damage);
                let text = lowest.text().to_owned();
                (
                    is_before.then(|| range(Bound::Included(first), Bound::Excluded(&lowest.first))),
                    Some(once_with(move || Err(damage.meet(space, &text)))),
                    is_behind.then(|| range(Bound::Excluded(&highest.last), last)),
                )
            }
        };
        let (before, behind) = (before.into_iter().flatten(), behind.into_iter().flatten());
        before.chain(lost.into_iter().flatten()).chain(behind)
    }
}

impl Snapshot for StoreSnapshot {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, JournalError> {
        self.store.check_read(space, key)?;
        let value = self.snapshot.get(self.store.space(space), key);
        let value = value.map_err(|failure| self.store.read_failed(space, &failure))?;
        Ok(value.map(Bytes::from))
    }

    fn scan(&self, space: Space, prefix: &[u8], from: &[u8]) -> Pairs {
        // Nearly always nothing is lost, so the end of the prefix is not needed.
        let end = if self.store.lost.is_empty() { None } else { end_of(prefix) };
        Box::new(self.parts(space, from, Bound::Unbounded, end.as_deref()))
    }

    fn range(&self, space: Space, first: &[u8], last: &[u8]) -> Pairs {
        Box::new(self.parts(space, first, Bound::Included(last), Some(last)))
    }
}

/// Returns the smallest key above all keys that begin with `prefix`; none when there is no such key.
fn end_of(prefix: &[u8]) -> Option<Vec<u8>> {
    let length = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut end = prefix[..=length].to_vec();
    end[length] += 1;
    Some(end)
}

fn pair(guard: IterGuardImpl) -> Result<(Bytes, Bytes), fjall::Error> {
    let (key, value) = guard.into_inner()?;
    Ok((key.into(), value.into()))
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use angarium_core::time::Timestamp;

    use super::*;
    use crate::limits::STORE_TABLE_BYTES;
    use crate::store::Acceptance;

    /// Keys of one byte.
    const KEYS: u8 = 100;

    #[test]
    fn scan_outlives_its_snapshot_and_keeps_no_later_writes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store");
        let store = Arc::new(Store::open(&path, Acceptance::Refuse, Timestamp::from_millis(1)).unwrap());
        let entries = store.space(Space::Entries);
        let write = |keys: Range<u8>, value: &[u8]| {
            keys.for_each(|key| entries.insert([key], value).unwrap());
        };
        write(0..KEYS, b"in a file");
        entries.rotate_memtable_and_wait().unwrap();
        write(0..KEYS / 2, b"in memory");
        let scan = StoreSnapshot::of(Arc::clone(&store)).scan(Space::Entries, b"", b"");
        let value = vec![7; 64 << 10];
        for _ in 0..15 {
            write(0..KEYS, &value);
        }
        (KEYS / 4..KEYS / 2 + KEYS / 4).for_each(|key| entries.remove([key]).unwrap());
        entries.rotate_memtable_and_wait().unwrap();
        entries.major_compact().unwrap();
        // The next rotation forgets the versions that no snapshot needs.
        entries.insert([KEYS], b"last").unwrap();
        entries.rotate_memtable_and_wait().unwrap();
        let kept = entries.tree.version_memtable_size_sum();
        assert!(kept < 2 * STORE_TABLE_BYTES, "{kept} bytes of later writes are in memory");
        let pairs: Vec<(Bytes, Bytes)> = scan.collect::<Result<_, _>>().unwrap();
        let before = |key: u8| Bytes::from_static(if key < KEYS / 2 { b"in memory" } else { b"in a file" });
        let expected: Vec<(Bytes, Bytes)> = (0..KEYS).map(|key| (vec![key].into(), before(key))).collect();
        assert_eq!(pairs, expected);
    }
}
