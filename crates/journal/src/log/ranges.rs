//! Ranges of keys that damage has taken from tables, and the file beside the logs that lists them.
//!
//! The store cannot merge a table with a damaged block, so the table is rewritten without that block (see `mend.rs`).
//! The keys of the block are not lost silently: reads of them fail as long as the file lists the range.
//!
//! Layout: text, replaced as a whole and synced. First the title, then one line per range and per rewritten table, last
//! a checksum (XXH3) of the text before it. Keys are hexadecimal.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::files;

pub(crate) const FILE: &str = "damaged-ranges";
const TITLE: &str = "angarium damaged ranges 1";

/// A range of keys whose values damage has taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DamagedRange {
    /// Number of the key space.
    pub(crate) space: u64,
    /// Number of the damaged table.
    pub(crate) table: u64,
    /// First and last key, both inclusive.
    pub(crate) first: Vec<u8>,
    pub(crate) last: Vec<u8>,
}

/// A rewritten table and its new checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MendedTable {
    pub(crate) space: u64,
    pub(crate) table: u64,
    pub(crate) check: u128,
}

/// Contents of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DamagedRanges {
    pub(crate) ranges: Vec<DamagedRange>,
    pub(crate) mended: Vec<MendedTable>,
}

impl DamagedRanges {
    /// Reads the file below `path`. Returns an empty list when there is no file, and `InvalidData` when it is damaged.
    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        let Some(text) = files::read_sealed(&path.join(FILE))? else { return Ok(Self::default()) };
        Self::parse(&text).ok_or_else(files::damaged)
    }

    /// Replaces the file. The new one is synced.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        files::write_sealed(path, FILE, &self.text())
    }

    /// Moves the file to `folder`, so that no key counts as damaged any more. Returns whether there was a file.
    pub(crate) fn move_into(path: &Path, folder: &Path) -> io::Result<bool> {
        let file = path.join(FILE);
        if !file.try_exists()? {
            return Ok(false);
        }
        fs::create_dir_all(folder)?;
        fs::rename(file, free_name(folder)?)?;
        File::open(folder)?.sync_all()?;
        File::open(path)?.sync_all()?;
        Ok(true)
    }

    /// Adds a rewritten table and its new ranges. Ranges that are already listed are skipped.
    pub(crate) fn add(&mut self, table: MendedTable, ranges: Vec<DamagedRange>) {
        self.mended.retain(|mended| (mended.space, mended.table) != (table.space, table.table));
        self.mended.push(table);
        for range in ranges {
            if !self.ranges.contains(&range) {
                self.ranges.push(range);
            }
        }
    }

    /// Returns the checksum of a rewritten table; none for any other table.
    pub(crate) fn check_of(&self, space: u64, table: u64) -> Option<u128> {
        let mended = self.mended.iter().find(|mended| (mended.space, mended.table) == (space, table));
        mended.map(|mended| mended.check)
    }

    fn text(&self) -> String {
        let mut text = format!("{TITLE}\n");
        for DamagedRange { space, table, first, last } in &self.ranges {
            let (first, last) = (encode(first), encode(last));
            text.push_str(&format!("range space={space} table={table} first={first} last={last}\n"));
        }
        for MendedTable { space, table, check } in &self.mended {
            text.push_str(&format!("table space={space} table={table} check={check:032x}\n"));
        }
        text
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        if lines.next()? != TITLE {
            return None;
        }
        let mut found = Self::default();
        for line in lines {
            let mut words = line.split_whitespace();
            let kind = words.next()?;
            let mut field = |name: &str| words.next()?.strip_prefix(name)?.strip_prefix('=');
            let (space, table) = (field("space")?.parse().ok()?, field("table")?.parse().ok()?);
            match kind {
                "range" => {
                    let (first, last) = (decode(field("first")?)?, decode(field("last")?)?);
                    found.ranges.push(DamagedRange { space, table, first, last });
                }
                "table" => {
                    let check = u128::from_str_radix(field("check")?, 16).ok()?;
                    found.mended.push(MendedTable { space, table, check });
                }
                _ => return None,
            }
        }
        Some(found)
    }
}

/// Returns an unused name for the file in `folder`.
fn free_name(folder: &Path) -> io::Result<PathBuf> {
    let mut name = folder.join(FILE);
    let mut number = 1;
    while name.try_exists()? {
        name = folder.join(format!("{FILE}-{number}"));
        number += 1;
    }
    Ok(name)
}

pub(super) fn encode(key: &[u8]) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    if rest.is_empty() { pairs.iter().map(byte).collect() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_survive_their_file_and_damage_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(DamagedRanges::read(dir.path()).unwrap(), DamagedRanges::default());
        let mut ranges = DamagedRanges::default();
        let range = |first: &[u8]| DamagedRange { space: 5, table: 3, first: first.into(), last: vec![7] };
        let table = MendedTable { space: 5, table: 3, check: u128::MAX - 1 };
        ranges.add(table, vec![range(b""), range(b"\x01\xff")]);
        ranges.add(table, vec![range(b"")]);
        assert_eq!((ranges.ranges.len(), ranges.mended.len()), (2, 1));
        ranges.write(dir.path()).unwrap();
        assert_eq!(DamagedRanges::read(dir.path()).unwrap(), ranges);
        assert_eq!(ranges.check_of(5, 3), Some(table.check));
        let bytes = fs::read(dir.path().join(FILE)).unwrap();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            fs::write(dir.path().join(FILE), &damaged).unwrap();
            // A hexadecimal digit of the checksum may change to upper case without changing its value.
            let read = DamagedRanges::read(dir.path());
            assert!(read.is_err() || read.unwrap() == ranges, "{at}");
            fs::write(dir.path().join(FILE), &bytes[..at]).unwrap();
            assert!(DamagedRanges::read(dir.path()).is_err(), "{at}");
        }
    }
}
