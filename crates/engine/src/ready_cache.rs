//! The ready cache: the ready messages of a queue that are in memory, and the cursor.
//!
//! Invariant: every ready message whose id is at or below the cursor is in the ready cache. Messages beyond the cursor
//! are only in the pool. The newest id of the queue is its tail; when the cursor is at the tail, the ready cache is the
//! whole queue. So ten million ready messages cost the memory of one ready cache.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;

use super::fair::FairOrder;
use crate::limits;
use angarium_core::group::GroupName;
use angarium_core::ids::MessageId;
use angarium_core::limits as core_limits;
use angarium_core::message::{Header, Message};
use angarium_core::mutation::{Mutation, is_on};
use angarium_core::time::Timestamp;

/// A ready message. After a claim of it has ended, only the header is here; the body is read at the next claim.
#[derive(Clone, Debug)]
pub(super) struct ReadyMessage {
    pub(super) header: Header,
    pub(super) body: Option<Bytes>,
}

impl From<Message> for ReadyMessage {
    fn from(message: Message) -> Self {
        Self { header: message.header, body: Some(message.body) }
    }
}

impl ReadyMessage {
    pub(super) fn bytes(&self) -> usize {
        size_of::<Header>() + self.header.extras_bytes() + self.body.as_ref().map_or(0, Bytes::len)
    }
}

#[derive(Debug)]
pub(super) struct ReadyCache {
    ready: BTreeMap<MessageId, ReadyMessage>,
    bytes: usize,
    cursor: MessageId,
    tail: MessageId,
    order: FairOrder,
}

impl ReadyCache {
    /// An empty ready cache of a queue whose ids are all at most `tail`.
    pub(super) fn before(tail: MessageId) -> Self {
        Self { ready: BTreeMap::new(), bytes: 0, cursor: MessageId::ZERO, tail, order: FairOrder::default() }
    }

    pub(super) fn cursor(&self) -> MessageId {
        self.cursor
    }

    pub(super) fn tail(&self) -> MessageId {
        self.tail
    }

    /// Whether no message is beyond the cursor.
    pub(super) fn is_whole(&self) -> bool {
        self.cursor >= self.tail
    }

    /// Bytes of the messages in memory.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Forgets all messages; the pool has them.
    pub(super) fn leave(&mut self) {
        if let Some(first) = self.first() {
            self.end_before(first);
        }
    }

    pub(super) fn is_low(&self) -> bool {
        self.ready.len() < limits::ready_cache_low() && self.bytes < core_limits::READY_CACHE_BYTES / 4
    }

    fn is_full(&self) -> bool {
        self.bytes >= core_limits::READY_CACHE_BYTES || self.ready.len() >= limits::ready_cache_messages()
    }

    pub(super) fn first(&self) -> Option<MessageId> {
        self.ready.keys().next().copied()
    }

    pub(super) fn oldest(&self) -> Option<&Header> {
        self.ready.values().next().map(|ready| &ready.header)
    }

    pub(super) fn newest(&self) -> Option<&Header> {
        self.ready.values().next_back().map(|ready| &ready.header)
    }

    /// The ready messages after an id, in order.
    pub(super) fn behind(&self, id: MessageId) -> impl Iterator<Item = &ReadyMessage> {
        self.ready.range((Bound::Excluded(id), Bound::Unbounded)).map(|(_, ready)| ready)
    }

    /// The headers of the ready messages, in order.
    pub(super) fn headers(&self) -> impl Iterator<Item = &Header> {
        self.ready.values().map(|ready| &ready.header)
    }

    pub(super) fn get(&self, id: MessageId) -> Option<&Header> {
        self.ready.get(&id).map(|ready| &ready.header)
    }

    pub(super) fn pop_first(&mut self) -> Option<ReadyMessage> {
        let (_, ready) = self.ready.pop_first()?;
        self.left(&ready);
        Some(ready)
    }

    pub(super) fn remove(&mut self, id: MessageId) -> Option<ReadyMessage> {
        let ready = self.ready.remove(&id)?;
        self.left(&ready);
        Some(ready)
    }

    /// Adds a new durable message. Its id is greater than the tail.
    pub(super) fn append(&mut self, message: Message) {
        let id = message.header.id;
        if self.is_whole() && !self.is_full() {
            self.cursor = id;
            self.insert(message.into());
        }
        self.tail = self.tail.max(id);
    }

    /// Records a new durable message that is not ready, or already hidden. Its id is greater than the tail.
    pub(super) fn pass(&mut self, id: MessageId) {
        if self.is_whole() {
            self.cursor = self.cursor.max(id);
        }
        self.tail = self.tail.max(id);
    }

    /// Adds a message that became ready after it was hidden or not ready. Beyond the cursor it stays in the pool only.
    pub(super) fn put_back(&mut self, ready: ReadyMessage) {
        if ready.header.id > self.cursor || is_on(Mutation::ForgetReleaseBelowCursor) {
            // It may have come from another queue, with an id greater than all of this queue.
            if !is_on(Mutation::IgnoreArrivalBeyondTail) {
                self.tail = self.tail.max(ready.header.id);
            }
            return;
        }
        self.insert(ready);
        while self.is_full() && self.ready.len() > 1 {
            let Some((id, evicted)) = self.ready.pop_last() else { return };
            self.left(&evicted);
            self.cursor = id.before();
        }
    }

    /// Forgets the messages from `id` on; the pool has them.
    pub(super) fn end_before(&mut self, id: MessageId) {
        if id <= self.cursor {
            let evicted = self.ready.split_off(&id);
            evicted.values().for_each(|ready| self.left(ready));
            self.cursor = id.before();
        }
    }

    /// Adds a page of the pool that begins right after the cursor. The cursor then moves to `end`, or as far as there
    /// is room.
    pub(super) fn extend(&mut self, page: impl Iterator<Item = ReadyMessage>, end: MessageId) {
        for ready in page {
            if self.is_full() {
                return;
            }
            self.cursor = ready.header.id;
            self.insert(ready);
        }
        self.cursor = self.cursor.max(end);
    }

    /// The fair order of the messages.
    pub(super) fn fair_order(&self) -> &FairOrder {
        &self.order
    }

    /// The first message of quiet groups, or without a group. Used while there is a noisy group.
    pub(super) fn first_quiet(&self) -> Option<&Header> {
        self.get(self.order.first_quiet()?)
    }

    pub(super) fn make_noisy(&mut self, group: &GroupName, now: Timestamp) {
        self.order.make_noisy(group, now, self.ready.values().map(|ready| &ready.header));
    }

    pub(super) fn note_sent(&mut self, group: Option<&GroupName>, now: Timestamp) {
        self.order.note_sent(group, now);
    }

    /// Makes groups quiet that are not noisy any more. Returns whether a group became quiet.
    pub(super) fn settle_order(&mut self, now: Timestamp) -> bool {
        let is_whole = self.is_whole();
        self.order.settle(is_whole, now)
    }

    /// Accounts for a message that left the ready cache.
    fn left(&mut self, ready: &ReadyMessage) {
        self.bytes -= ready.bytes();
        self.order.remove(&ready.header);
        // An empty tree keeps its last leaf, which has room for eleven messages: for very many idle queues that would
        // be most of their memory.
        if self.ready.is_empty() {
            self.ready = BTreeMap::new();
        }
    }

    fn insert(&mut self, ready: ReadyMessage) {
        self.order.add(&ready.header);
        self.bytes += ready.bytes();
        if let Some(old) = self.ready.insert(ready.header.id, ready) {
            self.bytes -= old.bytes();
        }
    }
}
