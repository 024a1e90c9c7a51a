//! The ready messages of an ordered queue that are in memory.
//!
//! The messages of a group are in order of id, and the first one that is hidden, delayed or in transfer ends the part
//! that may be taken. Groups take turns: a group that was just served is last.
//!
//! ```text
//! not in memory ──listed, posted to, freed──▶ open ──taken from, found blocked──▶ resting ──freed──▶ open
//!       ▲                                      │                                    │ no room
//!       │                                      │                                    ▼
//!       └────────── no room for it, or nothing left of it in memory ───────────── emptied ──freed──▶ open
//! ```
//!
//! Memory is bounded: it has the messages of a group up to its reach, and a max number of groups. Blocked groups leave
//! first, because the event that frees a group names it again. If a group left that was not blocked, or no client has
//! claimed yet, the pool's list of groups is read until all are known. So messages in blocked groups need no memory.
//! Deep groups that take turns share the memory (see [`room`]): each message is read once, with a page of its group.

mod outlook;
mod reading;
mod room;

use std::collections::BTreeMap;

use super::blocking::Blocking;
use super::ready_cache::ReadyMessage;
use angarium_core::group::GroupName;
use angarium_core::ids::MessageId;
use angarium_core::maps::HashMap;
use angarium_core::message::{Header, Message};
use angarium_core::mutation::{Mutation, is_on};
pub(crate) use reading::GroupPage;
use reading::{GroupListing, GroupReads};
pub use reading::{GroupRead, Heads};
pub use room::GroupBounds;

/// How far memory knows a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GroupCoverage {
    /// Memory has all messages of the group.
    Whole,
    /// Memory has every message up to this id.
    To(MessageId),
}

impl GroupCoverage {
    fn covers(self, id: MessageId) -> bool {
        match self {
            Self::Whole => true,
            Self::To(last) => id <= last,
        }
    }
}

/// Position of a group among all groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GroupPosition {
    /// A message may be taken from it, or a read must find out.
    Open(u64),
    /// It is blocked.
    Resting(u64),
    /// It is blocked, and memory has none of its messages.
    Emptied(u64),
}

#[derive(Debug)]
struct Group {
    ready: BTreeMap<MessageId, ReadyMessage>,
    /// Scheduled messages. After the first of them, only those are known that were ready before.
    delayed: BTreeMap<MessageId, Header>,
    reach: GroupCoverage,
    position: Option<GroupPosition>,
}

impl Group {
    fn of(reach: GroupCoverage) -> Self {
        Self { ready: BTreeMap::new(), delayed: BTreeMap::new(), reach, position: None }
    }

    /// The first message that blocks it; `hidden` is the first hidden one.
    fn blocked_at(&self, hidden: Option<MessageId>) -> Option<MessageId> {
        let hidden = hidden.filter(|_| !is_on(Mutation::IgnoreHiddenInGroup));
        let delayed = self.delayed.keys().next().copied().filter(|_| !is_on(Mutation::IgnoreDelayInGroup));
        [hidden, delayed].into_iter().flatten().min()
    }

    /// Whether messages that may be taken can exist beyond its reach.
    fn can_continue(&self, blocked: Option<MessageId>) -> bool {
        match self.reach {
            GroupCoverage::Whole => false,
            GroupCoverage::To(last) => blocked.is_none_or(|blocked| blocked > last),
        }
    }

    fn is_open(&self, blocked: Option<MessageId>) -> bool {
        match self.ready.keys().next() {
            Some(first) => blocked.is_none_or(|blocked| *first < blocked),
            None => self.can_continue(blocked),
        }
    }

    fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.delayed.is_empty() && self.reach == GroupCoverage::Whole
    }
}

#[derive(Debug)]
pub(super) struct Groups {
    bounds: GroupBounds,
    known: HashMap<GroupName, Group>,
    /// Open groups by their turns. A group may be found blocked at its turn.
    open: BTreeMap<u64, GroupName>,
    /// Blocked groups, the one that is blocked the longest first.
    resting: BTreeMap<u64, GroupName>,
    /// Blocked groups of which memory has only the reach.
    emptied: BTreeMap<u64, GroupName>,
    next_turn: u64,
    /// The group of each ready or delayed message in memory.
    index: BTreeMap<MessageId, GroupName>,
    bytes: usize,
    /// Number of groups of which memory does not have all messages.
    partial: usize,
    listing: GroupListing,
    reading: GroupReads,
}

impl Groups {
    /// The groups of a queue that was just opened; `is_empty` if the queue has no messages.
    pub(super) fn found(is_empty: bool, bounds: GroupBounds) -> Self {
        Self {
            bounds,
            known: HashMap::default(),
            open: BTreeMap::new(),
            resting: BTreeMap::new(),
            emptied: BTreeMap::new(),
            next_turn: 0,
            index: BTreeMap::new(),
            bytes: 0,
            partial: 0,
            listing: if is_empty { GroupListing::Whole } else { GroupListing::begun() },
            reading: GroupReads::default(),
        }
    }

    /// Whether memory has every message that is not hidden.
    pub(super) fn is_whole(&self) -> bool {
        self.listing == GroupListing::Whole && self.partial == 0
    }

    /// Bytes of the ready messages in memory.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The first and the last ready or delayed message in memory.
    pub(super) fn ends(&self) -> [Option<&Header>; 2] {
        [self.index.iter().next(), self.index.iter().next_back()]
            .map(|end| end.and_then(|(id, group)| self.known.get(group)?.header(*id)))
    }

    /// The header of a ready message, if it is in memory.
    pub(super) fn get(&self, id: MessageId) -> Option<&Header> {
        let group = self.known.get(self.index.get(&id)?)?;
        group.ready.get(&id).map(|ready| &ready.header)
    }

    /// Forgets all groups; the pool has them.
    pub(super) fn leave(&mut self) {
        let turn = self.next_turn;
        let mut reading = std::mem::take(&mut self.reading);
        reading.void_all();
        *self = Self { next_turn: turn, reading, ..Self::found(false, self.bounds) };
    }

    /// Adds a new message that is durable and ready. Its id is greater than any of its group.
    pub(super) fn append(&mut self, message: Message, blocking: &Blocking) {
        let Some(name) = message.header.group.clone() else { return };
        let id = message.header.id;
        self.reading.note_posted(&name);
        let reach = self.known.get(&name).map(|group| group.reach);
        let is_full = !matches!(reach, Some(GroupCoverage::To(_))) && !self.make_room_from_stuck(&name);
        match reach {
            Some(GroupCoverage::Whole) if is_full => self.set_reach(&name, GroupCoverage::To(id.before())),
            Some(GroupCoverage::Whole) => self.put_ready(&name, message.into()),
            // It is read when needed.
            Some(GroupCoverage::To(_)) => {}
            None if self.listing == GroupListing::Whole => {
                let reach = if is_full { GroupCoverage::To(id.before()) } else { GroupCoverage::Whole };
                if self.add_known(&name, reach) && !is_full {
                    self.put_ready(&name, message.into());
                }
            }
            // The event that frees the group names it again.
            None if blocking.first(&name).is_some() => self.listing.note_missing_blocked(),
            None => self.look_for(&name),
        }
        self.assign_line(&name, blocking);
    }

    /// Adds a new message that is durable and scheduled.
    pub(super) fn append_delayed(&mut self, header: Header, blocking: &Blocking) {
        let Some(name) = header.group.clone() else { return };
        self.reading.note_posted(&name);
        match self.known.get(&name) {
            Some(Group { reach: GroupCoverage::To(_), .. }) => {}
            Some(group) if group.delayed.is_empty() => self.put_delayed(&name, header),
            Some(_) => self.set_reach(&name, GroupCoverage::To(header.id.before())),
            None => self.add_delayed(&name, header),
        }
        self.assign_line(&name, blocking);
    }

    /// Adds a message that became ready after it was hidden or not ready.
    pub(super) fn show(&mut self, ready: ReadyMessage, blocking: &Blocking) {
        let Some(name) = ready.header.group.clone() else { return };
        self.reading.note_changed(ready.header.id);
        match self.known.get(&name).map(|group| group.reach.covers(ready.header.id)) {
            Some(true) => self.put_ready(&name, ready),
            Some(false) => self.reading.void_group(&name),
            None if self.listing == GroupListing::Whole => {
                if self.add_known(&name, GroupCoverage::Whole) {
                    self.put_ready(&name, ready);
                }
            }
            None => self.look_for(&name),
        }
        self.assign_line(&name, blocking);
    }

    /// Adds a message that was hidden and is scheduled now.
    pub(super) fn put_off(&mut self, header: Header, blocking: &Blocking) {
        let Some(name) = header.group.clone() else { return };
        self.reading.note_changed(header.id);
        match self.known.get(&name).map(|group| group.reach.covers(header.id)) {
            Some(true) => self.put_delayed(&name, header),
            Some(false) => self.reading.void_group(&name),
            None => self.add_delayed(&name, header),
        }
        self.assign_line(&name, blocking);
    }

    /// Removes a message before it is hidden. Returns its header if it was in memory.
    pub(super) fn remove(&mut self, id: MessageId) -> Option<Header> {
        let name = self.index.remove(&id)?;
        let group = self.known.get_mut(&name)?;
        if let Some(header) = group.delayed.remove(&id) {
            return Some(header);
        }
        let ready = group.ready.remove(&id)?;
        self.bytes -= ready.bytes();
        Some(ready.header)
    }

    /// Records that a message is gone or in transfer: pages that are being read may still show it as ready.
    pub(super) fn gone(&mut self, id: MessageId, group: Option<&GroupName>) {
        self.reading.note_gone(id, group);
    }

    /// Lists the groups again, because one that is not in memory may have become free.
    pub(super) fn list_again(&mut self) {
        if self.listing != GroupListing::Whole {
            self.listing.note_missing_open();
        }
    }

    /// Opens groups that became free.
    pub(super) fn settle(&mut self, blocking: &mut Blocking) {
        for name in blocking.take_freed() {
            // Where all groups are known, a group that is not in memory has no messages.
            if !self.known.contains_key(&name) && self.listing != GroupListing::Whole {
                self.look_for(&name);
            }
            self.assign_line(&name, blocking);
        }
    }

    /// The next open group from this turn on.
    pub(super) fn next_open(&self, turn: u64) -> Option<(u64, GroupName)> {
        self.open.range(turn..).next().map(|(turn, name)| (*turn, name.clone()))
    }

    /// The message that ends the part of a group that may be taken.
    pub(super) fn blocked_at(&self, name: &GroupName, blocking: &Blocking) -> Option<MessageId> {
        self.known.get(name).and_then(|group| group.blocked_at(blocking.first(name)))
    }

    /// Whether more of a group must be read before `count` messages can be taken, or all messages if there are fewer.
    pub(super) fn must_read(&mut self, name: &GroupName, count: usize, blocked: Option<MessageId>) -> bool {
        let Some(group) = self.known.get(name) else { return false };
        let free = group.ready.keys().take(count).filter(|id| blocked.is_none_or(|blocked| **id < blocked));
        let must_read = group.can_continue(blocked) && free.count() < count;
        if must_read {
            self.reading.want(name, count);
        }
        must_read
    }

    /// After `taken` messages of a group were taken at once: reads more before its next turn if fewer are left, and if
    /// each group may have as many in memory.
    fn read_ahead(&mut self, name: &GroupName, taken: usize) {
        let Some(group) = self.known.get(name) else { return };
        let is_low = group.reach != GroupCoverage::Whole && group.ready.len() < taken;
        if is_low && !self.is_full() && self.share() >= taken {
            self.reading.want(name, taken);
        }
    }

    /// The first message of a group, if it is before the message that blocks the group.
    pub(super) fn first(&self, name: &GroupName, blocked: Option<MessageId>) -> Option<&Header> {
        let (id, ready) = self.known.get(name)?.ready.first_key_value()?;
        blocked.is_none_or(|blocked| *id < blocked).then_some(&ready.header)
    }

    /// Removes and returns the first ready message of a group.
    pub(super) fn pop_first(&mut self, name: &GroupName) -> Option<ReadyMessage> {
        let (id, ready) = self.known.get_mut(name)?.ready.pop_first()?;
        self.index.remove(&id);
        self.bytes -= ready.bytes();
        Some(ready)
    }

    /// Puts a group behind all others after messages of it were taken.
    pub(super) fn served(&mut self, name: &GroupName, taken: usize, blocking: &Blocking) {
        self.leave_line(name);
        self.read_ahead(name, taken);
        // Other groups wait for room: this one returns to memory when it is listed.
        if self.listing.is_overflowing() && self.known.contains_key(name) {
            self.drop_open(name);
        }
        self.assign_line(name, blocking);
    }

    /// Puts a group into the line that fits its state.
    pub(super) fn assign_line(&mut self, name: &GroupName, blocking: &Blocking) {
        let Some(group) = self.known.get_mut(name) else { return };
        let is_open = group.is_open(group.blocked_at(blocking.first(name)));
        match (group.position, is_open) {
            (Some(GroupPosition::Open(_)), true) => return,
            _ if group.is_empty() => return self.forget(name),
            (Some(GroupPosition::Resting(_)), false) => return,
            (Some(GroupPosition::Emptied(_)), false) if group.ready.is_empty() => return,
            _ => {}
        }
        self.leave_line(name);
        let turn = self.next_turn;
        self.next_turn += 1;
        let (line, position) = if is_open {
            (&mut self.open, GroupPosition::Open(turn))
        } else {
            (&mut self.resting, GroupPosition::Resting(turn))
        };
        line.insert(turn, name.clone());
        if let Some(group) = self.known.get_mut(name) {
            group.position = Some(position);
        }
    }

    fn leave_line(&mut self, name: &GroupName) {
        match self.known.get_mut(name).and_then(|group| group.position.take()) {
            Some(GroupPosition::Open(turn)) => self.open.remove(&turn),
            Some(GroupPosition::Resting(turn)) => self.resting.remove(&turn),
            Some(GroupPosition::Emptied(turn)) => self.emptied.remove(&turn),
            None => None,
        };
    }

    fn put_ready(&mut self, name: &GroupName, ready: ReadyMessage) {
        let Some(group) = self.known.get_mut(name) else { return };
        self.index.insert(ready.header.id, name.clone());
        self.bytes += ready.bytes();
        if let Some(old) = group.ready.insert(ready.header.id, ready) {
            self.bytes -= old.bytes();
        }
    }

    fn put_delayed(&mut self, name: &GroupName, header: Header) {
        let Some(group) = self.known.get_mut(name) else { return };
        self.index.insert(header.id, name.clone());
        group.delayed.insert(header.id, header);
    }

    /// Adds a delayed message of a group that is not in memory: its wake names the group again.
    fn add_delayed(&mut self, name: &GroupName, header: Header) {
        if self.listing == GroupListing::Whole && self.known.len() < self.bounds.known {
            self.add(name, Group::of(GroupCoverage::Whole));
            self.put_delayed(name, header);
        } else {
            self.listing.note_missing_blocked();
        }
    }

    fn add(&mut self, name: &GroupName, group: Group) {
        self.partial += usize::from(group.reach != GroupCoverage::Whole);
        self.known.insert(name.clone(), group);
    }

    fn set_reach(&mut self, name: &GroupName, reach: GroupCoverage) {
        let Some(group) = self.known.get_mut(name) else { return };
        let was_partial = std::mem::replace(&mut group.reach, reach) != GroupCoverage::Whole;
        self.partial = self.partial - usize::from(was_partial) + usize::from(reach != GroupCoverage::Whole);
    }
}

impl Group {
    fn header(&self, id: MessageId) -> Option<&Header> {
        self.ready.get(&id).map(|ready| &ready.header).or_else(|| self.delayed.get(&id))
    }
}
