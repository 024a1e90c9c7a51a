//! Rewrites the log files of a closed store after a write or a sync failed.
//!
//! After a failed sync the operating system may have marked pages as clean that are not on disk: it still shows them to
//! readers, and the next sync reports success. So the contents of each log are copied to a new file, which is synced
//! and replaces the log, before the store is opened and relies on it. Tables need none of this: the store writes a
//! table whole and lists it only after its sync.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::Path;

/// The file whose lock the store holds while it is open (fjall 3).
const LOCK: &str = "lock";
/// File name extension of logs (fjall 3).
const LOG: &str = "jnl";
/// Extension of the new file until it replaces the log. A leftover one is never read.
const UNFINISHED: &str = "unfinished";
const BLOCK_BYTES: usize = 64 << 10;

/// Rewrites the log files below `path`. No other process may have the store open: `WouldBlock` when one has.
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
    // The renames must be on disk as well.
    File::open(path)?.sync_all()
}

fn rewrite(log: &Path) -> io::Result<()> {
    let unfinished = log.with_extension(UNFINISHED);
    // A failed attempt may have left a file. The result of syncing its pages is just as uncertain, so it is removed.
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

/// Copies all readable bytes. Blocks of zeros are skipped, because a new log is a long file of zeros. The kernel's own
/// copy functions are not used, because they might share the very blocks that were not written.
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
