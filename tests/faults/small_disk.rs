//! Owns a small file system of its own kind: memory mounted where only chosen processes see it, gone with its value.
//! It never mounts anything that others see, and never continues without one.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::support::server::ServerBuilder;

/// Who may mount: root as it is, every other process as root of a user namespace.
const WAYS: [&[&str]; 2] = [&["--mount"], &["--user", "--map-root-user", "--mount"]];

const MOUNT: &str = "mount -t tmpfs -o size=\"$0\"m,mode=700 tmpfs \"$1\" && echo mounted && exec sleep 3600";

/// A file system of a few hundred MiB.
pub struct SmallDisk {
    /// Keeps the namespace in which it is mounted.
    holder: Child,
    way: &'static [&'static str],
    place: TempDir,
}

impl SmallDisk {
    /// Panics where no process may mount: a test that needs it must not pass without it.
    pub fn new(mebibytes: u64) -> Self {
        let place = TempDir::new().expect("a temporary directory");
        for way in WAYS {
            let mut holder = Command::new("unshare")
                .args(way)
                .args(["sh", "-c", MOUNT, &mebibytes.to_string()])
                .arg(place.path())
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .expect("util-linux is installed");
            let mut said = String::new();
            let out = holder.stdout.take().expect("it is piped");
            let _ = BufReader::new(out).read_line(&mut said);
            if said.trim() == "mounted" {
                return Self { holder, way, place };
            }
            let _ = holder.wait();
        }
        panic!("a small file system can be mounted neither by root nor in a user namespace on this machine");
    }

    /// A server whose data is there.
    pub fn server(&self) -> ServerBuilder {
        ServerBuilder::new(&self.place().join("data")).through(&self.entry())
    }

    /// A command that sees it at `place`.
    pub fn command(&self, program: &str) -> Command {
        let entry = self.entry();
        let mut command = Command::new(&entry[0]);
        command.args(&entry[1..]).arg(program);
        command
    }

    /// The words that bring a program to where it is mounted.
    fn entry(&self) -> Vec<String> {
        let mut command = vec!["nsenter".to_owned(), format!("--target={}", self.holder.id())];
        command.push("--mount".to_owned());
        if self.way.contains(&"--user") {
            command.extend(["--user".to_owned(), "--preserve-credentials".to_owned()]);
        }
        command.push("--".to_owned());
        command
    }

    /// Where it is mounted.
    pub fn place(&self) -> &Path {
        self.place.path()
    }

    /// Where it is seen from outside.
    pub fn root(&self) -> PathBuf {
        let place = self.place.path().strip_prefix("/").expect("temporary directories have whole paths");
        Path::new("/proc").join(self.holder.id().to_string()).join("root").join(place)
    }

    pub fn free(&self) -> u64 {
        let found = rustix::fs::statvfs(self.root()).expect("it is mounted");
        found.f_bavail * found.f_frsize
    }

    /// Fills it with what is not ours until so many bytes are free. None: as far as it leaves.
    pub fn fill(&self, left: u64) {
        let mut file = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.root().join("filler"))
            .expect("it is mounted");
        let block = vec![7; 1 << 20];
        while self.free() > left {
            let wanted = usize::try_from(self.free() - left).unwrap_or(usize::MAX);
            // Another process may have taken the last of it.
            if file.write_all(&block[..wanted.min(block.len())]).is_err() {
                return;
            }
        }
    }

    /// Takes away what filled it.
    pub fn empty(&self) {
        std::fs::remove_file(self.root().join("filler")).expect("it was filled");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Both fail only when the process is gone already. The mount ends with its last process.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
