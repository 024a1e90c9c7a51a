//! A readable copy of a store that no process has open. The original stays unchanged.
//!
//! Tables never change, so the copy links to them. Logs are copied up to the end of their readable groups, because the
//! store truncates a log when it opens it. Small files are copied whole.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tracing::warn;

use super::View;
use super::log::{self, number};
use super::snapshot::StoreSnapshot;
use super::store::Store;
use super::{SPACES, rescue};
use crate::limits;

/// The directory with the tables of a key space.
const TABLES: &str = "tables";
const LOCK: &str = "lock";

/// An open copy. Dropping it removes its files and unlocks the original.
pub struct StoreCopy {
    store: Arc<Store>,
    _files: Files,
    _lock: File,
}

/// The directory of a copy, removed on drop.
struct Files(PathBuf);

impl Drop for Files {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            warn!(path = %self.0.display(), %error, "store copy not removed");
        }
    }
}

impl StoreCopy {
    /// Copies the store at `path` to a new directory below `scratch`, and opens the copy. The copy holds everything
    /// that can be read before damage of the logs. Returns none when there is no store, and `WouldBlock` when a process
    /// has it open.
    pub fn open(path: &Path, scratch: &Path) -> io::Result<Option<Self>> {
        let Some(lock) = log::lock(path)? else { return Ok(None) };
        let checked = log::check(path)?;
        let files = Files(scratch.join(format!("angarium-doctor-{:016x}", rand::random::<u64>())));
        DirBuilder::new().mode(0o700).create(&files.0)?;
        copy(&fs::canonicalize(path)?, &files.0, false)?;
        checked.copy_logs(&files.0)?;
        let opened = catch_unwind(AssertUnwindSafe(|| Store::open_copy(&files.0, &checked.ranges)));
        let opened = opened.map_err(|_| io::Error::other("the store's own code failed on it"))?;
        let store = opened.map_err(|error| io::Error::other(error.to_string()))?;
        Ok(Some(Self { store: Arc::new(store), _files: files, _lock: lock }))
    }

    /// Returns a view of the copy.
    pub fn view(&self) -> View {
        View::of(Box::new(StoreSnapshot::of(Arc::clone(&self.store))))
    }

    /// Returns the numbers and names of its key spaces.
    pub fn spaces(&self) -> Vec<(u64, &'static str)> {
        let number = |space| number(self.store.space(space));
        SPACES.iter().filter_map(|(space, name)| Some((number(*space)?, *name))).collect()
    }
}

/// Copies directories and small files, and links tables. Logs and `damaged-…` folders are left out.
fn copy(from: &Path, to: &Path, is_tables: bool) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let from = entry?.path();
        let Some(name) = from.file_name().and_then(|name| name.to_str()) else { continue };
        let to = to.join(name);
        if from.is_dir() {
            if !name.starts_with("damaged-") {
                fs::create_dir(&to)?;
                copy(&from, &to, name == TABLES)?;
            }
        } else if is_tables {
            symlink(&from, &to)?;
        } else if name == LOCK {
            File::create(&to)?;
        } else if from.extension().is_none_or(|extension| extension != log::LOG) {
            let mut bytes = File::open(&from)?.take(limits::STORE_FILE_BYTES);
            io::copy(&mut bytes, &mut File::create(&to)?)?;
        }
    }
    Ok(())
}

impl log::StoreCheck {
    /// Copies the readable part of each log to another directory.
    fn copy_logs(&self, to: &Path) -> io::Result<()> {
        for (log, end) in self.readable() {
            let Some(name) = log.file_name() else { continue };
            let mut target = File::create(to.join(name))?;
            rescue::copy(&mut File::open(log)?.take(end), &mut target)?;
        }
        Ok(())
    }
}
