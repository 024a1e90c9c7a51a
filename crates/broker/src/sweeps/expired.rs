//! Removal of expired messages, without a request, in every queue (P14).
//!
//! The pools keep an order by expiry over all queues of a slot, so the cost of a sweep depends on the expired messages
//! that it finds: not on the backlog, and not on the number of queues. Queues that are not open stay closed.

use std::sync::Arc;

use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;
use tracing::debug;

use angarium_catalogue::Placement;
use angarium_core::error::Error;
use angarium_core::ids::{QueueId, Slot as SlotNumber};
use angarium_core::limits as core_limits;
use angarium_core::maps::HashMap;
use angarium_core::names::PoolName;
use angarium_core::time::Timestamp;
use angarium_engine::ClaimedCounts;
use angarium_storage::{Direction, Due};

use crate::limits;
use crate::slot::figure_sums::Contents;
use crate::slot::figures::PoolSample;
use crate::slot::remainder::ClosedChange;
use crate::slot::state::Slot;
use crate::slot::sweeping::{ExpiredByQueue, UnopenedRemoval};
use crate::stores::table::NamedStore;
use crate::sweeps::Sweeps;
use crate::writer::pending::settled;

/// The sweeps of one pool.
#[derive(Default)]
struct PoolSweeps {
    /// The slots to sweep next, each at most once.
    due: Vec<SlotNumber>,
    /// The task that sweeps the slots of an earlier list.
    task: Option<JoinHandle<()>>,
}

impl PoolSweeps {
    pub(crate) fn is_running(&self) -> bool {
        self.task.as_ref().is_some_and(|task| !task.is_finished())
    }
}

impl Sweeps {
    /// Sweeps one slot after the other, so that each is swept once in [`limits::SWEEP_ROUND`]. Each pool is swept by a
    /// task of its own: a pool that hangs, or has much to remove, delays no other.
    pub(crate) async fn sweep_messages(&self) {
        let tick = limits::SWEEP_ROUND / u32::try_from(core_limits::SLOTS).expect("there are 256 slots");
        let mut sweeps = HashMap::default();
        loop {
            for number in SlotNumber::all() {
                if !self.0.replica.sleep_tick(tick).await {
                    return;
                }
                let Some(slot) = self.swept_slot(number) else { continue };
                slot.note_paces(self.0.replica.clock.now());
                slot.expire_dedup();
                self.expire_settle_notes(&slot);
                self.start_sweeps(&mut sweeps, number);
            }
        }
    }

    /// Returns a slot that may be swept: none while no claim can be renewed.
    fn swept_slot(&self, number: SlotNumber) -> Option<Arc<Slot>> {
        let is_held = self.0.slots.claim_time() < self.0.replica.clock.now();
        self.0.slots.get(number).filter(|_| !is_held)
    }

    /// Has a slot swept in each pool; for a pool where another slot is still being swept, once that is done.
    fn start_sweeps(&self, sweeps: &mut HashMap<PoolName, PoolSweeps>, number: SlotNumber) {
        let pools = self.0.stores.all();
        let is_there = |name: &PoolName| pools.iter().any(|pool| pool.entry.name == *name);
        sweeps.retain(|name, sweeps| sweeps.is_running() || is_there(name));
        for pool in &pools {
            let name = pool.entry.name.clone();
            let sweeps = sweeps.entry(name.clone()).or_default();
            if !sweeps.due.contains(&number) {
                sweeps.due.push(number);
            }
            if !sweeps.is_running() {
                let (this, due) = (self.clone(), std::mem::take(&mut sweeps.due));
                let task = self.0.replica.tasks.spawn(async move { this.sweep_slots(&name, due).await });
                sweeps.task = Some(task);
            }
        }
    }

    async fn sweep_slots(&self, pool: &PoolName, due: Vec<SlotNumber>) {
        for number in due {
            let Some(slot) = self.swept_slot(number) else { continue };
            if let Err(error) = self.sweep(slot, pool).await {
                self.0.replica.task_failed(
                    "remove expired messages",
                    format_args!("slot {} pool {pool}", number.0),
                    &error,
                );
            }
            if self.0.replica.stop.is_cancelled() {
                return;
            }
        }
    }

    async fn sweep(&self, slot: Arc<Slot>, pool: &PoolName) -> Result<(), Error> {
        // The failure of an unavailable pool was logged already.
        let Ok(store) = self.0.stores.pool(pool)?.store() else { return Ok(()) };
        let sweep = SlotSweep { sweeps: self.clone(), slot, store };
        sweep.sweep_own().await?;
        sweep.sweep_retained().await
    }
}

/// The sweep of a slot in one pool.
pub(in crate::sweeps) struct SlotSweep {
    pub(in crate::sweeps) sweeps: Sweeps,
    pub(in crate::sweeps) slot: Arc<Slot>,
    pub(in crate::sweeps) store: NamedStore,
}

impl SlotSweep {
    /// Whether the service stops, or the slot is closed.
    pub(in crate::sweeps) fn is_stopped(&self) -> bool {
        self.sweeps.0.replica.stop.is_cancelled() || self.slot.closed.is_cancelled()
    }

    /// Removes expired messages with a TTL of their own.
    async fn sweep_own(&self) -> Result<(), Error> {
        let SlotSweep { sweeps, slot, store } = self;
        let pool = store.name();
        for _ in 0..limits::SWEEP_LOOKS {
            let now = sweeps.0.replica.clock.now();
            slot.begin_sweeps(pool);
            let (number, limit) = (slot.owned.slot, limits::sweep_messages());
            let found = store.due(number, Due::Expiry, now, limit).await;
            let mut expired = ExpiredByQueue::default();
            let mut count = 0;
            for (queue, header) in found.as_ref().map_or(&[][..], Vec::as_slice) {
                expired.entry(*queue).or_default().push(header.clone());
                count += 1;
            }
            // Also after a failed read: the sweeps that the engines have begun must be finished.
            let removals = self.remove_expired(expired, now).await?;
            found.map_err(|error| store.failed(error))?;
            if count < limit || removals == 0 || self.is_stopped() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Removes messages of open queues through their engines, which spare claimed ones, and other messages directly.
    /// Returns the number of queues.
    async fn remove_expired(&self, mut expired: ExpiredByQueue, now: Timestamp) -> Result<usize, Error> {
        let removals = self.slot.remove_expired(self.store.name(), &mut expired, now)?;
        let unopened = if expired.is_empty() { 0 } else { self.remove_unopened(expired).await? };
        let open = removals.len();
        for removal in removals {
            settled(removal).await?;
        }
        Ok(open + unopened)
    }

    /// Like `remove_expired`, for queues that are not open. Holds the gate of the pool: no other task opens, deletes or
    /// cleans such a queue of the pool meanwhile.
    pub(in crate::sweeps) async fn remove_unopened(&self, expired: ExpiredByQueue) -> Result<usize, Error> {
        let (slot, pool) = (&self.slot, self.store.name());
        let _gate = slot.pool_gates.hold(pool).await;
        slot.open_writer(pool, &*self.sweeps.0.stores.pool(pool)?).await?;
        let (mut swept, mut unread) = (Vec::new(), Vec::new());
        for queue in expired.keys().copied() {
            if slot.begin_sweep(queue) {
                swept.push((queue, self.contents(queue).await));
            } else {
                unread.push(queue);
            }
        }
        let removals = slot.remove_unopened_expired(pool, expired);
        let outcome = self.settle_removals(removals).await;
        for (queue, before) in swept {
            let after = self.contents(queue).await.filter(|_| outcome.is_ok());
            let change = before.zip(after).map(|(before, after)| ClosedChange { before, after });
            slot.end_sweep_with(queue, change);
        }
        unread.into_iter().for_each(|queue| slot.end_sweep(queue));
        outcome
    }

    /// Waits for removals from queues that are not open. Returns how many there were.
    async fn settle_removals(&self, removals: Vec<UnopenedRemoval>) -> Result<usize, Error> {
        let mut outcome = Ok(removals.len());
        for UnopenedRemoval { outcome: removal, queue, count } in removals {
            let settled = settled(removal).await;
            self.slot.note_changed_closed(queue);
            if let Err(error) = settled {
                outcome = Err(error);
                continue;
            }
            // For a queue that was not opened only the id is known.
            self.sweeps.0.replica.meter.other_queues().expired.inc_by(count);
        }
        outcome
    }

    /// Returns the contents of a queue that is not open, with claimed messages among the ready ones; none when the pool
    /// does not answer in time.
    async fn contents(&self, queue: QueueId) -> Option<Contents> {
        let (sweeps, pool) = (&self.sweeps.0, self.store.name());
        let read = async {
            let store = sweeps.stores.store_at(&Placement::one(pool.clone()), TaskTracker::new().token())?;
            let totals = store.totals(queue).await?;
            let oldest = match totals.ready() {
                0 => None,
                _ => store.milestone(queue, None, Direction::Up, &sweeps.replica.clock).await?,
            };
            let oldest = oldest.map(|oldest| oldest.created);
            Ok::<_, Error>(PoolSample { changes: 0, totals, oldest }.contents(ClaimedCounts::default()))
        };
        let log = |error: &Error| debug!(%error, %pool, "swept queue not read");
        timeout(limits::COUNTING_WAIT, read).await.ok()?.inspect_err(log).ok()
    }
}
