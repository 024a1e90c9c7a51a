//! Which writes are in no table yet, so that a log file which had them and is gone is missed.
//!
//! The store removes a log file once all key spaces have its writes in tables. A key space that has not written a new list of
//! tables since still needs all logs from its first write that is in memory alone. So the witness names, of each key space,
//! the number of its list and one early sequence number that is in memory. When the list is the same at the next start and
//! the oldest log begins behind that write, a log file is missing.

use std::collections::VecDeque;

use fjall::{AbstractTree, Keyspace, SeqNo};

/// Memtables of one key space that are remembered: the store halts writes long before there are more.
const MEMTABLES: usize = 16;

/// A write of a key space that is in no table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unflushed {
    /// Number of the key space.
    pub(crate) space: u64,
    /// Number of its list of tables.
    pub(crate) list: u64,
    /// The sequence number of the write.
    pub(crate) sequence: SeqNo,
}

/// What was seen of the key spaces of a journal.
#[derive(Debug, Default)]
pub(super) struct Tracker(Vec<KeySpaceState>);

/// What was seen of one key space.
#[derive(Debug)]
struct KeySpaceState {
    space: u64,
    /// Numbers of memtables, and the greatest sequence number in each when it was seen first. Oldest first.
    memtables: VecDeque<(u64, SeqNo)>,
    /// What was found last. It holds as long as the list stays the same.
    found: Option<Unflushed>,
}

impl Tracker {
    /// Continues from what the witness of the last run states.
    pub(super) fn after(found: &[Unflushed]) -> Self {
        let seen = |found: &Unflushed| KeySpaceState {
            space: found.space,
            memtables: VecDeque::new(),
            found: Some(*found),
        };
        Self(found.iter().map(seen).collect())
    }

    /// Looks at all key spaces.
    pub(super) fn look(&mut self, keyspaces: &[Keyspace]) -> Vec<Unflushed> {
        keyspaces.iter().filter_map(|keyspace| self.look_at(keyspace)).collect()
    }

    fn look_at(&mut self, keyspace: &Keyspace) -> Option<Unflushed> {
        let space = number(keyspace)?;
        let index = match self.0.iter().position(|seen| seen.space == space) {
            Some(index) => index,
            None => {
                self.0.push(KeySpaceState { space, memtables: VecDeque::new(), found: None });
                self.0.len() - 1
            }
        };
        let seen = self.0.get_mut(index)?;
        let list = keyspace.tree.current_version().id();
        // In this order: what is sealed meanwhile is left out, and that is safe.
        let sealed = keyspace.tree.sealed_memtable_count() as u64;
        let active = keyspace.tree.active_memtable();
        let oldest = active.id().saturating_sub(sealed);
        seen.note(active.id(), active.get_highest_seqno(), oldest);
        if keyspace.tree.current_version().id() != list {
            // A flush ended between.
            seen.found = None;
        } else if seen.found.is_none_or(|found| found.list != list) {
            let sequence = seen.memtables.front().map(|(_, sequence)| *sequence);
            seen.found = sequence.map(|sequence| Unflushed { space, list, sequence });
        }
        seen.found
    }
}

impl KeySpaceState {
    /// Notes the active memtable, and forgets those before `oldest`.
    fn note(&mut self, active: u64, highest: Option<SeqNo>, oldest: u64) {
        self.memtables.retain(|(number, _)| *number >= oldest);
        let is_new = self.memtables.back().is_none_or(|(number, _)| *number < active);
        if let Some(highest) = highest.filter(|_| is_new) {
            self.memtables.push_back((active, highest));
        }
        // Without the oldest ones less is noticed.
        while self.memtables.len() > MEMTABLES {
            self.memtables.pop_front();
        }
    }
}

/// The number of a key space: the name of its directory.
pub(crate) fn number(keyspace: &Keyspace) -> Option<u64> {
    keyspace.tree.tree_config().path.file_name()?.to_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memtables_are_remembered_until_they_are_flushed() {
        let mut seen = KeySpaceState { space: 1, memtables: VecDeque::new(), found: None };
        seen.note(4, None, 4);
        assert_eq!(seen.memtables, []);
        seen.note(4, Some(10), 4);
        seen.note(4, Some(12), 4);
        seen.note(5, Some(20), 4);
        assert_eq!(seen.memtables, [(4, 10), (5, 20)]);
        seen.note(6, None, 5);
        assert_eq!(seen.memtables, [(5, 20)]);
        seen.note(7, None, 7);
        assert_eq!(seen.memtables, []);
    }
}
