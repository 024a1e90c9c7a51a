//! Hidden messages, each with the reason: a claim holds them, or a change of them is not durable yet.

use std::collections::BTreeMap;

use super::blocking::Blocking;
use super::group_load::GroupLoad;
use super::lookahead::Lookahead;
use super::release::Release;
use angarium_core::group::GroupName;
use angarium_core::ids::{ClaimId, MessageId};
use angarium_core::maps::{HashMap, HashSet};
use angarium_core::message::{Header, State};
use angarium_core::mutation::{Mutation, is_on};
use angarium_core::time::Timestamp;

/// Why a message is hidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HiddenReason {
    /// Taken for a claim that is not durable yet.
    Taking,
    /// Under a claim.
    Claimed(ClaimId),
    /// Its claim has ended, and the end is not durable yet.
    Returning(ClaimId),
    /// Being removed; with the claim that holds it, if any.
    Removing(Option<ClaimId>),
    /// Scheduled or prepared in the pool, and being made ready there.
    Waking,
    /// Prepared in the pool, and being made scheduled there.
    Publishing,
    /// Being marked in transfer to another queue.
    Leaving,
    /// Being copied to another pool, in a migration of the queue.
    Copying,
    /// Its holder settles it, and the outcome is not durable yet.
    Settling(ClaimId),
    /// Being changed by its id: it is made available again, or a task has selected it.
    Requeuing,
}

impl HiddenReason {
    /// The claim that holds the message, or that is ending.
    pub(super) fn claim(self) -> Option<ClaimId> {
        match self {
            Self::Claimed(claim) | Self::Returning(claim) | Self::Settling(claim) => Some(claim),
            Self::Removing(claim) => claim,
            Self::Taking
            | Self::Waking
            | Self::Publishing
            | Self::Leaving
            | Self::Copying
            | Self::Requeuing => None,
        }
    }
}

/// How the removal of a message is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RemovalKind {
    /// Not counted: it was deleted without a claim, or purged.
    #[default]
    Uncounted,
    /// The holder of its claim has handled it, or it was popped.
    Acked,
    /// It had expired.
    Expired,
}

/// A hidden message. If it is removed by its id alone, memory may not know its header.
#[derive(Clone, Debug)]
pub(super) struct HiddenMessage {
    pub(super) header: Option<Header>,
    pub(super) why: HiddenReason,
    /// Removals in progress: two clients may delete one message at the same time.
    pub(super) removals: u32,
    /// How these removals are counted; without effect if there are none.
    pub(super) removed: RemovalKind,
    /// Whether the pool certainly stores it as ready. The header here has the intended state; after an interrupted
    /// release with a delay the pool may store it as scheduled.
    pub(super) is_stored_ready: bool,
    /// Whether a message without a known header may be delayed: then it may be the first of a group that is not in
    /// memory, and its removal opens that group without naming it. For a message that is being published: whether it
    /// becomes scheduled.
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

    /// Records that the pool stores the message as its header states.
    fn known_stored(self) -> Self {
        let is_stored_ready = self.header.as_ref().is_some_and(|header| header.state == State::Ready);
        Self { is_stored_ready, ..self }
    }
}

/// All hidden messages of a queue.
#[derive(Debug, Default)]
pub(super) struct HiddenMessages {
    by_id: BTreeMap<MessageId, HiddenMessage>,
    /// Blocking messages, for an ordered queue.
    blocking: Option<Blocking>,
    /// Number of hidden messages of each group, for other queues.
    of_groups: HashMap<GroupName, usize>,
    /// Messages of quiet groups that are ready beyond the ready cache. Hidden messages are not in it.
    pub(super) ahead: Lookahead,
    /// Recent time for which messages of groups were hidden.
    pub(super) busy: GroupLoad,
    /// Claimed messages that the pool stores as scheduled, because a release with a delay was cut short or a settle
    /// returns them.
    put_off: HashSet<MessageId>,
}

impl HiddenMessages {
    /// No hidden messages, for an ordered queue.
    pub(super) fn in_groups() -> Self {
        Self { blocking: Some(Blocking::default()), ..Self::default() }
    }

    /// The blocking messages of an ordered queue; none in other queues.
    pub(super) fn blocking(&mut self) -> Option<&mut Blocking> {
        self.blocking.as_mut()
    }

    /// As [`Self::blocking`], to be read only.
    pub(super) fn blockers(&self) -> Option<&Blocking> {
        self.blocking.as_ref()
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

    /// All hidden messages in order of id.
    pub(super) fn values(&self) -> impl DoubleEndedIterator<Item = &HiddenMessage> {
        self.by_id.values()
    }

    /// The first hidden message, including the messages in transfer that only block their groups.
    pub(super) fn first(&self) -> Option<MessageId> {
        let in_transfer = self.blocking.as_ref().and_then(Blocking::first_in_transfer);
        [self.by_id.keys().next().copied(), in_transfer].into_iter().flatten().min()
    }

    /// Number of hidden messages of a group, in a queue that is not ordered.
    pub(super) fn of_group(&self, group: &GroupName) -> usize {
        self.of_groups.get(group).copied().unwrap_or_default()
    }

    /// Records how long messages of groups were hidden until `now`. Called before more messages are hidden.
    pub(super) fn measure_load(&mut self, now: Timestamp) {
        let groups = self.of_groups.iter().map(|(group, count)| (group, *count));
        self.busy.measure(now, self.by_id.len(), groups);
    }

    /// Records that the pool stores a claimed message with the header of this end of its claim.
    pub(super) fn store_ending(&mut self, id: MessageId, ending: Release) {
        match ending.ready {
            Some(_) if !is_on(Mutation::MiscountShortRelease) => self.note_put_off(id),
            Some(_) | None => self.note_unclaimed(id),
        }
    }

    /// Records that the pool stores a claimed message as scheduled.
    pub(super) fn note_put_off(&mut self, id: MessageId) {
        self.put_off.insert(id);
    }

    /// Records that a message is not claimed any more, or that the pool stores it as ready.
    pub(super) fn note_unclaimed(&mut self, id: MessageId) {
        self.put_off.remove(&id);
        if self.put_off.is_empty() {
            // An emptied set keeps its memory, so it is replaced.
            self.put_off = HashSet::default();
        }
    }

    /// Number of claimed messages that the pool stores as scheduled.
    pub(super) fn put_off(&self) -> usize {
        self.put_off.len()
    }

    /// Number of hidden messages.
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

    /// Records the header of a message that was hidden by its id alone.
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

    /// Records the header of a message that is hidden by its id alone and stays in the queue, from a page that was read:
    /// it blocks its group.
    pub(super) fn learn_from_page(&mut self, header: &Header) {
        let is_unknown =
            |hidden: &HiddenMessage| hidden.header.is_none() && hidden.why == HiddenReason::Requeuing;
        if !self.by_id.get(&header.id).is_some_and(is_unknown) {
            return;
        }
        match (&header.state, &mut self.blocking, &header.group) {
            (State::Moving(_), Some(blocking), Some(group)) => blocking.mark_in_transfer(group, header.id),
            (state, ..) if state.is_in_transfer() => {}
            _ => self.learn(header.clone()),
        }
    }

    pub(super) fn remove(&mut self, id: &MessageId) -> Option<HiddenMessage> {
        let hidden = self.take(id)?;
        if let Some(header) = &hidden.header {
            self.discount(header);
        }
        Some(hidden)
    }

    /// A hidden message is in transfer: it blocks its group until [`Self::clear_in_transfer`].
    pub(super) fn mark_in_transfer(&mut self, id: MessageId) {
        let Some(HiddenMessage { header: Some(header), .. }) = self.take(&id) else { return };
        match (&mut self.blocking, &header.group) {
            (Some(blocking), Some(group)) => blocking.mark_in_transfer(group, id),
            (Some(_), None) => {}
            (None, _) => self.discount(&header),
        }
    }

    /// A message is not in transfer, or not any more.
    pub(super) fn clear_in_transfer(&mut self, id: MessageId) {
        if let Some(blocking) = &mut self.blocking {
            blocking.clear_in_transfer(id);
        }
    }

    /// Replaces the tree when it becomes empty, because an empty tree keeps a leaf allocated.
    fn take(&mut self, id: &MessageId) -> Option<HiddenMessage> {
        self.ahead.unhide(*id);
        if !self.put_off.is_empty() {
            self.note_unclaimed(*id);
        }
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

    /// A message is not hidden any more.
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
