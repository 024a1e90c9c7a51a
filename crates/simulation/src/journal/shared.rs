//! What the handle of an open journal and its committer share.
//!
//! ```text
//!   Open ──deadline passes──▶ Stalled ──the write ends──▶ Open
//!    └────────a write fails──────┴──▶ Reopening ──────────▶ Open
//! ```

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use angarium_clock::Clock;
use angarium_journal::{JournalError, JournalOptions, Work, limits};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::disk::Disk;
use crate::process::Process;
use crate::world::World;

/// The open journal, while a view or the journal itself needs it.
pub(super) struct OpenStore {
    pub(super) disk: Disk,
    /// The number of the opening.
    pub(super) opening: u64,
}

/// The state of a journal.
enum Stage {
    Open(Arc<OpenStore>),
    /// A write takes longer than the deadline.
    Stalled(Arc<OpenStore>, Arc<str>),
    /// A write has failed.
    Reopening(Arc<str>),
    /// The committer has ended.
    Ended(Arc<str>),
}

/// An open journal of a process.
pub(super) struct Shared {
    pub(super) disk: Disk,
    pub(super) process: Process,
    pub(super) clock: Clock,
    pub(super) options: JournalOptions,
    state: Mutex<SharedState>,
    /// Wakes the committer.
    wake: Notify,
}

struct SharedState {
    stage: Stage,
    /// The group that readers see.
    visible: u64,
    /// Waiting work.
    queue: VecDeque<Box<dyn Work>>,
    /// The group that is being written.
    group: Vec<Box<dyn Work>>,
    is_closing: bool,
    is_checked: bool,
}

impl Shared {
    /// Opens the journal on a disk.
    pub(super) fn open(
        disk: Disk,
        process: Process,
        clock: Clock,
        options: JournalOptions,
        is_checked: bool,
    ) -> Self {
        let (opening, visible) = disk.open();
        let store = Arc::new(OpenStore { disk: disk.clone(), opening });
        let state = SharedState {
            stage: Stage::Open(store),
            visible,
            queue: VecDeque::new(),
            group: Vec::new(),
            is_closing: false,
            is_checked,
        };
        Self { disk, process, clock, options, state: Mutex::new(state), wake: Notify::new() }
    }

    pub(super) fn world(&self) -> &World {
        self.disk.world()
    }

    /// Adds an event to the trace.
    pub(super) fn note(&self, event: impl FnOnce() -> String) {
        self.world().note(|| format!("journal of {} {}", self.process.name(), event()));
    }

    /// Returns the open journal and the group that readers see.
    pub(super) fn store(&self) -> Result<(Arc<OpenStore>, u64), JournalError> {
        let state = self.state.lock();
        match &state.stage {
            Stage::Open(store) => Ok((Arc::clone(store), state.visible)),
            Stage::Stalled(_, cause) | Stage::Reopening(cause) | Stage::Ended(cause) => {
                Err(JournalError::Closed(Arc::clone(cause)))
            }
        }
    }

    pub(super) fn check_open(&self) -> Result<(), JournalError> {
        self.store().map(drop)
    }

    pub(super) fn check_alive(&self) -> Result<(), JournalError> {
        match &self.state.lock().stage {
            Stage::Open(_) | Stage::Stalled(..) | Stage::Reopening(_) => Ok(()),
            Stage::Ended(cause) => Err(JournalError::Closed(Arc::clone(cause))),
        }
    }

    pub(super) fn is_checked(&self) -> bool {
        self.state.lock().is_checked
    }

    pub(super) fn note_checked(&self) {
        self.state.lock().is_checked = true;
    }

    /// Queues work.
    pub(super) fn submit(&self, work: Box<dyn Work>) -> Result<(), JournalError> {
        self.check_open()?;
        let mut state = self.state.lock();
        if state.is_closing {
            return Err(JournalError::Closed("shutdown".into()));
        }
        if state.queue.len() >= limits::JOURNAL_QUEUE {
            return Err(JournalError::Busy);
        }
        state.queue.push_back(work);
        drop(state);
        self.wake.notify_one();
        Ok(())
    }

    /// Waits for new work, or for the end of the journal.
    pub(super) async fn changed(&self) {
        self.wake.notified().await;
    }

    /// Takes the waiting work, up to a bound.
    pub(super) fn take_group(&self) -> Vec<Box<dyn Work>> {
        let mut state = self.state.lock();
        let count = state.queue.len().min(limits::JOURNAL_GROUP);
        state.queue.drain(..count).collect()
    }

    /// Keeps the group that is about to be written.
    pub(super) fn hold(&self, group: Vec<Box<dyn Work>>) {
        self.state.lock().group = group;
    }

    /// Returns the group that was being written, unless it was answered at the deadline.
    pub(super) fn take_held(&self) -> Vec<Box<dyn Work>> {
        std::mem::take(&mut self.state.lock().group)
    }

    /// Lets readers see a group that is written.
    pub(super) fn show(&self, group: u64) {
        let mut state = self.state.lock();
        let (Stage::Open(store) | Stage::Stalled(store, _)) = &state.stage else { return };
        self.disk.show(store.opening, state.visible, group);
        state.visible = group;
    }

    /// Refuses reads and work until the late write ends. The outcome of its group is unknown.
    pub(super) fn stall(&self, cause: &Arc<str>) {
        let (group, queued) = {
            let mut state = self.state.lock();
            if let Stage::Open(store) = &state.stage {
                state.stage = Stage::Stalled(Arc::clone(store), Arc::clone(cause));
                self.note(|| "is stalled".into());
            }
            (std::mem::take(&mut state.group), std::mem::take(&mut state.queue))
        };
        group.into_iter().for_each(|piece| piece.settle(Err(JournalError::Unknown(Arc::clone(cause)))));
        queued.into_iter().for_each(|piece| piece.settle(Err(JournalError::Closed(Arc::clone(cause)))));
    }

    /// Serves again after a stall.
    pub(super) fn resume(&self) {
        let mut state = self.state.lock();
        if let Stage::Stalled(store, _) = &state.stage {
            state.stage = Stage::Open(Arc::clone(store));
            self.note(|| "resumes".into());
        }
    }

    /// Closes the journal after a failed write. The returned reference is invalid once the last view is dropped.
    pub(super) fn close(&self, cause: &Arc<str>) -> Weak<OpenStore> {
        self.note(|| format!("is closed after {cause}"));
        match std::mem::replace(&mut self.state.lock().stage, Stage::Reopening(Arc::clone(cause))) {
            Stage::Open(store) | Stage::Stalled(store, _) => Arc::downgrade(&store),
            Stage::Reopening(_) | Stage::Ended(_) => Weak::new(),
        }
    }

    /// Opens the journal again, in the state of the disk.
    pub(super) fn reopen(&self) {
        let (opening, visible) = self.disk.open();
        let store = Arc::new(OpenStore { disk: self.disk.clone(), opening });
        let mut state = self.state.lock();
        state.stage = Stage::Open(store);
        state.visible = visible;
        self.note(|| format!("is open again at group {visible}"));
    }

    /// Refuses the waiting work, if the journal is not open.
    pub(super) fn refuse_queued(&self) {
        let Err(error) = self.check_open() else { return };
        let queued = std::mem::take(&mut self.state.lock().queue);
        queued.into_iter().for_each(|piece| piece.settle(Err(error.clone())));
    }

    /// Takes no more work. The committer ends once it has written the waiting work.
    pub(super) fn begin_close(&self) {
        self.state.lock().is_closing = true;
        self.wake.notify_one();
    }

    pub(super) fn is_closing(&self) -> bool {
        self.state.lock().is_closing
    }

    /// Ends the journal for good.
    pub(super) fn end(&self, cause: &Arc<str>) {
        self.state.lock().stage = Stage::Ended(Arc::clone(cause));
    }

    pub(super) fn is_ended(&self) -> bool {
        matches!(self.state.lock().stage, Stage::Ended(_))
    }
}

impl Drop for OpenStore {
    fn drop(&mut self) {
        self.disk.close_opening(self.opening);
    }
}
