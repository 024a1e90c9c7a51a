//! Restore of a backup: a new data directory with the contents of the backup.
//!
//! The directory is made beside its place and gets its name when everything in it is on disk. So a restore that fails,
//! or that is killed, leaves no data directory. A restored installation begins a new generation, and its tree time
//! continues from the moment of the backup. If it has pools that are stored elsewhere, which are of another moment, no
//! message leaves a pool until an operator has released it (P5).

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use thiserror::Error as ThisError;
use tokio::runtime::Handle;

use super::instance::Instance;
use super::{JOURNAL, StartError, embedded_tree, limits, open_instance};
use angarium_backup::{BackupSink, DirectoryError, Head, Manifest, PartPlace, ReadError};
use angarium_catalogue::{Catalogue, ImportedTransfers, NewGeneration, Schema};
use angarium_clock::Clock;
use angarium_coordination::Coordination;
use angarium_core::durability::Durability;
use angarium_core::time::Timestamp;
use angarium_journal::{Journal, JournalOptions, note_restored};
use angarium_sealing::KeyRing;

const UNFINISHED: &str = ".unfinished";

/// Why a backup was not restored. There is no new data directory then.
#[derive(Debug, ThisError)]
pub enum RestoreError {
    /// The directory has something already.
    #[error("{0} is there and is not empty: a backup is restored into a directory of its own")]
    Taken(PathBuf),
    /// The backup is damaged, or not one.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The backup is damaged, or not one.
    #[error(transparent)]
    Stream(#[from] ReadError),
    /// The directory cannot be written.
    #[error("cannot use {path}: {cause}")]
    File {
        /// The directory.
        path: PathBuf,
        /// The cause, which is in the text.
        cause: io::Error,
    },
    /// The new stores cannot be opened.
    #[error(transparent)]
    Open(#[from] StartError),
    /// The restored tree cannot be used.
    #[error("the restored tree cannot be used: {0}")]
    Tree(String),
}

/// A source of a backup.
pub enum RestoreSource<'a> {
    /// A directory with a backup.
    Directory(&'a Path),
    /// The stream itself.
    Stream(&'a mut dyn Read),
}

/// A restored installation.
#[derive(Clone, Debug)]
pub struct Restoration {
    /// The manifest of the backup.
    pub manifest: Manifest,
    /// The new generation of the tree.
    pub generation: u32,
    /// A text for the operator when the secrets in the tree are in the clear although a key is named.
    pub warning: Option<String>,
}

impl Restoration {
    /// Whether the transfers of all pools are held, because some are stored elsewhere.
    pub fn holds_transfers(&self) -> bool {
        !self.manifest.head.outside.is_empty()
    }
}

/// Restores a backup as the data directory `data`, which is absent or empty. `keys` open the secrets in its tree, if these
/// are sealed. Blocks its thread, which must not be one of `runtime`.
pub fn restore(
    source: RestoreSource<'_>,
    data: &Path,
    keys: Option<KeyRing>,
    runtime: &Handle,
) -> Result<Restoration, RestoreError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |cause| RestoreError::File { path, cause }
    };
    if !angarium_backup::is_free(data).map_err(failed(data))? {
        return Err(RestoreError::Taken(data.to_owned()));
    }
    let name = data.file_name().ok_or_else(|| failed(data)(io::Error::other("it has no name")))?;
    let mut name = name.to_owned();
    name.push(UNFINISHED);
    let parent = data.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    let unfinished = create_unfinished(parent, &data.with_file_name(name))?;
    let filled = fill(source, &unfinished, keys, runtime).and_then(|done| {
        sync_all(&unfinished).map_err(failed(&unfinished))?;
        fs::rename(&unfinished, data).map_err(failed(data))?;
        Ok(done)
    });
    if filled.is_err() {
        // It is not whole. No other restore can have created it, because it was not renamed.
        let _ = fs::remove_dir_all(&unfinished);
    }
    let done = filled?;
    File::open(parent).and_then(|parent| parent.sync_all()).map_err(failed(parent))?;
    Ok(done)
}

/// Creates the directory that is filled, below `parent`. It did not exist before, so no other restore uses it.
fn create_unfinished(parent: &Path, unfinished: &Path) -> Result<PathBuf, RestoreError> {
    let failed = |cause| RestoreError::File { path: unfinished.to_owned(), cause };
    // Messages are private to the user of the service.
    let mut builder = DirBuilder::new();
    builder.mode(0o700);
    builder.recursive(true).create(parent).map_err(failed)?;
    match builder.recursive(false).create(unfinished) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let why = "an earlier restore was interrupted, or another one is running: remove it first";
            return Err(failed(io::Error::other(why)));
        }
        Err(error) => return Err(failed(error)),
    }
    unfinished.canonicalize().map_err(failed)
}

fn fill(
    source: RestoreSource<'_>,
    data: &Path,
    keys: Option<KeyRing>,
    runtime: &Handle,
) -> Result<Restoration, RestoreError> {
    // A restored installation is another replica than the one that was backed up, which may still run.
    let _instance: Instance = open_instance(data)?;
    let mut sink = RestoreSink { data, runtime, journals: Vec::new() };
    let manifest = match source {
        RestoreSource::Directory(directory) => angarium_backup::open(directory)?.read(&mut sink)?,
        RestoreSource::Stream(stream) => angarium_backup::read(stream, &mut sink)?,
    };
    let RestoreSink { journals, .. } = sink;
    let finished = runtime.block_on(finish(&journals, keys, &manifest.head));
    let (generation, warning) = finished.map_err(|error| match (error, full_disk(data)) {
        (RestoreError::Tree(why), Some(full)) => RestoreError::Tree(format!("{full} ({why})")),
        (error, _) => error,
    })?;
    Ok(Restoration { manifest, generation, warning })
}

/// Describes the disk of a directory if it is full. A store that has failed to write names no cause.
fn full_disk(data: &Path) -> Option<String> {
    let space = rustix::fs::statvfs(data).ok()?;
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    (free < limits::RESTORE_FULL_BYTES).then(|| {
        format!(
            "the disk of {} is full: {free} bytes are free, make room or restore elsewhere",
            data.display()
        )
    })
}

/// Begins the new generation, marks the journals as restored, and makes everything durable.
async fn finish(
    journals: &[Journal],
    keys: Option<KeyRing>,
    head: &Head,
) -> Result<(u32, Option<String>), RestoreError> {
    let tree_failed = |error: &dyn std::fmt::Display| RestoreError::Tree(error.to_string());
    let [first, ..] = journals else { return Err(RestoreError::Tree("there is none".to_owned())) };
    let tree = embedded_tree(first.clone()).await.map_err(|error| tree_failed(&error))?;
    // As after an import: two restores of one backup have different generations unless they are of one second.
    let seconds = Clock::system().wall().as_millis() / 1_000;
    let least = u32::try_from(seconds).unwrap_or(u32::MAX);
    let catalogue = Catalogue::with_keys(Arc::clone(&tree) as Arc<dyn Coordination>, keys);
    let (until, point) = (Timestamp::from_millis(head.begun), Timestamp::from_millis(head.point));
    let is_whole = head.outside.is_empty();
    let transfers = if is_whole { ImportedTransfers::Continued } else { ImportedTransfers::Held(point) };
    let new = NewGeneration { least, receipt_key: rand::random(), until, transfers };
    let system = catalogue.begin_generation(new).await;
    let system = system.map_err(|error| RestoreError::Tree(error.detail()))?;
    for journal in journals {
        // It is behind all writes of the restore, so its sync covers them.
        journal.commit(note_restored).await.map_err(|error| tree_failed(&error))?;
    }
    let warning = catalogue.sealing_warning();
    tree.close().await;
    Ok((system.generation, warning))
}

/// Writes the contents of a backup to new journals.
struct RestoreSink<'a> {
    data: &'a Path,
    runtime: &'a Handle,
    journals: Vec<Journal>,
}

impl BackupSink for RestoreSink<'_> {
    fn begin(&mut self, head: &Head) -> Result<(), String> {
        Schema(head.schema).check_known().map_err(|error| error.detail())?;
        if head.journals.first().is_none_or(|first| first != JOURNAL) {
            return Err(format!("its first journal is not {JOURNAL:?}, which has the tree"));
        }
        // The last write of each journal is at the moment of the backup, whose time continues from there.
        let clock = Clock::manual(head.point);
        let options = JournalOptions { reserve: 0, ..JournalOptions::default() };
        for path in &head.journals {
            let path = self.data.join(path);
            fs::create_dir_all(&path).map_err(|error| error.to_string())?;
            let journal = Journal::open_with(&path, &clock, options).map_err(|error| described(&error))?;
            self.journals.push(journal);
        }
        Ok(())
    }

    fn pairs(&mut self, part: PartPlace, pairs: Vec<(Bytes, Bytes)>) -> Result<(), String> {
        let journal = self.journals.get(part.journal).ok_or("a part has no journal")?;
        let write = journal.commit_as(Durability::Relaxed, move |txn| {
            for (key, value) in pairs {
                txn.put(part.space, key, value);
            }
        });
        self.runtime.block_on(write).map_err(|error| match full_disk(self.data) {
            Some(full) => format!("{full} ({error})"),
            None => error.to_string(),
        })
    }
}

/// Formats an error with its causes.
fn described(error: &dyn std::error::Error) -> String {
    let cause = error.source().map(described);
    cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

/// Syncs all files and directories below a directory.
fn sync_all(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_all(&entry.path())?;
        } else {
            File::open(entry.path())?.sync_all()?;
        }
    }
    File::open(directory)?.sync_all()
}
