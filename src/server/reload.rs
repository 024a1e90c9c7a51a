//! Reload of files while the service runs: when they change, and at SIGHUP.
//!
//! If a file becomes unreadable or invalid, its last valid content stays in use, and the log has the reason. So a bad
//! edit locks no client out, and a file that is read while it is being written is read again.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use thiserror::Error as ThisError;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tracing::{error, info};

use angarium_metrics::Meter;

/// Interval of the checks for changes. Editors and mounted secrets replace files, which a watch on an inode does not
/// detect.
const LOOK: Duration = Duration::from_secs(2);

/// A file that the service needs in order to start cannot be used; the text names it.
#[derive(Debug, ThisError)]
#[error("{0}")]
pub struct UnreadableFile(String);

/// Modification times and lengths of files, to detect a change without reading them.
type Stamp = Vec<Option<(SystemTime, u64)>>;

fn stamp(paths: &[PathBuf]) -> Stamp {
    let stamp = |path: &PathBuf| {
        let file = std::fs::metadata(path).ok()?;
        Some((file.modified().ok()?, file.len()))
    };
    paths.iter().map(stamp).collect()
}

/// Files that are read together.
struct WatchedFiles {
    /// The setting that names the files.
    setting: &'static str,
    paths: Vec<PathBuf>,
    seen: Stamp,
    /// The error of the last read. After an error, the files are read at each check, because a changed permission shows
    /// in no stamp.
    refused: Option<String>,
    /// Reads the files and publishes their content.
    renew: Box<dyn Fn() -> Result<(), String> + Send>,
}

/// Reloads the watched files.
pub struct Reloader {
    files: Vec<WatchedFiles>,
    hangup: Signal,
}

impl Reloader {
    /// Takes over SIGHUP, also when there is nothing to reload: by default the signal would end the process.
    pub fn new() -> io::Result<Self> {
        Ok(Self { files: Vec::new(), hangup: signal(SignalKind::hangup())? })
    }

    /// Reads the files of a setting now, and again whenever one of them changes. The error of `read` names the invalid
    /// file. The receiver always has the last valid content.
    pub fn watch<T: Send + Sync + 'static>(
        &mut self,
        setting: &'static str,
        paths: &[&Path],
        read: impl Fn() -> Result<T, String> + Send + 'static,
    ) -> Result<watch::Receiver<Arc<T>>, UnreadableFile> {
        let paths: Vec<PathBuf> = paths.iter().map(|path| path.to_path_buf()).collect();
        let seen = stamp(&paths);
        let of_setting = |error| UnreadableFile(format!("cannot use the file of {setting}: {error}"));
        let first = read().map_err(of_setting)?;
        let (current, receiver) = watch::channel(Arc::new(first));
        let renew = move || {
            current.send_replace(Arc::new(read()?));
            Ok(())
        };
        self.files.push(WatchedFiles { setting, paths, seen, refused: None, renew: Box::new(renew) });
        Ok(receiver)
    }

    /// Checks for changes without end, and records in `meter` which files are in use. Dropped when the service stops.
    pub async fn run(mut self, meter: Meter) {
        self.files.iter().for_each(|file| meter.accept_settings_file(file.setting));
        loop {
            tokio::select! {
                _ = self.hangup.recv() => self.files.iter_mut().for_each(|file| file.read_again(&meter)),
                () = tokio::time::sleep(LOOK) => self.look(&meter),
            }
        }
    }

    fn look(&mut self, meter: &Meter) {
        let is_due = |file: &&mut WatchedFiles| file.refused.is_some() || stamp(&file.paths) != file.seen;
        let due = self.files.iter_mut().filter(is_due);
        due.for_each(|file| file.read_again(meter));
    }
}

impl WatchedFiles {
    fn read_again(&mut self, meter: &Meter) {
        // Taken before the files are read, so that the next check detects a change after this point.
        self.seen = stamp(&self.paths);
        let files = self.paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" ");
        match (self.renew)() {
            Ok(()) => {
                self.refused = None;
                meter.accept_settings_file(self.setting);
                info!(files, "settings files read again");
            }
            Err(error) => {
                meter.refuse_settings_file(self.setting);
                if self.refused.as_ref() != Some(&error) {
                    error!(files, error, "settings files refused");
                    self.refused = Some(error);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn number(path: &Path) -> Result<u32, String> {
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
        text.parse().map_err(|_| "no number".to_owned())
    }

    #[tokio::test]
    async fn refused_file_is_read_until_it_can_be_used() {
        let data = tempfile::tempdir().unwrap();
        let path = data.path().join("file");
        std::fs::write(&path, "1").unwrap();
        let (meter, mut reloader) = (Meter::default(), Reloader::new().unwrap());
        // A changed permission changes neither the time nor the length of a file.
        let is_readable = Arc::new(AtomicBool::new(true));
        let (from, readable) = (path.clone(), Arc::clone(&is_readable));
        let read =
            move || if readable.load(Ordering::Relaxed) { number(&from) } else { Err("no right".into()) };
        let current = reloader.watch("--file", &[&path], read).unwrap();
        is_readable.store(false, Ordering::Relaxed);
        std::fs::write(&path, "22").unwrap();
        reloader.look(&meter);
        assert_eq!((**current.borrow(), meter.refused_settings_files()), (1, vec!["--file"]));
        is_readable.store(true, Ordering::Relaxed);
        reloader.look(&meter);
        assert_eq!((**current.borrow(), meter.refused_settings_files()), (22, Vec::new()));
    }

    #[tokio::test]
    async fn a_changed_file_is_read_again_and_a_wrong_one_changes_nothing() {
        let data = tempfile::tempdir().unwrap();
        let path = data.path().join("file");
        let (meter, mut reloader) = (Meter::default(), Reloader::new().unwrap());
        let from = path.clone();
        let number = move || number(&from);
        reloader.watch("--file", &[&path], number.clone()).expect_err("there is no file");
        std::fs::write(&path, "1").unwrap();
        let current = reloader.watch("--file", &[&path], number).unwrap();
        assert_eq!(**current.borrow(), 1);
        std::fs::write(&path, "22").unwrap();
        reloader.look(&meter);
        assert_eq!(**current.borrow(), 22);
        std::fs::write(&path, "wrong").unwrap();
        reloader.look(&meter);
        std::fs::remove_file(&path).unwrap();
        reloader.look(&meter);
        assert_eq!(**current.borrow(), 22);
        assert_eq!(meter.refused_settings_files(), ["--file"]);
        std::fs::write(&path, "333").unwrap();
        reloader.look(&meter);
        assert_eq!(**current.borrow(), 333);
        assert!(meter.refused_settings_files().is_empty());
    }
}
