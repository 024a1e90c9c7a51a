//! Reads of groups from the pool: more messages of one group, and the list of groups.
//!
//! The queue changes while a page is read. Messages that were posted meanwhile are left for the next page; after any
//! other change the page is read again (P2).

use std::collections::VecDeque;

use super::{Group, GroupCoverage, Groups};

use crate::hidden::HiddenMessages;
use crate::limits;
use crate::ready_cache::ReadyMessage;
use angarium_core::group::GroupName;
use angarium_core::ids::MessageId;
use angarium_core::maps::{HashMap, HashSet};
use angarium_core::message::{Message, State};

/// A read from the pool. Messages beyond `until` may belong to posts whose outcome is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupRead {
    /// Messages of a group.
    Group {
        /// The group.
        name: GroupName,
        /// Read after this id.
        after: MessageId,
        /// Ignore messages beyond this id.
        until: MessageId,
        /// Max number of messages.
        most: usize,
    },
    /// The first messages of groups, in order of the groups' names.
    Heads {
        /// Read after this name.
        after: Option<GroupName>,
        /// Ignore messages beyond this id.
        until: MessageId,
    },
}

/// A page of a group that was read: the messages after `after`; those beyond `until` are ignored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupPage<'a> {
    pub(crate) name: &'a GroupName,
    pub(crate) after: MessageId,
    pub(crate) until: MessageId,
}

/// First messages of groups, each with whether it is the only one of its group.
pub type Heads = Vec<(Message, bool)>;

/// Whether all groups are in memory, and how far the list of the pool was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum GroupListing {
    /// Every group with a message that is not hidden is in memory.
    Whole,
    /// Every group that is not in memory is blocked, and the event that frees it names it.
    Blocked,
    /// There may be more groups after this name.
    On {
        after: Option<GroupName>,
        /// Whether groups that are not blocked were left out since the listing began, for lack of room.
        is_open_missing: bool,
        is_blocked_missing: bool,
    },
}

impl GroupListing {
    pub(super) fn begun() -> Self {
        Self::On { after: None, is_open_missing: false, is_blocked_missing: false }
    }

    /// Whether groups wait for room.
    pub(super) fn is_overflowing(&self) -> bool {
        matches!(self, Self::On { is_open_missing: true, .. })
    }

    /// A group that is not blocked has left memory, or got no room.
    pub(super) fn note_missing_open(&mut self) {
        match self {
            Self::On { is_open_missing, .. } => *is_open_missing = true,
            Self::Whole | Self::Blocked => *self = Self::begun(),
        }
    }

    /// A blocked group has left memory, or got no room.
    pub(super) fn note_missing_blocked(&mut self) {
        match self {
            Self::On { is_blocked_missing, .. } => *is_blocked_missing = true,
            Self::Whole | Self::Blocked => *self = Self::Blocked,
        }
    }

    /// The list was read up to a group, or to its end.
    fn advance(&mut self, last: Option<GroupName>, is_end: bool) {
        let Self::On { after, is_open_missing, is_blocked_missing } = self else { return };
        match (is_end, *is_open_missing, *is_blocked_missing) {
            (false, ..) => *after = last.or(after.take()),
            (true, true, _) => *self = Self::begun(),
            (true, false, true) => *self = Self::Blocked,
            (true, false, false) => *self = Self::Whole,
        }
    }
}

/// Changes of a group while a page of it is read.
#[derive(Clone, Copy, Debug)]
struct PageChanges {
    /// The page begins after this id: it has no message before.
    after: MessageId,
    is_void: bool,
    was_posted_to: bool,
}

impl PageChanges {
    /// Records that a message is gone that the page may still have.
    fn miss(&mut self, id: MessageId) {
        self.is_void |= id > self.after;
    }
}

/// Reads that are in progress or wanted.
#[derive(Debug, Default)]
pub(super) struct GroupReads {
    /// Groups, each with the number of messages that are wanted at once.
    wanted: VecDeque<(GroupName, usize)>,
    pages: HashMap<GroupName, PageChanges>,
    /// While groups are listed: changes that the list may lack.
    listed: Option<ListingChanges>,
    is_list_void: bool,
}

/// Changes while groups are listed.
#[derive(Debug, Default)]
struct ListingChanges {
    /// Messages that were removed or changed.
    changed: HashSet<MessageId>,
    /// Groups with new posts that are not in memory: the listed message may not be the only one of its group.
    posted: HashSet<GroupName>,
    /// Whether there were too many changes to record: then the list gives only the names of groups, and a lower bound
    /// for the first message of each.
    is_overflowed: bool,
}

impl ListingChanges {
    fn note(&mut self) {
        self.is_overflowed |= self.changed.len() + self.posted.len() > limits::ready_cache_messages();
        if self.is_overflowed {
            (self.changed, self.posted) = (HashSet::default(), HashSet::default());
        }
    }
}

impl GroupReads {
    pub(super) fn want(&mut self, name: &GroupName, count: usize) {
        if self.pages.contains_key(name) {
            return;
        }
        if let Some((_, most)) = self.wanted.iter_mut().find(|(wanted, _)| wanted == name) {
            *most = count.max(*most);
        } else if self.wanted.len() < limits::GROUP_READS {
            self.wanted.push_back((name.clone(), count));
        }
    }

    pub(super) fn note_posted(&mut self, name: &GroupName) {
        if let Some(page) = self.pages.get_mut(name) {
            page.was_posted_to = true;
        }
        if let Some(listed) = &mut self.listed {
            listed.posted.insert(name.clone());
            listed.note();
        }
    }

    pub(super) fn void_group(&mut self, name: &GroupName) {
        if let Some(page) = self.pages.get_mut(name) {
            page.is_void = true;
        }
    }

    /// Makes all pages that are being read ignored.
    pub(super) fn void_all(&mut self) {
        self.pages.values_mut().for_each(|page| page.is_void = true);
        self.is_list_void = self.listed.is_some();
    }

    pub(super) fn note_gone(&mut self, id: MessageId, group: Option<&GroupName>) {
        match group {
            Some(group) => self.pages.get_mut(group).into_iter().for_each(|page| page.miss(id)),
            None => self.pages.values_mut().for_each(|page| page.miss(id)),
        }
        self.note_changed(id);
    }

    /// Records that a message is gone, or that a list in progress may show an old state of it.
    pub(super) fn note_changed(&mut self, id: MessageId) {
        if let Some(listed) = &mut self.listed {
            listed.changed.insert(id);
            listed.note();
        }
    }

    fn is_idle(&self) -> bool {
        self.wanted.is_empty() && self.pages.is_empty() && self.listed.is_none()
    }
}

impl Groups {
    /// Whether the pool may have messages that can be taken.
    pub(crate) fn has_more(&self) -> bool {
        !self.reading.is_idle() || matches!(self.listing, GroupListing::On { .. })
    }

    /// Returns the next read, in a queue whose ids are all at most `until`.
    pub(crate) fn begin_read(&mut self, until: MessageId) -> Option<GroupRead> {
        while self.reading.pages.len() < limits::GROUP_READS {
            let Some((name, count)) = self.reading.wanted.pop_front() else { break };
            let Some(Group { reach: GroupCoverage::To(after), .. }) = self.known.get(&name) else { continue };
            let (after, most) = (*after, self.page(&name, count));
            self.reading
                .pages
                .insert(name.clone(), PageChanges { after, is_void: false, was_posted_to: false });
            return Some(GroupRead::Group { name, after, until, most });
        }
        let GroupListing::On { after, .. } = &self.listing else { return None };
        let has_room = self.open.len() <= self.bounds.open;
        if self.reading.listed.is_some() || !has_room {
            return None;
        }
        self.reading.listed = Some(ListingChanges::default());
        Some(GroupRead::Heads { after: after.clone(), until })
    }

    /// The read has failed.
    pub(crate) fn read_failed(&mut self, read: &GroupRead) {
        match read {
            GroupRead::Group { name, .. } => {
                self.reading.pages.remove(name);
            }
            GroupRead::Heads { .. } => {
                self.reading.listed = None;
                self.reading.is_list_void = false;
            }
        }
    }

    /// A page of a group was read, in order of id; `is_last` when there are no more.
    pub(crate) fn finish_group(
        &mut self,
        page: GroupPage<'_>,
        messages: Vec<Message>,
        is_last: bool,
        hidden: &mut HiddenMessages,
    ) {
        let GroupPage { name, after, until } = page;
        let Some(page) = self.reading.pages.remove(name) else { return };
        let is_as_before = self.known.get(name).is_some_and(|group| group.reach == GroupCoverage::To(after));
        if page.is_void || !is_as_before {
            return;
        }
        // Posts after `until` will be reported to the engine, so it needs no read of them.
        let is_all = is_last || messages.last().is_some_and(|message| message.header.id > until);
        let mut reach =
            if is_all && !page.was_posted_to { GroupCoverage::Whole } else { GroupCoverage::To(after) };
        self.make_room(name);
        let is_next = self.is_next(name);
        let mut last = after;
        for message in messages.into_iter().take_while(|message| message.header.id <= until) {
            if self.is_full() && last > after && !is_next {
                reach = GroupCoverage::To(last);
                break;
            }
            last = message.header.id;
            let is_block = matches!(message.header.state, State::Scheduled | State::Moving(_));
            self.take_in(name, message, hidden);
            if is_block {
                // Messages after it cannot be taken, so they are not needed in memory.
                reach = GroupCoverage::To(last);
                break;
            }
            if let GroupCoverage::To(reached) = &mut reach {
                *reached = last;
            }
        }
        self.set_reach(name, reach);
        if let Some(blocking) = hidden.blocking() {
            self.assign_line(name, blocking);
        }
    }

    /// Adds a message that was read from the pool.
    fn take_in(&mut self, name: &GroupName, message: Message, hidden: &mut HiddenMessages) {
        let id = message.header.id;
        if hidden.contains_key(&id) {
            return hidden.learn_from_page(&message.header);
        }
        match message.header.state {
            State::Ready => self.put_ready(name, ReadyMessage::from(message)),
            State::Scheduled => self.put_delayed(name, message.header),
            State::Moving(_) => {
                if let Some(blocking) = hidden.blocking() {
                    blocking.mark_in_transfer(name, id);
                }
            }
            // A prepared message is published later; one without a target stays in the pool, and a kept one is in no group.
            State::Prepared(_) | State::NoTarget | State::Done | State::Failed => {}
        }
    }

    /// A page of the list of groups was read.
    pub(crate) fn finish_heads(
        &mut self,
        until: MessageId,
        heads: Heads,
        is_end: bool,
        hidden: &mut HiddenMessages,
    ) {
        let Some(ListingChanges { changed, posted, is_overflowed }) = self.reading.listed.take() else {
            return;
        };
        if std::mem::take(&mut self.reading.is_list_void) {
            return;
        }
        let last = heads.last().and_then(|(message, _)| message.header.group.clone());
        for (message, is_only) in heads {
            let Some(name) = message.header.group.clone() else { continue };
            if self.known.contains_key(&name) || message.header.id > until {
                continue;
            }
            if is_overflowed || changed.contains(&message.header.id) {
                self.add_known(&name, GroupCoverage::To(message.header.id.before()));
            } else {
                self.take_head(&name, message, is_only && !posted.contains(&name), hidden);
            }
            if let Some(blocking) = hidden.blocking() {
                self.assign_line(&name, blocking);
            }
        }
        self.listing.advance(last, is_end);
    }

    fn take_head(&mut self, name: &GroupName, message: Message, is_only: bool, hidden: &mut HiddenMessages) {
        let id = message.header.id;
        hidden.learn_from_page(&message.header);
        let is_hidden = hidden.contains_key(&id);
        let is_passed = matches!(message.header.state, State::Prepared(_) | State::NoTarget)
            || message.header.state.is_kept();
        // A message that is removed without a known header does not block its group, and the end of its removal does
        // not name the group.
        let is_nameless = hidden.get(&id).is_some_and(|hidden| hidden.header.is_none());
        let can_block = is_hidden || matches!(message.header.state, State::Scheduled | State::Moving(_));
        let blocks = can_block && !is_nameless;
        if is_only && (is_hidden || is_passed) {
            return;
        }
        let reach = if is_only { GroupCoverage::Whole } else { GroupCoverage::To(id) };
        if blocks && self.known.len() >= self.bounds.known {
            self.listing.note_missing_blocked();
            if matches!(message.header.state, State::Moving(_)) {
                self.take_in(name, message, hidden);
            }
            return;
        }
        if self.is_full() {
            self.make_room(name);
        }
        if self.is_full() && !blocks {
            self.add_known(name, GroupCoverage::To(id.before()));
        } else if self.add_known(name, reach) {
            self.take_in(name, message, hidden);
        }
    }
}
