//! Group commit: one thread that takes all work that gathered while it synced the last group.
//!
//! There is no timer for what must be synced. An idle committer starts at once on the first piece of work; a busy one
//! finds more waiting the longer a sync takes. No process is answered before the sync that covers what he wrote and
//! saw, but for a group in which no process asked for it: that is synced a moment later, with the next group that is,
//! or by itself.
//!
//! A write or a sync that fails closes the store, since it is unknown what of it is on disk. What was in flight is
//! unknown; the store is opened again, for as long as the process lives.

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
use super::log::{Numbering, Witness};
use super::mend::{self, Refused, Scope};
use super::reclaim::Reclaimer;
use super::stall::{Queue, QueueEnd, Stall, StallWatch};
use super::store::{Acceptance, Store};
use super::work::{self, Work, WorkReceiver};
use super::{JournalError, Txn, rescue};
use crate::limits;
use angarium_clock::Clock;
use angarium_core::durability::Durability;
use angarium_core::limits as core_limits;
use angarium_core::time::millis;

/// The write side of a journal.
pub(super) struct Committer {
    /// Bounded; taken when the journal closes, which ends the thread after it wrote what waits.
    queue: Option<SyncSender<Box<dyn Work>>>,
    thread: Option<JoinHandle<()>>,
    current: Arc<Current>,
    stall: Arc<Stall>,
    /// Dropped last: it watches the end of the thread too.
    _watch: StallWatch,
}

impl Committer {
    /// `checked` states when the thread ends whether its journal is left checked.
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

    /// Queues work. An error means that it never runs.
    pub(super) fn submit<T: Send + 'static>(
        &self,
        durability: Durability,
        work: impl FnOnce(&mut Txn<'_>) -> T + Send + 'static,
    ) -> Result<WorkReceiver<T>, JournalError> {
        self.current.check_open()?;
        let (work, answer) = work::new(durability, work);
        let Some(queue) = &self.queue else { return Err(JournalError::Closed("shutdown".into())) };
        match queue.try_send(work) {
            Ok(()) => Ok(answer),
            Err(TrySendError::Full(_)) => Err(JournalError::Busy),
            Err(TrySendError::Disconnected(_)) => {
                self.lost();
                self.current.check_open().and(Err(JournalError::Busy))
            }
        }
    }

    /// What became of work whose answer never came: its thread ended, which closes the journal.
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
    /// When the first write was answered that no sync covers yet.
    unsynced: Option<Instant>,
    /// Told when work on the disk begins and ends.
    stall: Arc<Stall>,
    checked: Arc<AtomicBool>,
    merges: Merges,
}

/// Whether the work of the store behind the writes has failed: flushes and merges of tables.
#[derive(Default)]
struct Merges {
    /// They have, and the store takes no write any more.
    have_failed: bool,
    /// When all tables were read for damage.
    looked: Option<Instant>,
    /// Whether there is damage that could not be set right.
    is_damaged: bool,
    /// The time in which the disk has refused parts of tables.
    refused: Option<RefusedReads>,
}

/// The looks at tables that met refused reads, without a long pause between two of them.
#[derive(Clone, Copy)]
struct RefusedReads {
    first: Instant,
    last: Instant,
}

impl RefusedReads {
    /// Whether a look now belongs to the same fault of the disk. An older fault has ended.
    fn continues(&self) -> bool {
        self.last.elapsed() < 3 * limits::MEND_PAUSE
    }
}

/// What to do next.
enum CommitterTick {
    Group(Vec<Box<dyn Work>>),
    Sync,
    /// Nothing was written for a while.
    LookAtRoom,
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
                CommitterTick::LookAtRoom => {
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

    /// Waits for work, for the time of a sync when there is something to sync, and for the next look at the room: below the
    /// reserve it may be that nothing is written any more.
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
            Err(RecvTimeoutError::Timeout) => CommitterTick::LookAtRoom,
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
        let mut txn = Txn::new(&store, durability, self.room.left(), self.clock.now());
        for piece in &mut group {
            piece.run(&mut txn);
        }
        self.stall.hold(group);
        let position = self.numbering.next(store.database.seqno());
        let written = txn.bytes();
        let wrote = txn.commit(position).map_err(|failure| self.failed(&failure))?;
        if wrote {
            self.numbering.wrote();
        }
        self.room.note_written(written);
        if let Some(free) = self.room.shortage() {
            self.reclaimer.begin(Arc::clone(&store), free);
        }
        match durability {
            // A group that only looked may have seen what is not synced.
            Durability::Sync if !wrote => return self.sync(),
            Durability::Sync => self.note_sync(),
            Durability::Relaxed if wrote => {
                self.unsynced.get_or_insert_with(Instant::now);
            }
            Durability::Relaxed => {}
        }
        Ok(())
    }

    /// Begins to get room back, if there is less than the reserve.
    fn reclaim(&mut self) {
        self.room.left();
        // A store that is closed is opened by who closed it.
        if let Some(free) = self.room.shortage()
            && let Ok(store) = self.current.store()
        {
            self.reclaimer.begin(store, free);
        }
    }

    /// Syncs what was answered before, if there is any.
    fn sync(&mut self) -> Result<(), Arc<str>> {
        if self.unsynced.is_some() {
            let store = self.current.store().map_err(text)?;
            let synced = store.database.persist(fjall::PersistMode::SyncData);
            synced.map_err(|failure| self.failed(&failure))?;
            self.note_sync();
        }
        Ok(())
    }

    /// All that was written is synced.
    fn note_sync(&mut self) {
        self.unsynced = None;
        self.witness.note(self.numbering.sync());
    }

    /// The text of a failed write. One that the store does not even try states that its work in the background has
    /// failed.
    fn failed(&mut self, failure: &fjall::Error) -> Arc<str> {
        self.merges.have_failed |= matches!(failure, fjall::Error::Poisoned);
        text(failure)
    }

    fn close(&mut self, cause: &Arc<str>) -> Weak<Store> {
        error!(error = %cause, path = %self.path.display(), "journal closed");
        self.unsynced = None;
        self.current.close(cause)
    }

    /// Opens the store again, however long it takes. False when the journal is closed instead.
    fn reopen(&mut self, old: &Weak<Store>) -> bool {
        let (mut pause, longest) = limits::REOPEN_PAUSE;
        let (began, mut told) = (Instant::now(), None);
        // What was tried a moment ago fails again.
        let is_again = self.merges.have_failed && self.merges.is_damaged;
        if is_again && !self.refuse_for(longest) {
            return false;
        }
        loop {
            // A reader that is not done keeps the old store, and its lock.
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
                    // It is told that the journal is closed. A reason that is new is told too.
                    Err(cause) if told.as_ref() == Some(&cause) => {
                        debug!(error = cause, "journal not reopened")
                    }
                    Err(cause) => {
                        warn!(error = cause, path = %self.path.display(), "journal cannot be reopened yet");
                        told = Some(cause);
                    }
                }
            }
            if !self.refuse_for(pause) {
                return false;
            }
            pause = longest.min(pause * 2);
        }
    }

    fn open(&mut self) -> Result<Store, String> {
        rescue::rewrite_logs(&self.path).map_err(|error| described(&error))?;
        self.mend().map_err(|error| described(&error))?;
        Store::open(&self.path, Acceptance::Refuse, self.clock.wall()).map_err(|error| described(&error))
    }

    /// Looks for damaged tables when a merge may have met one, and writes them again.
    fn mend(&mut self) -> std::io::Result<()> {
        if !self.merges.have_failed || self.merges.looked.is_some_and(|at| at.elapsed() < limits::MEND_PAUSE)
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
        self.merges = Merges { have_failed: false, looked: Some(now), is_damaged, refused };
        if mended.tables > 0 {
            error!(tables = mended.tables, ranges = mended.ranges, "damaged tables rewritten");
        }
        Ok(())
    }

    /// Waits, and refuses what was queued before the store was closed. False when the journal is closed meanwhile.
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

/// An error with its causes.
fn described(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
