//! The mark of the data directory: where it was when a service last used it, so that a copy of it is not started by
//! mistake.
//!
//! `DATA/location` has the machine, the file system and the inode of the directory. Each is compared only where it
//! stays the same for as long as the directory does. A part that is unknown now, or was unknown then, differs from
//! nothing: a restart must not be refused because a container has no machine id, or another one each time.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{statfs, statvfs};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tracing::{info, warn};

use angarium_core::data_files::{LOCATION as FILE, UNFINISHED_LOCATION as UNFINISHED};

/// Max bytes read from the file, and from that of the machine id: more than a whole one has.
const BYTES: u64 = 1_024;
/// The id of the machine, which systemd or dbus makes at the first start of a system.
const MACHINE: &str = "/etc/machine-id";
/// Files that Docker and Podman put into each container.
const CONTAINER_FILES: [&str; 2] = ["/.dockerenv", "/run/.containerenv"];
/// Variables of processes in containers of Podman, of systemd, and of Kubernetes.
const CONTAINER_VARIABLES: [&str; 2] = ["container", "KUBERNETES_SERVICE_HOST"];

/// `f_type` of file systems.
const EXT: u64 = 0xef53;
const XFS: u64 = 0x5846_5342;
const BTRFS: u64 = 0x9123_683e;
const F2FS: u64 = 0xf2f5_2010;
const ZFS: u64 = 0x2fc1_2fc1;
const TMPFS: u64 = 0x0102_1994;
const OVERLAY: u64 = 0x794c_7630;
/// File systems on which an inode keeps its number as long as it exists. Others give numbers at each mount
/// (overlays, FUSE), or have those of other machines.
const STABLE_INODES: [u64; 6] = [EXT, XFS, BTRFS, F2FS, ZFS, TMPFS];
/// File systems whose id is stored in them. The number of a device, from which the others make their id, changes with
/// the order in which disks are found.
const STORED_IDS: [u64; 3] = [EXT, BTRFS, ZFS];

/// The place of a data directory, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Location {
    /// A hash of the machine's id, which itself must not leave the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    machine: Option<String>,
    /// The id of the file system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    filesystem: Option<String>,
    /// The inode of the directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    inode: Option<u64>,
}

/// The reason why a directory is not used.
#[derive(Debug)]
pub(super) enum LocationError {
    /// It is not where it was. The text has the difference and the remedy.
    Elsewhere(String),
    /// The mark cannot be read or written.
    Io(io::Error),
}

impl From<io::Error> for LocationError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Checks that the directory is where it was, and completes its mark. A directory without one gets it.
pub(super) fn check(data: &Path) -> Result<(), LocationError> {
    let found = Location::of(data)?;
    let Some(stored) = read(data)? else { return Ok(write(data, &found)?) };
    if let Some(difference) = stored.difference(&found) {
        return Err(LocationError::Elsewhere(format!(
            "{data} is not the directory that a service last used: {difference}. If it was moved, or the original is gone, \
             start once with --moved. A copy beside its original would serve the same messages twice",
            data = data.display(),
        )));
    }
    let completed = stored.clone().completed_by(found);
    if completed == stored { Ok(()) } else { Ok(write(data, &completed)?) }
}

/// Marks the directory as being where it is now.
pub(super) fn accept(data: &Path) -> Result<(), LocationError> {
    let (found, stored) = (Location::of(data)?, read(data)?);
    if let Some(difference) = stored.as_ref().and_then(|stored| stored.difference(&found)) {
        info!(difference, "data directory moved");
    }
    if stored.as_ref() == Some(&found) { Ok(()) } else { Ok(write(data, &found)?) }
}

impl Location {
    fn of(data: &Path) -> io::Result<Self> {
        let kind = kind(data)?;
        let stored_id = STORED_IDS.contains(&kind).then(|| statvfs(data)).transpose()?;
        let filesystem = stored_id.map(|system| system.f_fsid).filter(|id| *id != 0);
        let inode = STABLE_INODES.contains(&kind).then(|| fs::metadata(data)).transpose()?;
        Ok(Self {
            machine: machine()?,
            filesystem: filesystem.map(|id| format!("{id:016x}")),
            inode: inode.map(|directory| directory.ino()),
        })
    }

    /// Describes how another place differs from this one; none when it may be the same.
    fn difference(&self, found: &Self) -> Option<String> {
        fn differ<T: PartialEq>(stored: Option<&T>, found: Option<&T>) -> bool {
            stored.zip(found).is_some_and(|(stored, found)| stored != found)
        }
        if differ(self.machine.as_ref(), found.machine.as_ref()) {
            return Some(format!("the machine has another id in {MACHINE}"));
        }
        if differ(self.filesystem.as_ref(), found.filesystem.as_ref()) {
            return Some("it is on another file system".to_owned());
        }
        if differ(self.inode.as_ref(), found.inode.as_ref()) {
            return Some("its inode has another number, so it is a copy".to_owned());
        }
        None
    }

    /// Returns the place with what only `found` knows.
    fn completed_by(self, found: Self) -> Self {
        Self {
            machine: self.machine.or(found.machine),
            filesystem: self.filesystem.or(found.filesystem),
            inode: self.inode.or(found.inode),
        }
    }
}

/// Returns the `f_type` of the file system of a path.
fn kind(path: &Path) -> io::Result<u64> {
    Ok(u64::from_ne_bytes(statfs(path)?.f_type.to_ne_bytes()))
}

/// Returns a hash of the machine's id; none when there is none that stays: in a container it is that of an image, and in
/// a file in memory it lasts until the next start of the machine.
fn machine() -> io::Result<Option<String>> {
    if is_contained()? || !Path::new(MACHINE).is_file() || kind(MACHINE.as_ref())? == TMPFS {
        return Ok(None);
    }
    let Ok(file) = File::open(MACHINE) else { return Ok(None) };
    let mut text = Vec::new();
    file.take(BYTES).read_to_end(&mut text)?;
    let text = text.trim_ascii();
    if text.len() != 32 || !text.iter().all(u8::is_ascii_hexdigit) {
        return Ok(None);
    }
    let hash = Sha256::new().chain_update("angarium data directory ").chain_update(text).finalize();
    Ok(Some(hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect()))
}

/// Whether the process seems to run in a container, whose files come from an image.
fn is_contained() -> io::Result<bool> {
    let has_file = CONTAINER_FILES.iter().any(|path| Path::new(path).exists());
    let has_variable = CONTAINER_VARIABLES.iter().any(|name| std::env::var_os(name).is_some());
    Ok(has_file || has_variable || kind(Path::new("/"))? == OVERLAY)
}

/// Reads the mark; none when there is none. A damaged one protects nothing, so it is written again.
fn read(data: &Path) -> io::Result<Option<Location>> {
    let path = data.join(FILE);
    let mut text = Vec::new();
    match File::open(&path) {
        Ok(file) => _ = file.take(BYTES).read_to_end(&mut text)?,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    }
    let location = serde_json::from_slice(&text);
    if let Err(error) = &location {
        warn!(path = %path.display(), %error, "mark of the data directory damaged");
    }
    Ok(location.ok())
}

fn write(data: &Path, location: &Location) -> io::Result<()> {
    let unfinished = data.join(UNFINISHED);
    let mut file = File::create(&unfinished)?;
    serde_json::to_writer(&mut file, location)?;
    file.write_all(b"\n")?;
    file.sync_all()?;
    fs::rename(unfinished, data.join(FILE))?;
    File::open(data)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(machine: Option<&str>, filesystem: Option<&str>, inode: Option<u64>) -> Location {
        Location { machine: machine.map(str::to_owned), filesystem: filesystem.map(str::to_owned), inode }
    }

    fn refusal(data: &Path) -> String {
        match check(data) {
            Err(LocationError::Elsewhere(why)) => why,
            other => unreachable!("{other:?}"),
        }
    }

    #[test]
    fn only_parts_known_twice_are_compared() {
        let whole = location(Some("m"), Some("f"), Some(7));
        let differs = |found: &Location| whole.difference(found).unwrap_or_default();
        for same in [whole.clone(), Location::default(), location(None, None, Some(7))] {
            assert_eq!((differs(&same), same.difference(&whole)), (String::new(), None));
        }
        assert!(differs(&location(Some("n"), Some("f"), Some(7))).contains("machine"));
        assert!(differs(&location(None, Some("g"), Some(7))).contains("file system"));
        assert!(differs(&location(Some("m"), None, Some(8))).contains("inode"));
    }

    #[test]
    fn unknown_parts_are_completed_and_kept() {
        let stored = location(None, Some("f"), Some(7));
        let completed = stored.completed_by(location(Some("m"), None, Some(7)));
        assert_eq!(completed, location(Some("m"), Some("f"), Some(7)));
    }

    #[test]
    fn mark_of_another_place_is_refused_until_accepted() {
        let data = tempfile::tempdir().unwrap();
        check(data.path()).unwrap();
        check(data.path()).unwrap();
        let here = read(data.path()).unwrap().unwrap();
        // As on a file system with stable inodes, whatever the one of this test is.
        let there = Location { machine: Some("0".repeat(32)), ..here.clone() };
        write(data.path(), &there).unwrap();
        if here.machine.is_some() {
            let why = refusal(data.path());
            assert!(why.contains("machine") && why.contains("--moved"), "{why}");
        }
        accept(data.path()).unwrap();
        assert_eq!(read(data.path()).unwrap(), Some(here));
        check(data.path()).unwrap();
    }

    #[test]
    fn damaged_mark_is_written_again() {
        let data = tempfile::tempdir().unwrap();
        check(data.path()).unwrap();
        let whole = fs::read(data.path().join(FILE)).unwrap();
        for damaged in ["", "{", "{\"inode\":-1}"] {
            fs::write(data.path().join(FILE), damaged).unwrap();
            check(data.path()).unwrap();
            assert_eq!(fs::read(data.path().join(FILE)).unwrap(), whole);
        }
    }
}
