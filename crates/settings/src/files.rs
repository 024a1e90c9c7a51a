//! Files that settings and pools name. Only this module reads them.
//!
//! A name may lead anywhere: to a device without an end, or to a pipe without a writer. So only regular files are read,
//! up to a bound, and opening a file never blocks on another process.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Max bytes of a file that a pool's URI names. A bundle of all public certificates has 250 KiB.
pub const POOL_FILE_BYTES: u64 = 1 << 20;
/// Max bytes of a file that the settings name: room for a hundred thousand tokens.
pub const SETTINGS_FILE_BYTES: u64 = 16 << 20;

/// Reads a regular file of at most `max` bytes.
///
/// # Errors
///
/// The error of the system, and [`ErrorKind::InvalidInput`] for a longer file or one that is not regular.
pub fn read(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let mut options = OpenOptions::new();
    options.read(true);
    // Without this flag, opening a pipe without a writer would block.
    let nonblocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = options.custom_flags(nonblocking).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is not a regular file"));
    }
    read_bounded(file, metadata.len(), max)
}

/// Reads a regular file like [`read`], as text.
///
/// # Errors
///
/// Those of [`read`], and [`ErrorKind::InvalidData`] for text that is not UTF-8.
pub fn read_text(path: &Path, max: u64) -> io::Result<String> {
    let bytes = read(path, max)?;
    String::from_utf8(bytes).map_err(|_| io::Error::new(ErrorKind::InvalidData, "it is not UTF-8"))
}

/// Reads up to the bound: a file may grow while it is read, and some system files report no length.
fn read_bounded(file: File, length: u64, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(usize::try_from(length.min(max)).unwrap_or_default());
    file.take(max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        return Err(io::Error::new(ErrorKind::InvalidInput, format!("it has more than {max} bytes")));
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
