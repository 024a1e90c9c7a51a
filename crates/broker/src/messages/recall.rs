//! Recalls: a message is removed whatever its state, also from under a claim of another caller.

use std::time::Duration;

use tokio::time::Instant;

use angarium_core::error::{Error, Part};
use angarium_core::ids::MessageId;
use angarium_core::names::QueueRef;

use crate::limits;
use crate::messages::Messages;
use crate::slot::slot_queue::SlotQueue;
use crate::writer::pending::{WriteOutcome, settled};

/// How often a recall looks whether the claim of its message has been made: no notice reports that.
const CLAIM_LOOK: Duration = Duration::from_millis(20);

impl Messages {
    /// Removes a message, claimed or not, kept or not. It is gone from the pool when this returns. A missing message is
    /// no error.
    pub(crate) async fn message_recall(&self, at: &QueueRef, id: MessageId) -> Result<(), Error> {
        let queue = self.0.slots.queue(at).await?;
        let slot = queue.slot();
        let removal = self.recall_or_refuse(&queue, id).await;
        match self.0.slots.confirm_refusal(slot, removal)? {
            Some(outcome) => settled(outcome).await,
            None => self.0.slots.check_ours(slot),
        }
    }

    /// Begins to remove a message. Waits while its claim is being made, ended or settled. Returns none when there is no
    /// such queue.
    async fn recall_or_refuse(
        &self,
        queue: &SlotQueue,
        id: MessageId,
    ) -> Result<Option<WriteOutcome>, Error> {
        let Some(open) = self.0.open_queues.open(queue).await? else { return Ok(None) };
        let begun = Instant::now();
        loop {
            let changed = queue.slot().claim_changed();
            if let Some(outcome) = open.begin_recall(id)? {
                return Ok(Some(outcome));
            }
            match self.delete_or_refuse(queue, id, None).await {
                Err(Error::Claimed(_)) if begun.elapsed() < limits::CLAIM_DEADLINE => {
                    let _ = tokio::time::timeout(CLAIM_LOOK, changed).await;
                }
                Err(Error::Claimed(_)) => {
                    let why = "a change of the claim has no outcome yet";
                    return Err(Error::unavailable(Part::Coordination, why));
                }
                removal => return removal,
            }
        }
    }
}
