//! The files of a store that are read before the store is opened (fjall 3.1).

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use xxhash_rust::xxh3::xxh3_64;

use crate::limits;

/// The file whose lock the store holds while it is open.
const LOCK: &str = "lock";
/// File name extension of logs.
pub(crate) const LOG: &str = "jnl";
/// Number of attempts to take a lock that another process holds, and the pause between them. A closing store holds its
/// lock for a moment.
const LOCK_TRIES: (usize, Duration) = (3, Duration::from_millis(100));

/// Locks the store at `path` until the returned file is dropped. Returns none when there is no store, and `WouldBlock`
/// when another process holds the lock.
pub(crate) fn lock(path: &Path) -> io::Result<Option<File>> {
    let file = match OpenOptions::new().read(true).write(true).open(path.join(LOCK)) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let (tries, pause) = LOCK_TRIES;
    for _ in 0..tries {
        match file.try_lock() {
            Ok(()) => return Ok(Some(file)),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) => std::thread::sleep(pause),
        }
    }
    Err(io::Error::new(ErrorKind::WouldBlock, "it is in use"))
}

/// Returns the log files below `path` with their numbers, oldest first.
pub(super) fn logs(path: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut logs = Vec::new();
    for file in entries(path)? {
        let number = file.file_stem().and_then(|name| name.to_str()).and_then(|name| name.parse().ok());
        if let Some(number) = number
            && file.extension().is_some_and(|extension| extension == LOG)
        {
            logs.push((number, file));
        }
    }
    logs.sort_unstable();
    Ok(logs)
}

/// Returns the entries of a directory; an empty list when there is no directory.
pub(super) fn entries(path: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(path) {
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Reads the text of a small file written by [`write_sealed`], without its checksum. Returns none when there is no
/// file, and `InvalidData` when it is damaged.
pub(super) fn read_sealed(file: &Path) -> io::Result<Option<String>> {
    let bytes = match read_bounded(file, limits::STORE_FILE_BYTES) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let text = std::str::from_utf8(&bytes).ok().and_then(unsealed);
    text.map(|text| Some(text.to_owned())).ok_or_else(damaged)
}

/// Returns the error for a small file whose contents are invalid.
pub(super) fn damaged() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "the file is damaged")
}

fn unsealed(text: &str) -> Option<&str> {
    let (before, check) = text.strip_suffix('\n')?.rsplit_once("check=")?;
    (u64::from_str_radix(check, 16).ok()? == xxh3_64(before.as_bytes())).then_some(before)
}

/// Replaces the file `name` below `folder` by a text with its checksum (XXH3). The replacement is atomic and synced.
pub(super) fn write_sealed(folder: &Path, name: &str, text: &str) -> io::Result<()> {
    let unfinished = folder.join(format!("{name}.unfinished"));
    let mut file = File::create(&unfinished)?;
    let check = xxh3_64(text.as_bytes());
    file.write_all(format!("{text}check={check:016x}\n").as_bytes())?;
    file.sync_all()?;
    fs::rename(unfinished, folder.join(name))?;
    File::open(folder)?.sync_all()
}

/// Reads a small file. Returns `InvalidData` when it is longer than `max`, so a damaged file cannot fill the memory.
pub(super) fn read_bounded(file: &Path, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = File::open(file)?.take(max + 1).read_to_end(&mut bytes)?;
    if read as u64 > max {
        return Err(io::Error::new(ErrorKind::InvalidData, "the file is longer than any of its kind"));
    }
    Ok(bytes)
}
