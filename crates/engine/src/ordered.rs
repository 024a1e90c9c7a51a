//! Ordered queues: where their ready messages are, and which of them a claim may have. Source of the rule: SQS, which
//! calls them FIFO queues.

use super::groups::{GroupBounds, GroupPage, GroupRead, Groups, Heads};
use super::hidden::{HiddenMessage, HiddenMessages, HiddenReason, RemovalKind};
use super::queue::{ClaimSelection, QueueEngine, StoredTotals, TakeBounds};
use super::ready_cache::{ReadyCache, ReadyMessage};
use crate::limits;
use angarium_core::group::GroupName;
use angarium_core::ids::MessageId;
use angarium_core::message::{Header, Message, Retention, State};
use angarium_core::time::Timestamp;

impl QueueEngine {
    /// Like [`QueueEngine::open`], for an ordered queue.
    pub fn open_ordered(found: StoredTotals, bounds: GroupBounds) -> Self {
        let is_empty = !found.has_ready && !found.is_scheduled && !found.has_aside;
        Self {
            hidden: HiddenMessages::in_groups(),
            groups: Some(Groups::found(is_empty, bounds)),
            ready_cache: ReadyCache::before(found.tail),
            ..Self::open(found)
        }
    }

    /// Whether messages are claimed in order within their groups.
    pub fn is_ordered(&self) -> bool {
        self.groups.is_some()
    }

    /// Whether the removal of a claimed message allows claims of others, because it does not block its group any more.
    pub fn frees_by_removal(&self) -> bool {
        self.is_ordered()
    }

    /// Enters the groups that became free when they are many: no client may ever claim from the queue.
    pub(super) fn enter_freed(&mut self) {
        if let (Some(groups), Some(blocking)) = (&mut self.groups, self.hidden.blocking())
            && blocking.has_many_freed()
        {
            groups.settle(blocking);
        }
    }

    /// Hides messages for a claim: of each group in turn those before the first message that blocks it.
    pub(super) fn take_of_groups(&mut self, taking: TakeBounds, now: Timestamp) -> ClaimSelection {
        let mut taken = ClaimSelection::default();
        let of_group = GroupTaking { bounds: taking, now, retention: self.settings.retention };
        let Self { groups: Some(groups), hidden, .. } = self else { return taken };
        if let Some(blocking) = hidden.blocking() {
            groups.settle(blocking);
        }
        let (mut turn, mut to_read) = (0, 0);
        while taking.can_continue(&taken) && to_read < limits::GROUP_READS {
            let Some((next, name)) = groups.next_open(turn) else { break };
            turn = next + 1;
            match take_of_group(groups, hidden, &name, &of_group, &mut taken) {
                GroupTake::Taken | GroupTake::Blocked => {}
                GroupTake::MustRead => to_read += 1,
            }
        }
        self.claimed += u64::try_from(taken.messages.len()).unwrap_or_default();
        taken
    }

    /// Returns the next read of an ordered queue from the pool; none when nothing is needed, or enough reads are in
    /// progress.
    pub fn begin_group_read(&mut self) -> Option<GroupRead> {
        let until = self.ready_cache.tail();
        self.groups.as_mut()?.begin_read(until)
    }

    /// A page of a group was read, with messages in order of id; `is_last` when there are no more.
    pub fn finish_group_read(&mut self, read: &GroupRead, messages: Vec<Message>, is_last: bool) {
        if let (Some(groups), GroupRead::Group { name, after, until, .. }) = (&mut self.groups, read) {
            groups.finish_group(
                GroupPage { name, after: *after, until: *until },
                messages,
                is_last,
                &mut self.hidden,
            );
        }
    }

    /// The first messages of groups were read; `is_end` when there are no more groups.
    pub fn finish_heads_read(&mut self, read: &GroupRead, heads: Heads, is_end: bool) {
        if let (Some(groups), GroupRead::Heads { until, .. }) = (&mut self.groups, read) {
            groups.finish_heads(*until, heads, is_end, &mut self.hidden);
        }
    }

    /// The read has failed.
    pub fn group_read_failed(&mut self, read: &GroupRead) {
        if let Some(groups) = &mut self.groups {
            groups.read_failed(read);
        }
    }

    /// The header of a ready message, if it is in memory.
    pub(super) fn ready(&self, id: MessageId) -> Option<&Header> {
        match &self.groups {
            Some(groups) => groups.get(id),
            None => self.ready_cache.get(id),
        }
    }

    /// Removes a message from the ready ones. Returns its header, if it was in memory.
    pub(super) fn take_out(&mut self, id: MessageId) -> Option<Header> {
        match &mut self.groups {
            Some(groups) => groups.remove(id),
            None => self.ready_cache.remove(id).map(|ready| ready.header),
        }
    }

    /// Adds a new durable message that is not hidden.
    pub(super) fn append(&mut self, message: Message) {
        let Some(groups) = &mut self.groups else {
            let tail = self.ready_cache.tail();
            let header = message.header.clone();
            if header.state == State::Ready {
                self.ready_cache.append(message);
            } else {
                self.ready_cache.pass(header.id);
                self.schedule.expect(header.ready);
            }
            return self.posted_ahead(&header, tail);
        };
        self.ready_cache.pass(message.header.id);
        let is_ready = message.header.state == State::Ready;
        if !is_ready {
            self.schedule.expect(message.header.ready);
        }
        if let Some(blocking) = self.hidden.blocking() {
            if is_ready {
                groups.append(message, blocking);
            } else {
                groups.append_delayed(message.header, blocking);
            }
        }
    }

    /// Shows a message of an ordered queue that was hidden and is ready.
    pub(super) fn show_in_group(&mut self, ready: ReadyMessage) {
        // It may have come from another queue, with an id greater than all of this queue.
        self.ready_cache.pass(ready.header.id);
        if let (Some(groups), Some(blocking)) = (&mut self.groups, self.hidden.blocking()) {
            groups.show(ready, blocking);
        }
    }

    /// Shows a message of an ordered queue that was hidden and is scheduled.
    pub(super) fn put_off_in_group(&mut self, header: Header) {
        if let (Some(groups), Some(blocking)) = (&mut self.groups, self.hidden.blocking()) {
            groups.put_off(header, blocking);
        }
    }

    /// A message is gone from the pool; `group` if known.
    pub(super) fn removed_from_group(&mut self, id: MessageId, group: Option<&GroupName>) {
        self.hidden.clear_in_transfer(id);
        if let Some(groups) = &mut self.groups {
            groups.gone(id, group);
        }
    }

    /// Lists the groups again: one that is not in memory may be free, and it is unknown which.
    pub(super) fn list_groups_again(&mut self) {
        if let Some(groups) = &mut self.groups {
            groups.list_again();
        }
    }
}

/// Parameters of a selection from one group.
struct GroupTaking {
    bounds: TakeBounds,
    now: Timestamp,
    retention: Retention,
}

/// Result of the turn of a group.
enum GroupTake {
    Taken,
    Blocked,
    MustRead,
}

fn take_of_group(
    groups: &mut Groups,
    hidden: &mut HiddenMessages,
    name: &GroupName,
    take: &GroupTaking,
    taken: &mut ClaimSelection,
) -> GroupTake {
    let GroupTaking { bounds: taking, now, retention } = *take;
    let Some(blocking) = hidden.blocking() else { return GroupTake::Blocked };
    // The first message that blocked the group before this selection: messages taken here block it only afterwards.
    let blocked = groups.blocked_at(name, blocking);
    if groups.must_read(name, taking.left(taken), blocked) {
        return GroupTake::MustRead;
    }
    let (mut has_dead, mut count) = (false, 0);
    while taking.can_continue(taken) {
        let Some(header) = groups.first(name, blocked) else { break };
        let is_expired = header.is_expired(now, retention);
        let is_dead = !is_expired && taking.is_dead(header);
        // Messages after a dead one wait until it is gone.
        if has_dead && !is_dead && !is_expired {
            break;
        }
        let Some(ReadyMessage { header, body }) = groups.pop_first(name) else { break };
        (has_dead, count) = (has_dead || is_dead, count + 1);
        let id = header.id;
        if is_expired {
            let why = HiddenReason::Removing(None);
            let gone = HiddenMessage {
                removals: 1,
                removed: RemovalKind::Expired,
                ..HiddenMessage::new(header, why)
            };
            hidden.insert(id, gone);
            taken.expired.push(id);
        } else if is_dead {
            hidden.insert(id, HiddenMessage::new(header.clone(), HiddenReason::Leaving));
            taken.dead.push(header);
        } else {
            hidden.insert(id, HiddenMessage::new(header.clone(), HiddenReason::Taking));
            taken.messages.push((header, body));
        }
    }
    let Some(blocking) = hidden.blocking() else { return GroupTake::Blocked };
    if count > 0 {
        groups.served(name, count, blocking);
        GroupTake::Taken
    } else {
        groups.assign_line(name, blocking);
        GroupTake::Blocked
    }
}
