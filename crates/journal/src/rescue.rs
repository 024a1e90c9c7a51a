//! Writing the log files of a closed store again, after a write or a sync failed.
//!
//! After a sync that failed the system may have forgotten that pages of a file are not on disk: it shows them when they
//! are read, and calls the next sync a success. So what a log shows is copied to a new file, which is synced and
//! takes its place, before the store is opened and any process builds on it. Table files need none of this: they are
//! written whole, and only named once they are synced.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::Path;

/// The file whose lock the store holds while it is open (fjall 3).
const LOCK: &str = "lock";
/// What the names of log files end with (fjall 3).
const LOG: &str = "jnl";
/// What the new file ends with until it takes its place. No process reads one that was left.
const UNFINISHED: &str = "unfinished";
const BLOCK_BYTES: usize = 64 << 10;

/// Writes the log files below `path` again. No other process may have the store open, and it reports it when a process
/// has.
pub(super) fn rewrite_logs(path: &Path) -> io::Result<()> {
    let lock = OpenOptions::new().read(true).write(true).open(path.join(LOCK))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::Error(error)) => return Err(error),
        Err(TryLockError::WouldBlock) => return Err(io::Error::new(ErrorKind::WouldBlock, "it is in use")),
    }
    for entry in fs::read_dir(path)? {
        let log = entry?.path();
        if log.extension().is_some_and(|extension| extension == LOG) {
            rewrite(&log)?;
        }
    }
    // The new names must be on disk as well.
    File::open(path)?.sync_all()
}

fn rewrite(log: &Path) -> io::Result<()> {
    let unfinished = log.with_extension(UNFINISHED);
    // A try that failed may have left one, and what a sync makes of its pages is as uncertain.
    match fs::remove_file(&unfinished) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut from = File::open(log)?;
    let mut to = File::create_new(&unfinished)?;
    copy(&mut from, &mut to)?;
    to.sync_all()?;
    fs::rename(unfinished, log)
}

/// Copies what can be read, byte for byte. Blocks of zeros are skipped: a log begins as a long file of them. The system
/// is not asked to copy by itself, since it might share the very blocks that were not written.
pub(super) fn copy(from: &mut impl Read, to: &mut File) -> io::Result<()> {
    let mut block = vec![0; BLOCK_BYTES];
    let mut length = 0;
    loop {
        let read = match from.read(&mut block) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if block[..read].iter().any(|byte| *byte != 0) {
            to.seek(SeekFrom::Start(length))?;
            to.write_all(&block[..read])?;
        }
        length += read as u64;
    }
    to.set_len(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_are_restored_and_other_files_stay() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let mut bytes = vec![0; 3 * BLOCK_BYTES + 5];
        bytes[7] = 1;
        bytes[2 * BLOCK_BYTES + 1] = 2;
        for name in ["1.jnl", "2.jnl", "version", LOCK] {
            fs::write(path(name), &bytes).unwrap();
        }
        fs::write(path("1.unfinished"), "left").unwrap();
        rewrite_logs(dir.path()).unwrap();
        for name in ["1.jnl", "2.jnl", "version", LOCK] {
            assert!(fs::read(path(name)).unwrap() == bytes, "{name}");
        }
        assert!(!path("1.unfinished").exists());
    }

    #[test]
    fn open_store_is_not_touched() {
        let dir = tempfile::tempdir().unwrap();
        let lock = File::create(dir.path().join(LOCK)).unwrap();
        lock.lock().unwrap();
        assert_eq!(rewrite_logs(dir.path()).unwrap_err().kind(), ErrorKind::WouldBlock);
    }
}
