//! What a pool answers: pages, positions, totals, health.

use std::time::Duration;

use angarium_core::durability::Durability;
use angarium_core::ids::{MessageId, QueueId};
use angarium_core::message::{Header, Message};
use angarium_core::time::Timestamp;

/// Which entries of a queue a scan shows, and by what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Ready ones, by id.
    Ready,
    /// Those in every other state, by id.
    Aside,
    /// Scheduled ones, by the time they become ready, then by id.
    Schedule,
}

/// Which way a scan leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the first upwards.
    Up,
    /// From the last downwards.
    Down,
}

/// A place in an order. Where entries lie by id only the id counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// When the entry there becomes ready.
    pub ready: Timestamp,
    /// Decides where entries become ready at the same time.
    pub id: MessageId,
}

impl Position {
    /// The place of an entry.
    pub fn of(header: &Header) -> Self {
        Self { ready: header.ready, id: header.id }
    }

    /// The place of an id, in the orders by id.
    pub fn id(id: MessageId) -> Self {
        Self { ready: Timestamp::default(), id }
    }
}

/// One page of a scan.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// Entries in the order asked for.
    pub messages: Vec<Message>,
    /// Whether there is nothing beyond them.
    pub is_last: bool,
}

/// The first entry of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupHead {
    /// The entry with the least id.
    pub message: Message,
    /// Whether it is the only one.
    pub is_only: bool,
}

/// Why entries of a slot are due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// They are scheduled, and become ready.
    Schedule,
    /// Their life has ended.
    Expiry,
}

/// What a pool knows of a queue without counting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Entries, in any state.
    pub messages: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
    /// Those of them that are scheduled.
    pub scheduled: u64,
    /// Those of them that are prepared, moving or failed.
    pub in_transfer: u64,
}

impl Totals {
    /// Those that are ready, claimed or not.
    pub fn ready(&self) -> u64 {
        self.messages.saturating_sub(self.scheduled).saturating_sub(self.in_transfer)
    }
}

/// What a pool holds in all its queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Queues that have an entry.
    pub queues: u64,
    /// Entries, in any state.
    pub messages: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
}

/// Whether a queue that is being dropped is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropResult {
    /// Nothing of it is left.
    Done,
    /// There is more of it: drop it again.
    More,
}

/// How a pool that can be reached does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// How long a small read took.
    pub took: Duration,
    /// The most durable class it can reach.
    pub class: Durability,
    /// Bytes that can still be written to where it is, if it knows.
    pub free: Option<u64>,
    /// Bytes of where it is in all, if it knows.
    pub total: Option<u64>,
}

/// What came of a step of counting entries again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recount {
    /// Nothing is left to count: the totals are certain, but those of queues that cannot be read.
    Done,
    /// There may be more to count. These were corrected.
    More(Vec<Correction>),
}

/// Totals of a queue that were wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Correction {
    /// The queue whose totals were wrong.
    pub queue: QueueId,
    /// What its totals said.
    pub before: Totals,
    /// What it held then.
    pub after: Totals,
}
