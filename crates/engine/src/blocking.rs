//! The messages that block their groups: hidden ones, and those in transfer.
//!
//! Only ordered queues use it. It grows with the number of claimed messages, never with the number of waiting ones.

use std::collections::{BTreeMap, BTreeSet};

use crate::limits;
use angarium_core::group::GroupName;
use angarium_core::ids::MessageId;
use angarium_core::maps::HashMap;

/// The blocking messages of each group.
#[derive(Debug, Default)]
pub(super) struct Blocking {
    groups: HashMap<GroupName, BTreeSet<MessageId>>,
    /// Messages in transfer: no other structure in memory has their groups.
    in_transfer: BTreeMap<MessageId, GroupName>,
    /// Groups whose first blocking message was released, since the last call of [`Self::take_freed`].
    freed: Vec<GroupName>,
}

impl Blocking {
    /// The first message that blocks a group.
    pub(super) fn first(&self, group: &GroupName) -> Option<MessageId> {
        self.groups.get(group).and_then(|ids| ids.first().copied())
    }

    /// Number of groups with a blocking message.
    pub(super) fn groups(&self) -> usize {
        self.groups.len()
    }

    /// Whether a blocking message is in transfer.
    pub(super) fn is_in_transfer(&self, id: MessageId) -> bool {
        self.in_transfer.contains_key(&id)
    }

    /// Groups that may have become free since the last call of [`Self::take_freed`].
    pub(super) fn freed(&self) -> &[GroupName] {
        &self.freed
    }

    pub(super) fn block(&mut self, group: &GroupName, id: MessageId) {
        match self.groups.get_mut(group) {
            Some(ids) => {
                ids.insert(id);
            }
            None => {
                self.groups.insert(group.clone(), BTreeSet::from([id]));
            }
        }
    }

    pub(super) fn release(&mut self, group: &GroupName, id: MessageId) {
        let Some(ids) = self.groups.get_mut(group) else { return };
        let was_first = ids.first() == Some(&id);
        ids.remove(&id);
        if ids.is_empty() {
            self.groups.remove(group);
        }
        if was_first {
            self.freed.push(group.clone());
        }
    }

    /// Blocks a group before its first message, until [`Self::free`].
    pub(super) fn bar(&mut self, group: &GroupName) {
        self.block(group, MessageId::ZERO);
    }

    /// Ends the effect of [`Self::bar`].
    pub(super) fn free(&mut self, group: &GroupName) {
        self.release(group, MessageId::ZERO);
    }

    /// Records a message in transfer, which blocks its group until it is gone.
    pub(super) fn mark_in_transfer(&mut self, group: &GroupName, id: MessageId) {
        self.block(group, id);
        self.in_transfer.insert(id, group.clone());
    }

    /// Records that a message is not in transfer any more.
    pub(super) fn clear_in_transfer(&mut self, id: MessageId) {
        if let Some(group) = self.in_transfer.remove(&id) {
            self.release(&group, id);
        }
    }

    /// The first message in transfer.
    pub(super) fn first_in_transfer(&self) -> Option<MessageId> {
        self.in_transfer.keys().next().copied()
    }

    /// Whether so many groups became free that they should be entered without a claim.
    pub(super) fn has_many_freed(&self) -> bool {
        self.freed.len() >= limits::FREED_GROUPS
    }

    /// Returns groups that may have become free, or that are now blocked by a later message.
    pub(super) fn take_freed(&mut self) -> Vec<GroupName> {
        std::mem::take(&mut self.freed)
    }
}
