//! Group commit: one thread syncs the log. While it syncs one group, new work gathers, and the thread takes all of it
//! as the next group.
//!
//! No timer delays a synced commit. An idle committer starts on the first piece of work at once; a busy one finds a
//! larger group the longer a sync takes. A caller gets its answer after the sync that covers everything its work wrote
//! and read. The exception is a group of which every caller accepts relaxed durability: its callers are answered after
//! the write, and a later sync covers it, either the one of the next synced group or one of its own.
//!
//! A write or a sync that fails closes the store, because it is unknown how much of the group is on disk. The group's
//! callers are told that the outcome is unknown. The committer then tries to open the store again for as long as the
//! process lives.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::{debug, error, info, warn};

use super::current::Current;
use super::disk::RoomWatch;
use super::group::StoreGroup;
use super::log::{Numbering, Witness};
use super::mend::{self, Refused, Scope};
use super::reclaim::Reclaimer;
use super::stall::{Queue, QueueEnd, Stall, StallWatch};
use super::store::{Acceptance, Store};
use super::work::Work;
use super::{JournalError, Txn, rescue};
use crate::limits;
use angarium_clock::Clock;
use angarium_core::durability::Durability;
use angarium_core::limits as core_limits;
use angarium_core::time::millis;

/// The write side of a journal.
pub(super) struct Committer {
    /// The bounded queue of waiting work. Dropped when the journal closes: the thread then writes the queued work and
    /// ends.
    queue: Option<SyncSender<Box<dyn Work>>>,
    thread: Option<JoinHandle<()>>,
    current: Arc<Current>,
    stall: Arc<Stall>,
    /// Dropped last, because it watches the end of the thread too.
    _watch: StallWatch,
}

impl Committer {
    /// Starts the committer's thread. When the thread ends, it reads `checked` to decide whether to record the journal
    /// as checked.
    pub(super) fn start(
        current: Arc<Current>,
        path: PathBuf,
        clock: Clock,
        room: RoomWatch,
        checked: Arc<AtomicBool>,
        witness: Witness,
    ) -> Self {
        let (queue, work) = sync_channel(limits::JOURNAL_QUEUE);
        let (reclaimer, work) = (Reclaimer::default(), Arc::new(Mutex::new(Some(work))));
        let numbering = current.store().expect("a journal starts with an open store").numbering();
        let stall = Arc::new(Stall::new(Arc::clone(&current)));
        let watch = StallWatch::start(Arc::clone(&stall), Arc::clone(&work));
        let run = Run {
            current: Arc::clone(&current),
            path,
            clock,
            work,
            room,
            reclaimer,
            numbering,
            witness,
            unsynced: None,
            stall: Arc::clone(&stall),
            checked,
            merges: Merges::default(),
        };
        let end = QueueEnd { queue: Arc::clone(&run.work), stall: Arc::clone(&stall) };
        let thread = std::thread::Builder::new()
            .name("committer".into())
            .spawn(move || {
                let _end = end;
                run.until_closed();
            })
            .expect("the process can start a thread while it opens a store");
        Self { queue: Some(queue), thread: Some(thread), current, stall, _watch: watch }
    }

    /// Sets how long a commit may take before the journal counts as stalled.
    pub(super) fn set_deadline(&self, deadline: std::time::Duration) {
        self.stall.set_deadline(deadline);
    }

    /// Queues work. An error means that the work never runs.
    pub(super) fn submit(&self, work: Box<dyn Work>) -> Result<(), JournalError> {
        self.current.check_open()?;
        let Some(queue) = &self.queue else { return Err(JournalError::Closed("shutdown".into())) };
        match queue.try_send(work) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(_)) => Err(JournalError::Busy),
            Err(TrySendError::Disconnected(_)) => {
                self.lost();
                self.current.check_open().and(Err(JournalError::Busy))
            }
        }
    }

    /// Returns the error for work whose reply channel was dropped: the committer's thread has panicked, so the journal
    /// is closed for good.
    pub(super) fn lost(&self) -> JournalError {
        let cause: Arc<str> = "a panic of its thread".into();
        self.current.end(&cause);
        JournalError::Unknown(cause)
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        drop(self.queue.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            error!("journal committer panicked");
        }
    }
}

/// The committer's thread.
struct Run {
    current: Arc<Current>,
    path: PathBuf,
    clock: Clock,
    work: Arc<Queue>,
    room: RoomWatch,
    reclaimer: Reclaimer,
    numbering: Numbering,
    witness: Witness,
    /// Time of the first answered write that no sync covers yet.
    unsynced: Option<Instant>,
    /// Notified when work on the disk begins and ends.
    stall: Arc<Stall>,
    checked: Arc<AtomicBool>,
    merges: Merges,
}

/// State of the store's background work: flushes and merges of tables.
#[derive(Default)]
struct Merges {
    /// Whether it has failed. The store then refuses every write.
    have_failed: bool,
    /// Time of the last scan of all tables for damage.
    scanned: Option<Instant>,
    /// Whether that scan left damaged tables that could not be rewritten.
    is_damaged: bool,
    /// The period in which the disk has refused to read parts of tables.
    refused: Option<RefusedReads>,
}

/// The first and the last of a series of scans that met refused reads. Two scans of a series have no long pause between
/// them.
#[derive(Clone, Copy)]
struct RefusedReads {
    first: Instant,
    last: Instant,
}

impl RefusedReads {
    /// Returns whether a scan now belongs to the same disk fault. An older fault counts as ended.
    fn continues(&self) -> bool {
        self.last.elapsed() < 3 * limits::MEND_PAUSE
    }
}

/// The committer's next action.
enum CommitterTick {
    Group(Vec<Box<dyn Work>>),
    Sync,
    /// The queue was empty for [`limits::RECLAIM_PAUSE`].
    CheckRoom,
    Close,
}

impl Run {
    fn until_closed(mut self) {
        loop {
            let next = self.next();
            self.stall.begin();
            let outcome = match next {
                CommitterTick::Group(group) => self.commit(group),
                CommitterTick::Sync => self.sync(),
                CommitterTick::CheckRoom => {
                    self.reclaim();
                    Ok(())
                }
                CommitterTick::Close => break,
            };
            let group = self.stall.end(outcome.is_ok());
            let failed = outcome.as_ref().err().map(|cause| self.close(cause));
            let outcome = outcome.map_err(JournalError::Unknown);
            for piece in group {
                piece.settle(outcome.clone());
            }
            if let Some(old) = failed
                && !self.reopen(&old)
            {
                return;
            }
        }
        if let Err(cause) = self.sync() {
            error!(error = %cause, path = %self.path.display(), "last journal sync failed");
        } else if self.checked.load(Ordering::Relaxed)
            && let Err(cause) =
                self.current.store().map_err(text).and_then(|s| s.leave_checked().map_err(text))
        {
            warn!(error = %cause, path = %self.path.display(), "journal not left checked");
        }
    }

    /// Waits for work, but at most until the next sync is due, or until the next look at the free space when nothing is
    /// unsynced. The look is needed because below the reserve there may be no writes to trigger it.
    fn next(&self) -> CommitterTick {
        let queue = self.work.lock();
        let Some(work) = queue.as_ref() else { return CommitterTick::Close };
        let first = match self.unsynced.map(|since| core_limits::RELAXED_SYNC.checked_sub(since.elapsed())) {
            None => work.recv_timeout(limits::RECLAIM_PAUSE),
            Some(None) => return CommitterTick::Sync,
            Some(Some(left)) => work.recv_timeout(left),
        };
        match first {
            Ok(first) => {
                let mut group = vec![first];
                group.extend(work.try_iter().take(limits::JOURNAL_GROUP - 1));
                CommitterTick::Group(group)
            }
            Err(RecvTimeoutError::Timeout) if self.unsynced.is_some() => CommitterTick::Sync,
            Err(RecvTimeoutError::Timeout) => CommitterTick::CheckRoom,
            Err(RecvTimeoutError::Disconnected) => CommitterTick::Close,
        }
    }

    fn commit(&mut self, mut group: Vec<Box<dyn Work>>) -> Result<(), Arc<str>> {
        let store = match self.current.store() {
            Ok(store) => store,
            Err(error) => {
                self.stall.hold(group);
                return Err(text(error));
            }
        };
        let durability = group.iter().map(|piece| piece.durability()).max().unwrap_or_default();
        let (left, now) = (self.room.left(), self.clock.now());
        let mut writes = StoreGroup::new(&store, durability);
        let mut txn = Txn::new(&mut writes, left, now);
        for piece in &mut group {
            piece.run(&mut txn);
        }
        let written = txn.bytes();
        self.stall.hold(group);
        let position = self.numbering.next(store.database.seqno());
        let wrote = writes.commit(now, position).map_err(|failure| self.failed(&failure))?;
        if wrote {
            self.numbering.wrote();
        }
        self.room.note_written(written);
        if let Some(free) = self.room.shortage() {
            self.reclaimer.begin(Arc::clone(&store), free);
        }
        match durability {
            // A group that only read may have read writes that are not synced.
            Durability::Sync if !wrote => return self.sync(),
            Durability::Sync => self.note_sync(),
            Durability::Relaxed if wrote => {
                self.unsynced.get_or_insert_with(Instant::now);
            }
            Durability::Relaxed => {}
        }
        Ok(())
    }

    /// Starts a reclaim round if the free space is below the reserve.
    fn reclaim(&mut self) {
        self.room.left();
        // A closed store is opened again by the code that closed it.
        if let Some(free) = self.room.shortage()
            && let Ok(store) = self.current.store()
        {
            self.reclaimer.begin(store, free);
        }
    }

    /// Syncs relaxed writes that were already answered, if there are any.
    fn sync(&mut self) -> Result<(), Arc<str>> {
        if self.unsynced.is_some() {
            let store = self.current.store().map_err(text)?;
            let synced = store.database.persist(fjall::PersistMode::SyncData);
            synced.map_err(|failure| self.failed(&failure))?;
            self.note_sync();
        }
        Ok(())
    }

    /// Notes that everything written so far is synced.
    fn note_sync(&mut self) {
        self.unsynced = None;
        self.witness.note(self.numbering.sync());
    }

    /// Returns the text of a failed write. `Poisoned` means that the store refused the write unseen, because its
    /// background work has failed.
    fn failed(&mut self, failure: &fjall::Error) -> Arc<str> {
        self.merges.have_failed |= matches!(failure, fjall::Error::Poisoned);
        text(failure)
    }

    fn close(&mut self, cause: &Arc<str>) -> Weak<Store> {
        error!(error = %cause, path = %self.path.display(), "journal closed");
        self.unsynced = None;
        self.current.close(cause)
    }

    /// Opens the store again, however long that takes. Returns false when the journal is closed meanwhile.
    fn reopen(&mut self, old: &Weak<Store>) -> bool {
        let (mut pause, max_pause) = limits::REOPEN_PAUSE;
        let (began, mut logged) = (Instant::now(), None);
        // The scan a moment ago left damaged tables, so opening at once would fail again.
        let is_again = self.merges.have_failed && self.merges.is_damaged;
        if is_again && !self.refuse_for(max_pause) {
            return false;
        }
        loop {
            // A reader that is still busy keeps the old store, and with it the lock.
            if old.strong_count() == 0 {
                self.stall.begin();
                let opened = self.open();
                self.stall.end(false);
                match opened {
                    Ok(store) => {
                        self.numbering = store.numbering();
                        self.current.reopened(store);
                        info!(path = %self.path.display(), away_ms = millis(began.elapsed()), "journal reopened");
                        return true;
                    }
                    // The closed journal is logged already. A new cause is logged as well.
                    Err(cause) if logged.as_ref() == Some(&cause) => {
                        debug!(error = cause, "journal not reopened")
                    }
                    Err(cause) => {
                        warn!(error = cause, path = %self.path.display(), "journal cannot be reopened yet");
                        logged = Some(cause);
                    }
                }
            }
            if !self.refuse_for(pause) {
                return false;
            }
            pause = max_pause.min(pause * 2);
        }
    }

    fn open(&mut self) -> Result<Store, String> {
        rescue::rewrite_logs(&self.path).map_err(|error| described(&error))?;
        self.mend().map_err(|error| described(&error))?;
        Store::open(&self.path, Acceptance::Refuse, self.clock.wall()).map_err(|error| described(&error))
    }

    /// Scans all tables and rewrites the damaged ones, if a failed merge may have met one.
    fn mend(&mut self) -> std::io::Result<()> {
        if !self.merges.have_failed || self.merges.scanned.is_some_and(|at| at.elapsed() < limits::MEND_PAUSE)
        {
            return Ok(());
        }
        let earlier = self.merges.refused.filter(RefusedReads::continues);
        let has_long_refused = earlier.is_some_and(|reads| reads.first.elapsed() >= limits::MEND_REFUSED);
        let refused = if has_long_refused { Refused::GiveUp } else { Refused::Leave };
        let mended = mend::mend(&self.path, self.clock.wall(), refused, Scope::All)?;
        let (now, is_damaged) = (Instant::now(), mended.left > 0);
        let refused = (mended.refused > 0)
            .then(|| RefusedReads { first: earlier.map_or(now, |reads| reads.first), last: now });
        self.merges = Merges { have_failed: false, scanned: Some(now), is_damaged, refused };
        if mended.tables > 0 {
            error!(tables = mended.tables, ranges = mended.ranges, "damaged tables rewritten");
        }
        Ok(())
    }

    /// Refuses queued work for the time of `pause`. Returns false when the journal is closed meanwhile.
    fn refuse_for(&self, pause: Duration) -> bool {
        let started = Instant::now();
        loop {
            let Some(left) = pause.checked_sub(started.elapsed()) else { return true };
            let queue = self.work.lock();
            let Some(work) = queue.as_ref() else { return false };
            match work.recv_timeout(left) {
                Ok(piece) => piece.settle(self.current.check_open()),
                Err(RecvTimeoutError::Timeout) => return true,
                Err(RecvTimeoutError::Disconnected) => return false,
            }
        }
    }
}

fn text(error: impl std::fmt::Display) -> Arc<str> {
    error.to_string().into()
}

/// Formats an error with its causes.
fn described(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
