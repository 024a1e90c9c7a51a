//! Messages that nobody may be told anything of, or that a claim holds, each with the reason.

use std::collections::BTreeMap;

use super::blocking::Blocking;
use crate::domain::ids::{ClaimId, MessageId};
use crate::domain::message::Header;

/// Why a message is hidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
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
    /// Being set aside for its move to another queue.
    Leaving,
}

/// What the removal of a message is counted as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Removed {
    /// Nothing: it was deleted without a claim, or purged.
    #[default]
    Uncounted,
    /// Its claim's holder has handled it, or it was popped.
    Acked,
    /// Its life was over.
    Expired,
}

/// A hidden message. One that is removed by its id alone may not be known here at all.
#[derive(Clone, Debug)]
pub(super) struct Hidden {
    pub(super) header: Option<Header>,
    pub(super) why: Why,
    /// Removals under way: two clients may delete one message at the same time.
    pub(super) removals: u32,
    /// What those are counted as. Without any it says nothing.
    pub(super) removed: Removed,
}

impl Hidden {
    pub(super) fn new(header: Header, why: Why) -> Self {
        Self { header: Some(header), why, removals: 0, removed: Removed::default() }
    }
}

/// All hidden messages of a queue.
#[derive(Debug, Default)]
pub(super) struct HiddenMessages {
    by_id: BTreeMap<MessageId, Hidden>,
    /// Kept for a queue in order of groups.
    blocking: Option<Blocking>,
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

    pub(super) fn get(&self, id: &MessageId) -> Option<&Hidden> {
        self.by_id.get(id)
    }

    pub(super) fn get_mut(&mut self, id: &MessageId) -> Option<&mut Hidden> {
        self.by_id.get_mut(id)
    }

    pub(super) fn contains_key(&self, id: &MessageId) -> bool {
        self.by_id.contains_key(id)
    }

    /// In order of id.
    pub(super) fn values(&self) -> impl DoubleEndedIterator<Item = &Hidden> {
        self.by_id.values()
    }

    /// The first one, also among those that only block their groups.
    pub(super) fn first(&self) -> Option<MessageId> {
        let aside = self.blocking.as_ref().and_then(Blocking::first_aside);
        [self.by_id.keys().next().copied(), aside].into_iter().flatten().min()
    }

    pub(super) fn insert(&mut self, id: MessageId, hidden: Hidden) {
        if let Some(header) = &hidden.header {
            self.block(header);
        }
        self.by_id.insert(id, hidden);
    }

    /// What was hidden by its id alone turns out to be this.
    pub(super) fn learn(&mut self, header: Header) {
        self.block(&header);
        if let Some(hidden) = self.by_id.get_mut(&header.id) {
            hidden.header = Some(header);
        }
    }

    pub(super) fn remove(&mut self, id: &MessageId) -> Option<Hidden> {
        let hidden = self.by_id.remove(id)?;
        if let (Some(blocking), Some(header)) = (&mut self.blocking, &hidden.header)
            && let Some(group) = &header.group
        {
            blocking.release(group, *id);
        }
        Some(hidden)
    }

    /// A message that was hidden goes on blocking its group until [`Self::not_aside`].
    pub(super) fn set_aside(&mut self, id: MessageId) {
        let Some(hidden) = self.by_id.remove(&id) else { return };
        if let (Some(blocking), Some(header)) = (&mut self.blocking, hidden.header)
            && let Some(group) = &header.group
        {
            blocking.set_aside(group, id);
        }
    }

    /// A message is not on its way to another queue, or not any more.
    pub(super) fn not_aside(&mut self, id: MessageId) {
        if let Some(blocking) = &mut self.blocking {
            blocking.not_aside(id);
        }
    }

    fn block(&mut self, header: &Header) {
        if let (Some(blocking), Some(group)) = (&mut self.blocking, &header.group) {
            blocking.block(group, header.id);
        }
    }
}
