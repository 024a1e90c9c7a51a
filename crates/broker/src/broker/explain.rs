//! Explanations of queues and messages.

use angarium_core::access::Role;
use angarium_core::error::Error;
use angarium_core::ids::MessageId;
use angarium_core::names::QueueRef;

use crate::broker::Broker;
use crate::explain::message::MessageExplanation;
use crate::explain::queue::QueueExplanation;

impl Broker {
    /// Explains what a claim of a queue would get now, and why. `in_flight` is the bound of SQS for claimed messages. A
    /// caller with this role sees who holds the queue, and only an administrator who holds its pools or its project. It
    /// changes nothing, and costs a read of the totals, whatever the number of messages.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] when there is no such queue. A pool that does not answer is explained, and no error.
    pub async fn queue_explain(
        &self,
        at: &QueueRef,
        in_flight: usize,
        role: Role,
    ) -> Result<QueueExplanation, Error> {
        self.0.explanations.queue_explain(at, in_flight, role).await
    }

    /// Explains the state of a message, kept or not, and what must happen before a client can claim it, to a caller
    /// with this role, as [`queue_explain`](Self::queue_explain) does. It changes nothing.
    pub async fn message_explain(
        &self,
        at: &QueueRef,
        id: MessageId,
        role: Role,
    ) -> Result<MessageExplanation, Error> {
        self.0.explanations.message_explain(at, id, role).await
    }
}
