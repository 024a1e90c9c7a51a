//! What a page of metrics shows of the state of the service: how much is in the queues, how pools and tree do.
//!
//! A page looks at the queues that were at work since the one before and at those with figures of their own
//! ([`super::queue_figures`]), whatever waits and however many queues there are; a pool is asked for the totals of a
//! queue only when something of it has changed. A page that would take longer than [`limits::OBSERVATION`] continues at
//! the next one, and shows older figures until then. Closed queues are counted beside it ([`super::queue_counting`]).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::time::Instant;
use tracing::debug;

use super::Broker;
use super::queue_figures::{DueQueue, PoolSample};
use super::release::ReleaseCause;
use super::slot::{OpenQueue, Slot};
use angarium_catalogue::Link;
use angarium_core::error::Error;
use angarium_core::ids::Slot as SlotNumber;
use angarium_core::limits;
use angarium_core::names::QueueRef;
use angarium_engine::RemovalTally;
use angarium_metrics::{ObservedQueue, ServiceState, SessionState};
use angarium_storage::Direction;

/// Where pages of metrics look.
#[derive(Debug, Default)]
pub(super) struct Observation {
    /// How many pages have begun: each begins with another slot, so that none is always the last.
    pages: AtomicUsize,
    /// Held while queues are looked at: one page at a time.
    looking: tokio::sync::Mutex<()>,
}

impl OpenQueue {
    /// Counts what has been removed.
    pub(super) fn count_removals(&mut self) {
        let RemovalTally { acked, expired } = self.engine.take_tally();
        self.counters.acked.inc_by(acked);
        self.counters.expired.inc_by(expired);
    }

    /// Counts messages of a claim that has ended.
    pub(super) fn count_released(&self, cause: ReleaseCause, messages: u64) {
        let counter = match cause {
            ReleaseCause::Released => &self.counters.nacked,
            ReleaseCause::Lapsed => &self.counters.lapsed,
            ReleaseCause::NeverHeld => return,
        };
        counter.inc_by(messages);
    }
}

impl Broker {
    /// The page of all metrics.
    pub async fn metrics_page(&self) -> String {
        let mut observed = ServiceState {
            is_ready: self.check_ready().is_ok(),
            session: self.session_state(),
            pools: self.observed_pools(),
            quotas: self.observed_quotas(),
            damaged_tree_reads: self.0.catalogue.damage().map_or(0, |(reads, _)| reads),
            ..ServiceState::default()
        };
        self.observe_queues(&mut observed).await;
        self.0.meter.page(&observed)
    }

    pub(super) fn session_state(&self) -> SessionState {
        match self.0.catalogue.session().borrow().link {
            Link::Connected => SessionState::Connected,
            Link::Suspended => SessionState::Suspended,
            Link::Lost => SessionState::Lost,
        }
    }

    async fn observe_queues(&self, observed: &mut ServiceState) {
        let _looking = self.0.watch.looking.lock().await;
        let mut slots: Vec<Arc<Slot>> = self.0.slot_table.owned().collect();
        observed.slots = slots.len();
        let first = self.0.watch.pages.fetch_add(1, Ordering::Relaxed) % slots.len().max(1);
        slots.rotate_left(first);
        let deadline = Instant::now() + limits::OBSERVATION;
        for slot in &slots {
            let due = slot.state.lock().take_due();
            observed.looked_at += due.len();
            for due in due {
                let seen = match due.is_changed && Instant::now() < deadline {
                    true => self.look_at(slot, &due).await,
                    false => None,
                };
                slot.state.lock().looked_at(&due, seen);
            }
        }
        self.name_deepest(&slots);
        let mut named: HashMap<SlotNumber, Vec<QueueRef>> = HashMap::new();
        for at in self.0.meter.named_queues() {
            named.entry(at.slot()).or_default().push(at);
        }
        for slot in slots {
            let now = self.0.clock.now();
            let state = slot.state.lock();
            let progress = &state.figures.progress;
            observed.queues_here += progress.queues();
            observed.counted_queues += progress.counted();
            observed.counted_slots += usize::from(progress.is_done());
            observed.claims += state.live_claims.saturating_sub(state.spent.len());
            observed.waiting_claims += state.lines.len();
            observed.add_unnamed(state.figures.unnamed(now));
            for at in named.remove(&slot.owned.slot).into_iter().flatten() {
                observed.looked_at += 1;
                if let Some(figures) = state.named_figures(&at, now) {
                    observed.queues.push(ObservedQueue { at, figures });
                }
            }
        }
    }

    /// Asks the pool of a queue how much it holds; none when it does not say.
    async fn look_at(&self, slot: &Slot, due: &DueQueue) -> Option<PoolSample> {
        let seen = self.ask_pool(slot, due).await;
        let said = |error: &Error| debug!(%error, queue = %due.at.name, "queue totals not read");
        seen.inspect_err(said).ok().flatten()
    }

    async fn ask_pool(&self, slot: &Slot, due: &DueQueue) -> Result<Option<PoolSample>, Error> {
        let store = match slot.state.lock().queue_mut(&due.at, due.id) {
            Some(queue) => self.store_of(queue)?,
            None => return Ok(None),
        };
        let totals = store.totals(due.id).await?;
        let oldest = match totals.ready() {
            0 => None,
            _ => self.milestone(&store, due.id, due.oldest.clone(), Direction::Up).await?,
        };
        Ok(Some(PoolSample { changes: due.changes, totals, oldest: oldest.map(|oldest| oldest.created) }))
    }
}
