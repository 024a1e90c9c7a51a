//! Expired messages: a claim that meets one hides it, and a sweep finds the others in the pool's order of expiry.

use std::collections::HashSet;

use super::hidden::{HiddenMessage, HiddenReason, RemovalKind};
use super::queue::QueueEngine;
use angarium_core::ids::MessageId;
use angarium_core::message::Header;
use angarium_core::time::Timestamp;

impl QueueEngine {
    /// Begins a sweep. From now on messages that become ready are recorded: the pool may return an older header of one
    /// whose life was extended since.
    pub fn begin_sweep(&mut self) {
        self.sweep = Some(HashSet::new());
    }

    /// Hides those of the pool's expired messages that have really expired, and returns them: they must be removed.
    /// Claimed messages are spared, unless they live by queue: those expire under a claim too.
    pub fn finish_sweep(&mut self, expired: Vec<Header>, now: Timestamp) -> Vec<MessageId> {
        // Without a sweep the queue was closed and opened again after the pool was read.
        let Some(changed) = self.sweep.take() else { return Vec::new() };
        let mut gone = Vec::new();
        for header in expired {
            let id = header.id;
            if self.hidden.contains_key(&id) {
                gone.extend(self.hide_expired_claimed(id, now).then_some(id));
                continue;
            }
            let known = self.ready(id).unwrap_or(&header);
            if changed.contains(&id) || !known.is_expired(now, self.settings.retention) {
                continue;
            }
            let header = self.take_out(id).unwrap_or(header);
            self.hide_expired(header);
            gone.push(id);
        }
        gone
    }

    /// Begins to remove a message under a live claim, if it lives by queue and has expired. Returns false when it
    /// stays.
    fn hide_expired_claimed(&mut self, id: MessageId, now: Timestamp) -> bool {
        let Some(hidden) = self.hidden.get_mut(&id) else { return false };
        let (HiddenReason::Claimed(claim), Some(header)) = (hidden.why, &hidden.header) else { return false };
        let has_expired =
            header.life.retained_since().is_some() && header.is_expired(now, self.settings.retention);
        // A claim that is due or ending returns its messages; the next sweep then finds this one without a claim.
        if !has_expired || self.claims.get(claim).is_none_or(|claim| !claim.is_live(now)) {
            return false;
        }
        hidden.why = HiddenReason::Removing(Some(claim));
        hidden.removals = 1;
        hidden.removed = RemovalKind::Expired;
        true
    }

    /// Hides an expired message until it is removed.
    pub(super) fn hide_expired(&mut self, header: Header) {
        let why = HiddenReason::Removing(None);
        let hidden = HiddenMessage {
            removals: 1,
            removed: RemovalKind::Expired,
            ..HiddenMessage::new(header.clone(), why)
        };
        self.hidden.insert(header.id, hidden);
    }
}
