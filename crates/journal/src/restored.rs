//! Tree time after a restore: it continues from the moment of the backup, however long ago that was, so no message and
//! no claim loses the life that it had left.
//!
//! | key of `Meta` | value |
//! |---|---|
//! | `restored` | empty; from the restore until the first start that succeeds |
//! | `behind` | milliseconds by which tree time is behind the machine's clock since then (8 bytes, big endian) |
//!
//! ```text
//! restore ──▶ restored ──open──▶ restored, time continues from the last write ──end_restore──▶ behind
//!                ▲                          │ failed start, crash, tool
//!                └──────────────────────────┘
//! ```
//!
//! While there is the mark `restored`, each open continues from the last write: time between two opens does not count.
//! So a start that fails, or a tool that opens the tree, does not begin the life of the messages. The first start that
//! succeeds replaces the mark by `behind` in one commit. From then on tree time stays behind by that much, over
//! restarts too, until an operator accepts the machine's clock.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use fjall::{OwnedWriteBatch, PersistMode};

use super::store::{CHECKED_KEY, Store};
use super::{Journal, JournalError, OpenError, Space, Txn};
use angarium_clock::Clock;

const RESTORED_KEY: &[u8] = b"restored";
const BEHIND_KEY: &[u8] = b"behind";

/// Notes that the contents are those of a backup, made at the time of the last write: tree time continues from there.
pub fn note_restored(txn: &mut Txn<'_>) {
    txn.put(Space::Meta, Bytes::from_static(RESTORED_KEY), Bytes::new());
}

impl Journal {
    /// Ends a restore, if the journal is of one: from now on tree time is behind the machine's clock by as much as it
    /// is in this process, over restarts too. To be called when a service has started on the journal, with the clock that
    /// was given to [`Journal::open_with`]. The outcome is durable.
    pub async fn end_restore(&self, clock: &Clock) -> Result<(), JournalError> {
        if self.read(|journal| journal.get(Space::Meta, RESTORED_KEY)).await??.is_none() {
            return Ok(());
        }
        let behind = clock.behind();
        self.commit(move |txn| {
            txn.remove(Space::Meta, Bytes::from_static(RESTORED_KEY));
            let key = Bytes::from_static(BEHIND_KEY);
            match behind.and_then(|behind| u64::try_from(behind.as_millis()).ok()) {
                Some(millis) => {
                    txn.put(Space::Meta, key, Bytes::copy_from_slice(&millis.to_be_bytes()));
                }
                None => txn.remove(Space::Meta, key),
            }
        })
        .await
    }
}

impl Store {
    /// Lets `clock` run behind the machine's clock as far as an earlier restore asks for. If an operator accepts the
    /// machine's clock, the restore is forgotten.
    pub(super) fn apply_restore(&self, path: &Path, clock: &Clock) -> Result<(), OpenError> {
        let failed = |source| OpenError::Store { path: path.to_owned(), source };
        let meta = self.space(Space::Meta);
        let is_restored = meta.contains_key(RESTORED_KEY).map_err(failed)?;
        let known = meta.get(BEHIND_KEY).map_err(failed)?;
        if !is_restored && known.is_none() {
            return Ok(());
        }
        let mut batch = self.uncheck(is_restored);
        if clock.accepts() {
            // Both keys change together, and before any caller acts on the time.
            batch.remove(meta, RESTORED_KEY);
            batch.remove(meta, BEHIND_KEY);
            return batch.commit().map_err(failed);
        }
        let millis = if is_restored {
            batch.commit().map_err(failed)?;
            clock.wall().as_millis().saturating_sub(self.last_write(path)?.as_millis())
        } else {
            known.and_then(|known| Some(u64::from_be_bytes((*known).try_into().ok()?))).unwrap_or(0)
        };
        clock.run_behind(Duration::from_millis(millis));
        Ok(())
    }

    /// Prepares the first open of a journal that was restored beside the first one, which determines the time.
    pub(super) fn apply_restore_beside(&self, path: &Path) -> Result<(), OpenError> {
        let failed = |source| OpenError::Store { path: path.to_owned(), source };
        let meta = self.space(Space::Meta);
        if !meta.contains_key(RESTORED_KEY).map_err(failed)? {
            return Ok(());
        }
        let mut batch = self.uncheck(true);
        batch.remove(meta, RESTORED_KEY);
        batch.commit().map_err(failed)
    }

    /// Begins a durable batch that notes restored contents as unchecked: they may have the wrong totals of a store that
    /// had crashed before its backup.
    fn uncheck(&self, is_restored: bool) -> OwnedWriteBatch {
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncAll));
        if is_restored {
            batch.remove(self.space(Space::Meta), CHECKED_KEY);
        }
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::JournalOptions;
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
            journal.end_restore(&clock).await.unwrap();
            clock.advance(HOUR);
            journal.commit(|txn| txn.put(Space::Tree, "k".into(), "v".into())).await.unwrap();
            drop(journal);
            // Time passes while the service is stopped, as it does without a restore.
            let (_journal, clock) = open(directory.path(), POINT + age + 3 * HOUR);
            assert_eq!(clock.now(), Timestamp::from_millis(POINT + 3 * HOUR), "{age}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn time_continues_at_the_first_start_without_failure() {
        let directory = tempfile::tempdir().unwrap();
        restore(directory.path()).await;
        // A failed start, or a tool that only reads the tree.
        drop(open(directory.path(), POINT + HOUR));
        let (journal, clock) = open(directory.path(), POINT + 20 * HOUR);
        assert_eq!(clock.now(), Timestamp::from_millis(POINT));
        // A start that writes, notes its contents as checked, and is killed before it serves.
        clock.advance(1_000);
        journal.commit(|txn| txn.put(Space::Tree, "k".into(), "v".into())).await.unwrap();
        journal.note_checked();
        drop(journal);
        let (journal, clock) = open(directory.path(), POINT + 40 * HOUR);
        assert_eq!(clock.now(), Timestamp::from_millis(POINT + 1_000));
        assert!(!journal.is_checked());
        journal.end_restore(&clock).await.unwrap();
        drop(journal);
        for hours in [1, 2] {
            let (journal, clock) = open(directory.path(), POINT + (40 + hours) * HOUR);
            assert_eq!(clock.now(), Timestamp::from_millis(POINT + 1_000 + hours * HOUR));
            // A later start has no restore to end.
            journal.end_restore(&clock).await.unwrap();
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn accepted_clock_ends_the_lag_of_a_restore() {
        let directory = tempfile::tempdir().unwrap();
        restore(directory.path()).await;
        let (journal, clock) = open(directory.path(), POINT + 20 * HOUR);
        journal.end_restore(&clock).await.unwrap();
        drop(journal);
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
