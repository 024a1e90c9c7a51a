//! The state of a message for a client that follows it, kept or not, with a wait for its outcome.

use std::time::Duration;

use tokio::time::Instant;

use angarium_core::claim::ClaimWait;
use angarium_core::error::{Error, Resource};
use angarium_core::ids::{MessageId, QueueId};
use angarium_core::names::{QueueName, QueueRef};
use angarium_core::settle::MessageState;
use angarium_core::time::Timestamp;

use crate::messages::Messages;
use crate::messages::single::no_message;
use crate::messages::view::MessageStatus;
use crate::slot::outcome_watch::WatchedMessage;
use crate::slot::slot_queue::SlotQueue;

/// The result of one read of a message.
enum StatusAttempt {
    /// It has an outcome, or there is no more time to wait.
    Found(MessageStatus),
    /// It has no outcome yet.
    Pending(PendingMessage),
}

/// How long a waiter waits for the end of a message whose life has ended, before the message is read again.
const ENDING: Duration = Duration::from_secs(1);

/// A transfer of a message, as the last read has found it.
struct SeenTransfer {
    /// The queue that it leaves.
    source: QueueId,
    target: QueueName,
}

/// A message without an outcome.
struct PendingMessage {
    watched: WatchedMessage,
    /// Its transfer to another queue, if it is in one.
    transfer: Option<SeenTransfer>,
    /// How long it may be as it was read: until it expires. None in transfer, where it does not.
    rest: Option<Duration>,
}

impl Messages {
    /// Returns a message, kept or not. With a wait, waits until it is done, failed or gone, and then, or when the wait
    /// has timed out, returns its state at that moment. If the slot is recovered meanwhile, continues the wait there.
    pub(crate) async fn message_status(
        &self,
        at: &QueueRef,
        id: MessageId,
        wait: ClaimWait,
    ) -> Result<MessageStatus, Error> {
        let start = Instant::now();
        let mut transfer: Option<SeenTransfer> = None;
        loop {
            // In boxes, because a waiter must cost little memory.
            let queue = Box::pin(self.0.slots.queue(at)).await?;
            let slot = queue.slot();
            let has_time = !self.0.replica.waits.is_cancelled();
            let left =
                if has_time { wait.duration().saturating_sub(start.elapsed()) } else { Duration::ZERO };
            match Box::pin(self.status_or_watch(&queue, id, left, transfer.as_ref())).await {
                Ok(StatusAttempt::Found(status)) => return Ok(status),
                Ok(StatusAttempt::Pending(pending)) => {
                    transfer = pending.transfer;
                    let longest = pending.rest.map_or(left, |rest| rest.min(left));
                    if let Some(to) = pending.watched.changed(longest).await {
                        return self.0.slots.confirm(slot, Ok(MessageStatus::Transferred { to }));
                    }
                }
                Err(_) if slot.closed.is_cancelled() && start.elapsed() < wait.duration() => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads a message, whose last read may have found it in transfer. If it has no outcome yet and there is time left, it
    /// is watched since before the read.
    async fn status_or_watch(
        &self,
        queue: &SlotQueue,
        id: MessageId,
        left: Duration,
        transfer: Option<&SeenTransfer>,
    ) -> Result<StatusAttempt, Error> {
        let Some(open) = self.0.open_queues.open(queue).await? else {
            return self.0.slots.confirm(queue.slot(), Err(no_message(id)));
        };
        let watched = if left.is_zero() { None } else { Some(open.watch_outcome(id)?) };
        let found = self.read_open(&open, id).await;
        let view = match (self.0.slots.confirm(queue.slot(), found), transfer) {
            // Its transfer has ended since. With another queue of this name it was perhaps deleted.
            (
                Err(Error::NotFound { resource: Resource::Message, .. }),
                Some(SeenTransfer { source, target }),
            ) if *source == open.id() => {
                return Ok(StatusAttempt::Found(MessageStatus::Transferred { to: target.clone() }));
            }
            (found, _) => found?,
        };
        match watched {
            Some(watched) if !view.state.is_final() => {
                let target = view.target.filter(|_| view.state == MessageState::InTransfer);
                if let Some(target) = &target {
                    watched.note_target(target.clone());
                }
                let rest = target.is_none().then(|| self.life_left(view.expires));
                let transfer = target.map(|target| SeenTransfer { source: open.id(), target });
                Ok(StatusAttempt::Pending(PendingMessage { watched, transfer, rest }))
            }
            Some(_) | None => Ok(StatusAttempt::Found(MessageStatus::Here(Box::new(view)))),
        }
    }

    /// Time until a message that expires then is read again. One whose life has ended is about to be removed, or its claim
    /// decides.
    fn life_left(&self, expires: Timestamp) -> Duration {
        match expires.as_millis().saturating_sub(self.0.replica.clock.now().as_millis()) {
            0 => ENDING,
            left => Duration::from_millis(left + 1),
        }
    }
}
