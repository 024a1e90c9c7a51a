//! The disk of a machine: it survives the processes that have a journal there.

use std::sync::{Arc, Weak};
use std::time::Duration;

use angarium_journal::{DiskSpace, JournalError, Space};
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::shared::Shared;
use super::versions::{KeyBounds, Versions, Writes};
use crate::faults::Fault;
use crate::process::Process;
use crate::world::World;

/// Bytes of every disk.
const CAPACITY: u64 = 1 << 40;

/// How often a caller that waits for the disk looks at it again.
const LOOK: Duration = Duration::from_millis(1);

/// A disk with the groups of one journal. A crash of a process loses nothing that was written; a power cut loses a part
/// of the groups after the last sync, as a suffix. Clones are the same disk.
#[derive(Clone)]
pub struct Disk(Arc<Inner>);

struct Inner {
    world: World,
    /// For the trace and for errors.
    name: String,
    /// Held for one operation.
    state: Mutex<DiskState>,
}

#[derive(Default)]
struct DiskState {
    versions: Versions,
    /// The last number of a group. A number that a power cut took is not used again.
    last_number: u64,
    /// The last group that is written.
    written: u64,
    /// The last group that a power cut cannot take.
    synced: u64,
    /// Number of times that a journal was opened here.
    openings: u64,
    /// The last process that opened the journal, and its open journal.
    user: Option<(Process, Weak<Shared>)>,
    /// Until when only the reserve is free.
    full_until: Option<Instant>,
    /// Until when nothing is free, not even for the journal itself.
    exhausted_until: Option<Instant>,
    /// Number of operations, and after how many of them a process ends each time.
    operations: u64,
    crash_every: Option<u64>,
}

/// Whether a time has not passed yet.
fn is_ahead(until: Option<Instant>) -> bool {
    until.is_some_and(|until| Instant::now() < until)
}

impl Disk {
    /// Returns an empty disk.
    pub fn new(world: World, name: &str) -> Self {
        Self(Arc::new(Inner { world, name: name.to_owned(), state: Mutex::default() }))
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the world that it is in.
    pub fn world(&self) -> &World {
        &self.0.world
    }

    /// Cuts the power: an arbitrary part of the groups after the last sync is lost, as a suffix. The process that uses
    /// the disk must have ended.
    pub fn cut_power(&self) {
        assert!(!self.is_in_use(), "a process on a machine without power");
        let mut state = self.0.state.lock();
        let unsynced = state.written - state.synced;
        let kept = state.synced + self.0.world.below(unsynced + 1);
        state.versions.truncate(kept);
        let before = std::mem::replace(&mut state.written, kept);
        if kept < before {
            self.0.world.count(Fault::PowerCut);
        }
        self.note(|| format!("power is cut: {kept} of {before} groups stay"));
    }

    /// Lets the process that uses the disk end after every `count`-th operation until the world is healed; none lets it
    /// live.
    pub fn crash_every(&self, count: Option<u64>) {
        self.0.state.lock().crash_every = count;
    }

    /// Leaves no room for new messages for a while.
    pub fn fill(&self, duration: Duration) {
        self.0.state.lock().full_until = Some(Instant::now() + duration);
        self.note(|| format!("is full for {duration:?}"));
    }

    /// Returns the free space.
    pub fn space(&self) -> DiskSpace {
        let state = self.0.state.lock();
        let is_full = is_ahead(state.full_until) || is_ahead(state.exhausted_until);
        DiskSpace { free: if is_full { 0 } else { CAPACITY / 2 }, total: CAPACITY }
    }

    /// Whether a living process has the journal open.
    pub fn is_in_use(&self) -> bool {
        let user = self.0.state.lock().user.clone();
        user.is_some_and(|(process, shared)| {
            process.is_alive() && shared.upgrade().is_some_and(|shared| !shared.is_ended())
        })
    }

    /// Waits until no living process has the journal open.
    pub async fn released(&self) {
        while self.is_in_use() {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Returns the numbers of the last written and of the last synced group.
    pub fn groups(&self) -> (u64, u64) {
        let state = self.0.state.lock();
        (state.written, state.synced)
    }

    /// Adds an event to the trace.
    pub(super) fn note(&self, event: impl FnOnce() -> String) {
        self.0.world.note(|| format!("disk {} {}", self.0.name, event()));
    }

    /// Counts an operation. Returns whether the process ends at it.
    pub(super) fn count_operation(&self) -> bool {
        let mut state = self.0.state.lock();
        state.operations += 1;
        let is_due =
            state.crash_every.is_some_and(|every| every > 0 && state.operations.is_multiple_of(every));
        drop(state);
        let is_due = is_due && !self.0.world.is_healed();
        if is_due {
            self.0.world.count(Fault::DiskCrash);
        }
        is_due || self.0.world.happens(Fault::DiskCrash)
    }

    /// Begins the use by a process. The views of earlier ones have ended with them.
    pub(super) fn begin_use(&self) {
        self.0.state.lock().versions.forget_views();
    }

    /// Notes the process that uses the disk.
    pub(super) fn note_user(&self, process: &Process, shared: Weak<Shared>) {
        self.0.state.lock().user = Some((process.clone(), shared));
    }

    /// Opens the journal in its last written state, and returns the number of the opening and of the last group.
    pub(super) fn open(&self) -> (u64, u64) {
        let mut state = self.0.state.lock();
        state.openings += 1;
        let (opening, group) = (state.openings, state.written);
        state.versions.open_view(opening, group);
        (opening, group)
    }

    /// Lets the open journal show a later group instead of an earlier one.
    pub(super) fn show(&self, opening: u64, earlier: u64, later: u64) {
        let mut state = self.0.state.lock();
        state.versions.open_view(opening, later);
        state.versions.close_view(opening, earlier);
        let synced = state.synced;
        state.versions.prune(synced);
    }

    pub(super) fn open_view(&self, opening: u64, group: u64) {
        self.0.state.lock().versions.open_view(opening, group);
    }

    pub(super) fn close_view(&self, opening: u64, group: u64) {
        self.0.state.lock().versions.close_view(opening, group);
    }

    /// Ends all views of an opening.
    pub(super) fn close_opening(&self, opening: u64) {
        self.0.state.lock().versions.close_opening(opening);
    }

    /// Writes a group and returns its number. It survives the process, not a power cut.
    pub(super) fn write(&self, writes: Writes) -> u64 {
        let mut state = self.0.state.lock();
        state.last_number += 1;
        let (group, keys) = (state.last_number, writes.len());
        state.versions.write(group, writes);
        state.written = group;
        drop(state);
        self.note(|| format!("has group {group} with {keys} keys"));
        group
    }

    /// Makes all written groups durable.
    pub(super) fn sync(&self) {
        let mut state = self.0.state.lock();
        let synced = state.written;
        if state.synced != synced {
            state.synced = synced;
            state.versions.prune(synced);
            drop(state);
            self.note(|| format!("is synced to group {synced}"));
        }
    }

    /// Loses an unsynced group, which is the last one.
    pub(super) fn lose(&self, group: u64) {
        let mut state = self.0.state.lock();
        if group == state.written && group > state.synced {
            state.versions.truncate(group - 1);
            state.written = state.synced.max(group - 1);
            drop(state);
            self.note(|| format!("loses group {group}"));
        }
    }

    pub(super) fn exhaust(&self, duration: Duration) {
        self.0.state.lock().exhausted_until = Some(Instant::now() + duration);
        self.note(|| format!("is exhausted for {duration:?}"));
    }

    pub(super) fn is_exhausted(&self) -> bool {
        is_ahead(self.0.state.lock().exhausted_until)
    }

    /// Returns the value of a key after a group, as the start of a process reads it.
    pub(super) fn peek(&self, space: Space, key: &[u8], group: u64) -> Option<Bytes> {
        self.0.state.lock().versions.get(space, key, group)
    }

    /// Returns the value of a key after a group.
    pub(super) fn get(&self, space: Space, key: &[u8], group: u64) -> Result<Option<Bytes>, JournalError> {
        self.check_read(space)?;
        Ok(self.peek(space, key, group))
    }

    /// Returns the first pair within bounds after a group.
    pub(super) fn first(
        &self,
        space: Space,
        bounds: &KeyBounds,
        group: u64,
    ) -> Result<Option<(Bytes, Bytes)>, JournalError> {
        self.check_read(space)?;
        Ok(self.0.state.lock().versions.first(space, bounds, group))
    }

    /// Returns the last pair within bounds after a group.
    pub(super) fn last(
        &self,
        space: Space,
        bounds: &KeyBounds,
        group: u64,
    ) -> Result<Option<(Bytes, Bytes)>, JournalError> {
        self.check_read(space)?;
        Ok(self.0.state.lock().versions.last(space, bounds, group))
    }

    fn check_read(&self, space: Space) -> Result<(), JournalError> {
        if self.0.world.happens(Fault::DiskReadFailed) {
            return Err(JournalError::Read(format!("key space {}: input/output error", space.name()).into()));
        }
        Ok(())
    }

    /// Returns the number of stored versions of all keys.
    #[cfg(test)]
    pub(super) fn versions(&self) -> usize {
        self.0.state.lock().versions.count()
    }
}
