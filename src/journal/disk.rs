//! How much room the file system of a journal has.

use std::path::Path;

/// Bytes of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpace {
    /// Those that this process may still write.
    pub free: u64,
    /// All of them.
    pub total: u64,
}

impl DiskSpace {
    /// That of the file system where `path` lies; none when it does not say.
    pub(super) fn at(path: &Path) -> Option<Self> {
        let found = rustix::fs::statvfs(path).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Some(Self { free: bytes(found.f_bavail), total: bytes(found.f_blocks) })
    }
}
