//! The quota ledger: amounts that the projects with quotas hold, by queue and in total. The ledger reads no pool and no
//! tree, and waits for no caller; [`crate::quotas::counting`] reads the amounts for it. A project here is an account
//! with all its regions.
//!
//! ```text
//! reserved ──post settled: the pool's totals include it, or it was refused──▶ removed
//!     └─────outcome unknown──▶ reserved until the slot is recovered and its totals are read
//! ```
//!
//! Amounts are reserved before they are sent, so that concurrent requests cannot exceed a quota together. Removed
//! messages count until the pool reports the new totals. An entry belongs to the epoch of the slot that made it: the
//! ledger ignores an object of the slot from an earlier epoch.
//!
//! A body that a message and its copies for subscriptions share counts once, in the entry of their source, until the
//! last of them is removed: so a change of a subscription may change the entry of its source.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use angarium_core::error::{Error, Part};
use angarium_core::ids::{QueueId, Slot as SlotNumber};
use angarium_core::maps::{HashMap, HashSet};
use angarium_core::names::ProjectId;
use angarium_core::quota::{Amount, Holdings, Quota};
use angarium_storage::{Epoch, Totals};

use crate::ledger::accounts::{Quotas, unbounded};
pub(crate) use crate::ledger::quota_ledger::reservation::Reservation;
use crate::ledger::quota_ledger::reservation::ReservedAccount;
use crate::limits;

mod reservation;

/// The amounts of all projects that were requested since the start.
pub(crate) struct Ledger {
    state: Mutex<LedgerState>,
    /// The current quotas.
    pub(crate) quotas: Quotas,
}

impl Default for Ledger {
    fn default() -> Self {
        Self::new(unbounded())
    }
}

impl Ledger {
    pub(crate) fn new(quotas: Quotas) -> Self {
        Self { state: Mutex::default(), quotas }
    }
}

/// Its lock is held for single entries, inside the lock of a slot's state or without it. No other lock is taken inside.
#[derive(Default)]
struct LedgerState {
    projects: HashMap<ProjectId, Account>,
    /// In order, so that the queues of one slot are adjacent.
    queues: BTreeMap<QueueId, Holding>,
}

/// The amounts of a project.
struct Account {
    /// The holdings of its queues, with reserved amounts.
    used: Holdings,
    /// True once every queue that existed was read.
    counted: watch::Sender<bool>,
    /// Slots whose queues must be read again.
    stale: BTreeSet<SlotNumber>,
}

/// The amounts of a queue.
struct Holding {
    project: ProjectId,
    /// The totals that its pool reported last.
    totals: Amount,
    /// Amounts reserved for messages that are being sent to it.
    reserved: Amount,
    /// The epoch of the slot when the totals were read.
    epoch: Epoch,
    /// Number of reads of its totals, and of removals beside them, so that a slow read does not overwrite a later one.
    looks: u64,
    /// Number of these that followed a batch, and of the removals.
    settles: u64,
    /// Bytes of the shared bodies of its messages.
    shared: u64,
    /// Bytes of the shared bodies that count in this entry.
    lent: u64,
    /// Whether it may be in two pools while it is not open, as far as this epoch knows.
    may_be_divided: bool,
}

/// State of the count of a project.
pub(crate) enum CountState {
    /// All amounts are known.
    Done,
    /// Another caller is counting.
    UnderWay(watch::Receiver<bool>),
    /// The caller must count.
    Begun(watch::Receiver<bool>),
}

/// The totals of a queue that a pool reported after a batch.
pub(crate) struct PoolCount {
    pub(crate) queue: QueueId,
    /// The account of the queue; none when the queue is not open, or is the source of a changed subscription. Then the
    /// ledger ignores the totals of a queue without an entry, which may have been deleted since.
    pub(crate) account: Option<ProjectId>,
    /// None when the pool did not report them.
    pub(crate) totals: Option<Totals>,
    /// Number of batches whose totals were entered before this read began.
    pub(crate) settles: u64,
    /// Whether all pools of the queue were read. Those of a queue that is not open are not known: the pool of the batch
    /// was read, and the queue may be in another one too.
    pub(crate) is_whole: bool,
}

/// When the count of a queue began.
#[derive(Clone, Copy)]
pub(crate) struct CountStart {
    /// The epoch of the slot of the queue.
    pub(crate) epoch: Epoch,
    /// Number of earlier reads of the totals of the queue.
    pub(crate) looks: u64,
    /// Whether the queue was in two pools.
    pub(crate) is_divided: bool,
}

/// Returns the amount that a queue counts in its quota.
pub(crate) fn quota_amount(totals: &Totals) -> Amount {
    Amount { messages: totals.messages, bytes: totals.stored() }
}

/// A reservation for messages of a queue whose batch has its outcome.
pub(crate) struct EndedReservation {
    pub(crate) queue: QueueId,
    pub(crate) amount: Amount,
}

impl Ledger {
    /// Begins to count a project, or joins a count in progress.
    pub(crate) fn begin_count(&self, project: &ProjectId) -> CountState {
        let state = &mut *self.state.lock();
        if let Some(account) = state.projects.get(project) {
            let counted = account.counted.subscribe();
            return if *account.counted.borrow() { CountState::Done } else { CountState::UnderWay(counted) };
        }
        if state.projects.len() >= limits::COUNTED_PROJECTS {
            let is_idle =
                |account: &Account| account.used == Holdings::default() && *account.counted.borrow();
            state.projects.retain(|_, account| !is_idle(account));
        }
        let counted = watch::Sender::new(false);
        let receiver = counted.subscribe();
        let (used, stale) = (Holdings::default(), BTreeSet::new());
        state.projects.insert(project.clone(), Account { used, counted, stale });
        CountState::Begun(receiver)
    }

    /// Records that every queue of the project was read.
    pub(crate) fn end_count(&self, project: &ProjectId) {
        if let Some(account) = self.state.lock().projects.get(project) {
            account.counted.send_replace(true);
        }
    }

    /// Returns the holdings of a project; none when they are not known.
    pub(crate) fn holdings(&self, project: &ProjectId) -> Option<Holdings> {
        let state = self.state.lock();
        let account = state.projects.get(project).filter(|account| *account.counted.borrow())?;
        Some(account.used)
    }

    /// Returns the projects whose holdings are known.
    pub(crate) fn counted(&self) -> Vec<ProjectId> {
        self.state
            .lock()
            .projects
            .iter()
            .filter(|(_, one)| *one.counted.borrow())
            .map(|one| one.0.clone())
            .collect()
    }

    /// Reserves an amount for messages. Returns none when the holdings of the project are not known.
    ///
    /// # Errors
    ///
    /// When the amount would exceed the quota.
    pub(crate) fn reserve(
        self: &Arc<Self>,
        project: &ProjectId,
        quota: &Quota,
        more: Amount,
    ) -> Result<Option<Reservation>, Error> {
        let mut state = self.state.lock();
        let account = state.projects.get_mut(project).filter(|account| *account.counted.borrow());
        let Some(account) = account else { return Ok(None) };
        quota.check_messages(account.used, more)?;
        account.used.amount = account.used.amount.plus(more);
        let ledger = Arc::clone(self);
        Ok(Some(Reservation {
            account: Some(ReservedAccount { ledger, project: project.clone() }),
            amount: more,
        }))
    }

    /// Enters a queue that is about to be created, if the quota of the project allows one more.
    pub(crate) fn add_queue(
        &self,
        project: &ProjectId,
        quota: &Quota,
        queue: QueueId,
        epoch: Epoch,
    ) -> Result<(), Error> {
        let state = &mut *self.state.lock();
        match state.projects.get(project) {
            Some(account) => quota.check_queue(account.used)?,
            None if quota.is_bounded() => return Err(uncounted()),
            None => return Ok(()),
        }
        state.change(project, queue, |holding| holding.epoch = epoch);
        Ok(())
    }

    /// Removes the entry of a queue that was deleted, or that was not created after all.
    pub(crate) fn remove_queue(&self, queue: QueueId) {
        self.state.lock().remove(queue);
    }

    /// Enters the totals of a queue that was opened. Its pool was fenced before that, so no write of an earlier epoch
    /// is in progress any more. They are ignored if another read has entered totals since this one began: that of a
    /// batch of a subscription may be later.
    pub(crate) fn opened(&self, project: &ProjectId, queue: QueueId, start: CountStart, totals: Totals) {
        self.state.lock().learn_since(project, queue, start, totals);
    }

    /// Returns the number of reads of the totals of a queue.
    pub(crate) fn looks(&self, queue: QueueId) -> u64 {
        self.state.lock().queues.get(&queue).map_or(0, |holding| holding.looks)
    }

    /// Returns the number of batches whose totals of a queue were entered.
    pub(crate) fn settles(&self, queue: QueueId) -> u64 {
        self.state.lock().queues.get(&queue).map_or(0, |holding| holding.settles)
    }

    /// Enters totals of a queue that its pool, fenced before, reported. They are ignored if another read has entered
    /// totals since this one began, or if the queue was deleted.
    pub(crate) fn found(&self, project: &ProjectId, queue: QueueId, start: CountStart, totals: Totals) {
        let state = &mut *self.state.lock();
        if state.queues.contains_key(&queue) {
            state.learn_since(project, queue, start, totals);
        }
    }

    /// Enters a queue that exists and whose pool does not report its totals: it counts as a queue.
    pub(crate) fn exists(&self, project: &ProjectId, queue: QueueId) {
        self.state.lock().change(project, queue, |_| {});
    }

    /// Removes the entries of a project's queues in a slot that do not exist any more.
    pub(crate) fn keep_only(&self, project: &ProjectId, slot: SlotNumber, queues: &HashSet<QueueId>) {
        let state = &mut *self.state.lock();
        let gone = state.of_slot(slot);
        let gone = gone.filter(|(id, holding)| holding.project == *project && !queues.contains(id));
        let gone: Vec<QueueId> = gone.map(|(id, _)| *id).collect();
        gone.into_iter().for_each(|id| state.remove(id));
    }

    /// Whether the writer must report the totals of a queue after its changes.
    pub(crate) fn keeps(&self, project: Option<&ProjectId>, queue: QueueId) -> bool {
        let state = self.state.lock();
        state.queues.contains_key(&queue)
            || project.is_some_and(|project| state.projects.contains_key(project))
    }

    /// Enters the outcome of a batch of this epoch. `ended` are the reservations of its messages: these are in the
    /// totals, or were not written. A queue in two pools has two slot writers: totals that one read while those of the
    /// other were entered may be the older ones, and then the slot is read again. The slot is also read again when the
    /// read may lack a pool, and when a queue that is not open has lost readers of shared bodies: that may be the queue
    /// of a subscription, whose source is not known then.
    pub(crate) fn settle(&self, epoch: Epoch, counted: &[PoolCount], ended: &[EndedReservation]) {
        let state = &mut *self.state.lock();
        for PoolCount { queue, account, totals, settles, is_whole } in counted {
            let known = state.queues.get(queue);
            let is_latest = known.is_none_or(|holding| holding.epoch != epoch || holding.settles == *settles);
            let is_in_one = known.is_some_and(|holding| holding.epoch == epoch && !holding.may_be_divided);
            let shared = known.map_or(0, |holding| holding.shared);
            let known = known.map(|holding| holding.project.clone());
            let Some(project) = account.clone().or(known) else { continue };
            match totals.filter(|_| is_latest && (*is_whole || is_in_one)) {
                Some(totals) => {
                    state.change(&project, *queue, |holding| {
                        if holding.epoch <= epoch {
                            holding.learn(epoch, totals);
                            holding.settles += 1;
                        }
                    });
                    if !is_whole && totals.shared < shared {
                        state.stale(&project, queue.slot());
                    }
                }
                None => {
                    // Messages that the batch removed count until the slot is read again.
                    let arrived = ended.iter().filter(|ended| ended.queue == *queue);
                    let arrived = arrived.fold(Amount::default(), |sum, one| sum.plus(one.amount));
                    state.change(&project, *queue, |holding| holding.totals = holding.totals.plus(arrived));
                    state.stale(&project, queue.slot());
                }
            }
        }
        for EndedReservation { queue, amount } in ended {
            let Some(holding) = state.queues.get(queue).filter(|holding| holding.epoch == epoch) else {
                continue;
            };
            let project = holding.project.clone();
            state.change(&project, *queue, |holding| holding.reserved = holding.reserved.minus(*amount));
        }
    }

    /// Notes that a slot was recovered: the entries of its queues may be incomplete.
    pub(crate) fn taken(&self, slot: SlotNumber) {
        for account in self.state.lock().projects.values_mut() {
            account.stale.insert(slot);
        }
    }

    /// Removes the entries of a slot that another replica serves now: its queues count there.
    pub(crate) fn left(&self, slot: SlotNumber) {
        let state = &mut *self.state.lock();
        let gone: Vec<QueueId> = state.of_slot(slot).map(|(id, _)| *id).collect();
        gone.into_iter().for_each(|id| state.remove(id));
        for account in state.projects.values_mut() {
            account.stale.remove(&slot);
        }
    }

    /// Marks the projects to be read again that may count shared bodies in a slot: some may have lost their last
    /// readers. A queue whose totals were not read in this epoch may count some. A read of such a queue that has begun
    /// may be older than that, and is ignored.
    pub(crate) fn make_lenders_stale(&self, slot: SlotNumber, epoch: Epoch) {
        let state = &mut *self.state.lock();
        let mut projects = HashSet::default();
        for (_, holding) in state.queues.range_mut(ids_of_slot(slot)) {
            if holding.lent > 0 || holding.epoch < epoch {
                (holding.looks, holding.settles) = (holding.looks + 1, holding.settles + 1);
                projects.insert(holding.project.clone());
            }
        }
        projects.iter().for_each(|project| state.stale(project, slot));
    }

    /// Marks a queue to be read again whose pool has corrected its totals.
    pub(crate) fn corrected(&self, queue: QueueId) {
        let state = &mut *self.state.lock();
        if let Some(project) = state.queues.get(&queue).map(|holding| holding.project.clone()) {
            state.stale(&project, queue.slot());
        }
    }

    /// Marks the queues of a project in a slot to be read again.
    pub(crate) fn make_stale(&self, project: &ProjectId, slot: SlotNumber) {
        self.state.lock().stale(project, slot);
    }

    /// Takes the projects and slots that must be read again. A caller that fails puts them back.
    pub(crate) fn take_stale(&self) -> Vec<(ProjectId, SlotNumber)> {
        let mut state = self.state.lock();
        let counted = state.projects.iter_mut().filter(|(_, account)| *account.counted.borrow());
        let slots = counted.flat_map(|(project, account)| {
            let slots = std::mem::take(&mut account.stale);
            slots.into_iter().map(|slot| (project.clone(), slot))
        });
        slots.collect()
    }
}

impl LedgerState {
    /// Returns the queues of a slot.
    pub(crate) fn of_slot(&self, slot: SlotNumber) -> impl Iterator<Item = (&QueueId, &Holding)> {
        self.queues.range(ids_of_slot(slot))
    }

    /// Changes the entry of a queue and the sums of its project. Does nothing for a project without an entry.
    pub(crate) fn change(&mut self, project: &ProjectId, queue: QueueId, change: impl FnOnce(&mut Holding)) {
        let Some(account) = self.projects.get_mut(project) else { return };
        let used = &mut account.used;
        let holding = self.queues.entry(queue).or_insert_with(|| {
            used.queues += 1;
            Holding::new(project.clone())
        });
        let before = holding.amount();
        change(holding);
        used.amount = used.amount.minus(before).plus(holding.amount());
    }

    /// Enters totals of a queue whose read began at `start`. Totals that may be too old are read again.
    fn learn_since(&mut self, project: &ProjectId, queue: QueueId, start: CountStart, totals: Totals) {
        let mut is_doubtful = false;
        self.change(project, queue, |holding| is_doubtful = holding.learn_since(start, totals));
        if is_doubtful {
            self.stale(project, queue.slot());
        }
    }

    pub(crate) fn remove(&mut self, queue: QueueId) {
        let Some(holding) = self.queues.remove(&queue) else { return };
        if let Some(account) = self.projects.get_mut(&holding.project) {
            account.used.queues = account.used.queues.saturating_sub(1);
            account.used.amount = account.used.amount.minus(holding.amount());
        }
    }

    fn stale(&mut self, project: &ProjectId, slot: SlotNumber) {
        if let Some(account) = self.projects.get_mut(project) {
            account.stale.insert(slot);
        }
    }
}

impl Holding {
    /// Returns the entry of a queue of which nothing is known.
    pub(crate) fn new(project: ProjectId) -> Self {
        let epoch = Epoch { generation: 0, transaction: 0 };
        let (totals, reserved) = (Amount::default(), Amount::default());
        let (looks, settles, shared, lent) = (0, 0, 0, 0);
        Self { project, totals, reserved, epoch, looks, settles, shared, lent, may_be_divided: true }
    }

    pub(crate) fn amount(&self) -> Amount {
        self.totals.plus(self.reserved)
    }

    /// Takes over the totals that the pool reported in an epoch.
    pub(crate) fn learn(&mut self, epoch: Epoch, totals: Totals) {
        self.enter_epoch(epoch);
        self.totals = quota_amount(&totals);
        (self.shared, self.lent) = (totals.shared, totals.lent);
        self.looks += 1;
    }

    /// As `learn`, unless another read has entered totals since this one began, or this one may be too old. The first
    /// ones of an epoch are entered all the same: returns whether these may be too old.
    fn learn_since(&mut self, start: CountStart, totals: Totals) -> bool {
        let CountStart { epoch, looks, is_divided } = start;
        if self.epoch > epoch {
            return false;
        }
        let (is_first, is_latest) = (self.epoch < epoch, self.looks == looks);
        if is_first || is_latest {
            self.learn(epoch, totals);
        }
        self.may_be_divided = is_divided;
        is_first && !is_latest
    }

    /// Begins an epoch, if it is a later one. Amounts that an earlier epoch reserved are in the totals of this one, or
    /// were not written.
    fn enter_epoch(&mut self, epoch: Epoch) {
        if self.epoch < epoch {
            (self.epoch, self.reserved, self.may_be_divided) = (epoch, Amount::default(), true);
        }
    }
}

/// The ids of the queues of a slot, which begin with its number.
fn ids_of_slot(slot: SlotNumber) -> RangeInclusive<QueueId> {
    let (mut first, mut last) = ([0; 16], [u8::MAX; 16]);
    (first[0], last[0]) = (slot.0, slot.0);
    QueueId::from_bytes(first)..=QueueId::from_bytes(last)
}

/// Returns the error for a request while the holdings of its project are not known.
pub(crate) fn uncounted() -> Error {
    Error::unavailable(Part::Server, "what the project holds is being counted")
}

#[cfg(test)]
mod tests;
