//! Messages that live by the retention of their queue (P14): from which base time on a queue has them, and the sweep that takes
//! them from there.
//!
//! A change of the retention is a change of the queue's attributes and of nothing that is stored. So this module keeps base
//! times, which never change, and no deadlines. A sweep skips a queue until its earliest known message may expire; of a
//! closed queue only the base time and the retention are kept.

use rand::seq::SliceRandom;
use tracing::debug;

use angarium_core::error::Error;
use angarium_core::ids::QueueId;
use angarium_storage::RetainedEntries;

use crate::limits;
use crate::sweeps::expired::SlotSweep;
use crate::writer::pending::settled;

impl SlotSweep {
    /// Removes expired retained messages of the slot from the pool, the earliest of each queue first, queue by queue in
    /// turns and a bounded number in all.
    pub(in crate::sweeps) async fn sweep_retained(&self) -> Result<(), Error> {
        let pool = self.store.name();
        let mut due = self.slot.retained_due(pool, self.sweeps.0.replica.clock.now());
        // More than a sweep has looks for have their turns in no order.
        due.shuffle(&mut rand::rng());
        due.truncate(limits::SWEEP_LOOKS);
        let (mut looks, mut failed) = (0, false);
        while !due.is_empty() {
            let mut left = Vec::new();
            for queue in due {
                if looks >= limits::SWEEP_LOOKS || self.is_stopped() {
                    return Ok(());
                }
                looks += 1;
                match self.scan_retained(queue).await {
                    Ok(true) => left.push(queue),
                    Ok(false) => {}
                    // It states nothing of other queues.
                    Err(error) if error.is_damaged() => {}
                    // A second one states that the pool does not answer; the first one may be of its queue alone.
                    Err(error) if failed => return Err(error),
                    Err(error) => {
                        debug!(%error, %pool, "retained messages not read");
                        failed = true;
                    }
                }
            }
            due = left;
        }
        Ok(())
    }

    /// Removes what one look at a queue finds. Returns whether there may be more.
    async fn scan_retained(&self, queue: QueueId) -> Result<bool, Error> {
        let SlotSweep { sweeps, slot, store } = self;
        // Its engine states which of its claims hold what.
        let held = slot.unopened_name(queue);
        if let Some(at) = held {
            sweeps.0.open_queues.open(&slot.queue(&at)).await?;
        }
        let now = sweeps.0.replica.clock.now();
        let begun = slot.begin_retention_scan(store.name(), queue, now);
        let Some(look) = begun else { return Ok(false) };
        let before = look.retention.cutoff(now).unwrap_or_default();
        let looked = store.retained(queue, look.from, before, limits::SWEEP_MESSAGES).await;
        let gone = slot.finish_retention_scan(store.name(), &look, looked.as_ref().ok(), now)?;
        let RetainedEntries { found, resume, .. } = looked.map_err(|error| store.failed(error))?;
        let (is_full, is_any) = (found.len() == limits::SWEEP_MESSAGES, !found.is_empty());
        match (gone, look.at) {
            (Some(gone), _) => settled(gone).await.map(|()| is_full),
            (None, None) if is_any => {
                let removals = self.remove_unopened([(queue, found)].into()).await?;
                Ok(is_full && removals > 0)
            }
            // Others have ended the look: the next one continues behind them.
            (None, _) => Ok(resume.is_some()),
        }
    }
}
#[cfg(test)]
mod tests {
    use crate::slot::retention::RetentionWatch;
    use angarium_core::message::Retention;
    use angarium_core::time::Timestamp;

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
