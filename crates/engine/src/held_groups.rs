//! Held groups: no message of them is given to a claim.
//!
//! ```text
//! ordered queue:  a held group is blocked before its first message
//! other queues:   ready ──met by a claim──▶ hidden ──durable──▶ aside ──released──▶ hidden ──durable──▶ ready
//! ```
//!
//! A message that is aside is scheduled for no time, with the id of its hold as mark. So it costs later claims nothing,
//! and the release finds it by its group.

use super::hidden::HiddenReason;
use super::queue::QueueEngine;
use angarium_core::group::GroupName;
use angarium_core::hold::HoldId;
use angarium_core::maps::HashMap;
use angarium_core::message::Header;
use angarium_core::mutation::{Mutation, is_on};

/// The held groups of a queue, each with the id of its hold.
#[derive(Debug, Default)]
pub(super) struct HeldGroups(HashMap<GroupName, HoldId>);

impl HeldGroups {
    /// The hold of a group.
    pub(super) fn of(&self, group: Option<&GroupName>) -> Option<HoldId> {
        if self.0.is_empty() {
            return None;
        }
        self.0.get(group?).copied()
    }

    /// Number of held groups.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

impl QueueEngine {
    /// Holds exactly these groups from now on, each by the hold with this id. Claims that exist continue.
    pub fn hold_groups(&mut self, held: impl Iterator<Item = (GroupName, HoldId)>) {
        if is_on(Mutation::GrantHeldGroup) {
            return;
        }
        let before = std::mem::replace(&mut self.held, HeldGroups(held.collect()));
        let Some(blocking) = self.hidden.blocking() else { return };
        for group in self.held.0.keys().filter(|group| !before.0.contains_key(*group)) {
            blocking.bar(group);
        }
        for group in before.0.keys().filter(|group| !self.held.0.contains_key(*group)) {
            blocking.free(group);
        }
        self.enter_freed();
    }

    /// Whether a message of a group is being put aside, or is changed by its id in another way. Costs a look at each
    /// hidden message.
    pub fn is_withholding(&self, group: &GroupName) -> bool {
        self.hidden.values().any(|hidden| {
            let of_group = |header: &Header| header.group.as_ref() == Some(group);
            hidden.why == HiddenReason::Requeuing && hidden.header.as_ref().is_some_and(of_group)
        })
    }
}
