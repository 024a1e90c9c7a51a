//! The memory that the groups of a queue share, and who leaves it when there is no room.
//!
//! Groups that take turns have equal shares: a page of a group is as large as its share, so that what is read is there
//! when its turn arrives. First to go is what belongs to groups that are blocked while all others have had their turns;
//! then what is beyond twice a share; then what has its turn last. What leaves is the end of a group: its reach
//! shrinks, and its turn stays.

use super::{Group, GroupCoverage, GroupPosition, Groups};
use crate::limits;
use angarium_core::group::GroupName;
use angarium_core::ids::MessageId;
use angarium_core::limits as core_limits;
use angarium_core::message::Header;

/// Turns that groups take while each of them is served once, at most: it is open, rests, and may be found blocked.
const ROUND: usize = 4;
/// Groups that are counted for their shares. With more of them a share is a message or two.
const SHARERS: usize = 1_024;

/// How much of the groups of one queue is in memory.
#[derive(Clone, Copy, Debug)]
pub struct GroupBounds {
    /// Groups that are known.
    pub known: usize,
    /// Groups that are open while more of them are listed.
    pub open: usize,
    /// Bytes of ready messages, and a page more.
    pub bytes: usize,
    /// Ready messages, likewise.
    pub messages: usize,
}

impl Default for GroupBounds {
    fn default() -> Self {
        Self {
            known: limits::GROUPS_KNOWN,
            open: limits::GROUPS_KNOWN - core_limits::GROUPS_PAGE,
            bytes: core_limits::READY_CACHE_BYTES,
            messages: limits::READY_CACHE_MESSAGES,
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

    /// Messages that one read of a group brings when so many of it are wanted at once.
    pub(super) fn page(&self, name: &GroupName, wanted: usize) -> usize {
        let has = self.known.get(name).map_or(0, |group| group.ready.len());
        self.share().max(wanted).saturating_sub(has).clamp(1, limits::GROUP_MESSAGES)
    }

    /// Whether it has the next turn.
    pub(super) fn is_next(&self, name: &GroupName) -> bool {
        self.open.values().next() == Some(name)
    }

    /// Messages of a group that fit beside as many of the others, by the sizes of those that are in memory.
    pub(super) fn share(&self) -> usize {
        let bytes = self.bytes.checked_div(self.index.len()).unwrap_or_default().max(size_of::<Header>());
        let resting = self.resting.range(self.round()..).take(SHARERS.saturating_sub(self.open.len()));
        let sharers = self.open.len() + resting.count();
        (self.bounds.bytes / bytes).min(self.bounds.messages) / sharers.max(1)
    }

    /// The turn since which every group was served that could be.
    fn round(&self) -> u64 {
        let turns = u64::try_from(self.known.len() * ROUND).unwrap_or(u64::MAX);
        self.next_turn.saturating_sub(turns)
    }

    /// A group that is not in memory has messages: it is to be read, in its turn.
    pub(super) fn look_for(&mut self, name: &GroupName) {
        if !self.listing.is_overflowing() {
            self.make_place(name, GroupCoverage::To(MessageId::ZERO));
        }
    }

    /// Takes a group into memory that is not blocked. False when there is no room: then it will be listed.
    pub(super) fn make_place(&mut self, name: &GroupName, reach: GroupCoverage) -> bool {
        if self.known.len() >= self.bounds.known && !self.drop_resting() {
            self.listing.miss_open();
            return false;
        }
        self.add(name, Group::of(reach));
        true
    }

    /// Takes a group out of memory of which nothing is left to know.
    pub(super) fn forget(&mut self, name: &GroupName) {
        self.trim(name, 0);
        self.leave_place(name);
        let Some(group) = self.known.remove(name) else { return };
        self.partial -= usize::from(group.reach != GroupCoverage::Whole);
        for id in group.delayed.keys() {
            self.index.remove(id);
        }
    }

    /// Forgets the group that is blocked the longest. False when there is none.
    fn drop_resting(&mut self) -> bool {
        let Some(name) = self.emptied.values().chain(self.resting.values()).next().cloned() else {
            return false;
        };
        self.drop_blocked(&name);
        true
    }

    /// Has a group that is blocked leave its messages to the pool. How far memory knows it stays: when it is freed it is read
    /// from there on, without a look at what the pool has had of it before.
    fn empty_blocked(&mut self, name: &GroupName) {
        match self.known.get(name) {
            Some(group) if group.delayed.is_empty() => self.trim(name, 0),
            // A delayed message can be named again only by what wakes it.
            _ => return self.drop_blocked(name),
        }
        if let Some(group) = self.known.get_mut(name)
            && let Some(GroupPosition::Resting(turn)) = group.place
        {
            group.place = Some(GroupPosition::Emptied(turn));
            self.resting.remove(&turn);
            self.emptied.insert(turn, name.clone());
        }
    }

    fn drop_blocked(&mut self, name: &GroupName) {
        self.forget(name);
        self.listing.miss_blocked();
    }

    pub(super) fn drop_open(&mut self, name: &GroupName) {
        self.forget(name);
        self.listing.miss_open();
    }

    /// Whether there is room for more of a group, if need be that of others which are blocked while all had their turns.
    pub(super) fn has_room_of_stuck(&mut self, name: &GroupName) -> bool {
        if self.is_full() {
            let stuck = self.resting.range(..self.round()).map(|(_, stuck)| stuck);
            let stuck: Vec<GroupName> = stuck.filter(|stuck| *stuck != name).cloned().collect();
            self.make_room_of(&stuck, Self::empty_blocked);
        }
        !self.is_full()
    }

    /// Makes room for what was read of a group.
    pub(super) fn make_room(&mut self, name: &GroupName) {
        if self.has_room_of_stuck(name) {
            return;
        }
        let keep = self.share();
        // Who is next keeps what it has, or two that need all of the memory would wait for each other.
        let others = self.open.values().skip(1).chain(self.resting.values()).filter(|other| *other != name);
        let others: Vec<GroupName> = others.cloned().collect();
        others.iter().filter(|_| keep > 0).for_each(|other| self.trim(other, keep));
        if self.is_full() {
            // Those that were served last have their turns behind all that are open.
            let last = self.resting.values().rev().chain(self.open.values().skip(1).rev());
            let last: Vec<GroupName> = last.filter(|other| *other != name).cloned().collect();
            self.make_room_of(&last, |groups, last| groups.trim(last, 0));
        }
        if self.is_full() {
            let blocked: Vec<GroupName> =
                self.resting.values().filter(|other| *other != name).cloned().collect();
            self.make_room_of(&blocked, Self::empty_blocked);
        }
    }

    /// Has these groups leave memory, one after the other, until there is room again.
    fn make_room_of(&mut self, names: &[GroupName], leave: impl Fn(&mut Self, &GroupName)) {
        for name in names {
            if !self.is_half_full() {
                return;
            }
            leave(self, name);
        }
    }

    /// Leaves all but the first ready messages of a group to the pool.
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
