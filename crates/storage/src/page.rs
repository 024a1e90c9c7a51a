//! Results of a pool's reads: pages, positions, totals, health.

use std::time::Duration;

use angarium_core::durability::Durability;
use angarium_core::ids::{MessageId, QueueId};
use angarium_core::message::{Header, Message};
use angarium_core::time::Timestamp;

/// Selection and order of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Ready entries, by id.
    Ready,
    /// Entries that are neither ready nor kept, by id.
    Aside,
    /// Scheduled entries, by the time when they become ready, then by id.
    Schedule,
    /// Kept entries (done or failed), by the time when they were settled, then by id.
    Kept,
}

/// Direction of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Ascending.
    Up,
    /// Descending.
    Down,
}

/// A position in an order. In an order by id only the id counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// When the entry becomes ready, or when it was settled.
    pub ready: Timestamp,
    /// The id of the entry: it decides between entries of the same time.
    pub id: MessageId,
}

impl Position {
    /// The position of an entry.
    pub fn of(header: &Header) -> Self {
        Self { ready: header.ready, id: header.id }
    }

    /// The position of an id, in the orders by id.
    pub fn id(id: MessageId) -> Self {
        Self { ready: Timestamp::default(), id }
    }
}

/// One page of a scan.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// Entries in the requested order.
    pub messages: Vec<Message>,
    /// Whether there are no entries after them.
    pub is_last: bool,
}

impl Page {
    /// Bytes of the bodies and extras.
    pub fn bytes(&self) -> usize {
        self.messages.iter().map(|message| message.body.len() + message.header.extras_bytes()).sum()
    }
}

/// The first entry of a group of messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupHead {
    /// The entry with the smallest id.
    pub message: Message,
    /// Whether it is the only entry of the group.
    pub is_only: bool,
}

/// Kind of time at which entries of a slot are due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Scheduled entries become ready.
    Schedule,
    /// Entries expire.
    Expiry,
}

/// Totals of a queue, as the pool stores them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Number of entries, in any state.
    pub messages: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
    /// Number of scheduled entries.
    pub scheduled: u64,
    /// Number of prepared and moving entries, and of those without a target.
    pub in_transfer: u64,
    /// Number of kept entries: done or failed.
    pub kept: u64,
    /// Bytes, among `bytes`, of bodies that the pool stores beside their entries because several have them.
    pub shared: u64,
    /// Bytes of such bodies that this queue is the lender of, each once, as long as any queue has an entry with it.
    pub lent: u64,
}

impl Totals {
    /// Bytes that the pool stores for the queue: a body that entries of several queues share counts once, in the totals
    /// of its lender.
    pub fn stored(&self) -> u64 {
        self.bytes.saturating_sub(self.shared).saturating_add(self.lent)
    }

    /// Number of ready entries, claimed ones included.
    pub fn ready(&self) -> u64 {
        self.messages.saturating_sub(self.scheduled + self.in_transfer + self.kept)
    }
}

/// Totals of all queues of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Number of queues that have an entry.
    pub queues: u64,
    /// Number of entries, in any state.
    pub messages: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
}

/// Progress of the drop of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropResult {
    /// No data of the queue is left.
    Done,
    /// There is more data: drop it again.
    More,
}

/// Figures of a pool that can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// Duration of a small read.
    pub took: Duration,
    /// The most durable class that the pool reaches.
    pub class: Durability,
    /// Bytes that can still be written to its storage, if known.
    pub free: Option<u64>,
    /// Size of its storage in bytes, if known.
    pub total: Option<u64>,
}

/// Result of one step of a recount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recount {
    /// All is counted: the totals are correct, except those of queues that cannot be read.
    Done,
    /// There may be more to count. Has the corrections of this step.
    More(Vec<Correction>),
}

/// Correction of the totals of one queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Correction {
    /// The queue whose totals were wrong.
    pub queue: QueueId,
    /// The wrong totals.
    pub before: Totals,
    /// The counted totals.
    pub after: Totals,
}
