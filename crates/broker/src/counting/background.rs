//! Counts of the queues of recovered slots, so that pages of metrics show the messages of queues that no caller uses.
//! After a restart or a failover those are most queues.
//!
//! ```text
//! slot recovered ─▶ names of its queues ─▶ records, 1,000 a second ─▶ a line for each placement ─▶ figures of the slot
//!                                               ▲                        │
//!                                               └──── the line is full ──┘
//! ```
//!
//! A count opens no queue, holds no gate of a queue or a pool, and delays no caller: neither a recovery nor a claim
//! waits for it. A task of its own reads each placement ([`crate::counting::line`]), so a slow or hanging pool delays
//! only its own queues, and costs the tree nothing while it does not answer. A queue whose record cannot be read is
//! left out. A queue with a due delayed message is opened, which makes the message ready.

use crate::counting::Counts;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::Sender;
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::counting::line::Uncounted;
use crate::counting::line::put_back;
use crate::limits;
use crate::slot::state::Slot;
use angarium_catalogue::{Placement, QueueRecord};
use angarium_core::error::Error;
use angarium_core::ids::Slot as SlotNumber;
use angarium_core::maps::{HashMap, HashSet};
use angarium_core::names::QueueRef;
use angarium_storage::Epoch;

/// The queues that wait for reads, by placement.
type Lines = HashMap<Placement, Sender<Uncounted>>;

/// When to retry the queues of a slot that found no room in their line.
struct Retry {
    epoch: Epoch,
    at: Instant,
    pause: Duration,
    /// The line that was full, if one was.
    full: Option<Placement>,
}

/// State of the task that counts.
#[derive(Default)]
struct Counting {
    lines: Lines,
    again: HashMap<SlotNumber, Retry>,
    /// Queues whose records were read since the last step.
    taken: usize,
    /// A line that was full in this pass.
    full: Option<Placement>,
    /// Queues with an unreadable record that were logged: at most [`limits::COUNTING_LOGGED`].
    logged: HashSet<QueueRef>,
}

impl Counting {
    /// Logs a record that cannot be read, once.
    fn log_unreadable(&mut self, at: &QueueRef, error: &Error) {
        if self.logged.len() < limits::COUNTING_LOGGED && self.logged.insert(at.clone()) {
            warn!(project = %at.project, queue = %at.name, %error, "queue record not readable");
        }
    }

    pub(crate) fn is_due(&self, slot: &Arc<Slot>) -> bool {
        let again = self.again.get(&slot.owned.slot).filter(|again| again.epoch == slot.epoch);
        let has_room = |placement: &Placement| {
            self.lines.get(placement).is_none_or(|line| line.capacity() >= limits::COUNTING_LINE / 2)
        };
        let is_due = |again: &Retry| again.at <= Instant::now() && again.full.as_ref().is_none_or(has_room);
        again.is_none_or(is_due)
    }

    /// Records the end of a pass over a slot. A pass that leaves queues uncounted is followed by a pause.
    fn note_pass(&mut self, slot: &Arc<Slot>) {
        let number = slot.owned.slot;
        let before = self.again.remove(&number).filter(|again| again.epoch == slot.epoch);
        let full = self.full.take();
        if slot.counting(|progress| progress.has_waiting()) {
            let (first, longest) = limits::COUNTING_PAUSES;
            let pause = before.map_or(first, |before| longest.min(before.pause * 2));
            let again = Retry { epoch: slot.epoch, at: Instant::now() + pause, pause, full };
            self.again.insert(number, again);
        }
    }
}

impl Counts {
    /// Counts the queues of the slots of this replica, until the service stops.
    pub(crate) async fn count_queues(&self) {
        let (mut counting, mut pause) = (Counting::default(), limits::COUNTING_TICK);
        while self.0.replica.sleep_tick(pause).await {
            pause = match self.count_slots(&mut counting).await {
                Ok(()) => limits::COUNTING_TICK,
                Err(error) => {
                    debug!(%error, "the records of queues that are to be counted are not read");
                    limits::COUNTING_PAUSES.1.min(pause * 2)
                }
            };
            counting.lines.retain(|_, line| !line.is_closed());
        }
    }

    /// Reads all queues that wait to be counted. The names of all slots are read first, so that the number of queues is
    /// known soon.
    async fn count_slots(&self, counting: &mut Counting) -> Result<(), Error> {
        for slot in self.0.slots.owned() {
            let wants_names = slot.counting(|progress| progress.wants_names());
            if wants_names {
                self.list_slot(&slot).await?;
            }
        }
        for slot in self.0.slots.owned() {
            let has_waiting = slot.counting(|progress| progress.has_waiting());
            if has_waiting && counting.is_due(&slot) {
                self.count_slot_queues(&slot, counting).await?;
                counting.note_pass(&slot);
            }
        }
        Ok(())
    }

    /// Reads which queues a slot has. No queue is created or deleted meanwhile.
    async fn list_slot(&self, slot: &Arc<Slot>) -> Result<(), Error> {
        let _roll = slot.roll.lock().await;
        let mut names = Vec::new();
        for project in self.0.replica.catalogue.slot_projects(slot.owned.slot).await? {
            names.extend(self.0.replica.catalogue.project_queues(slot.owned.slot, &project).await?);
        }
        slot.list_queues(names);
        Ok(())
    }

    async fn count_slot_queues(&self, slot: &Arc<Slot>, counting: &mut Counting) -> Result<(), Error> {
        let mut after = None;
        loop {
            if slot.closed.is_cancelled() || self.0.replica.stop.is_cancelled() {
                return Ok(());
            }
            let most = limits::COUNTING_QUEUES - counting.taken;
            let begun = slot.counting(|progress| progress.begin(after.as_ref(), most));
            let Some(last) = begun.last() else { return Ok(()) };
            after = Some(last.clone());
            counting.taken += begun.len();
            let records = self.0.replica.catalogue.queue_records_each(&begun).await;
            let records = records.inspect_err(|_| {
                put_back(slot, begun.iter());
                // The next pass takes these queues again.
                counting.taken -= begun.len();
            })?;
            for (at, record) in begun.into_iter().zip(records) {
                match record {
                    Ok(record) => self.line_up(slot, at, record, counting),
                    Err(error) => {
                        counting.log_unreadable(&at, &error);
                        slot.counting(|progress| progress.give_up(&at));
                    }
                }
            }
            if counting.taken == limits::COUNTING_QUEUES {
                counting.taken = 0;
                self.0.replica.sleep_tick(limits::COUNTING_STEP).await;
            }
        }
    }

    /// Puts a queue into the line of its placement, if there is room.
    fn line_up(&self, slot: &Arc<Slot>, at: QueueRef, record: Option<QueueRecord>, counting: &mut Counting) {
        // The task that deletes the queue reports how many messages are left.
        let Some(record) = record else { return slot.counting(|progress| progress.forget(&at)) };
        // The opening of the queue logs a placement that cannot be read.
        let Ok(placement) = record.placement() else {
            return slot.counting(|progress| progress.give_up(&at));
        };
        if !slot.counting(|progress| progress.identify(&at, record.id)) {
            return;
        }
        let line = counting.lines.entry(placement.clone()).or_insert_with(|| self.begin_line());
        if line.is_closed() {
            *line = self.begin_line();
        }
        let queue = Uncounted { slot: Arc::clone(slot), at, id: record.id, placement };
        if let Err(refused) = line.try_send(queue) {
            let Uncounted { at, placement, .. } = refused.into_inner();
            put_back(slot, [&at].into_iter());
            counting.full = Some(placement);
        }
    }
}
