//! The memory that the groups of a queue share, and the order in which they lose it.
//!
//! Groups in turn have equal shares: a page of a group is as large as its share, so it is in memory when the group's
//! turn arrives. When there is no room, messages of groups leave memory in this order: of groups that were blocked
//! while all others had their turns; beyond the shares of the other groups; of the groups whose turns are last; of all
//! blocked groups. The last messages of a group leave first: its reach shrinks, and its turn stays.

use super::{Group, GroupCoverage, GroupPosition, Groups};
use crate::limits;
use angarium_core::group::GroupName;
use angarium_core::ids::MessageId;
use angarium_core::limits as core_limits;
use angarium_core::message::Header;
use angarium_core::small_bounds::within;

/// Max turns of a group while each group is served once: it is open, rests, and may be found blocked.
const ROUND: usize = 4;
/// Max groups that are counted for the shares. With more groups a share is a message or two.
const SHARERS: usize = 1_024;

/// Bounds of the groups of one queue in memory.
#[derive(Clone, Copy, Debug)]
pub struct GroupBounds {
    /// Max groups.
    pub known: usize,
    /// Max open groups at which more groups are still listed.
    pub open: usize,
    /// Max bytes of ready messages, plus one page.
    pub bytes: usize,
    /// Max ready messages, plus one page.
    pub messages: usize,
}

impl Default for GroupBounds {
    fn default() -> Self {
        Self {
            known: limits::GROUPS_KNOWN,
            open: limits::GROUPS_KNOWN - core_limits::GROUPS_PAGE,
            bytes: core_limits::READY_CACHE_BYTES,
            messages: limits::ready_cache_messages(),
        }
    }
}

impl Groups {
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= self.bounds.bytes || self.index.len() >= self.bounds.messages
    }

    fn is_half_full(&self) -> bool {
        self.bytes >= self.bounds.bytes / 2 || self.index.len() >= self.bounds.messages / 2
    }

    /// Number of messages that one read of a group returns when `wanted` of them are needed at once.
    pub(super) fn page(&self, name: &GroupName, wanted: usize) -> usize {
        let has = self.known.get(name).map_or(0, |group| group.ready.len());
        self.share().max(wanted).saturating_sub(has).clamp(1, within(limits::GROUP_MESSAGES))
    }

    /// Whether the group has the next turn.
    pub(super) fn is_next(&self, name: &GroupName) -> bool {
        self.open.values().next() == Some(name)
    }

    /// Messages that each group may have in memory if all have equally many, by the mean size of those in memory.
    pub(super) fn share(&self) -> usize {
        let bytes = self.bytes.checked_div(self.index.len()).unwrap_or_default().max(size_of::<Header>());
        let resting = self.resting.range(self.round()..).take(SHARERS.saturating_sub(self.open.len()));
        let sharers = self.open.len() + resting.count();
        (self.bounds.bytes / bytes).min(self.bounds.messages) / sharers.max(1)
    }

    /// The turn since which every group that could be served was served.
    fn round(&self) -> u64 {
        let turns = u64::try_from(self.known.len() * ROUND).unwrap_or(u64::MAX);
        self.next_turn.saturating_sub(turns)
    }

    /// Enters a group with messages that is not in memory: it is read in its turn.
    pub(super) fn look_for(&mut self, name: &GroupName) {
        if !self.listing.is_overflowing() {
            self.add_known(name, GroupCoverage::To(MessageId::ZERO));
        }
    }

    /// Adds a group that is not blocked to memory. Returns false when there is no room: then it will be listed.
    pub(super) fn add_known(&mut self, name: &GroupName, reach: GroupCoverage) -> bool {
        if self.known.len() >= self.bounds.known && !self.drop_resting() {
            self.listing.note_missing_open();
            return false;
        }
        self.add(name, Group::of(reach));
        true
    }

    /// Removes a group from memory.
    pub(super) fn forget(&mut self, name: &GroupName) {
        self.trim(name, 0);
        self.leave_line(name);
        let Some(group) = self.known.remove(name) else { return };
        self.partial -= usize::from(group.reach != GroupCoverage::Whole);
        for id in group.delayed.keys() {
            self.index.remove(id);
        }
    }

    /// Forgets the group that has been blocked the longest. Returns false when there is none.
    fn drop_resting(&mut self) -> bool {
        let Some(name) = self.emptied.values().chain(self.resting.values()).next().cloned() else {
            return false;
        };
        self.drop_blocked(&name);
        true
    }

    /// Evicts the messages of a blocked group. Its reach stays: when the group is freed it is read from there on, and
    /// not from its beginning.
    fn empty_blocked(&mut self, name: &GroupName) {
        match self.known.get(name) {
            Some(group) if group.delayed.is_empty() => self.trim(name, 0),
            // Only its wake names a group with a delayed message again, so that is forgotten as a whole.
            _ => return self.drop_blocked(name),
        }
        if let Some(group) = self.known.get_mut(name)
            && let Some(GroupPosition::Resting(turn)) = group.position
        {
            group.position = Some(GroupPosition::Emptied(turn));
            self.resting.remove(&turn);
            self.emptied.insert(turn, name.clone());
        }
    }

    fn drop_blocked(&mut self, name: &GroupName) {
        self.forget(name);
        self.listing.note_missing_blocked();
    }

    pub(super) fn drop_open(&mut self, name: &GroupName) {
        self.forget(name);
        self.listing.note_missing_open();
    }

    /// Whether there is room for more of a group. If needed, evicts the messages of others that were blocked while all
    /// had their turns.
    pub(super) fn make_room_from_stuck(&mut self, name: &GroupName) -> bool {
        if self.is_full() {
            let stuck = self.resting.range(..self.round()).map(|(_, stuck)| stuck);
            let stuck: Vec<GroupName> = stuck.filter(|stuck| *stuck != name).cloned().collect();
            self.evict_groups(&stuck, Self::empty_blocked);
        }
        !self.is_full()
    }

    /// Makes room for a page that was read of a group.
    pub(super) fn make_room(&mut self, name: &GroupName) {
        if self.make_room_from_stuck(name) {
            return;
        }
        let keep = self.share();
        // The next group keeps its messages: otherwise two groups that need the whole memory would evict each other for
        // ever.
        let others = self.open.values().skip(1).chain(self.resting.values()).filter(|other| *other != name);
        let others: Vec<GroupName> = others.cloned().collect();
        others.iter().filter(|_| keep > 0).for_each(|other| self.trim(other, keep));
        if self.is_full() {
            // Groups that were served last have the last turns.
            let last = self.resting.values().rev().chain(self.open.values().skip(1).rev());
            let last: Vec<GroupName> = last.filter(|other| *other != name).cloned().collect();
            self.evict_groups(&last, |groups, last| groups.trim(last, 0));
        }
        if self.is_full() {
            let blocked: Vec<GroupName> =
                self.resting.values().filter(|other| *other != name).cloned().collect();
            self.evict_groups(&blocked, Self::empty_blocked);
        }
    }

    /// Evicts from these groups, one after the other, until half of the memory is free.
    fn evict_groups(&mut self, names: &[GroupName], leave: impl Fn(&mut Self, &GroupName)) {
        for name in names {
            if !self.is_half_full() {
                return;
            }
            leave(self, name);
        }
    }

    /// Evicts all but the first `keep` ready messages of a group.
    fn trim(&mut self, name: &GroupName, keep: usize) {
        let Some(group) = self.known.get_mut(name) else { return };
        let Some(first) = group.ready.keys().nth(keep).copied() else { return };
        for (id, ready) in group.ready.split_off(&first) {
            self.bytes -= ready.bytes();
            self.index.remove(&id);
        }
        for id in group.delayed.split_off(&first).into_keys() {
            self.index.remove(&id);
        }
        self.set_reach(name, GroupCoverage::To(first.before()));
    }
}
