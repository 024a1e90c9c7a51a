//! Reading all of a store that nobody has open, without a change: what `angarium doctor --data` reports.

use std::fs::{self, File};
use std::io::{self, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use super::log::{self, Damage, Remedy};

/// Bytes of the head of a block in a table (lsm-tree 3.1): four fixed bytes, its kind, the checksum of its data (`u128`), the
/// length of its data (`u32`), that before compression, and the lower half of a checksum of all that.
const BLOCK_HEAD: usize = 33;
const BLOCK_MAGIC: &[u8; 4] = b"LSM\x03";
/// Greatest length of a block that is read: more is damage of its head.
const BLOCK_BYTES: u64 = 64 << 20;

/// What was read of a store.
#[derive(Clone, Debug, Default)]
pub struct Inspection {
    /// What is damaged; empty when all that was synced can be read.
    pub damage: Vec<Damage>,
    /// Groups of commits in the logs.
    pub groups: u64,
    /// Log files.
    pub logs: usize,
    /// Table files.
    pub tables: usize,
    /// Bytes of them.
    pub table_bytes: u64,
    /// Where unsynced writes end within a batch, which the next start cuts.
    pub torn: Option<(PathBuf, u64)>,
}

/// Reads the logs, lists and tables of the store at `path`. `WouldBlock` when a process has it open; none when there is no store.
pub fn inspect(path: &Path) -> io::Result<Option<Inspection>> {
    let Some(_lock) = log::lock(path)? else { return Ok(None) };
    let checked = log::check(path)?;
    let mut found = Inspection {
        groups: checked.groups,
        logs: checked.log_count(),
        torn: checked.torn(),
        damage: checked.damage,
        ..Inspection::default()
    };
    for space in log::complete_spaces(path)? {
        let space = path.join("keyspaces").join(space.to_string());
        // A list that is damaged was told already.
        let Ok(tables) = listed(&space) else { continue };
        for (number, check) in tables {
            let file = space.join("tables").join(number.to_string());
            found.tables += 1;
            found.table_bytes += fs::metadata(&file).map_or(0, |meta| meta.len());
            found.damage.extend(table_damage(&file, check)?);
        }
    }
    Ok(Some(found))
}

/// The tables of a key space, with the checksum of each as a whole.
fn listed(space: &Path) -> io::Result<Vec<(u64, u128)>> {
    let current = fs::read(space.join("current"))?;
    let number = current.first_chunk().ok_or(ErrorKind::UnexpectedEof)?;
    let list = space.join(format!("v{}", u64::from_le_bytes(*number)));
    let sections = sfa::Reader::new(&list).map_err(|error| io::Error::other(error.to_string()))?;
    let section = sections.toc().section(b"tables").ok_or(ErrorKind::InvalidData)?;
    let mut from = section.buf_reader(&list).map_err(|error| io::Error::other(error.to_string()))?;
    let mut tables = Vec::new();
    for _level in 0..u8::from_le_bytes(take(&mut from)?) {
        for _run in 0..u8::from_le_bytes(take(&mut from)?) {
            for _table in 0..u32::from_le_bytes(take(&mut from)?) {
                let number = u64::from_le_bytes(take(&mut from)?);
                let _kind: [u8; 1] = take(&mut from)?;
                tables.push((number, u128::from_le_bytes(take(&mut from)?)));
                let _sequence: [u8; 8] = take(&mut from)?;
            }
        }
    }
    Ok(tables)
}

/// Whether a table is what was written, and the first block that is not.
fn table_damage(file: &Path, check: u128) -> io::Result<Option<Damage>> {
    let damage = |offset, found: &str| Damage {
        file: file.to_owned(),
        offset,
        found: found.to_owned(),
        lost_groups: 0,
        remedy: Remedy::Restore,
    };
    let mut table = match File::open(file) {
        Ok(table) => BufReader::new(table),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Ok(Some(damage(0, "the table is missing")));
        }
        Err(error) => return Err(error),
    };
    let mut hash = Xxh3::new();
    let mut block = vec![0; 256 << 10];
    loop {
        match table.read(&mut block)? {
            0 => break,
            read => hash.update(&block[..read]),
        }
    }
    if hash.digest128() == check {
        return Ok(None);
    }
    let offset = first_bad_block(file)?;
    Ok(Some(damage(offset, "a block of the table is not what was written")))
}

/// Where the first block begins that has a wrong checksum; the end of the blocks when all of them are right.
fn first_bad_block(file: &Path) -> io::Result<u64> {
    let mut table = BufReader::new(File::open(file)?);
    let mut offset = 0;
    loop {
        let Ok(head) = take::<BLOCK_HEAD>(&mut table) else { return Ok(offset) };
        let length = u64::from(u32::from_le_bytes([head[21], head[22], head[23], head[24]]));
        if !head.starts_with(BLOCK_MAGIC) || length > BLOCK_BYTES {
            return Ok(offset);
        }
        let mut data = Vec::new();
        (&mut table).take(length).read_to_end(&mut data)?;
        if xxh3_128(&data).to_le_bytes() != head[5..21] {
            return Ok(offset);
        }
        offset += BLOCK_HEAD as u64 + length;
    }
}

fn take<const N: usize>(from: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}
