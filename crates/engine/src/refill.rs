//! Refill of the ready cache from the pool when it runs low.
//!
//! The queue changes while a page is read. Messages that were removed meanwhile are left out of the page, messages
//! that became ready take precedence over it, and posted messages are added after it (P2).

use std::collections::BTreeMap;

use super::groups::Groups;
use super::queue::QueueEngine;
use super::ready_cache::ReadyMessage;

use crate::limits;
use angarium_core::ids::MessageId;
use angarium_core::maps::HashSet;
use angarium_core::message::{Message, State};
use angarium_core::mutation::{Mutation, is_on};

/// A page to read from the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refill {
    /// Read after this id.
    pub after: MessageId,
    /// Read up to this id.
    pub until: MessageId,
}

/// Changes while a page is read.
#[derive(Debug)]
pub(super) struct RefillState {
    /// Removed messages: the page may still have them.
    removed: HashSet<MessageId>,
    /// Messages beyond the cursor that became ready: the page may have an older header of them, or lack them.
    changed: BTreeMap<MessageId, ReadyMessage>,
    /// Whether the page must be ignored.
    is_void: bool,
    /// Posted messages, so that the cache of a queue with continuous posts can become whole again. None when there were
    /// too many.
    posted: Option<Vec<Message>>,
}

impl RefillState {
    fn new() -> Self {
        Self {
            removed: HashSet::default(),
            changed: BTreeMap::new(),
            is_void: false,
            posted: Some(Vec::new()),
        }
    }

    /// Records posted messages, as many as a ready cache may have.
    pub(super) fn keep(&mut self, messages: &[Message]) {
        let Some(posted) = &mut self.posted else { return };
        if posted.len() + messages.len() > limits::ready_cache_messages() {
            self.posted = None;
        } else {
            posted.extend(messages.iter().filter(|message| message.header.state == State::Ready).cloned());
        }
    }

    /// Records a message that became ready, as many as a ready cache may have.
    pub(super) fn change(&mut self, ready: ReadyMessage) {
        self.removed.remove(&ready.header.id);
        self.changed.insert(ready.header.id, ready);
        self.is_void |= self.changed.len() > limits::ready_cache_messages();
    }

    pub(super) fn remove(&mut self, id: MessageId) {
        self.changed.remove(&id);
        self.removed.insert(id);
    }

    /// Records that the page may lack a message that was hidden while it was read.
    pub(super) fn void(&mut self) {
        self.is_void = true;
    }
}

impl QueueEngine {
    /// Returns the page to read when the ready cache runs low and the pool has more; none while a page is being read.
    pub fn begin_refill(&mut self) -> Option<Refill> {
        if self.is_ordered()
            || self.refill.is_some()
            || self.ready_cache.is_whole()
            || !self.ready_cache.is_low()
        {
            return None;
        }
        self.refill = Some(RefillState::new());
        // Beyond the tail the pool may have posts whose outcome is unknown here.
        Some(Refill { after: self.ready_cache.cursor(), until: self.ready_cache.tail() })
    }

    /// The page was read: entries after `refill.after`, in order; `is_last` when there are no more.
    pub fn finish_refill(&mut self, refill: Refill, page: Vec<Message>, is_last: bool) {
        let Some(state) = self.refill.take() else { return };
        // A message that was released meanwhile may have lowered the cursor: then the page does not begin right after
        // it.
        if state.is_void || self.ready_cache.cursor() != refill.after {
            return;
        }
        let reaches = match page.last() {
            Some(last) if !is_last => last.header.id,
            _ => refill.until,
        };
        let posted = state.posted.filter(|_| reaches >= refill.until);
        let end = if posted.is_some() { self.ready_cache.tail() } else { reaches.min(refill.until) };
        let known = page.into_iter().filter(|message| message.header.id <= refill.until);
        let read = known.chain(posted.into_iter().flatten()).map(ReadyMessage::from);
        let read = read.filter(|ready| {
            !state.removed.contains(&ready.header.id) || is_on(Mutation::RestoreRemovalByRefill)
        });
        let ready: Vec<ReadyMessage> = if state.changed.is_empty() {
            read.collect()
        } else {
            let mut merged: BTreeMap<MessageId, ReadyMessage> =
                read.map(|ready| (ready.header.id, ready)).collect();
            merged.extend(state.changed.into_iter().filter(|(id, _)| *id <= end));
            merged.into_values().collect()
        };
        let hidden = &self.hidden;
        self.ready_cache.extend(
            ready.into_iter().filter(|ready| {
                !hidden.contains_key(&ready.header.id) || is_on(Mutation::ShowHiddenByRefill)
            }),
            end,
        );
    }

    /// The page could not be read.
    pub fn refill_failed(&mut self) {
        self.refill = None;
    }

    /// Bytes of the ready messages in memory.
    pub fn ready_bytes(&self) -> usize {
        self.groups.as_ref().map_or(self.ready_cache.bytes(), Groups::bytes)
    }

    /// Evicts all ready messages, which frees their memory. The next claim reads them from the pool again.
    pub fn evict_ready(&mut self) {
        match &mut self.groups {
            Some(groups) => groups.leave(),
            None => {
                self.ready_cache.leave();
                self.hidden.ahead.clear();
            }
        }
    }

    /// Whether there may be ready messages beyond the ready cache.
    pub fn has_more(&self) -> bool {
        self.groups.as_ref().map_or(!self.ready_cache.is_whole(), Groups::has_more)
    }
}

#[cfg(test)]
mod tests {
    use angarium_core::ids::MessageId;
    use angarium_core::message::{Header, Life};
    use angarium_core::time::Timestamp;
    use bytes::Bytes;

    use super::*;
    use crate::StoredTotals;

    fn id(number: u8) -> MessageId {
        let mut id = [0; 16];
        id[15] = number;
        MessageId::from_bytes(id)
    }

    fn messages(numbers: &[u8]) -> Vec<Message> {
        let created = Timestamp::from_millis(1);
        let message = |number: &u8| Message {
            header: Header {
                id: id(*number),
                created,
                ready: created,
                life: Life::Own { ttl: 3_600, expires: Timestamp::from_millis(3_600_001) },
                attempts: 0,
                client: None,
                size: 1,
                state: State::Ready,
                group: None,
                first_claimed: None,
                extras: None,
            },
            body: Bytes::from_static(b"1"),
        };
        numbers.iter().map(message).collect()
    }

    /// A queue that was opened with messages up to this one.
    fn engine(tail: u8) -> QueueEngine {
        QueueEngine::open(StoredTotals {
            tail: id(tail),
            has_ready: true,
            is_scheduled: false,
            has_aside: false,
        })
    }

    fn taken(engine: &mut QueueEngine) -> Vec<u8> {
        let taken = engine.take(20, Timestamp::from_millis(2)).messages;
        taken.iter().map(|(header, _)| header.id.as_bytes()[15]).collect()
    }

    #[test]
    fn late_post_behind_the_cursor_is_claimed() {
        let mut engine = engine(20);
        let refill = engine.begin_refill().unwrap();
        engine.finish_refill(refill, messages(&[1, 2, 9]), false);
        engine.posted(messages(&[21]));
        engine.posted(messages(&[5]));
        assert_eq!(taken(&mut engine), [1, 2, 5, 9]);
    }

    #[test]
    fn late_post_beside_a_read_is_claimed() {
        let mut engine = engine(20);
        let refill = engine.begin_refill().unwrap();
        engine.posted(messages(&[5]));
        engine.finish_refill(refill, messages(&[1, 2, 20]), true);
        assert_eq!(taken(&mut engine), [1, 2, 5, 20]);
        assert!(engine.ready_cache.is_whole());
    }

    #[test]
    fn late_post_in_whole_cache_leaves_it_whole() {
        let mut engine = engine(1);
        let refill = engine.begin_refill().unwrap();
        engine.finish_refill(refill, messages(&[1]), true);
        engine.posted(messages(&[7]));
        engine.posted(messages(&[5]));
        assert!(engine.ready_cache.is_whole());
        assert_eq!(taken(&mut engine), [1, 5, 7]);
    }
}
