//! Kept messages: only the pool has them. Memory knows whether there may be any, and which changes happen while they are
//! purged.

use super::hidden::{HiddenMessage, HiddenReason};
use super::queue::QueueEngine;
use angarium_core::ids::MessageId;

/// What memory knows of the kept messages of a queue.
#[derive(Debug, Default)]
pub(super) struct KeptMessages {
    /// Whether there may be any.
    pub(super) may_exist: bool,
    /// Number of kept messages that were made available again.
    requeued: u64,
}

/// Token of a page of kept messages: it tells whether some were made available again since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptPage(u64);

impl QueueEngine {
    /// The pool has kept messages of the queue.
    pub fn expect_kept(&mut self) {
        self.kept.may_exist = true;
    }

    /// Begins to read a page of kept messages.
    pub fn begin_kept_page(&self) -> KeptPage {
        KeptPage(self.kept.requeued)
    }

    /// Begins to remove the kept messages of a page. Returns those whose removal has begun; the others are being
    /// changed. None when the page must be read again: some of them may be available now.
    pub fn begin_purge_kept(&mut self, ids: &[MessageId], page: KeptPage) -> Option<Vec<MessageId>> {
        if page != self.begin_kept_page() {
            return None;
        }
        let mut begun = Vec::with_capacity(ids.len());
        for id in ids {
            match self.hidden.get_mut(id) {
                Some(hidden) => match hidden.why {
                    HiddenReason::Removing(_) => hidden.removals += 1,
                    HiddenReason::Copying => {
                        (hidden.why, hidden.removals) = (HiddenReason::Removing(None), 1);
                    }
                    HiddenReason::Taking
                    | HiddenReason::Claimed(_)
                    | HiddenReason::Returning(_)
                    | HiddenReason::Waking
                    | HiddenReason::Publishing
                    | HiddenReason::Leaving
                    | HiddenReason::Settling(_)
                    | HiddenReason::Requeuing => continue,
                },
                None => {
                    let why = HiddenReason::Removing(None);
                    self.hidden.insert(*id, HiddenMessage { removals: 1, ..HiddenMessage::unknown(why) });
                }
            }
            begun.push(*id);
        }
        Some(begun)
    }

    /// A message that may have been kept is available again.
    pub(super) fn note_requeued(&mut self) {
        self.kept.requeued += 1;
    }
}
