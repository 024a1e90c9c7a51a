//! Removing messages whose life has ended without being asked, wherever they lie (P14).
//!
//! The pools keep an order by expiry over all queues of a slot, so a sweep costs what it finds: not the backlog, and
//! not the number of queues. Queues that no caller has opened stay closed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tokio::task::JoinHandle;

use super::Broker;
use super::changes::Change;
use super::messages::settled;
use super::pool_table::NamedStore;
use super::slot::{Slot, SlotState};
use angarium_core::error::Error;
use angarium_core::ids::{MessageId, QueueId, Slot as SlotNumber};
use angarium_core::limits;
use angarium_core::message::{Header, State};
use angarium_core::names::{PoolName, QueueRef};
use angarium_core::time::Timestamp;
use angarium_storage::Due;

/// Expired messages by their queue.
pub(super) type ExpiredByQueue = HashMap<QueueId, Vec<Header>>;

/// The sweeps into one pool.
#[derive(Default)]
struct PoolSweeps {
    /// The slots whose turn has come, at most each once.
    due: Vec<SlotNumber>,
    /// The task that sweeps others.
    task: Option<JoinHandle<()>>,
}

impl PoolSweeps {
    fn is_running(&self) -> bool {
        self.task.as_ref().is_some_and(|task| !task.is_finished())
    }
}

impl Broker {
    /// One slot after the other, so that each has its turn within [`limits::SWEEP_ROUND`]. Each pool is swept by a task of its
    /// own: one that hangs or has much to remove holds up no other.
    pub(super) async fn sweep_messages(&self) {
        let tick = limits::SWEEP_ROUND / u32::try_from(limits::SLOTS).expect("there are 256 slots");
        let mut sweeps = HashMap::new();
        loop {
            for number in SlotNumber::all() {
                if !self.sleep_tick(tick).await {
                    return;
                }
                let Some(slot) = self.swept_slot(number) else { continue };
                slot.state.lock().note_paces(self.0.clock.now());
                self.expire_dedup(&slot);
                self.start_sweeps(&mut sweeps, number);
            }
        }
    }

    /// A slot that may be swept: not while no claim can be renewed.
    fn swept_slot(&self, number: SlotNumber) -> Option<Arc<Slot>> {
        let is_held = self.claim_time() < self.0.clock.now();
        self.0.slot_table.get(number).filter(|_| !is_held)
    }

    /// Has a slot swept in each pool, or noted where another one is still being swept.
    fn start_sweeps(&self, sweeps: &mut HashMap<PoolName, PoolSweeps>, number: SlotNumber) {
        let pools = self.0.pools.all();
        let is_there = |name: &PoolName| pools.iter().any(|pool| pool.entry.name == *name);
        sweeps.retain(|name, sweeps| sweeps.is_running() || is_there(name));
        for pool in &pools {
            let name = pool.entry.name.clone();
            let sweeps = sweeps.entry(name.clone()).or_default();
            if !sweeps.due.contains(&number) {
                sweeps.due.push(number);
            }
            if !sweeps.is_running() {
                let (broker, due) = (self.clone(), std::mem::take(&mut sweeps.due));
                let task = self.0.tasks.spawn(async move { broker.sweep_slots(&name, due).await });
                sweeps.task = Some(task);
            }
        }
    }

    async fn sweep_slots(&self, pool: &PoolName, due: Vec<SlotNumber>) {
        for number in due {
            let Some(slot) = self.swept_slot(number) else { continue };
            if let Err(error) = self.sweep(&slot, pool).await {
                self.task_failed(
                    "remove expired messages",
                    format_args!("slot {} pool {pool}", number.0),
                    &error,
                );
            }
            if self.0.stop.is_cancelled() {
                return;
            }
        }
    }

    async fn sweep(&self, slot: &Arc<Slot>, pool: &PoolName) -> Result<(), Error> {
        // A pool that is unavailable was complained of already.
        let Ok(store) = self.pool(pool)?.store() else { return Ok(()) };
        self.sweep_own(slot, pool, &store).await?;
        self.sweep_retained(slot, &store).await
    }

    /// Removes messages that have a life of their own.
    async fn sweep_own(&self, slot: &Arc<Slot>, pool: &PoolName, store: &NamedStore) -> Result<(), Error> {
        for _ in 0..limits::SWEEP_LOOKS {
            let now = self.0.clock.now();
            slot.state.lock().begin_sweeps(pool);
            let (number, limit) = (slot.owned.slot, limits::SWEEP_MESSAGES);
            let found = store.due(number, Due::Expiry, now, limit).await;
            let mut expired = ExpiredByQueue::new();
            let mut count = 0;
            for (queue, header) in found.as_ref().map_or(&[][..], Vec::as_slice) {
                expired.entry(*queue).or_default().push(header.clone());
                count += 1;
            }
            // Whatever came of it, the sweeps that have begun are finished.
            let removals = self.remove_expired(slot, pool, expired, now).await?;
            found.map_err(|error| store.failed(error))?;
            if count < limit || removals == 0 || self.0.stop.is_cancelled() || slot.closed.is_cancelled() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Removes messages of open queues through their engines, which spare claimed ones, and others directly. Returns
    /// from how many queues.
    async fn remove_expired(
        &self,
        slot: &Arc<Slot>,
        pool: &PoolName,
        mut expired: ExpiredByQueue,
        now: Timestamp,
    ) -> Result<usize, Error> {
        let mut removals = Vec::new();
        {
            let mut state = slot.state.lock();
            for (at, gone) in state.finish_sweeps(pool, &mut expired, now) {
                removals.push(self.submit(slot, &mut state, &at, Change::Remove(gone))?);
            }
        }
        let unopened = if expired.is_empty() { 0 } else { self.remove_unopened(slot, pool, expired).await? };
        let open = removals.len();
        for removal in removals {
            settled(removal).await?;
        }
        Ok(open + unopened)
    }

    /// As [`Broker::remove_expired`], of queues that are not open. No caller opens, deletes or cleans one of this
    /// pool meanwhile.
    pub(super) async fn remove_unopened(
        &self,
        slot: &Arc<Slot>,
        pool: &PoolName,
        expired: ExpiredByQueue,
    ) -> Result<usize, Error> {
        let _gate = slot.pool_gates.hold(pool).await;
        self.open_writer(slot, pool, &*self.pool(pool)?).await?;
        let mut removals = Vec::new();
        {
            let mut state = slot.state.lock();
            // It has been opened since, and is swept at the next turn.
            let mut others: HashSet<QueueId> = state.queues.values().map(|queue| queue.id).collect();
            others.extend(&state.dropped);
            for (queue, headers) in expired.into_iter().filter(|(queue, _)| !others.contains(queue)) {
                let claimed = state.claimed_unopened(queue);
                let gone: Vec<MessageId> =
                    headers.iter().map(|header| header.id).filter(|id| !claimed.contains(id)).collect();
                let count = u64::try_from(gone.len()).unwrap_or_default();
                if count > 0 {
                    let is_scheduled = |id: &MessageId| {
                        let of = |header: &&Header| header.id == *id && header.state == State::Scheduled;
                        headers.iter().any(|header| of(&header))
                    };
                    let scheduled = u64::try_from(gone.iter().filter(|id| is_scheduled(id)).count());
                    state.figures.lessen(queue, count, scheduled.unwrap_or_default());
                    let removal = self.submit_unopened(slot, &mut state, pool, queue, gone);
                    match removal {
                        Some(removal) => removals.push((removal, queue, count)),
                        None => state.figures.changed_closed(queue),
                    }
                }
            }
        }
        let mut outcome = Ok(removals.len());
        for (removal, queue, count) in removals {
            let settled = settled(removal).await;
            slot.state.lock().figures.changed_closed(queue);
            if let Err(error) = settled {
                outcome = Err(error);
                continue;
            }
            // Of a queue that no caller has opened only the id is known.
            self.0.meter.other_queues().expired.inc_by(count);
        }
        outcome
    }
}

impl SlotState {
    fn begin_sweeps(&mut self, pool: &PoolName) {
        for queue in self.queues.values_mut().filter(|queue| queue.placement.contains(pool)) {
            queue.engine.begin_sweep();
        }
    }

    /// What is to be removed from the open queues, which are taken out of `expired`.
    fn finish_sweeps(
        &mut self,
        pool: &PoolName,
        expired: &mut ExpiredByQueue,
        now: Timestamp,
    ) -> Vec<(QueueRef, Vec<MessageId>)> {
        let mut gone = Vec::new();
        for (at, queue) in self.queues.iter_mut().filter(|(_, queue)| queue.placement.contains(pool)) {
            let headers = expired.remove(&queue.id).unwrap_or_default();
            let ids = queue.engine.finish_sweep(headers, now);
            if !ids.is_empty() {
                gone.push((at.clone(), ids));
            }
        }
        gone
    }

    /// Messages under claims of a queue that is not open.
    pub(super) fn claimed_unopened(&self, queue: QueueId) -> HashSet<MessageId> {
        let claims = self.unopened.get(&queue).into_iter().flatten();
        claims.flat_map(|(_, record)| &record.messages).map(|message| message.id).collect()
    }
}
