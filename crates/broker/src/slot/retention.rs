//! The earliest retained messages of open and closed queues, as a slot knows them ([`crate::sweeps::retained`]).

use std::sync::Arc;

use angarium_core::error::Error;
use angarium_core::ids::{MessageId, QueueId};
use angarium_core::maps::HashMap;
use angarium_core::message::{Header, Retention};
use angarium_core::names::{PoolName, QueueRef};
use angarium_core::time::Timestamp;
use angarium_storage::{RetainedEntries, RetainedPlace};

use crate::limits;
use crate::slot::state::{Slot, SlotState};
use crate::writer::change::Change;
use crate::writer::pending::WriteOutcome;

/// The earliest retained message of an open queue, as far as it is known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RetentionWatch {
    /// Lower bound of the base times of all messages; none when there is no message.
    pub(crate) oldest: Option<Timestamp>,
    /// When the pool was last read.
    pub(crate) looked: Timestamp,
    /// Where the next scan begins, if entries of other queues ended the last one: the queue has no message before it.
    pub(crate) resume: Option<RetainedPlace>,
}

impl RetentionWatch {
    /// The watch of a queue that may have messages with any base time.
    pub(crate) fn unknown() -> Self {
        Self { oldest: Some(Timestamp::default()), ..Self::default() }
    }

    /// Records that messages with these headers are durable in the queue.
    pub(crate) fn note<'a>(&mut self, headers: impl IntoIterator<Item = &'a Header>) {
        let since = headers.into_iter().filter_map(|header| header.life.retained_since()).min();
        self.oldest = since.into_iter().chain(self.oldest).min();
        self.resume = self.resume.filter(|resume| since.is_none_or(|since| since >= resume.since()));
    }

    /// Whether to read the pool: because the earliest message may have expired, or because the pool's entries for
    /// messages that were deleted long ago are to be removed.
    pub(crate) fn is_due(&self, retention: Retention, now: Timestamp) -> bool {
        let Some(oldest) = self.oldest else { return false };
        let pause = (retention.seconds() / limits::RETENTION_PARTS).max(limits::RETENTION_PAUSE_SECONDS);
        is_over(oldest, retention, now)
            || (self.looked.plus_seconds(pause) <= now && oldest.plus_seconds(2 * pause) <= now)
    }
}

pub(crate) fn is_over(oldest: Timestamp, retention: Retention, now: Timestamp) -> bool {
    retention.cutoff(now).is_some_and(|cutoff| oldest <= cutoff)
}

/// The retention and the earliest message of a closed queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClosedRetention {
    pub(crate) retention: Retention,
    pub(crate) oldest: Timestamp,
    /// As in [`RetentionWatch`].
    pub(crate) resume: Option<RetainedPlace>,
}

/// The closed queues of a slot that may have retained messages, by pool. At most [`limits::RETAINED_IDLE`]; expired
/// messages of further queues stay until the queue is opened.
#[derive(Debug, Default)]
pub(crate) struct ClosedQueues {
    pub(crate) by_pool: HashMap<PoolName, HashMap<QueueId, ClosedRetention>>,
}

impl ClosedQueues {
    /// Enters a queue that was closed.
    pub(crate) fn rest(
        &mut self,
        pool: &PoolName,
        queue: QueueId,
        retention: Retention,
        watch: RetentionWatch,
    ) {
        let Some(oldest) = watch.oldest else { return };
        if self.by_pool.values().map(HashMap::len).sum::<usize>() < limits::RETAINED_IDLE {
            let resting = ClosedRetention { retention, oldest, resume: watch.resume };
            self.by_pool.entry(pool.clone()).or_default().insert(queue, resting);
        }
    }

    /// Forgets a queue that is opened or deleted.
    pub(crate) fn forget(&mut self, queue: QueueId) {
        for queues in self.by_pool.values_mut() {
            if queues.remove(&queue).is_some() && queues.is_empty() {
                *queues = HashMap::default();
            }
        }
    }

    /// Changes the retention of a closed queue.
    pub(crate) fn set_retention(&mut self, queue: QueueId, retention: Retention) {
        let resting = self.by_pool.values_mut().filter_map(|queues| queues.get_mut(&queue));
        resting.for_each(|resting| resting.retention = retention);
    }

    pub(crate) fn get_mut(&mut self, pool: &PoolName, queue: QueueId) -> Option<&mut ClosedRetention> {
        self.by_pool.get_mut(pool)?.get_mut(&queue)
    }

    /// The queues of a pool that are to be scanned.
    pub(crate) fn due(&self, pool: &PoolName, now: Timestamp) -> impl Iterator<Item = QueueId> {
        let queues = self.by_pool.get(pool).into_iter().flatten();
        let is_due = move |resting: &ClosedRetention| is_over(resting.oldest, resting.retention, now);
        queues.filter(move |(_, resting)| is_due(resting)).map(|(queue, _)| *queue)
    }
}

/// A scan of a queue for expired retained messages.
pub(crate) struct RetentionScan {
    pub(crate) queue: QueueId,
    /// The name of the queue, if it is open.
    pub(crate) at: Option<QueueRef>,
    pub(crate) retention: Retention,
    /// The lower bound that was known before.
    pub(crate) oldest: Option<Timestamp>,
    /// Where the scan begins.
    pub(crate) from: Option<RetainedPlace>,
    /// Whether all messages of the queue were in one pool when the scan began.
    pub(crate) is_whole: bool,
}

impl Slot {
    /// Returns the queues that may have expired retained messages in a pool.
    pub(crate) fn retained_due(self: &Arc<Self>, pool: &PoolName, now: Timestamp) -> Vec<QueueId> {
        self.lock().retained_due(pool, now)
    }

    /// Returns the name of a queue that is not open, if claims hold messages of it.
    pub(crate) fn unopened_name(self: &Arc<Self>, queue: QueueId) -> Option<QueueRef> {
        self.lock().unopened_name(queue)
    }

    /// Begins a scan: from here on newly durable messages are recorded beside its result. Returns none when the pool is
    /// no longer known to hold the queue.
    pub(crate) fn begin_retention_scan(
        self: &Arc<Self>,
        pool: &PoolName,
        queue: QueueId,
        now: Timestamp,
    ) -> Option<RetentionScan> {
        self.lock().begin_retention_scan(pool, queue, now)
    }

    /// Records the result of a scan; `found` is none when it failed. Submits the removal of expired messages of an open
    /// queue.
    pub(crate) fn finish_retention_scan(
        self: &Arc<Self>,
        pool: &PoolName,
        look: &RetentionScan,
        found: Option<&RetainedEntries>,
        now: Timestamp,
    ) -> Result<Option<WriteOutcome>, Error> {
        let mut state = self.lock();
        let over = state.finish_retention_scan(pool, look, found, now);
        match &look.at {
            Some(at) if !over.is_empty() => state.submit(at, Change::remove(over)).map(Some),
            _ => Ok(None),
        }
    }
}

impl SlotState {
    /// Returns the queues that may have expired retained messages in a pool.
    fn retained_due(&self, pool: &PoolName, now: Timestamp) -> Vec<QueueId> {
        let open = self.queues.values().filter(|queue| queue.placement.contains(pool));
        let open = open.filter(|queue| queue.retained.is_due(queue.engine.retention(), now));
        open.map(|queue| queue.id).chain(self.resting.due(pool, now)).collect()
    }

    /// Returns the name of a queue that is not open, if claims hold messages of it.
    fn unopened_name(&self, queue: QueueId) -> Option<QueueRef> {
        self.unopened.get(&queue)?.first().map(|(_, record)| record.at.clone())
    }

    /// Begins a scan; see [`Slot::begin_retention_scan`].
    fn begin_retention_scan(
        &mut self,
        pool: &PoolName,
        queue: QueueId,
        now: Timestamp,
    ) -> Option<RetentionScan> {
        let open = self.queues.iter_mut().find(|(_, open)| open.id == queue);
        if let Some((at, open)) = open.filter(|(_, open)| open.placement.contains(pool)) {
            open.engine.begin_sweep(pool);
            open.retained.looked = now;
            let oldest = open.retained.oldest.take();
            let (retention, is_whole) = (open.engine.retention(), open.placement.older.is_none());
            // Each pool of a migrating queue has an order of its own.
            let from = open.retained.resume.take().filter(|_| is_whole);
            return Some(RetentionScan { queue, at: Some(at.clone()), retention, oldest, from, is_whole });
        }
        let resting = self.resting.get_mut(pool, queue)?;
        let (retention, oldest, from) = (resting.retention, Some(resting.oldest), resting.resume);
        Some(RetentionScan { queue, at: None, retention, oldest, from, is_whole: true })
    }

    /// Records the result of a scan; `found` is none when it failed. Returns the messages of an open queue that must be
    /// removed.
    fn finish_retention_scan(
        &mut self,
        pool: &PoolName,
        look: &RetentionScan,
        found: Option<&RetainedEntries>,
        now: Timestamp,
    ) -> Vec<MessageId> {
        let oldest = found.map_or(look.oldest, |found| found.oldest);
        // Found messages are removed now; if that fails, the next scan must find them again.
        let resume = match found {
            Some(found) if found.found.is_empty() => found.resume,
            Some(_) | None => look.from,
        };
        let Some(at) = &look.at else {
            match (self.resting.get_mut(pool, look.queue), oldest) {
                (Some(resting), Some(oldest)) => (resting.oldest, resting.resume) = (oldest, resume),
                (Some(_), None) => self.resting.forget(look.queue),
                (None, _) => {}
            }
            return Vec::new();
        };
        let Some(open) = self.queue_mut(at, look.queue) else { return Vec::new() };
        // The other pool of a migrating queue may have an earlier message, and the migration may have ended during the
        // scan.
        let is_whole = look.is_whole && open.placement.older.is_none() && open.placement.pool == *pool;
        let oldest = if is_whole { oldest } else { look.oldest };
        // Messages that became durable during the scan may be before it.
        let noted = open.retained.oldest;
        let is_behind = |resume: &RetainedPlace| noted.is_none_or(|noted| noted >= resume.since());
        open.retained.resume = resume.filter(|resume| is_whole && is_behind(resume));
        open.retained.oldest = oldest.into_iter().chain(noted).min();
        open.engine.finish_sweep(pool, found.map_or_else(Vec::new, |found| found.found.clone()), now)
    }
}
