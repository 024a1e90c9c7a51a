//! Which messages block the groups that they are in: those that are hidden, and those on their way to another queue.
//!
//! It is kept for queues that are in order of groups only, and grows with what is claimed, never with what waits.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::limits;
use angarium_core::group::GroupName;
use angarium_core::ids::MessageId;

/// Of each group the messages that block it.
#[derive(Debug, Default)]
pub(super) struct Blocking {
    groups: HashMap<GroupName, BTreeSet<MessageId>>,
    /// Those that were marked in transfer: nothing else in memory knows their groups.
    in_transfer: BTreeMap<MessageId, GroupName>,
    /// Groups whose first blocking message went, since a caller last asked.
    freed: Vec<GroupName>,
}

impl Blocking {
    /// The first message that blocks a group.
    pub(super) fn first(&self, group: &GroupName) -> Option<MessageId> {
        self.groups.get(group).and_then(|ids| ids.first().copied())
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

    /// A message is on its way to another queue, and blocks its group until it is gone.
    pub(super) fn mark_in_transfer(&mut self, group: &GroupName, id: MessageId) {
        self.block(group, id);
        self.in_transfer.insert(id, group.clone());
    }

    /// A message is on its way no more.
    pub(super) fn clear_in_transfer(&mut self, id: MessageId) {
        if let Some(group) = self.in_transfer.remove(&id) {
            self.release(&group, id);
        }
    }

    /// The first message that is on its way.
    pub(super) fn first_in_transfer(&self) -> Option<MessageId> {
        self.in_transfer.keys().next().copied()
    }

    /// Whether so many groups became free that they are to be entered, though no caller asks for them.
    pub(super) fn has_many_freed(&self) -> bool {
        self.freed.len() >= limits::FREED_GROUPS
    }

    /// Groups that something may be taken from now, or that are only blocked further behind.
    pub(super) fn take_freed(&mut self) -> Vec<GroupName> {
        std::mem::take(&mut self.freed)
    }
}
