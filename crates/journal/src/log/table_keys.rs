//! The first and the last key of each table, in a file beside the logs.
//!
//! A table stores these keys in a metadata block, which may be damaged together with all other blocks. Then this file
//! tells which keys the damage has taken, so that all other keys are still served (see `mend.rs`). The witness's thread
//! writes it when tables were created or removed. A missing, damaged or old file only makes the repair less precise,
//! and the next start writes it again.
//!
//! The space `meta` is left out: a store without it is not opened.
//!
//! Layout: text, replaced as a whole and synced. First the title, then one line per table, last a checksum (XXH3) of
//! the text before it. Keys are hexadecimal.

use std::io;
use std::path::Path;

use fjall::{AbstractTree, Keyspace};

use super::files;
use super::ranges::{decode, encode};
use super::unflushed::number;

pub(crate) const FILE: &str = "table-keys";
const TITLE: &str = "angarium table keys 1";

/// The key range of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyRange {
    /// Number of the key space.
    space: u64,
    table: u64,
    /// First and last key, both inclusive.
    pub(crate) first: Vec<u8>,
    pub(crate) last: Vec<u8>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableKeys(Vec<KeyRange>);

impl TableKeys {
    /// Collects the key ranges of all tables of open key spaces.
    pub(super) fn of<'a>(keyspaces: impl Iterator<Item = &'a Keyspace>) -> Self {
        let mut tables = Vec::new();
        for keyspace in keyspaces {
            let Some(space) = number(keyspace) else { continue };
            for table in keyspace.tree.current_version().iter_tables() {
                let range = &table.metadata.key_range;
                let (first, last) = (range.min().to_vec(), range.max().to_vec());
                tables.push(KeyRange { space, table: table.id(), first, last });
            }
        }
        Self(tables)
    }

    /// Reads the file below `path`. Returns an empty list when there is no file, and `InvalidData` when it is damaged.
    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        let Some(text) = files::read_sealed(&path.join(FILE))? else { return Ok(Self::default()) };
        Self::parse(&text).ok_or_else(files::damaged)
    }

    /// Replaces the file. The new one is synced.
    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        files::write_sealed(path, FILE, &self.text())
    }

    /// Returns the key range of a table, if it is known.
    pub(crate) fn find(&self, space: u64, table: u64) -> Option<&KeyRange> {
        self.0.iter().find(|range| (range.space, range.table) == (space, table))
    }

    fn text(&self) -> String {
        let mut text = format!("{TITLE}\n");
        for KeyRange { space, table, first, last } in &self.0 {
            let (first, last) = (encode(first), encode(last));
            text.push_str(&format!("table space={space} table={table} first={first} last={last}\n"));
        }
        text
    }

    fn parse(text: &str) -> Option<Self> {
        let lines = text.strip_prefix(TITLE)?.lines().skip(1);
        lines.map(parse_line).collect::<Option<_>>().map(Self)
    }
}

fn parse_line(line: &str) -> Option<KeyRange> {
    let mut words = line.strip_prefix("table ")?.split_whitespace();
    let mut field = |name: &str| words.next()?.strip_prefix(name)?.strip_prefix('=');
    let (space, table) = (field("space")?.parse().ok()?, field("table")?.parse().ok()?);
    Some(KeyRange { space, table, first: decode(field("first")?)?, last: decode(field("last")?)? })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::ErrorKind;

    use super::*;

    #[test]
    fn key_ranges_survive_their_file_and_damage_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(TableKeys::read(dir.path()).unwrap(), TableKeys::default());
        let range = |table| KeyRange { space: 5, table, first: Vec::new(), last: vec![0, 255] };
        let keys = TableKeys(vec![range(3), range(9)]);
        keys.write(dir.path()).unwrap();
        assert_eq!(TableKeys::read(dir.path()).unwrap(), keys);
        assert_eq!(keys.find(5, 9), Some(&range(9)));
        assert_eq!((keys.find(5, 4), keys.find(4, 3)), (None, None));
        let bytes = fs::read(dir.path().join(FILE)).unwrap();
        for at in 0..bytes.len() {
            fs::write(dir.path().join(FILE), &bytes[..at]).unwrap();
            assert_eq!(TableKeys::read(dir.path()).unwrap_err().kind(), ErrorKind::InvalidData, "{at}");
        }
    }
}
