//! The purposes of pending writes, and the table of their properties.

use angarium_core::attributes::Attributes;
use angarium_core::durability::Durability;
use angarium_core::mutation::{Mutation, is_on};

/// Why a queue is changed. The properties of a write, and its effect on the engine, follow from its purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Append posted messages, with the notes of their deduplication ids.
    Post,
    /// Append the copies of posted messages to the queue of a subscription.
    FanOut,
    /// Remove the notes of deduplication ids.
    ForgetDedup,
    /// Write headers of messages that stay hidden until the submitter continues.
    Update,
    /// Make messages ready.
    Wake,
    /// Make a message of another queue ready, with copies for subscriptions in the same batch.
    Publish,
    /// The same, for a message that only the older pool has.
    PublishInOlder,
    /// Mark messages in transfer to another queue.
    MarkInTransfer,
    /// Append messages of another queue, hidden until the transfer publishes them.
    Prepare,
    /// Remove messages that were deleted or have expired.
    Remove,
    /// Remove messages that a transfer has moved, or leaves at the other queue.
    RemoveTransferred,
    /// Append messages to the newer pool in the copy phase, with the note of their ids.
    Copy,
    /// Remove copied messages from the older pool.
    RemoveCopied,
    /// Write notes to the newer pool in the copy phase.
    CopyNotes,
    /// Remove the note of the last copied messages: none of them is in both pools.
    ForgetCopied,
    /// Write the outcome of a message that its holder settles, with its forwards and its note.
    Settle,
    /// The same, for a message that only the older pool has.
    SettleInOlder,
    /// Make a message available again.
    Requeue,
    /// Put a new message in the place of another one.
    Replace,
    /// The same, for a message that only the older pool has.
    ReplaceInOlder,
    /// Remove the notes of settles.
    ForgetSettles,
}

/// The pools of a write while its queue is in two of them. A pool that does not have the changed entries changes
/// nothing (P6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolRoute {
    Newer,
    Older,
    /// One pool, and the other once the first is done, in any order.
    Both,
    /// The newer pool, and the older one once that is done.
    NewerFirst,
}

/// How durable a write is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteClass {
    /// As the attributes of the queue state. Only posts and deletes may be less than synced (P11).
    OfQueue,
    Sync,
}

/// The properties of a purpose.
#[derive(Clone, Copy, Debug)]
struct Properties {
    route: PoolRoute,
    class: WriteClass,
    changes_totals: bool,
    is_copy: bool,
    brings_messages: bool,
}

impl Properties {
    /// A write of headers or notes to all pools of the queue, synced.
    const COMMON: Self = Self {
        route: PoolRoute::Both,
        class: WriteClass::Sync,
        changes_totals: false,
        is_copy: false,
        brings_messages: false,
    };
}

impl Purpose {
    /// The table.
    const fn properties(self) -> Properties {
        use PoolRoute::{Newer, NewerFirst, Older};
        use WriteClass::OfQueue;
        let common = Properties::COMMON;
        let removal = Properties { changes_totals: true, ..common };
        let append = Properties { route: Newer, changes_totals: true, brings_messages: true, ..common };
        let copy = Properties { route: Newer, is_copy: true, ..common };
        match self {
            Self::Post | Self::FanOut => Properties { class: OfQueue, ..append },
            Self::Prepare => append,
            Self::Remove => Properties { class: OfQueue, ..removal },
            Self::RemoveTransferred => removal,
            Self::Update | Self::Wake | Self::MarkInTransfer => common,
            // Only the pool that has the message gets its copies.
            Self::Publish => Properties { route: Newer, ..common },
            Self::PublishInOlder => Properties { route: Older, ..common },
            // A later post of the id is written to the newer pool, after this.
            Self::ForgetDedup => Properties { route: NewerFirst, class: OfQueue, ..common },
            // A copied message counts when it is in one pool again.
            Self::Copy => Properties { brings_messages: true, ..copy },
            Self::RemoveCopied => Properties { route: Older, is_copy: true, ..removal },
            Self::CopyNotes | Self::ForgetCopied => copy,
            // Only the pool that has the message gets its forwards.
            Self::Settle => Properties { route: Newer, changes_totals: true, ..common },
            Self::SettleInOlder => Properties { route: Older, changes_totals: true, ..common },
            Self::Requeue => common,
            // Only the pool that has the old message gets the new one.
            Self::Replace => append,
            Self::ReplaceInOlder => Properties { route: Older, ..append },
            Self::ForgetSettles => Properties { class: OfQueue, ..common },
        }
    }

    /// The pools that the write is sent to.
    pub(crate) fn route(self) -> PoolRoute {
        if self == Self::Remove && is_on(Mutation::DeleteInOnePool) {
            return PoolRoute::Newer;
        }
        self.properties().route
    }

    /// How durable the write is, in a queue with these attributes.
    pub(crate) fn durability(self, attributes: &Attributes) -> Durability {
        match self.properties().class {
            WriteClass::OfQueue => attributes.durability.unwrap_or_default(),
            WriteClass::Sync => Durability::Sync,
        }
    }

    /// Whether the totals of the queue change.
    pub(crate) fn changes_totals(self) -> bool {
        self.properties().changes_totals
    }

    /// Whether the write is part of the migration of the queue.
    pub(crate) fn is_copy(self) -> bool {
        self.properties().is_copy
    }

    /// Whether the write brings messages: a pool without room refuses it.
    pub(crate) fn brings_messages(self) -> bool {
        self.properties().brings_messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_of_transfers_and_copies_are_synced_in_relaxed_queue() {
        let relaxed = Attributes { durability: Some(Durability::Relaxed), ..Attributes::default() };
        for purpose in [Purpose::Post, Purpose::FanOut, Purpose::Remove, Purpose::ForgetDedup] {
            assert_eq!(purpose.durability(&relaxed), Durability::Relaxed, "{purpose:?}");
        }
        for purpose in [
            Purpose::Update,
            Purpose::Wake,
            Purpose::Publish,
            Purpose::PublishInOlder,
            Purpose::MarkInTransfer,
            Purpose::Prepare,
            Purpose::RemoveTransferred,
            Purpose::Copy,
            Purpose::RemoveCopied,
            Purpose::CopyNotes,
            Purpose::ForgetCopied,
            Purpose::Settle,
            Purpose::SettleInOlder,
            Purpose::Requeue,
            Purpose::Replace,
            Purpose::ReplaceInOlder,
        ] {
            assert_eq!(purpose.durability(&relaxed), Durability::Sync, "{purpose:?}");
        }
    }

    #[test]
    fn copied_messages_count_once_they_are_removed_from_older_pool() {
        assert!(!Purpose::Copy.changes_totals());
        assert!(Purpose::RemoveCopied.changes_totals());
        assert_eq!(Purpose::Copy.route(), PoolRoute::Newer);
        assert_eq!(Purpose::RemoveCopied.route(), PoolRoute::Older);
    }
}
