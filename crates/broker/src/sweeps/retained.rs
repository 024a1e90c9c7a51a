//! Messages that live by the retention of their queue (P14): the sweep that removes the expired ones.
//!
//! A change of the retention changes the queue's attributes, and nothing that is stored with its messages. So this
//! module keeps base times, which never change, and no deadlines. A sweep skips a queue until its earliest known
//! message may expire; for a closed queue only the base time and the retention are kept.

use rand::seq::SliceRandom;
use tracing::debug;

use angarium_core::error::Error;
use angarium_core::ids::QueueId;
use angarium_storage::RetainedEntries;

use crate::limits;
use crate::slot::sweeping::ExpiredByQueue;
use crate::sweeps::expired::SlotSweep;
use crate::writer::pending::settled;

impl SlotSweep {
    /// Removes expired retained messages of the slot from the pool, the earliest of each queue first. The queues take
    /// turns, and the number of scans in all is bounded.
    pub(in crate::sweeps) async fn sweep_retained(&self) -> Result<(), Error> {
        let pool = self.store.name();
        let mut due = self.slot.retained_due(pool, self.sweeps.0.replica.clock.now());
        // If there are more queues than scans, a random choice is scanned.
        due.shuffle(&mut self.sweeps.0.replica.random.clone());
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
                    // Damage of one queue tells nothing of the others.
                    Err(error) if error.is_damaged() => {}
                    // After a second failure the pool counts as not answering; the first one may concern its queue
                    // alone.
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

    /// Removes the messages that one scan of a queue finds. Returns whether there may be more.
    async fn scan_retained(&self, queue: QueueId) -> Result<bool, Error> {
        let SlotSweep { sweeps, slot, store } = self;
        // Only the engine of an open queue knows which messages its claims hold.
        let held = slot.unopened_name(queue);
        if let Some(at) = held {
            sweeps.0.open_queues.open_if_there(&slot.queue(&at)).await?;
        }
        let now = sweeps.0.replica.clock.now();
        let begun = slot.begin_retention_scan(store.name(), queue, now);
        let Some(look) = begun else { return Ok(false) };
        let before = look.retention.cutoff(now).unwrap_or_default();
        let looked = store.retained(queue, look.from, before, limits::sweep_messages()).await;
        let gone = slot.finish_retention_scan(store.name(), &look, looked.as_ref().ok(), now)?;
        let RetainedEntries { found, resume, .. } = looked.map_err(|error| store.failed(error))?;
        let (is_full, is_any) = (found.len() == limits::sweep_messages(), !found.is_empty());
        match (gone, look.at) {
            (Some(gone), _) => settled(gone).await.map(|()| is_full),
            (None, None) if is_any => {
                let removals = self.remove_unopened(ExpiredByQueue::from_iter([(queue, found)])).await?;
                Ok(is_full && removals > 0)
            }
            // Entries of other queues ended the scan: the next one continues after them.
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
