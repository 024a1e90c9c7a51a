//! Acts that must not be repeated on a queue within a minute, for clients that require this (SQS). The notes are in the
//! tree, so a later owner of the slot has them.

use angarium_catalogue::{Act, ActRecord};
use angarium_core::error::Error;
use angarium_core::names::QueueRef;
use angarium_core::time::Timestamp;

use crate::limits;
use crate::queues::Queues;
use crate::slot::state::Slot;

impl Queues {
    /// Notes that an act on a queue is about to begin; the note is durable when this returns. Returns false, and notes
    /// nothing, when the same act was noted less than [`limits::SQS_PAUSE_SECONDS`] ago.
    pub async fn act_begin(&self, at: &QueueRef, act: Act) -> Result<bool, Error> {
        let slot = self.0.slots.slot(at).await?;
        let _tasks = slot.tasks.lock().await;
        let mut acts = self.recent_acts(&slot).await?;
        if has(&acts, at, act) {
            return Ok(false);
        }
        if acts.len() >= limits::SQS_PAUSES {
            acts.remove(0);
        }
        let since = self.0.replica.clock.now().as_millis();
        acts.push(ActRecord { at: at.clone(), act, since });
        self.0.replica.catalogue.noted_acts_write(&slot.owned, &acts).await?;
        Ok(true)
    }

    /// Whether this act on a queue was noted less than [`limits::SQS_PAUSE_SECONDS`] ago.
    pub async fn is_recent(&self, at: &QueueRef, act: Act) -> Result<bool, Error> {
        let slot = self.0.slots.slot(at).await?;
        Ok(has(&self.recent_acts(&slot).await?, at, act))
    }

    pub(crate) async fn recent_acts(&self, slot: &Slot) -> Result<Vec<ActRecord>, Error> {
        let mut acts = self.0.replica.catalogue.noted_acts(&slot.owned).await?;
        self.0.slots.check_ours(slot)?;
        let now = self.0.replica.clock.now();
        let ends =
            |noted: &ActRecord| Timestamp::from_millis(noted.since).plus_seconds(limits::SQS_PAUSE_SECONDS);
        acts.retain(|noted| now < ends(noted));
        Ok(acts)
    }
}

pub(crate) fn has(acts: &[ActRecord], at: &QueueRef, act: Act) -> bool {
    acts.iter().any(|noted| noted.act == act && noted.at == *at)
}
