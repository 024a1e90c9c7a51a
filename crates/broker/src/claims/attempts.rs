//! Receives that are repeated because their client never saw the answer: it names the receive, and gets the same
//! messages with the same handles, hidden for their whole time again. Source: `ReceiveRequestAttemptId` of SQS, for
//! queues in order of groups.
//!
//! The id of a receive is in the record of its claim, so it is known for as long as the claim is, no matter which
//! caller owns the slot.

use angarium_core::claim::Visibility;
use angarium_core::error::Error;
use angarium_core::group::AttemptId;
use angarium_core::names::QueueRef;
use angarium_core::time::Timestamp;

use crate::claims::Claims;
use crate::claims::create::ClaimView;

/// A receive that is repeated.
pub(crate) struct RepeatedReceive {
    pub(crate) view: ClaimView,
    /// When the messages were received first.
    pub(crate) received: Timestamp,
}

impl Claims {
    /// Repeats the receive with this id. None when there was no such receive, or it cannot be repeated: it has ended, or
    /// something was done with one of its messages.
    pub(crate) async fn receive_again(
        &self,
        at: &QueueRef,
        id: &AttemptId,
        visibility: Visibility,
    ) -> Result<Option<RepeatedReceive>, Error> {
        let queue = self.0.slots.queue(at).await?;
        let Some(queue) = self.0.open_queues.open(&queue).await? else { return Ok(None) };
        let time = self.0.slots.claim_time();
        let found = queue.decide(|engine| engine.attempt(id, time)).flatten();
        let Some((claim, attempt)) = found else { return Ok(None) };
        let (received, messages) = (attempt.received, attempt.messages);
        let renewed = self.claim_renew_as(at, claim, visibility.terms(), Some(attempt)).await;
        match renewed {
            // It has just ended.
            Err(Error::NotFound { .. }) => return Ok(None),
            renewed => renewed?,
        }
        let view = self.claim_get(at, claim).await?.view;
        // A caller that deletes one of them meanwhile has its answer already.
        Ok((view.messages.len() == messages).then_some(RepeatedReceive { view, received }))
    }
}
