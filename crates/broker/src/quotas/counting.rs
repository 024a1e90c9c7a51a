//! Quotas: counting the holdings of a project at the replicas that decide about them. The ledger is
//! [`crate::ledger::quota_ledger`]. The projects of one account, one for each region, are counted together: see
//! [`crate::quotas::regional_projects`].
//!
//! A project is counted when it is first needed: its queues are listed, and each pool is asked for their totals. From
//! then on every batch returns the new totals of its queues, so messages are never counted one by one and the sums do
//! not drift. Projects without a quota are not counted and cost nothing.

use std::sync::Arc;

use futures_util::future::join_all;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;
use tracing::debug;

use angarium_catalogue::Placement;
use angarium_cluster::peer_client::{HOLDINGS, HoldingsRequest, HoldingsResponse};
use angarium_core::error::Error;
use angarium_core::ids::{QueueId, Slot as SlotNumber};
use angarium_core::limits as core_limits;
use angarium_core::maps::HashSet;
use angarium_core::names::{PoolName, ProjectId, QueueName, QueueRef};
use angarium_core::quota::{Amount, Holdings, Quota};

use crate::ledger::quota_ledger::{CountStart, CountState, Reservation, quota_amount, uncounted};
use crate::limits;
use crate::quotas::QuotaCounts;
use crate::slot::state::Slot;

/// Attempts of a reservation when its project left the ledger meanwhile.
const RESERVE_TRIES: usize = 4;

/// The quota and the holdings of a project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaView {
    /// Upper bounds of the holdings.
    pub quota: Quota,
    /// The holdings. The ledger has no project without a quota, so each request counts it: none when it has more queues
    /// than [`limits::COUNTED_QUEUES`], or is not counted within [`limits::HEALTH_DEADLINE`].
    pub used: Option<Holdings>,
}

/// The id and placement of a queue, from its record.
struct StoredQueue {
    id: QueueId,
    placement: Placement,
}

impl QuotaCounts {
    /// Returns the quota of a project and the amounts that it holds in the slots of all replicas.
    pub async fn quota(&self, project: &ProjectId) -> Result<QuotaView, Error> {
        let mut view = self.local_quota(project).await?;
        let Some(used) = &mut view.used else {
            view.used = self.count_unlisted(project).await?;
            return Ok(view);
        };
        let question = HoldingsRequest { project: project.to_string() };
        for owner in self.0.slots.others() {
            let there: HoldingsResponse =
                self.0.slots.peer_client()?.ask(&owner.address, HOLDINGS, &question).await?;
            used.queues += there.queues;
            used.amount = used.amount.plus(Amount { messages: there.messages, bytes: there.bytes });
        }
        Ok(view)
    }

    /// Counts the holdings of a project in all its queues at all replicas.
    async fn count_unlisted(&self, project: &ProjectId) -> Result<Option<Holdings>, Error> {
        let _turn = self.0.listing_turns.take(project, self.0.ledger.accounts()).await?;
        match timeout(limits::HEALTH_DEADLINE, self.try_count_unlisted(project)).await {
            Ok(Ok(used)) => Ok(used),
            Ok(Err(error)) => {
                debug!(%error, "project totals not counted");
                Ok(None)
            }
            Err(_) => Ok(None),
        }
    }

    async fn try_count_unlisted(&self, project: &ProjectId) -> Result<Option<Holdings>, Error> {
        self.0.replica.catalogue.catch_up().await?;
        let (mut used, mut left) = (Holdings::default(), limits::COUNTED_QUEUES);
        // Its holdings are those of its account, as with a quota.
        for project in self.projects_of_account(&self.0.ledger.account_of(project)).await? {
            if !self.count_project(&project, &mut used, &mut left).await? {
                return Ok(None);
            }
        }
        Ok(Some(used))
    }

    /// Adds the holdings of a project to `used`. Returns false when it has more queues than are `left`.
    async fn count_project(
        &self,
        project: &ProjectId,
        used: &mut Holdings,
        left: &mut usize,
    ) -> Result<bool, Error> {
        let mut names = self.0.replica.catalogue.queue_names(project, None);
        while let Some(batch) = names.next().await? {
            let Some(rest) = left.checked_sub(batch.len()) else { return Ok(false) };
            *left = rest;
            for some in batch.chunks(limits::COUNT_AT_ONCE) {
                let queue = |name: &QueueName| QueueRef { project: project.clone(), name: name.clone() };
                let queues: Vec<QueueRef> = some.iter().map(queue).collect();
                let records = self.0.replica.catalogue.queue_records(&queues).await?;
                let counted = records.into_iter().flatten().map(async |record| {
                    self.0
                        .stores
                        .store_at(&record.placement()?, TaskTracker::new().token())?
                        .totals(record.id)
                        .await
                });
                for totals in join_all(counted).await {
                    let totals = totals?;
                    used.queues += 1;
                    used.amount = used.amount.plus(quota_amount(&totals));
                }
            }
        }
        Ok(true)
    }

    /// Returns the amounts that a project holds in the slots that are served here.
    pub async fn local_holdings(&self, question: &HoldingsRequest) -> Result<HoldingsResponse, Error> {
        let view = self.local_quota(&ProjectId::new(&question.project)?).await?;
        let Holdings { queues, amount } = view.used.unwrap_or_default();
        Ok(HoldingsResponse { queues, messages: amount.messages, bytes: amount.bytes })
    }

    async fn local_quota(&self, project: &ProjectId) -> Result<QuotaView, Error> {
        let slots = self.0.slots.own_slots().await?;
        let account = self.0.ledger.account_of(project);
        self.counted_quota(&account).await?;
        let quota = self.0.ledger.quotas.borrow().of(&account);
        let used = if quota.is_bounded() {
            Some(self.0.ledger.holdings(&account).ok_or_else(uncounted)?)
        } else {
            None
        };
        self.0.slots.confirm_all(&slots, Ok(QuotaView { quota, used }))
    }

    /// Returns the part of an account's quota that this replica may use: its share of the slots. If the quota has a
    /// bound, the holdings of the account here are known when this returns.
    pub(crate) async fn counted_quota(&self, account: &ProjectId) -> Result<Quota, Error> {
        let quota = self.0.ledger.quotas.borrow().of(account);
        if !quota.is_bounded() {
            return Ok(quota);
        }
        self.count_once(account).await?;
        if !self.0.slots.has_others() {
            return Ok(quota);
        }
        let count = |slots: usize| u32::try_from(slots).expect("there are 256 slots");
        Ok(quota.share(count(self.0.slots.count()), count(core_limits::SLOTS)))
    }

    /// Reserves room for messages that are about to be posted.
    pub(crate) async fn reserve(&self, project: &ProjectId, more: Amount) -> Result<Reservation, Error> {
        let account = self.0.ledger.account_of(project);
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

    /// Checks whether messages may leave queues in which they share their bodies: elsewhere each has a body of its own,
    /// beyond the quota if need be, until the project holds twice its bytes here. That is twice the whole quota: one
    /// queue may hold more than the share of this replica since others have joined, and its messages could never leave.
    pub(crate) async fn check_excess(&self, project: &ProjectId) -> Result<(), Error> {
        let account = self.0.ledger.account_of(project);
        let quota = self.0.ledger.quotas.borrow().of(&account);
        if quota.bytes.is_none() {
            return Ok(());
        }
        // Now the holdings here are known.
        self.counted_quota(&account).await?;
        quota.check_excess(self.0.ledger.holdings(&account).ok_or_else(uncounted)?)
    }

    /// Checks whether a project may have so many more queues.
    pub(crate) async fn check_queues(&self, project: &ProjectId, more: usize) -> Result<(), Error> {
        let account = self.0.ledger.account_of(project);
        let quota = self.counted_quota(&account).await?;
        if !quota.is_bounded() {
            return Ok(());
        }
        let used = self.0.ledger.holdings(&account).ok_or_else(uncounted)?;
        let others = u64::try_from(more).unwrap_or(u64::MAX).saturating_sub(1);
        quota.check_queue(Holdings { queues: used.queues.saturating_add(others), ..used })
    }

    /// Makes sure that an account is counted. Waits at most [`limits::COUNT_WAIT`] for it.
    async fn count_once(&self, account: &ProjectId) -> Result<(), Error> {
        let mut counted = match self.0.ledger.begin_count(account) {
            CountState::Done => return Ok(()),
            CountState::UnderWay(counted) => counted,
            CountState::Begun(counted) => {
                // A task of its own, since the first caller may be canceled.
                let account = account.clone();
                self.0.replica.start_background_task("count of a project", self, move |quotas| {
                    let account = account.clone();
                    async move { quotas.count_account(&account).await }
                });
                counted
            }
        };
        match timeout(limits::COUNT_WAIT, counted.wait_for(|counted| *counted)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(uncounted()),
        }
    }

    /// Counts an account, and retries until that succeeds.
    async fn count_account(&self, account: &ProjectId) {
        while let Err(error) = self.try_count_account(account).await {
            self.0.replica.task_failed("count queues of project", format_args!("project {account}"), &error);
            if !self.0.replica.sleep_tick(limits::RECOUNT_TICK).await {
                return;
            }
        }
        self.0.ledger.end_count(account);
    }

    async fn try_count_account(&self, account: &ProjectId) -> Result<(), Error> {
        for number in self.slots_of_account(account).await? {
            match self.count_slot(account, number).await {
                // The new owner of the slot counts its queues.
                Ok(()) | Err(Error::Moved(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Repeats counts that may be wrong: slots that were recovered, pools that did not answer, queues whose creation
    /// has an unknown outcome.
    pub(crate) async fn recount(&self) {
        while self.0.replica.sleep_tick(limits::RECOUNT_TICK).await {
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

    /// Counts the queues that the projects of an account have in a slot. A pool that does not answer is no error: the
    /// ledger keeps its amounts of the queues there until the pool answers.
    async fn count_slot(&self, account: &ProjectId, number: SlotNumber) -> Result<(), Error> {
        let slot = self.0.slots.served(number).await?;
        // No queue is created or deleted until the ledger has all queues.
        let roll = slot.roll.lock().await;
        let mut records = Vec::new();
        for project in self.projects_of(&slot, account).await? {
            records.extend(self.0.replica.catalogue.queues_of(&slot.owned, &project).await?);
        }
        self.0.slots.check_ours(&slot)?;
        let mut queues = Vec::with_capacity(records.len());
        for record in &records {
            queues.push(StoredQueue { id: record.id, placement: record.placement()? });
        }
        slot.enter(|ledger| {
            ledger.keep_only(account, number, &queues.iter().map(|queue| queue.id).collect());
            queues.iter().for_each(|queue| ledger.exists(account, queue.id));
        });
        drop(roll);
        let mut silent: HashSet<&PoolName> = HashSet::default();
        for some in queues.chunks(limits::COUNT_AT_ONCE) {
            let is_asked = |placement: &Placement| placement.pools().all(|pool| !silent.contains(pool));
            let asked = some.iter().filter(|queue| is_asked(&queue.placement));
            let slot = &slot;
            let counts: Vec<_> = asked
                .map(|queue| async move { (queue, self.count_queue(slot, account, queue).await) })
                .collect();
            for (queue, counted) in join_all(counts).await {
                if let Err(error) = counted {
                    let pool = &queue.placement.pool;
                    debug!(%pool, %error, "pool totals kept as before");
                    silent.insert(pool);
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
        queue: &StoredQueue,
    ) -> Result<(), Error> {
        let StoredQueue { id, placement } = queue;
        let (looks, is_divided) = (self.0.ledger.looks(*id), placement.older.is_some());
        let start = CountStart { epoch: slot.epoch, looks, is_divided };
        for pool in placement.pools() {
            slot.open_writer(pool, &*self.0.pools.pool_of_record(pool).await?).await?;
        }
        let totals = self.0.stores.store_at(placement, TaskTracker::new().token())?.totals(*id).await?;
        slot.enter(|ledger| ledger.found(account, *id, start, totals));
        Ok(())
    }
}
