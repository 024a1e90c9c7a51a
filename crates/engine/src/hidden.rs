//! Messages that no caller may be told anything of, or that a claim holds, each with the reason.

use std::collections::{BTreeMap, HashMap};

use super::blocking::Blocking;
use super::group_load::GroupLoad;
use super::lookahead::Lookahead;
use angarium_core::group::GroupName;
use angarium_core::ids::{ClaimId, MessageId};
use angarium_core::message::{Header, State};
use angarium_core::time::Timestamp;

/// Why a message is hidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HiddenReason {
    /// Chosen for a claim that is not durable yet.
    Taking,
    /// Under a claim.
    Claimed(ClaimId),
    /// Its claim ended; what that changed is not durable yet.
    Returning(ClaimId),
    /// Being removed; the claim that holds it, if one does.
    Removing(Option<ClaimId>),
    /// Scheduled or prepared in the pool, and being made ready there.
    Waking,
    /// Being marked in transfer for its move to another queue.
    Leaving,
    /// Going over to another pool with its queue.
    Copying,
}

/// What the removal of a message is counted as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RemovalKind {
    /// Nothing: it was deleted without a claim, or purged.
    #[default]
    Uncounted,
    /// Its claim's holder has handled it, or it was popped.
    Acked,
    /// Its life had ended.
    Expired,
}

/// A hidden message. One that is removed by its id alone may not be known here at all.
#[derive(Clone, Debug)]
pub(super) struct HiddenMessage {
    pub(super) header: Option<Header>,
    pub(super) why: HiddenReason,
    /// Removals under way: two clients may delete one message at the same time.
    pub(super) removals: u32,
    /// What those are counted as. Without any it states nothing.
    pub(super) removed: RemovalKind,
    /// Whether the pool certainly stores it as ready. What its header states here is what it will be: the pool may have
    /// it as scheduled since a release that was cut short.
    pub(super) is_stored_ready: bool,
    /// Whether a message that is not known here may be a delayed one: then it may be the first of a group that is not in
    /// memory, and its removal opens that group without naming it.
    pub(super) may_be_delayed: bool,
}

impl HiddenMessage {
    /// A message that the pool stores with this header.
    pub(super) fn new(header: Header, why: HiddenReason) -> Self {
        Self { header: Some(header), ..Self::unknown(why) }.known_stored()
    }

    /// A message of which only the id is known.
    pub(super) fn unknown(why: HiddenReason) -> Self {
        Self {
            header: None,
            why,
            removals: 0,
            removed: RemovalKind::default(),
            is_stored_ready: false,
            may_be_delayed: false,
        }
    }

    /// The pool stores it as its header states.
    fn known_stored(self) -> Self {
        let is_stored_ready = self.header.as_ref().is_some_and(|header| header.state == State::Ready);
        Self { is_stored_ready, ..self }
    }
}

/// All hidden messages of a queue.
#[derive(Debug, Default)]
pub(super) struct HiddenMessages {
    by_id: BTreeMap<MessageId, HiddenMessage>,
    /// Kept for a queue in order of groups.
    blocking: Option<Blocking>,
    /// Kept for other queues: how many each group has.
    of_groups: HashMap<GroupName, usize>,
    /// What was seen ready beyond the ready cache. What is hidden is not there any more.
    pub(super) ahead: Lookahead,
    /// For how long those of groups were hidden of late.
    pub(super) busy: GroupLoad,
}

impl HiddenMessages {
    /// None, of a queue in order of groups.
    pub(super) fn in_groups() -> Self {
        Self { blocking: Some(Blocking::default()), ..Self::default() }
    }

    /// Which groups they block; none where that is not kept.
    pub(super) fn blocking(&mut self) -> Option<&mut Blocking> {
        self.blocking.as_mut()
    }

    pub(super) fn get(&self, id: &MessageId) -> Option<&HiddenMessage> {
        self.by_id.get(id)
    }

    pub(super) fn get_mut(&mut self, id: &MessageId) -> Option<&mut HiddenMessage> {
        self.by_id.get_mut(id)
    }

    pub(super) fn contains_key(&self, id: &MessageId) -> bool {
        self.by_id.contains_key(id)
    }

    /// In order of id.
    pub(super) fn values(&self) -> impl DoubleEndedIterator<Item = &HiddenMessage> {
        self.by_id.values()
    }

    /// The first one, also among those that only block their groups.
    pub(super) fn first(&self) -> Option<MessageId> {
        let in_transfer = self.blocking.as_ref().and_then(Blocking::first_in_transfer);
        [self.by_id.keys().next().copied(), in_transfer].into_iter().flatten().min()
    }

    /// How many of a group there are, in a queue that is not in order of groups.
    pub(super) fn of_group(&self, group: &GroupName) -> usize {
        self.of_groups.get(group).copied().unwrap_or_default()
    }

    /// Counts for how long messages of groups are hidden. Called before any more are.
    pub(super) fn look_at_time(&mut self, now: Timestamp) {
        let groups = self.of_groups.iter().map(|(group, count)| (group, *count));
        self.busy.look(now, self.by_id.len(), groups);
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn insert(&mut self, id: MessageId, hidden: HiddenMessage) {
        self.ahead.hide(id);
        if let Some(header) = &hidden.header {
            self.count(header);
        }
        if let Some(HiddenMessage { header: Some(before), .. }) = self.by_id.insert(id, hidden)
            && self.blocking.is_none()
        {
            self.discount(&before);
        }
    }

    /// What was hidden by its id alone turns out to be this.
    pub(super) fn learn(&mut self, header: Header) {
        self.count(&header);
        let Some(hidden) = self.by_id.get_mut(&header.id) else { return };
        hidden.is_stored_ready = header.state == State::Ready;
        if let Some(before) = hidden.header.replace(header)
            && self.blocking.is_none()
        {
            self.discount(&before);
        }
    }

    pub(super) fn remove(&mut self, id: &MessageId) -> Option<HiddenMessage> {
        let hidden = self.take(id)?;
        if let Some(header) = &hidden.header {
            self.discount(header);
        }
        Some(hidden)
    }

    /// A message that was hidden continues blocking its group until [`Self::clear_in_transfer`].
    pub(super) fn mark_in_transfer(&mut self, id: MessageId) {
        let Some(HiddenMessage { header: Some(header), .. }) = self.take(&id) else { return };
        match (&mut self.blocking, &header.group) {
            (Some(blocking), Some(group)) => blocking.mark_in_transfer(group, id),
            (Some(_), None) => {}
            (None, _) => self.discount(&header),
        }
    }

    /// A message is not on its way to another queue, or not any more.
    pub(super) fn clear_in_transfer(&mut self, id: MessageId) {
        if let Some(blocking) = &mut self.blocking {
            blocking.clear_in_transfer(id);
        }
    }

    /// An empty tree keeps no leaf.
    fn take(&mut self, id: &MessageId) -> Option<HiddenMessage> {
        self.ahead.unhide(*id);
        let hidden = self.by_id.remove(id);
        if self.by_id.is_empty() {
            self.by_id = BTreeMap::new();
        }
        hidden
    }

    fn count(&mut self, header: &Header) {
        let Some(group) = &header.group else { return };
        match &mut self.blocking {
            Some(blocking) => blocking.block(group, header.id),
            None => *self.of_groups.entry(group.clone()).or_default() += 1,
        }
    }

    /// A message is hidden no more.
    fn discount(&mut self, header: &Header) {
        let Some(group) = &header.group else { return };
        if let Some(blocking) = &mut self.blocking {
            return blocking.release(group, header.id);
        }
        if let Some(count) = self.of_groups.get_mut(group) {
            *count -= 1;
            if *count == 0 {
                self.of_groups.remove(group);
            }
        }
    }
}
