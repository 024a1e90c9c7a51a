//! Owns the power switch of one data directory: the preloaded shim (`powercut.c`), built here, and its
//! files. It never touches the data itself; `rollback` does.

use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;

use rand::rngs::StdRng;
use tempfile::TempDir;

use super::rollback::{Damage, Survival, count_syncs, roll_back};
use crate::support::server::ServerBuilder;
use crate::support::shim::build_shim;

/// A directory that can lose power. All its files are gone when it is dropped.
pub struct PowerCut {
    dir: TempDir,
}

impl PowerCut {
    pub fn new() -> Self {
        let cut = Self { dir: TempDir::new().expect("a temporary directory") };
        std::fs::create_dir(cut.data()).expect("the directory is fresh");
        build_shim("tests/faults/powercut.c", &cut.shim());
        cut
    }

    /// The directory that loses power.
    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// What the environment of a process must hold to be under the switch.
    pub fn env(&self) -> [(&'static str, OsString); 9] {
        [
            ("LD_PRELOAD", self.shim().into()),
            ("POWERCUT_DIR", self.data().into()),
            ("POWERCUT_LOG", self.log().into()),
            ("POWERCUT_GATE", self.gate().into()),
            ("POWERCUT_FAIL", self.fail().into()),
            ("POWERCUT_FULL", self.full().into()),
            ("POWERCUT_UNREADABLE", self.unreadable().into()),
            ("POWERCUT_REFUSED", self.refused().into()),
            ("POWERCUT_FATAL", self.fatal().into()),
        ]
    }

    /// A server on the directory, under the switch.
    pub fn server(&self) -> ServerBuilder {
        self.env()
            .into_iter()
            .fold(ServerBuilder::new(&self.data()), |server, (name, value)| server.env(name, value))
    }

    /// From now on no sync begins.
    pub fn close_gate(&self) {
        File::create(self.gate()).expect("a file beside the data");
    }

    /// How many syncs have begun to wait since the gate was closed.
    pub fn held_syncs(&self) -> u64 {
        std::fs::metadata(self.gate()).expect("the gate is closed").len()
    }

    pub fn open_gate(&self) {
        std::fs::remove_file(self.gate()).expect("the gate is closed");
    }

    /// From now on each sync fails with EIO.
    pub fn fail_syncs(&self) {
        File::create(self.fail()).expect("a file beside the data");
    }

    pub fn mend_syncs(&self) {
        std::fs::remove_file(self.fail()).expect("syncs fail");
    }

    /// From now on each write fails with ENOSPC.
    pub fn fill_disk(&self) {
        File::create(self.full()).expect("a file beside the data");
    }

    pub fn empty_disk(&self) {
        std::fs::remove_file(self.full()).expect("the disk is full");
    }

    /// From now on each read of a file fails with EIO whose path contains `part`.
    pub fn refuse_reads(&self, part: &str) {
        self.tell(self.unreadable(), part);
    }

    pub fn allow_reads(&self) {
        std::fs::remove_file(self.unreadable()).expect("reads fail");
    }

    /// From now on each write fails with EIO whose bytes contain `text`.
    pub fn refuse_writes_of(&self, text: &str) {
        self.tell(self.refused(), text);
    }

    pub fn allow_writes(&self) {
        std::fs::remove_file(self.refused()).expect("writes fail");
    }

    /// The process under the switch ends by SIGKILL before the next write whose bytes contain `text`.
    pub fn kill_before_write_of(&self, text: &str) {
        self.tell(self.fatal(), text);
    }

    /// No write ends the process any more.
    pub fn spare(&self) {
        std::fs::remove_file(self.fatal()).expect("writes are fatal");
    }

    /// Makes the file of a fault with a text, at once.
    fn tell(&self, fault: PathBuf, text: &str) {
        let unfinished = self.dir.path().join("unfinished");
        std::fs::write(&unfinished, text).expect("a file beside the data");
        std::fs::rename(unfinished, fault).expect("a file beside the data");
    }

    /// Cuts the power after the fact: the processes are dead, and what they had not synced leaves, as far
    /// as `survival` states. The log starts again.
    pub fn strike(&self, survival: Survival, dice: &mut StdRng) -> Damage {
        let log = std::fs::read(self.log()).expect("the shim was loaded and has left its log");
        let damage = roll_back(&self.data(), &log, survival, dice);
        std::fs::remove_file(self.log()).expect("the log was there");
        damage
    }

    /// How many syncs the processes have completed since the last cut.
    pub fn syncs(&self) -> usize {
        std::fs::read(self.log()).map_or(0, |log| count_syncs(&log))
    }

    fn shim(&self) -> PathBuf {
        self.dir.path().join("powercut.so")
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    fn gate(&self) -> PathBuf {
        self.dir.path().join("gate")
    }

    fn fail(&self) -> PathBuf {
        self.dir.path().join("fail")
    }

    fn unreadable(&self) -> PathBuf {
        self.dir.path().join("unreadable")
    }

    fn refused(&self) -> PathBuf {
        self.dir.path().join("refused")
    }

    fn fatal(&self) -> PathBuf {
        self.dir.path().join("fatal")
    }

    fn full(&self) -> PathBuf {
        self.dir.path().join("full")
    }
}
