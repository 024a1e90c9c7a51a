//! The position of a commit group in the log.

use xxhash_rust::xxh3::xxh3_64;

/// The key of a position in the space `meta`. It is distinctive enough to be searched for in a damaged log.
pub(crate) const KEY: &[u8] = b"log position";
/// Bytes of a stored position.
pub(super) const BYTES: usize = 40;

/// The position that a group records about itself. 40 bytes, little endian: store, group, synced, floor and a checksum
/// (XXH3) of the 32 bytes before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    /// A random number of the store. No client sees it, so no message body can imitate a position. It changes when an
    /// operator accepts damage, because the group numbers may have a gap there.
    pub(crate) store: u64,
    /// Number of the group, from 1, without gaps.
    pub(crate) group: u64,
    /// The last group that was synced when this one was written.
    pub(crate) synced: u64,
    /// Lower bound of the batch's sequence number.
    pub(crate) floor: u64,
}

impl Position {
    pub(crate) fn encode(self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        let numbers = [self.store, self.group, self.synced, self.floor];
        for (to, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            to.copy_from_slice(&number.to_le_bytes());
        }
        let check = xxh3_64(&bytes[..BYTES - 8]);
        bytes[BYTES - 8..].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// Decodes a position. None when the bytes are no position, or a damaged one.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != BYTES {
            return None;
        }
        let mut numbers = bytes.chunks_exact(8).map(|number| number.try_into().map(u64::from_le_bytes));
        let mut next = || numbers.next()?.ok();
        let position = Self { store: next()?, group: next()?, synced: next()?, floor: next()? };
        (next()? == xxh3_64(&bytes[..BYTES - 8])).then_some(position)
    }
}

/// The group numbers of the committer: the last written group and the last synced group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbering {
    store: u64,
    written: u64,
    synced: u64,
}

impl Numbering {
    /// Starts after group `group` of a store that was just opened: its whole log is synced.
    pub(crate) fn after(store: u64, group: u64) -> Self {
        Self { store, written: group, synced: group }
    }

    /// Returns the position of the next group. [`Self::wrote`] must follow when the group is written.
    pub(crate) fn next(&self, floor: u64) -> Position {
        Position { store: self.store, group: self.written + 1, synced: self.synced, floor }
    }

    pub(crate) fn wrote(&mut self) {
        self.written += 1;
    }

    /// Records a sync of everything written, and returns the number of the last group.
    pub(crate) fn sync(&mut self) -> u64 {
        self.synced = self.written;
        self.synced
    }
}
