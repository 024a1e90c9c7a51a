//! The earliest retained messages of open and closed queues, as a slot knows them ([`crate::sweeps::retained`]).

use std::collections::HashMap;
use std::sync::Arc;

use angarium_core::error::Error;
use angarium_core::ids::{MessageId, QueueId};
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
    /// No message has an earlier base time; none when there is no message.
    pub(crate) oldest: Option<Timestamp>,
    /// When the pool was asked last.
    pub(crate) looked: Timestamp,
    /// Where the next look begins, if what other queues hold has ended the last one: before it there is no message.
    pub(crate) resume: Option<RetainedPlace>,
}

impl RetentionWatch {
    /// Of a queue that may have messages from any time on.
    pub(crate) fn unknown() -> Self {
        Self { oldest: Some(Timestamp::default()), ..Self::default() }
    }

    /// Messages with these headers are in the queue, durably.
    pub(crate) fn note<'a>(&mut self, headers: impl IntoIterator<Item = &'a Header>) {
        let since = headers.into_iter().filter_map(|header| header.life.retained_since()).min();
        self.oldest = since.into_iter().chain(self.oldest).min();
        self.resume = self.resume.filter(|resume| since.is_none_or(|since| since >= resume.since()));
    }

    /// Whether to ask the pool: because the earliest may be over, or because what was filed for long deleted messages is to go.
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
    /// As of an open queue.
    pub(crate) resume: Option<RetainedPlace>,
}

/// The closed queues of a slot that may have retained messages, by the pool they lie in; at most
/// [`limits::RETAINED_IDLE`], beyond which the messages of one stay until it is opened.
#[derive(Debug, Default)]
pub(crate) struct ClosedQueues {
    pub(crate) by_pool: HashMap<PoolName, HashMap<QueueId, ClosedRetention>>,
}

impl ClosedQueues {
    /// A queue was closed.
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

    /// A queue is opened, or deleted.
    pub(crate) fn forget(&mut self, queue: QueueId) {
        for queues in self.by_pool.values_mut() {
            if queues.remove(&queue).is_some() && queues.is_empty() {
                *queues = HashMap::new();
            }
        }
    }

    /// The retention of a closed queue was changed.
    pub(crate) fn set_retention(&mut self, queue: QueueId, retention: Retention) {
        let resting = self.by_pool.values_mut().filter_map(|queues| queues.get_mut(&queue));
        resting.for_each(|resting| resting.retention = retention);
    }

    pub(crate) fn get_mut(&mut self, pool: &PoolName, queue: QueueId) -> Option<&mut ClosedRetention> {
        self.by_pool.get_mut(pool)?.get_mut(&queue)
    }

    /// Those of a pool that are to be looked at.
    pub(crate) fn due(&self, pool: &PoolName, now: Timestamp) -> impl Iterator<Item = QueueId> {
        let queues = self.by_pool.get(pool).into_iter().flatten();
        let is_due = move |resting: &ClosedRetention| is_over(resting.oldest, resting.retention, now);
        queues.filter(move |(_, resting)| is_due(resting)).map(|(queue, _)| *queue)
    }
}

/// A look at a queue.
pub(crate) struct RetentionScan {
    pub(crate) queue: QueueId,
    /// Its name, if it is open.
    pub(crate) at: Option<QueueRef>,
    pub(crate) retention: Retention,
    /// What was known before.
    pub(crate) oldest: Option<Timestamp>,
    /// Where it begins.
    pub(crate) from: Option<RetainedPlace>,
    /// Whether all its messages lay in one pool when the look began.
    pub(crate) is_whole: bool,
}

impl Slot {
    /// The queues that have something in a pool which may be over.
    pub(crate) fn retained_due(self: &Arc<Self>, pool: &PoolName, now: Timestamp) -> Vec<QueueId> {
        self.lock().retained_due(pool, now)
    }

    /// The name of a queue that is not open, if claims hold messages of it.
    pub(crate) fn unopened_name(self: &Arc<Self>, queue: QueueId) -> Option<QueueRef> {
        self.lock().unopened_name(queue)
    }

    /// From here on what becomes durable is noted beside what the pool will say. None when the queue is not there any more.
    pub(crate) fn begin_retention_scan(
        self: &Arc<Self>,
        pool: &PoolName,
        queue: QueueId,
        now: Timestamp,
    ) -> Option<RetentionScan> {
        self.lock().begin_retention_scan(pool, queue, now)
    }

    /// Notes what a look found; nothing when it failed. Puts the removal of expired messages of an open queue on its
    /// way.
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
    /// The queues that have something in a pool which may be over.
    fn retained_due(&self, pool: &PoolName, now: Timestamp) -> Vec<QueueId> {
        let open = self.queues.values().filter(|queue| queue.placement.contains(pool));
        let open = open.filter(|queue| queue.retained.is_due(queue.engine.retention(), now));
        open.map(|queue| queue.id).chain(self.resting.due(pool, now)).collect()
    }

    /// The name of a queue that is not open, if claims hold messages of it.
    fn unopened_name(&self, queue: QueueId) -> Option<QueueRef> {
        self.unopened.get(&queue)?.first().map(|(_, record)| record.at.clone())
    }

    /// From here on what becomes durable is noted beside what the pool will say. None when the queue is not there any more.
    fn begin_retention_scan(
        &mut self,
        pool: &PoolName,
        queue: QueueId,
        now: Timestamp,
    ) -> Option<RetentionScan> {
        let open = self.queues.iter_mut().find(|(_, open)| open.id == queue);
        if let Some((at, open)) = open.filter(|(_, open)| open.placement.contains(pool)) {
            open.engine.begin_sweep();
            open.retained.looked = now;
            let oldest = open.retained.oldest.take();
            let (retention, is_whole) = (open.engine.retention(), open.placement.older.is_none());
            // Of a queue that moves each pool has an order of its own.
            let from = open.retained.resume.take().filter(|_| is_whole);
            return Some(RetentionScan { queue, at: Some(at.clone()), retention, oldest, from, is_whole });
        }
        let resting = self.resting.get_mut(pool, queue)?;
        let (retention, oldest, from) = (resting.retention, Some(resting.oldest), resting.resume);
        Some(RetentionScan { queue, at: None, retention, oldest, from, is_whole: true })
    }

    /// Notes what a look found; nothing when it failed. Returns the messages of an open queue that must be removed.
    fn finish_retention_scan(
        &mut self,
        pool: &PoolName,
        look: &RetentionScan,
        found: Option<&RetainedEntries>,
        now: Timestamp,
    ) -> Vec<MessageId> {
        let oldest = found.map_or(look.oldest, |found| found.oldest);
        // What is found is removed, and is found again where that fails.
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
        // The other pool of a queue that moves may have an earlier one, and the move may have ended during the look.
        let is_whole = look.is_whole && open.placement.older.is_none() && open.placement.pool == *pool;
        let oldest = if is_whole { oldest } else { look.oldest };
        // What became durable meanwhile may lie before it.
        let noted = open.retained.oldest;
        let is_behind = |resume: &RetainedPlace| noted.is_none_or(|noted| noted >= resume.since());
        open.retained.resume = resume.filter(|resume| is_whole && is_behind(resume));
        open.retained.oldest = oldest.into_iter().chain(noted).min();
        open.engine.finish_sweep(found.map_or_else(Vec::new, |found| found.found.clone()), now)
    }
}
