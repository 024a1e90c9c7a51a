//! Pages of the entries of a queue in order of id, from one or two orders of its pool.

use angarium_core::error::Error;
use angarium_core::ids::{MessageId, QueueId};
use angarium_core::message::{Message, State};
use angarium_storage::{Direction, Order, Page, Position};

use crate::stores::queue_store::{PageBound, QueueStore};

/// The entries that a reader wants, in order of id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::messages) enum EntriesById {
    /// The ready ones.
    Ready,
    /// The ones that are neither ready nor kept.
    NotReady,
    /// All but the kept ones.
    NotKept,
}

impl EntriesById {
    /// The orders of the pool that have these entries, in the order of the reads. Ready entries are read last: one that
    /// becomes ready between the two reads is in both, and never in none.
    pub(in crate::messages) const fn orders(self) -> &'static [Order] {
        match self {
            Self::Ready => &[Order::Ready],
            Self::NotReady => &[Order::Aside],
            Self::NotKept => &[Order::Aside, Order::Ready],
        }
    }
}

/// One page that was read from the pool.
#[derive(Debug, Default)]
pub(in crate::messages) struct PoolPage {
    /// Entries in order of id, each once.
    pub(in crate::messages) messages: Vec<Message>,
    /// The last entry that was read; none when nothing is behind it.
    pub(in crate::messages) end: Option<MessageId>,
    /// What the page cost.
    pub(in crate::messages) cost: ReadCost,
}

/// What was read from the pool, also entries that no page has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::messages) struct ReadCost {
    pub(in crate::messages) entries: usize,
    /// Bytes of bodies and extras.
    pub(in crate::messages) bytes: usize,
}

impl ReadCost {
    pub(in crate::messages) fn of(page: &Page) -> Self {
        Self { entries: page.messages.len(), bytes: page.bytes() }
    }

    pub(in crate::messages) fn add(&mut self, other: Self) {
        self.entries += other.entries;
        self.bytes += other.bytes;
    }
}

impl PoolPage {
    /// Reads the entries behind `after`, at most `most` of each order.
    pub(in crate::messages) async fn read(
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
    pub(in crate::messages) fn of(page: Page) -> Self {
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
