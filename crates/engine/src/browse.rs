//! Reads of messages without a claim.

use bytes::Bytes;

use super::queue::QueueEngine;
use angarium_core::ids::MessageId;
use angarium_core::message::Header;

/// Ready messages that are in memory.
#[derive(Debug, Default)]
pub struct ReadyPage {
    /// Messages in order. An absent body must be read from the pool.
    pub messages: Vec<(Header, Option<Bytes>)>,
    /// The id after which only the pool knows the ready messages; none when memory has the whole queue.
    pub read_on: Option<MessageId>,
}

impl QueueEngine {
    /// Returns the ready messages after `after` in memory that `is_wanted` accepts, at most `limit`.
    pub fn browse(&self, after: MessageId, limit: usize, is_wanted: impl Fn(&Header) -> bool) -> ReadyPage {
        if self.is_ordered() || self.waits_for_copies() {
            return ReadyPage { messages: Vec::new(), read_on: Some(after) };
        }
        let ready = self.ready_cache.behind(after).filter(|ready| is_wanted(&ready.header));
        let messages = ready.take(limit).map(|ready| (ready.header.clone(), ready.body.clone())).collect();
        let read_on = (!self.ready_cache.is_whole()).then(|| self.ready_cache.cursor().max(after));
        ReadyPage { messages, read_on }
    }

    /// Whether a stored message is neither claimed nor being changed.
    pub fn is_free(&self, id: MessageId) -> bool {
        !self.hidden.contains_key(&id) || self.is_copying(id)
    }
}
