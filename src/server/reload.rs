//! Files that are read again while the service runs: when they change, and at SIGHUP.
//!
//! A file that has become unreadable or wrong changes nothing: what it said before continues to hold, and the log
//! states why. So a bad edit locks no client out, and a file that is read while it is being written is read once more.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use thiserror::Error as ThisError;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tracing::{error, info};

/// How often a change is looked for. Editors and mounted secrets replace files, which no watch on an inode sees.
const LOOK: Duration = Duration::from_secs(2);

/// A file that the service cannot start without; the text names it.
#[derive(Debug, ThisError)]
#[error("{0}")]
pub struct UnreadableFile(String);

impl UnreadableFile {
    /// The same, with the setting that names the file.
    pub fn of(self, setting: &str) -> Self {
        Self(format!("cannot use the file of {setting}: {}", self.0))
    }
}

/// What tells one state of files from another without reading them.
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
    paths: Vec<PathBuf>,
    seen: Stamp,
    /// Reads the files and gives their content to its users.
    renew: Box<dyn Fn() -> Result<(), String> + Send>,
}

/// Keeps what was read from files true to them.
pub struct Reloader {
    files: Vec<WatchedFiles>,
    hangup: Signal,
}

impl Reloader {
    /// Takes SIGHUP, even when there is nothing to read again: by itself the signal would end the process.
    pub fn new() -> io::Result<Self> {
        Ok(Self { files: Vec::new(), hangup: signal(SignalKind::hangup())? })
    }

    /// Reads files now, and again whenever one of them changes. `read` names the file that is wrong. The receiver always
    /// has the last content that was right.
    pub fn watch<T: Send + Sync + 'static>(
        &mut self,
        paths: &[&Path],
        read: impl Fn() -> Result<T, String> + Send + 'static,
    ) -> Result<watch::Receiver<Arc<T>>, UnreadableFile> {
        let paths: Vec<PathBuf> = paths.iter().map(|path| path.to_path_buf()).collect();
        let seen = stamp(&paths);
        let first = read().map_err(UnreadableFile)?;
        let (current, receiver) = watch::channel(Arc::new(first));
        let renew = move || {
            current.send_replace(Arc::new(read()?));
            Ok(())
        };
        self.files.push(WatchedFiles { paths, seen, renew: Box::new(renew) });
        Ok(receiver)
    }

    /// Looks for changes for ever. Dropped when the service stops.
    pub async fn run(mut self) {
        loop {
            tokio::select! {
                _ = self.hangup.recv() => self.files.iter_mut().for_each(WatchedFiles::read_again),
                () = tokio::time::sleep(LOOK) => self.look(),
            }
        }
    }

    fn look(&mut self) {
        self.files
            .iter_mut()
            .filter(|file| stamp(&file.paths) != file.seen)
            .for_each(WatchedFiles::read_again);
    }
}

impl WatchedFiles {
    fn read_again(&mut self) {
        // Before they are read: a change after that is seen at the next look.
        self.seen = stamp(&self.paths);
        let files = self.paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" ");
        match (self.renew)() {
            Ok(()) => info!(files, "settings files read again"),
            Err(error) => error!(files, error, "settings files refused"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(path: &Path) -> Result<u32, String> {
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
        text.parse().map_err(|_| "no number".to_owned())
    }

    #[tokio::test]
    async fn a_changed_file_is_read_again_and_a_wrong_one_changes_nothing() {
        let data = tempfile::tempdir().unwrap();
        let path = data.path().join("file");
        let mut reloader = Reloader::new().unwrap();
        let from = path.clone();
        let number = move || number(&from);
        reloader.watch(&[&path], number.clone()).expect_err("there is no file");
        std::fs::write(&path, "1").unwrap();
        let current = reloader.watch(&[&path], number).unwrap();
        assert_eq!(**current.borrow(), 1);
        std::fs::write(&path, "22").unwrap();
        reloader.look();
        assert_eq!(**current.borrow(), 22);
        std::fs::write(&path, "wrong").unwrap();
        reloader.look();
        std::fs::remove_file(&path).unwrap();
        reloader.look();
        assert_eq!(**current.borrow(), 22);
        std::fs::write(&path, "333").unwrap();
        reloader.look();
        assert_eq!(**current.borrow(), 333);
    }
}
