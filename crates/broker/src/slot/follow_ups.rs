//! Work for queues that parts above the slots must do: a list that those parts drain.

use std::sync::Arc;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::slot::migration::Migration;
use crate::slot::queue_handle::QueueHandle;

/// A queue with work for a part above.
pub(crate) struct FollowUp {
    pub(crate) queue: QueueHandle,
    pub(crate) work: QueueWork,
}

pub(crate) enum QueueWork {
    /// Transfer messages to other queues. At most one for each queue: the queue notes that a task does it.
    Transfer,
    /// Copy the queue to another pool. One for each migration.
    Copy(Arc<Migration>),
    /// Remove the oldest copies of a subscription beyond its bounds. One for each message that arrives, at most.
    DropOldest,
}

/// The sending end of the list, for the slots.
#[derive(Clone)]
pub(crate) struct FollowUps(UnboundedSender<FollowUp>);

impl FollowUps {
    pub(crate) fn new() -> (Self, UnboundedReceiver<FollowUp>) {
        let (sender, receiver) = unbounded_channel();
        (Self(sender), receiver)
    }

    /// Adds to the list. Does nothing after the service has stopped.
    pub(crate) fn add(&self, follow_up: FollowUp) {
        drop(self.0.send(follow_up));
    }
}

impl QueueHandle {
    /// Notes that the oldest copies of this queue of a subscription are to be removed.
    pub(crate) fn drop_oldest_later(self) {
        let follow_ups = self.slot().around.follow_ups.clone();
        follow_ups.add(FollowUp { queue: self, work: QueueWork::DropOldest });
    }
}
