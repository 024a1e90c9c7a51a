//! The table files of a store that no process has open: a list of them, and a check that they are unchanged.
//!
//! No byte of a file is trusted before its checksum is checked, and no stored length decides how much memory is
//! allocated.

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use super::log::{self, Damage, DamagedRanges, Remedy};

/// Bytes of the header of a block (lsm-tree 3.1): four fixed bytes, its kind, the checksum of its data (`u128`), the
/// length of its data (`u32`), its uncompressed length, and the lower half of a checksum of the header.
const BLOCK_HEAD: usize = 33;
pub(super) const BLOCK_MAGIC: &[u8; 4] = b"LSM\x03";
/// Max length of a block that is read. A greater length means that the header is damaged.
pub(super) const BLOCK_BYTES: u64 = 64 << 20;
/// Bytes of a file that are read at a time.
const PART: usize = 256 << 10;

/// A table that a key space lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TableFile {
    pub(super) space: u64,
    pub(super) number: u64,
    pub(super) file: PathBuf,
    /// Checksum of the whole file.
    pub(super) check: u128,
}

/// Returns the tables of all key spaces of the store at `path` whose lists are whole. For a rewritten table, `ranges`
/// has the checksum.
pub(super) fn listed(path: &Path, ranges: &DamagedRanges) -> io::Result<Vec<TableFile>> {
    let mut tables = Vec::new();
    for space in log::complete_spaces(path)? {
        let directory = path.join("keyspaces").join(space.to_string());
        for (number, check) in log::listed_tables(&directory)?.unwrap_or_default() {
            let check = ranges.check_of(space, number).unwrap_or(check);
            let file = directory.join("tables").join(number.to_string());
            tables.push(TableFile { space, number, file, check });
        }
    }
    Ok(tables)
}

/// Returns the tables that are not as they were written, including tables that the disk cannot read.
pub(super) fn damaged(path: &Path, ranges: &DamagedRanges) -> io::Result<Vec<TableFile>> {
    let tables = listed(path, ranges)?.into_iter();
    Ok(tables.filter(|table| table.damage().is_some()).collect())
}

/// Returns the first damaged table of the store at `path`, if its lists can be read.
pub(super) fn first_damage(path: &Path) -> Option<Damage> {
    let ranges = DamagedRanges::read(path).ok()?;
    listed(path, &ranges).ok()?.iter().find_map(TableFile::damage)
}

/// Returns whether a file is a table, by its directory.
pub(super) fn is_table(file: &Path) -> bool {
    file.parent().is_some_and(|folder| folder.ends_with("tables"))
}

impl TableFile {
    /// Returns the damage of the table with its first bad block; none when the table is as it was written.
    pub(super) fn damage(&self) -> Option<Damage> {
        let damage = |offset, found: String| Damage {
            file: self.file.clone(),
            offset,
            found,
            lost_groups: 0,
            remedy: Remedy::Restore,
        };
        match checksum(&self.file) {
            Ok(check) if check == self.check => None,
            Ok(_) => {
                let offset = first_bad_block(&self.file).unwrap_or_default();
                Some(damage(offset, "a block of the table is not what was written".to_owned()))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Some(damage(0, "the table is missing".to_owned()))
            }
            Err(error) => {
                let offset = first_bad_block(&self.file).unwrap_or_default();
                Some(damage(offset, format!("the table cannot be read: {error}")))
            }
        }
    }
}

fn checksum(file: &Path) -> io::Result<u128> {
    let mut table = File::open(file)?;
    let mut hash = Xxh3::new();
    let mut part = vec![0; PART];
    loop {
        match table.read(&mut part) {
            Ok(0) => return Ok(hash.digest128()),
            Ok(read) => hash.update(&part[..read]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Returns the offset of the first block with a wrong checksum; the end of the blocks when all of them are right.
fn first_bad_block(file: &Path) -> io::Result<u64> {
    let mut table = BufReader::new(File::open(file)?);
    let mut offset = 0;
    loop {
        let mut head = [0; BLOCK_HEAD];
        if table.read_exact(&mut head).is_err() {
            return Ok(offset);
        }
        let length = u64::from(u32::from_le_bytes([head[21], head[22], head[23], head[24]]));
        if !head.starts_with(BLOCK_MAGIC) || length > BLOCK_BYTES {
            return Ok(offset);
        }
        let mut data = Vec::new();
        if (&mut table).take(length).read_to_end(&mut data).is_err()
            || xxh3_128(&data).to_le_bytes() != head[5..21]
        {
            return Ok(offset);
        }
        offset += BLOCK_HEAD as u64 + length;
    }
}
