//! Cuts logs after an unreadable place, and keeps a copy of the bytes that it cuts.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use tracing::{error, warn};

use super::Damage;
use super::check::{LogFile, StoreCheck};
use super::ranges::DamagedRanges;
use angarium_core::time::Timestamp;

impl StoreCheck {
    /// Cuts what follows the last whole batch. No sync covers these bytes: a power cut leaves them. When the disk has
    /// no room for a copy, they are cut without one.
    pub(crate) fn cut_tail(&self, path: &Path, now: Timestamp) -> io::Result<()> {
        let Some(log) = self.first_bad.and_then(|index| self.logs.get(index)) else { return Ok(()) };
        if log.rest.end == 0 {
            return Ok(());
        }
        let copied = copy_rest(log, &folder(path, now));
        let (file, offset) = (log.path.display().to_string(), log.end);
        match copied {
            Ok(copy) => warn!(file, offset, copy = %copy.display(), "torn log end cut"),
            Err(error) => warn!(file, offset, %error, "torn log end cut without copy"),
        }
        truncate(log)
    }

    /// Continues without the keys that damage has taken from tables. The list of them moves to the folder of damaged
    /// files.
    pub(crate) fn accept_ranges(&mut self, path: &Path, now: Timestamp) -> io::Result<()> {
        let ranges = std::mem::take(&mut self.ranges).ranges.len();
        if DamagedRanges::move_into(path, &folder(path, now))? {
            error!(ranges, path = %path.display(), "table damage accepted");
        }
        Ok(())
    }

    /// Continues without everything after the first unreadable place, and keeps a copy of it. Returns whether something
    /// was missing.
    pub(crate) fn accept(&self, path: &Path, now: Timestamp) -> io::Result<bool> {
        if self.is_whole() {
            return Ok(false);
        }
        let folder = folder(path, now);
        for damage in &self.damage {
            accepted(damage);
        }
        DamagedRanges::move_into(path, &folder)?;
        let Some(index) = self.first_bad else { return Ok(true) };
        fs::create_dir_all(&folder)?;
        // The newest log moves first, so at any moment the remaining logs have no gap.
        let remaining = if self.is_gap { index } else { index + 1 };
        for log in self.logs.iter().skip(remaining).rev() {
            let Some(name) = log.path.file_name() else { continue };
            fs::rename(&log.path, folder.join(name))?;
        }
        if let Some(log) = self.logs.get(index).filter(|_| !self.is_gap) {
            let copy = copy_rest(log, &folder)?;
            error!(copy = %copy.display(), "log after damage put aside");
            truncate(log)?;
        }
        File::open(&folder)?.sync_all()?;
        File::open(path)?.sync_all()?;
        Ok(true)
    }
}

/// Logs an error: the store continues without the missing commits.
pub(crate) fn accepted(damage: &Damage) {
    error!(
        file = %damage.file.display(),
        offset = damage.offset,
        lost_groups = damage.lost_groups,
        found = damage.found,
        "log damage accepted"
    );
}

/// Returns the folder for bytes that are damaged or cut.
pub(crate) fn folder(path: &Path, now: Timestamp) -> PathBuf {
    path.join(format!("damaged-{}", now.as_millis()))
}

fn copy_rest(log: &LogFile, folder: &Path) -> io::Result<PathBuf> {
    fs::create_dir_all(folder)?;
    let name = log.path.file_name().unwrap_or_default().to_string_lossy();
    let copy = folder.join(format!("{name}.from-{}", log.end));
    let mut from = File::open(&log.path)?;
    from.seek(SeekFrom::Start(log.end))?;
    let result = File::create(&copy).and_then(|mut to| {
        io::copy(&mut from.take(log.rest.end.saturating_sub(log.end)), &mut to)?;
        to.sync_all()
    });
    if let Err(error) = result {
        match fs::remove_file(&copy) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => return Err(error),
        }
    }
    Ok(copy)
}

fn truncate(log: &LogFile) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(&log.path)?;
    file.set_len(log.end)?;
    file.sync_all()
}
