//! Files that settings and pools name: the one place that reads them.
//!
//! A name may lead anywhere: to a device without an end, or to a pipe that no caller writes to. So only regular files
//! are read, never more than a bound of them, and opening one waits for no caller.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Bytes of a file that a pool's URI names: a bundle of all public certificates has 250 KiB.
pub const POOL_FILE_BYTES: u64 = 1 << 20;
/// Bytes of a file that the settings name: a hundred thousand tokens.
pub const SETTINGS_FILE_BYTES: u64 = 16 << 20;

/// Reads a regular file of at most `most` bytes.
///
/// # Errors
///
/// What the system states, and [`ErrorKind::InvalidInput`] for what is no regular file, or longer.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut options = OpenOptions::new();
    options.read(true);
    // A pipe without a writer would hold the opening up.
    let nonblocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = options.custom_flags(nonblocking).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is not a regular file"));
    }
    read_bounded(file, metadata.len(), most)
}

/// The same, as text.
///
/// # Errors
///
/// As of [`read`], and [`ErrorKind::InvalidData`] for what is not UTF-8.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    let bytes = read(path, most)?;
    String::from_utf8(bytes).map_err(|_| io::Error::new(ErrorKind::InvalidData, "it is not UTF-8"))
}

/// A file may grow while it is read, and some of the system's say that they have no length.
fn read_bounded(file: File, length: u64, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(usize::try_from(length.min(most)).unwrap_or_default());
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::new(ErrorKind::InvalidInput, format!("it has more than {most} bytes")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regular_file_is_read_up_to_its_bound() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("file"), dir.path().join("link"));
        std::fs::write(&path, "12345").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert_eq!(read(&path, 5).unwrap(), b"12345");
        assert_eq!(read_text(&link, 5).unwrap(), "12345");
        let longer = read(&path, 4).unwrap_err();
        assert!(longer.kind() == ErrorKind::InvalidInput && longer.to_string().contains("4 bytes"));
        assert_eq!(read(&dir.path().join("none"), 5).unwrap_err().kind(), ErrorKind::NotFound);
        std::fs::write(&path, [0xff]).unwrap();
        assert_eq!(read_text(&path, 5).unwrap_err().kind(), ErrorKind::InvalidData);
    }

    #[test]
    fn device_pipe_and_directory_are_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        for path in [Path::new("/dev/zero"), &pipe, dir.path()] {
            let error = read(path, 5).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{}: {error}", path.display());
        }
    }
}
