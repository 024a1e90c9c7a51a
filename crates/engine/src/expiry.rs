//! Messages whose life has ended: a claim that meets them hides them, and a sweep finds the others through the
//! pool's order of expiry.

use std::collections::HashSet;

use super::hidden::{HiddenMessage, HiddenReason, RemovalKind};
use super::queue::QueueEngine;
use angarium_core::ids::MessageId;
use angarium_core::message::{Header, Retention};
use angarium_core::time::Timestamp;

impl QueueEngine {
    /// From here on what becomes ready is noted: the pool, which is about to be asked for expired messages, may
    /// answer with a header from before, and its life may have been lengthened.
    pub fn begin_sweep(&mut self) {
        self.sweep = Some(HashSet::new());
    }

    /// How long messages are kept that live by the queue's retention, from now on: those that wait too.
    pub fn set_retention(&mut self, retention: Retention) {
        self.retention = retention;
    }

    /// How long messages are kept that live by the queue's retention.
    pub fn retention(&self) -> Retention {
        self.retention
    }

    /// Hides those of the pool's expired messages that really are: they must be removed. Claimed ones are spared, unless they
    /// live by the queue's retention, which ends under a claim too.
    pub fn finish_sweep(&mut self, expired: Vec<Header>, now: Timestamp) -> Vec<MessageId> {
        // Without a sweep the queue was opened since the pool was asked.
        let Some(changed) = self.sweep.take() else { return Vec::new() };
        let mut gone = Vec::new();
        for header in expired {
            let id = header.id;
            if self.hidden.contains_key(&id) {
                gone.extend(self.hide_expired_claimed(id, now).then_some(id));
                continue;
            }
            let known = self.ready(id).unwrap_or(&header);
            if changed.contains(&id) || !known.is_expired(now, self.retention) {
                continue;
            }
            let header = self.take_out(id).unwrap_or(header);
            self.hide_expired(header);
            gone.push(id);
        }
        gone
    }

    /// Begins to remove a message that a live claim holds, if its queue keeps it no longer. False when it stays.
    fn hide_expired_claimed(&mut self, id: MessageId, now: Timestamp) -> bool {
        let Some(hidden) = self.hidden.get_mut(&id) else { return false };
        let (HiddenReason::Claimed(claim), Some(header)) = (hidden.why, &hidden.header) else { return false };
        let is_over = header.life.retained_since().is_some() && header.is_expired(now, self.retention);
        // One whose end has begun, or is due, gives its messages back; then this one is found without it.
        if !is_over || self.claims.get(claim).is_none_or(|claim| !claim.is_live(now)) {
            return false;
        }
        hidden.why = HiddenReason::Removing(Some(claim));
        hidden.removals = 1;
        hidden.removed = RemovalKind::Expired;
        true
    }

    /// Hides a message whose life has ended.
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
