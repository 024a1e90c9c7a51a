//! What is not done twice to a queue within a minute, for those who want that (SQS). The tree has it, so that any
//! caller that takes the slot over knows of it.

use angarium_catalogue::{Act, ActRecord};
use angarium_core::error::Error;
use angarium_core::names::QueueRef;
use angarium_core::time::Timestamp;

use crate::limits;
use crate::queues::Queues;
use crate::slot::state::Slot;

impl Queues {
    /// Notes that something is about to be done to a queue, durable when this returns. False when it was done less than
    /// [`limits::SQS_PAUSE_SECONDS`] ago, and then nothing is noted.
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

    /// Whether something was done to a queue less than [`limits::SQS_PAUSE_SECONDS`] ago, by those who note it.
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
