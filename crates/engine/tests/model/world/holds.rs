//! Holds of groups, as the broker makes and releases them.

use angarium_core::group::GroupName;
use angarium_core::hold::HoldId;
use uuid::Uuid;

use super::ordered::{GROUPS, group};
use super::requeues::RequeueChange;
use super::*;

/// The hold of a group, as its record has it.
pub(super) struct GroupHold {
    id: HoldId,
    stage: HoldStage,
}

#[derive(PartialEq, Eq)]
enum HoldStage {
    InForce,
    Releasing,
    /// The pool was read, and has put aside these messages.
    Read(Vec<MessageId>),
}

impl World {
    pub(super) fn hold_group(&mut self, number: u8) {
        self.holds_made += 1;
        let id = HoldId(Uuid::from_u128(self.holds_made));
        let held = self.holds.entry(group(u64::from(number) % GROUPS));
        held.or_insert(GroupHold { id, stage: HoldStage::InForce }).stage = HoldStage::InForce;
        self.follow_holds();
    }

    pub(super) fn release_group(&mut self, number: u8) {
        let Some(group) = self.nth_hold(number, |stage| *stage == HoldStage::InForce) else { return };
        self.set_hold_stage(&group, HoldStage::Releasing);
        self.follow_holds();
    }

    /// Tells the engine which groups are held.
    pub(super) fn follow_holds(&mut self) {
        let in_force = self.holds.iter().filter(|(_, held)| held.stage == HoldStage::InForce);
        self.engine.hold_groups(in_force.map(|(group, held)| (group.clone(), held.id)));
    }

    /// The hold of which no message is given to a claim.
    pub(super) fn hold_of(&self, group: Option<&GroupName>) -> Option<HoldId> {
        let held = self.holds.get(group?)?;
        (held.stage == HoldStage::InForce).then_some(held.id)
    }

    fn nth_hold(&self, number: u8, is_wanted: impl Fn(&HoldStage) -> bool) -> Option<GroupName> {
        let wanted = self.holds.iter().filter(|(_, held)| is_wanted(&held.stage));
        let groups: Vec<&GroupName> = wanted.map(|(group, _)| group).collect();
        nth(&groups, number).map(|at| groups[at].clone())
    }

    fn set_hold_stage(&mut self, group: &GroupName, stage: HoldStage) {
        self.holds.get_mut(group).expect("it is held").stage = stage;
    }

    /// Reads which messages of a group that is being released are aside. Without one the hold ends.
    pub(super) fn read_withheld(&mut self, number: u8) {
        let Some(group) = self.nth_hold(number, |stage| *stage == HoldStage::Releasing) else { return };
        // Messages of an ordered queue stay in their place.
        if self.bounds.is_none() && self.engine.is_withholding(&group) {
            return;
        }
        let page = self.pool.group(&group, None, usize::MAX, usize::MAX);
        let marked = page.messages.iter().filter(|message| message.header.held().is_some());
        let aside: Vec<MessageId> = marked.map(|message| message.header.id).collect();
        if aside.is_empty() {
            self.holds.remove(&group);
            self.check_released(&group);
        } else {
            self.set_hold_stage(&group, HoldStage::Read(aside));
        }
    }

    /// Checks that no message of a group is aside, or will be.
    fn check_released(&self, group: &GroupName) {
        let flying = self.flight.iter().flat_map(|flight| &flight.pending);
        let is_withheld = |change: &Change| match change {
            Change::Requeue(header) => header.held().is_some() && header.group.as_ref() == Some(group),
            _ => false,
        };
        let is_left = self.waiting.iter().chain(flying).any(is_withheld);
        assert!(!is_left, "a message of {group} is put aside, and no hold is left");
    }

    /// Begins to make the messages ready that were read.
    pub(super) fn make_ready(&mut self, number: u8) {
        let Some(group) = self.nth_hold(number, |stage| matches!(stage, HoldStage::Read(_))) else { return };
        let held = self.holds.get_mut(&group).expect("it is held");
        if let HoldStage::Read(aside) = std::mem::replace(&mut held.stage, HoldStage::Releasing) {
            aside.into_iter().for_each(|id| self.hide(id, RequeueChange::Release));
        }
    }

    /// Releases all groups, and makes all their messages ready.
    pub(super) fn release_all(&mut self) {
        while self.nth_hold(0, |stage| *stage == HoldStage::InForce).is_some() {
            self.release_group(0);
        }
        for _ in 0..ROUNDS {
            if self.holds.is_empty() {
                return;
            }
            self.make_ready(0);
            self.flush();
            self.read_withheld(0);
        }
        panic!("the groups are never released");
    }
}
