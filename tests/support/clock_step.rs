//! Owns the wall clock of a process: the preloaded shim (`clock_step.c`), built here, and the file that sets it.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use tempfile::TempDir;

use super::shim::build_shim;

/// A wall clock that differs from that of the machine as told. It must outlive the processes that read it.
pub struct SteppedClock {
    dir: TempDir,
}

impl SteppedClock {
    /// One that is so many milliseconds ahead, or behind.
    pub fn new(millis: i64) -> Self {
        let clock = Self { dir: TempDir::new().expect("a temporary directory") };
        build_shim("tests/support/clock_step.c", &clock.shim());
        clock.set(millis);
        clock
    }

    /// Sets how far it is ahead from now on. Processes that read it see a step.
    pub fn set(&self, millis: i64) {
        // They have the file mapped: it must stay the same one.
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(self.offset());
        file.and_then(|file| file.write_all_at(&millis.to_ne_bytes(), 0)).expect("a file of our own");
    }

    /// What a process must be run through to have this clock.
    pub fn command(&self) -> [String; 3] {
        let shim = format!("LD_PRELOAD={}", self.shim().display());
        ["env".to_owned(), shim, format!("CLOCK_STEP={}", self.offset().display())]
    }

    fn shim(&self) -> PathBuf {
        self.dir.path().join("clock_step.so")
    }

    fn offset(&self) -> PathBuf {
        self.dir.path().join("offset")
    }
}
