//! The directories of key spaces, and the file in each that lists its tables (fjall 3.1 with lsm-tree 3.1).
//!
//! The store trusts these files: it deletes a key space without its file `current` and creates it again, empty, and it
//! reads a damaged list of tables as it is. So this module checks them first.

use std::io::{self, Cursor, ErrorKind, Read};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_128;

use super::files::{entries, read_bounded};
use super::witness::FILE as WITNESS;
use super::{Damage, Remedy};
use crate::limits;

/// The file that marks a directory as a store, and its whole contents.
const VERSION: &str = "version";
const VERSION_TEXT: &[u8] = b"FJL\x03";
const SPACES: &str = "keyspaces";
/// A file with the version number of a key space's list (`u64`), the checksum of that list (`u128`) and one byte for
/// the kind of checksum.
const CURRENT: &str = "current";
const CURRENT_BYTES: usize = 25;

/// Returns the numbers of the complete key spaces below `path`.
pub(crate) fn complete_spaces(path: &Path) -> io::Result<Vec<u64>> {
    let mut spaces: Vec<_> = entries(&path.join(SPACES))?
        .iter()
        .filter(|space| space.join(CURRENT).exists())
        .filter_map(|space| space.file_name()?.to_str()?.parse().ok())
        .collect();
    spaces.sort_unstable();
    Ok(spaces)
}

/// Returns whether there is a store, or a part of one, at `path`.
pub(super) fn is_store(path: &Path) -> bool {
    path.join(VERSION).exists()
}

/// Returns whether there is any trace of a store at `path`, even if parts of it are missing.
pub(crate) fn is_begun(path: &Path) -> bool {
    is_store(path) || path.join(SPACES).exists() || path.join(WITNESS).exists()
}

/// Returns the damage of the files around the tables. `known` are the key spaces that certainly exist.
pub(super) fn damage(path: &Path, known: Option<&[u64]>) -> io::Result<Vec<Damage>> {
    let spaces = path.join(SPACES);
    let found = entries(&spaces)?;
    if !is_store(path) {
        // A store whose creation did not finish has no key space and no commit.
        return Ok(if known.is_some() || !found.is_empty() {
            vec![missing(path.join(VERSION))]
        } else {
            Vec::new()
        });
    }
    let version = path.join(VERSION);
    let is_whole = match read_bounded(&version, limits::STORE_FILE_BYTES) {
        Ok(text) => text == VERSION_TEXT,
        Err(error) if error.kind() == ErrorKind::InvalidData => false,
        Err(error) => return Err(error),
    };
    if !is_whole {
        let found = "it is not the mark of a store that this program knows";
        return Ok(vec![damaged(version, 0, found)]);
    }
    let mut directories: Vec<PathBuf> = found.into_iter().filter(|entry| entry.is_dir()).collect();
    let has_tables = |space: &Path| entries(&space.join("tables")).is_ok_and(|tables| !tables.is_empty());
    let is_first = |space: &Path| space.file_name().is_some_and(|name| name == "0");
    let others = directories.len();
    let mut damage = Vec::new();
    for number in known.unwrap_or_default() {
        let space = spaces.join(number.to_string());
        if !directories.contains(&space) {
            directories.push(space);
        }
    }
    directories.sort();
    for space in directories {
        let is_known = known.is_some_and(|known| {
            known
                .iter()
                .any(|number| space.file_name().is_some_and(|name| name == number.to_string().as_str()))
        });
        // The first key space names the others: without it the store deletes them.
        let is_needed = is_known || has_tables(&space) || (is_first(&space) && others > 1);
        damage.extend(space_damage(&space, is_needed)?);
    }
    Ok(damage)
}

fn space_damage(space: &Path, is_needed: bool) -> io::Result<Option<Damage>> {
    match read_list(space)? {
        List::Whole(_) => Ok(None),
        List::None if !is_needed => Ok(None),
        List::None => Ok(Some(missing(space.join(CURRENT)))),
        List::Damaged(damage) => Ok(Some(damage)),
    }
}

/// The list of tables of a key space.
enum List {
    /// The bytes of the list. Their checksum is right.
    Whole(Vec<u8>),
    None,
    Damaged(Damage),
}

fn read_list(space: &Path) -> io::Result<List> {
    let current = space.join(CURRENT);
    let text = match read_bounded(&current, limits::STORE_FILE_BYTES) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(List::None),
        Err(error) if error.kind() == ErrorKind::InvalidData => {
            return Ok(List::Damaged(damaged(current, CURRENT_BYTES as u64, "it has no known form")));
        }
        Err(error) => return Err(error),
    };
    let (Some(number), Some(check)) = (text.first_chunk::<8>(), text.get(8..24)) else {
        return Ok(List::Damaged(damaged(current, text.len() as u64, "it is too short")));
    };
    if text.len() != CURRENT_BYTES || text[CURRENT_BYTES - 1] != 0 {
        return Ok(List::Damaged(damaged(current, 24, "it has no known form")));
    }
    let version = space.join(format!("v{}", u64::from_le_bytes(*number)));
    match read_bounded(&version, limits::STORE_FILE_BYTES) {
        Ok(text) if xxh3_128(&text).to_le_bytes() == *check => Ok(List::Whole(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(List::Damaged(missing(version))),
        Err(error) if error.kind() != ErrorKind::InvalidData => Err(error),
        Ok(_) | Err(_) => {
            Ok(List::Damaged(damaged(version, 0, "its checksum is not the one in the file `current`")))
        }
    }
}

/// Returns the tables of a key space, each with the checksum of its file. None when the list is damaged or missing.
pub(crate) fn listed_tables(space: &Path) -> io::Result<Option<Vec<(u64, u128)>>> {
    let List::Whole(list) = read_list(space)? else { return Ok(None) };
    let sections = sfa::Reader::from_reader(&mut Cursor::new(&list))
        .map_err(|error| io::Error::other(error.to_string()))?;
    let section = sections.toc().section(b"tables").ok_or(ErrorKind::InvalidData)?;
    let from = usize::try_from(section.pos()).map_err(io::Error::other)?;
    let mut from = list.get(from..).ok_or(ErrorKind::InvalidData)?;
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
    Ok(Some(tables))
}

/// Returns the number of the current list of a key space; none when it cannot be read.
pub(super) fn list_number(path: &Path, space: u64) -> Option<u64> {
    let current = path.join(SPACES).join(space.to_string()).join(CURRENT);
    let text = read_bounded(&current, limits::STORE_FILE_BYTES).ok()?;
    text.first_chunk::<8>().map(|number| u64::from_le_bytes(*number))
}

fn take<const N: usize>(from: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn missing(file: PathBuf) -> Damage {
    damaged(file, 0, "the file is missing")
}

fn damaged(file: PathBuf, offset: u64, found: &str) -> Damage {
    Damage { file, offset, found: found.to_owned(), lost_groups: 0, remedy: Remedy::Restore }
}
