//! The storage of a simulated pool: its data, the rules of writes, and the switches of the simulation's controller.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;

use angarium_core::durability::Durability;
use angarium_core::ids::{MessageId, QueueId, Slot};
use angarium_storage::{Batch, DropResult, Epoch, Stamp, StoreError, Usage};
use angarium_testbed::naive::{Answer, NaivePool, NaiveQueue};

use super::lines;
use super::plans::Plans;
use crate::faults::Fault;
use crate::world::World;

/// Bytes of bodies that a storage has room for, as its health reports. Only the controller makes a storage full.
pub const CAPACITY: u64 = 1 << 30;

/// The data of a simulated pool. It lives longer than the processes that use it. Clones share it.
#[derive(Clone)]
pub struct Storage(Arc<Inner>);

struct Inner {
    name: String,
    class: Durability,
    world: World,
    /// Held for one call.
    state: Mutex<State>,
    /// The messages in answers that are late. Held for a read or a write of some elements.
    late: Mutex<BTreeSet<MessageId>>,
    plans: Plans,
}

/// An answer that is late, with its messages. It has arrived when this is dropped.
pub(super) struct LateAnswer {
    storage: Storage,
    ids: Vec<MessageId>,
}

impl Drop for LateAnswer {
    fn drop(&mut self) {
        self.storage.0.late.lock().retain(|id| !self.ids.contains(id));
    }
}

#[derive(Default)]
struct State {
    data: Data,
    /// The data at the last synced write; none when no later write is unsynced.
    durable: Option<Data>,
    stamp: Option<Stamp>,
    /// Number of all fences. A fail-over does not undo it, so no two numberings are the same.
    fences: u64,
    is_full: bool,
    is_down: bool,
}

/// What a fail-over can undo.
#[derive(Clone, Default)]
struct Data {
    pool: NaivePool,
    numberings: BTreeMap<Slot, Numbering>,
}

/// Identifies the numbering of batches that one fence began. It distinguishes fences with the same epoch: a late batch
/// of the old numbering is never taken for one of the new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Numbering(u64);

/// The data of a storage at one instant, for judges.
#[derive(Clone, Debug, Default)]
pub struct PoolSnapshot {
    /// The entries and notes of each queue that has any.
    pub queues: BTreeMap<QueueId, NaiveQueue>,
}

/// The switches of the simulation's controller.
impl Storage {
    /// Returns an empty storage.
    pub(super) fn new(world: World, name: &str, class: Durability) -> Self {
        let (state, late, plans) = (Mutex::default(), Mutex::default(), Plans::new(world.clone()));
        Self(Arc::new(Inner { name: name.to_owned(), class, world, state, late, plans }))
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the most durable class of writes that the storage reaches.
    pub fn class(&self) -> Durability {
        self.0.class
    }

    /// Returns the planned faults.
    pub fn plans(&self) -> &Plans {
        &self.0.plans
    }

    /// Notes that an answer with these messages is late.
    pub(super) fn delay_answer(&self, ids: Vec<MessageId>) -> LateAnswer {
        self.0.late.lock().extend(&ids);
        LateAnswer { storage: self.clone(), ids }
    }

    /// Whether a message is in an answer that is late.
    pub fn is_in_late_answer(&self, id: MessageId) -> bool {
        self.0.late.lock().contains(&id)
    }

    /// Sets whether batches with new messages or results are refused.
    pub fn set_full(&self, is_full: bool) {
        self.0.state.lock().is_full = is_full;
        self.note(|| format!("full {is_full}"));
    }

    /// Sets whether no server answers. Requests that arrive meanwhile change nothing.
    pub fn set_down(&self, is_down: bool) {
        self.0.state.lock().is_down = is_down;
        self.note(|| format!("down {is_down}"));
    }

    /// Returns whether no server answers.
    pub fn is_down(&self) -> bool {
        self.0.state.lock().is_down
    }

    /// Fails over to a server without the unsynced writes. Returns whether there were any; then the fault is counted.
    pub fn roll_back(&self) -> bool {
        let mut state = self.0.state.lock();
        let Some(durable) = state.durable.take() else { return false };
        state.data = durable;
        drop(state);
        self.note(|| "rolled back".into());
        self.0.world.count(Fault::PoolRolledBack);
        true
    }

    /// Returns the data for judges.
    pub fn snapshot(&self) -> PoolSnapshot {
        let state = self.0.state.lock();
        let has_data = |held: &NaiveQueue| !held.entries.is_empty() || !held.notes.is_empty();
        let queues = state.data.pool.queues().iter().filter(|(_, held)| has_data(held));
        PoolSnapshot { queues: queues.map(|(queue, held)| (*queue, held.clone())).collect() }
    }

    fn note(&self, event: impl FnOnce() -> String) {
        self.0.world.note(|| format!("pool {} {}", self.0.name, event()));
    }
}

/// The calls of processes. Each is carried out in one step.
impl Storage {
    /// Fences a slot. Returns the greatest id that was ever appended to it, and the new numbering.
    pub(super) fn fence(
        &self,
        process: &str,
        slot: Slot,
        epoch: Epoch,
    ) -> Result<(MessageId, Numbering), StoreError> {
        let fence = |state: &mut State| {
            let last = state.data.pool.fence(slot, epoch).map_err(refused)?;
            state.fences += 1;
            let numbering = Numbering(state.fences);
            state.data.numberings.insert(slot, numbering);
            state.durable = None;
            Ok((last, numbering))
        };
        let line = || format!("fence by {process} slot {slot} epoch {}", lines::epoch(epoch));
        self.write(line, fence)
    }

    /// Applies a batch. `own` is the numbering that the process began when it fenced the slot.
    pub(super) fn commit(
        &self,
        process: &str,
        batch: &Batch,
        own: Option<Numbering>,
    ) -> Result<(), StoreError> {
        self.write(
            || format!("commit by {process} {}", lines::batch(batch)),
            |state| self.apply(state, process, batch, own),
        )
    }

    fn apply(
        &self,
        state: &mut State,
        process: &str,
        batch: &Batch,
        own: Option<Numbering>,
    ) -> Result<(), StoreError> {
        let is_synced = self.0.class.max(batch.durability) == Durability::Sync;
        match state.answer_without_change(batch, own) {
            Some(Answer::Done) => {
                self.note(|| format!("repetition by {process} slot {} seq {}", batch.slot, batch.seq));
            }
            Some(answer) => return Err(refused(answer)),
            None if state.is_full && batch.needs_room() => return Err(StoreError::Full),
            None => {
                self.check_durability(process, batch);
                if !is_synced {
                    state.durable.get_or_insert_with(|| state.data.clone());
                }
                let answer = match self.check_hints(state, process, batch) {
                    HintCheck::Right => state.data.pool.commit(batch),
                    HintCheck::Wrong => state.data.pool.commit(&without_hints(batch)),
                };
                assert_eq!(answer, Answer::Done, "the next batch is applied");
            }
        }
        if is_synced {
            state.durable = None;
        }
        Ok(())
    }

    /// Records a violation if a batch stores messages in transfer and need not be synced: the other queue may have them
    /// before this storage loses them.
    fn check_durability(&self, process: &str, batch: &Batch) {
        let mut appends = batch.queues.iter().flat_map(|queue| &queue.changes.appends);
        let has_transfer = appends.any(|message| message.header.state.is_in_transfer());
        if has_transfer && batch.durability != Durability::Sync {
            let Batch { slot, seq, .. } = batch;
            self.0.world.violation(format!(
                "pool {}: {process} need not sync messages in transfer in slot {slot} seq {seq}",
                self.0.name
            ));
        }
    }

    /// Records a violation for each wrong hint of a batch.
    fn check_hints(&self, state: &State, process: &str, batch: &Batch) -> HintCheck {
        let (queues, empty) = (state.data.pool.queues(), NaiveQueue::default());
        let mut check = HintCheck::Right;
        for changes in &batch.queues {
            let held = queues.get(&changes.queue).unwrap_or(&empty);
            for hint in changes.changes.remove_hints.iter().filter(|hint| !held.is_right(hint)) {
                check = HintCheck::Wrong;
                let Batch { slot, seq, .. } = batch;
                let entry = held.entries.get(&hint.id).map(|entry| &entry.header);
                self.0.world.violation(format!(
                    "pool {}: {process} gave a wrong hint in slot {slot} seq {seq}: {hint:?}, stored: {entry:?}",
                    self.0.name
                ));
            }
        }
        check
    }

    /// Removes a part of a queue.
    pub(super) fn drop_queue(
        &self,
        process: &str,
        (slot, epoch): (Slot, Epoch),
        queue: QueueId,
        limit: usize,
    ) -> Result<DropResult, StoreError> {
        let drop_part = |state: &mut State| {
            match state.data.pool.epoch(slot) {
                Some(stored) if stored == epoch => {}
                Some(stored) if stored > epoch => return Err(StoreError::Fenced(stored)),
                Some(_) | None => return Err(StoreError::WentBack),
            }
            let result = state.data.pool.drop_entries(queue, limit);
            state.durable = None;
            Ok(result)
        };
        let of = lines::queue(queue);
        let line = || format!("drop by {process} {of} epoch {} limit {limit}", lines::epoch(epoch));
        self.write(line, drop_part)
    }

    /// Writes the stamp if there is none. Returns the stamp after that.
    pub(super) fn put_stamp(&self, process: &str, stamp: Stamp) -> Result<Stamp, StoreError> {
        let line = || format!("stamp by {process} {}", stamp.pool.simple());
        self.write(line, |state| Ok(*state.stamp.get_or_insert(stamp)))
    }

    fn write<T>(
        &self,
        line: impl FnOnce() -> String,
        write: impl FnOnce(&mut State) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut state = self.0.state.lock();
        let result = if state.is_down {
            // The connection ends without an answer.
            Err(StoreError::Unknown("the storage went down".into()))
        } else {
            write(&mut state)
        };
        drop(state);
        self.note(|| format!("{}: {}", line(), lines::outcome(&result)));
        result
    }

    /// Reads the stamp.
    pub(super) fn stamp(&self) -> Result<Option<Stamp>, StoreError> {
        let state = self.0.state.lock();
        if state.is_down { Err(went_down()) } else { Ok(state.stamp) }
    }

    /// Reads the free bytes.
    pub(super) fn free(&self) -> Result<u64, StoreError> {
        let state = self.0.state.lock();
        match (state.is_down, state.is_full) {
            (true, _) => Err(went_down()),
            (false, true) => Ok(0),
            (false, false) => Ok(CAPACITY.saturating_sub(usage(&state.data.pool).bytes)),
        }
    }

    /// Reads the data. `count` returns the number of results for the trace.
    pub(super) fn read<T>(
        &self,
        line: &str,
        read: impl FnOnce(&NaivePool) -> T,
        count: impl FnOnce(&T) -> usize,
    ) -> Result<T, StoreError> {
        let state = self.0.state.lock();
        if state.is_down {
            return Err(went_down());
        }
        let results = read(&state.data.pool);
        drop(state);
        self.note(|| format!("{line}: {}", count(&results)));
        Ok(results)
    }
}

/// Result of the comparison of hints with the stored entries.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HintCheck {
    Right,
    Wrong,
}

impl State {
    /// The answer to a batch that changes nothing; none for the next batch of its slot.
    fn answer_without_change(&self, batch: &Batch, own: Option<Numbering>) -> Option<Answer> {
        let stored = self.data.numberings.get(&batch.slot).copied();
        let is_other = own.is_some() && own != stored;
        match self.data.pool.answer_without_change(batch) {
            Some(Answer::Fenced(by)) => Some(Answer::Fenced(by)),
            _ if is_other => Some(Answer::WentBack),
            answer => answer,
        }
    }
}

/// Sums the totals of all queues with entries.
pub(super) fn usage(pool: &NaivePool) -> Usage {
    let mut usage = Usage::default();
    for totals in pool.queues().values().map(NaiveQueue::totals).filter(|totals| totals.messages > 0) {
        usage.queues += 1;
        usage.messages += totals.messages;
        usage.bytes += totals.bytes;
    }
    usage
}

fn without_hints(batch: &Batch) -> Batch {
    let mut batch = batch.clone();
    batch.queues.iter_mut().for_each(|queue| queue.changes.remove_hints.clear());
    batch
}

/// The error for a refusal.
fn refused(answer: Answer) -> StoreError {
    match answer {
        Answer::Fenced(by) => StoreError::Fenced(by),
        Answer::Stale => StoreError::Stale,
        Answer::WentBack => StoreError::WentBack,
        Answer::Done => StoreError::Damaged("a call that is done was not refused".into()),
    }
}

/// The error for a read of a storage that does not answer.
fn went_down() -> StoreError {
    StoreError::NotSent("the storage went down".into())
}
