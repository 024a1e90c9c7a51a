//! Repeated receives. A client that never got the answer to its receive sends the id of the receive again, and gets the
//! same messages with the same handles, hidden for their whole time again. Source: `ReceiveRequestAttemptId` of SQS,
//! for FIFO queues.
//!
//! The id of a receive is in the record of its claim, so every later owner of the slot knows it for as long as the
//! claim exists.

use angarium_core::claim::Visibility;
use angarium_core::error::Error;
use angarium_core::group::AttemptId;
use angarium_core::names::QueueRef;
use angarium_core::time::Timestamp;
use angarium_engine::QueueEngine;

use crate::claims::Claims;
use crate::claims::change_wait::ChangeWait;
use crate::claims::create::ClaimView;

/// A receive that is repeated.
pub(crate) struct RepeatedReceive {
    pub(crate) view: ClaimView,
    /// When the messages were first received.
    pub(crate) received: Timestamp,
}

impl Claims {
    /// Repeats the receive with this id. Returns none when there was no such receive, or when it cannot be repeated: it
    /// has ended, or one of its messages was deleted or changed.
    pub(crate) async fn receive_again(
        &self,
        at: &QueueRef,
        id: &AttemptId,
        visibility: Visibility,
    ) -> Result<Option<RepeatedReceive>, Error> {
        let queue = self.0.slots.queue(at).await?;
        let Some(queue) = self.0.open_queues.open(&queue).await? else { return Ok(None) };
        let time = self.0.slots.claim_time();
        let wait = ChangeWait::begin();
        let found = loop {
            let changed = queue.slot().claim_changed();
            let look = |engine: &mut QueueEngine| (engine.attempt(id, time), engine.is_renewing(id));
            match queue.decide(look).ok_or_else(|| queue.closed())? {
                (None, true) => wait.next(changed).await?,
                (found, _) => break found,
            }
        };
        let Some((claim, attempt)) = found else { return Ok(None) };
        let (received, messages) = (attempt.received, attempt.messages);
        let renewed = self.claim_renew_as(at, claim, visibility.terms(), Some(attempt)).await;
        match renewed {
            // The claim has just ended.
            Err(Error::NotFound { .. }) => return Ok(None),
            renewed => renewed?,
        }
        let view = self.claim_get(at, claim).await?.view;
        // A client that deletes one of the messages meanwhile has the first answer already.
        Ok((view.messages.len() == messages).then_some(RepeatedReceive { view, received }))
    }
}
