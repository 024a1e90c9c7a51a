//! Keys and values with the groups that wrote them: a view reads the state after a group, and a power cut takes the
//! groups after one.
//!
//! Each key has its versions in order of their groups. Versions that no view needs are forgotten once their groups are
//! synced.

use std::collections::BTreeMap;
use std::ops::Bound;

use angarium_journal::Space;
use bytes::Bytes;

/// A write to a key; no value for a removal.
pub(super) type Writes = BTreeMap<(usize, Bytes), Option<Bytes>>;

/// Both ends of a range of keys.
pub(super) type KeyBounds = (Bound<Bytes>, Bound<Bytes>);

/// The keys and values of a disk.
#[derive(Default)]
pub(super) struct Versions {
    /// By the number of the space.
    spaces: BTreeMap<usize, BTreeMap<Bytes, Vec<Version>>>,
    /// The keys of each group whose earlier versions may be needed.
    touched: BTreeMap<u64, Vec<(usize, Bytes)>>,
    /// Number of views of each group, by opening of the journal.
    views: BTreeMap<(u64, u64), usize>,
}

struct Version {
    group: u64,
    value: Option<Bytes>,
}

/// Returns the number of a space.
pub(super) fn number(space: Space) -> usize {
    space as usize
}

/// Returns the value after a group.
fn after(versions: &[Version], group: u64) -> Option<&Bytes> {
    versions.iter().rev().find(|version| version.group <= group)?.value.as_ref()
}

impl Versions {
    /// Adds a group, whose number is greater than that of every other.
    pub(super) fn write(&mut self, group: u64, writes: Writes) {
        let keys = writes.keys().cloned().collect();
        for ((space, key), value) in writes {
            self.spaces.entry(space).or_default().entry(key).or_default().push(Version { group, value });
        }
        self.touched.insert(group, keys);
    }

    /// Returns the value of a key after a group.
    pub(super) fn get(&self, space: Space, key: &[u8], group: u64) -> Option<Bytes> {
        after(self.spaces.get(&number(space))?.get(key)?, group).cloned()
    }

    /// Returns the first pair within bounds after a group.
    pub(super) fn first(&self, space: Space, bounds: &KeyBounds, group: u64) -> Option<(Bytes, Bytes)> {
        self.pairs(space, bounds, group)?.next()
    }

    /// Returns the last pair within bounds after a group.
    pub(super) fn last(&self, space: Space, bounds: &KeyBounds, group: u64) -> Option<(Bytes, Bytes)> {
        self.pairs(space, bounds, group)?.next_back()
    }

    fn pairs(
        &self,
        space: Space,
        bounds: &KeyBounds,
        group: u64,
    ) -> Option<impl DoubleEndedIterator<Item = (Bytes, Bytes)>> {
        if is_empty(bounds) {
            return None;
        }
        let range = self.spaces.get(&number(space))?.range(bounds.clone());
        Some(range.filter_map(move |(key, versions)| Some((key.clone(), after(versions, group)?.clone()))))
    }

    /// Takes the groups after `group`.
    pub(super) fn truncate(&mut self, group: u64) {
        let taken = self.touched.split_off(&(group + 1));
        for (space, key) in taken.into_values().flatten() {
            self.change(space, &key, |versions| versions.retain(|version| version.group <= group));
        }
    }

    /// Keeps the state after a group until [`Versions::close_view`]. `opening` is the number of the opening of the
    /// journal.
    pub(super) fn open_view(&mut self, opening: u64, group: u64) {
        *self.views.entry((opening, group)).or_default() += 1;
    }

    /// Ends a view. One of an earlier opening may be forgotten already.
    pub(super) fn close_view(&mut self, opening: u64, group: u64) {
        if let Some(count) = self.views.get_mut(&(opening, group)) {
            *count -= 1;
            if *count == 0 {
                self.views.remove(&(opening, group));
            }
        }
    }

    /// Ends all views of an opening.
    pub(super) fn close_opening(&mut self, opening: u64) {
        self.views.retain(|(of, _), _| *of != opening);
    }

    /// Ends all views: their process has ended.
    pub(super) fn forget_views(&mut self) {
        self.views.clear();
    }

    /// Forgets the versions that neither a view nor a power cut to `synced` or a later group needs.
    pub(super) fn prune(&mut self, synced: u64) {
        let viewed = self.views.keys().map(|(_, group)| *group).min();
        let floor = viewed.map_or(synced, |viewed| viewed.min(synced));
        let later = self.touched.split_off(&(floor + 1));
        let pruned = std::mem::replace(&mut self.touched, later);
        for (space, key) in pruned.into_values().flatten() {
            self.change(space, &key, |versions| {
                let kept = versions.iter().rposition(|version| version.group <= floor).unwrap_or(0);
                versions.drain(..kept);
                if versions.first().is_some_and(|first| first.group <= floor && first.value.is_none()) {
                    versions.remove(0);
                }
            });
        }
    }

    /// Returns the number of stored versions.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.spaces.values().flat_map(BTreeMap::values).map(Vec::len).sum()
    }

    fn change(&mut self, space: usize, key: &Bytes, change: impl FnOnce(&mut Vec<Version>)) {
        let Some(keys) = self.spaces.get_mut(&space) else { return };
        let Some(versions) = keys.get_mut(key) else { return };
        change(versions);
        if versions.is_empty() {
            keys.remove(key);
        }
    }
}

/// Whether no key can be within bounds. A map refuses such bounds.
fn is_empty((from, to): &KeyBounds) -> bool {
    match (from, to) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => {
            from >= to
        }
    }
}
