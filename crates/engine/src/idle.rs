//! Idle queues: memory has nothing that the pool does not have.

use super::queue::QueueEngine;

impl QueueEngine {
    /// Whether the queue can be closed and opened again without a difference: no claim, no message that is hidden,
    /// scheduled, in transfer or copied, no read in progress, and no remembered deduplication id.
    pub fn is_idle(&self) -> bool {
        self.claims.is_empty()
            && self.claimed == 0
            && self.hidden.len() == 0
            && self.hidden.first().is_none()
            && self.refill.is_none()
            && self.sweeps.is_empty()
            && self.copying.is_empty()
            && !self.schedule.has_any()
            && !self.has_in_transfer()
            && self.dedup_count() == 0
    }

    /// Whether the queue is certainly empty. False for an ordered queue, of which memory cannot tell.
    pub fn is_known_empty(&self) -> bool {
        self.is_idle()
            && !self.kept.may_exist
            && self.groups.is_none()
            && self.ready_cache.is_whole()
            && self.ready_cache.first().is_none()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{GroupBounds, StoredTotals};
    use angarium_core::group::GroupName;
    use angarium_core::ids::MessageId;
    use angarium_core::message::{Header, Life, Message, State};
    use angarium_core::time::Timestamp;

    fn message(number: u64) -> Message {
        let created = Timestamp::from_millis(1);
        let mut id = [0; 16];
        id[8..].copy_from_slice(&number.to_be_bytes());
        let header = Header {
            id: MessageId::from_bytes(id),
            created,
            ready: created,
            life: Life::Own { ttl: 3_600, expires: Timestamp::from_millis(3_600_001) },
            attempts: 0,
            client: None,
            size: 1,
            state: State::Ready,
            group: Some(GroupName::new(&format!("g{number}"), "group").unwrap()),
            first_claimed: None,
            extras: None,
        };
        Message { header, body: Bytes::from_static(b"1") }
    }

    #[test]
    fn freed_groups_in_unread_queue_stay_few() {
        let found =
            StoredTotals { tail: MessageId::ZERO, has_ready: false, is_scheduled: false, has_aside: false };
        let mut engine = QueueEngine::open_ordered(found, GroupBounds::default());
        assert!(engine.is_idle());
        for number in 1..10_000 {
            let message = message(number);
            let id = message.header.id;
            engine.posted(vec![message]);
            engine.begin_remove(id, None, Timestamp::from_millis(2)).unwrap();
            assert!(!engine.is_idle());
            engine.removed(&[id]);
            engine.take_tally();
            let blocking = engine.hidden.blocking().unwrap();
            assert!(!blocking.has_many_freed(), "after {number}");
        }
        assert!(engine.is_idle());
    }
}
