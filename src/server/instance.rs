//! Which replica the data directory belongs to, and that one process at a time uses it.
//!
//! `DATA/instance` holds a UUID, made at the first start, and is locked while the process lives: a process that finds
//! it is the same replica as the one before, and may take over from it at once.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use uuid::Uuid;

const FILE: &str = "instance";

/// The identity of this replica. Dropping it unlocks the directory.
pub(super) struct Instance {
    pub(super) id: Uuid,
    _locked: File,
}

/// Why there is none.
pub(super) enum InstanceError {
    /// Another process has the directory.
    InUse,
    /// The file.
    Io(std::io::Error),
}

impl From<std::io::Error> for InstanceError {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

impl Instance {
    /// Locks the directory, and reads or makes its identity.
    pub(super) fn open(data: &Path) -> Result<Self, InstanceError> {
        let path = data.join(FILE);
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(InstanceError::InUse),
            Err(error) => return Err(InstanceError::Io(error.into())),
        }
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        // A first start that was cut short has told nobody who it is.
        let id = match text.trim().parse() {
            Ok(id) => id,
            Err(_) if text.len() <= uuid::fmt::Hyphenated::LENGTH => make(&mut file, data)?,
            Err(error) => return Err(InstanceError::Io(std::io::Error::other(error))),
        };
        Ok(Self { id, _locked: file })
    }
}

fn make(file: &mut File, data: &Path) -> std::io::Result<Uuid> {
    let id = Uuid::new_v4();
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{id}")?;
    file.sync_all()?;
    File::open(data)?.sync_all()?;
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identity_stays_and_one_has_it() {
        let data = tempfile::tempdir().unwrap();
        let first = Instance::open(data.path()).ok().unwrap();
        assert!(matches!(Instance::open(data.path()), Err(InstanceError::InUse)));
        let id = first.id;
        drop(first);
        assert_eq!(Instance::open(data.path()).ok().unwrap().id, id);
    }

    #[test]
    fn a_first_start_that_was_cut_short_is_made_good_and_a_foreign_file_is_refused() {
        let data = tempfile::tempdir().unwrap();
        std::fs::write(data.path().join(FILE), "0f3c").unwrap();
        let id = Instance::open(data.path()).ok().unwrap().id;
        assert_eq!(Instance::open(data.path()).ok().unwrap().id, id);
        std::fs::write(data.path().join(FILE), "x".repeat(100)).unwrap();
        assert!(matches!(Instance::open(data.path()), Err(InstanceError::Io(_))));
    }
}
