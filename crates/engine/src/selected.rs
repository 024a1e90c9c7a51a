//! Changes of the messages that a task selects by conditions.
//!
//! The task hides each message by its id, as for a requeue, and reads it in the pool. So it judges the message that it
//! changes: no claim and no other change is between.

use super::hidden::HiddenReason;
use super::queue::QueueEngine;
use angarium_core::ids::MessageId;
use angarium_core::message::Header;

impl QueueEngine {
    /// Begins to remove messages that [`QueueEngine::begin_requeue`] has hidden. Ends like any removal.
    pub fn begin_remove_selected(&mut self, ids: &[MessageId]) {
        for id in ids {
            if let Some(hidden) =
                self.hidden.get_mut(id).filter(|hidden| hidden.why == HiddenReason::Requeuing)
            {
                (hidden.why, hidden.removals) = (HiddenReason::Removing(None), 1);
            }
        }
    }

    /// Begins to mark messages in transfer that [`QueueEngine::begin_requeue`] has hidden. Ends like the transfer of a
    /// message that was taken to leave.
    pub fn begin_leave_selected(&mut self, ids: &[MessageId]) {
        for id in ids {
            if let Some(hidden) =
                self.hidden.get_mut(id).filter(|hidden| hidden.why == HiddenReason::Requeuing)
            {
                hidden.why = HiddenReason::Leaving;
            }
        }
    }

    /// Leaves a hidden message as the pool has it: with the stored header it is shown again.
    pub fn leave_selected_as_is(&mut self, header: &Header) {
        self.requeue_read(header);
        self.cancel_requeue(header.id);
    }
}
