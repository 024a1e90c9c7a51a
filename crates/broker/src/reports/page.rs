//! The state of the service in a page of metrics: contents of the queues, state of pools and tree.
//!
//! A page reads the queues that changed since the one before and the queues with figures of their own
//! ([`crate::slot::figures`]), regardless of the number of messages and queues. It asks a pool for the totals of a
//! queue only when the queue has changed. A page that would take longer than [`limits::OBSERVATION`] ends there; the
//! next one continues, and until then older figures are shown. Closed queues are counted separately
//! ([`crate::counting::background`]).

use crate::reports::Reports;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::time::Instant;
use tracing::debug;

use crate::limits;
use crate::slot::figures::DueQueue;
use crate::slot::figures::PoolSample;
use crate::slot::state::Slot;
use angarium_core::error::Error;
use angarium_core::hold::HoldTarget;
use angarium_core::ids::Slot as SlotNumber;
use angarium_core::maps::HashMap;
use angarium_core::names::QueueRef;
use angarium_metrics::ServiceState;
use angarium_storage::Direction;

/// Progress of the pages of metrics.
#[derive(Debug, Default)]
pub(crate) struct Observation {
    /// Number of pages so far: each page begins with another slot, so that none is always the last.
    pages: AtomicUsize,
    /// Held while a page reads queues: one page at a time.
    looking: tokio::sync::Mutex<()>,
}

impl Reports {
    /// Returns the page of all metrics.
    pub async fn metrics_page(&self) -> String {
        let mut observed = ServiceState {
            is_ready: self.0.health.check_ready().is_ok(),
            session: self.0.replica.session_state(),
            pools: self.observed_pools(),
            quotas: self.0.quotas.observed_quotas(),
            damaged_tree_reads: self.0.replica.catalogue.damage().map_or(0, |(reads, _)| reads),
            ..ServiceState::default()
        };
        self.observe_queues(&mut observed).await;
        self.0.replica.meter.page(&observed)
    }

    async fn observe_queues(&self, observed: &mut ServiceState) {
        let _looking = self.0.watch.looking.lock().await;
        let mut slots: Vec<Arc<Slot>> = self.0.slots.owned().collect();
        observed.slots = slots.len();
        let first = self.0.watch.pages.fetch_add(1, Ordering::Relaxed) % slots.len().max(1);
        slots.rotate_left(first);
        let deadline = Instant::now() + limits::OBSERVATION;
        for slot in &slots {
            let due = slot.take_due();
            observed.looked_at += due.len();
            for due in due {
                let is_asked = due.is_changed && Instant::now() < deadline;
                let seen = if is_asked { self.look_at(slot, &due).await } else { None };
                slot.looked_at(&due, seen);
            }
        }
        self.name_deepest(&slots);
        let mut named: HashMap<SlotNumber, Vec<QueueRef>> = HashMap::default();
        for at in self.0.replica.meter.named_queues() {
            named.entry(at.slot()).or_default().push(at);
        }
        for slot in slots {
            let named = named.remove(&slot.owned.slot).unwrap_or_default();
            observed.looked_at += named.len();
            slot.show_figures(named, self.0.replica.clock.now(), observed);
        }
        self.show_shared_holds(observed);
    }

    /// Adds the holds of pools and projects to a page.
    fn show_shared_holds(&self, observed: &mut ServiceState) {
        let now = self.0.replica.clock.now();
        for (target, since) in self.0.slots.shared_holds().times(now) {
            match target {
                HoldTarget::Pool(_) => observed.holds.pools += 1,
                HoldTarget::Project(_) => observed.holds.projects += 1,
            }
            observed.holds.oldest_age = observed.holds.oldest_age.max(now.seconds_since(since));
        }
    }

    /// Asks the pool of a queue for its totals. Returns none when the pool does not report them.
    async fn look_at(&self, slot: &Arc<Slot>, due: &DueQueue) -> Option<PoolSample> {
        let seen = self.ask_pool(slot, due).await;
        let said = |error: &Error| debug!(%error, queue = %due.at.name, "queue totals not read");
        seen.inspect_err(said).ok().flatten()
    }

    async fn ask_pool(&self, slot: &Arc<Slot>, due: &DueQueue) -> Result<Option<PoolSample>, Error> {
        let Some(store) = slot.open_store(&due.at, due.id)? else { return Ok(None) };
        let totals = store.totals(due.id).await?;
        let oldest = match totals.ready() {
            0 => None,
            _ => store.milestone(due.id, due.oldest.clone(), Direction::Up, &self.0.replica.clock).await?,
        };
        Ok(Some(PoolSample { changes: due.changes, totals, oldest: oldest.map(|oldest| oldest.created) }))
    }
}
