//! A backup in a directory: `stream` has all of it, and `manifest.json` repeats its manifest for people.
//!
//! The directory gets its name when everything in it is on disk, so a directory with that name is whole. A backup that
//! was interrupted leaves a directory with `.unfinished-` and a random text behind the name. No other backup uses that one
//! or removes it: it may be of a backup that is running.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufReader, BufWriter, ErrorKind, Read, Write};
use std::num::NonZeroU64;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, fadvise};
use tempfile::Builder;
use thiserror::Error as ThisError;

use crate::limits;
use crate::manifest::Manifest;
use crate::read::{ReadError, read};

const STREAM: &str = "stream";
const MANIFEST: &str = "manifest.json";
const UNFINISHED: &str = ".unfinished-";
/// Bytes that are read or written at a time.
const BUFFER: usize = limits::BACKUP_BLOCK_BYTES;
/// Bytes after which the system begins to write the stream to the disk: so few that a commit of the service, which waits
/// for them, does not wait long.
const BEGIN_BYTES: u64 = 256 << 10;
/// Bytes after which the stream is synced, so that a disk which is slower than the stream slows that down. A sync has little
/// to wait for.
const SYNC_BYTES: u64 = 64 << 20;

/// Why a backup is not in its directory.
#[derive(Debug, ThisError)]
pub enum DirectoryError {
    /// The directory has something already.
    #[error("{0} is there and is not empty: a backup needs a directory of its own")]
    Taken(PathBuf),
    /// A file cannot be used.
    #[error("cannot use {path}: {cause}")]
    File {
        /// The file or directory.
        path: PathBuf,
        /// The cause, which is in the text.
        cause: io::Error,
    },
    /// What was received, or is there, is no whole backup.
    #[error(transparent)]
    Backup(#[from] ReadError),
    /// The copy of the manifest differs from the manifest.
    #[error("the backup is damaged in {0}: it is not the manifest of the stream beside it")]
    Manifest(PathBuf),
}

/// Checks that a backup may be stored as `directory`: it is absent or empty.
pub fn check_target(directory: &Path) -> Result<(), DirectoryError> {
    let failed = |cause| DirectoryError::File { path: directory.to_owned(), cause };
    if is_free(directory).map_err(failed)? {
        Ok(())
    } else {
        Err(DirectoryError::Taken(directory.to_owned()))
    }
}

/// Whether a directory is absent or empty, and can be replaced by another one.
///
/// # Errors
///
/// For a symbolic link and for a mount point, which cannot, and for a directory that cannot be read.
pub fn is_free(directory: &Path) -> io::Result<bool> {
    let found = match fs::symlink_metadata(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(true),
        found => found?,
    };
    if found.is_symlink() {
        return Err(io::Error::other("it is a symbolic link"));
    }
    let is_empty = fs::read_dir(directory)?.next().is_none();
    if is_empty && found.dev() != fs::metadata(directory.join(".."))?.dev() {
        return Err(io::Error::other("a file system is mounted there: name a directory in it"));
    }
    Ok(is_empty)
}

/// Stores a backup as `directory`, and checks it as it arrives. Unless this succeeds, nothing has that name.
pub fn store(source: impl Read, directory: &Path) -> Result<Manifest, DirectoryError> {
    check_target(directory)?;
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |cause| DirectoryError::File { path, cause }
    };
    let name = directory.file_name().ok_or_else(|| failed(directory)(io::Error::other("it has no name")))?;
    let mut name = name.to_owned();
    name.push(UNFINISHED);
    let parent = directory.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    let unfinished =
        Builder::new().prefix(&name).permissions(Permissions::from_mode(0o700)).tempdir_in(parent);
    // It is removed unless it gets its name.
    let unfinished = unfinished.map_err(failed(parent))?;
    let manifest = fill(source, unfinished.path())?;
    fs::rename(unfinished.path(), directory).map_err(failed(directory))?;
    let _ = unfinished.keep();
    File::open(parent).and_then(|parent| parent.sync_all()).map_err(failed(parent))?;
    Ok(manifest)
}

fn fill(source: impl Read, directory: &Path) -> Result<Manifest, DirectoryError> {
    let path = directory.join(STREAM);
    let mut file = BufWriter::with_capacity(BUFFER, SteadyFile::new(create(&path)?));
    let manifest = read(Tee { source, copy: &mut file }, &mut ())?;
    let synced = file.flush().and_then(|()| file.get_ref().file.sync_all());
    synced.map_err(|cause| DirectoryError::File { path, cause })?;
    let path = directory.join(MANIFEST);
    let mut file = create(&path)?;
    let written = file.write_all(manifest.text().as_bytes()).and_then(|()| file.sync_all());
    let written = written.and_then(|()| File::open(directory)?.sync_all());
    written.map_err(|cause| DirectoryError::File { path, cause })?;
    Ok(manifest)
}

fn create(path: &Path) -> Result<File, DirectoryError> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    file.map_err(|cause| DirectoryError::File { path: path.to_owned(), cause })
}

/// A file that is written to the disk as it grows. If it were synced at its end alone, the disk would write gigabytes at once,
/// and the commits of a service on the same disk would wait for them. If it were synced after each few bytes, they would
/// wait for each of these syncs.
struct SteadyFile {
    file: File,
    written: u64,
    /// Up to where the system has been told to write.
    begun: u64,
    synced: u64,
}

impl SteadyFile {
    const fn new(file: File) -> Self {
        Self { file, written: 0, begun: 0, synced: 0 }
    }

    /// Tells the system that the bytes from an offset on will not be read. Without this the backup is as good, so a system
    /// that does not know it is no error.
    fn advise_from(&self, offset: u64) {
        let _ = fadvise(&self.file, offset, NonZeroU64::new(self.written - offset), Advice::DontNeed);
    }
}

impl Write for SteadyFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.written += written as u64;
        if self.written - self.begun >= BEGIN_BYTES {
            // Pages that will not be read again are written soon, without a wait.
            self.advise_from(self.begun);
            self.begun = self.written;
        }
        if self.written - self.synced >= SYNC_BYTES {
            self.file.sync_data()?;
            // Now that they are on disk the pages are dropped: the cache is for others.
            self.advise_from(self.synced);
            self.synced = self.written;
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// A reader that writes down all that is read.
struct Tee<'w, R> {
    source: R,
    copy: &'w mut BufWriter<SteadyFile>,
}

impl<R: Read> Read for Tee<'_, R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(bytes)?;
        self.copy.write_all(&bytes[..read])?;
        Ok(read)
    }
}

/// Opens a regular file. The open of a pipe would wait for a writer.
fn open_file(path: &Path) -> io::Result<File> {
    if fs::metadata(path)?.is_file() { File::open(path) } else { Err(io::Error::other("it is no file")) }
}

/// An open backup of a directory.
pub struct OpenBackup {
    stream: BufReader<File>,
    copy: (PathBuf, Vec<u8>),
}

/// Opens the backup in `directory`.
pub fn open(directory: &Path) -> Result<OpenBackup, DirectoryError> {
    let failed = |path: PathBuf| move |cause| DirectoryError::File { path, cause };
    let path = directory.join(STREAM);
    let stream = open_file(&path).map_err(failed(path))?;
    let path = directory.join(MANIFEST);
    let mut copy = Vec::new();
    let file = open_file(&path).map_err(failed(path.clone()))?;
    let most = limits::BACKUP_FRAME_BYTES as u64;
    file.take(most).read_to_end(&mut copy).map_err(failed(path.clone()))?;
    Ok(OpenBackup { stream: BufReader::with_capacity(BUFFER, stream), copy: (path, copy) })
}

impl OpenBackup {
    /// Reads the whole backup as [`read`] does, and checks the copy of its manifest.
    pub fn read(self, sink: &mut dyn crate::BackupSink) -> Result<Manifest, DirectoryError> {
        let manifest = read(self.stream, sink)?;
        let (path, copy) = self.copy;
        if copy != manifest.text().as_bytes() { Err(DirectoryError::Manifest(path)) } else { Ok(manifest) }
    }
}
