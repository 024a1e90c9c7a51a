//! Key ranges of an open store that damage has taken. Reads that touch one are refused, so no lost key appears to be
//! absent.

use std::fmt::Write;

use fjall::Keyspace;

use super::log::{DamagedRanges, number};
use super::{SPACES, Space};

/// The lost ranges of a store. In nearly all stores there are none.
#[derive(Debug, Default)]
pub(super) struct LostRanges(Vec<LostRange>);

/// A key range of which damage has taken some keys. Both ends are inclusive.
#[derive(Debug)]
pub(super) struct LostRange {
    space: Space,
    pub(super) first: Vec<u8>,
    pub(super) last: Vec<u8>,
    /// Description for the log.
    text: String,
}

impl LostRanges {
    /// Converts the listed ranges: each number of a key space is resolved to its space.
    pub(super) fn of(listed: &DamagedRanges, keyspaces: &[Keyspace]) -> Self {
        let space_of = |wanted: u64| {
            let mut spaces = SPACES.iter().zip(keyspaces);
            spaces.find(|(_, keyspace)| number(keyspace) == Some(wanted)).map(|((space, _), _)| *space)
        };
        let mut ranges: Vec<_> = (listed.ranges.iter())
            .filter_map(|range| {
                let space = space_of(range.space)?;
                let text = format!(
                    "keys {} to {} of table {} were lost to damage",
                    hex(&range.first),
                    hex(&range.last),
                    range.table
                );
                Some(LostRange { space, first: range.first.clone(), last: range.last.clone(), text })
            })
            .collect();
        ranges.sort_by(|one, other| one.first.cmp(&other.first));
        Self(ranges)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the description of the range that contains the key, if there is one.
    pub(super) fn at(&self, space: Space, key: &[u8]) -> Option<&str> {
        let is_at = |range: &&LostRange| {
            range.space == space && range.first.as_slice() <= key && key <= range.last.as_slice()
        };
        self.0.iter().find(is_at).map(LostRange::text)
    }

    /// Returns the lowest and the highest range that overlap `first` to `last`, both inclusive.
    pub(super) fn within(
        &self,
        space: Space,
        first: &[u8],
        last: Option<&[u8]>,
    ) -> Option<(&LostRange, &LostRange)> {
        let is_within = |range: &&LostRange| {
            range.space == space
                && range.last.as_slice() >= first
                && last.is_none_or(|last| range.first.as_slice() <= last)
        };
        let mut found = self.0.iter().filter(is_within);
        let lowest = found.next()?;
        let highest =
            found.fold(lowest, |highest, range| if range.last > highest.last { range } else { highest });
        Some((lowest, highest))
    }
}

impl LostRange {
    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

fn hex(key: &[u8]) -> String {
    key.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
