//! Looking at messages without taking them.

use bytes::Bytes;

use super::queue::QueueEngine;
use angarium_core::ids::MessageId;
use angarium_core::message::Header;

/// Ready messages as memory has them.
#[derive(Debug, Default)]
pub struct ReadyPage {
    /// Messages in order. A body that is absent must be read from the pool.
    pub messages: Vec<(Header, Option<Bytes>)>,
    /// Behind this id only the pool knows what is ready; none when memory knows the whole queue.
    pub read_on: Option<MessageId>,
}

impl QueueEngine {
    /// The ready messages behind `after` that are in memory and wanted, at most `limit`.
    pub fn browse(&self, after: MessageId, limit: usize, is_wanted: impl Fn(&Header) -> bool) -> ReadyPage {
        if self.is_ordered() || self.waits_for_copies() {
            return ReadyPage { messages: Vec::new(), read_on: Some(after) };
        }
        let ready = self.ready_cache.behind(after).filter(|ready| is_wanted(&ready.header));
        let messages = ready.take(limit).map(|ready| (ready.header.clone(), ready.body.clone())).collect();
        let read_on = (!self.ready_cache.is_whole()).then(|| self.ready_cache.cursor().max(after));
        ReadyPage { messages, read_on }
    }

    /// Whether a message that the pool has is neither claimed nor about to change.
    pub fn is_free(&self, id: MessageId) -> bool {
        !self.hidden.contains_key(&id) || self.is_copying(id)
    }
}
