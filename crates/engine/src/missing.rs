//! Messages that memory has and their pool has not: no caller can be given one, and each claim would meet them again.

use super::hidden::HiddenReason;
use super::queue::QueueEngine;
use angarium_core::ids::MessageId;

impl QueueEngine {
    /// Forgets those of the messages that were taken for a claim. The pool is not touched: the owner that opens the
    /// queue next reads what it has. Returns how many they are.
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
