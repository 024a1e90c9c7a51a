//! The quota ledger: amounts that the projects with quotas hold, by queue and in all. The ledger reads no pool and no
//! tree, and waits for no caller; [`crate::quotas::counting`] reads them for it. A project here is an account with all its
//! regions.
//!
//! ```text
//! reserved ──post settled: the pool's totals hold it, or it was refused──▶ gone
//!     └─────outcome unknown──▶ reserved until the slot is recovered, which tells
//! ```
//!
//! What is added is reserved before it is sent, so that requests at the same time cannot go over a quota together. What
//! is taken away counts until the pool reports it. An entry belongs to the epoch of the slot that made it: the ledger
//! ignores an object of the slot from an earlier epoch.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use angarium_core::error::{Error, Part};
use angarium_core::ids::{QueueId, Slot as SlotNumber};
use angarium_core::names::ProjectId;
use angarium_core::quota::{Amount, Holdings, Quota};
use angarium_storage::{Epoch, Totals};

use crate::ledger::accounts::{Quotas, unbounded};
use crate::limits;

/// The amounts of all projects that were asked about since the start.
pub(crate) struct Ledger {
    state: Mutex<LedgerState>,
    /// The quotas as they are now.
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

/// The lock is held for single entries, within the lock of a slot's state or without it, and never around one.
#[derive(Default)]
struct LedgerState {
    projects: HashMap<ProjectId, Account>,
    /// In order, so that those of a slot lie together.
    queues: BTreeMap<QueueId, Holding>,
}

/// The amounts of a project.
struct Account {
    /// What its queues hold, with what is reserved.
    used: Holdings,
    /// True once every queue that was there was looked at.
    counted: watch::Sender<bool>,
    /// Slots whose queues must be looked at again.
    stale: BTreeSet<SlotNumber>,
}

/// The amounts of a queue.
struct Holding {
    project: ProjectId,
    /// As its pool last said.
    totals: Amount,
    /// What is on its way there.
    reserved: Amount,
    /// Of the slot, when the totals were read.
    epoch: Epoch,
    /// Grows with each look, so that one that took long does not undo another.
    looks: u64,
}

/// How far the counting of a project is.
pub(crate) enum CountState {
    /// All is known.
    Done,
    /// A caller is at it.
    UnderWay(watch::Receiver<bool>),
    /// It is for the caller to do.
    Begun(watch::Receiver<bool>),
}

/// What a pool states that a queue holds after a batch.
pub(crate) struct PoolCount {
    pub(crate) queue: QueueId,
    /// Whose it is; absent when the queue is not open.
    pub(crate) account: Option<ProjectId>,
    /// None when the pool did not say.
    pub(crate) totals: Option<Totals>,
}

/// When the count of a queue began.
#[derive(Clone, Copy)]
pub(crate) struct CountStart {
    /// Of the slot of the queue.
    pub(crate) epoch: Epoch,
    /// Number of looks at the queue before.
    pub(crate) looks: u64,
}

/// Room that was kept for messages of a queue, until their batch had its outcome.
pub(crate) struct EndedReservation {
    pub(crate) queue: QueueId,
    pub(crate) amount: Amount,
}

impl Ledger {
    /// Begins to count a project, or joins the count under way.
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

    /// Every queue of the project was looked at.
    pub(crate) fn end_count(&self, project: &ProjectId) {
        if let Some(account) = self.state.lock().projects.get(project) {
            account.counted.send_replace(true);
        }
    }

    /// What a project holds; none when that is not known.
    pub(crate) fn holdings(&self, project: &ProjectId) -> Option<Holdings> {
        let state = self.state.lock();
        let account = state.projects.get(project).filter(|account| *account.counted.borrow())?;
        Some(account.used)
    }

    /// The projects whose holdings are known.
    pub(crate) fn counted(&self) -> Vec<ProjectId> {
        self.state
            .lock()
            .projects
            .iter()
            .filter(|(_, one)| *one.counted.borrow())
            .map(|one| one.0.clone())
            .collect()
    }

    /// Keeps room for messages. None when it is not known what the project holds.
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

    /// Enters a queue that is about to be created, if the project may have one more.
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

    /// Strikes out a queue that is gone, or never came to be.
    pub(crate) fn remove_queue(&self, queue: QueueId) {
        self.state.lock().remove(queue);
    }

    /// A queue was opened, and its pool fenced before that: nothing of an earlier epoch is under way any more.
    pub(crate) fn opened(&self, project: &ProjectId, queue: QueueId, epoch: Epoch, totals: Totals) {
        self.state.lock().change(project, queue, |holding| {
            if holding.epoch <= epoch {
                holding.learn(epoch, totals);
            }
        });
    }

    /// Which look at a queue was the last.
    pub(crate) fn looks(&self, queue: QueueId) -> u64 {
        self.state.lock().queues.get(&queue).map_or(0, |holding| holding.looks)
    }

    /// Enters the totals that a pool, which was fenced before, reported of a queue. Counts that began later replace an
    /// earlier one. A queue that was deleted since is left out.
    pub(crate) fn found(&self, project: &ProjectId, queue: QueueId, start: CountStart, totals: Totals) {
        let CountStart { epoch, looks } = start;
        let state = &mut *self.state.lock();
        if !state.queues.contains_key(&queue) {
            return;
        }
        state.change(project, queue, |holding| {
            if holding.epoch < epoch || (holding.epoch == epoch && holding.looks == looks) {
                holding.learn(epoch, totals);
            }
        });
    }

    /// A queue is there, and its pool does not say what it holds: it counts as a queue.
    pub(crate) fn exists(&self, project: &ProjectId, queue: QueueId) {
        self.state.lock().change(project, queue, |_| {});
    }

    /// Strikes out the queues of a project in a slot that are not there.
    pub(crate) fn keep_only(&self, project: &ProjectId, slot: SlotNumber, queues: &HashSet<QueueId>) {
        let state = &mut *self.state.lock();
        let gone = state.of_slot(slot);
        let gone = gone.filter(|(id, holding)| holding.project == *project && !queues.contains(id));
        let gone: Vec<QueueId> = gone.map(|(id, _)| *id).collect();
        gone.into_iter().for_each(|id| state.remove(id));
    }

    /// Whether changes of a queue are to be told with the totals that it then has.
    pub(crate) fn keeps(&self, project: Option<&ProjectId>, queue: QueueId) -> bool {
        let state = self.state.lock();
        state.queues.contains_key(&queue)
            || project.is_some_and(|project| state.projects.contains_key(project))
    }

    /// A batch of this epoch has its outcome. `ended` are the reservations that have ended; their messages are in the
    /// totals, or nowhere.
    pub(crate) fn settle(&self, epoch: Epoch, counted: &[PoolCount], ended: &[EndedReservation]) {
        let state = &mut *self.state.lock();
        for PoolCount { queue, account, totals } in counted {
            let known = state.queues.get(queue).map(|holding| holding.project.clone());
            let Some(project) = account.clone().or(known) else { continue };
            match totals {
                Some(totals) => state.change(&project, *queue, |holding| {
                    if holding.epoch <= epoch {
                        holding.learn(epoch, *totals);
                    }
                }),
                None => {
                    // What the batch removed counts until the slot is looked at again.
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

    /// A slot is another replica's: what is there counts there.
    pub(crate) fn left(&self, slot: SlotNumber) {
        let state = &mut *self.state.lock();
        let gone: Vec<QueueId> = state.of_slot(slot).map(|(id, _)| *id).collect();
        gone.into_iter().for_each(|id| state.remove(id));
        for account in state.projects.values_mut() {
            account.stale.remove(&slot);
        }
    }

    /// The queues of a project in a slot are to be looked at again.
    pub(crate) fn make_stale(&self, project: &ProjectId, slot: SlotNumber) {
        self.state.lock().stale(project, slot);
    }

    /// Takes out what must be looked at again. A caller without success puts it back.
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
    /// The queues of a slot: their ids begin with it.
    pub(crate) fn of_slot(&self, slot: SlotNumber) -> impl Iterator<Item = (&QueueId, &Holding)> {
        let (mut first, mut last) = ([0; 16], [u8::MAX; 16]);
        (first[0], last[0]) = (slot.0, slot.0);
        self.queues.range(QueueId::from_bytes(first)..=QueueId::from_bytes(last))
    }

    /// Changes the entry of a queue, and the sums of its project with it. Does nothing for a project without an entry.
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
    /// Before anything is known of the queue.
    pub(crate) fn new(project: ProjectId) -> Self {
        let epoch = Epoch { generation: 0, transaction: 0 };
        Self { project, totals: Amount::default(), reserved: Amount::default(), epoch, looks: 0 }
    }

    pub(crate) fn amount(&self) -> Amount {
        self.totals.plus(self.reserved)
    }

    /// Takes over what the pool states in an epoch. What an earlier epoch reserved is in it, or never arrives.
    pub(crate) fn learn(&mut self, epoch: Epoch, totals: Totals) {
        if self.epoch < epoch {
            (self.epoch, self.reserved) = (epoch, Amount::default());
        }
        self.totals = Amount { messages: totals.messages, bytes: totals.bytes };
        self.looks += 1;
    }
}

/// The answer to a request while it is not known what a project holds.
pub(crate) fn uncounted() -> Error {
    Error::unavailable(Part::Server, "what the project holds is being counted")
}

/// Room that is kept for messages until they are on their way. Dropped before that, it is given back.
pub(crate) struct Reservation {
    /// The account that has the room; none when no caller counts.
    account: Option<ReservedAccount>,
    amount: Amount,
}

/// An account in which room is kept.
struct ReservedAccount {
    ledger: Arc<Ledger>,
    project: ProjectId,
}

impl Reservation {
    /// For messages that no caller counts.
    pub(crate) fn none() -> Self {
        Self { account: None, amount: Amount::default() }
    }

    /// Enters the messages as on their way to a queue. Returns what is to be ended when their batch is settled.
    pub(crate) fn bind(mut self, queue: QueueId, epoch: Epoch) -> Amount {
        let Some(account) = self.account.take() else { return Amount::default() };
        let ReservedAccount { ledger, project } = account;
        let state = &mut *ledger.state.lock();
        state.change(&project, queue, |holding| {
            if holding.epoch < epoch {
                (holding.epoch, holding.reserved) = (epoch, Amount::default());
            }
            holding.reserved = holding.reserved.plus(self.amount);
        });
        state.give_back(&project, self.amount);
        self.amount
    }
}

impl LedgerState {
    /// Takes what is not on its way to any queue out of the sum of a project.
    fn give_back(&mut self, project: &ProjectId, amount: Amount) {
        if let Some(account) = self.projects.get_mut(project) {
            account.used.amount = account.used.amount.minus(amount);
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(ReservedAccount { ledger, project }) = self.account.take() {
            ledger.state.lock().give_back(&project, self.amount);
        }
    }
}

#[cfg(test)]
mod tests;
