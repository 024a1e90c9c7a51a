//! The deadline of the committer: a disk that does not answer must not block every waiter.
//!
//! ```text
//!            begin                  deadline passes
//!   Idle ───────────▶ At work ─────────────────────▶ Stalled
//!    ▲                   │ end                          │ end
//!    └───────────────────┴──────────────────────────────┘
//! ```
//!
//! * `At work`: the committer runs, writes or syncs a group, or opens the store again.
//! * `Stalled`: reads and new work are refused as not written, and so is the queued work. The waiters of the group are
//!   told that its outcome is unknown. Reads are refused too, because they would show the state before the group: a
//!   caller that got an unknown outcome must not read that state.
//! * A late write that succeeds is a commit like any other: the store serves again, and no acknowledged write is lost.
//!
//! This deadline does not cover work whose own reads hang: its waiters are answered by the deadline of their requests.

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tracing::{error, info};

use super::JournalError;
use super::current::Current;
use super::work::Work;
use crate::limits;
use angarium_core::time::millis;

/// The queue of a committer; none after its thread ended. The committer's thread holds the lock while it waits for
/// work, the watch while it refuses queued work.
pub(super) type Queue = Mutex<Option<Receiver<Box<dyn Work>>>>;

/// A guard that lives as long as the committer's thread. When the thread ends, even by a panic, it closes the queue and
/// drops the current group, so no caller waits for work that never runs.
pub(super) struct QueueEnd {
    pub(super) queue: Arc<Queue>,
    pub(super) stall: Arc<Stall>,
}

impl Drop for QueueEnd {
    fn drop(&mut self) {
        drop(self.queue.lock().take());
        drop(self.stall.end(false));
    }
}

/// Progress of the committer, shared with its watch.
pub(super) struct Stall {
    current: Arc<Current>,
    /// Held for one check, or while one group is answered.
    phase: Mutex<Phase>,
    /// Wakes the watch when it should end.
    ended: Condvar,
}

struct Phase {
    deadline: Duration,
    /// When the committer started its current work.
    began: Option<Instant>,
    is_stalled: bool,
    is_ended: bool,
    /// The group that is being written.
    group: Vec<Box<dyn Work>>,
}

/// The thread that watches a committer. It ends when this handle is dropped.
pub(super) struct StallWatch {
    stall: Arc<Stall>,
    thread: Option<JoinHandle<()>>,
}

impl Stall {
    /// Creates the state for an idle committer of `current`, with the default deadline.
    pub(super) fn new(current: Arc<Current>) -> Self {
        let deadline = limits::COMMIT_DEADLINE;
        let phase = Phase { deadline, began: None, is_stalled: false, is_ended: false, group: Vec::new() };
        Self { current, phase: Mutex::new(phase), ended: Condvar::new() }
    }

    /// Sets how long a commit may take.
    pub(super) fn set_deadline(&self, deadline: Duration) {
        self.phase.lock().deadline = deadline;
    }

    /// Records that work on the disk begins.
    pub(super) fn begin(&self) {
        self.phase.lock().began = Some(Instant::now());
    }

    /// Keeps the group that is about to be written, so that the watch can answer its waiters at the deadline.
    pub(super) fn hold(&self, group: Vec<Box<dyn Work>>) {
        self.phase.lock().group = group;
    }

    /// Records that the work has ended, and returns the group unless the watch answered it meanwhile. A stalled store
    /// serves again if `is_sound`.
    pub(super) fn end(&self, is_sound: bool) -> Vec<Box<dyn Work>> {
        let mut phase = self.phase.lock();
        let took = phase.began.take().map(|began| began.elapsed());
        if std::mem::take(&mut phase.is_stalled) && is_sound && self.current.resume() {
            info!(took_ms = millis(took.unwrap_or_default()), "journal resumed");
        }
        std::mem::take(&mut phase.group)
    }

    /// Checks the deadline once. While the disk is stalled, refuses the work in `queue`.
    fn check(&self, queue: &Queue) {
        let why = {
            let mut phase = self.phase.lock();
            if phase.began.is_none_or(|began| began.elapsed() < phase.deadline) {
                return;
            }
            let why: Arc<str> =
                format!("a write to the disk that has not ended within {:?}", phase.deadline).into();
            if !std::mem::replace(&mut phase.is_stalled, true) {
                error!(deadline_ms = millis(phase.deadline), "journal stalled");
                self.current.stall(&why);
            }
            // Answered after the store is closed: a caller that learns of the stall must find the store closed.
            for piece in phase.group.drain(..) {
                piece.settle(Err(JournalError::Unknown(Arc::clone(&why))));
            }
            why
        };
        // The lock is taken when the committer has recovered and waits for work again.
        let Some(queue) = queue.try_lock() else { return };
        for piece in queue.iter().flat_map(Receiver::try_iter) {
            piece.settle(Err(JournalError::Closed(Arc::clone(&why))));
        }
    }

    /// Waits until the next check. Returns false when the watch should end.
    fn wait(&self) -> bool {
        let mut phase = self.phase.lock();
        if !phase.is_ended {
            let (min, max) = limits::COMMIT_CHECK;
            let pause = (phase.deadline / 10).clamp(min, max);
            self.ended.wait_for(&mut phase, pause);
        }
        !phase.is_ended
    }
}

impl StallWatch {
    /// Starts the watch of the committer that takes its work from `queue`.
    pub(super) fn start(stall: Arc<Stall>, queue: Arc<Queue>) -> Self {
        let watched = Arc::clone(&stall);
        let thread = std::thread::Builder::new()
            .name("commit-watch".into())
            .spawn(move || {
                while watched.wait() {
                    watched.check(&queue);
                }
            })
            .expect("the process can start a thread while it opens a store");
        Self { stall, thread: Some(thread) }
    }
}

impl Drop for StallWatch {
    fn drop(&mut self) {
        self.stall.phase.lock().is_ended = true;
        self.stall.ended.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            error!("journal watch panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use crate::{Journal, JournalError, JournalOptions, Space};
    use angarium_clock::Clock;

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn stalled_committer_refuses_and_recovers() {
        let dir = tempfile::tempdir().unwrap();
        let options =
            JournalOptions { commit_deadline: Duration::from_millis(100), ..JournalOptions::default() };
        let journal = Journal::open_with(&dir.path().join("journal"), &Clock::manual(1), options).unwrap();
        let (release, held) = channel::<()>();
        let (begun, begins) = channel();
        let mut stuck = tokio::task::JoinSet::new();
        stuck.spawn({
            let journal = journal.clone();
            async move {
                let work = journal.commit(move |txn| {
                    let _ = begun.send(());
                    let _ = held.recv();
                    txn.put(Space::Tree, "k".into(), "v".into());
                });
                work.await
            }
        });
        tokio::task::spawn_blocking(move || begins.recv().unwrap()).await.unwrap();
        let waiting = journal.commit(|_| ()).await;
        assert!(matches!(waiting, Err(JournalError::Closed(_))), "{waiting:?}");
        assert!(matches!(journal.check_open(), Err(JournalError::Closed(_))));
        assert!(matches!(journal.get(Space::Tree, b"k"), Err(JournalError::Closed(_))));
        assert!(journal.check_alive().is_ok());
        let refused = journal.commit(|_| ()).await;
        assert!(matches!(refused, Err(JournalError::Closed(_))), "{refused:?}");
        release.send(()).unwrap();
        // The write begins after its deadline, so the watch answers it first if the disk is slower than a check.
        let late = stuck.join_next().await.unwrap().unwrap();
        assert!(matches!(late, Ok(()) | Err(JournalError::Unknown(_))), "{late:?}");
        let resumed = async {
            while journal.commit(|_| ()).await.is_err() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_mins(1), resumed).await.unwrap();
        assert_eq!(journal.get(Space::Tree, b"k").unwrap().as_deref(), Some(&b"v"[..]));
    }
}
