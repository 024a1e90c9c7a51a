//! How much room the file system of a journal has, and whether it is enough for new messages.

use std::path::{Path, PathBuf};
use std::time::Instant;

use tracing::{info, warn};

use crate::limits;
use angarium_core::time::millis;

/// Bytes of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpace {
    /// Those that this process may still write.
    pub free: u64,
    /// All of them.
    pub total: u64,
}

impl DiskSpace {
    /// That of the file system where `path` is; none when it does not say.
    pub(super) fn at(path: &Path) -> Option<Self> {
        let found = rustix::fs::statvfs(path).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Some(Self { free: bytes(found.f_bavail), total: bytes(found.f_blocks) })
    }
}

/// Whether a journal has room for more than what it needs to get rid of what it has (P12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// For everything.
    Free,
    /// The rest is kept for deletions, claims and the like.
    Reserved,
}

impl Room {
    /// That of a file system, if it states how much there is, of which `reserve` bytes are kept.
    pub(super) fn of(space: Option<DiskSpace>, reserve: u64) -> Self {
        let free = space.map_or(u64::MAX, |space| space.free);
        if free < reserve { Self::Reserved } else { Self::Free }
    }
}

/// The room at a look at the disk, less what was written since. A group of work may hold more than the reserve, and so may
/// the groups between two looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RoomLeft {
    /// Bytes that were free beyond the reserve; none when there was less than the reserve.
    above: Option<u64>,
    written: u64,
}

impl RoomLeft {
    pub(super) fn of(space: Option<DiskSpace>, reserve: u64) -> Self {
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

/// Watches the room of a journal. It belongs to the committer, which asks before each group.
pub(super) struct RoomWatch {
    path: PathBuf,
    reserve: u64,
    /// As of the last look.
    room: Room,
    free: u64,
    left: RoomLeft,
    looked: Option<Instant>,
    /// When the room became less than the reserve.
    below_since: Option<Instant>,
}

impl RoomWatch {
    pub(super) fn new(path: PathBuf, reserve: u64) -> Self {
        let left = RoomLeft::of(None, reserve);
        Self { path, reserve, room: Room::Free, free: u64::MAX, left, looked: None, below_since: None }
    }

    /// The room as of now, or as of a moment ago. A file system that does not say has room.
    pub(super) fn left(&mut self) -> RoomLeft {
        let is_recent = self.looked.is_some_and(|looked| looked.elapsed() < limits::ROOM_LOOK);
        if is_recent && self.left.room() == self.room {
            return self.left;
        }
        self.looked = Some(Instant::now());
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

    /// So many bytes were written since the last look.
    pub(super) fn note_written(&mut self, bytes: usize) {
        self.left.write(bytes);
    }

    /// The bytes that were free at the last look, if they were less than the reserve.
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
