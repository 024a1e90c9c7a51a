//! What is to be done for queues by parts above the slots: a list that they drain.

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
    /// Messages are to be moved to other queues. At most one for each queue: it is noted there that one is under way.
    Transfer,
    /// The queue is to be copied to another pool. One for each migration.
    Copy(Arc<Migration>),
}

/// The end of the list to which slots add.
#[derive(Clone)]
pub(crate) struct FollowUps(UnboundedSender<FollowUp>);

impl FollowUps {
    pub(crate) fn new() -> (Self, UnboundedReceiver<FollowUp>) {
        let (sender, receiver) = unbounded_channel();
        (Self(sender), receiver)
    }

    /// Adds to the list. When the service has stopped nothing follows any more.
    pub(crate) fn add(&self, follow_up: FollowUp) {
        drop(self.0.send(follow_up));
    }
}
