//! Messages whose life is over: a claim that meets them hides them, and a sweep finds the others through the
//! pool's order of expiry.

use std::collections::HashSet;

use super::hidden::{Hidden, Removed, Why};
use super::queue::QueueEngine;
use crate::domain::ids::MessageId;
use crate::domain::message::Header;
use crate::domain::time::Timestamp;

impl QueueEngine {
    /// From here on what becomes ready is noted: the pool, which is about to be asked for expired messages, may
    /// answer with a header from before, and its life may have been lengthened.
    pub fn begin_sweep(&mut self) {
        self.sweep = Some(HashSet::new());
    }

    /// Hides those of the pool's expired messages that really are: they must be removed. Claimed ones are spared.
    pub fn finish_sweep(&mut self, expired: Vec<Header>, now: Timestamp) -> Vec<MessageId> {
        // Without a sweep the queue was opened since the pool was asked.
        let Some(changed) = self.sweep.take() else { return Vec::new() };
        let mut gone = Vec::new();
        for header in expired {
            let id = header.id;
            let known = self.ready(id).unwrap_or(&header);
            if self.hidden.contains_key(&id) || changed.contains(&id) || !known.is_expired(now) {
                continue;
            }
            let header = self.take_out(id).unwrap_or(header);
            self.hide_expired(header);
            gone.push(id);
        }
        gone
    }

    /// Hides a message whose life is over.
    pub(super) fn hide_expired(&mut self, header: Header) {
        let why = Why::Removing(None);
        let hidden = Hidden { removals: 1, removed: Removed::Expired, ..Hidden::new(header.clone(), why) };
        self.hidden.insert(header.id, hidden);
    }
}
