//! Expired messages: a claim that meets one hides it, and a sweep finds the others in the pool's order of expiry.

use super::copying::outside_group;
use super::hidden::{HiddenMessage, HiddenReason, RemovalKind};
use super::queue::QueueEngine;
use angarium_core::ids::MessageId;
use angarium_core::maps::HashSet;
use angarium_core::message::Header;
use angarium_core::mutation::{Mutation, is_on};
use angarium_core::names::PoolName;
use angarium_core::time::Timestamp;

/// The sweeps in progress, at most one of each pool: both pools of a migrating queue are swept at the same time.
#[derive(Debug, Default)]
pub(super) struct SweptPools(Vec<SweptPool>);

/// A sweep of one pool.
#[derive(Debug)]
struct SweptPool {
    pool: PoolName,
    /// The messages that were shown, settled or removed since the sweep began.
    changed: HashSet<MessageId>,
}

impl SweptPools {
    fn begin(&mut self, pool: &PoolName) {
        self.finish(pool);
        self.0.push(SweptPool { pool: pool.clone(), changed: HashSet::default() });
    }

    fn finish(&mut self, pool: &PoolName) -> Option<HashSet<MessageId>> {
        let at = self.0.iter().position(|sweep| sweep.pool == *pool)?;
        let changed = self.0.swap_remove(at).changed;
        if self.0.is_empty() {
            // An idle queue keeps no memory for it.
            self.0 = Vec::new();
        }
        Some(changed)
    }

    pub(super) fn note_change(&mut self, id: MessageId) {
        for sweep in &mut self.0 {
            sweep.changed.insert(id);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl QueueEngine {
    /// Begins a sweep of a pool. From now on messages that are shown, settled or removed are recorded: the pool may return
    /// an older header of one whose life was extended since.
    pub fn begin_sweep(&mut self, pool: &PoolName) {
        self.sweeps.begin(pool);
    }

    /// Ends the sweep of a pool. Hides those of its expired messages that have really expired, and returns them: they must
    /// be removed. Claimed messages are spared, unless they live by queue: those expire under a claim too.
    pub fn finish_sweep(&mut self, pool: &PoolName, expired: Vec<Header>, now: Timestamp) -> Vec<MessageId> {
        // Without a sweep the queue was closed and opened again after the pool was read.
        let Some(changed) = self.sweeps.finish(pool) else { return Vec::new() };
        let mut gone = Vec::new();
        for header in expired {
            let id = header.id;
            if self.hidden.contains_key(&id) {
                gone.extend(self.hide_expired_claimed(id, now).then_some(id));
                continue;
            }
            let known = self.ready(id).unwrap_or(&header);
            let has_changed = changed.contains(&id) && !is_on(Mutation::SweepOldHeaders);
            if has_changed || !known.is_expired(now, self.settings.retention) {
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
        let (id, why) = (header.id, HiddenReason::Removing(None));
        let hidden = HiddenMessage {
            removals: 1,
            removed: RemovalKind::Expired,
            ..HiddenMessage::new(outside_group(header), why)
        };
        self.hidden.insert(id, hidden);
    }
}
