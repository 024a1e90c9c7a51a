//! The files of a store that are looked at before it is opened (fjall 3.1).

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use xxhash_rust::xxh3::xxh3_64;

use crate::limits;

/// The file whose lock the store holds while it is open.
const LOCK: &str = "lock";
/// What the names of log files end with.
pub(crate) const LOG: &str = "jnl";
/// How often a lock that another process holds is tried, and the pause between: a store that closes needs a moment.
const LOCK_TRIES: (usize, Duration) = (3, Duration::from_millis(100));

/// Takes the lock of the store at `path`, until the file is dropped; none when there is no store yet.
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

/// The log files below `path` with their numbers, oldest first.
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

/// What is in a directory; nothing when there is none.
pub(super) fn entries(path: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(path) {
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Reads the text of a small file that [`write_sealed`] has written, without its checksum; none when there is no file,
/// `InvalidData` when it is damaged.
pub(super) fn read_sealed(file: &Path) -> io::Result<Option<String>> {
    let bytes = match read_bounded(file, limits::STORE_FILE_BYTES) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let text = std::str::from_utf8(&bytes).ok().and_then(unsealed);
    text.map(|text| Some(text.to_owned())).ok_or_else(damaged)
}

/// The error of a small file whose text makes no sense.
pub(super) fn damaged() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "the file is damaged")
}

fn unsealed(text: &str) -> Option<&str> {
    let (before, check) = text.strip_suffix('\n')?.rsplit_once("check=")?;
    (u64::from_str_radix(check, 16).ok()? == xxh3_64(before.as_bytes())).then_some(before)
}

/// Puts a text with its checksum (XXH3) in place of the file `name` below `folder`, whole and synced.
pub(super) fn write_sealed(folder: &Path, name: &str, text: &str) -> io::Result<()> {
    let unfinished = folder.join(format!("{name}.unfinished"));
    let mut file = File::create(&unfinished)?;
    let check = xxh3_64(text.as_bytes());
    file.write_all(format!("{text}check={check:016x}\n").as_bytes())?;
    file.sync_all()?;
    fs::rename(unfinished, folder.join(name))?;
    File::open(folder)?.sync_all()
}

/// Reads a small file. `InvalidData` when it is longer than `most`, which none of its kind is, so that a damaged one is not
/// held in memory.
pub(super) fn read_bounded(file: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = File::open(file)?.take(most + 1).read_to_end(&mut bytes)?;
    if read as u64 > most {
        return Err(io::Error::new(ErrorKind::InvalidData, "the file is longer than any of its kind"));
    }
    Ok(bytes)
}
