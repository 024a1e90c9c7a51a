//! Messages that are in memory but not in their pool: no client can get them, and each claim would select them again.

use super::hidden::HiddenReason;
use super::queue::QueueEngine;
use angarium_core::ids::MessageId;

impl QueueEngine {
    /// Forgets those of the messages that were taken for a claim. The pool is not changed: the next owner that opens
    /// the queue reads it. Returns the number of forgotten messages.
    pub fn forget_missing(&mut self, ids: &[MessageId]) -> u64 {
        let mut forgotten = 0;
        for id in ids {
            if self.hidden.get(id).is_none_or(|hidden| hidden.why != HiddenReason::Taking) {
                continue;
            }
            if let Some(refill) = &mut self.refill {
                refill.remove(*id);
            }
            self.schedule.note_change(*id);
            let header = self.hidden.remove(id).and_then(|hidden| hidden.header);
            self.removed_from_group(*id, header.and_then(|header| header.group).as_ref());
            self.claimed -= 1;
            forgotten += 1;
        }
        forgotten
    }
}
