//! Reading on in the pool when the ready cache runs low.
//!
//! A page is read while the queue changes. What was removed meanwhile is left out of it, what became ready
//! meanwhile wins over it, and what was posted meanwhile follows it (P2).

use std::collections::{BTreeMap, HashSet};

use super::groups::Groups;
use super::queue::QueueEngine;
use super::ready_cache::ReadyMessage;
use crate::limits;
use angarium_core::ids::MessageId;
use angarium_core::message::{Message, State};

/// A page to read from the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refill {
    /// Read behind this id.
    pub after: MessageId,
    /// And no further than this one.
    pub until: MessageId,
}

/// What happened while a page is read.
#[derive(Debug)]
pub(super) struct RefillState {
    /// What was removed: the page may still show it.
    removed: HashSet<MessageId>,
    /// What became ready beyond the cursor: the page may show an older header, or have passed by.
    changed: BTreeMap<MessageId, ReadyMessage>,
    /// Whether the page can no longer be trusted at all.
    is_void: bool,
    /// What was posted, so that a queue that is posted to all the time can become whole again. None when there
    /// was too much of it.
    posted: Option<Vec<Message>>,
}

impl RefillState {
    fn new() -> Self {
        Self { removed: HashSet::new(), changed: BTreeMap::new(), is_void: false, posted: Some(Vec::new()) }
    }

    /// Remembers what is posted, up to a ready cache's worth.
    pub(super) fn keep(&mut self, messages: &[Message]) {
        let Some(posted) = &mut self.posted else { return };
        if posted.len() + messages.len() > limits::READY_CACHE_MESSAGES {
            self.posted = None;
        } else {
            posted.extend(messages.iter().filter(|message| message.header.state == State::Ready).cloned());
        }
    }

    /// Remembers what became ready, up to a ready cache's worth.
    pub(super) fn change(&mut self, ready: ReadyMessage) {
        self.removed.remove(&ready.header.id);
        self.changed.insert(ready.header.id, ready);
        self.is_void |= self.changed.len() > limits::READY_CACHE_MESSAGES;
    }

    pub(super) fn remove(&mut self, id: MessageId) {
        self.changed.remove(&id);
        self.removed.insert(id);
    }

    /// A page may have been read around a message while it was hidden.
    pub(super) fn distrust(&mut self) {
        self.is_void = true;
    }
}

impl QueueEngine {
    /// The page to read when the ready cache runs low and the pool has more; none while one is read already.
    pub fn begin_refill(&mut self) -> Option<Refill> {
        if self.is_ordered()
            || self.refill.is_some()
            || self.ready_cache.is_whole()
            || !self.ready_cache.is_low()
        {
            return None;
        }
        self.refill = Some(RefillState::new());
        // Beyond the tail the pool may have posts whose outcome is not known here yet.
        Some(Refill { after: self.ready_cache.cursor(), until: self.ready_cache.tail() })
    }

    /// The page has been read: entries behind `refill.after`, in order, `is_last` when there are no more.
    pub fn finish_refill(&mut self, refill: Refill, page: Vec<Message>, is_last: bool) {
        let Some(state) = self.refill.take() else { return };
        // What came back meanwhile may have pulled the cursor down: then the page does not begin behind it.
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
        let read = read.filter(|ready| !state.removed.contains(&ready.header.id));
        let ready: Vec<ReadyMessage> = if state.changed.is_empty() {
            read.collect()
        } else {
            let mut merged: BTreeMap<MessageId, ReadyMessage> =
                read.map(|ready| (ready.header.id, ready)).collect();
            merged.extend(state.changed.into_iter().filter(|(id, _)| *id <= end));
            merged.into_values().collect()
        };
        let hidden = &self.hidden;
        self.ready_cache
            .extend(ready.into_iter().filter(|ready| !hidden.contains_key(&ready.header.id)), end);
    }

    /// The page could not be read.
    pub fn refill_failed(&mut self) {
        self.refill = None;
    }

    /// Bytes of the ready messages that are in memory.
    pub fn ready_bytes(&self) -> usize {
        self.groups.as_ref().map_or(self.ready_cache.bytes(), Groups::bytes)
    }

    /// Leaves all ready messages to the pool, which frees their memory. They are read again when a caller claims.
    pub fn evict_ready(&mut self) {
        match &mut self.groups {
            Some(groups) => groups.leave(),
            None => {
                self.ready_cache.leave();
                self.hidden.ahead.clear();
            }
        }
    }

    /// Whether ready messages may lie beyond the ready cache.
    pub fn has_more(&self) -> bool {
        self.groups.as_ref().map_or(!self.ready_cache.is_whole(), Groups::has_more)
    }
}
