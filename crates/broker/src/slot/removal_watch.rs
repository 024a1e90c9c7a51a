//! The messages that leave a queue while a page of it is read to fill the queue of a subscription.
//!
//! ```text
//! page read ──▶ delete durable, answered ──▶ page submitted: without the copy
//! page read ──▶ page submitted, with the copy ──▶ delete answered
//! ```
//!
//! A removal is entered under the lock of the slot before its request is answered, and a page is compared with all of
//! them under the lock under which it is submitted. So no copy is made after the answer to a deletion.

use angarium_core::ids::MessageId;
use angarium_core::maps::HashSet;
use angarium_core::message::{Header, State};
use angarium_core::mutation::{Mutation, is_on};
use angarium_storage::Changes;

use crate::slot::queue_handle::QueueHandle;
use crate::slot::state::OpenQueue;

/// Messages that are noted at most. With more of them the page is read again.
const NOTED: usize = 65_536;

/// Messages that have left a queue.
#[derive(Debug, Default)]
pub(crate) struct RemovalWatch(HashSet<MessageId>);

impl RemovalWatch {
    /// Whether a message that was read has left the queue since.
    pub(in crate::slot) fn has_left(&self, id: MessageId) -> bool {
        self.0.contains(&id) && !is_on(Mutation::CopyRemovedByFill)
    }
}

impl QueueHandle {
    /// Begins to note the messages that leave the queue, in place of those before. One task at a time fills the queues of
    /// subscriptions.
    pub(crate) fn watch_removals(&self) {
        self.lock_queue(|queue| queue.removals = Some(RemovalWatch::default()));
    }

    /// Ends that, whether the page was written or not.
    pub(crate) fn forget_removals(&self) {
        self.lock_queue(|queue| queue.removals = None);
    }
}

impl OpenQueue {
    /// Notes the messages that have left by a durable change.
    pub(in crate::slot) fn note_removals(&mut self, changes: &Changes) {
        let Some(RemovalWatch(left)) = &mut self.removals else { return };
        left.extend(&changes.removes);
        left.extend(changes.updates.iter().filter(|header| !waits(header)).map(|header| header.id));
        if left.len() > NOTED {
            self.removals = None;
        }
    }
}

/// Whether a message waits in its queue, for a consumer or under its claim.
pub(in crate::slot) fn waits(header: &Header) -> bool {
    match &header.state {
        State::Ready | State::Scheduled => true,
        State::Moving(_) | State::Prepared(_) | State::NoTarget | State::Done | State::Failed => false,
    }
}
