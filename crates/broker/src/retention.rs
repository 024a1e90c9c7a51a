//! Messages that live by the retention of their queue (P14): from which base time on a queue has them, and the sweep that takes
//! them from there.
//!
//! A change of the retention is a change of the queue's attributes and of nothing that is stored. So this module keeps base
//! times, which never change, and no deadlines. A sweep skips a queue until its earliest known message may expire; of a
//! closed queue only the base time and the retention are kept.

use std::collections::HashMap;
use std::sync::Arc;

use rand::seq::SliceRandom;
use tracing::debug;

use super::Broker;
use super::changes::Change;
use super::messages::settled;
use super::pool_table::NamedStore;
use super::slot::{Slot, SlotState};
use angarium_catalogue::Schema;
use angarium_core::error::Error;
use angarium_core::ids::{MessageId, QueueId};
use angarium_core::limits;
use angarium_core::message::{Header, Retention};
use angarium_core::names::{PoolName, QueueRef};
use angarium_core::queue::Metadata;
use angarium_core::time::Timestamp;
use angarium_storage::{RetainedEntries, RetainedPlace};

/// The earliest retained message of an open queue, as far as it is known.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RetentionWatch {
    /// No message has an earlier base time; none when there is no message.
    oldest: Option<Timestamp>,
    /// When the pool was asked last.
    looked: Timestamp,
    /// Where the next look begins, if what other queues hold has ended the last one: before it there is no message.
    resume: Option<RetainedPlace>,
}

impl RetentionWatch {
    /// Of a queue that may have messages from any time on.
    pub(super) fn unknown() -> Self {
        Self { oldest: Some(Timestamp::default()), ..Self::default() }
    }

    /// Messages with these headers are in the queue, durably.
    pub(super) fn note<'a>(&mut self, headers: impl IntoIterator<Item = &'a Header>) {
        let since = headers.into_iter().filter_map(|header| header.life.retained_since()).min();
        self.oldest = since.into_iter().chain(self.oldest).min();
        self.resume = self.resume.filter(|resume| since.is_none_or(|since| since >= resume.since()));
    }

    /// Whether to ask the pool: because the earliest may be over, or because what was filed for long deleted messages is to go.
    fn is_due(&self, retention: Retention, now: Timestamp) -> bool {
        let Some(oldest) = self.oldest else { return false };
        let pause = (retention.seconds() / limits::RETENTION_PARTS).max(limits::RETENTION_PAUSE_SECONDS);
        is_over(oldest, retention, now)
            || (self.looked.plus_seconds(pause) <= now && oldest.plus_seconds(2 * pause) <= now)
    }
}

fn is_over(oldest: Timestamp, retention: Retention, now: Timestamp) -> bool {
    retention.cutoff(now).is_some_and(|cutoff| oldest <= cutoff)
}

/// The retention and the earliest message of a closed queue.
#[derive(Clone, Copy, Debug)]
struct ClosedRetention {
    retention: Retention,
    oldest: Timestamp,
    /// As of an open queue.
    resume: Option<RetainedPlace>,
}

/// The closed queues of a slot that may have retained messages, by the pool they lie in; at most
/// [`limits::RETAINED_IDLE`], beyond which the messages of one stay until it is opened.
#[derive(Debug, Default)]
pub(super) struct ClosedQueues {
    by_pool: HashMap<PoolName, HashMap<QueueId, ClosedRetention>>,
}

impl ClosedQueues {
    /// A queue was closed.
    pub(super) fn rest(
        &mut self,
        pool: &PoolName,
        queue: QueueId,
        (retention, watch): (Retention, RetentionWatch),
    ) {
        let Some(oldest) = watch.oldest else { return };
        if self.by_pool.values().map(HashMap::len).sum::<usize>() < limits::RETAINED_IDLE {
            let resting = ClosedRetention { retention, oldest, resume: watch.resume };
            self.by_pool.entry(pool.clone()).or_default().insert(queue, resting);
        }
    }

    /// A queue is opened, or deleted.
    pub(super) fn forget(&mut self, queue: QueueId) {
        for queues in self.by_pool.values_mut() {
            if queues.remove(&queue).is_some() && queues.is_empty() {
                *queues = HashMap::new();
            }
        }
    }

    /// The retention of a closed queue was changed.
    pub(super) fn set_retention(&mut self, queue: QueueId, retention: Retention) {
        let resting = self.by_pool.values_mut().filter_map(|queues| queues.get_mut(&queue));
        resting.for_each(|resting| resting.retention = retention);
    }

    fn get_mut(&mut self, pool: &PoolName, queue: QueueId) -> Option<&mut ClosedRetention> {
        self.by_pool.get_mut(pool)?.get_mut(&queue)
    }

    /// Those of a pool that are to be looked at.
    fn due(&self, pool: &PoolName, now: Timestamp) -> impl Iterator<Item = QueueId> {
        let queues = self.by_pool.get(pool).into_iter().flatten();
        let is_due = move |resting: &ClosedRetention| is_over(resting.oldest, resting.retention, now);
        queues.filter(move |(_, resting)| is_due(resting)).map(|(queue, _)| *queue)
    }
}

/// A look at a queue.
struct RetentionScan {
    queue: QueueId,
    /// Its name, if it is open.
    at: Option<QueueRef>,
    retention: Retention,
    /// What was known before.
    oldest: Option<Timestamp>,
    /// Where it begins.
    from: Option<RetainedPlace>,
    /// Whether all its messages lay in one pool when the look began.
    is_whole: bool,
}

impl Broker {
    /// Whether messages may be stored as retained. Until every replica knows that form they are not, and whether all do is found
    /// out at most once in [`limits::SCHEMA_TRY`].
    pub(super) async fn may_retain(&self) -> bool {
        if self.0.catalogue.is_in_force(Schema::RETENTION) {
            return true;
        }
        {
            let mut tried = self.0.retention_tried.lock();
            if tried.is_some_and(|tried| tried.elapsed() < limits::SCHEMA_TRY) {
                return false;
            }
            *tried = Some(std::time::Instant::now());
        }
        self.0.catalogue.schema_reach(Schema::RETENTION).await.is_ok()
    }

    /// Removes expired retained messages of a slot from a pool, the earliest of each queue first, queue by queue in
    /// turns and a bounded number in all.
    pub(super) async fn sweep_retained(&self, slot: &Arc<Slot>, store: &NamedStore) -> Result<(), Error> {
        let pool = store.name();
        let mut due = slot.state.lock().retained_due(pool, self.0.clock.now());
        // More than a sweep has looks for have their turns in no order.
        due.shuffle(&mut rand::rng());
        due.truncate(limits::SWEEP_LOOKS);
        let (mut looks, mut failed) = (0, false);
        while !due.is_empty() {
            let mut left = Vec::new();
            for queue in due {
                if looks >= limits::SWEEP_LOOKS || self.0.stop.is_cancelled() || slot.closed.is_cancelled() {
                    return Ok(());
                }
                looks += 1;
                match self.scan_retained(slot, store, queue).await {
                    Ok(true) => left.push(queue),
                    Ok(false) => {}
                    // It states nothing of other queues.
                    Err(error) if error.is_damaged() => {}
                    // A second one states that the pool does not answer; the first one may be of its queue alone.
                    Err(error) if failed => return Err(error),
                    Err(error) => {
                        debug!(%error, pool = %store.name(), "retained messages not read");
                        failed = true;
                    }
                }
            }
            due = left;
        }
        Ok(())
    }

    /// Removes what one look at a queue finds. Returns whether there may be more.
    async fn scan_retained(
        &self,
        slot: &Arc<Slot>,
        store: &NamedStore,
        queue: QueueId,
    ) -> Result<bool, Error> {
        // Its engine states which of its claims hold what.
        let held = slot.state.lock().unopened_name(queue);
        if let Some(at) = held {
            self.open(slot, &at).await?;
        }
        let now = self.0.clock.now();
        let begun = slot.state.lock().begin_retention_scan(store.name(), queue, now);
        let Some(look) = begun else { return Ok(false) };
        let before = look.retention.cutoff(now).unwrap_or_default();
        let looked = store.retained(queue, look.from, before, limits::SWEEP_MESSAGES).await;
        let gone = {
            let mut state = slot.state.lock();
            let found = state.finish_retention_scan(store.name(), &look, looked.as_ref().ok(), now);
            match (&look.at, found) {
                (Some(at), found) if !found.is_empty() => {
                    Some(self.submit(slot, &mut state, at, Change::Remove(found))?)
                }
                _ => None,
            }
        };
        let RetainedEntries { found, resume, .. } = looked.map_err(|error| store.failed(error))?;
        let (is_full, is_any) = (found.len() == limits::SWEEP_MESSAGES, !found.is_empty());
        match (gone, look.at) {
            (Some(gone), _) => settled(gone).await.map(|()| is_full),
            (None, None) if is_any => {
                let removals = self.remove_unopened(slot, store.name(), [(queue, found)].into()).await?;
                Ok(is_full && removals > 0)
            }
            // Others have ended the look: the next one continues behind them.
            (None, _) => Ok(resume.is_some()),
        }
    }

    /// Notes a queue that is not open as one that may have retained messages, if it has messages at all.
    pub(super) async fn note_closed(&self, slot: &Slot, at: &QueueRef, id: QueueId) -> Result<(), Error> {
        // The retention may have been changed since the record was read that names this queue. The gate
        // keeps it as it is until it is noted.
        let _gate = slot.queue_gates.hold(at).await;
        let record = self.0.catalogue.queue(&slot.owned, at).await?;
        let Some(record) = record.filter(|record| record.id == id) else { return Ok(()) };
        let name = record.placement()?.pool;
        let store = self.pool_of_record(&name).await?.store()?;
        let totals = store.totals(record.id).await.map_err(|error| store.failed(error))?;
        let metadata = Metadata::stored(record.metadata.clone())?;
        let retention = metadata.attributes().retention(&self.0.limits);
        let mut state = slot.state.lock();
        if totals.messages > 0 && !state.queues.contains_key(at) {
            state.resting.rest(&name, record.id, (retention, RetentionWatch::unknown()));
        }
        Ok(())
    }
}

/// The retention that a target has which is made for these messages of a source: theirs at the source, so that none expires
/// earlier than it would have there. None when they do not live by the queue that they are in.
pub(super) fn retention_of(headers: &[Header], source: Retention) -> Option<u32> {
    let is_retained = headers.iter().any(|header| header.life.retained_since().is_some());
    is_retained.then_some(source.seconds())
}

/// The metadata of a target that is made.
pub(super) fn metadata_of_made(is_ordered: bool, retention: Option<u32>) -> Result<Metadata, Error> {
    let metadata = if is_ordered { Metadata::fifo() } else { Metadata::empty() };
    retention.into_iter().try_fold(metadata, Metadata::with_message_ttl)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_is_looked_at_when_its_earliest_message_may_be_over() {
        let at = |seconds| Timestamp::default().plus_seconds(seconds);
        let (day, hour) = (Retention::new(86_400), Retention::new(3_600));
        let mut watch = RetentionWatch::default();
        assert!(!watch.is_due(hour, at(1_000_000)), "it has none");
        watch = RetentionWatch { oldest: Some(at(100_000)), looked: at(100_000), resume: None };
        assert!(!watch.is_due(hour, at(100_100)));
        assert!(watch.is_due(hour, at(103_600)));
        watch.looked = at(103_599);
        assert!(!watch.is_due(day, at(103_600)), "it keeps them for longer by now");
        assert!(watch.is_due(day, at(186_400)));
        assert!(watch.is_due(day, at(110_000)), "what is long deleted is to go out of the pool's order");
    }
}
