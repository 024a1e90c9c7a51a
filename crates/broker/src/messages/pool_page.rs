//! Pages of the entries of a queue in order of id, from one or two orders of its pool.

use angarium_core::error::Error;
use angarium_core::ids::{MessageId, QueueId};
use angarium_core::message::{Message, State};
use angarium_core::selection::MessageSelection;
use angarium_core::settle::MessageState;
use angarium_storage::{Direction, Order, Page, Position};

use crate::stores::queue_store::{PageBound, QueueStore};

/// The entries that a reader wants, in order of id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntriesById {
    /// The ready ones.
    Ready,
    /// The ones that are neither ready nor kept.
    NotReady,
    /// All but the kept ones.
    NotKept,
}

impl EntriesById {
    /// Returns the entries without an outcome that may fulfil the conditions of a selection; none if none can.
    pub(crate) fn of(selection: &MessageSelection) -> Option<Self> {
        let wants = |state| selection.states.is_empty() || selection.states.contains(&state);
        let (ready, delayed) = (wants(MessageState::Ready), wants(MessageState::Delayed));
        // A claimed message is stored as ready, or as scheduled while a release with a delay is cut short.
        if wants(MessageState::Claimed) {
            return Some(Self::NotKept);
        }
        match (ready, delayed || wants(MessageState::Held) || wants(MessageState::InTransfer)) {
            (true, true) => Some(Self::NotKept),
            (true, false) => Some(Self::Ready),
            (false, true) => Some(Self::NotReady),
            (false, false) => None,
        }
    }

    /// The orders of the pool that have these entries, in the order of the reads. Ready entries are read last: one that
    /// becomes ready between the two reads is in both, and never in none.
    pub(crate) const fn orders(self) -> &'static [Order] {
        match self {
            Self::Ready => &[Order::Ready],
            Self::NotReady => &[Order::Aside],
            Self::NotKept => &[Order::Aside, Order::Ready],
        }
    }
}

/// One page that was read from the pool.
#[derive(Debug, Default)]
pub(crate) struct PoolPage {
    /// Entries in order of id, each once.
    pub(crate) messages: Vec<Message>,
    /// The last entry that was read; none when nothing is behind it.
    pub(crate) end: Option<MessageId>,
    /// What the page cost.
    pub(crate) cost: ReadCost,
}

/// What was read from the pool, also entries that no page has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReadCost {
    pub(crate) entries: usize,
    /// Bytes of bodies and extras.
    pub(crate) bytes: usize,
}

impl ReadCost {
    pub(crate) fn of(page: &Page) -> Self {
        Self { entries: page.messages.len(), bytes: page.bytes() }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.entries += other.entries;
        self.bytes += other.bytes;
    }
}

impl PoolPage {
    /// Reads the entries behind `after`, at most `most` of each order.
    pub(crate) async fn read(
        store: &QueueStore,
        queue: QueueId,
        entries: EntriesById,
        after: MessageId,
        most: PageBound,
    ) -> Result<Self, Error> {
        let from = Some(after).filter(|after| *after > MessageId::ZERO).map(Position::id);
        let mut found = Self::default();
        for order in entries.orders() {
            found.add(store.scan(queue, *order, Direction::Up, from, most).await?);
        }
        // Of two, the ready one stays.
        found.messages.sort_by_key(|message| (message.header.id, message.header.state != State::Ready));
        found.messages.dedup_by_key(|message| message.header.id);
        // Behind the end of one of two reads, the other is incomplete.
        found.messages.retain(|message| found.end.is_none_or(|end| message.header.id <= end));
        Ok(found)
    }

    /// Returns a page in order of id.
    pub(crate) fn of(page: Page) -> Self {
        let mut found = Self::default();
        found.add(page);
        found
    }

    fn add(&mut self, page: Page) {
        self.cost.add(ReadCost::of(&page));
        let end = page.messages.last().map(|message| message.header.id).filter(|_| !page.is_last);
        self.end = [self.end, end].into_iter().flatten().min();
        self.messages.extend(page.messages);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_orders_of_selected_states_are_read() {
        use MessageState::{Claimed, Delayed, Done, Failed, InTransfer, Ready};
        for (states, entries, kept) in [
            (&[][..], Some(EntriesById::NotKept), true),
            (&[Ready], Some(EntriesById::Ready), false),
            (&[Delayed], Some(EntriesById::NotReady), false),
            (&[InTransfer, Failed], Some(EntriesById::NotReady), true),
            (&[Ready, Delayed], Some(EntriesById::NotKept), false),
            (&[Claimed], Some(EntriesById::NotKept), false),
            (&[Done, Failed], None, true),
        ] {
            let selection = MessageSelection { states: states.to_vec(), ..MessageSelection::default() };
            assert_eq!((EntriesById::of(&selection), selection.wants_kept()), (entries, kept), "{states:?}");
        }
    }
}
