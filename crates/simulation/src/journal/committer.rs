//! The committer of an open journal, as a task of its process: one group at a time, like the committer's thread of the
//! journal in files.
//!
//! A group of which all callers accept relaxed durability is answered after its write, every other one after a sync.
//! Work that gathers meanwhile is the next group. Each step on the disk can be the last one of the process.

use std::sync::{Arc, Weak};
use std::time::Duration;

use angarium_core::durability::Durability;
use angarium_core::limits as core_limits;
use angarium_journal::{JournalError, RoomLeft, Space, Txn, Work, limits};
use bytes::Bytes;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::backend::StagedGroup;
use super::shared::{OpenStore, Shared};
use super::versions::{self, Writes};
use super::{CHECKED_KEY, CrashHook, TIME_KEY};
use crate::faults::Fault;

/// Max time that a stalled write takes.
const MAX_STALL: Duration = Duration::from_secs(60);

/// Max time for which a disk has no room for new messages, or none at all.
const MAX_FULL: Duration = Duration::from_secs(60);

/// The next action of a committer.
enum Tick {
    Group(Vec<Box<dyn Work>>),
    Sync,
    Close,
}

/// Why a write failed.
type Failure = Arc<str>;

pub(super) struct Committer {
    shared: Arc<Shared>,
    /// Ends the process.
    crash: CrashHook,
    /// When the first answered write was written that no sync covers yet.
    unsynced: Option<Instant>,
    /// When the current work on the disk began.
    began: Instant,
    is_stalled: bool,
}

impl Committer {
    pub(super) fn new(shared: Arc<Shared>, crash: CrashHook) -> Self {
        Self { shared, crash, unsynced: None, began: Instant::now(), is_stalled: false }
    }

    /// Serves the journal until it is closed.
    pub(super) async fn run(mut self) {
        loop {
            let tick = self.next().await;
            self.begin();
            let outcome = match tick {
                Tick::Group(group) => self.commit(group).await,
                Tick::Sync => self.sync_answered().await,
                Tick::Close => break,
            };
            let group = self.end(outcome.is_ok());
            let failed = outcome.as_ref().err().map(|cause| self.close(cause));
            let outcome = outcome.map_err(JournalError::Unknown);
            for piece in group {
                piece.settle(outcome.clone());
            }
            if let Some(old) = failed
                && !self.reopen(&old).await
            {
                break;
            }
        }
        self.leave().await;
    }

    /// Waits for work, at most until the next sync is due.
    async fn next(&self) -> Tick {
        loop {
            let due = self.unsynced.map(|since| since + core_limits::RELAXED_SYNC);
            if due.is_some_and(|due| Instant::now() >= due) {
                return Tick::Sync;
            }
            let group = self.shared.take_group();
            if !group.is_empty() {
                return Tick::Group(group);
            }
            if self.shared.is_closing() {
                return Tick::Close;
            }
            match due {
                Some(due) => drop(timeout_at(due, self.shared.changed()).await),
                None => self.shared.changed().await,
            }
        }
    }

    fn begin(&mut self) {
        self.began = Instant::now();
        self.is_stalled = false;
    }

    /// Returns the group, unless it was answered at the deadline.
    fn end(&mut self, is_sound: bool) -> Vec<Box<dyn Work>> {
        if self.is_stalled && is_sound {
            self.shared.resume();
        }
        self.shared.take_held()
    }

    async fn commit(&mut self, mut group: Vec<Box<dyn Work>>) -> Result<(), Failure> {
        let durability = group.iter().map(|piece| piece.durability()).max().unwrap_or_default();
        let writes = self.run_group(&mut group)?;
        self.shared.note(|| {
            format!("begins a group of {} with {} writes, {durability:?}", group.len(), writes.len())
        });
        self.shared.hold(group);
        if writes.is_empty() {
            return match durability {
                // The work may have read writes that are not synced.
                Durability::Sync => self.sync_answered().await,
                Durability::Relaxed => Ok(()),
            };
        }
        let number = self.write(writes).await?;
        match durability {
            Durability::Sync => self.sync(Some(number)).await?,
            Durability::Relaxed => {
                self.unsynced.get_or_insert_with(Instant::now);
            }
        }
        self.shared.show(number);
        self.operation().await;
        Ok(())
    }

    /// Runs the work of a group, and returns its writes.
    fn run_group(&self, group: &mut [Box<dyn Work>]) -> Result<Writes, Failure> {
        let shared = &self.shared;
        if shared.world().happens(Fault::DiskFull) {
            shared.disk.fill(self.up_to(MAX_FULL));
        }
        let (store, visible) = shared.store().map_err(|error| error.to_string())?;
        let now = shared.clock.now();
        let mut staged = StagedGroup::new(store, visible);
        let left = RoomLeft::of(Some(shared.disk.space()), shared.options.reserve);
        let mut txn = Txn::new(&mut staged, left, now);
        for piece in group {
            piece.run(&mut txn);
        }
        let mut writes = staged.into_writes();
        if !writes.is_empty() {
            let time = Bytes::copy_from_slice(&now.as_millis().to_be_bytes());
            writes.insert((versions::number(Space::Meta), Bytes::from_static(TIME_KEY)), Some(time));
        }
        Ok(writes)
    }

    /// Writes a group to the disk. One that fails may be there nevertheless.
    async fn write(&mut self, writes: Writes) -> Result<u64, Failure> {
        self.operation().await;
        let (world, disk) = (self.shared.world().clone(), self.shared.disk.clone());
        self.pass(Duration::from_micros(world.below(300))).await;
        if world.happens(Fault::DiskExhausted) {
            disk.exhaust(self.up_to(MAX_FULL));
        }
        if disk.is_exhausted() {
            return Err("no space left on device".into());
        }
        if world.happens(Fault::DiskWriteFailed) {
            if world.below(2) == 0 {
                disk.write(writes);
            }
            return Err("input/output error at a write".into());
        }
        let number = disk.write(writes);
        self.operation().await;
        Ok(number)
    }

    /// Syncs writes that were already answered, if there are any.
    async fn sync_answered(&mut self) -> Result<(), Failure> {
        match self.unsynced {
            Some(_) => self.sync(None).await,
            None => Ok(()),
        }
    }

    /// Makes all groups durable. `own` is the group that waits for it; one that fails may lose it.
    async fn sync(&mut self, own: Option<u64>) -> Result<(), Failure> {
        let (world, disk) = (self.shared.world().clone(), self.shared.disk.clone());
        let duration = if world.happens(Fault::DiskStalled) {
            self.up_to(MAX_STALL)
        } else {
            Duration::from_micros(200 + world.below(8_000))
        };
        self.pass(duration).await;
        if world.happens(Fault::DiskSyncFailed) {
            if let Some(own) = own.filter(|_| world.below(2) == 0) {
                disk.lose(own);
            }
            return Err("input/output error at a sync".into());
        }
        disk.sync();
        self.unsynced = None;
        self.operation().await;
        Ok(())
    }

    fn close(&mut self, cause: &Arc<str>) -> Weak<OpenStore> {
        self.unsynced = None;
        self.shared.close(cause)
    }

    /// Opens the journal again, however long that takes. Returns false when it is closed meanwhile.
    async fn reopen(&mut self, old: &Weak<OpenStore>) -> bool {
        let (mut pause, max_pause) = limits::REOPEN_PAUSE;
        loop {
            // A reader that is still busy keeps the old files.
            if old.strong_count() == 0 && self.try_reopen().await {
                return true;
            }
            if !self.refuse_for(pause).await {
                return false;
            }
            pause = max_pause.min(pause * 2);
        }
    }

    /// Writes the groups once more to new files, as the journal does after a failed sync, and opens these.
    async fn try_reopen(&mut self) -> bool {
        self.begin();
        self.operation().await;
        let world = self.shared.world().clone();
        self.pass(Duration::from_millis(10 + world.below(500))).await;
        if self.shared.disk.is_exhausted() || world.happens(Fault::DiskWriteFailed) {
            self.shared.note(|| "cannot be opened yet".into());
            return false;
        }
        self.shared.disk.sync();
        self.operation().await;
        self.shared.reopen();
        true
    }

    /// Refuses the waiting work for a while. Returns false when the journal is closed meanwhile.
    async fn refuse_for(&self, pause: Duration) -> bool {
        let end = Instant::now() + pause;
        loop {
            self.shared.refuse_queued();
            if self.shared.is_closing() {
                return false;
            }
            if timeout_at(end, self.shared.changed()).await.is_err() {
                return true;
            }
        }
    }

    /// Lets time pass with work on the disk. At the deadline the journal refuses everything until the work has ended.
    async fn pass(&mut self, duration: Duration) {
        let end = Instant::now() + duration;
        let max = self.shared.options.commit_deadline;
        if !self.is_stalled && end >= self.began + max {
            let (min_check, max_check) = limits::COMMIT_CHECK;
            let check = (max / 10).clamp(min_check, max_check);
            sleep_until(end.min(self.began + max + self.up_to(check))).await;
            if Instant::now() >= self.began + max {
                self.is_stalled = true;
                self.shared.stall(&format!("a write to the disk that has not ended within {max:?}").into());
            }
        }
        sleep_until(end).await;
    }

    /// A random duration.
    fn up_to(&self, max: Duration) -> Duration {
        Duration::from_micros(
            self.shared.world().below(u64::try_from(max.as_micros()).unwrap_or(u64::MAX).max(1)),
        )
    }

    /// An operation on the disk, which can be the last one of the process.
    async fn operation(&self) {
        if self.shared.disk.count_operation() {
            (self.crash)();
            std::future::pending().await
        }
    }

    /// Ends the journal: all writes are synced, and contents that were checked are noted as such.
    async fn leave(&mut self) {
        self.begin();
        if self.shared.check_open().is_ok() && self.sync_answered().await.is_ok() && self.shared.is_checked()
        {
            let checked = (versions::number(Space::Meta), Bytes::from_static(CHECKED_KEY));
            self.shared.disk.write(Writes::from([(checked, Some(Bytes::new()))]));
            self.shared.disk.sync();
        }
        self.shared.note(|| "is closed".into());
        self.shared.end(&"shutdown".into());
        self.shared.refuse_queued();
        // Callers of the last group have a moment to get their answers.
        sleep(Duration::ZERO).await;
    }
}
