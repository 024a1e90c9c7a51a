//! What a page of metrics shows of the state of the service: how much is in the queues, how pools and tree do.
//!
//! A pool is asked for the totals of a queue only when something of it has changed since the last page, so a page costs
//! what was at work since the one before, whatever waits and however many queues there are. A page that would take longer
//! than [`limits::OBSERVATION`] goes on at the next one, and shows older figures until then.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::time::Instant;
use tracing::debug;

use super::Broker;
use super::ends::Cause;
use super::slot::{OpenQueue, Slot};
use crate::catalogue::Link;
use crate::domain::ids::QueueId;
use crate::domain::limits;
use crate::domain::message::Header;
use crate::domain::names::QueueRef;
use crate::domain::time::Timestamp;
use crate::engine::Tally;
use crate::error::Error;
use crate::metrics::{Observed, ObservedQueue, QueueFigures, SessionState};
use crate::storage::{Direction, Totals};

/// Where pages of metrics look.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// How many pages have begun: each begins with another slot, so that none is always the last.
    pages: AtomicUsize,
    /// Held while queues are looked at: one page at a time.
    looking: tokio::sync::Mutex<()>,
}

/// What the pool of a queue said of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// How many changes there were before it was asked.
    changes: u64,
    totals: Totals,
    /// When the oldest message that is ready or claimed was posted.
    oldest: Option<Timestamp>,
}

/// A queue of which something has changed since it was last seen.
struct Changed {
    at: QueueRef,
    id: QueueId,
    changes: u64,
    /// The oldest message, if memory knows it.
    oldest: Option<Header>,
}

impl Seen {
    /// Whether nothing has changed since, after so many changes.
    pub(super) fn is_of(&self, changes: u64) -> bool {
        self.changes >= changes
    }

    /// Whether the queue had a message.
    pub(super) fn is_anything(&self) -> bool {
        self.totals.messages > 0
    }

    /// So many messages were removed that had expired, of which so many were scheduled. Which ones are left is not known.
    pub(super) fn lessen(&mut self, messages: u64, scheduled: u64) {
        self.totals.messages = self.totals.messages.saturating_sub(messages);
        self.totals.scheduled = self.totals.scheduled.saturating_sub(scheduled);
        self.oldest = None;
    }

    fn figures(&self, claimed: u64, now: Timestamp) -> QueueFigures {
        let claimed = claimed.min(self.totals.ready());
        QueueFigures {
            ready: self.totals.ready() - claimed,
            claimed,
            scheduled: self.totals.scheduled,
            moving: self.totals.aside,
            oldest_age: self.oldest.map(|oldest| now.seconds_since(oldest)),
        }
    }
}

impl OpenQueue {
    /// Counts what has been removed.
    pub(super) fn count_removals(&mut self) {
        let Tally { acked, expired } = self.engine.take_tally();
        self.counters.acked.inc_by(acked);
        self.counters.expired.inc_by(expired);
    }

    /// Counts messages of a claim that has ended.
    pub(super) fn count_given_back(&self, cause: Cause, messages: u64) {
        let counter = match cause {
            Cause::Released => &self.counters.nacked,
            Cause::Lapsed => &self.counters.lapsed,
            Cause::NeverHeld => return,
        };
        counter.inc_by(messages);
    }

    /// What is in it, as far as its pool was asked.
    fn figures(&self, now: Timestamp) -> Option<QueueFigures> {
        Some(self.seen?.figures(self.engine.claimed(), now))
    }
}

/// The queues of a slot whose pools are to be asked.
fn changed(slot: &Slot) -> Vec<Changed> {
    let state = slot.state.lock();
    let is_changed = |queue: &OpenQueue| queue.seen.is_none_or(|seen| seen.changes < queue.changes);
    let changed = |(at, queue): (&QueueRef, &OpenQueue)| Changed {
        at: at.clone(),
        id: queue.id,
        changes: queue.changes,
        oldest: queue.engine.ends().0.cloned(),
    };
    let all = state.queues.iter().map(|(at, queue)| (at, queue.as_ref()));
    all.filter(|(_, queue)| is_changed(queue)).map(changed).collect()
}

impl Broker {
    /// The page of all metrics.
    pub async fn metrics_page(&self) -> String {
        let mut observed = Observed {
            is_ready: self.check_ready().is_ok(),
            session: self.session_state(),
            pools: self.0.pools.all().iter().map(|pool| pool.observed()).collect(),
            ..Observed::default()
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

    async fn observe_queues(&self, observed: &mut Observed) {
        let _looking = self.0.watch.looking.lock().await;
        let mut slots: Vec<Arc<Slot>> = self.0.cells.owned().collect();
        observed.slots = slots.len();
        let first = self.0.watch.pages.fetch_add(1, Ordering::Relaxed) % slots.len().max(1);
        slots.rotate_left(first);
        let deadline = Instant::now() + limits::OBSERVATION;
        for slot in slots {
            for changed in changed(&slot) {
                if Instant::now() >= deadline {
                    break;
                }
                if let Err(error) = self.look_at(&slot, &changed).await {
                    debug!(%error, queue = %changed.at.name, "the totals of a queue could not be read");
                }
            }
            let now = self.0.clock.now();
            let state = slot.state.lock();
            observed.waiting_claims += state.lines.len();
            for (at, seen) in state.resting.values() {
                observed.queues.push(ObservedQueue { at: at.clone(), figures: seen.figures(0, now) });
            }
            for (at, queue) in &state.queues {
                if let Some(figures) = queue.figures(now) {
                    observed.queues.push(ObservedQueue { at: at.clone(), figures });
                }
            }
        }
    }

    /// Asks the pool of a queue how much it holds.
    async fn look_at(&self, slot: &Slot, changed: &Changed) -> Result<(), Error> {
        let store = match slot.state.lock().queue_mut(&changed.at, changed.id) {
            Some(queue) => self.store_of(queue)?,
            None => return Ok(()),
        };
        let totals = store.totals(changed.id).await?;
        let oldest = match totals.ready() {
            0 => None,
            _ => self.milestone(&store, changed.id, changed.oldest.clone(), Direction::Up).await?,
        };
        let mut state = slot.state.lock();
        if let Some(queue) = state.queue_mut(&changed.at, changed.id) {
            queue.seen =
                Some(Seen { changes: changed.changes, totals, oldest: oldest.map(|oldest| oldest.created) });
        }
        Ok(())
    }
}
