//! Frees the space of removed data when the disk is nearly full.
//!
//! A removal needs space before it frees any: a log file stays until every key space is flushed, and a table keeps its
//! removed entries until it is merged with the removals. The store does both as writes arrive, and below the reserve
//! few writes arrive. So this module flushes and merges on purpose, one round at a time, outside the committer's
//! thread.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fjall::{AbstractTree, Keyspace};
use tracing::{debug, error, warn};

use super::SPACES;
use super::store::Store;
use crate::limits;

/// Pause between two checks whether the flushes are on disk.
const FLUSH_CHECK: Duration = Duration::from_millis(10);

/// The reclaim rounds of a journal, one at a time. The committer owns it.
#[derive(Default)]
pub(super) struct Reclaimer {
    round: Option<JoinHandle<()>>,
    ended: Option<Instant>,
}

impl Reclaimer {
    /// Starts a round, unless one runs or the last one ended less than [`limits::RECLAIM_PAUSE`] ago. `free` is the
    /// number of free bytes.
    pub(super) fn begin(&mut self, store: Arc<Store>, free: u64) {
        if self.round.as_ref().is_some_and(|round| !round.is_finished()) {
            return;
        }
        if self.round.take().is_some() {
            self.ended = Some(Instant::now());
        }
        if self.ended.is_some_and(|ended| ended.elapsed() < limits::RECLAIM_PAUSE) {
            return;
        }
        let round = std::thread::Builder::new().name("reclaim".into());
        match round.spawn(move || reclaim(&store, free)) {
            Ok(round) => self.round = Some(round),
            Err(error) => warn!(%error, "disk reclaim not started"),
        }
    }
}

impl Drop for Reclaimer {
    fn drop(&mut self) {
        // The process that opens the journal next needs the lock that the round holds.
        if let Some(round) = self.round.take()
            && round.join().is_err()
        {
            error!("disk reclaim panicked");
        }
    }
}

fn reclaim(store: &Store, free: u64) {
    if !flush(store, free) {
        return;
    }
    for (space, name) in SPACES {
        let keyspace = store.space(space);
        let contents = Contents::of(keyspace);
        if !contents.is_worth(free) {
            continue;
        }
        let (before, left) = (contents.bytes, contents.left());
        match keyspace.major_compact() {
            Ok(()) => debug!(space = name, before, after = keyspace.disk_space(), left, "tables merged"),
            // Other key spaces may still free space.
            Err(error) => warn!(space = name, %error, "tables not merged"),
        }
    }
}

/// Flushes all memory tables, if they fit into the `free` bytes of the disk. The store then removes the logs that every
/// key space has flushed. Returns false if it did not begin. Waits at most [`limits::RECLAIM_FLUSH`].
pub(super) fn flush(store: &Store, free: u64) -> bool {
    let unwritten: u64 =
        SPACES.iter().map(|(space, _)| store.space(*space).tree.active_memtable().size()).sum();
    // Flushing a table that does not fit on the disk would close the store.
    if unwritten > free {
        debug!(unwritten, free, "memory tables not flushed: no room");
        return false;
    }
    let rotated = SPACES.iter().try_for_each(|(space, _)| store.space(*space).rotate_memtable().map(drop));
    if let Err(error) = rotated {
        // If the store cannot continue, the committer learns it from its next write.
        warn!(%error, "memory tables not flushed");
        return false;
    }
    let began = Instant::now();
    let is_flushed = || SPACES.iter().all(|(space, _)| store.space(*space).sealed_memtable_count() == 0);
    while !is_flushed() && began.elapsed() < limits::RECLAIM_FLUSH {
        std::thread::sleep(FLUSH_CHECK);
    }
    true
}

/// Contents of the tables of a key space.
#[derive(Clone, Copy, Debug)]
struct Contents {
    bytes: u64,
    /// Number of keys with values, removed or not, plus the number of removals.
    items: u64,
    removals: u64,
}

impl Contents {
    fn of(keyspace: &Keyspace) -> Self {
        Self {
            bytes: keyspace.disk_space(),
            items: keyspace.tree.approximate_len() as u64,
            removals: keyspace.tree.tombstone_count(),
        }
    }

    /// Estimates the bytes that are not removed. Each removal counts as that of one value of average size.
    fn left(self) -> u64 {
        let values = self.items.saturating_sub(self.removals);
        let left = values.saturating_sub(self.removals);
        let share = u128::from(self.bytes) * u128::from(left) / u128::from(values.max(1));
        u64::try_from(share).unwrap_or(u64::MAX)
    }

    /// Returns whether a merge frees enough space, and whether the disk has room for two copies of the rest meanwhile.
    fn is_worth(self, free: u64) -> bool {
        let gain = self.bytes.saturating_sub(self.left());
        let needed = self.left().saturating_mul(2).saturating_add(limits::RECLAIM_MARGIN);
        gain >= limits::RECLAIM_GAIN && needed <= free
    }
}

#[cfg(test)]
mod tests {
    use angarium_clock::Clock;
    use bytes::Bytes;

    use super::*;
    use crate::log::tests::store;
    use crate::{Journal, JournalOptions, Space};

    const MIB: u64 = 1 << 20;

    /// Writes or removes 12 messages of 1 MiB in one group, which is less than the store flushes on its own.
    async fn change(journal: &Journal, is_removal: bool) {
        let work = move |txn: &mut crate::Txn<'_>| {
            for number in 0..12_u8 {
                let key = Bytes::copy_from_slice(&[number]);
                if is_removal {
                    txn.remove(Space::Entries, key);
                } else {
                    // Knuth's generator: its high bytes do not compress.
                    let body = (0..MIB).scan(u64::from(number), |state, _| {
                        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        Some((*state >> 56) as u8)
                    });
                    txn.put(Space::Entries, key, body.collect());
                }
            }
        };
        journal.commit(work).await.unwrap();
    }

    async fn until(what: &str, is_so: impl Fn() -> bool) {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < Duration::from_secs(60), "{what} does not come");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn removed_messages_give_room_without_further_writes() {
        let directory = tempfile::tempdir().unwrap();
        let options = JournalOptions { reserve: u64::MAX, ..JournalOptions::default() };
        let path = directory.path().join("journal");
        let journal = Journal::open_with(&path, &Clock::manual(1), options).unwrap();
        change(&journal, false).await;
        let store = store(&journal).unwrap();
        let tables = || store.space(Space::Entries).disk_space();
        until("the round of that write", || tables() > 8 * MIB).await;
        change(&journal, true).await;
        until("the round after the removal", || tables() < MIB).await;
    }

    #[test]
    fn tables_merge_when_much_is_removed_and_room_suffices() {
        let worth = |bytes: u64, values, removals, free: u64| {
            Contents { bytes: bytes * MIB, items: values + removals, removals }.is_worth(free * MIB)
        };
        assert!(worth(1_000, 1_000, 1_000, 40));
        assert!(worth(1_000, 1_000, 990, 60));
        assert!(!worth(1_000, 1_000, 900, 200), "100 MiB twice, and the margin");
        assert!(!worth(1_000, 1_000, 0, 2_500), "nothing is removed");
        assert!(!worth(1, 1_000, 1_000, 2_500), "too little to gain");
        assert!(!worth(0, 0, 0, 100));
    }
}
