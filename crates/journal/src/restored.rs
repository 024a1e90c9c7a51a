//! Tree time after a restore: it continues from the moment of the backup, however long ago that was, so no message and
//! no claim loses the life that it had left.
//!
//! | key of `Meta` | value |
//! |---|---|
//! | `restored` | empty; from the restore until the first open |
//! | `behind` | milliseconds by which tree time is behind the machine's clock since then (8 bytes, big endian) |
//!
//! Tree time stays behind by that much, over restarts too, until an operator accepts the machine's clock.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use fjall::{OwnedWriteBatch, PersistMode};

use super::store::{CHECKED_KEY, Store};
use super::{OpenError, Space, Txn};
use angarium_clock::Clock;

const RESTORED_KEY: &[u8] = b"restored";
const BEHIND_KEY: &[u8] = b"behind";

/// Notes that the contents are those of a backup, made at the time of the last write: tree time continues from there.
pub fn note_restored(txn: &mut Txn<'_>) {
    txn.put(Space::Meta, Bytes::from_static(RESTORED_KEY), Bytes::new());
}

impl Store {
    /// Lets `clock` run behind the machine's clock as far as an earlier restore asks for. The first open after a restore
    /// determines how far, and records it.
    pub(super) fn apply_restore(&self, path: &Path, clock: &Clock) -> Result<(), OpenError> {
        let failed = |source| OpenError::Store { path: path.to_owned(), source };
        let meta = self.space(Space::Meta);
        let is_restored = meta.contains_key(RESTORED_KEY).map_err(failed)?;
        let known = meta.get(BEHIND_KEY).map_err(failed)?;
        if !is_restored && known.is_none() {
            return Ok(());
        }
        let millis = if clock.accepts() {
            0
        } else if is_restored {
            clock.wall().as_millis().saturating_sub(self.last_write(path)?.as_millis())
        } else {
            known.and_then(|known| Some(u64::from_be_bytes((*known).try_into().ok()?))).unwrap_or(0)
        };
        // Both keys change together, and before any caller acts on the time.
        let mut batch = self.forget(is_restored);
        if millis == 0 {
            batch.remove(meta, BEHIND_KEY);
        } else {
            batch.insert(meta, BEHIND_KEY, millis.to_be_bytes());
        }
        batch.commit().map_err(failed)?;
        clock.run_behind(Duration::from_millis(millis));
        Ok(())
    }

    /// Prepares the first open of a journal that was restored beside the first one, which determines the time.
    pub(super) fn apply_restore_beside(&self, path: &Path) -> Result<(), OpenError> {
        let failed = |source| OpenError::Store { path: path.to_owned(), source };
        if !self.space(Space::Meta).contains_key(RESTORED_KEY).map_err(failed)? {
            return Ok(());
        }
        self.forget(true).commit().map_err(failed)
    }

    /// Begins a batch that removes the note of a restore. Restored contents were not checked: they may have the wrong
    /// totals of a store that had crashed before its backup.
    fn forget(&self, is_restored: bool) -> OwnedWriteBatch {
        let meta = self.space(Space::Meta);
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncAll));
        if is_restored {
            batch.remove(meta, RESTORED_KEY);
            batch.remove(meta, CHECKED_KEY);
        }
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Journal, JournalOptions};
    use angarium_core::time::Timestamp;

    const HOUR: u64 = 3_600_000;
    /// The moment of the backup.
    const POINT: u64 = 1_000_000_000_000;

    /// Makes a restored journal.
    async fn restore(path: &Path) {
        let journal = Journal::open(path, &Clock::manual(POINT)).unwrap();
        journal.commit(note_restored).await.unwrap();
    }

    /// Opens the journal when the machine's clock shows `wall`. Returns the clock then.
    fn open(path: &Path, wall: u64) -> (Journal, Clock) {
        let clock = Clock::manual(wall);
        (Journal::open(path, &clock).unwrap(), clock)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn restored_journal_continues_at_its_moment() {
        for age in [0, 20 * HOUR, 240 * HOUR] {
            let directory = tempfile::tempdir().unwrap();
            restore(directory.path()).await;
            let (journal, clock) = open(directory.path(), POINT + age);
            assert_eq!(clock.now(), Timestamp::from_millis(POINT), "{age}");
            assert_eq!(clock.wall(), Timestamp::from_millis(POINT + age));
            assert_eq!((clock.doubt(), clock.behind().is_some()), (None, age > 0));
            assert!(!journal.is_checked());
            clock.advance(HOUR);
            journal.commit(|txn| txn.put(Space::Tree, "k".into(), "v".into())).await.unwrap();
            drop(journal);
            // Time passes while the service is stopped, as it does without a restore.
            let (_journal, clock) = open(directory.path(), POINT + age + 3 * HOUR);
            assert_eq!(clock.now(), Timestamp::from_millis(POINT + 3 * HOUR), "{age}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn accepted_clock_ends_the_lag_of_a_restore() {
        let directory = tempfile::tempdir().unwrap();
        restore(directory.path()).await;
        drop(open(directory.path(), POINT + 20 * HOUR));
        let clock = Clock::manual(POINT + 21 * HOUR);
        clock.accept_steps();
        let journal = Journal::open(directory.path(), &clock).unwrap();
        assert_eq!(clock.now(), Timestamp::from_millis(POINT + 21 * HOUR));
        journal.commit(|txn| txn.put(Space::Tree, "k".into(), "v".into())).await.unwrap();
        drop(journal);
        let (_journal, clock) = open(directory.path(), POINT + 22 * HOUR);
        assert_eq!((clock.now(), clock.behind()), (Timestamp::from_millis(POINT + 22 * HOUR), None));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn restore_under_an_earlier_clock_keeps_its_moment() {
        let directory = tempfile::tempdir().unwrap();
        restore(directory.path()).await;
        let (_journal, clock) = open(directory.path(), POINT - HOUR);
        assert_eq!((clock.now(), clock.behind()), (Timestamp::from_millis(POINT), None));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn restored_journal_beside_moves_no_clock_back() {
        let directory = tempfile::tempdir().unwrap();
        restore(directory.path()).await;
        for _ in 0..2 {
            let clock = Clock::manual(POINT + HOUR);
            let options = JournalOptions::default();
            let journal = Journal::open_beside(directory.path(), &clock, options).unwrap();
            assert_eq!((clock.now(), clock.behind()), (Timestamp::from_millis(POINT + HOUR), None));
            assert!(!journal.is_checked());
        }
    }
}
