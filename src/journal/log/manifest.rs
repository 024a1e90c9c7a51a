//! The directories of key spaces, and the file of each that names its tables (fjall 3.1 over lsm-tree 3.1).
//!
//! The store trusts them: a key space without its file `current` is deleted and made anew, empty, and one whose list of tables
//! is damaged is read as it is. So they are checked first.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_128;

use super::files::entries;
use super::{Damage, Remedy};

/// The file that makes a directory a store.
const VERSION: &str = "version";
const SPACES: &str = "keyspaces";
/// Number of the version of a key space, `u64`, and the checksum of its file, `u128` and one byte for its kind.
const CURRENT: &str = "current";
const CURRENT_BYTES: usize = 25;

/// Numbers of the key spaces below `path` that are complete.
pub(in crate::journal) fn complete_spaces(path: &Path) -> io::Result<Vec<u64>> {
    let mut spaces: Vec<_> = entries(&path.join(SPACES))?
        .iter()
        .filter(|space| space.join(CURRENT).exists())
        .filter_map(|space| space.file_name()?.to_str()?.parse().ok())
        .collect();
    spaces.sort_unstable();
    Ok(spaces)
}

/// Whether there is a store at `path`, or a part of one.
pub(super) fn is_store(path: &Path) -> bool {
    path.join(VERSION).exists()
}

/// Damage of the files around the tables. `known` are the key spaces that the store has for certain.
pub(super) fn damage(path: &Path, known: Option<&[u64]>) -> io::Result<Vec<Damage>> {
    let spaces = path.join(SPACES);
    let found = entries(&spaces)?;
    if !is_store(path) {
        // What was not made to its end has no key space, and no commit.
        return Ok(match known.is_some() || !found.is_empty() {
            true => vec![missing(path.join(VERSION))],
            false => Vec::new(),
        });
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
        // The first one names the others: without it they are deleted.
        let is_needed = is_known || has_tables(&space) || (is_first(&space) && others > 1);
        damage.extend(space_damage(&space, is_needed)?);
    }
    Ok(damage)
}

fn space_damage(space: &Path, is_needed: bool) -> io::Result<Option<Damage>> {
    let current = space.join(CURRENT);
    let text = match fs::read(&current) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Ok(is_needed.then(|| missing(current)));
        }
        Err(error) => return Err(error),
    };
    let (Some(number), Some(check)) = (text.first_chunk::<8>(), text.get(8..24)) else {
        return Ok(Some(damaged(current, text.len() as u64, "it is too short")));
    };
    if text.len() != CURRENT_BYTES || text[CURRENT_BYTES - 1] != 0 {
        return Ok(Some(damaged(current, 24, "it has no known form")));
    }
    let version = space.join(format!("v{}", u64::from_le_bytes(*number)));
    match fs::read(&version) {
        Ok(text) if xxh3_128(&text).to_le_bytes() == *check => Ok(None),
        Ok(_) => Ok(Some(damaged(version, 0, "its checksum is not the one in the file `current`"))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Some(missing(version))),
        Err(error) => Err(error),
    }
}

fn missing(file: PathBuf) -> Damage {
    damaged(file, 0, "the file is missing")
}

fn damaged(file: PathBuf, offset: u64, found: &str) -> Damage {
    Damage { file, offset, found: found.to_owned(), lost_groups: 0, remedy: Remedy::Restore }
}
