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

/// Watches the room of a journal. It belongs to the committer, which asks before each group.
pub(super) struct RoomWatch {
    path: PathBuf,
    reserve: u64,
    room: Room,
    free: u64,
    looked: Option<Instant>,
    /// When the room became less than the reserve.
    below_since: Option<Instant>,
}

impl RoomWatch {
    pub(super) fn new(path: PathBuf, reserve: u64) -> Self {
        Self { path, reserve, room: Room::Free, free: u64::MAX, looked: None, below_since: None }
    }

    /// The room as of now, or as of a moment ago. A file system that does not say has room.
    pub(super) fn room(&mut self) -> Room {
        if self.looked.is_some_and(|looked| looked.elapsed() < limits::ROOM_LOOK) {
            return self.room;
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
        self.free = space.map_or(u64::MAX, |space| space.free);
        room
    }

    /// The bytes that were free at the last look, if they were less than the reserve.
    pub(super) fn shortage(&self) -> Option<u64> {
        (self.room == Room::Reserved).then_some(self.free)
    }
}
