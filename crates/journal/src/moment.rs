//! Views of several journals at one moment.
//!
//! Each committer runs a piece of work that waits: so it stops between two groups, and everything that was acknowledged
//! is committed. When all committers have stopped, a view of each journal is taken, and they continue.
//!
//! ```text
//! committer 1   … group ── stopped ─────────────────── group …
//! committer 2   … group (a long sync) ── stopped ───── group …
//! this thread                              views taken ┘
//! ```
//!
//! A committer waits at most [`limits::MOMENT_STOP`], whatever the others do. If one was late, the views are dropped
//! and all is tried again.
//!
//! A view keeps the memory tables of its moment, which would grow on. They are flushed before the moment and once more
//! after it, so that views keep only what was written in between.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use thiserror::Error as ThisError;

use super::{Journal, JournalError, View, limits, work};
use angarium_core::durability::Durability;

/// Views of journals at one moment.
pub struct Moment {
    /// The views, in the order of the journals.
    pub views: Vec<View>,
    /// For how long commits were stopped.
    pub stopped: Duration,
}

/// Why there are no views of one moment.
#[derive(Clone, Debug, ThisError)]
pub enum MomentError {
    /// A journal accepts no work.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The committers were never stopped at the same time.
    #[error("the commits of {0} journals did not stop together for {limit:?}", limit = limits::MOMENT_STOP)]
    Apart(usize),
}

/// Takes a view of each journal at one moment: no commit of any of them is between two views. Blocks its thread, at
/// most for [`limits::MOMENT_DEADLINE`], one attempt and two flushes of each journal.
pub fn moment(journals: &[Journal]) -> Result<Moment, MomentError> {
    let flush = || journals.iter().for_each(|journal| journal.backend.flush());
    flush();
    let began = Instant::now();
    loop {
        if let Some(moment) = attempt(journals)? {
            flush();
            return Ok(moment);
        }
        if began.elapsed() >= limits::MOMENT_DEADLINE {
            return Err(MomentError::Apart(journals.len()));
        }
        std::thread::sleep(limits::MOMENT_PAUSE);
    }
}

/// Returns none if a committer was late.
fn attempt(journals: &[Journal]) -> Result<Option<Moment>, JournalError> {
    let gate = Arc::new(Gate::default());
    // Whatever happens below, no committer waits longer than this function runs.
    let _opening = GateOpening(Arc::clone(&gate));
    for journal in journals {
        let gate = Arc::clone(&gate);
        // The answer is not needed: a committer that has stopped shows it at the gate.
        let (work, _answer) = work::new(Durability::Relaxed, move |_| gate.stop());
        journal.backend.submit(work)?;
    }
    if !gate.await_all(journals.len()) {
        return Ok(None);
    }
    let views = journals.iter().map(Journal::view).collect::<Result<Vec<_>, _>>()?;
    Ok(gate.open().map(|stopped| Moment { views, stopped }))
}

/// Where the committers wait.
#[derive(Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    /// Number of committers that have stopped.
    stopped: usize,
    /// When the first one stopped.
    first: Option<Instant>,
    /// Whether committers continue.
    is_open: bool,
}

/// Opens the gate on drop.
struct GateOpening(Arc<Gate>);

impl Drop for GateOpening {
    fn drop(&mut self) {
        self.0.open();
    }
}

impl Gate {
    /// Stops a committer until the gate opens, or opens it when the time is up.
    fn stop(&self) {
        let mut state = self.state.lock();
        if state.is_open {
            return;
        }
        state.stopped += 1;
        let until = *state.first.get_or_insert_with(Instant::now) + limits::MOMENT_STOP;
        self.changed.notify_all();
        while !state.is_open {
            if self.changed.wait_until(&mut state, until).timed_out() {
                state.is_open = true;
                self.changed.notify_all();
            }
        }
    }

    /// Waits until `count` committers have stopped. Returns false if one of them did not stop in time.
    fn await_all(&self, count: usize) -> bool {
        let mut state = self.state.lock();
        let until = Instant::now() + limits::MOMENT_DEADLINE;
        while state.stopped < count && !state.is_open {
            if self.changed.wait_until(&mut state, until).timed_out() {
                return false;
            }
        }
        !state.is_open
    }

    /// Lets the committers continue. Returns for how long they were stopped; none if they did not wait until now, or
    /// for longer than they may.
    fn open(&self) -> Option<Duration> {
        let mut state = self.state.lock();
        let is_late = std::mem::replace(&mut state.is_open, true);
        self.changed.notify_all();
        let stopped = state.first.filter(|_| !is_late)?.elapsed();
        (stopped <= limits::MOMENT_STOP).then_some(stopped)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::channel;

    use tokio::task::JoinSet;

    use super::*;
    use crate::Space;
    use angarium_clock::Clock;

    fn open(directory: &Path, name: &str) -> Journal {
        Journal::open(&directory.join(name), &Clock::manual(1)).unwrap()
    }

    /// Writes a number to the first journal and then to the second, again and again.
    async fn count(journals: [Journal; 2], ends: Arc<AtomicBool>) {
        for number in 1_u64.. {
            for journal in &journals {
                let value = number.to_be_bytes().to_vec().into();
                journal.commit(move |txn| txn.put(Space::Tree, "n".into(), value)).await.unwrap();
            }
            if ends.load(Ordering::Relaxed) {
                return;
            }
        }
    }

    fn number(view: &View) -> u64 {
        let value = view.get(Space::Tree, b"n").unwrap();
        value.map_or(0, |value| u64::from_be_bytes((*value).try_into().unwrap()))
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn views_of_two_journals_are_of_one_moment() {
        let directory = tempfile::tempdir().unwrap();
        let journals = [open(directory.path(), "one"), open(directory.path(), "two")];
        let ends = Arc::new(AtomicBool::new(false));
        let mut writer = JoinSet::new();
        writer.spawn(count(journals.clone(), Arc::clone(&ends)));
        for _ in 0..20 {
            let journals = journals.clone();
            let taken = tokio::task::spawn_blocking(move || moment(&journals)).await.unwrap().unwrap();
            let (one, two) = (number(&taken.views[0]), number(&taken.views[1]));
            assert!(one == two || one == two + 1, "{one} and {two}");
            assert!(taken.stopped <= limits::MOMENT_STOP, "{:?}", taken.stopped);
        }
        ends.store(true, Ordering::Relaxed);
        writer.join_next().await.unwrap().unwrap();
    }

    /// A view would keep them in memory as long as it is there.
    #[tokio::test(flavor = "multi_thread")]
    async fn earlier_writes_are_in_files_at_the_moment() {
        let directory = tempfile::tempdir().unwrap();
        let journal = open(directory.path(), "one");
        journal.commit(|txn| txn.put(Space::Entries, "k".into(), vec![1; 1_000].into())).await.unwrap();
        let before = tables(directory.path());
        let journals = [journal];
        let taken = tokio::task::spawn_blocking(move || moment(&journals)).await.unwrap().unwrap();
        assert!(!tables(directory.path()).is_subset(&before), "no table is new");
        assert_eq!(taken.views[0].get(Space::Entries, b"k").unwrap().unwrap().len(), 1_000);
    }

    /// Returns the files in directories with tables.
    fn tables(directory: &Path) -> BTreeSet<PathBuf> {
        let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        let (directories, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
        let own = files.into_iter().filter(|_| directory.ends_with("tables"));
        directories.iter().flat_map(|directory| tables(directory)).chain(own).collect()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn busy_committer_stops_no_other_for_long() {
        let directory = tempfile::tempdir().unwrap();
        let journals = [open(directory.path(), "one"), open(directory.path(), "two")];
        let (release, held) = channel::<()>();
        let busy = journals[1].clone();
        let mut stuck = JoinSet::new();
        stuck.spawn(async move { busy.commit(move |_| held.recv().is_ok()).await });
        let taking = journals.clone();
        let taking = tokio::task::spawn_blocking(move || moment(&taking));
        // The first journal writes on while the second one is busy.
        for _ in 0..5 {
            let began = Instant::now();
            journals[0].commit(|txn| txn.put(Space::Tree, "k".into(), "v".into())).await.unwrap();
            // A busy disk may take its time; until the release it would wait for ever.
            assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        }
        release.send(()).unwrap();
        assert!(stuck.join_next().await.unwrap().unwrap().unwrap());
        // It may have given up on a busy machine.
        drop(taking.await.unwrap());
        let taken = tokio::task::spawn_blocking(move || moment(&journals)).await.unwrap().unwrap();
        assert_eq!(taken.views.len(), 2);
    }
}
