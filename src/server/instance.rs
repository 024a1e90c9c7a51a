//! The identity of the replica that owns the data directory, and the lock for one process.
//!
//! `DATA/instance` holds a UUID, created at the first start, and is locked while the process lives: a process that
//! finds it is the same replica as its predecessor and may take over from it at once. `DATA/instance.copy` holds the
//! same UUID, so that damage of one file is detected: a replica must not change its identity silently.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use uuid::Uuid;

use angarium_core::data_files::{
    INSTANCE as FILE, INSTANCE_COPY as COPY, UNFINISHED_INSTANCE_COPY as UNFINISHED,
};

/// Max bytes read from a file: more than an undamaged file has.
const BYTES: u64 = 64;
/// A directory that every embedded store has, and the depth below the data directory to which it is searched.
const KEYSPACES: &str = "keyspaces";
const DEPTH: usize = 4;

/// The identity of this replica. Dropping it unlocks the directory.
pub(super) struct Instance {
    pub(super) id: Uuid,
    _locked: File,
}

/// The reason why there is no identity.
#[derive(Debug)]
pub(super) enum InstanceError {
    /// Another process uses the directory.
    InUse,
    /// The files cannot be trusted. The text has the damage and the remedy.
    Damaged(String),
    /// The file cannot be read or written.
    Io(io::Error),
}

impl From<io::Error> for InstanceError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Instance {
    /// Locks the directory, and reads or creates its identity. An existing identity is never replaced.
    pub(super) fn open(data: &Path) -> Result<Self, InstanceError> {
        let path = data.join(FILE);
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(InstanceError::InUse),
            Err(error) => return Err(InstanceError::Io(error.into())),
        }
        let mut text = Vec::new();
        (&mut file).take(BYTES).read_to_end(&mut text)?;
        let copy = read_copy(data)?;
        let id = match (parse(&text), copy) {
            (Some(id), Some(Some(copied))) if id == copied => id,
            // An older version created the identity without a copy, or the first start was interrupted.
            (Some(id), None) => {
                write_copy(data, id)?;
                id
            }
            (_, Some(Some(copied))) => {
                let text = String::from_utf8_lossy(&text).trim().to_owned();
                return Err(damaged(
                    data,
                    &format!(
                        "{path} says {text:?} and {COPY} beside it says {copied}: one of them is damaged. If the copy is right, \
                     put it in the place of {path}, or else remove the copy",
                        path = path.display(),
                    ),
                ));
            }
            (_, Some(None)) => {
                let remedy = "is damaged: remove it if the file instance beside it is whole, or restore both from a backup";
                return Err(damaged(data, &format!("{} {remedy}", data.join(COPY).display())));
            }
            // An interrupted first start has told its identity to no other process and has stored nothing.
            (None, None) if text.len() <= uuid::fmt::Hyphenated::LENGTH + 1 && !has_store(data, DEPTH)? => {
                make(&mut file, data)?
            }
            (None, None) => {
                let remedy = "is damaged, and without it this directory would count as that of another replica: restore it \
                              from a backup";
                return Err(damaged(data, &format!("{} {remedy}", path.display())));
            }
        };
        Ok(Self { id, _locked: file })
    }
}

fn damaged(data: &Path, what: &str) -> InstanceError {
    InstanceError::Damaged(format!("cannot use {} as the data directory: {what}", data.display()))
}

/// Parses the UUID of an undamaged file.
fn parse(text: &[u8]) -> Option<Uuid> {
    let text = std::str::from_utf8(text).ok()?;
    let id: Uuid = text.trim().parse().ok()?;
    (text.trim_end() == id.to_string()).then_some(id)
}

/// Reads the copy; none when there is no copy, and an inner none when it is damaged.
fn read_copy(data: &Path) -> io::Result<Option<Option<Uuid>>> {
    let mut text = Vec::new();
    match File::open(data.join(COPY)) {
        Ok(file) => _ = file.take(BYTES).read_to_end(&mut text)?,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    }
    Ok(Some(parse(&text)))
}

/// Whether there is a store below a directory: then the identity existed before.
fn has_store(directory: &Path, depth: usize) -> io::Result<bool> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            continue;
        }
        if entry.file_name() == KEYSPACES || (depth > 1 && has_store(&entry.path(), depth - 1)?) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn make(file: &mut File, data: &Path) -> io::Result<Uuid> {
    let id = Uuid::new_v4();
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{id}")?;
    file.sync_all()?;
    File::open(data)?.sync_all()?;
    write_copy(data, id)?;
    Ok(id)
}

fn write_copy(data: &Path, id: Uuid) -> io::Result<()> {
    let unfinished = data.join(UNFINISHED);
    let mut file = File::create(&unfinished)?;
    writeln!(file, "{id}")?;
    file.sync_all()?;
    fs::rename(unfinished, data.join(COPY))?;
    File::open(data)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identity_stays_and_one_has_it() {
        let data = tempfile::tempdir().unwrap();
        let first = Instance::open(data.path()).unwrap();
        assert!(matches!(Instance::open(data.path()), Err(InstanceError::InUse)));
        let id = first.id;
        drop(first);
        assert_eq!(Instance::open(data.path()).unwrap().id, id);
    }

    #[test]
    fn interrupted_first_start_is_repeated() {
        let data = tempfile::tempdir().unwrap();
        fs::write(data.path().join(FILE), "0f3c").unwrap();
        let id = Instance::open(data.path()).unwrap().id;
        fs::remove_file(data.path().join(COPY)).unwrap();
        assert_eq!(Instance::open(data.path()).unwrap().id, id);
        assert_eq!(read_copy(data.path()).unwrap(), Some(Some(id)));
    }

    #[test]
    fn damaged_identity_is_refused_and_kept() {
        let data = tempfile::tempdir().unwrap();
        let id = Instance::open(data.path()).unwrap().id;
        fs::create_dir_all(data.path().join("journal/keyspaces")).unwrap();
        let whole = fs::read(data.path().join(FILE)).unwrap();
        let check = |file: &str, left: &[u8], has_copy: bool| {
            fs::write(data.path().join(file), left).unwrap();
            if !has_copy {
                fs::remove_file(data.path().join(COPY)).unwrap();
            }
            let why = match Instance::open(data.path()) {
                Err(InstanceError::Damaged(why)) => why,
                Err(error) => format!("{error:?}"),
                Ok(instance) => instance.id.to_string(),
            };
            assert!(why.contains(file) && why.contains("damaged"), "{why}");
            assert_eq!(fs::read(data.path().join(file)).unwrap(), left);
            fs::write(data.path().join(FILE), &whole).unwrap();
            fs::write(data.path().join(COPY), &whole).unwrap();
        };
        for at in 0..whole.len() - 1 {
            let mut flipped = whole.clone();
            flipped[at] ^= 1;
            check(FILE, &flipped, true);
            check(COPY, &flipped, true);
        }
        for left in [&whole[..0], &whole[..10], &whole[..20], &[0; 37], &[b'x'; 100]] {
            check(FILE, left, true);
            check(COPY, left, true);
            check(FILE, left, false);
        }
        assert_eq!(Instance::open(data.path()).unwrap().id, id);
    }
}
