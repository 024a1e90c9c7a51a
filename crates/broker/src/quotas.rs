//! Quotas: what a project may hold, counted where that is decided. The books are kept by [`super::ledger`]. Those of the
//! projects of an account, one for each region, are kept together: see [`super::regional_projects`].
//!
//! A project is counted when it is first asked for: its queues are listed, and each pool is asked for their totals. From
//! then on every batch brings the totals that its queues then have, so that nothing is ever counted message by message
//! and nothing drifts. Projects without a quota are not counted and cost nothing.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::future::join_all;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;
use tracing::debug;

use super::Broker;
use super::ledger::{CountState, PoolCount, Reservation, uncounted};
use super::queue_store::QueueStore;
use super::slot::Slot;
use angarium_catalogue::Placement;
use angarium_cluster::peer_client::{HOLDINGS, HoldingsRequest, HoldingsResponse};
use angarium_core::error::Error;
use angarium_core::ids::{QueueId, Slot as SlotNumber};
use angarium_core::limits;
use angarium_core::names::{PoolName, ProjectId, QueueName, QueueRef};
use angarium_core::quota::{Amount, Holdings, Quota, QuotaTable};

/// The quotas as they are now.
pub type Quotas = watch::Receiver<Arc<QuotaTable>>;

/// How often a post looks again when the books of its project were closed meanwhile.
const RESERVE_TRIES: usize = 4;

/// What a project holds, beside what it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaView {
    /// What it may hold.
    pub quota: Quota,
    /// What it holds. There are no books for a project without a quota, so each request counts it: none when it has more
    /// queues than [`limits::COUNTED_QUEUES`], or is not counted within [`limits::HEALTH_DEADLINE`].
    pub used: Option<Holdings>,
}

/// Quotas that bound no caller.
pub(super) fn unbounded() -> Quotas {
    watch::Sender::new(Arc::default()).subscribe()
}

impl Broker {
    /// What a project may hold and does hold, in the slots of all replicas.
    pub async fn quota(&self, project: &ProjectId) -> Result<QuotaView, Error> {
        let mut view = self.local_quota(project).await?;
        let Some(used) = &mut view.used else {
            view.used = self.count_without_books(project).await?;
            return Ok(view);
        };
        let question = HoldingsRequest { project: project.to_string() };
        for owner in self.0.slot_table.others() {
            let there: HoldingsResponse =
                self.peer_client()?.ask(&owner.address, HOLDINGS, &question).await?;
            used.queues += there.queues;
            used.amount = used.amount.plus(Amount { messages: there.messages, bytes: there.bytes });
        }
        Ok(view)
    }

    /// Counts what a project holds, in all its queues at all replicas.
    async fn count_without_books(&self, project: &ProjectId) -> Result<Option<Holdings>, Error> {
        let _turn = self.0.listing_turns.take(project, self.accounts()).await?;
        match timeout(limits::HEALTH_DEADLINE, self.try_count_without_books(project)).await {
            Ok(Ok(used)) => Ok(used),
            Ok(Err(error)) => {
                debug!(%error, "project totals not counted");
                Ok(None)
            }
            Err(_) => Ok(None),
        }
    }

    async fn try_count_without_books(&self, project: &ProjectId) -> Result<Option<Holdings>, Error> {
        self.0.catalogue.catch_up().await?;
        let (mut used, mut left) = (Holdings::default(), limits::COUNTED_QUEUES);
        // What it holds counts for its account, as with a quota.
        for project in self.projects_of_account(&self.account_of(project)).await? {
            if !self.count_project(&project, &mut used, &mut left).await? {
                return Ok(None);
            }
        }
        Ok(Some(used))
    }

    /// Adds what a project holds. Whether it was counted whole: not beyond so many queues as are `left`.
    async fn count_project(
        &self,
        project: &ProjectId,
        used: &mut Holdings,
        left: &mut usize,
    ) -> Result<bool, Error> {
        let mut names = self.0.catalogue.queue_names(project, None);
        while let Some(batch) = names.next().await? {
            let Some(rest) = left.checked_sub(batch.len()) else { return Ok(false) };
            *left = rest;
            for some in batch.chunks(limits::COUNT_AT_ONCE) {
                let queue = |name: &QueueName| QueueRef { project: project.clone(), name: name.clone() };
                let queues: Vec<QueueRef> = some.iter().map(queue).collect();
                let records = self.0.catalogue.queue_records(&queues).await?;
                let counted = records.into_iter().flatten().map(async |record| {
                    self.store_at(&record.placement()?, TaskTracker::new().token())?.totals(record.id).await
                });
                for totals in join_all(counted).await {
                    let totals = totals?;
                    used.queues += 1;
                    let more = Amount { messages: totals.messages, bytes: totals.bytes };
                    used.amount = used.amount.plus(more);
                }
            }
        }
        Ok(true)
    }

    /// What a project holds in the slots that are served here.
    pub async fn local_holdings(&self, question: &HoldingsRequest) -> Result<HoldingsResponse, Error> {
        let view = self.local_quota(&ProjectId::new(&question.project)?).await?;
        let Holdings { queues, amount } = view.used.unwrap_or_default();
        Ok(HoldingsResponse { queues, messages: amount.messages, bytes: amount.bytes })
    }

    async fn local_quota(&self, project: &ProjectId) -> Result<QuotaView, Error> {
        let slots = self.own_slots().await?;
        let account = self.account_of(project);
        self.counted_quota(&account).await?;
        let quota = self.0.quotas.borrow().of(&account);
        let used = if quota.is_bounded() {
            Some(self.0.ledger.holdings(&account).ok_or_else(uncounted)?)
        } else {
            None
        };
        self.confirm_all(&slots, Ok(QuotaView { quota, used }))
    }

    /// What this replica may let an account hold: of its quota the share that it has of the slots. When this returns one that
    /// bounds something, it is known what the account holds here.
    pub(super) async fn counted_quota(&self, account: &ProjectId) -> Result<Quota, Error> {
        let quota = self.0.quotas.borrow().of(account);
        if !quota.is_bounded() {
            return Ok(quota);
        }
        self.count_once(account).await?;
        if !self.has_others() {
            return Ok(quota);
        }
        let count = |slots: usize| u32::try_from(slots).expect("there are 256 slots");
        Ok(quota.share(count(self.0.slot_table.count()), count(limits::SLOTS)))
    }

    /// Keeps room for messages that are about to be posted.
    pub(super) async fn reserve(&self, project: &ProjectId, more: Amount) -> Result<Reservation, Error> {
        let account = self.account_of(project);
        for _ in 0..RESERVE_TRIES {
            let quota = self.counted_quota(&account).await?;
            if !quota.is_bounded() {
                return Ok(Reservation::none());
            }
            if let Some(reservation) = self.0.ledger.reserve(&account, &quota, more)? {
                return Ok(reservation);
            }
        }
        Err(uncounted())
    }

    /// Makes sure that an account is counted, but waits no longer than [`limits::COUNT_WAIT`] for it.
    async fn count_once(&self, account: &ProjectId) -> Result<(), Error> {
        let mut counted = match self.0.ledger.begin_count(account) {
            CountState::Done => return Ok(()),
            CountState::UnderWay(counted) => counted,
            CountState::Begun(counted) => {
                // Of its own, since the first caller may leave.
                let account = account.clone();
                self.start_background_task("count of a project", move |broker| {
                    let account = account.clone();
                    async move { broker.count_account(&account).await }
                });
                counted
            }
        };
        match timeout(limits::COUNT_WAIT, counted.wait_for(|counted| *counted)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(uncounted()),
        }
    }

    /// Counts an account, however often that must be tried.
    async fn count_account(&self, account: &ProjectId) {
        while let Err(error) = self.try_count_account(account).await {
            self.task_failed("count queues of project", format_args!("project {account}"), &error);
            if !self.sleep_tick(limits::RECOUNT_TICK).await {
                return;
            }
        }
        self.0.ledger.end_count(account);
    }

    async fn try_count_account(&self, account: &ProjectId) -> Result<(), Error> {
        for number in self.slots_of_account(account).await? {
            match self.count_slot(account, number).await {
                // Its owner counts what is there.
                Ok(()) | Err(Error::Moved(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Looks again where the books may not be right: slots that were recovered, pools that did not answer, queues of
    /// which it is unknown whether they were created.
    pub(super) async fn recount(&self) {
        while self.sleep_tick(limits::RECOUNT_TICK).await {
            for (account, number) in self.0.ledger.take_stale() {
                let counted = self.count_slot(&account, number).await;
                if let Err(error) = counted.or_else(|error| match error {
                    Error::Moved(_) => Ok(()),
                    error => Err(error),
                }) {
                    debug!(slot = number.0, %error, "slot totals not counted");
                    self.0.ledger.make_stale(&account, number);
                }
            }
        }
    }

    /// Counts the queues that the projects of an account have in a slot. A pool that does not answer stops no caller:
    /// of its queues the books say what they said before, until it answers.
    async fn count_slot(&self, account: &ProjectId, number: SlotNumber) -> Result<(), Error> {
        let slot = self.served(number).await?;
        // No caller creates or deletes queues until the books name those that there are.
        let roll = slot.roll.lock().await;
        let mut records = Vec::new();
        for project in self.projects_of(&slot, account).await? {
            records.extend(self.0.catalogue.queues_of(&slot.owned, &project).await?);
        }
        self.check_ours(&slot)?;
        let mut queues: Vec<(QueueId, Placement)> = Vec::with_capacity(records.len());
        for record in &records {
            queues.push((record.id, record.placement()?));
        }
        self.enter(&slot, |ledger| {
            ledger.keep_only(account, number, &queues.iter().map(|(id, _)| *id).collect());
            queues.iter().for_each(|(id, _)| ledger.exists(account, *id));
        });
        drop(roll);
        let mut silent: HashSet<&PoolName> = HashSet::new();
        for some in queues.chunks(limits::COUNT_AT_ONCE) {
            let is_asked = |placement: &Placement| placement.pools().all(|pool| !silent.contains(pool));
            let asked = some.iter().filter(|(_, placement)| is_asked(placement));
            let slot = &slot;
            let counts: Vec<_> = asked
                .map(|(id, placement)| async move {
                    (placement, self.count_queue(slot, account, *id, placement).await)
                })
                .collect();
            for (placement, counted) in join_all(counts).await {
                if let Err(error) = counted {
                    debug!(pool = %placement.pool, %error, "pool totals kept as before");
                    silent.insert(&placement.pool);
                }
            }
        }
        if !silent.is_empty() {
            self.0.ledger.make_stale(account, number);
        }
        slot.check_served()
    }

    async fn count_queue(
        &self,
        slot: &Arc<Slot>,
        account: &ProjectId,
        queue: QueueId,
        placement: &Placement,
    ) -> Result<(), Error> {
        let since = self.0.ledger.looks(queue);
        for pool in placement.pools() {
            self.open_writer(slot, pool, &*self.pool_of_record(pool).await?).await?;
        }
        let totals = self.store_at(placement, TaskTracker::new().token())?.totals(queue).await?;
        self.enter(slot, |ledger| ledger.found(account, queue, (slot.epoch, since), totals));
        Ok(())
    }

    /// Writes into the books what was learnt at this object of a slot, if it is the one that serves.
    fn enter(&self, slot: &Slot, write: impl FnOnce(&super::ledger::Ledger)) {
        let _state = slot.state.lock();
        if !slot.closed.is_cancelled() {
            write(&self.0.ledger);
        }
    }

    /// What the pools say of queues that are counted and of which a batch to the pool `at` has changed how much they hold.
    pub(super) async fn count_after(
        &self,
        slot: &Slot,
        at: &PoolName,
        changed: impl Iterator<Item = (QueueId, Option<&QueueRef>)>,
    ) -> Vec<PoolCount> {
        let mut seen = HashSet::new();
        let rule = self.0.quotas.borrow().accounts();
        let account = |at: Option<&QueueRef>| at.map(|at| rule.of(&at.project));
        let counted = changed.filter(|(queue, at)| self.0.ledger.keeps(account(*at).as_ref(), *queue));
        let counted: Vec<_> = counted.filter(|(queue, _)| seen.insert(*queue)).collect();
        let asked = counted.into_iter().map(|(queue, name)| async move {
            let account = account(name);
            let totals = match self.store_counted(slot, at, (queue, name)) {
                Ok(store) => store.totals(queue).await,
                Err(error) => Err(error),
            };
            if let Err(error) = &totals {
                self.task_failed("read totals", format_args!("queue {queue}"), error);
            }
            PoolCount { queue, account, totals: totals.ok() }
        });
        join_all(asked).await
    }

    /// Where a queue is counted: one that is not open is in the pool of the batch.
    fn store_counted(
        &self,
        slot: &Slot,
        pool: &PoolName,
        (queue, name): (QueueId, Option<&QueueRef>),
    ) -> Result<QueueStore, Error> {
        let mut state = slot.state.lock();
        match name.and_then(|name| state.queue_mut(name, queue)) {
            Some(open) => self.store_of(open),
            None => self.store_at(&Placement::one(pool.clone()), TaskTracker::new().token()),
        }
    }
}
