//! Messages whose life is over.

use super::queue::{Hidden, QueueEngine, Why};
use super::window::Ready;
use crate::domain::ids::MessageId;
use crate::domain::message::Header;
use crate::domain::time::Timestamp;

impl QueueEngine {
    /// Hides messages at the head of the window whose life is over, at most `limit`: they must be removed.
    pub fn take_expired(&mut self, limit: usize, now: Timestamp) -> Vec<MessageId> {
        let mut expired = Vec::new();
        while expired.len() < limit && self.window.oldest().is_some_and(|oldest| oldest.is_expired(now)) {
            let Some(Ready { header, .. }) = self.window.pop_first() else { break };
            expired.push(header.id);
            self.hide_expired(header);
        }
        expired
    }

    /// Hides a message whose life is over.
    pub(super) fn hide_expired(&mut self, header: Header) {
        let hidden = Hidden { removals: 1, ..Hidden::new(header.clone(), Why::Removing(None)) };
        self.hidden.insert(header.id, hidden);
    }
}
