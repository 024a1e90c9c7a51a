//! Free space on the file system of a journal, and whether it suffices for new messages.

use std::path::{Path, PathBuf};
use std::time::Instant;

use tracing::{info, warn};

use crate::limits;
use angarium_core::time::millis;

/// Size of a file system in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpace {
    /// Bytes that this process may still write.
    pub free: u64,
    /// Total bytes.
    pub total: u64,
}

impl DiskSpace {
    /// Returns the space of the file system at `path`; none when the file system does not report it.
    pub(super) fn at(path: &Path) -> Option<Self> {
        let found = rustix::fs::statvfs(path).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Some(Self { free: bytes(found.f_bavail), total: bytes(found.f_blocks) })
    }
}

/// Whether a journal accepts new messages. Below the reserve it only accepts writes that help to free space (P12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// There is room for every write.
    Free,
    /// Only the reserve is left, which is kept for deletes, claims and similar writes.
    Reserved,
}

impl Room {
    /// Compares the free space with `reserve` bytes. A file system that does not report its space has room.
    pub(super) fn of(space: Option<DiskSpace>, reserve: u64) -> Self {
        let free = space.map_or(u64::MAX, |space| space.free);
        if free < reserve { Self::Reserved } else { Self::Free }
    }
}

/// The room at the last look at the disk, less the bytes written since. A single group may write more than the reserve,
/// and so may the groups between two looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoomLeft {
    /// Bytes that were free beyond the reserve; none when less than the reserve was free.
    above: Option<u64>,
    written: u64,
}

impl RoomLeft {
    /// Returns the free bytes of `space` beyond `reserve` bytes.
    pub fn of(space: Option<DiskSpace>, reserve: u64) -> Self {
        let free = space.map_or(u64::MAX, |space| space.free);
        Self { above: free.checked_sub(reserve), written: 0 }
    }

    pub(super) fn room(self) -> Room {
        if self.above.is_some_and(|above| self.written <= above) { Room::Free } else { Room::Reserved }
    }

    pub(super) fn write(&mut self, bytes: usize) {
        self.written = self.written.saturating_add(bytes as u64);
    }
}

/// Watches the free space of a journal. The committer owns it and asks it before each group.
pub(super) struct RoomWatch {
    path: PathBuf,
    reserve: u64,
    /// The room at the last look.
    room: Room,
    free: u64,
    left: RoomLeft,
    checked_at: Option<Instant>,
    /// When the free space fell below the reserve.
    below_since: Option<Instant>,
}

impl RoomWatch {
    pub(super) fn new(path: PathBuf, reserve: u64) -> Self {
        let left = RoomLeft::of(None, reserve);
        Self { path, reserve, room: Room::Free, free: u64::MAX, left, checked_at: None, below_since: None }
    }

    /// Returns the room now, or that of the last look if it is recent and the writes since have not changed it. A file
    /// system that does not report its space has room.
    pub(super) fn left(&mut self) -> RoomLeft {
        let is_recent = self.checked_at.is_some_and(|checked_at| checked_at.elapsed() < limits::ROOM_CHECK);
        if is_recent && self.left.room() == self.room {
            return self.left;
        }
        self.checked_at = Some(Instant::now());
        let space = DiskSpace::at(&self.path);
        let room = Room::of(space, self.reserve);
        let free = space.map_or(u64::MAX, |space| space.free);
        if room != self.room {
            let path = self.path.display().to_string();
            match room {
                Room::Free => {
                    let away_ms = self.below_since.take().map_or(0, |since| millis(since.elapsed()));
                    info!(path = %path, free, reserve = self.reserve, away_ms, "disk above reserve");
                }
                Room::Reserved => {
                    self.below_since = Some(Instant::now());
                    warn!(path = %path, free, reserve = self.reserve, "disk below reserve");
                }
            }
        }
        self.room = room;
        self.free = free;
        self.left = RoomLeft::of(space, self.reserve);
        self.left
    }

    /// Counts bytes written since the last look.
    pub(super) fn note_written(&mut self, bytes: usize) {
        self.left.write(bytes);
    }

    /// Returns the bytes that were free at the last look, if they were less than the reserve.
    pub(super) fn shortage(&self) -> Option<u64> {
        (self.room == Room::Reserved).then_some(self.free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_ends_with_the_bytes_written_since_the_look() {
        let mut left = RoomLeft::of(Some(DiskSpace { free: 100, total: 200 }), 60);
        left.write(40);
        assert_eq!(left.room(), Room::Free);
        left.write(1);
        assert_eq!(left.room(), Room::Reserved);
        assert_eq!(RoomLeft::of(Some(DiskSpace { free: 59, total: 200 }), 60).room(), Room::Reserved);
        assert_eq!(RoomLeft::of(None, u64::MAX).room(), Room::Free);
    }

    #[test]
    fn disk_is_looked_at_again_when_its_room_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let mut watch = RoomWatch::new(directory.path().to_owned(), 0);
        assert_eq!(watch.left().room(), Room::Free);
        watch.note_written(usize::MAX);
        assert_eq!(watch.left.room(), Room::Reserved);
        assert_eq!(watch.left().room(), Room::Free, "less was written than it seemed");
    }
}
