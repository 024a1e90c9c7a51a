//! Writes that are in no table yet. They reveal a missing log file that held such writes.
//!
//! The store removes a log file once all key spaces have its writes in tables. A key space that has not written a new
//! list of tables since then still needs all logs from its first write that is only in memory. So the witness records,
//! for each key space, the number of its list and one early sequence number that is in memory. If the list is the same
//! at the next start and the oldest log begins after that write, a log file is missing.

use std::collections::VecDeque;

use fjall::{AbstractTree, Keyspace, SeqNo};

/// Max memtables of one key space that are remembered. The store halts writes long before there are more.
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

/// Observations of all key spaces of a journal.
#[derive(Debug, Default)]
pub(super) struct Tracker(Vec<KeySpaceState>);

/// Observations of one key space.
#[derive(Debug)]
struct KeySpaceState {
    space: u64,
    /// Numbers of memtables, each with its greatest sequence number at the first observation. Oldest first.
    memtables: VecDeque<(u64, SeqNo)>,
    /// The last result. It is valid as long as the list stays the same.
    found: Option<Unflushed>,
}

impl Tracker {
    /// Continues from the witness of the last run.
    pub(super) fn after(found: &[Unflushed]) -> Self {
        let state = |found: &Unflushed| KeySpaceState {
            space: found.space,
            memtables: VecDeque::new(),
            found: Some(*found),
        };
        Self(found.iter().map(state).collect())
    }

    /// Returns an unflushed write of each key space that has one.
    pub(super) fn observe(&mut self, keyspaces: &[Keyspace]) -> Vec<Unflushed> {
        keyspaces.iter().filter_map(|keyspace| self.observe_space(keyspace)).collect()
    }

    fn observe_space(&mut self, keyspace: &Keyspace) -> Option<Unflushed> {
        let space = number(keyspace)?;
        let index = match self.0.iter().position(|state| state.space == space) {
            Some(index) => index,
            None => {
                self.0.push(KeySpaceState { space, memtables: VecDeque::new(), found: None });
                self.0.len() - 1
            }
        };
        let state = self.0.get_mut(index)?;
        let list = keyspace.tree.current_version().id();
        // The order matters: a memtable that is sealed between the two reads is left out, which is safe.
        let sealed = keyspace.tree.sealed_memtable_count() as u64;
        let active = keyspace.tree.active_memtable();
        let oldest = active.id().saturating_sub(sealed);
        state.note(active.id(), active.get_highest_seqno(), oldest);
        if keyspace.tree.current_version().id() != list {
            // A flush ended between the two reads of the list number.
            state.found = None;
        } else if state.found.is_none_or(|found| found.list != list) {
            let sequence = state.memtables.front().map(|(_, sequence)| *sequence);
            state.found = sequence.map(|sequence| Unflushed { space, list, sequence });
        }
        state.found
    }
}

impl KeySpaceState {
    /// Notes the active memtable, and forgets memtables older than `oldest`.
    fn note(&mut self, active: u64, highest: Option<SeqNo>, oldest: u64) {
        self.memtables.retain(|(number, _)| *number >= oldest);
        let is_new = self.memtables.back().is_none_or(|(number, _)| *number < active);
        // It is 0 while the first write of the memtable is being entered, whatever the number of that write.
        if let Some(highest) = highest.filter(|highest| is_new && *highest > 0) {
            self.memtables.push_back((active, highest));
        }
        // Dropping the oldest entries only means that less is noticed.
        while self.memtables.len() > MEMTABLES {
            self.memtables.pop_front();
        }
    }
}

/// Returns the number of a key space, which is the name of its directory.
pub(crate) fn number(keyspace: &Keyspace) -> Option<u64> {
    keyspace.tree.tree_config().path.file_name()?.to_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memtables_are_remembered_until_they_are_flushed() {
        let mut state = KeySpaceState { space: 1, memtables: VecDeque::new(), found: None };
        state.note(4, None, 4);
        assert_eq!(state.memtables, []);
        state.note(4, Some(0), 4);
        assert_eq!(state.memtables, []);
        state.note(4, Some(10), 4);
        state.note(4, Some(12), 4);
        state.note(5, Some(20), 4);
        assert_eq!(state.memtables, [(4, 10), (5, 20)]);
        state.note(6, None, 5);
        assert_eq!(state.memtables, [(5, 20)]);
        state.note(7, None, 7);
        assert_eq!(state.memtables, []);
    }
}
